//! A mount from its beginning to its end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use model::{FileSystem, InodeNo};

use crate::attach::{self, Attachment};
use crate::detach::{Detach, detach};
use crate::error::MountError;
use crate::fuse::{self, Session};
use crate::keeper::{Duties, Keeper};
use crate::kernel::Kernel;
use crate::options::{MountOptions, Transport};
use crate::relief;
use crate::seeker::Seeker;
use crate::server::Server;
use crate::table;

/// A room that is mounted. Dropping it leaves the mount as it is: call [`wait`](Self::wait).
pub struct Mounted {
    mountpoint: PathBuf,
    device: u64,
    session: Session,
    keeper: Arc<Keeper>,
    threads: Vec<JoinHandle<()>>,
    kernel: Arc<Kernel>,
    attachment: Arc<dyn Attachment>,
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted")
            .field("mountpoint", &self.mountpoint)
            .finish_non_exhaustive()
    }
}

/// Mounts `room`, which is a room or a shared file system, on the directory `mountpoint` and serves it until it is unmounted: from outside, by
/// [`Mounted::unmount`], or by the idle timeout.
///
/// Permissions are checked by the kernel. If it cannot, nothing is mounted.
///
/// # Errors
/// Any of [`MountError`] but `Busy` and `Unmount`.
pub fn mount(
    room: Arc<dyn FileSystem>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let unusable = |source| MountError::Mountpoint {
        path: mountpoint.to_owned(),
        source,
    };
    let at = mountpoint.canonicalize().map_err(unusable)?;
    if !at.is_dir() {
        return Err(unusable(std::io::ErrorKind::NotADirectory.into()));
    }
    let fd = attach::attach(&at, options)?;
    serve(room, &at, options, fd, Arc::new(attach::Itself)).inspect_err(|_| {
        // The first error is the one to report.
        let _ = detach(&at, Detach::Unused);
    })
}

/// Serves `room` at a mount that another process has made, by [`attach`](crate::attach): for a process that may not mount. `at`
/// is absolute and without symbolic links, `fd` the connection, and `attachment` asks the other process.
///
/// # Errors
/// As [`mount()`]. The caller then unmounts.
pub fn serve(
    room: Arc<dyn FileSystem>,
    at: &Path,
    options: &MountOptions,
    fd: std::os::fd::OwnedFd,
    attachment: Arc<dyn Attachment>,
) -> Result<Mounted, MountError> {
    // Asks the kernel's table, not the mount: a thread that waits for its own process to serve it, and holds `/dev/fuse`, waits
    // for ever when the process is killed, and the process does not end.
    let mount = table::at(at).filter(|mount| mount.has_option("default_permissions"));
    let Some(table::Mount { device, .. }) = mount else {
        return Err(MountError::Refused {
            path: at.to_owned(),
            reason: "the kernel does not check permissions on it (default_permissions is missing)"
                .to_owned(),
        });
    };
    let (server, orders) = Server::new(room, options);
    let server = Arc::new(server);
    let watched = Arc::downgrade(&server);
    let (activity, shared) = (server.activity.clone(), server.shared);
    let keeper = Arc::new(Keeper::default());
    let kernel = Arc::new(Kernel::default());
    // All threads before the session: once it serves, programs may be in the mount, and it ends only with that.
    let (seeker, seek_thread) =
        Seeker::start(keeper.clone(), kernel.clone(), server.writes.clone())?;
    let mut threads = vec![seek_thread];
    // The kernel keeps back nothing that was written to a shared file system.
    if !shared {
        let duties = relief::Duties {
            server: watched,
            kernel: kernel.clone(),
            keeper: keeper.clone(),
            device,
        };
        threads.push(relief::start(orders, duties)?);
    }
    let duties = Duties {
        mountpoint: at.to_owned(),
        device,
        // The kernel keeps back nothing that was written to a shared file system.
        write_back_interval: options
            .write_back_interval
            .filter(|_| !options.read_only && !shared),
        idle_timeout: options.idle_timeout,
        attachment: attachment.clone(),
    };
    threads.push(keeper.start(duties, activity)?);
    let session = fuse::start(server, seeker, kernel.clone(), fd, options);
    let session = session.inspect_err(|_| keeper.stop())?;
    tracing::debug!(mountpoint = %at.display(), transport = ?session.transport(), "mounted");
    Ok(Mounted {
        mountpoint: at.to_owned(),
        device,
        session,
        keeper,
        threads,
        kernel,
        attachment,
    })
}

impl Mounted {
    /// Where it is mounted: absolute, without symbolic links.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// How requests come from the kernel: what the options ask for, or the device in its place.
    pub fn transport(&self) -> Transport {
        self.session.transport()
    }

    /// Unmounts, after the kernel has passed on everything that programs wrote. [`wait`](Self::wait) then returns.
    ///
    /// # Errors
    /// [`MountError::Busy`] when something is open in the mount: nothing has changed then.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.attachment.detach(&self.mountpoint, self.device)
    }

    /// A handle that unmounts, and that notifies the kernel of changes made to the room by other ways than the mount.
    /// It may be passed to other threads and outlive the mount.
    pub fn handle(&self) -> Handle {
        Handle {
            mountpoint: self.mountpoint.clone(),
            device: self.device,
            kernel: self.kernel.clone(),
            attachment: self.attachment.clone(),
        }
    }

    /// Waits until the mount is gone and every request is answered. The room is then as the last program left it, not yet
    /// committed: close it.
    ///
    /// # Errors
    /// [`MountError::Session`] when the connection to the kernel broke.
    pub fn wait(self) -> Result<(), MountError> {
        let ended = self.session.join();
        self.keeper.stop();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the mount ended by a bug in this program");
            }
        }
        tracing::debug!(mountpoint = %self.mountpoint.display(), "unmounted");
        ended
    }
}

/// A handle on a mount: see [`Mounted::handle`].
#[derive(Clone)]
pub struct Handle {
    mountpoint: PathBuf,
    device: u64,
    kernel: Arc<Kernel>,
    attachment: Arc<dyn Attachment>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("mountpoint", &self.mountpoint)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// As [`Mounted::unmount`].
    ///
    /// # Errors
    /// [`MountError::Busy`] when something is open in the mount.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.attachment.detach(&self.mountpoint, self.device)
    }

    /// A name came, went, or leads elsewhere, by another way than the mount.
    pub fn entry_changed(&self, parent: InodeNo, name: &[u8]) {
        self.kernel.attributes_changed(parent);
        self.kernel.entry_changed(parent, name);
    }

    /// Data or attributes of an inode changed by another way than the mount.
    pub fn inode_changed(&self, no: InodeNo) {
        self.kernel.inode_changed(no);
    }
}
