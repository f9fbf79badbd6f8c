//! What passes between C and this library.

#![allow(non_camel_case_types, reason = "the names are C's")]

use std::ffi::{c_char, c_void};

use embed::{FileKind, Inode, RoomSpace, Timestamp};

/// An open room. A number: 0 is none.
pub type strongroom_room = u64;
/// An open file. A number: 0 is none.
pub type strongroom_file = u64;
/// An open listing of a directory. A number: 0 is none.
pub type strongroom_dir = u64;

/// An open comparison of two moments. A number: 0 is none.
pub type strongroom_diff = u64;

/// What kind of secret a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum strongroom_key_kind {
    /// A passphrase: at least one byte, taken byte for byte.
    STRONGROOM_KEY_PASSPHRASE = 1,
    /// The whole content of a key file.
    STRONGROOM_KEY_FILE = 2,
    /// 32 random bytes.
    STRONGROOM_KEY_RAW = 3,
}

/// A passphrase or key. The library keeps no pointer to it; wipe it when you need it no more.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_key {
    /// One of `strongroom_key_kind`.
    pub kind: i32,
    /// The bytes.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

/// How to make and open a room. Fill it by `strongroom_options_init`, then change what you want.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_options {
    /// `sizeof(strongroom_options)`, by which the library knows the header that you were compiled with.
    pub size: usize,
    /// Not 0: refuse every change.
    pub read_only: i32,
    /// Not 0: open although this machine has seen a newer state, as after a backup was put back.
    pub accept_rollback: i32,
    /// Milliseconds after which changes are committed without being asked; 0: only when asked, or when much is pending.
    pub commit_interval_ms: u64,
    /// Where this machine remembers the newest state it saw of rooms; NULL: `$XDG_STATE_HOME/strongroom`, else
    /// `~/.local/state/strongroom`.
    pub state_dir: *const c_char,
    /// Of a new passphrase or key file: memory of Argon2id in KiB, 8,192 to 1,048,576; 0, with the next two: measured to about a second.
    pub argon2_memory_kib: u32,
    /// Its passes, 1 to 64.
    pub argon2_passes: u32,
    /// Its lanes, 1 to 16.
    pub argon2_lanes: u32,
    /// Suite of a new room: 0: the faster one here; 1: AES-256-GCM; 2: ChaCha20-Poly1305.
    pub suite: u32,
}

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct strongroom_time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds after them, 0 to 999,999,999.
    pub nanos: u32,
}

/// What kind of file something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum strongroom_file_kind {
    /// A regular file.
    STRONGROOM_FILE_REGULAR = 1,
    /// A directory.
    STRONGROOM_FILE_DIRECTORY = 2,
    /// A symbolic link.
    STRONGROOM_FILE_SYMLINK = 3,
    /// A named pipe.
    STRONGROOM_FILE_FIFO = 4,
    /// A socket.
    STRONGROOM_FILE_SOCKET = 5,
    /// A character device.
    STRONGROOM_FILE_CHAR_DEVICE = 6,
    /// A block device.
    STRONGROOM_FILE_BLOCK_DEVICE = 7,
}

/// Attributes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_stat {
    /// Inode number, never used again.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of data that are stored: multiples of 4096, holes not counted.
    pub stored: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Last access.
    pub atime: strongroom_time,
    /// Last change of the data.
    pub mtime: strongroom_time,
    /// Last change of the inode.
    pub ctime: strongroom_time,
    /// Birth.
    pub btime: strongroom_time,
    /// One of `strongroom_file_kind`.
    pub kind: i32,
    /// Permission bits with set-id and sticky, 0 to 07777. Kept, and not checked.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; of a directory 2 and its subdirectories.
    pub nlink: u32,
}

/// Space of a room and of what holds it, in bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_space {
    /// Of the storage below.
    pub total: u64,
    /// Free in it.
    pub free: u64,
    /// Free and to be had.
    pub available: u64,
    /// File data held.
    pub live: u64,
    /// All segments.
    pub stored: u64,
    /// Files of any kind (a number, no bytes).
    pub inodes: u64,
}

/// Facts about a room.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_info {
    /// Identity.
    pub id: [u8; 16],
    /// Commits since it was made.
    pub generation: u64,
    /// Seconds since 1970 at which it was made.
    pub created: u64,
    /// Segments.
    pub segments: u64,
    /// Format version.
    pub format: u32,
    /// Suite of file data: 1: AES-256-GCM; 2: ChaCha20-Poly1305.
    pub suite: u32,
    /// Rises with each rekey.
    pub key_epoch: u32,
    /// Key slots in use.
    pub slots: u32,
    /// Not 0: opened for reading only.
    pub read_only: i32,
}

/// A key slot.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_slot {
    /// Its number, 0 to 31.
    pub id: u32,
    /// 1: passphrase; 2: key file; 3: raw key; 4: age or SSH recipients; 5: passphrase with key file.
    pub kind: i32,
    /// Seconds since 1970 at which it was made.
    pub created: u64,
    /// What its owner calls it, ended with NUL; cut where it is longer.
    pub label: [c_char; 128],
}

