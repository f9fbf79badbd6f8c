//! The settings in which a suite tries a mounted room: mounted by the kernel directly, mounted through `fusermount3`,
//! nearly full, on shared storage, and in a bucket.
//!
//! 1. A setting that this machine cannot provide is skipped, with the reason.
//! 2. The mounts of [`through_fusermount3`] are in a mount namespace of its own thread: nobody else's `/dev/fuse` changes.

use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::process::{Process, until};
use super::{Sandbox, can_mount, is_root, noise};

/// Debian's nobody.
const USER: u32 = 65534;

/// A room that root mounts: the kernel does it directly, and each thread has a descriptor of its own.
pub fn by_the_kernel(test: impl FnOnce(Sandbox)) {
    if can_mount() {
        test(Sandbox::with_room());
    }
}

/// A room that an ordinary user mounts through `fusermount3`, whose one descriptor all threads share: once the mount is
/// there, that user may not open `/dev/fuse`. Other users are let in, so that a suite can change users on the mount.
pub fn through_fusermount3(test: impl FnOnce(Sandbox) + Send) {
    if !can_mount() || !is_root() {
        return;
    }
    let run = || {
        let mut s = Sandbox::of_user(Some(USER));
        match Helper::new(&s.path("")) {
            Ok(helper) => s.helper = Some(helper),
            Err(why) => {
                eprintln!("skipped: /dev/fuse cannot be closed to one user here: {why}");
                return;
            }
        }
        s.use_own_copy();
        s.create();
        test(s);
    };
    // A thread of its own: a namespace is entered for good.
    let done = std::thread::scope(|scope| scope.spawn(run).join());
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

/// A `/dev/fuse` of the user's own, for this thread and what it starts, and a `fusermount3` that closes it.
pub struct Helper {
    /// Where that `fusermount3` is.
    pub dir: PathBuf,
    device: OwnedFd,
}

impl Helper {
    fn new(dir: &Path) -> std::io::Result<Self> {
        let device = close_the_device(&dir.join("device"))?;
        let dir = dir.join("bin");
        std::fs::create_dir(&dir)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let real = std::env::split_paths(&path)
            .map(|dir| dir.join("fusermount3"))
            .find(|program| program.is_file())
            .ok_or(ErrorKind::NotFound)?;
        let real = real.display();
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in -u*) exec {real} \"$@\" ;; esac\n{real} \"$@\" || exit\nexec chmod 0 /dev/fuse\n"
        );
        std::fs::write(dir.join("fusermount3"), script)?;
        std::fs::set_permissions(dir.join("fusermount3"), Permissions::from_mode(0o755))?;
        Ok(Self { dir, device })
    }

    /// Before each mount: without the right to open the device there is none.
    pub fn open_the_device(&self) {
        let node = format!("/proc/self/fd/{}", self.device.as_raw_fd());
        std::fs::set_permissions(node, Permissions::from_mode(0o600)).unwrap();
    }
}

/// For this thread and what it starts, `/dev/fuse` is [`USER`]'s, and users may let others in. The device.
fn close_the_device(dir: &Path) -> std::io::Result<OwnedFd> {
    let device = std::fs::metadata("/dev/fuse")?.rdev();
    // SAFETY: mounts are unshared, and descriptors are not.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    // The sandbox may be on a file system without devices.
    std::fs::create_dir(dir)?;
    rustix::mount::mount("none", dir, "tmpfs", MountFlags::empty(), c"mode=755")?;
    let (fuse, settings) = (dir.join("fuse"), dir.join("fuse.conf"));
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &fuse, FileType::CharacterDevice, mode, device)?;
    std::os::unix::fs::chown(&fuse, Some(USER), Some(USER))?;
    let node = rustix::fs::open(&fuse, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::write(&settings, "user_allow_other\n")?;
    rustix::mount::mount_bind(&fuse, "/dev/fuse")?;
    rustix::mount::mount_bind(&settings, "/etc/fuse.conf")?;
    rustix::mount::unmount(dir, UnmountFlags::DETACH)?;
    std::fs::remove_dir(dir)?;
    Ok(node)
}

/// A mounted room on a disk of this many MiB, filled until little more than `left` MiB are available.
pub fn nearly_full(size: u64, left: u64, test: impl FnOnce(Sandbox)) {
    let Some(s) = (can_mount() && is_root())
        .then(|| on_a_disk(size))
        .flatten()
    else {
        return;
    };
    assert!(s.mount());
    let piece = noise(1 << 20, 1);
    let fills = s.path("mnt/fills");
    std::fs::create_dir(&fills).unwrap();
    for number in 0.. {
        if available(&s.path("mnt")) < (left + 16) << 20 {
            break;
        }
        let file = fills.join(number.to_string());
        for _ in 0..8 {
            append(&file, &piece);
        }
    }
    let found = available(&s.path("mnt"));
    assert!(
        (left << 20..(left + 16) << 20).contains(&found),
        "{found} bytes are available"
    );
    s.umount();
    test(s);
}

