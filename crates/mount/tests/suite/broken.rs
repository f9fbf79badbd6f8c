//! What becomes of a mount when what serves it fails: a thread, or the start of one. Programs that use the mount must never wait for
//! ever, and what they wrote must not be lost.
//!
//! What failed: over io_uring a request of a thread that had ended was never answered, nor those of a queue without threads. By the
//! device, the end of the last thread left the connection open. So programs, and the end of the mount itself, waited for ever.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileType, Filesystem, Generation, INodeNo,
    InitFlags, KernelConfig, ReplyAttr, ReplyEntry, ReplyXattr, Request, Session, SessionACL,
};
use mount::{Detach, MountError, MountOptions, Transport};
use parking_lot::Mutex;
use room::{Available, FileSystem, Inode, InodeNo, Result, Room};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::common::{Mount, enable_uring, is_root, transport};
use crate::delegate_to_room;

/// Fails at what a thread does to have its next request.
const NEXT: [libc::c_long; 2] = [libc::SYS_io_uring_enter, libc::SYS_read];

/// Whatever comes within a minute; by force, so that this process can end, where nothing comes.
fn come<T>(what: &Receiver<T>, at: &Path) -> T {
    what.recv_timeout(Duration::from_secs(60))
        .unwrap_or_else(|_| {
            let _ = Command::new("umount").args(["-f", "-l"]).arg(at).status();
            panic!("a program waits for ever");
        })
}

/// What a program does, in a thread of the first processor.
fn program<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    std::thread::spawn(move || {
        let mut first = CpuSet::new();
        first.set(0);
        let _ = sched_setaffinity(None, &first);
        let _ = done.send(run());
    });
    result
}

/// The mount is gone, and with it the connection.
fn is_gone(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)
    )
}

/// A room in which looking certain names up ends the thread that serves it.
#[derive(Debug)]
struct Fragile {
    room: Arc<Room>,
}

impl FileSystem for Fragile {
    delegate_to_room! {
        attributes(no: InodeNo) -> Result<Inode>;
        xattr(no: InodeNo, name: &[u8]) -> Result<Vec<u8>>;
    }

    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        if name.starts_with(b"last") {
            transport::forbid(&NEXT);
        }
        self.room.lookup(parent, name)
    }
}

fn a_mount_whose_threads_fail_ends(transport: Transport) {
    if !is_root() {
        return;
    }
    let options = MountOptions {
        transport,
        threads: 2,
        ..MountOptions::default()
    };
    let shown =
        |room: &Arc<Room>| -> Arc<dyn FileSystem> { Arc::new(Fragile { room: room.clone() }) };
    let Some(mut mount) = Mount::showing(options, shown) else {
        return;
    };
    let at = mount.path("");
    fs::write(mount.path("f"), "text").unwrap();
    let gone = (0..10).any(|i| {
        let last = mount.path(&format!("last{i}"));
        let looked = come(&program(move || fs::metadata(last).unwrap_err()), &at);
        is_gone(&looked)
    });
    assert!(gone, "its threads have ended");
    let room = mount.room.take().unwrap();
    let (sent, ended) = channel();
    std::thread::spawn(move || drop(sent.send((mount.ended(), mount))));
    let (ended, mount) = come(&ended, &at);
    assert!(matches!(ended, Err(MountError::Session(_))), "{ended:?}");
    let _ = mount::detach(&at, Detach::Lazily);
    let room = Arc::into_inner(room).expect("the mount let go of the room");
    room.close().unwrap();
    let (_dir, room) = mount.durable();
    assert_eq!(room.read_file("/f").unwrap(), b"text");
}

#[test]
fn a_mount_by_the_device_whose_threads_fail_ends() {
    a_mount_whose_threads_fail_ends(Transport::Device);
}

#[test]
fn a_mount_over_io_uring_one_of_whose_threads_fails_ends() {
    a_mount_whose_threads_fail_ends(Transport::IoUring);
}

/// The kernel holds all requests back until each queue has an entry.
#[test]
fn where_no_thread_can_register_nothing_is_mounted() {
    if !is_root() || enable_uring::offered().is_none() {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    let (at, room) = (mount.plain(), mount.room.clone().unwrap());
    let mounted = std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            transport::forbid(&[libc::SYS_io_uring_register]);
            let options = MountOptions {
                transport: Transport::IoUring,
                ..MountOptions::default()
            };
            enable_uring::with_it_enabled(|| mount::mount(room, &at, &options))
        });
        started.join().unwrap()
    });
    if mounted.is_ok() {
        let _ = mount::detach(&at, Detach::ByForce);
    }
    assert!(
        matches!(mounted, Err(MountError::Session(_))),
        "{mounted:?}"
    );
    fs::write(at.join("f"), b"in the directory itself").unwrap();
}

/// A room whose mount can start no thread any more once it has looked how much space there is, and that somebody looks at then.
#[derive(Debug)]
struct Starved {
    room: Arc<Room>,
    at: PathBuf,
    held: Mutex<Option<OwnedFd>>,
}

impl FileSystem for Starved {
    delegate_to_room! {
        attributes(no: InodeNo) -> Result<Inode>;
        lookup(parent: InodeNo, name: &[u8]) -> Result<Inode>;
        xattr(no: InodeNo, name: &[u8]) -> Result<Vec<u8>>;
    }

