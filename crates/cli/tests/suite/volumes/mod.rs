//! The real program on encrypted volumes, with the real `cryptsetup` on the other side.
//!
//! Nothing here needs root or the kernel: cryptsetup makes, changes and tests volumes in plain files.
#![allow(unreachable_pub)]

mod overwriting;
mod phones_and_macs;
mod reencrypt;

use std::fs;
use std::process::{Command, Output};

use crate::common::{Ran, Sandbox, words};

pub const CHEAP: [&str; 4] = ["--kdf", "pbkdf2", "--kdf-iterations", "1000"];
pub const WITH: [&str; 2] = ["--passphrase-file", "pass"];

pub fn volume(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let mut all = vec!["volume"];
    all.extend(args);
    sandbox.run(all)
}

pub fn ok(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let ran = volume(sandbox, args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

pub fn fails(sandbox: &Sandbox, code: i32, words: &str, args: &[&str]) {
    let ran = volume(sandbox, args);
    assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
    assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
}

/// cryptsetup in the sandbox; key files hold the passphrase without a newline.
pub fn cryptsetup(sandbox: &Sandbox, args: &[&str]) -> Output {
    Command::new("cryptsetup")
        .args(args)
        .current_dir(sandbox.path(""))
        .output()
        .unwrap()
}

pub fn cryptsetup_ok(sandbox: &Sandbox, args: &[&str]) {
    let ran = cryptsetup(sandbox, args);
    assert!(
        ran.status.success(),
        "cryptsetup {args:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Whether cryptsetup opens the volume with this key file.
pub fn opens(sandbox: &Sandbox, image: &str, key: &str) -> bool {
    cryptsetup(
        sandbox,
        &["open", "--test-passphrase", image, "--key-file", key],
    )
    .status
    .success()
}

/// A place with a volume of 24 MiB, its passphrase as cryptsetup takes it in `key`, another in `other`.
pub fn place(extra: &[&str]) -> Sandbox {
    let sandbox = Sandbox::empty();
    fs::write(sandbox.path("key"), "correct horse battery staple").unwrap();
    fs::write(sandbox.path("other"), "another key\nof two lines").unwrap();
    let mut args = vec!["format", "v.img", "--size", "24MiB"];
    args.extend(WITH);
    args.extend(CHEAP);
    args.extend(extra);
    ok(&sandbox, &args);
    sandbox
}

pub fn plain(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i / 4099) as u8 ^ (i % 251) as u8)
        .collect()
}

#[test]
fn cryptsetup_opens_what_is_formatted_here() {
    for extra in [
        &[][..],
        &["--sector-size", "512", "--key-size", "256"],
        &["--cipher", "aes-cbc-essiv:sha256", "--sector-size", "512"],
        &["--type", "luks1"],
        &["--label", "my stick", "--subsystem", "test"],
    ] {
        let sandbox = place(extra);
        assert!(opens(&sandbox, "v.img", "key"), "{extra:?}");
        assert!(!opens(&sandbox, "v.img", "other"));
        cryptsetup_ok(&sandbox, &["luksDump", "v.img"]);
        ok(
            &sandbox,
            &["check", "v.img", "--read-data", WITH[0], WITH[1]],
        );
        let json = sandbox.run(["--json", "volume", "dump", "v.img"]);
        let dump: serde_json::Value = serde_json::from_slice(&json.out).unwrap();
        assert_eq!(
            dump["version"],
            if extra.contains(&"luks1") { 1 } else { 2 }
        );
    }
}

#[test]
fn what_is_imported_is_exported_again_to_files_and_through_pipes() {
    let sandbox = place(&[]);
    let data = plain(8 << 20);
    fs::write(sandbox.path("plain"), &data).unwrap();
    ok(&sandbox, &["import", "v.img", "plain", WITH[0], WITH[1]]);
    ok(&sandbox, &["export", "v.img", "out", WITH[0], WITH[1]]);
    assert!(fs::read(sandbox.path("out")).unwrap() == data);
    let piped = ok(&sandbox, &["export", "v.img", "-", WITH[0], WITH[1]]);
    assert!(piped.out == data);
    // The image below holds none of it.
    let image = fs::read(sandbox.path("v.img")).unwrap();
    assert!(!image.windows(64).any(|w| w == &data[..64]));

    let half = plain(1000);
    let ran = sandbox.run_with_input(["volume", "import", "v.img", "-", WITH[0], WITH[1]], &half);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("left as they were"), "{}", ran.err);

    fails(
        &sandbox,
        1,
        "exists",
        &["export", "v.img", "out", WITH[0], WITH[1]],
    );
    ok(
        &sandbox,
        &["export", "v.img", "out", "--force", WITH[0], WITH[1]],
    );
    fs::write(sandbox.path("long"), plain((8 << 20) + 1)).unwrap();
    fails(
        &sandbox,
        9,
        "longer",
        &["import", "v.img", "long", WITH[0], WITH[1]],
    );
}

#[test]
fn the_data_cryptsetup_encrypts_reads_here_and_the_other_way() {
    let sandbox = Sandbox::empty();
    fs::write(sandbox.path("key"), "correct horse battery staple").unwrap();
    // 32 MiB that cryptsetup encrypts in place: its offline reencryption moves real data, without the kernel.
    let data = plain(16 << 20);
    let mut image = data.clone();
    image.resize(48 << 20, 0);
    fs::write(sandbox.path("v.img"), &image).unwrap();
    cryptsetup_ok(
        &sandbox,
        &words(
            "reencrypt --encrypt --force-offline-reencrypt --batch-mode --type luks2 \
             --reduce-device-size 32M --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
             --key-file key v.img",
        ),
    );
    let out = ok(&sandbox, &["export", "v.img", "-", "--key-file", "key"]).out;
    assert!(out[..data.len()] == data[..], "the contents differ");

    // Written here, decrypted there.
    let mut changed = data.clone();
    changed.reverse();
    fs::write(sandbox.path("plain"), &changed).unwrap();
    ok(&sandbox, &["import", "v.img", "plain", "--key-file", "key"]);
    cryptsetup_ok(
        &sandbox,
        &words(
            "reencrypt --decrypt --force-offline-reencrypt --batch-mode --key-file key \
             --header exported-header v.img",
        ),
    );
    let plain_again = fs::read(sandbox.path("v.img")).unwrap();
    assert!(
        plain_again[..changed.len()] == changed[..],
        "cryptsetup reads something else"
    );
}

#[test]
fn keys_are_added_changed_and_removed_as_cryptsetup_sees_them() {
    for version in ["luks2", "luks1"] {
        let sandbox = place(&["--type", version]);
        let slot_one = words(
            "key add v.img --passphrase-file pass --new-key-file other --kdf pbkdf2 \
             --kdf-iterations 1000",
        );
        ok(&sandbox, &slot_one);
        assert!(opens(&sandbox, "v.img", "key") && opens(&sandbox, "v.img", "other"));

        fs::write(sandbox.path("third"), "a third one").unwrap();
        ok(
            &sandbox,
            &words(
                "key change v.img --key-file other --new-key-file third --kdf pbkdf2 \
                 --kdf-iterations 1000",
            ),
        );
        assert!(opens(&sandbox, "v.img", "third") && !opens(&sandbox, "v.img", "other"));

        // The slot of the credential itself, and the last one, are kept.
        fails(
            &sandbox,
            1,
            "opened just now",
            &["key", "remove", "v.img", "0", WITH[0], WITH[1]],
        );
        ok(
            &sandbox,
            &["key", "remove", "v.img", "0", "--key-file", "third"],
        );
        assert!(!opens(&sandbox, "v.img", "key") && opens(&sandbox, "v.img", "third"));
        fails(
            &sandbox,
            3,
            "no key slot opens",
            &["check", "v.img", WITH[0], WITH[1]],
        );
        cryptsetup_ok(
            &sandbox,
            &words(
                "luksAddKey --batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
                 --key-file third v.img key",
            ),
        );
        ok(&sandbox, &["check", "v.img", WITH[0], WITH[1]]);
    }
}

#[test]
fn a_header_is_backed_up_and_put_back_also_from_cryptsetup() {
    let sandbox = place(&[]);
    ok(&sandbox, &["header", "backup", "v.img", "ours"]);
    cryptsetup_ok(
        &sandbox,
        &words("luksHeaderBackup v.img --header-backup-file theirs"),
    );
    assert!(fs::read(sandbox.path("ours")).unwrap() == fs::read(sandbox.path("theirs")).unwrap());
    // What failed: the volume was said to be no LUKS volume.
    fails(
        &sandbox,
        10,
        "key: no backup of a LUKS header",
        &["header", "restore", "v.img", "key"],
    );
    fs::write(
        sandbox.path("cut"),
        &fs::read(sandbox.path("ours")).unwrap()[..1 << 20],
    )
    .unwrap();
    fails(
        &sandbox,
        1,
        "cut: the backup is cut short",
        &["header", "restore", "v.img", "cut"],
    );
    for backup in ["ours", "theirs"] {
        let mut image = fs::read(sandbox.path("v.img")).unwrap();
        image[..1 << 20].fill(0);
        fs::write(sandbox.path("v.img"), image).unwrap();
        fails(
            &sandbox,
            10,
            "no encrypted volume",
            &["check", "v.img", WITH[0], WITH[1]],
        );
        fails(
            &sandbox,
            1,
            "by force",
            &["header", "restore", "v.img", backup],
        );
        ok(&sandbox, &["header", "restore", "v.img", backup, "--force"]);
        assert!(opens(&sandbox, "v.img", "key"));
    }
    fails(
        &sandbox,
        1,
        "exists",
        &["header", "backup", "v.img", "ours"],
    );
}

#[test]
fn a_detached_header_serves_here_and_there() {
    let sandbox = place(&["--header", "h.img"]);
    fs::write(sandbox.path("plain"), plain(24 << 20)).unwrap();
    ok(
        &sandbox,
        &[
            "import", "v.img", "plain", "--header", "h.img", WITH[0], WITH[1],
        ],
    );
    let out = ok(
        &sandbox,
        &[
            "export", "v.img", "-", "--header", "h.img", WITH[0], WITH[1],
        ],
    );
    assert!(out.out == plain(24 << 20));
    fails(
        &sandbox,
        10,
        "header is kept apart",
        &["check", "v.img", WITH[0], WITH[1]],
    );
    cryptsetup_ok(
        &sandbox,
        &words("open --test-passphrase --header h.img v.img --key-file key"),
    );
}

#[test]
fn lengths_and_derivations_are_changed() {
    let sandbox = place(&[]);
    ok(&sandbox, &["resize", "v.img", "--size", "4MiB"]);
    assert_eq!(
        ok(&sandbox, &["export", "v.img", "-", WITH[0], WITH[1]])
            .out
            .len(),
        4 << 20
    );
    ok(&sandbox, &["resize", "v.img"]);
    assert_eq!(
        ok(&sandbox, &["export", "v.img", "-", WITH[0], WITH[1]])
            .out
            .len(),
        8 << 20
    );

    ok(
        &sandbox,
        &words(
            "convert v.img --passphrase-file pass --kdf argon2id --kdf-memory 1 \
             --kdf-passes 4 --kdf-lanes 1",
        ),
    );
    let dump = ok(&sandbox, &["dump", "v.img"]);
    assert!(String::from_utf8_lossy(&dump.out).contains("argon2id"));
    assert!(opens(&sandbox, "v.img", "key"));
    fails(
        &sandbox,
        2,
        "PBKDF2's",
        &words("convert v.img --passphrase-file pass --kdf-iterations 1000"),
    );
}

#[test]
fn the_volumes_own_key_opens_it_and_recreates_its_header() {
    let sandbox = Sandbox::empty();
    fs::write(sandbox.path("key"), "correct horse battery staple").unwrap();
    let digits = "0f".repeat(32) + &"a5".repeat(32) + "\n";
    fs::write(sandbox.path("master"), &digits).unwrap();
    let make = words(
        "format v.img --size 24MiB --master-key-file master \
         --passphrase-file pass --kdf pbkdf2 --kdf-iterations 1000",
    );
    ok(&sandbox, &make);
    fs::write(sandbox.path("plain"), plain(8 << 20)).unwrap();
    ok(
        &sandbox,
        &["import", "v.img", "plain", "--master-key-file", "master"],
    );
    // A new header before the same data.
    let again: Vec<&str> = make
        .into_iter()
        .filter(|word| !["--size", "24MiB"].contains(word))
        .chain(["--force"])
        .collect();
    ok(&sandbox, &again);
    assert!(ok(&sandbox, &["export", "v.img", "-", WITH[0], WITH[1]]).out == plain(8 << 20));
    fs::write(sandbox.path("wrong-key"), [1; 64]).unwrap();
    fails(
        &sandbox,
        3,
        "not the volume's key",
        &["check", "v.img", "--master-key-file", "wrong-key"],
    );
}

#[test]
fn nothing_is_formatted_over_by_mistake() {
    let sandbox = place(&[]);
    let mut again = vec!["format", "v.img"];
    again.extend(WITH);
    again.extend(CHEAP);
    fails(&sandbox, 1, "LUKS2", &again);
    assert!(opens(&sandbox, "v.img", "key"));

    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "fs.img", "20M"])
        .current_dir(sandbox.path(""))
        .status()
        .unwrap();
    assert!(made.success());
    again[1] = "fs.img";
    fails(&sandbox, 1, "ext4", &again);
    again.push("--force");
    ok(&sandbox, &again);
    assert!(opens(&sandbox, "fs.img", "key"));

    let mut short = words("format short.img --size 24MiB --data-offset 64KiB");
    short.extend(WITH);
    short.extend(CHEAP);
    fails(&sandbox, 2, "key slot", &short);

    // What could not be made is not left behind.
    fails(
        &sandbox,
        2,
        "not supported",
        &words("format new.img --size 24MiB --cipher rot13-ecb-null --passphrase-file pass"),
    );
    fails(
        &sandbox,
        1,
        "",
        &words("format small.img --size 1MiB --passphrase-file pass --kdf pbkdf2"),
    );
    assert!(!sandbox.path("new.img").exists() && !sandbox.path("small.img").exists());
}

#[test]
fn mistakes_end_with_their_own_codes() {
    let sandbox = place(&[]);
    fails(
        &sandbox,
        3,
        "no key slot opens",
        &["check", "v.img", "--passphrase-file", "wrong"],
    );
    fs::write(sandbox.path("noise"), plain(1 << 20)).unwrap();
    fails(
        &sandbox,
        10,
        "no encrypted volume",
        &["export", "noise", "-", WITH[0], WITH[1]],
    );
    fails(&sandbox, 1, "missing", &["dump", "missing"]);
    fails(&sandbox, 2, "plain image", &["import", "v.img", "-"]);

    // Both headers broken: damage, not a wrong passphrase.
    let mut image = fs::read(sandbox.path("v.img")).unwrap();
    for at in [600, 0x4000 + 600, 5000, 0x4000 + 5000] {
        image[at] ^= 0xff;
    }
    fs::write(sandbox.path("broken.img"), image).unwrap();
    fails(
        &sandbox,
        6,
        "damaged",
        &["check", "broken.img", WITH[0], WITH[1]],
    );
}