fn append(file: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Bytes, as `df` shows them.
pub fn available(path: &Path) -> u64 {
    let space = rustix::fs::statvfs(path).unwrap();
    space.f_bavail * space.f_frsize
}

/// A place whose room is on a disk of this many MiB: ext4 on a loop device. `None`, with the reason printed, where this
/// machine has none.
pub fn on_a_disk(size: u64) -> Option<Sandbox> {
    let mut s = Sandbox::empty();
    s.disk = Some(Disk::mounted(&s.path("disk"), size)?);
    std::fs::create_dir(s.path("disk/room")).unwrap();
    std::os::unix::fs::symlink("disk/room", s.path("room")).unwrap();
    s.create();
    Some(s)
}

/// A small disk, detached when this is dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// A disk of this many MiB, mounted at a directory that it makes. `None`, with the reason printed, where this machine has none.
    pub fn mounted(at: &Path, mebibytes: u64) -> Option<Self> {
        let made = Self::new(at, mebibytes);
        made.inspect_err(|why| eprintln!("skipped: there is no small disk here: {why}"))
            .ok()
    }

    fn new(at: &Path, mebibytes: u64) -> Result<Self, String> {
        let image = at.with_extension("image");
        std::fs::create_dir(at).unwrap();
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mebibytes << 20).unwrap();
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(at))?;
        Ok(Self(at.into()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

/// How many descriptors of `/dev/fuse` a process has.
pub fn devices_of(pid: u32) -> usize {
    let device = std::fs::metadata("/dev/fuse").unwrap().rdev();
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .filter(|meta| meta.rdev() == device)
        .count()
}

/// A room on shared storage, mounted as a client that alone uses it: two disks and a metadata server on loopback.
pub fn on_shared_storage(test: impl FnOnce(Sandbox)) {
    if !can_mount() {
        return;
    }
    let mut s = Sandbox::with_room();
    s.servers = Some(Servers::start(&s));
    test(s);
}

/// The disks and the metadata server of a room; they end when this is dropped.
pub struct Servers {
    address: String,
    /// The metadata server first, which uses the disks.
    _processes: Vec<Process>,
}

impl Servers {
    /// Gives the room two disks and a user who may do everything, and starts what serves it.
    fn start(s: &Sandbox) -> Self {
        let disk = |name: &str| {
            let (store, key) = (format!("{name}.store"), format!("{name}.key"));
            let added = format!("{key}.add");
            s.ok([
                "disk",
                "init",
                "--store",
                &store,
                "--size",
                "4GiB",
                "--key-out",
                &key,
            ]);
            let (disk, address) = serve(s, name, |address| {
                let [listen, store, key] = [address, &store, &key];
                s.command([
                    "disk", "serve", "--listen", listen, "--store", store, "--key", key,
                ])
            });
            s.with_pass(["disk", "add", "room", name, &address, "--key", &added]);
            disk
        };
        let disks = vec![disk("one"), disk("two")];
        let new_user = ["user", "add", "room", "root", "--uid", "0", "--gid", "0"];
        s.with_pass(new_user.iter().chain(&["--out", "identity"]));
        // As the service does: the settings name the room.
        std::fs::write(s.path("metadata.toml"), "room = \"room\"\n").unwrap();
        let (metadata, address) = serve(s, "metadata", |address| {
            let settings = ["--config", "metadata.toml", "--listen", address];
            let command = ["metadata", "serve", "--passphrase-file", "pass"];
            s.command(command.iter().chain(&settings))
        });
        Self {
            address,
            _processes: [metadata].into_iter().chain(disks).collect(),
        }
    }

    /// Mounts the room. Other users are let in, so that a suite can change users on the mount.
    pub fn mount(&self, s: &Sandbox) {
        self.mount_at(s, "mnt");
    }

    fn mount_at(&self, s: &Sandbox, mountpoint: &str) {
        let from = format!("strongroom://{}/", self.address);
        let options = ["--identity", "identity", "--allow-other"];
        s.ok(["mount", &from, mountpoint].iter().chain(&options));
    }
}

/// Starts a server on a free port of loopback. Its address.
fn serve(s: &Sandbox, name: &str, command: impl Fn(&str) -> Command) -> (Process, String) {
    let log = s.path(format!("{name}.log"));
    on_a_free_port(
        |address| match Process::serve(name, command(address), &log) {
            Ok(process) => Some((process, address.to_owned())),
            Err(why) => {
                assert!(why.contains("in use"), "{why}");
                None
            }
        },
    )
}

/// Starts something at an address of loopback that nobody has; `None`: it was taken.
fn on_a_free_port<T>(mut start: impl FnMut(&str) -> Option<T>) -> T {
    let mut started = None;
    // A port that is free now may not be so in a moment.
    until("a server finds a free port", || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        started = start(&address);
        started.is_some()
    });
    started.expect("until returns when it is started")
}

/// A room in a bucket of an S3 server on loopback (versitygw), whose cache is `room`. `None` of this where it is not built, which is
/// said.
pub fn in_a_bucket(test: impl FnOnce(Sandbox)) {
    if !can_mount() {
        return;
    }
    let Some(server) = versitygw() else {
        return;
    };
    let mut s = Sandbox::empty();
    s.program = env!("CARGO_BIN_EXE_strongroom-bucket").into();
    let here = |command: Command| command;
    s.store = Some(Store::start(&s.path(""), &server, "127.0.0.1", here));
    let place = ["create", PLACE, "--cache", "room"];
    s.with_pass(place.iter().chain(&super::CHEAP));
    test(s);
}

/// A room in a directory, and an S3 server on loopback for its replicas. `None` of this where that is not built, which is said.
pub fn beside_a_bucket(test: impl FnOnce(Sandbox)) {
    let Some(server) = versitygw() else {
        return;
    };
    let mut s = Sandbox::with_room();
    s.store = Some(Store::start(&s.path(""), &server, "127.0.0.1", |on| on));
    test(s);
}

/// The place of a room that is still to be created, whose S3 server has a certificate of an authority that only
/// `certificates/ca.pem` has.
pub fn with_a_store_over_tls(test: impl FnOnce(Sandbox)) {
    let Some(server) = versitygw() else {
        return;
    };
    let mut s = Sandbox::empty();
    s.program = env!("CARGO_BIN_EXE_strongroom-bucket").into();
    let certificates = s.path("certificates");
    std::fs::create_dir(&certificates).unwrap();
    let issue = r#"cd "$0" &&
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem &&
        openssl req -newkey rsa:2048 -nodes -subj /CN=store -keyout server.key -out server.csr &&
        echo subjectAltName=IP:127.0.0.1 >names &&
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem"#;
    let mut shell = Command::new("sh");
    let issued = shell.args(["-c", issue]).arg(&certificates).output();
    let issued = issued.unwrap();
    assert!(issued.status.success(), "{issued:?}");
    s.store = Some(Store::start_over_tls(&s.path(""), &server, &certificates));
    test(s);
}

/// The room of [`in_a_bucket`].
pub const PLACE: &str = "s3://rooms/team/work";

/// The S3 server, from `PATH` or where `scripts/bucket.sh` puts it. `None`, which is said, where it is not built.
pub fn versitygw() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let mut dirs = std::env::split_paths(&path).chain([tools]);
    let program = dirs.find_map(|dir| {
        let program = dir.join("versitygw");
        program.is_file().then_some(program)
    });
    if program.is_none() {
        eprintln!("skipped: versitygw is not built; run make test-engines");
    }
    program?.canonicalize().ok()
}

