//! Volumes made by cryptsetup and qemu are opened here, and the other way round: headers, key slots and contents.
//!
//! cryptsetup moves data through a volume without the kernel only when it reencrypts: `reencrypt --encrypt` and
//! `--decrypt` are what the contents are compared with.

use std::fs;
use std::sync::Arc;

use device::Device;
use volume::crypt::CryptOptions;
use volume::luks::{self, FormatOptions, Hash, KdfOptions, Limits, Luks, LuksError, Version};

use crate::common::*;

/// Lets cryptsetup encrypt `img` in place under a detached header `hdr`, or decrypt it.
const ENCRYPT: &str =
    "reencrypt --encrypt --force-offline-reencrypt --batch-mode --header hdr --key-file key";
const DECRYPT: &str =
    "reencrypt --decrypt --force-offline-reencrypt --batch-mode --header hdr --key-file key img";
const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

#[test]
fn contents_that_cryptsetup_encrypted_read_here_and_what_is_written_here_decrypts_there() {
    if !have("cryptsetup") {
        return;
    }
    let argon2 = "--pbkdf-force-iterations 4 --pbkdf-memory 32 --pbkdf-parallel";
    let matrix = [
        (format!("--cipher aes-xts-plain64 --key-size 512 --sector-size 512 {CHEAP}")),
        (format!(
            "--cipher aes-xts-plain64 --key-size 256 --sector-size 1024 --pbkdf argon2id {argon2} 1"
        )),
        (format!(
            "--cipher aes-xts-plain64 --key-size 512 --sector-size 2048 --pbkdf argon2i {argon2} 3"
        )),
        (format!(
            "--cipher aes-xts-plain64 --key-size 512 --sector-size 4096 --pbkdf argon2id {argon2} 4"
        )),
        (format!(
            "--cipher aes-cbc-essiv:sha256 --key-size 256 --sector-size 512 {CHEAP} --hash sha512"
        )),
        (format!("--cipher aes-cbc-plain64 --key-size 128 --sector-size 512 {CHEAP} --hash sha1")),
        (format!(
            "--cipher aes-cbc-plain64 --key-size 256 --sector-size 4096 {CHEAP} --hash sha384"
        )),
        (format!("--cipher serpent-xts-plain64 --key-size 512 --sector-size 4096 {CHEAP}")),
        (format!("--cipher twofish-xts-plain64 --key-size 512 --sector-size 512 {CHEAP}")),
    ];
    for (seed, options) in matrix.iter().enumerate() {
        let dir = Dir::new();
        let plain = noise(seed as u64, 64 << 10);
        dir.file("img", &plain);
        let made = dir.try_run("cryptsetup", &format!("{ENCRYPT} {options} img"));
        if !made.status.success() {
            // Kernels differ in the ciphers they offer to user space, and cryptsetup has none of its own for some.
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(!options.contains("aes"), "{options}: {why}");
            eprintln!("skipped: cryptsetup here cannot {options}: {}", why.trim());
            continue;
        }
        assert_ne!(fs::read(dir.path("img")).unwrap(), plain, "{options}");
        let written = noise(seed as u64 + 100, 64 << 10);
        {
            let (header, data) = (dir.open("hdr"), dir.open("img"));
            let volume = contents(&header, Some(&data), PASS);
            assert_eq!(all(&volume), plain, "{options}");
            volume.write_at(&written, 0).unwrap();
            volume.flush().unwrap();
        }
        // It takes cryptsetup seconds, so not for each.
        if seed % 3 == 0 {
            dir.run("cryptsetup", DECRYPT);
            assert!(fs::read(dir.path("img")).unwrap() == written, "{options}");
        }
    }
}

#[test]
fn volumes_made_here_decrypt_with_cryptsetup_to_what_was_written() {
    if !have("cryptsetup") {
        return;
    }
    let matrix = [
        ("aes-xts-plain64", 64, 512, PBKDF2),
        ("aes-xts-plain64", 32, 4096, ARGON2ID),
        ("aes-cbc-essiv:sha256", 32, 512, PBKDF2),
    ];
    for (seed, (cipher, key_len, sector, kdf)) in matrix.into_iter().enumerate() {
        let dir = Dir::new();
        let plain = noise(seed as u64, 64 << 10);
        dir.file("img", &vec![0; plain.len()]);
        dir.file("hdr", &vec![0; 16 << 20]);
        {
            let (header, data) = (dir.open("hdr"), dir.open("img"));
            let options = FormatOptions {
                cipher: cipher.into(),
                key_len,
                sector_size: Some(sector),
                kdf: Some(kdf),
                ..FormatOptions::default()
            };
            luks::format(Arc::clone(&header), Some(&*data), &options, PASS).unwrap();
            contents(&header, Some(&data), PASS)
                .write_at(&plain, 0)
                .unwrap();
        }
        dir.run("cryptsetup", DECRYPT);
        assert!(
            fs::read(dir.path("img")).unwrap() == plain,
            "{cipher} {sector}"
        );
    }
}

