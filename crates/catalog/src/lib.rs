//! What a room knows about its files: inodes, directory entries, extended attributes, extent maps, segment accounts. And the
//! answers that the program serving it gave to its clients, which are as durable as the operations they answer.
//!
//! To begin with, copy `examples/name_a_file.rs`.
//!
//! 1. Changes act at once on what this process reads, and become durable together, at [`Catalog::commit`]: the room's
//!    only commit point. A crash leaves the state of the last commit.
//! 2. One [`Catalog::apply`] is one operation: all of its changes are in effect or none.
//! 3. After a failed commit the catalog refuses everything but reading until it is opened again, except after
//!    `NoSpace`, which leaves the pending changes in place to be committed later.
//! 4. No SQL leaves this crate.
//!
//! It deliberately does not know POSIX rules, permissions, or how data is sealed.

#![forbid(unsafe_code)]

#[cfg(test)]
mod contract;
#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;
mod log;
mod past;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing {
    //! What the fuzz target for rows calls.

    pub use crate::sql::fuzz_rows as rows;
}
mod sql;

pub use model::{
    Births, BlockRange, CHUNK_BLOCKS, CHUNK_LEN, Chunk, Digest, DirEntry, Encoded, Extent,
    FileFlags, FileKind, Foreseen, Inode, InodeNo, KeptChunk, MapEdit, NoncePart, Piece, Pieces,
    Proofs, Released, SegmentNo, Snapshot, Stored, Tag, Tags, Timestamp,
};
pub use past::{KeptRow, SnapshotRow, SpaceRow, latest};
pub use segments::{SealedUnits, SegmentId};
pub use sql::{Catalog, OpenOptions};

/// The catalog's account of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentAccount {
    /// Number, key epoch and salt.
    pub id: SegmentId,
    /// Blocks ever written to it, its header included.
    pub length: u32,
    /// Blocks that some file refers to.
    pub live: u32,
}

/// A client of the program that serves a room, under a name that the program chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub [u8; 32]);

/// Longest answer that is kept, in bytes.
pub const ANSWER_MAX: usize = 8192;

/// The answer to the newest operation of one slot of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedReply {
    /// The slot.
    pub slot: u32,
    /// The operation's number, from 1 to 2^63-1.
    pub sequence: u64,
    /// The answer, 1 to [`ANSWER_MAX`] bytes; what they mean is the program's.
    pub answer: Vec<u8>,
}

