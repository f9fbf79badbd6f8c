//! A place for one test of the real program: a room, a mountpoint, a state directory, and everything gone afterwards,
//! however the test ends.
#![allow(dead_code, unreachable_pub, missing_docs)]

#[path = "../../../mount/tests/common/enable_uring.rs"]
pub mod enable_uring;
pub mod process;
pub mod random;
pub mod setting;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The cheapest key derivation there is: these tests are not about it.
pub const CHEAP: [&str; 4] = ["--kdf-memory", "8", "--kdf-passes", "1"];

/// How the kernel's requests come to the mounts of a test: `STRONGROOM_TEST_TRANSPORT=io_uring` asks for io_uring, which the
/// machine must offer (`enable_uring` of the module `fuse`). A shared file system does not use it.
pub fn transport() -> &'static str {
    match std::env::var_os("STRONGROOM_TEST_TRANSPORT") {
        Some(transport) if transport == "io_uring" => "io_uring",
        _ => "device",
    }
}

/// Copies a program that is to be run. Another process writes it: while this one has it open for writing, a process that another
/// test starts may have it open too, and running it is refused (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    assert!(
        Command::new("cp")
            .args([from, to])
            .status()
            .unwrap()
            .success()
    );
}

pub struct Sandbox {
    /// What serves the room, if it is on shared storage. Before its files: it ends first.
    servers: Option<setting::Servers>,
    /// The store of the room's bucket, if it is in one. Ends after what has the room mounted.
    store: Option<setting::Store>,
    /// Where the room is, if it has a disk of its own.
    disk: Option<setting::Disk>,
    dir: Option<tempfile::TempDir>,
    /// Who runs the program: a user and group number, or the tests' own user.
    user: Option<u32>,
    program: PathBuf,
    /// Whether root's mounts let other users in, and honour set-ID bits and device nodes.
    pub for_all_users: bool,
    /// Whether mounts are over io_uring: [`transport`] says it, if the test does not.
    pub over_io_uring: bool,
    /// What mounts for the user, in the setting that has it.
    helper: Option<setting::Helper>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Sandbox {
    /// An empty place with a passphrase file.
    pub fn empty() -> Self {
        Self::of_user(None)
    }

    /// The same for another user; needs root.
    pub fn of_user(user: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let sandbox = Self {
            servers: None,
            store: None,
            disk: None,
            dir: Some(dir),
            user,
            program: program(),
            for_all_users: false,
            over_io_uring: transport() == "io_uring",
            helper: None,
        };
        std::fs::write(sandbox.path("pass"), "correct horse battery staple\n").unwrap();
        std::fs::write(sandbox.path("wrong"), "incorrect horse\n").unwrap();
        std::fs::create_dir(sandbox.path("mnt")).unwrap();
        std::fs::create_dir(sandbox.path("run")).unwrap();
        if let Some(user) = user {
            for name in ["", "pass", "wrong", "mnt", "run"] {
                std::os::unix::fs::chown(sandbox.path(name), Some(user), Some(user)).unwrap();
            }
        }
        sandbox
    }

    /// A place with a room `room`.
    pub fn with_room() -> Self {
        let sandbox = Self::empty();
        sandbox.create();
        sandbox
    }

    /// The same, mounted; `None` where nothing can be.
    pub fn mounted() -> Option<Self> {
        Some(Self::with_room()).filter(Self::mount)
    }

    /// Who runs the program, if it is not the tests' own user.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// Runs a copy of the program that every user can reach, wherever the build put it.
    pub fn use_own_copy(&mut self) {
        let own = self.path("strongroom");
        copy_program(&self.program, &own);
        self.program = own;
    }

    pub fn create(&self) {
        self.ok(["create", "room", "--passphrase-file", "pass"]
            .iter()
            .chain(&CHEAP));
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.as_ref().unwrap().path().join(name)
    }

    /// The program, run in this place.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        let mut args = args.into_iter().peekable();
        let mounts = args.peek().is_some_and(|first| first.as_ref() == "mount");
        command.args(args);
        // Another test may have the kernel offer io_uring at this moment.
        if mounts {
            let transport = ["noio_uring", "io_uring"][usize::from(self.over_io_uring)];
            command.args(["-o", transport]);
        }
        command
            .current_dir(self.path(""))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env_remove("STRONGROOM_LOG")
            .stdin(Stdio::null());
        if let Some(store) = &self.store {
            command.envs(store.variables());
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(helper) = &self.helper {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = [helper.dir.clone()]
                .into_iter()
                .chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(path).unwrap());
        }
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs with something on standard input.
    pub fn run_with_input<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Ran {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that does not read what it is given is free to do so.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap().into()
    }

    /// Runs with the room's passphrase added, and expects success. Returns standard output.
    pub fn with_pass<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let mut all: Vec<_> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        all.extend(["--passphrase-file".into(), "pass".into()]);
        self.ok(all)
    }

