//! What can go wrong, in the few kinds that a foreign program distinguishes.

use std::any::Any;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use room::Error as RoomError;

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Its text says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The room refused.
    #[error("{0}")]
    Room(RoomError),
    /// The room was closed, or the file.
    #[error("the {0} is closed")]
    Closed(&'static str),
    /// The file was not opened for this.
    #[error("the file was not opened for {0}")]
    NotOpenedFor(&'static str),
    /// An argument that no room is asked about.
    #[error("invalid argument: {0}")]
    Argument(String),
    /// The room has no snapshot of this name.
    #[error("there is no snapshot {0}")]
    NoSnapshot(String),
    /// The snapshot that is read was deleted.
    #[error("the snapshot was deleted")]
    SnapshotDeleted,
    /// The room has no policy for automatic snapshots.
    #[error("the room has no snapshot policy: set one first")]
    NoSnapshotPolicy,
    /// A fault of this library. The room is as it was, or as after a crash.
    #[error("a fault inside Strongroom, please report it: {0}")]
    Internal(String),
}

impl From<RoomError> for Error {
    fn from(error: RoomError) -> Self {
        match error {
            // A room that one process has open loses nothing else.
            RoomError::Stale => Self::SnapshotDeleted,
            other => Self::Room(other),
        }
    }
}

/// Kinds of errors, each with something else to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// There is no such file, no such snapshot (any more), or no policy.
    NotFound,
    /// There is one already.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// Is a directory.
    IsDirectory,
    /// A directory that is not empty.
    NotEmpty,
    /// Not allowed, whatever the key.
    NotPermitted,
    /// The room or file was not opened for writing.
    ReadOnly,
    /// An argument that makes no sense.
    InvalidArgument,
    /// Not there in this version, or for this kind of file.
    NotSupported,
    /// No space where the room is stored.
    NoSpace,
    /// Data is damaged or was replaced: restore it from a backup.
    Corrupt,
    /// The storage failed; open the room again.
    Io,
    /// Wrong passphrase or key.
    WrongKey,
    /// The directory holds no room.
    NotARoom,
    /// Another process has the room open, or a transaction has it.
    Busy,
    /// The room is older than this machine saw it, or what it remembers of the room cannot be read.
    RolledBack,
    /// Closed before, or opened by another process.
    Closed,
    /// A fault of this library.
    Internal,
}

impl Error {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Room(e) => of_room(e),
            Self::Closed(_) => Kind::Closed,
            Self::NotOpenedFor(_) => Kind::ReadOnly,
            Self::Argument(_) => Kind::InvalidArgument,
            Self::NoSnapshot(_) | Self::SnapshotDeleted | Self::NoSnapshotPolicy => Kind::NotFound,
            Self::Internal(_) => Kind::Internal,
        }
    }

    /// The nearest error number of POSIX.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Room(e) => match e {
                RoomError::NameTooLong => libc::ENAMETOOLONG,
                RoomError::TooManyLinks => libc::EMLINK,
                RoomError::FileTooLarge => libc::EFBIG,
                RoomError::NoXattr => libc::ENODATA,
                RoomError::XattrTooLarge => libc::ENOSPC,
                RoomError::QuotaExceeded => libc::EDQUOT,
                RoomError::NoMoreData => libc::ENXIO,
                RoomError::TooManySymlinks => libc::ELOOP,
                RoomError::CrossDevice => libc::EXDEV,
                RoomError::ReadOnly => libc::EROFS,
                RoomError::Io(e) => match e.kind() {
                    ErrorKind::PermissionDenied => libc::EACCES,
                    ErrorKind::ReadOnlyFilesystem => libc::EROFS,
                    _ => e.raw_os_error().unwrap_or(libc::EIO),
                },
                other => of_room(other).errno(),
            },
            Self::NotOpenedFor(_) => libc::EBADF,
            Self::SnapshotDeleted => libc::ESTALE,
            other => other.kind().errno(),
        }
    }
}

impl Kind {
    fn errno(self) -> i32 {
        match self {
            Self::NotFound | Self::NotARoom => libc::ENOENT,
            Self::Exists => libc::EEXIST,
            Self::NotDirectory => libc::ENOTDIR,
            Self::IsDirectory => libc::EISDIR,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::NotPermitted => libc::EPERM,
            Self::ReadOnly => libc::EROFS,
            Self::InvalidArgument => libc::EINVAL,
            Self::NotSupported => libc::EOPNOTSUPP,
            Self::NoSpace => libc::ENOSPC,
            Self::Corrupt | Self::Io | Self::Internal => libc::EIO,
            Self::WrongKey => libc::EACCES,
            Self::Busy => libc::EBUSY,
            Self::RolledBack => libc::ESTALE,
            Self::Closed => libc::EBADF,
        }
    }
}

fn of_room(error: &RoomError) -> Kind {
    use RoomError as E;
    match error {
        E::NotFound => Kind::NotFound,
        E::Exists | E::NotEmptyTarget(_) => Kind::Exists,
        E::NotDirectory => Kind::NotDirectory,
        E::IsDirectory => Kind::IsDirectory,
        E::NotEmpty => Kind::NotEmpty,
        E::NotPermitted(_) | E::AccessDenied => Kind::NotPermitted,
        E::ReadOnly => Kind::ReadOnly,
        E::NameTooLong
        | E::TooManyLinks
        | E::FileTooLarge
        | E::InvalidArgument(_)
        | E::XattrTooLarge
        | E::NoXattr
        | E::NoMoreData
        | E::TooManySymlinks
        | E::CrossDevice
        | E::Seal(_) => Kind::InvalidArgument,
        E::NotSupported(_)
        | E::Unsupported(_)
        | E::OnNetworkDisks
        | E::NotOnNetworkDisks
        | E::NoPositionKeys => Kind::NotSupported,
        E::NoSpace | E::QuotaExceeded => Kind::NoSpace,
        E::Corrupt { .. } | E::Catalog(_) | E::HeaderDamaged(_) | E::Damaged(_) => Kind::Corrupt,
        E::Poisoned | E::Io(_) | E::Stale | E::Interrupted | E::Unreachable(_) => Kind::Io,
        E::WrongCredential(_) => Kind::WrongKey,
        E::NotARoom(_) => Kind::NotARoom,
        E::InUse { .. } | E::InTransaction | E::WouldBlock | E::Deadlock => Kind::Busy,
        E::RolledBack { .. } | E::OldHeader { .. } | E::UnusableMemory { .. } => Kind::RolledBack,
        E::Forked { .. } => Kind::Closed,
    }
}

/// Runs what a foreign program called; a panic becomes [`Error::Internal`].
pub fn guard<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves behind is a room behind locks that do not poison: each call finds whole operations or refuses.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Error::Internal(text(&*panic))))
}

fn text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
