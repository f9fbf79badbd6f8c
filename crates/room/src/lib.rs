//! A room: an encrypted POSIX file system kept in an ordinary directory. The public library.
//!
//! To begin with, copy `examples/first_room.rs`.
//!
//! 1. Data is written once, to a fresh place, and becomes part of the file system with a record of the log or a commit of the
//!    catalog. Nothing durable refers to data that is not durable; nothing is freed before the commit that stops
//!    referring to it is durable.
//! 2. What [`FileSystem::fsync`] or [`FileSystem::sync`] acknowledged survives any crash; without them at most the last commit
//!    interval is lost, and what is found is the whole state of one moment.
//! 3. Corrupt data is never returned as good: a unit that fails authentication is [`Error::Corrupt`], its neighbours stay readable.
//! 4. After a failed flush or commit the room refuses further changes until it is opened again. Where changes were lost
//!    with it, reading what would show an older state is refused too.
//!
//! 5. A process that was forked from the one that opened a room has no room: its calls are [`Error::Forked`], and its end does
//!    nothing to its parent's. It opens one of its own only if no other thread of its parent was using one at the fork: locks which
//!    such a thread held stay held.
//!
//! Anyone with the key has full access: permission bits are kept and inherited here, but checked by the mount (the
//! kernel, with `default_permissions`). It deliberately does not know FUSE, errno or the command line.

#![forbid(unsafe_code)]

mod accounts;
pub mod acl;
mod attributes;
mod background;
mod blocks;
mod commit;
mod contents;
mod create;
mod current;
mod data;
pub mod diff;
mod environment;
mod flags;
mod freed;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing {
    //! What the fuzz target for streams calls.

    pub use crate::replica::fuzzing::stream;
}
mod grants;
mod header;
mod history;
mod holds;
mod inodes;
mod keys;
mod layout;
mod lock;
mod maintenance;
mod moves;
mod name_cache;
mod open;
mod opener;
mod options;
mod owners;
mod parts;
mod reap;
mod remote;
mod replica;
mod reports;
mod requests;
mod reservations;
pub mod restore;
mod rollback;
mod room;
mod snapshots;
mod space;
#[cfg(test)]
mod testing;
mod tree;
mod usage;
mod walk;

pub use catalog::{ANSWER_MAX, CachedReply, ClientKey};
pub use contents::Unsaved;
pub use create::is_left_of_creation;
pub use grants::WriteGrant;
pub use header::KnownKey;
pub use maintenance::{detach_backup, prepare_backup};
pub use model::{
    Access, Available, BlockRange, CHUNK_BLOCKS, CHUNK_LEN, Chunk, DirEntry, Error, Extent,
    Fallocate, FileFlags, FileKind, FileSystem, Inode, InodeNo, Lock, LockKind, LockOwner,
    LockTable, NewFile, NoncePart, PartError, Piece, Pieces, Quota, ReadFiles, ReadOnly,
    RenameMode, Result, RoomSpace, Sealed, SeekTo, SegmentNo, SetAttr, SetTime, Snapshot,
    SnapshotPolicy, Snapshots, Stored, Tags, Timestamp, UNIT_BLOCKS, Used, WriteGrantId,
    WrittenExtent, XattrMode, check_snapshot_name, now, spans,
};
pub use opener::Opener;
pub use options::*;
pub use replica::{
    Keep, MomentId, ReceiveReport, ReplicaStatus, ResumeToken, SendReport, SendRequest,
    SendScratch, Unfinished, receive, receive_for, receive_on,
};
pub use reports::{BackupReport, CheckReport, CompactReport, LostRange, Progress, RekeyReport};
pub use rollback::default_state_dir;
pub use room::{OperationId, Room, RoomFile};
pub use seal::{
    Argon2Cost, Credential, NewCredential, PositionCipher, PositionKeys, RoomId, Secret, SlotInfo,
    SlotKind, Suite, check_digest, nonce_part, unit_digest,
};
pub use snapshots::{NewSnapshot, PolicyReport, Removed, SnapshotSpace};
pub use walk::resolve;
