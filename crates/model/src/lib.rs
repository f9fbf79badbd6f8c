//! The words of a file system: inodes and names, the extent maps of files, what can go wrong, and the calls that a mount makes.
//!
//! To begin with, copy `examples/map_a_file.rs`.
//!
//! A room implements [`FileSystem`], and so does a client of a metadata server. What uses either, or speaks of files to another
//! machine, needs this crate and not the one that stores them.
//!
//! It deliberately does not know storage, keys, SQL, FUSE or a network.

#![forbid(unsafe_code)]

mod arguments;
#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;
mod error;
mod extents;
mod file_system;
mod grants;
mod inode;
mod locks;
mod policy;
mod read_only;
mod snapshots;
pub mod spans;
mod units;

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing {
    //! What the fuzz targets for extent maps and their edits call.

    pub use crate::extents::fuzzing::{extent_map, map_edit};
}

pub use arguments::{
    Available, Fallocate, NewFile, Quota, RenameMode, RoomSpace, SeekTo, SetAttr, SetTime, Used,
    XattrMode,
};
pub use error::{Error, PartError, Result};
pub use extents::{
    Absorbed, Births, CHUNK_BLOCKS, CHUNK_LEN, Chunk, Encoded, Extent, Foreseen, KeptChunk,
    MapEdit, Piece, Pieces, Released, Replaced, Stored,
};
pub use file_system::{Access, DIRECTORY_AGE, FileSystem};
pub use grants::*;
pub use inode::{DirEntry, FileFlags, FileKind, Inode, InodeNo, Timestamp, now};
pub use locks::{Lock, LockKind, LockOwner, LockTable};
pub use policy::{SnapshotPolicy, automatic_until};
pub use read_only::{ReadFiles, ReadOnly};
pub use snapshots::{SNAPSHOT_NAME_MAX, Snapshot, Snapshots, check_snapshot_name};
pub use units::{
    BLOCK_LEN, BlockRange, DIGEST_LEN, Digest, NONCE_PART_LEN, NoncePart, Proofs, Sealed,
    SegmentNo, TAG_LEN, Tag, Tags, UNIT_BLOCKS, UNIT_LEN,
};