/// One name of a directory.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_entry {
    /// Attributes of what it leads to; of a symbolic link its own.
    pub stat: strongroom_stat,
    /// The name: 1 to 255 bytes, ended with NUL.
    pub name: [c_char; 256],
}

/// A snapshot.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_snapshot {
    /// Rises with each snapshot, from 1, and is never used again.
    pub number: u64,
    /// The moment.
    pub created: strongroom_time,
    /// Bytes that it alone holds: deleting it frees as much.
    pub exclusive: u64,
    /// Not 0: a policy created it, and may delete it.
    pub automatic: i32,
    /// Its name: 1 to 255 bytes of UTF-8, ended with NUL.
    pub name: [c_char; 256],
}

/// How many automatic snapshots a room keeps. The newest of an hour, day or week is kept; only those that have one count.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_snapshot_policy {
    /// `sizeof(strongroom_snapshot_policy)`, by which the library knows the header that you were compiled with.
    pub size: usize,
    /// Hours of which one is kept.
    pub hourly: u32,
    /// Days in UTC, likewise.
    pub daily: u32,
    /// Weeks from Monday in UTC, likewise.
    pub weekly: u32,
    /// With less than this part of the storage free, the oldest go earlier, and none is created; percent, 0 to 99.
    pub min_free_percent: u32,
}

/// What applying a policy did.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_policy_report {
    /// Number of the automatic snapshot that was due and created; 0: none was.
    pub created: u64,
    /// How many automatic snapshots were deleted.
    pub deleted: u64,
    /// When the next one is due; `secs` -1: the room has no policy.
    pub next_due: strongroom_time,
}

/// What became of a file between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum strongroom_change_kind {
    /// The path is new.
    STRONGROOM_CHANGE_ADDED = 1,
    /// The path is gone.
    STRONGROOM_CHANGE_REMOVED = 2,
    /// The same file has another path. What is below a directory that was renamed is not listed for that.
    STRONGROOM_CHANGE_RENAMED = 3,
    /// It has other contents, or another modification time.
    STRONGROOM_CHANGE_CONTENTS = 4,
    /// It has another mode, owner, flags or extended attributes only.
    STRONGROOM_CHANGE_ATTRIBUTES = 5,
}

/// One difference between two moments.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct strongroom_change {
    /// Its path, ended with NUL; the later one, if there is a later one.
    pub path: *const c_char,
    /// The earlier path of what was renamed; else NULL.
    pub from: *const c_char,
    /// Length in bytes before; -1 where it was not there, or is no regular file.
    pub before: i64,
    /// Length in bytes after, likewise.
    pub after: i64,
    /// One of `strongroom_change_kind`.
    pub change: i32,
    /// One of `strongroom_file_kind`.
    pub kind: i32,
}

impl From<Timestamp> for strongroom_time {
    fn from(t: Timestamp) -> Self {
        Self {
            secs: t.secs,
            nanos: t.nanos,
        }
    }
}

impl From<&Inode> for strongroom_stat {
    fn from(inode: &Inode) -> Self {
        Self {
            inode: inode.no.0,
            size: inode.size,
            stored: inode.blocks * 4096,
            rdev: inode.rdev,
            atime: inode.atime.into(),
            mtime: inode.mtime.into(),
            ctime: inode.ctime.into(),
            btime: inode.btime.into(),
            kind: kind_of(inode.kind) as i32,
            mode: inode.mode.into(),
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
        }
    }
}

impl From<RoomSpace> for strongroom_space {
    fn from(space: RoomSpace) -> Self {
        Self {
            total: space.total,
            free: space.free,
            available: space.available,
            live: space.live,
            stored: space.stored,
            inodes: space.inodes,
        }
    }
}

pub(crate) fn kind_of(kind: FileKind) -> strongroom_file_kind {
    match kind {
        FileKind::Regular => strongroom_file_kind::STRONGROOM_FILE_REGULAR,
        FileKind::Directory => strongroom_file_kind::STRONGROOM_FILE_DIRECTORY,
        FileKind::Symlink => strongroom_file_kind::STRONGROOM_FILE_SYMLINK,
        FileKind::Fifo => strongroom_file_kind::STRONGROOM_FILE_FIFO,
        FileKind::Socket => strongroom_file_kind::STRONGROOM_FILE_SOCKET,
        FileKind::CharDevice => strongroom_file_kind::STRONGROOM_FILE_CHAR_DEVICE,
        FileKind::BlockDevice => strongroom_file_kind::STRONGROOM_FILE_BLOCK_DEVICE,
    }
}

/// Puts bytes into a field of C's, cut where they are too many, and ends them with NUL.
pub(crate) fn field<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(&bytes[..bytes.len().min(N - 1)]) {
        *to = *from as c_char;
    }
    field
}
