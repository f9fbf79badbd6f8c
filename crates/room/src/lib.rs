//! A room: an encrypted POSIX file system kept in an ordinary directory. The public library.
//!
//! To begin with, copy `examples/first_room.rs`.
//!
//! 1. Data is written once, to a fresh place, and becomes part of the file system with a record of the log or a commit of the
//!    catalog. Nothing durable refers to data that is not durable; nothing is freed before the commit that stops
//!    referring to it is durable.
//! 2. What [`Room::fsync`] or [`Room::sync`] acknowledged survives any crash; without them at most the last commit
//!    interval is lost, and what is found is the whole state of one moment.
//! 3. Corrupt data is never returned as good: a unit that fails authentication is [`Error::Corrupt`], its neighbours stay readable.
//! 4. After a failed flush or commit the room refuses further changes until it is opened again. Where changes were lost
//!    with it, reading what would show an older state is refused too.
//!
//! 5. A process that was forked from the one that opened a room has no room: its calls are [`Error::Forked`], and its end does
//!    nothing to its parent's.
//!
//! Anyone with the key has full access: permission bits are kept and inherited here, but checked by the mount (the
//! kernel, with `default_permissions`). It deliberately does not know FUSE, errno or the command line.

#![forbid(unsafe_code)]

mod accounts;
pub mod acl;
mod answers;
mod attributes;
mod backup;
mod check;
mod cleaner;
mod commit;
mod compact;
mod core;
mod data;
mod file_system;
mod flags;
mod grants;
mod header;
mod inodes;
mod keys;
mod lock;
mod maintenance;
mod moves;
mod name_cache;
mod names;
mod open;
mod opener;
mod options;
mod path;
mod pins;
mod ranges;
mod reclaim;
mod rekey;
mod reserve;
mod rollback;
mod room;
mod shift;
mod space;
#[cfg(test)]
mod testing;
mod transaction;
mod unsaved;

pub use answers::OperationId;
pub use catalog::{ANSWER_MAX, CachedReply, ClientKey};
pub use grants::WriteGrant;
pub use maintenance::{BackupReport, CheckReport, CompactReport, LostRange, Progress, RekeyReport};
pub use model::{
    Access, Available, BlockRange, CHUNK_BLOCKS, CHUNK_LEN, Chunk, DirEntry, Error, Extent,
    Fallocate, FileFlags, FileKind, FileSystem, Inode, InodeNo, Lock, LockKind, LockOwner,
    LockTable, NewFile, NoncePart, PartError, Piece, Pieces, RenameMode, Result, RoomSpace, Sealed,
    SeekTo, SegmentNo, SetAttr, SetTime, Stored, Timestamp, UNIT_BLOCKS, WriteGrantId,
    WrittenExtent, XattrMode, now, spans,
};
pub use opener::Opener;
pub use options::*;
pub use path::RoomFile;
pub use rollback::default_state_dir;
pub use room::Room;
pub use seal::{
    Argon2Cost, Credential, NewCredential, PositionCipher, PositionKeys, RoomId, Secret, SlotInfo,
    SlotKind, Suite, check_digest, nonce_part, unit_digest,
};
pub use unsaved::Unsaved;
