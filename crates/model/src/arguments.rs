//! What callers of a [file system](crate::FileSystem) pass in and get back.

use serde::{Deserialize, Serialize};

use crate::{FileFlags, FileKind, Timestamp};

/// A file to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewFile {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits as asked for, with set-id and sticky.
    pub mode: u16,
    /// Bits to remove where the directory has no default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group; a set-group-id directory overrides it.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

impl NewFile {
    /// A regular file or directory of this process's user with the usual permissions (0644, 0755).
    pub fn of_kind(kind: FileKind) -> Self {
        Self {
            kind,
            mode: if kind == FileKind::Directory {
                0o755
            } else {
                0o644
            },
            umask: 0,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            target: Vec::new(),
        }
    }
}

/// A time to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The present moment.
    Now,
    /// This one.
    At(Timestamp),
}

impl SetTime {
    /// From seconds and nanoseconds since 1970.
    pub fn at(secs: i64, nanos: u32) -> Self {
        Self::At(Timestamp { secs, nanos })
    }
}

/// Attributes to be changed; `None` stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits with set-id and sticky.
    pub mode: Option<u16>,
    /// Owner. A change of owner or group takes set-id bits and file capabilities away.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; else the present moment if anything changes. For restoring only.
    pub ctime: Option<Timestamp>,
    /// Birth. For restoring only.
    pub btime: Option<Timestamp>,
    /// What keeps the file from being changed: regular files and directories only. Changes of other attributes are judged
    /// by the flags it had.
    pub flags: Option<FileFlags>,
    /// Take set-id bits and file capabilities away, as a write by an unprivileged process does.
    pub drop_privileges: bool,
    /// With that, take the set-group-ID bit away also where the group may not execute the file: the process is not in its group.
    /// A metadata server decides that by itself, so it is not sent there.
    #[serde(skip)]
    pub drop_setgid: bool,
}

impl SetAttr {
    /// The permission bits alone.
    pub fn mode(mode: u16) -> Self {
        Self {
            mode: Some(mode),
            ..Self::default()
        }
    }

    /// The length alone, in bytes.
    pub fn size(size: u64) -> Self {
        Self {
            size: Some(size),
            ..Self::default()
        }
    }

    /// The flags alone.
    pub fn flags(flags: FileFlags) -> Self {
        Self {
            flags: Some(flags),
            ..Self::default()
        }
    }

    /// Owner and group; `None` stays.
    pub fn owner(uid: Option<u32>, gid: Option<u32>) -> Self {
        Self {
            uid,
            gid,
            ..Self::default()
        }
    }
}

/// How rename treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Refuse.
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// What `fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fallocate {
    /// Reserves space for what is not stored, so that writing there cannot fail for lack of it; extends the file unless
    /// `keep_size`. The reservation ends with the write, or when the range is punched, cut off or deleted. On network disks
    /// space is looked for and not reserved.
    Allocate {
        /// Leave the length alone.
        keep_size: bool,
    },
    /// Makes it a hole; the length stays.
    PunchHole,
    /// Makes it read as zeros, with its space reserved.
    ZeroRange {
        /// Leave the length alone.
        keep_size: bool,
    },
    /// Takes the range out; what follows moves down. Multiples of 4096.
    Collapse,
    /// Puts a hole in; what follows moves up. Multiples of 4096.
    Insert,
}

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeekTo {
    /// The next byte that is stored.
    Data,
    /// The next hole; the end of the file is one.
    Hole,
}

/// Whether an extended attribute may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Either way.
    Any,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

/// Space of a room and of what holds it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoomSpace {
    /// Bytes of the storage below.
    pub total: u64,
    /// Free bytes of it that are not reserved.
    pub free: u64,
    /// Bytes of new data that can be written.
    pub available: u64,
    /// Bytes of file data held.
    pub live: u64,
    /// Bytes of all segments.
    pub stored: u64,
    /// Bytes that `fallocate` reserved and that are not written yet.
    pub reserved: u64,
    /// Files of any kind.
    pub inodes: u64,
}

/// Bytes that can still be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Available {
    /// Of new data.
    pub new: u64,
    /// Of new data that a cache has accepted already: [`write_cached`](crate::FileSystem::write_cached). At least `new`.
    pub cached: u64,
}

/// How much the owner of files may have; `None`: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes of allocated blocks of 4 KiB.
    pub bytes: Option<u64>,
    /// Files of any kind.
    pub files: Option<u64>,
}

/// What the owner of files has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Used {
    /// Bytes of allocated blocks of 4 KiB. What two files share counts for both.
    pub bytes: u64,
    /// Files of any kind.
    pub files: u64,
}
