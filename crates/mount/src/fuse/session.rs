//! The connection to the kernel: what is agreed on at its start, and the threads that serve it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, InitFlags, KernelConfig, SessionACL, Version};

use super::{Handler, Ttl};
use crate::error::MountError;
use crate::kernel::Kernel;
use crate::options::{MountOptions, THREADS_MAX, Transport};
use crate::seeker::Seeker;
use crate::server::Server;

/// Bytes of the largest request: more gains nothing that was measured, and each thread has a buffer of it.
const MAX_WRITE: u32 = 1 << 20;
/// Requests the kernel may have under way without anybody waiting: read-ahead and write-back.
const MAX_BACKGROUND: u16 = 64;
/// Threads for requests that somebody waits for, where there are many.
const SPARE: usize = 16;

/// How many of the requests that nobody waits for the kernel may have under way beside so many threads.
fn background(threads: usize) -> u16 {
    match threads > 2 * SPARE {
        true => u16::try_from(threads - SPARE).unwrap_or(MAX_BACKGROUND),
        false => MAX_BACKGROUND,
    }
}

/// From this version on (Linux 6.2) the kernel sends a `SETATTR` before `FALLOCATE` too, where that takes set-ID bits away.
pub(super) const STRIPS_FIRST: Version = Version(7, 38);

/// Without these the kernel would not check what this crate leaves to it.
const REQUIRED: [(InitFlags, &str); 3] = [
    (InitFlags::FUSE_POSIX_ACL, "FUSE_POSIX_ACL"),
    (InitFlags::FUSE_DONT_MASK, "FUSE_DONT_MASK"),
    (
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        "FUSE_HANDLE_KILLPRIV_V2",
    ),
];

/// What makes it faster or more complete, each taken where the kernel has it.
///
/// `FUSE_ASYNC_DIO` is not among them: with it, the kernel drops its cached pages when an asynchronous direct write begins,
/// but not when it ends. What is read into the cache in between is old, and stays. Without it the kernel does both.
const WANTED: [InitFlags; 6] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_SETXATTR_EXT,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_ABORT_ERROR,
];

/// The same, where nobody else changes the room.
const WANTED_ALONE: [InitFlags; 4] = [
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

/// The same, where others change it too: cached pages go when a file's times changed.
const WANTED_SHARED: [InitFlags; 1] = [InitFlags::FUSE_AUTO_INVAL_DATA];

/// The same, where locks are asked of it.
const WANTED_FOR_LOCKS: [InitFlags; 2] = [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS];

/// Agrees on features with the kernel.
pub(super) fn negotiate(
    config: &mut KernelConfig,
    (shared, has_locks): (bool, bool),
    transport: Transport,
    threads: usize,
) -> io::Result<()> {
    for (flag, name) in REQUIRED {
        if config.add_capabilities(flag).is_err() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, name));
        }
    }
    let by_kind: &[InitFlags] = if shared {
        &WANTED_SHARED
    } else {
        &WANTED_ALONE
    };
    let locks: &[InitFlags] = if has_locks { &WANTED_FOR_LOCKS } else { &[] };
    for flag in WANTED.iter().chain(by_kind).chain(locks).copied() {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!(?flag, "the kernel lacks a feature");
        }
    }
    // A request has its place in a ring until it is answered. Locks of a shared file system may be waited for without end, by
    // any number of programs.
    if transport == Transport::IoUring
        && !shared
        && config
            .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
            .is_err()
    {
        tracing::debug!("the kernel offers no FUSE over io_uring (parameter enable_uring of fuse)");
    }
    // Each may be refused only in favour of the nearest value, which is then taken.
    if let Err(nearest) = config.set_max_write(MAX_WRITE) {
        let _ = config.set_max_write(nearest);
    }
    if let Err(nearest) = config.set_max_readahead(MAX_WRITE) {
        let _ = config.set_max_readahead(nearest);
    }
    let _ = config.set_max_background(background(threads));
    Ok(())
}

/// The threads that serve one mount.
#[derive(Debug)]
pub(crate) struct Session(BackgroundSession);

impl Session {
    /// How requests come.
    pub(crate) fn transport(&self) -> Transport {
        match self.0.io_uring {
            true => Transport::IoUring,
            false => Transport::Device,
        }
    }

    /// Returns when the mount is gone and every request is answered.
    pub(crate) fn join(self) -> Result<(), MountError> {
        self.0.join().map_err(MountError::Session)
    }
}

/// Serves the connection `fd` as `options` say.
pub(crate) fn start(
    server: Arc<Server>,
    seeker: Seeker,
    kernel: Arc<Kernel>,
    fd: OwnedFd,
    options: &MountOptions,
) -> Result<Session, MountError> {
    let mut config = Config::default();
    let threads = options.threads.clamp(2, THREADS_MAX);
    config.n_threads = Some(threads);
    // A device of its own for each thread spares them a common lock; it takes the right to open the device.
    config.clone_fd = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    let handler = Handler {
        ttl: Ttl::new(server.shared),
        server,
        seeker,
        kernel: kernel.clone(),
        locker: Arc::default(),
        transport: options.transport,
        threads,
        strips_first: false,
    };
    // `All`: who may enter is the kernel's to decide, and it has. Its own write-back comes under the name of root.
    let session = fuser::Session::from_fd(handler, fd, SessionACL::All, config).map_err(|e| {
        let missing = REQUIRED.iter().find(|(_, name)| e.to_string() == *name);
        missing.map_or(MountError::Session(e), |(_, name)| {
            MountError::KernelTooOld(name)
        })
    })?;
    kernel.connect(session.notifier());
    session.spawn().map(Session).map_err(MountError::Session)
}