    /// Runs and expects success. Returns standard output.
    pub fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let args: Vec<_> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        let ran = self.run(&args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.text()
    }

    /// Runs with the room's passphrase added, and expects this exit code. Returns standard error.
    pub fn fails<S: AsRef<OsStr>>(&self, code: i32, args: impl IntoIterator<Item = S>) -> String {
        let mut all: Vec<_> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        all.extend(["--passphrase-file".into(), "pass".into()]);
        let ran = self.run(&all);
        assert_eq!(ran.code, code, "{all:?}: {}", ran.err);
        ran.err
    }

    /// Mounts the room, or says why this machine cannot and returns false.
    #[must_use]
    pub fn mount(&self) -> bool {
        if !can_mount() {
            return false;
        }
        match &self.servers {
            Some(servers) => servers.mount(self),
            None => {
                self.with_pass(["mount", "room", "mnt"].iter().chain(self.mount_options()));
            }
        }
        true
    }

    /// The command that mounts the room and stays in the foreground.
    pub fn mount_in_foreground(&self) -> Command {
        let args = words("mount --foreground room mnt --passphrase-file pass");
        self.command(args.iter().chain(self.mount_options()))
    }

    /// What `mount` is given besides room and mountpoint; it must be run next.
    fn mount_options(&self) -> &'static [&'static str] {
        let Some(helper) = &self.helper else {
            return match self.for_all_users && is_root() {
                true => &["-o", "allow_other,suid,dev"],
                false => &[],
            };
        };
        helper.open_the_device();
        &["--allow-other"]
    }

    pub fn umount(&self) {
        self.ok(["umount", "mnt"]);
    }

    /// The control socket of the room: device and inode of its directory are its name.
    pub fn control(&self) -> PathBuf {
        use std::os::unix::fs::MetadataExt;
        let room = std::fs::metadata(self.path("room")).unwrap();
        let name = format!("{:x}-{:x}.control", room.dev(), room.ino());
        self.path("run/strongroom").join(name)
    }

    /// Whether the room is on shared storage.
    pub fn is_shared(&self) -> bool {
        self.servers.is_some()
    }

    /// Whether something is mounted at `mnt`.
    pub fn is_mounted(&self) -> bool {
        // Of this thread: a test may have a mount namespace of its own.
        let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let at = self
            .path("mnt")
            .canonicalize()
            .unwrap_or_else(|_| self.path("mnt"));
        table
            .lines()
            .any(|line| line.split(' ').nth(4) == at.to_str())
    }

    /// The process that serves the mount.
    pub fn pid(&self) -> u32 {
        let info: serde_json::Value =
            serde_json::from_str(&self.ok(["info", "room", "--json"])).unwrap();
        u32::try_from(info["mounted"]["pid"].as_u64().unwrap()).unwrap()
    }

    /// Kills the process that serves the mount, after a while.
    pub fn kill_after(&self, moment: Duration) -> std::thread::JoinHandle<()> {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(moment);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        })
    }

    /// Clears what a killed process left, and mounts the room, which must open by itself.
    pub fn mount_after_kill(&self) {
        self.clear_after_kill();
        assert!(self.mount());
    }

    /// Clears the mount that a killed process left.
    pub fn clear_after_kill(&self) {
        let began = Instant::now();
        loop {
            let ran = self.run(["umount", "mnt"]);
            if ran.code == 0 {
                break;
            }
            let waited = began.elapsed();
            assert!(
                waited < Duration::from_secs(60),
                "the dead mount cannot be cleared: {}",
                ran.err
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What is mounted still would be emptied instead of the directory below it.
        if self.dir.is_some() && self.is_mounted() {
            let done = Command::new(program())
                .arg("umount")
                .arg(self.path("mnt"))
                .output();
            if !done.is_ok_and(|done| done.status.success()) {
                let _ = Command::new("fusermount3")
                    .arg("-uz")
                    .arg(self.path("mnt"))
                    .output();
            }
        }
    }
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let code = output.status.code().unwrap_or(-1);
        Self {
            code,
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The program under test: the one built with the tests, or another that `STRONGROOM_BIN` names.
pub fn program() -> PathBuf {
    std::env::var_os("STRONGROOM_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_strongroom").into())
        .into()
}

/// Whether this machine can mount; says so if not.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: there is no /dev/fuse");
    }
    can
}

