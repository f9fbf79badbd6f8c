//! What the tests of LUKS share: cheap volumes, and the tools that are asked for their opinion.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use device::{Access, Device, FileDevice};
use volume::crypt::{CryptDevice, CryptOptions};
use volume::luks::{self, FormatOptions, Hash, KdfOptions, Limits, Luks, Version};

pub(crate) const PASS: &[u8] = b"open sesame";

/// The cheapest that cryptsetup takes.
pub(crate) const PBKDF2: KdfOptions = KdfOptions::Pbkdf2 {
    hash: Hash::Sha256,
    iterations: 1000,
};
pub(crate) const ARGON2ID: KdfOptions = KdfOptions::Argon2 {
    i: false,
    memory_kib: 32,
    passes: 4,
    lanes: 1,
};

/// A small volume with little room for key slots, so that it is made quickly.
pub(crate) fn cheap() -> FormatOptions {
    FormatOptions {
        kdf: Some(PBKDF2),
        key_len: 32,
        data_offset: Some(1 << 20),
        ..FormatOptions::default()
    }
}

pub(crate) fn cheap_luks1() -> FormatOptions {
    FormatOptions {
        version: Version::Luks1,
        // Its eight slots always have their places.
        key_len: 16,
        cipher: "aes-cbc-plain64".into(),
        ..cheap()
    }
}

/// Whether a program is installed; prints a message if not.
pub(crate) fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed (scripts/setup.sh installs it)");
    }
    found
}

pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        let dir = Self(tempfile::tempdir().unwrap());
        fs::write(dir.path("key"), PASS).unwrap();
        dir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs a program in the directory.
    pub(crate) fn try_run(&self, program: &str, args: &str) -> Output {
        Command::new(program)
            .args(args.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    /// Runs a program, which must succeed; its standard output.
    pub(crate) fn run(&self, program: &str, args: &str) -> String {
        let output = self.try_run(program, args);
        assert!(
            output.status.success(),
            "{program} {args}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn open(&self, name: &str) -> Arc<dyn Device> {
        open(&self.path(name))
    }
}

pub(crate) fn open(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap())
}

pub(crate) fn read(device: &Arc<dyn Device>) -> Luks {
    Luks::read(Arc::clone(device)).unwrap()
}

/// The decrypted data of a volume.
pub(crate) fn contents(
    header: &Arc<dyn Device>,
    data: Option<&Arc<dyn Device>>,
    pass: &[u8],
) -> CryptDevice {
    let luks = read(header);
    let (key, _) = luks.unlock(pass, &Limits::default()).unwrap();
    luks.open(data.cloned(), &key, CryptOptions::default())
        .unwrap()
}

pub(crate) fn all(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Bytes that look like none others; the seed is the test's own.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

pub(crate) fn memory(len: usize) -> Arc<dyn Device> {
    Arc::new(device::MemoryDevice::new(len))
}

/// A volume of 1.25 MiB in memory, a quarter of a MiB of it data.
pub(crate) fn small(options: &FormatOptions) -> (Arc<dyn Device>, Luks) {
    let device = memory(5 << 18);
    let luks = luks::format(Arc::clone(&device), None, options, PASS).unwrap();
    (device, luks)
}