#[test]
fn cryptsetup_accepts_what_is_made_here_and_keys_of_one_are_removed_by_the_other() {
    if !have("cryptsetup") {
        return;
    }
    for version in [Version::Luks2, Version::Luks1] {
        let dir = Dir::new();
        dir.file("img", &vec![0; 20 << 20]);
        dir.file("second", b"second");
        dir.file("third", b"third");
        let kdf = match version {
            Version::Luks1 => PBKDF2,
            Version::Luks2 => ARGON2ID,
        };
        let options = FormatOptions {
            version,
            kdf: Some(kdf.clone()),
            ..FormatOptions::default()
        };
        luks::format(dir.open("img"), None, &options, PASS).unwrap();
        let dump = dir.run("cryptsetup", "luksDump img");
        assert!(dump.contains(read(&dir.open("img")).uuid()), "{dump}");
        let test = |key: &str, slot: &str| {
            let args = format!("open --test-passphrase --key-file {key} {slot} img");
            dir.try_run("cryptsetup", &args).status.success()
        };
        assert!(test("key", "--key-slot 0"));
        assert!(!test("second", ""));

        // A key of cryptsetup's.
        dir.run(
            "cryptsetup",
            &format!("luksAddKey {CHEAP} --key-file key img second"),
        );
        let mut luks = read(&dir.open("img"));
        let (key, slot) = luks.unlock(b"second", &Limits::default()).unwrap();
        assert_eq!(slot, 1);
        // And one of ours, in a slot that is named.
        assert_eq!(luks.add_key(&key, b"third", &kdf, Some(5)).unwrap(), 5);
        drop(luks);
        assert!(test("third", "--key-slot 5"));

        // Ours is removed there, theirs here.
        dir.run("cryptsetup", "luksKillSlot --batch-mode img 5");
        let mut luks = read(&dir.open("img"));
        assert!(matches!(
            luks.unlock(b"third", &Limits::default()),
            Err(LuksError::WrongPassphrase)
        ));
        luks.remove_key(1).unwrap();
        // Changing keeps the passphrase's slot where the format can.
        let slot = luks.change_key(&key, 0, b"third", &kdf).unwrap();
        assert_eq!(slot, u8::from(version == Version::Luks1));
        drop(luks);
        assert!(!test("second", "") && !test("key", ""));
        assert!(test("third", &format!("--key-slot {slot}")));
        dir.run(
            "cryptsetup",
            &format!("luksChangeKey --batch-mode {CHEAP} --key-file third img key"),
        );
        let luks = read(&dir.open("img"));
        let (again, _) = luks.unlock(PASS, &Limits::default()).unwrap();
        assert_eq!(again.expose(), key.expose());
    }
}

#[test]
fn backups_of_headers_are_the_same_bytes_as_cryptsetups_and_go_both_ways() {
    if !have("cryptsetup") {
        return;
    }
    for options in [cheap(), cheap_luks1()] {
        let dir = Dir::new();
        dir.file("img", &vec![0; 4 << 20]);
        let device = dir.open("img");
        let mut luks = luks::format(Arc::clone(&device), None, &options, PASS).unwrap();
        let ours = luks::backup_header(&device).unwrap();
        drop((device, luks));
        dir.run(
            "cryptsetup",
            "luksHeaderBackup img --header-backup-file theirs",
        );
        let theirs = fs::read(dir.path("theirs")).unwrap();
        assert_eq!(theirs.len(), ours.len());
        let differ = (0..theirs.len()).find(|at| theirs[*at] != ours[*at]);
        assert_eq!(differ, None, "{:?}", options.version);

        // A second key is added; the backup without it comes back, here and there.
        let device = dir.open("img");
        luks = Luks::read(Arc::clone(&device)).unwrap();
        let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
        luks.add_key(&key, b"second", &PBKDF2, None).unwrap();
        let with_second = luks::backup_header(&device).unwrap();
        let restored = luks::restore_header(&device, &theirs, false).unwrap();
        assert!(restored.unlock(b"second", &Limits::default()).is_err());
        assert!(restored.unlock(PASS, &Limits::default()).is_ok());
        drop((device, luks, restored));
        dir.file("ours", &with_second);
        dir.run(
            "cryptsetup",
            "luksHeaderRestore --batch-mode img --header-backup-file ours",
        );
        let luks = read(&dir.open("img"));
        assert_eq!(luks.unlock(b"second", &Limits::default()).unwrap().1, 1);
    }
}

