//! Volumes whose contents a real kernel wrote, where they are present, read to the digest that was taken then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use device::{Device, MemoryDevice};
use sha2::{Digest, Sha256};
use volume::{Certainty, Credential, Format, OpenOptions, open_as_recognised};
use zeroize::Zeroizing;

fn golden() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/volumes");
    if root.is_dir() {
        return Some(root);
    }
    eprintln!("skipped: no golden volumes in {}", root.display());
    None
}

fn unpacked(path: &Path) -> Vec<u8> {
    let run = Command::new("xz").arg("-dkc").arg(path).output().unwrap();
    assert!(
        run.status.success(),
        "xz: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    run.stdout
}

fn digest(device: &dyn Device) -> String {
    let mut sum = Sha256::new();
    let mut buf = vec![0; 100_000];
    let mut at = 0;
    while at < device.len() {
        let part = (device.len() - at).min(buf.len() as u64) as usize;
        device.read_at(&mut buf[..part], at).unwrap();
        sum.update(&buf[..part]);
        at += part as u64;
    }
    sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

fn passphrase(of: &str, root: &Path) -> Vec<u8> {
    match of {
        "android-1.2-scrypt" => b"4711".to_vec(),
        "android-1.3-scrypt-default" => b"default_password".to_vec(),
        "android-1.2-pbkdf2" => b"lock-screen".to_vec(),
        _ => fs::read(root.join("pass")).unwrap(),
    }
}

#[test]
fn every_volume_a_kernel_wrote_reads_to_its_digest() {
    let Some(root) = golden() else { return };
    let expected = fs::read_to_string(root.join("plain.sha256")).unwrap();
    let mut count = 0;
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".img.xz") else {
            continue;
        };
        let image = Arc::new(MemoryDevice::read_only(unpacked(&path)));
        let mut secrets = vec![passphrase(name, &root)];
        if name == "luks2-two-slots" {
            secrets.push(fs::read(root.join("keyfile")).unwrap());
        }
        for secret in secrets {
            let opened = open_as_recognised(
                image.clone(),
                None,
                &Credential::Passphrase(Zeroizing::new(secret)),
                OpenOptions {
                    read_only: true,
                    ..OpenOptions::default()
                },
            )
            .unwrap_or_else(|e| panic!("{name}: {e}"));
            let (format, certainty) = match name.split('-').next().unwrap() {
                "luks1" => (Format::Luks1, Certainty::Checked),
                "luks2" => (Format::Luks2, Certainty::Checked),
                _ if name.contains("1.3") => (Format::Android, Certainty::Checked),
                _ => (Format::Android, Certainty::Unknown),
            };
            assert_eq!(
                (opened.format, opened.certainty),
                (format, certainty),
                "{name}"
            );
            assert_eq!(digest(&*opened.device), expected.trim(), "{name}");
        }
        count += 1;
    }
    assert!(count >= 17, "only {count} volumes were found");
}

#[test]
fn a_filevault_disk_of_macos_reads_to_its_digest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/filevault");
    let archive = root.join("fvault2-images.tar.xz");
    if !archive.is_file() {
        eprintln!("skipped: no FileVault image at {}", archive.display());
        return;
    }
    // 512 MiB, nearly all of it holes.
    let place = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("-xJSf")
        .arg(&archive)
        .arg("-C")
        .arg(place.path())
        .status()
        .unwrap();
    assert!(unpacked.success());
    let image = place.path().join("fvault2-images/small");
    let image = Arc::new(device::FileDevice::open(&image, device::Access::ReadOnly).unwrap());
    let summary = volume::filevault::summary(&*image).unwrap();
    assert_eq!(summary.users, 1);
    let opened = open_as_recognised(
        image,
        None,
        &Credential::Passphrase(Zeroizing::new(b"heslo123".to_vec())),
        OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        },
    )
    .unwrap();
    assert_eq!(opened.format, Format::FileVault2);
    assert_eq!(
        digest(&*opened.device),
        "2c662e36c0f7e2f5583e6a939bbcbdc660805692d0fccaa45ad4052beb3b8e18"
    );
}
