//! What a refusal means to a program, and which failures end by themselves.

use metadata_proto::rpc::{Delay, Posix, Refusal};
use model::{Error, InodeNo};

/// The error that a refusal is.
pub(super) fn error(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Posix(kind) => posix(kind),
        Refusal::NoSession | Refusal::GrantOver(_) => Error::Stale,
        Refusal::DiskUnreachable(disk) => Error::Unreachable(format!("the disk {disk}")),
        Refusal::NotNow(Delay::Disk) => Error::Unreachable("a disk of the room".into()),
        Refusal::NotNow(Delay::Reopening | Delay::UnderWay | Delay::Reclaiming) => {
            Error::Unreachable("the metadata server".into())
        }
        other @ (Refusal::Version { .. } | Refusal::Changed | Refusal::Failed(_)) => {
            Error::Io(std::io::Error::other(other))
        }
    }
}

fn posix(kind: Posix) -> Error {
    match kind {
        Posix::NotFound => Error::NotFound,
        Posix::Exists => Error::Exists,
        Posix::NotDirectory => Error::NotDirectory,
        Posix::IsDirectory => Error::IsDirectory,
        Posix::NotEmpty => Error::NotEmpty,
        Posix::NameTooLong => Error::NameTooLong,
        Posix::TooManyLinks => Error::TooManyLinks,
        Posix::FileTooLarge => Error::FileTooLarge,
        Posix::InvalidArgument => Error::InvalidArgument("said the metadata server"),
        Posix::NotPermitted => Error::NotPermitted("said the metadata server"),
        Posix::AccessDenied => Error::AccessDenied,
        Posix::NoXattr => Error::NoXattr,
        Posix::XattrTooLarge => Error::XattrTooLarge,
        Posix::NotSupported => Error::NotSupported("said the metadata server"),
        Posix::NoMoreData => Error::NoMoreData,
        Posix::TooManySymlinks => Error::TooManySymlinks,
        Posix::ReadOnly => Error::ReadOnly,
        Posix::NoSpace => Error::NoSpace,
        Posix::QuotaExceeded => Error::QuotaExceeded,
        Posix::WouldBlock => Error::WouldBlock,
        Posix::Deadlock => Error::Deadlock,
        Posix::Stale => Error::Stale,
        Posix::Io => Error::Io(std::io::Error::other(
            "the metadata server reports an input/output error; its log says more",
        )),
    }
}

/// An error of data that was written and could not be kept: a later `close` or `fsync` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteBackError {
    /// Nobody may write there any more.
    AccessDenied,
    /// No space.
    NoSpace,
    /// The owner of the file may not have more.
    QuotaExceeded,
    /// The file is gone, or its locks are.
    Stale,
    /// Anything else that is final.
    Failed,
}

impl WriteBackError {
    /// What is lost for good by an error; `None` where it may end by itself, and the data is kept.
    pub(super) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Unreachable(_) | Error::Io(_) | Error::Poisoned => None,
            Error::AccessDenied | Error::NotPermitted(_) | Error::ReadOnly => {
                Some(Self::AccessDenied)
            }
            Error::NoSpace => Some(Self::NoSpace),
            Error::QuotaExceeded => Some(Self::QuotaExceeded),
            Error::Stale | Error::NotFound => Some(Self::Stale),
            _ => Some(Self::Failed),
        }
    }

    pub(super) fn error(self) -> Error {
        match self {
            Self::AccessDenied => Error::AccessDenied,
            Self::NoSpace => Error::NoSpace,
            Self::QuotaExceeded => Error::QuotaExceeded,
            Self::Stale => Error::Stale,
            Self::Failed => Error::Io(std::io::Error::other(
                "data that was written earlier was refused; the log says why",
            )),
        }
    }
}

/// The answer is of another kind than was asked for.
pub(super) fn unexpected() -> Error {
    Error::Io(std::io::Error::other(
        "the metadata server answered something else",
    ))
}

/// `NotFound` of a call that names an inode alone: the file is gone.
pub(super) fn gone(error: Error) -> Error {
    match error {
        Error::NotFound => Error::Stale,
        other => other,
    }
}

/// The server has seen no name of a file, and the one that is known here is another file's or gone. Data for it is kept.
pub(super) fn unseen() -> Error {
    Error::Io(std::io::Error::new(
        std::io::ErrorKind::StaleNetworkFileHandle,
        "the file was moved, and the metadata server has not seen its new name: its data is kept until somebody looks at that",
    ))
}

/// Whether it is [`unseen`].
pub(super) fn is_unseen(error: &Error) -> bool {
    matches!(error, Error::Io(e) if e.kind() == std::io::ErrorKind::StaleNetworkFileHandle)
}

/// For the log.
pub(super) fn words(no: InodeNo, error: &Error) -> String {
    format!("inode {}: {error}", no.0)
}
