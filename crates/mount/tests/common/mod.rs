//! A room mounted for one test, gone when the test ends, however it ends.
#![allow(dead_code, unreachable_pub, missing_docs)]

mod delegate;
pub mod enable_uring;
pub mod forbid;
pub mod transport;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread::JoinHandle;

use mount::{Handle, MountOptions, Transport};
use room::{Credential, FileSystem, NewCredential, NewRoom, OpenOptions, Room, Secret};

/// A mounted room in a directory of its own.
pub struct Mount {
    dir: Option<tempfile::TempDir>,
    at: PathBuf,
    pub room: Option<Arc<Room>>,
    pub handle: Handle,
    shown: Shown,
    serving: Option<JoinHandle<Result<(), mount::MountError>>>,
}

/// What is mounted of a room.
type Shown = Box<dyn Fn(&Arc<Room>) -> Arc<dyn FileSystem> + Send + Sync>;

const KEY: [u8; 32] = [7; 32];

fn open_options(dir: &Path) -> OpenOptions {
    OpenOptions::with_state_dir(dir.join("state"))
}

fn itself() -> Shown {
    Box::new(|room| room.clone())
}

/// For root: other users may enter, set-ID bits and device nodes work.
pub fn for_all_users() -> MountOptions {
    let root = rustix::process::geteuid().is_root();
    MountOptions {
        allow_other: root,
        suid: root,
        dev: root,
        ..MountOptions::default()
    }
}

impl Mount {
    /// A new room, mounted so that a suite can change users. `None`, said on standard error: this machine cannot mount.
    pub fn new() -> Option<Self> {
        Self::with(for_all_users())
    }

    pub fn with(options: MountOptions) -> Option<Self> {
        Self::with_opened(options, |_| {})
    }

    /// The same with other options of the room.
    pub fn with_opened(
        options: MountOptions,
        change: impl FnOnce(&mut OpenOptions),
    ) -> Option<Self> {
        Self::make(tempfile::tempdir().unwrap(), options, change, itself())
    }

    /// What `shown` returns for a new room, mounted in its place.
    pub fn showing(
        options: MountOptions,
        shown: impl Fn(&Arc<Room>) -> Arc<dyn FileSystem> + Send + Sync + 'static,
    ) -> Option<Self> {
        Self::make(
            tempfile::tempdir().unwrap(),
            options,
            |_| {},
            Box::new(shown),
        )
    }

    /// With everything in a directory of the caller's.
    pub fn in_dir(dir: tempfile::TempDir, options: MountOptions) -> Option<Self> {
        Self::make(dir, options, |_| {}, itself())
    }

