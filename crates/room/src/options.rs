//! What callers pass in and get back.

use std::path::PathBuf;

use catalog::{FileFlags, FileKind, Timestamp};
use serde::{Deserialize, Serialize};

use seal::{NewCredential, RoomId, Secret, Suite};

/// How to make a room.
#[derive(Debug)]
pub struct NewRoom {
    /// What will open it.
    pub credential: NewCredential,
    /// A word for the first key slot, for people.
    pub label: String,
    /// The suite; `None`: the faster one here.
    pub suite: Option<Suite>,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Options for its first opening.
    pub open: OpenOptions,
}

impl NewRoom {
    /// A room opened by a passphrase, with the key derivation's cost measured to about a second.
    pub fn with_passphrase(secret: Secret) -> Self {
        let cost = seal::Argon2Cost::measured(std::time::Duration::from_secs(1));
        Self::with_credential(NewCredential::Passphrase { secret, cost })
    }

    /// A room opened by any credential.
    pub fn with_credential(credential: NewCredential) -> Self {
        Self {
            credential,
            label: String::new(),
            suite: None,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            open: OpenOptions::default(),
        }
    }
}

/// How to open a room.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Open although this machine has seen a newer state.
    pub accept_rollback: bool,
    /// Where this machine remembers the newest generation it saw; `None`: `$XDG_STATE_HOME/strongroom`, else
    /// `~/.local/state/strongroom`.
    pub state_dir: Option<PathBuf>,
    /// Milliseconds after which changes are committed without being asked; 0: only when asked or when much is pending.
    pub commit_interval_ms: u64,
    /// Whether the room has a thread of its own, for commits at the interval, deletion, cleaning. Without one these
    /// happen in [`Room::tend`](crate::Room::tend) and at closing only, so that the same calls do the same to the storage.
    pub background: bool,
    /// Whether the storage has the segments on network disks. A room that holds none yet is marked so by its first opening for
    /// writing; one that holds some is refused, and a room that is marked is refused without this.
    pub placed: bool,
    /// Whether files that the last opening left without a name are held once, as if they were open still, and not deleted:
    /// [`Room::held_without_name`](crate::Room::held_without_name).
    pub keep_unnamed: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            accept_rollback: false,
            state_dir: None,
            commit_interval_ms: 5000,
            background: true,
            placed: false,
            keep_unnamed: false,
        }
    }
}

/// A file to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewFile {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits as asked for, with set-id and sticky.
    pub mode: u16,
    /// Bits to take away where the directory has no default ACL.
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
    /// Of new data that a cache has accepted already: [`Room::write_cached`](crate::Room::write_cached). At least `new`.
    pub cached: u64,
}

/// Facts about an open room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Identity.
    pub id: RoomId,
    /// Format version.
    pub format: u32,
    /// Suite of file data.
    pub suite: Suite,
    /// Commits since it was made.
    pub generation: u64,
    /// Key epoch; rises with each rekey.
    pub key_epoch: u32,
    /// Whether a rekey is unfinished.
    pub rekeying: bool,
    /// Seconds since 1970 at which it was made.
    pub created: u64,
    /// Key slots in use.
    pub slots: usize,
    /// Segments.
    pub segments: u64,
    /// Space.
    pub space: RoomSpace,
}