/// Whether the tests run as root; says so if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: not root");
    }
    root
}

/// The words of a command line.
pub fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Bytes that look random and are always the same.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Everything about a tree that a copy must keep, one line a file.
pub fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    list_into(root, root, &mut lines);
    lines
}

fn list_into(root: &Path, path: &Path, lines: &mut Vec<String>) {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let content = if kind.is_symlink() {
        std::fs::read_link(path).unwrap().display().to_string()
    } else if kind.is_file() {
        let bytes = std::fs::read(path).unwrap();
        let hash = blake3::hash(&bytes).to_hex();
        format!("{} {hash} {}", bytes.len(), meta.nlink())
    } else {
        String::new()
    };
    let mut xattrs = Vec::new();
    let mut names = vec![0; 4096];
    if let Ok(len) = rustix::fs::llistxattr(path, &mut names[..]) {
        for name in names[..len]
            .split(|b| *b == 0)
            .filter(|name| !name.is_empty())
        {
            let mut value = vec![0; 4096];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            xattrs.push(format!(
                "{}={:?}",
                String::from_utf8_lossy(name),
                &value[..len]
            ));
        }
    }
    xattrs.sort();
    lines.push(format!(
        "{} {:o} {}:{} {}.{} fifo={} {content} {xattrs:?}",
        path.strip_prefix(root).unwrap().display(),
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.mtime(),
        meta.mtime_nsec(),
        kind.is_fifo(),
    ));
    if kind.is_dir() {
        let mut names: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        for name in names {
            list_into(root, &name, lines);
        }
    }
}

/// A tree with one of everything that this user can make.
pub fn make_tree(root: &Path) {
    let run = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).current_dir(root).output();
        assert!(
            done.is_ok_and(|done| done.status.success()),
            "{program} {args:?}"
        );
    };
    std::fs::create_dir_all(root.join("sub/deeper")).unwrap();
    std::fs::write(root.join("empty"), "").unwrap();
    std::fs::write(root.join("small"), "a few words\n").unwrap();
    std::fs::write(root.join("sub/large"), noise(3_000_000, 7)).unwrap();
    std::fs::hard_link(root.join("small"), root.join("sub/again")).unwrap();
    std::os::unix::fs::symlink("../small", root.join("sub/link")).unwrap();
    std::os::unix::fs::symlink("/nowhere", root.join("sub/deeper/dangling")).unwrap();
    std::fs::write(root.join("sub/na me\twith\nodd \u{1b}[1m"), "odd").unwrap();
    run("mkfifo", &["fifo"]);
    run("truncate", &["-s", "100M", "sparse"]);
    let sparse = std::fs::OpenOptions::new()
        .write(true)
        .open(root.join("sparse"))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 50 << 20).unwrap();
    drop(sparse);
    run("chmod", &["4750", "small"]);
    run("chmod", &["1777", "sub/deeper"]);
    let _ = rustix::fs::setxattr(
        root.join("empty"),
        "user.note",
        b"\x00any\xff",
        rustix::fs::XattrFlags::empty(),
    );
    let _ = Command::new("setfacl")
        .args(["-m", "u:65534:rwx", "sub/large"])
        .current_dir(root)
        .output();
    run(
        "touch",
        &[
            "-h",
            "-d",
            "1999-12-31 23:59:59.123456789 UTC",
            "sub/link",
            "small",
            "sub/deeper",
            "sub",
        ],
    );
}
