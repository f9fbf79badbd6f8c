//! Files by their numbers: what is kept of each but its data, and the names in a directory.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Number of an inode, never used again. The root directory is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InodeNo(pub u64);

impl InodeNo {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// A moment: seconds since 1970 (negative before) and nanoseconds after them, 0 to 999,999,999.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds.
    pub nanos: u32,
}

impl Timestamp {
    /// So many seconds and nanoseconds.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos }
    }
}

/// What kind of file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// What keeps a file from being changed, as chattr(1) sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct FileFlags(u8);

impl FileFlags {
    /// Nothing does.
    pub const NONE: Self = Self(0);
    /// Contents are only added at the end; a directory only gains names.
    pub const APPEND_ONLY: Self = Self(1);
    /// Nothing changes: neither contents nor attributes, nor a directory's names.
    pub const IMMUTABLE: Self = Self(2);
    const ALL: u8 = 3;

    /// The flags as bits; `None` where an unknown one is among them.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits & !Self::ALL == 0).then_some(Self(bits))
    }

    /// The flags as bits: 1 append-only, 2 immutable.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether none is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether contents are only added at the end.
    pub fn append_only(self) -> bool {
        self.0 & Self::APPEND_ONLY.0 != 0
    }

    /// Whether nothing changes.
    pub fn immutable(self) -> bool {
        self.0 & Self::IMMUTABLE.0 != 0
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Everything about a file but its name, its extended attributes and its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// The number.
    pub no: InodeNo,
    /// The kind.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky: 0 to 0o7777.
    pub mode: u16,
    /// What keeps it from being changed.
    pub flags: FileFlags,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; for a directory 2 plus its subdirectories. 0: unlinked, kept only while open.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated data blocks of 4 KiB.
    pub blocks: u64,
    /// Device number of a device node, as `makedev` gives it.
    pub rdev: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
    /// The directory that holds a directory (the root's is itself); 0 for everything else.
    pub parent: InodeNo,
    /// Whether there are extended attributes.
    pub has_xattrs: bool,
    /// Target of a symbolic link, else empty.
    pub target: Vec<u8>,
}

impl Inode {
    /// One made at `at`: root's, without permissions and data, with one name and no attributes.
    pub fn new(no: InodeNo, kind: FileKind, at: Timestamp) -> Self {
        Self {
            no,
            kind,
            mode: 0,
            flags: FileFlags::NONE,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            blocks: 0,
            rdev: 0,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            parent: InodeNo(0),
            has_xattrs: false,
            target: Vec::new(),
        }
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Position in the listing: rises with creation, unchanged as long as the entry exists, which may get another name in
    /// its directory. From 16.
    pub cookie: u64,
    /// The name: 1 to 255 bytes, no `/`, no NUL.
    pub name: Vec<u8>,
    /// The inode.
    pub inode: InodeNo,
    /// Its kind.
    pub kind: FileKind,
}

/// The present moment. A clock that shows a time before 1970 gives 1970.
pub fn now() -> Timestamp {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::new(now.as_secs() as i64, now.subsec_nanos())
}
