//! A server on a socket of its own, and programs that are run against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use device::{Access, Device, FileDevice};
use nbd::{Config, Export, Listen, Server};

/// Bytes of the images here.
pub(crate) const LEN: u64 = 64 << 20;

/// A server over a file, on a Unix socket.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) dir: tempfile::TempDir,
}

impl Served {
    /// Over a new file of [`LEN`] zeros.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = FileDevice::create(&dir.path().join("image"), LEN).unwrap();
        Self::with(dir, vec![export("", Arc::new(device))], Config::default())
    }

    /// Over these bytes.
    pub(crate) fn holding(bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, bytes).unwrap();
        let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
        Self::with(dir, vec![export("", Arc::new(device))], Config::default())
    }

    pub(crate) fn with(dir: tempfile::TempDir, exports: Vec<Export>, config: Config) -> Self {
        let config = Config {
            listen: Listen::Unix(dir.path().join("socket")),
            ..config
        };
        let server = Server::start(config, exports).unwrap();
        Self { server, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!(
            "nbd+unix:///{export}?socket={}",
            self.path("socket").display()
        )
    }
}

pub(crate) fn export(name: &str, device: Arc<dyn Device>) -> Export {
    Export {
        name: name.into(),
        description: String::new(),
        device,
        read_only: false,
    }
}

/// Whether a program is installed; says so where it is not.
pub(crate) fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin")])
            .any(|dir| dir.join(program).is_file())
    });
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Runs a program, for two minutes at most.
pub(crate) fn run(program: &str, args: &[&str]) -> Output {
    // The distribution's Python first: it is the one that has libnbd's module.
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("timeout")
        .args(["-k", "5", "120", program])
        .args(args)
        .env("PATH", format!("/usr/bin:{path}"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a program that must succeed; what it printed.
pub(crate) fn ok(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{out}\n{err}",
        output.status
    );
    out
}

/// Runs libnbd's Python with `h` being a handle; the script gets the URI as `uri` and connects by itself.
pub(crate) fn nbdsh(uri: &str, script: &str) -> String {
    ok("nbdsh", &["-c", &format!("uri = {uri:?}\n{script}")])
}

/// Bytes that do not repeat.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
