//! Which errno answers which error of a room: the one place that knows.
//!
//! 1. The match has no catch-all: a new kind of error does not compile until it has an answer here.
//! 2. What a caller did wrong is answered quietly; what means damage or failing storage is logged once, here.

use model::{Error, InodeNo};

/// A positive Linux error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const EIO: Self = Self(libc::EIO);
    pub(crate) const EINVAL: Self = Self(libc::EINVAL);
    pub(crate) const ENOSPC: Self = Self(libc::ENOSPC);
    pub(crate) const ERANGE: Self = Self(libc::ERANGE);
    pub(crate) const ENOSYS: Self = Self(libc::ENOSYS);
    pub(crate) const ENOTTY: Self = Self(libc::ENOTTY);
    pub(crate) const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const ENAMETOOLONG: Self = Self(libc::ENAMETOOLONG);

    /// The answer to `error`, which happened while doing `what` to `inode`.
    pub(crate) fn of(error: &Error, what: &'static str, inode: InodeNo) -> Self {
        Self(match error {
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::TooManyLinks => libc::EMLINK,
            Error::FileTooLarge => libc::EFBIG,
            Error::InvalidArgument(_) => libc::EINVAL,
            Error::NotPermitted(_) => libc::EPERM,
            Error::AccessDenied => libc::EACCES,
            Error::WouldBlock => libc::EAGAIN,
            Error::Deadlock => libc::EDEADLK,
            Error::Interrupted => libc::EINTR,
            Error::Stale => libc::ESTALE,
            Error::NoXattr => libc::ENODATA,
            // The kernel refuses single values above 64 KiB itself, with E2BIG: what is left is that all of them
            // together are too large, which local file systems call a lack of space.
            Error::XattrTooLarge => libc::ENOSPC,
            Error::NotSupported(_) => libc::EOPNOTSUPP,
            Error::NoMoreData => libc::ENXIO,
            Error::TooManySymlinks => libc::ELOOP,
            Error::InTransaction => libc::EBUSY,
            Error::CrossDevice => libc::EXDEV,
            Error::ReadOnly => libc::EROFS,
            Error::NoSpace => libc::ENOSPC,
            Error::QuotaExceeded => libc::EDQUOT,
            Error::Io(e) => {
                let errno = match e.raw_os_error() {
                    Some(n @ (libc::ENOSPC | libc::EDQUOT | libc::EROFS | libc::ENOMEM)) => n,
                    _ => libc::EIO,
                };
                tracing::error!(inode = inode.0, "{what}: {error}");
                errno
            }
            Error::Corrupt { .. }
            | Error::Poisoned
            | Error::Unreachable(_)
            | Error::Catalog(_)
            | Error::Damaged(_) => {
                tracing::error!(inode = inode.0, "{what}: {error}");
                libc::EIO
            }
            // Errors of opening a room or of its keys: no request leads to them.
            Error::NotARoom(_)
            | Error::NotEmptyTarget(_)
            | Error::InUse { .. }
            | Error::Forked { .. }
            | Error::OnNetworkDisks
            | Error::NotOnNetworkDisks
            | Error::NoPositionKeys
            | Error::WrongCredential(_)
            | Error::HeaderDamaged(_)
            | Error::Unsupported(_)
            | Error::RolledBack { .. }
            | Error::OldHeader { .. }
            | Error::UnusableMemory { .. }
            | Error::Seal(_) => {
                tracing::error!(inode = inode.0, "{what}: unexpected: {error}");
                libc::EIO
            }
        })
    }
}

/// Turns the result of a room call into the answer to a request.
pub(crate) trait OrErrno<T> {
    /// The value, or the errno of the error; `what` and `inode` are for the log.
    fn or_errno(self, what: &'static str, inode: InodeNo) -> Result<T, Errno>;
}

impl<T> OrErrno<T> for model::Result<T> {
    fn or_errno(self, what: &'static str, inode: InodeNo) -> Result<T, Errno> {
        self.map_err(|e| Errno::of(&e, what, inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_get_the_number_a_local_file_system_would_give() {
        let of = |e: &Error| Errno::of(e, "test", InodeNo::ROOT).0;
        assert_eq!(of(&Error::NotFound), libc::ENOENT);
        assert_eq!(of(&Error::NoXattr), libc::ENODATA);
        assert_eq!(of(&Error::NoMoreData), libc::ENXIO);
        assert_eq!(of(&Error::Poisoned), libc::EIO);
        assert_eq!(
            of(&Error::Corrupt {
                inode: InodeNo(7),
                offset: 0,
                segment: 1,
                position: 1
            }),
            libc::EIO
        );
        assert_eq!(
            of(&Error::Io(std::io::Error::from_raw_os_error(libc::ENOSPC))),
            libc::ENOSPC
        );
        assert_eq!(
            of(&Error::Io(std::io::Error::from_raw_os_error(libc::EBADF))),
            libc::EIO
        );
    }
}