    fn available(&self) -> Result<Available> {
        let held = rustix::fs::open(&self.at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        *self.held.lock() = Some(held.unwrap());
        transport::forbid(&[libc::SYS_clone, libc::SYS_clone3]);
        self.room.available()
    }
}

/// The session served already: it went on without the thread, until nobody used the mount.
#[test]
fn where_a_thread_of_the_mount_cannot_be_started_nothing_is_served() {
    if !is_root() {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    let (at, room) = (mount.plain(), mount.room.clone().unwrap());
    let starved = Arc::new(Starved {
        room,
        at: at.clone(),
        held: Mutex::default(),
    });
    let mounted = std::thread::scope(|scope| {
        let shown = starved.clone();
        let mount = || mount::mount(shown, &at, &MountOptions::default());
        scope.spawn(mount).join().unwrap()
    });
    let root = at.clone();
    let seen = come(&program(move || fs::metadata(root)), &at);
    let _ = mount::detach(&at, Detach::ByForce);
    assert!(matches!(mounted, Err(MountError::Thread(_))), "{mounted:?}");
    assert!(is_gone(&seen.unwrap_err()));
}

/// Files of which only extended attributes are asked for. What is asked for says what happens.
#[derive(Debug)]
struct Waiting(Arc<Asked>);

#[derive(Debug)]
struct Asked {
    over_io_uring: bool,
    /// Both threads of a queue come here.
    both: Barrier,
    waiting: Mutex<Vec<ReplyXattr>>,
}

fn attributes(ino: INodeNo) -> FileAttr {
    let (kind, perm) = match ino {
        INodeNo::ROOT => (FileType::Directory, 0o755),
        _ => (FileType::RegularFile, 0o644),
    };
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Waiting {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.0.over_io_uring {
            config
                .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
                .unwrap();
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        let minute = Duration::from_secs(60);
        reply.entry(&minute, &attributes(INodeNo(2)), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<fuser::FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(60), &attributes(ino));
    }

    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, reply: ReplyXattr) {
        match name.to_str() {
            Some("user.panic") => panic!("as asked"),
            Some("user.no-more-threads") => {
                self.0.both.wait();
                transport::forbid(&[libc::SYS_io_uring_setup]);
            }
            Some("user.wait") => return self.0.waiting.lock().push(reply),
            Some("user.go") => self.0.waiting.lock().clear(),
            _ => {}
        }
        reply.error(Errno::ENODATA);
    }
}

struct Small {
    dir: tempfile::TempDir,
    asked: Arc<Asked>,
    session: BackgroundSession,
}

impl Small {
    /// Two threads, for each processor over io_uring.
    fn new(over_io_uring: bool) -> Option<Self> {
        if !is_root() || over_io_uring && enable_uring::offered().is_none() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let asked = Arc::new(Asked {
            over_io_uring,
            both: Barrier::new(2),
            waiting: Mutex::default(),
        });
        let mut config = Config::default();
        config.n_threads = Some(2);
        let start = || {
            let files = Waiting(asked.clone());
            let fd = mount::attach(dir.path(), &MountOptions::default()).unwrap();
            let session = Session::from_fd(files, fd, SessionACL::All, config);
            session.unwrap().spawn().unwrap()
        };
        let session = match over_io_uring {
            true => enable_uring::with_it_enabled(start),
            false => start(),
        };
        assert_eq!(session.io_uring, over_io_uring);
        Some(Self {
            dir,
            asked,
            session,
        })
    }

    fn ask(&self, name: &'static str) -> Receiver<io::Error> {
        let path = self.dir.path().join("file");
        program(move || {
            let refused = rustix::fs::getxattr(path, name, &mut [0; 16][..]).unwrap_err();
            io::Error::from(refused)
        })
    }

    fn asked(&self, name: &'static str) -> io::Error {
        come(&self.ask(name), self.dir.path())
    }

    fn end(self) -> io::Result<()> {
        let at = self.dir.path().to_owned();
        mount::detach(&at, Detach::Lazily).unwrap();
        let (sent, ended) = channel();
        std::thread::spawn(move || sent.send(self.session.join()).unwrap());
        come(&ended, &at)
    }
}

/// More often than there are threads.
#[test]
fn a_panic_is_an_error_of_its_request_alone() {
    for over_io_uring in [false, true] {
        let Some(small) = Small::new(over_io_uring) else {
            continue;
        };
        for _ in 0..5 {
            assert_eq!(
                small.asked("user.panic").raw_os_error(),
                Some(libc::EIO),
                "over io_uring: {over_io_uring}"
            );
        }
        assert_eq!(
            small.asked("user.other").raw_os_error(),
            Some(libc::ENODATA)
        );
        small.end().unwrap();
    }
}

#[test]
fn a_queue_whose_threads_wait_and_that_can_start_no_other_ends_the_mount() {
    let Some(small) = Small::new(true) else {
        return;
    };
    let both = ["user.no-more-threads"; 2].map(|name| small.ask(name));
    for one in both {
        come(&one, small.dir.path());
    }
    let waiting = ["user.wait"; 2].map(|name| small.ask(name));
    let until = Instant::now() + Duration::from_secs(60);
    while small.asked.waiting.lock().len() < 2 {
        assert!(Instant::now() < until, "both wait");
        std::thread::sleep(Duration::from_millis(5));
    }
    let gone = small.asked("user.go");
    assert!(is_gone(&gone), "{gone}");
    for one in waiting {
        let gone = come(&one, small.dir.path());
        assert!(is_gone(&gone), "{gone}");
    }
    small.end().unwrap_err();
}