#[test]
fn a_volume_of_cryptsetups_with_many_slots_labels_and_tokens_is_kept_whole_by_changes_here() {
    if !have("cryptsetup") {
        return;
    }
    let dir = Dir::new();
    dir.file("img", &vec![0; 20 << 20]);
    dir.run("cryptsetup", &format!("luksFormat --batch-mode --type luks2 --label first --subsystem sub {CHEAP} --key-file key --sector-size 4096 img"));
    for slot in 1..4 {
        dir.file("more", format!("more {slot}").as_bytes());
        dir.run(
            "cryptsetup",
            &format!("luksAddKey {CHEAP} --key-file key img more"),
        );
    }
    dir.file(
        "token",
        br#"{"type":"strongroom-test","keyslots":["0","2"],"what":{"ever":[1,2,3]}}"#,
    );
    dir.run(
        "cryptsetup",
        "token import --json-file token --token-id 7 img",
    );
    dir.run("cryptsetup", "config --priority prefer --key-slot 3 img");
    let mut luks = read(&dir.open("img"));
    let dump = luks.dump();
    assert_eq!(
        (dump.label.as_str(), dump.subsystem.as_str()),
        ("first", "sub")
    );
    assert_eq!(dump.tokens[0].keyslots, [0, 2]);
    assert_eq!(dump.keyslots[3].priority, "preferred");
    let (key, slot) = luks.unlock(b"more 2", &Limits::default()).unwrap();
    assert_eq!(slot, 2);
    luks.change_key(&key, 2, b"changed", &ARGON2ID).unwrap();
    luks.remove_key(1).unwrap();
    luks.set_label("other", "").unwrap();
    luks.set_flags(&["allow-discards"]).unwrap();
    luks.set_uuid("11111111-2222-4333-8444-555555555555")
        .unwrap();
    drop(luks);
    let token = dir.run("cryptsetup", "token export --token-id 7 img");
    assert!(
        token.contains("strongroom-test") && token.contains("ever"),
        "{token}"
    );
    let text = dir.run("cryptsetup", "luksDump img");
    for expected in [
        "Label:         \tother",
        "allow-discards",
        "11111111-2222-4333-8444-555555555555",
        "argon2id",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(
        dir.try_run(
            "cryptsetup",
            "open --test-passphrase --key-slot 2 --key-file key img"
        )
        .status
        .code()
            != Some(0)
    );
    dir.file("changed", b"changed");
    dir.run(
        "cryptsetup",
        "open --test-passphrase --key-slot 2 --key-file changed img",
    );
    let dump = read(&dir.open("img")).dump();
    assert_eq!(dump.tokens[0].keyslots, [0, 2]);
    assert_eq!(
        dump.keyslots.iter().map(|s| s.id).collect::<Vec<_>>(),
        [0, 2, 3]
    );
}

/// Before `qemu-img` makes a volume it measures the processor by its thread's time, which the kernel counts in ticks: where none fell
/// into the measurement `qemu-img` fails. Then the test runs it once more.
fn make_with_qemu(dir: &Dir, arguments: &str) {
    for _ in 0..100 {
        let output = dir.try_run("qemu-img", arguments);
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Unable to get accurate CPU usage"), "{said}");
    }
    panic!("qemu-img cannot measure this processor");
}

#[test]
fn luks1_volumes_of_qemu_read_here_and_ours_read_with_qemu() {
    if !have("qemu-img") {
        return;
    }
    let ciphers = [
        (
            "cipher-alg=aes-256,cipher-mode=xts,ivgen-alg=plain64",
            "aes-xts-plain64",
            64,
            "sha256",
            Hash::Sha256,
        ),
        (
            "cipher-alg=aes-256,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
            "aes-cbc-essiv:sha256",
            32,
            "sha1",
            Hash::Sha1,
        ),
        (
            "cipher-alg=aes-128,cipher-mode=cbc,ivgen-alg=plain64",
            "aes-cbc-plain64",
            16,
            "sha512",
            Hash::Sha512,
        ),
    ];
    for (seed, (qemu, cipher, key_len, name, hash)) in ciphers.into_iter().enumerate() {
        let dir = Dir::new();
        let plain = noise(seed as u64, 256 << 10);
        dir.file("plain", &plain);
        let secret = "--object secret,id=s,file=key";
        let options = format!("key-secret=s,iter-time=10,{qemu},hash-alg={name}");
        make_with_qemu(
            &dir,
            &format!("convert {secret} -f raw -O luks -o {options} plain img"),
        );
        let device = dir.open("img");
        let volume = contents(&device, None, PASS);
        assert!(all(&volume)[..plain.len()] == plain, "{cipher}");
        drop((device, volume));

        let device_len = (2 << 20) + plain.len();
        dir.file("ours", &vec![0; device_len]);
        let device = dir.open("ours");
        let options = FormatOptions {
            cipher: cipher.into(),
            key_len,
            hash,
            kdf: Some(PBKDF2),
            version: Version::Luks1,
            ..FormatOptions::default()
        };
        luks::format(Arc::clone(&device), None, &options, PASS).unwrap();
        contents(&device, None, PASS).write_at(&plain, 0).unwrap();
        drop(device);
        dir.run(
            "qemu-img",
            &format!("convert {secret} --image-opts driver=luks,key-secret=s,file.filename=ours -O raw back"),
        );
        assert!(fs::read(dir.path("back")).unwrap() == plain, "{cipher}");
    }
}

#[test]
fn attached_volumes_of_cryptsetup_open_and_keep_their_data_apart_from_the_header() {
    if !have("cryptsetup") {
        return;
    }
    let dir = Dir::new();
    dir.file("img", &vec![0; 18 << 20]);
    dir.run(
        "cryptsetup",
        &format!("luksFormat --batch-mode --type luks2 {CHEAP} --key-file key img"),
    );
    let plain = noise(1, 2 << 20);
    {
        let device = dir.open("img");
        let volume = contents(&device, None, PASS);
        assert_eq!(volume.len(), 2 << 20);
        volume.write_at(&plain, 0).unwrap();
    }
    dir.run("cryptsetup", "open --test-passphrase --key-file key img");
    // cryptsetup takes the header away into a file, and decrypts what was behind it.
    dir.run("cryptsetup", DECRYPT);
    let decrypted = fs::read(dir.path("img")).unwrap();
    assert!(decrypted[..plain.len()] == plain);
}

#[test]
fn a_length_set_here_is_shown_by_cryptsetup() {
    if !have("cryptsetup") {
        return;
    }
    let dir = Dir::new();
    dir.file("img", &vec![0; 4 << 20]);
    let mut luks = luks::format(dir.open("img"), None, &cheap(), PASS).unwrap();
    luks.resize(None, Some(1 << 20)).unwrap();
    assert!(matches!(
        luks.resize(None, Some(4 << 20)),
        Err(LuksError::TooSmall { .. })
    ));
    drop(luks);
    let dump = dir.run("cryptsetup", "luksDump img");
    assert!(dump.contains("length: 1048576 [bytes]"), "{dump}");
    dir.run("cryptsetup", "open --test-passphrase --key-file key img");
    let mut luks = read(&dir.open("img"));
    let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
    let open = |luks: &Luks| {
        luks.open(None, &key, CryptOptions::default())
            .unwrap()
            .len()
    };
    assert_eq!(open(&luks), 1 << 20);
    luks.resize(None, None).unwrap();
    assert_eq!(open(&luks), 3 << 20);
}

#[test]
fn the_default_key_derivation_is_one_that_cryptsetup_takes() {
    let KdfOptions::Argon2 {
        i: false,
        memory_kib,
        passes: 4,
        lanes: 4,
    } = KdfOptions::argon2id()
    else {
        panic!("another default")
    };
    assert!((64 << 10..=1 << 20).contains(&memory_kib));
    assert!(memory_kib <= Limits::default().memory_kib);
}