/// One change; several make an operation.
#[derive(Debug, Clone)]
pub enum Change<'a> {
    /// Inserts or replaces an inode.
    PutInode(&'a Inode),
    /// Removes an inode with its extended attributes and chunks.
    DeleteInode(InodeNo),
    /// Inserts a name, or points an existing one (which keeps its cookie) at another inode.
    PutEntry {
        /// The directory.
        parent: InodeNo,
        /// The name.
        name: &'a [u8],
        /// The inode.
        inode: InodeNo,
        /// Its kind.
        kind: FileKind,
    },
    /// Removes a name.
    RemoveEntry {
        /// The directory.
        parent: InodeNo,
        /// The name.
        name: &'a [u8],
    },
    /// Gives an existing name another one in the same directory, which must not exist; the cookie stays.
    RenameEntry {
        /// The directory.
        parent: InodeNo,
        /// The name.
        name: &'a [u8],
        /// The name it gets.
        new_name: &'a [u8],
    },
    /// Sets an extended attribute.
    PutXattr {
        /// The inode.
        inode: InodeNo,
        /// Its full name, 1 to 255 bytes.
        name: &'a [u8],
        /// Its value, at most 64 KiB.
        value: &'a [u8],
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// The inode.
        inode: InodeNo,
        /// Its name.
        name: &'a [u8],
    },
    /// Writes the map of one chunk; an empty map removes the row. Records of the log say only what is new in it, where they can.
    PutChunk {
        /// The inode.
        inode: InodeNo,
        /// Index of the chunk: byte offset divided by [`CHUNK_LEN`].
        index: u64,
        /// Its extents.
        chunk: &'a Chunk,
    },
    /// Changes the map of one chunk: what a record of the log says instead of [`PutChunk`](Change::PutChunk).
    EditChunk {
        /// The inode.
        inode: InodeNo,
        /// Index of the chunk.
        index: u64,
        /// What is new in it.
        edit: &'a MapEdit,
    },
    /// Inserts or replaces a segment's account.
    PutSegment(SegmentAccount),
    /// Removes a segment's account.
    DropSegment(SegmentNo),
    /// Adds `references` to the count of one shared unit. The count is the number of references beyond the first; at
    /// zero the row goes.
    ShareUnit {
        /// The segment.
        segment: SegmentNo,
        /// First block of the unit.
        position: u32,
        /// What to add, may be negative.
        references: i64,
    },
    /// Keeps the answer to an operation, in place of the one of the same client and slot.
    PutReply {
        /// Who asked.
        client: ClientKey,
        /// The answer.
        reply: &'a CachedReply,
    },
    /// Removes all answers to a client.
    DropReplies(ClientKey),
    /// Creates a snapshot: what [`Catalog::new_snapshot`] returned.
    CreateSnapshot(&'a SnapshotRow),
    /// Gives a snapshot another name, which no other one has.
    RenameSnapshot {
        /// Its number.
        no: u64,
        /// The name it gets.
        name: &'a str,
    },
    /// Deletes a snapshot: from now on nothing is read in it, and its name is free. What is kept for it goes by [`MergePast`]
    /// and [`KeepChunk`], and its row at last by [`DropSnapshot`].
    ///
    /// [`MergePast`]: Change::MergePast
    /// [`KeepChunk`]: Change::KeepChunk
    /// [`DropSnapshot`]: Change::DropSnapshot
    DoomSnapshot(u64),
    /// Removes the row of a deleted snapshot. No effect as long as anything is kept for it.
    DropSnapshot(u64),
    /// Moves up to `limit` rows that are kept for a deleted snapshot to the one before, or removes them where that does not need
    /// them. All rows but those of chunks, which are the room's to move.
    MergePast {
        /// The snapshot's number.
        no: u64,
        /// Number of rows.
        limit: u32,
    },
    /// Writes what is kept of one chunk for a snapshot; where it covers nothing the row goes.
    KeepChunk {
        /// The inode.
        inode: InodeNo,
        /// Index of the chunk.
        index: u64,
        /// The newest snapshot that it is kept for.
        until: u64,
        /// What is kept.
        kept: &'a KeptChunk,
    },
    /// Changes what is kept of one chunk: what a record of the log says instead of [`KeepChunk`](Change::KeepChunk).
    EditKept {
        /// The inode.
        inode: InodeNo,
        /// Index of the chunk.
        index: u64,
        /// The newest snapshot that it is kept for.
        until: u64,
        /// What is new in it.
        edit: &'a MapEdit,
    },
    /// Adds `blocks` to the account of blocks kept for snapshots: see [`SpaceRow`].
    CountSpace {
        /// The snapshot after which the blocks were written, as [`Catalog::births`] says.
        since: u64,
        /// The newest snapshot that they are kept for.
        until: u64,
        /// What to add, may be negative.
        blocks: i64,
    },
}

impl<'a> Change<'a> {
    /// [`PutEntry`](Self::PutEntry).
    pub fn put_entry(parent: InodeNo, name: &'a [u8], inode: InodeNo, kind: FileKind) -> Self {
        Self::PutEntry {
            parent,
            name,
            inode,
            kind,
        }
    }

    /// [`RemoveEntry`](Self::RemoveEntry).
    pub fn remove_entry(parent: InodeNo, name: &'a [u8]) -> Self {
        Self::RemoveEntry { parent, name }
    }

    /// [`RenameEntry`](Self::RenameEntry).
    pub fn rename_entry(parent: InodeNo, name: &'a [u8], new_name: &'a [u8]) -> Self {
        Self::RenameEntry {
            parent,
            name,
            new_name,
        }
    }

    /// [`PutXattr`](Self::PutXattr).
    pub fn put_xattr(inode: InodeNo, name: &'a [u8], value: &'a [u8]) -> Self {
        Self::PutXattr { inode, name, value }
    }

    /// [`RemoveXattr`](Self::RemoveXattr).
    pub fn remove_xattr(inode: InodeNo, name: &'a [u8]) -> Self {
        Self::RemoveXattr { inode, name }
    }

    /// [`PutChunk`](Self::PutChunk).
    pub fn put_chunk(inode: InodeNo, index: u64, chunk: &'a Chunk) -> Self {
        Self::PutChunk {
            inode,
            index,
            chunk,
        }
    }

    /// [`ShareUnit`](Self::ShareUnit).
    pub fn share_unit(segment: SegmentNo, position: u32, references: i64) -> Self {
        Self::ShareUnit {
            segment,
            position,
            references,
        }
    }

    /// [`PutReply`](Self::PutReply).
    pub fn put_reply(client: ClientKey, reply: &'a CachedReply) -> Self {
        Self::PutReply { client, reply }
    }

    /// [`KeepChunk`](Self::KeepChunk).
    pub fn keep_chunk(inode: InodeNo, index: u64, until: u64, kept: &'a KeptChunk) -> Self {
        Self::KeepChunk {
            inode,
            index,
            until,
            kept,
        }
    }

    /// [`CountSpace`](Self::CountSpace).
    pub fn count_space(since: u64, until: u64, blocks: i64) -> Self {
        Self::CountSpace {
            since,
            until,
            blocks,
        }
    }
}

/// Why a catalog operation failed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The key is wrong, or its first page is damaged.
    #[error(
        "the catalog fails authentication with this room's key: it is damaged or belongs to another room; run `strongroom check`"
    )]
    NotThisRoom,
    /// A page fails its check, or a row is not what the format allows.
    #[error("the catalog is damaged: {0}; run `strongroom check`")]
    Damaged(String),
    /// A newer format.
    #[error("the catalog has format version {found}; this program knows up to {known}")]
    Version {
        /// Found in the file.
        found: u32,
        /// Newest known.
        known: u32,
    },
    /// No space left for the commit: the pending changes stay, and can be committed when there is.
    #[error("no space left in the room's storage for the catalog")]
    NoSpace,
    /// An earlier commit or change failed: nothing is changed any more. Where changes were lost with it, nothing is read
    /// either, because what is left does not fit the answers that the caller has.
    #[error("an earlier commit of the catalog failed; open the room again")]
    Poisoned,
    /// There is no snapshot with this number, or no more.
    #[error("there is no snapshot {0}")]
    NoSnapshot(u64),
    /// This user may not read or change a file of the catalog, or nobody may: the storage is read-only.
    #[error("catalog storage: {0}")]
    Denied(std::io::Error),
    /// The storage failed.
    #[error("catalog storage: {0}")]
    Io(String),
}

impl CatalogError {
    /// The catalog's error that an error of a file system is, if it is one.
    pub fn of(error: &model::Error) -> Option<&Self> {
        match error {
            model::Error::Catalog(e) => e.downcast_ref(),
            _ => None,
        }
    }
}

impl From<CatalogError> for model::Error {
    fn from(e: CatalogError) -> Self {
        match e {
            CatalogError::NoSpace => Self::NoSpace,
            CatalogError::Poisoned => Self::Poisoned,
            CatalogError::NoSnapshot(_) => Self::Stale,
            CatalogError::Denied(e) => Self::Io(e),
            other => Self::Catalog(Box::new(other)),
        }
    }
}

/// What [`Catalog::sync`] has done to what a record refers to, before it is written: whether that is durable now.
pub type Taken<'a> = Box<dyn FnOnce() -> bool + 'a>;

/// Result of catalog calls.
pub type Result<T> = std::result::Result<T, CatalogError>;
