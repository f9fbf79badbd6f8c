//! Android's and FileVault's volumes at the command line: a phone of our own making, and what others made where it is at hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use volume::sector::SectorCipher;

use super::{fails, ok};
use crate::common::{Sandbox, words};

const SECTORS: u64 = 256;
const KEY: [u8; 16] = *b"a volume's key!!";
const SALT: [u8; 16] = *b"and its own salt";
/// The key under the PIN 4711, by OpenSSL:
/// `openssl kdf -keylen 32 -kdfopt digest:SHA1 -kdfopt pass:4711 -kdfopt hexsalt:(SALT) -kdfopt iter:2000 PBKDF2` gives key and IV of
/// `openssl enc -aes-128-cbc -nopad`.
const WRAPPED: [u8; 16] = [
    0x73, 0x2f, 0x8e, 0xba, 0x01, 0x68, 0xdc, 0xb2, 0xda, 0x49, 0xb9, 0xfb, 0xc1, 0x2c, 0x1c, 0x41,
];

/// The footer of Android 4.4 with PBKDF2; `kdf` 5 is that of a phone whose hardware signs.
fn footer(kdf: u8) -> Vec<u8> {
    let mut f = vec![0; 16384];
    let mut put = |at: usize, bytes: &[u8]| f[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0xd0b5_b1c4_u32.to_le_bytes());
    put(4, &1_u16.to_le_bytes());
    put(6, &2_u16.to_le_bytes());
    put(8, &104_u32.to_le_bytes());
    put(16, &16_u32.to_le_bytes());
    // A PIN.
    put(20, &3_u32.to_le_bytes());
    put(24, &SECTORS.to_le_bytes());
    put(36, b"aes-cbc-essiv:sha256");
    put(104, &WRAPPED);
    put(152, &SALT);
    put(188, &[kdf, 0, 0, 0]);
    f
}

/// What the phone's user sees: something with a superblock of ext4.
fn contents() -> Vec<u8> {
    let mut plain: Vec<u8> = (0..SECTORS as usize * 512).map(|i| (i / 7) as u8).collect();
    plain[1024 + 56..1024 + 58].copy_from_slice(&0xef53_u16.to_le_bytes());
    plain
}

fn encrypted(mut plain: Vec<u8>) -> Vec<u8> {
    SectorCipher::new("aes-cbc-essiv:sha256", &KEY, 512)
        .unwrap()
        .encrypt(&mut plain, 0);
    plain
}

/// A place with the phone's data partition, and its PIN.
fn phone() -> Sandbox {
    let sandbox = Sandbox::empty();
    fs::write(sandbox.path("pin"), "4711\n").unwrap();
    let mut image = encrypted(contents());
    image.extend(footer(1));
    fs::write(sandbox.path("userdata.img"), image).unwrap();
    sandbox
}

const PIN: [&str; 2] = ["--passphrase-file", "pin"];

#[test]
fn a_phone_is_recognised_read_written_and_refuses_a_wrong_pin() {
    let sandbox = phone();
    let dump = ok(&sandbox, &["dump", "userdata.img"]);
    let dump = String::from_utf8_lossy(&dump.out);
    assert!(dump.contains("Android") && dump.contains("PIN"), "{dump}");
    ok(
        &sandbox,
        &["check", "userdata.img", "--read-data", PIN[0], PIN[1]],
    );
    let read = || ok(&sandbox, &["export", "userdata.img", "-", PIN[0], PIN[1]]).out;
    assert!(read() == contents());
    // Without a check in the footer a wrong PIN shows by contents that begin like nothing: they are read, with a warning, and not
    // written.
    fs::write(sandbox.path("wrong"), "4712").unwrap();
    let wrong = ok(
        &sandbox,
        &["check", "userdata.img", "--passphrase-file", "wrong"],
    );
    assert!(wrong.err.contains("nonsense"), "{}", wrong.err);
    let before = fs::read(sandbox.path("userdata.img")).unwrap();
    fs::write(sandbox.path("new"), vec![0x33; 4096]).unwrap();
    let refused = words("import userdata.img new --passphrase-file wrong");
    fails(&sandbox, 1, "read-only", &refused);
    assert!(fs::read(sandbox.path("userdata.img")).unwrap() == before);

    let mut changed = contents();
    changed[SECTORS as usize * 256..][..1000].fill(0x77);
    fs::write(sandbox.path("new"), &changed).unwrap();
    ok(&sandbox, &["import", "userdata.img", "new", PIN[0], PIN[1]]);
    assert!(read() == changed);
    let image = fs::read(sandbox.path("userdata.img")).unwrap();
    assert!(
        image[..changed.len()] == encrypted(changed)
            && image[SECTORS as usize * 512..] == footer(1)
    );
    // Its header is not ours to change.
    fails(
        &sandbox,
        1,
        "only LUKS volumes' are",
        &[
            "key",
            "add",
            "userdata.img",
            PIN[0],
            PIN[1],
            "--new-key-file",
            "pin",
        ],
    );
}