    fn make(
        dir: tempfile::TempDir,
        options: MountOptions,
        change: impl FnOnce(&mut OpenOptions),
        shown: Shown,
    ) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        if options.transport == Transport::IoUring || transport::all_over_io_uring() {
            enable_uring::offered()?;
        }
        std::fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let at = dir.path().join("mnt");
        std::fs::create_dir(&at).unwrap();
        let mut new = NewRoom::with_credential(NewCredential::RawKey(Secret::from(KEY.to_vec())));
        new.open = open_options(dir.path());
        change(&mut new.open);
        let room = Arc::new(Room::create(&dir.path().join("room"), new).unwrap());
        Some(Self::start(dir, at, room, options, shown))
    }

    fn start(
        dir: tempfile::TempDir,
        at: PathBuf,
        room: Arc<Room>,
        options: MountOptions,
        shown: Shown,
    ) -> Self {
        let mounted = transport::mount(shown(&room), &at, options);
        let handle = mounted.handle();
        let serving = std::thread::spawn(move || mounted.wait());
        Self {
            dir: Some(dir),
            at,
            room: Some(room),
            handle,
            shown,
            serving: Some(serving),
        }
    }

    /// Unmounts, closes the room, opens it again and mounts it again.
    pub fn again(mut self) -> Self {
        self.end();
        let dir = self.dir.take().unwrap();
        let room = self.room.take().unwrap();
        Arc::into_inner(room)
            .expect("the mount let go of the room")
            .close()
            .unwrap();
        let credential = Credential::RawKey(Secret::from(KEY.to_vec()));
        let room = Room::open(
            &dir.path().join("room"),
            &credential,
            open_options(dir.path()),
        )
        .unwrap();
        let shown = std::mem::replace(&mut self.shown, itself());
        Self::start(dir, self.at.clone(), Arc::new(room), for_all_users(), shown)
    }

    /// What is durable of the room at this moment: a copy of its directory, opened.
    pub fn durable(&self) -> (tempfile::TempDir, Room) {
        let dir = tempfile::tempdir().unwrap();
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.room_dir())
            .arg(dir.path().join("room"))
            .status()
            .unwrap();
        assert!(copied.success());
        let credential = Credential::RawKey(Secret::from(KEY.to_vec()));
        let options = open_options(dir.path());
        let room = Room::open(&dir.path().join("room"), &credential, options).unwrap();
        (dir, room)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            self.at.clone()
        } else {
            self.at.join(name)
        }
    }

    /// A plain directory beside the mount, to compare with.
    pub fn plain(&self) -> PathBuf {
        let plain = self.dir.as_ref().unwrap().path().join("plain");
        std::fs::create_dir_all(&plain).unwrap();
        plain
    }

    pub fn room_dir(&self) -> PathBuf {
        self.dir.as_ref().unwrap().path().join("room")
    }

    /// Waits for the end that something else brings about.
    pub fn join(&mut self) {
        self.ended().unwrap();
    }

    /// The same, with how it ended.
    pub fn ended(&mut self) -> Result<(), mount::MountError> {
        self.serving.take().unwrap().join().unwrap()
    }

    fn end(&mut self) {
        let Some(serving) = self.serving.take() else {
            return;
        };
        for _ in 0..100 {
            match self.handle.unmount() {
                Err(mount::MountError::Busy(_)) => {
                    std::thread::sleep(std::time::Duration::from_millis(20))
                }
                other => {
                    other.unwrap();
                    serving.join().unwrap().unwrap();
                    return;
                }
            }
        }
        eprintln!("still busy: unmounting lazily");
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Files of the test may still be open; what matters is that nothing stays mounted.
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        } else {
            self.end();
        }
    }
}

/// A small ext4 of its own, unmounted when the test ends, however it ends.
pub struct Disk {
    at: tempfile::TempDir,
}

impl Disk {
    /// `None`, said on standard error: this machine cannot mount one.
    pub fn new(mebibytes: u64) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let at = tempfile::tempdir().unwrap();
        let image = at.path().join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mebibytes << 20).unwrap();
        let disk = at.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
        let mounted = Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &disk])
            .status();
        if made.is_ok_and(|s| s.success()) && mounted.is_ok_and(|s| s.success()) {
            return Some(Self { at });
        }
        eprintln!("skipped: an ext4 image cannot be mounted here");
        None
    }

    pub fn path(&self) -> PathBuf {
        self.at.path().join("disk")
    }

    pub fn dir(&self) -> tempfile::TempDir {
        tempfile::tempdir_in(self.path()).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Runs a shell script in the mount; its output.
pub fn sh(mount: &Mount, script: &str) -> Output {
    Command::new("sh")
        .arg("-c")
        .arg(script)
        .current_dir(mount.path(""))
        .output()
        .unwrap()
}

/// Runs a shell script that is to succeed; what it printed.
pub fn ok(mount: &Mount, script: &str) -> String {
    let out = sh(mount, script);
    assert!(
        out.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// Runs a shell script as an ordinary user (65534); its output.
pub fn as_nobody(mount: &Mount, script: &str) -> Output {
    Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "sh",
            "-c",
            script,
        ])
        .current_dir(mount.path(""))
        .output()
        .unwrap()
}

pub fn ok_as_nobody(mount: &Mount, script: &str) -> String {
    let out = as_nobody(mount, script);
    assert!(
        out.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// Whether tests that take root may run; says so if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}
