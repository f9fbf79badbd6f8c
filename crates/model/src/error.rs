//! What can go wrong in a file system, and in a room as one is opened; each with what to do about it.

use std::path::PathBuf;

use crate::InodeNo;

/// An error of a part that is known to those alone who are above it: they ask the part what it is.
pub type PartError = Box<dyn std::error::Error + Send + Sync>;

/// Result of a file system's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Kinds that POSIX names carry its name.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("a file of that name exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// ENAMETOOLONG.
    #[error("name longer than 255 bytes")]
    NameTooLong,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// EFBIG.
    #[error("file too large")]
    FileTooLarge,
    /// EINVAL.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// EPERM.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// EACCES: the metadata server refuses it to this user.
    #[error("permission denied")]
    AccessDenied,
    /// EAGAIN: a lock that somebody else holds.
    #[error("locked by somebody else")]
    WouldBlock,
    /// EDEADLK.
    #[error("waiting for this lock would never end")]
    Deadlock,
    /// EINTR: a wait for a lock was cancelled.
    #[error("interrupted")]
    Interrupted,
    /// ESTALE: the file is gone, or what was held on it ended with the lease.
    #[error("the file is gone, or the lease under which it was open has ended")]
    Stale,
    /// EIO: a server did not answer in time; what was asked may be done all the same.
    #[error("{0} does not answer")]
    Unreachable(String),
    /// ENODATA.
    #[error("no such extended attribute")]
    NoXattr,
    /// E2BIG or ENOSPC: an extended attribute or all of them are too large.
    #[error("extended attribute too large")]
    XattrTooLarge,
    /// EOPNOTSUPP.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// ENXIO: no data or hole beyond the offset.
    #[error("no more data in the file")]
    NoMoreData,
    /// ELOOP.
    #[error("too many symbolic links")]
    TooManySymlinks,
    /// EBUSY: not while a transaction is open.
    #[error("a transaction is open: complete it first")]
    InTransaction,
    /// EXDEV: the two are of different moments: one is in a snapshot.
    #[error("a file of a snapshot cannot be linked or moved: copy it")]
    CrossDevice,
    /// EROFS.
    #[error("the room was opened read-only")]
    ReadOnly,
    /// EDQUOT: the owner of the file may not have more.
    #[error("the quota of the file's owner is used up")]
    QuotaExceeded,
    /// ENOSPC.
    #[error("no space left where the room is stored")]
    NoSpace,
    /// EIO: a unit of file data fails authentication.
    #[error(
        "inode {}, offset {offset}: data damaged or replaced (segment {segment}, block {position}); restore the file from a backup",
        inode.0
    )]
    Corrupt {
        /// The file.
        inode: InodeNo,
        /// First byte of the file that cannot be read.
        offset: u64,
        /// The segment.
        segment: u64,
        /// Block in the segment.
        position: u32,
    },
    /// EIO: an earlier flush or commit failed.
    #[error("an earlier write to the room's storage failed; unmount and open the room again")]
    Poisoned,
    /// The directory holds no room.
    #[error("{0}: not a room (no header.json)")]
    NotARoom(PathBuf),
    /// The directory to create exists and is not empty.
    #[error("{0}: exists and is not empty")]
    NotEmptyTarget(PathBuf),
    /// Another process has the room open.
    #[error("the room is in use by process {pid}")]
    InUse {
        /// The process.
        pid: u32,
    },
    /// EBADF: the room is its parent process's.
    #[error(
        "the room was opened by process {opener}, of which this one is a fork: open it here, after that one closed it"
    )]
    Forked {
        /// Who opened it.
        opener: u32,
    },
    /// The room's segments are not in its directory.
    #[error("its segments are on network disks: start its metadata server")]
    OnNetworkDisks,
    /// Network disks take a room in only while it is empty.
    #[error(
        "the room holds data in its directory: a metadata server takes an empty room; make one, and copy the data in through a mount"
    )]
    NotOnNetworkDisks,
    /// A room on network disks whose clients would get the keys of whole segments.
    #[error(
        "this shared room was created before the feature `position-keys`: stop its metadata server, run `strongroom rekey` on the room while its disks run, and start the server again"
    )]
    NoPositionKeys,
    /// Wrong passphrase, key or identity.
    #[error("this {} does not open this room", credential_words(.0))]
    WrongCredential(&'static str),
    /// Neither copy of the header can be used.
    #[error(
        "both copies of the header are damaged ({0}); restore one with `strongroom header restore` from a backup you made"
    )]
    HeaderDamaged(String),
    /// The header is of a newer format or needs what this program does not know.
    #[error("this room cannot be opened by this version: {0}")]
    Unsupported(String),
    /// The room is older than this machine saw it last.
    #[error(
        "the room was rolled back: this machine last saw generation {seen}, the room has {found}; open it with --accept-rollback if you restored a backup yourself"
    )]
    RolledBack {
        /// Generation remembered.
        seen: u64,
        /// Generation found.
        found: u64,
    },
    /// What this machine remembers of the room cannot be read, or is garbled: a rollback would not be noticed.
    #[error(
        "{}: what this machine remembers of the room cannot be used ({why}), so a rollback would not be noticed; make the file readable or put it back, or open the room once with --accept-rollback, which replaces it", path.display()
    )]
    UnusableMemory {
        /// The entry, or the state directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The header is older than the one the catalog remembers.
    #[error(
        "the header was rolled back: revision {seen} was written, revision {found} is there; open it with --accept-rollback if you restored a backup yourself"
    )]
    OldHeader {
        /// Revision remembered.
        seen: u64,
        /// Revision found.
        found: u64,
    },
    /// The catalog is damaged: `catalog::CatalogError::of` says how.
    #[error("{0}")]
    Catalog(PartError),
    /// A key operation was refused: `seal::SealError::of` says why.
    #[error("{0}")]
    Seal(PartError),
    /// The storage failed.
    #[error("storage: {0}")]
    Io(#[from] std::io::Error),
    /// What was found in the catalog contradicts itself: run check.
    #[error("the room is damaged: {0}; run `strongroom check`")]
    Damaged(String),
}

/// A kind of credential, by its name in the header, as a person calls it.
fn credential_words(kind: &str) -> &str {
    match kind {
        "recipients" => "identity",
        "key-file" => "key file",
        "raw-key" => "raw key",
        other => other,
    }
}