/// An S3 server with the bucket `rooms`, which is in `store/rooms` of its directory; it ends when this is dropped.
pub struct Store {
    url: String,
    _process: Process,
}

impl Store {
    /// Starts it at a free port of `host`. `on` runs a command on the machine that has that address.
    pub fn start(dir: &Path, server: &Path, host: &str, on: impl Fn(Command) -> Command) -> Self {
        Self::launch(dir, server, host, on, None)
    }

    /// The same on this machine, with `server.pem` and `server.key` of a directory.
    fn start_over_tls(dir: &Path, server: &Path, certificates: &Path) -> Self {
        Self::launch(
            dir,
            server,
            "127.0.0.1",
            |command| command,
            Some(certificates),
        )
    }

    fn launch(
        dir: &Path,
        server: &Path,
        host: &str,
        on: impl Fn(Command) -> Command,
        certificates: Option<&Path>,
    ) -> Self {
        std::fs::create_dir_all(dir.join("store/rooms")).unwrap();
        let log = dir.join("store.log");
        on_a_free_port(|free| {
            let port = free.rsplit(':').next().unwrap();
            let address = format!("{host}:{port}");
            let mut command = Command::new(server);
            command.args(["--port", &address]);
            if let Some(certificates) = certificates {
                command.arg("--cert").arg(certificates.join("server.pem"));
                command.arg("--key").arg(certificates.join("server.key"));
            }
            let scheme = certificates.map_or("http", |_| "https");
            command
                .arg("posix")
                .arg(dir.join("store"))
                .env("ROOT_ACCESS_KEY", "test")
                .env("ROOT_SECRET_KEY", "testsecret");
            let mut process = Process::start("versitygw", on(command), &log);
            // Seen from its own machine.
            let mut probe = Command::new("bash");
            probe.args(["-c", "exec 3<>/dev/tcp/${0%:*}/${0##*:}", &address]);
            let mut probe = on(probe);
            until("the S3 server listens, or has ended", || {
                probe.output().is_ok_and(|done| done.status.success())
                    || process.wait(Duration::ZERO).is_some()
            });
            let ended = process.wait(Duration::ZERO).is_some();
            (!ended).then(|| Self {
                url: format!("{scheme}://{address}"),
                _process: process,
            })
        })
    }

    /// What a program needs to reach it.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", "test".into()),
            ("AWS_SECRET_ACCESS_KEY", "testsecret".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ENDPOINT_URL", self.url.clone()),
        ]
    }
}
