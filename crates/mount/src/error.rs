//! What can go wrong in mounting and unmounting.

use std::io;
use std::path::PathBuf;

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("{path}: cannot mount there: {source}")]
    Mountpoint {
        /// As given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `/dev/fuse` is missing or may not be opened.
    #[error("/dev/fuse: {0}; load the kernel's fuse module, or let this user open /dev/fuse")]
    NoFuse(io::Error),
    /// An ordinary user needs `fusermount3`.
    #[error(
        "fusermount3 is needed to mount as an ordinary user, and was not found: install the package fuse3"
    )]
    NoFusermount,
    /// `allow_other` is not allowed to this user.
    #[error(
        "other users may be let in only where /etc/fuse.conf has a line `user_allow_other`; ask for it there, or mount without --allow-other"
    )]
    AllowOther,
    /// The mount was refused.
    #[error("{path}: mounting was refused: {reason}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What the kernel or fusermount3 said.
        reason: String,
    },
    /// The kernel lacks what permission checks rest on.
    #[error(
        "this kernel's FUSE lacks {0}: without it permissions would not be checked; Linux 5.12 or newer is needed"
    )]
    KernelTooOld(&'static str),
    /// Unmounting failed because something is open in the mount.
    #[error("{0}: in use; close what is open there and try again")]
    Busy(PathBuf),
    /// Nothing was to be unmounted.
    #[error("{0}: nothing is mounted there")]
    NotMounted(PathBuf),
    /// Unmounting failed.
    #[error("{path}: cannot unmount: {reason}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The connection to the kernel broke.
    #[error("the connection to the kernel failed: {0}")]
    Session(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