#[test]
fn a_phone_whose_hardware_signs_says_so_and_opens_by_its_key() {
    let sandbox = phone();
    fs::write(sandbox.path("data.img"), encrypted(contents())).unwrap();
    fs::write(sandbox.path("footer"), footer(5)).unwrap();
    let apart = ["data.img", "--header", "footer"];
    let with = |args: &[&'static str]| -> Vec<&'static str> {
        args.iter().chain(&apart).copied().collect()
    };
    let bound = [with(&["check"]), PIN.to_vec()].concat();
    fails(&sandbox, 1, "hardware", &bound);
    fs::write(sandbox.path("master"), KEY).unwrap();
    let export = [
        with(&["export"]),
        vec!["out", "--master-key-file", "master"],
    ]
    .concat();
    ok(&sandbox, &export);
    assert!(fs::read(sandbox.path("out")).unwrap() == contents());
}

fn golden(name: &str) -> Option<PathBuf> {
    let at = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/golden")
        .join(name);
    if at.exists() {
        return Some(at);
    }
    eprintln!("skipped: there is no {}", at.display());
    None
}

/// By another program than ours.
fn digest(of: &Path) -> String {
    let ran = Command::new("sha256sum").arg(of).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    said.split(' ')
        .next()
        .unwrap()
        .trim_start_matches('\\')
        .to_owned()
}

#[test]
fn phones_that_a_kernel_encrypted_export_to_their_digest() {
    let Some(root) = golden("volumes") else {
        return;
    };
    let expected = fs::read_to_string(root.join("plain.sha256")).unwrap();
    for (name, passphrase) in [
        ("android-1.2-pbkdf2", "lock-screen"),
        ("android-1.2-scrypt", "4711"),
        ("android-1.3-scrypt-default", "default_password"),
    ] {
        let sandbox = Sandbox::empty();
        let packed = fs::File::open(root.join(format!("{name}.img.xz"))).unwrap();
        let image = fs::File::create(sandbox.path("userdata.img")).unwrap();
        let unpacked = Command::new("xz")
            .arg("-dc")
            .stdin(packed)
            .stdout(image)
            .status();
        assert!(unpacked.unwrap().success());
        fs::write(sandbox.path("pass"), passphrase).unwrap();
        ok(
            &sandbox,
            &["export", "userdata.img", "out", "--passphrase-file", "pass"],
        );
        assert_eq!(digest(&sandbox.path("out")), expected.trim(), "{name}");
    }
}

#[test]
fn a_mac_exports_to_its_digest_and_is_never_written() {
    let Some(archive) = golden("filevault/fvault2-images.tar.xz") else {
        return;
    };
    let sandbox = Sandbox::empty();
    // 512 MiB, nearly all of it holes.
    let unpacked = Command::new("tar")
        .arg("-xJSf")
        .arg(&archive)
        .args(["--strip-components=1", "-C"])
        .arg(sandbox.path(""))
        .arg("fvault2-images/small")
        .status();
    assert!(unpacked.unwrap().success());
    fs::write(sandbox.path("pass"), "heslo123\n").unwrap();
    fs::write(sandbox.path("wrong"), "heslo124\n").unwrap();
    let dump = ok(&sandbox, &["dump", "small"]);
    assert!(String::from_utf8_lossy(&dump.out).contains("FileVault"));
    fails(
        &sandbox,
        3,
        "",
        &["check", "small", "--passphrase-file", "wrong"],
    );
    ok(
        &sandbox,
        &["export", "small", "out", "--passphrase-file", "pass"],
    );
    assert_eq!(
        digest(&sandbox.path("out")),
        "2c662e36c0f7e2f5583e6a939bbcbdc660805692d0fccaa45ad4052beb3b8e18"
    );
    let before = digest(&sandbox.path("small"));
    fs::write(sandbox.path("new"), vec![0x33; 4096]).unwrap();
    let refused = super::volume(
        &sandbox,
        &["import", "small", "new", "--passphrase-file", "pass"],
    );
    assert_ne!(refused.code, 0);
    assert_eq!(digest(&sandbox.path("small")), before);
}
