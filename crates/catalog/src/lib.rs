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

#[cfg(any(test, feature = "testing"))]
pub mod contract;
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

use std::fmt::Debug;
use std::sync::Arc;

pub use model::{
    Births, BlockRange, CHUNK_BLOCKS, CHUNK_LEN, Chunk, Digest, DirEntry, Encoded, Extent,
    FileFlags, FileKind, Foreseen, Inode, InodeNo, KeptChunk, MapEdit, NoncePart, Piece, Pieces,
    Proofs, Released, SegmentNo, Snapshot, Stored, Tag, Tags, Timestamp,
};
pub use past::{KeptRow, SnapshotRow, SpaceRow, latest};
pub use segments::{SealedUnits, SegmentId};
pub use sql::{OpenOptions, SqlCatalog};

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

/// The metadata of a room. All methods may be called from many threads; [`apply`](Self::apply) and
/// [`commit`](Self::commit) are serialised inside.
pub trait Catalog: Send + Sync + Debug {
    /// An inode by number.
    fn inode(&self, no: InodeNo) -> Result<Option<Inode>>;
    /// A name in a directory, with the inode it leads to: one call.
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>>;
    /// Up to `limit` names with a cookie above `after`, in the order of cookies.
    fn entries(&self, parent: InodeNo, after: u64, limit: usize) -> Result<Vec<DirEntry>>;
    /// The same with the inodes: one call.
    fn entries_plus(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>>;
    /// The cookie that the next new entry gets: every entry has a lower one.
    fn next_cookie(&self) -> u64;
    /// Whether a directory has no names.
    fn is_empty(&self, parent: InodeNo) -> Result<bool>;
    /// An extended attribute.
    fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The names of all extended attributes, sorted.
    fn xattr_names(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>>;
    /// The map of one chunk; an absent one is empty (a hole).
    fn chunk(&self, inode: InodeNo, index: u64) -> Result<Chunk>;
    /// Up to `limit` chunks from `first` on that are not empty, in order.
    fn chunks_from(&self, inode: InodeNo, first: u64, limit: usize) -> Result<Vec<(u64, Chunk)>>;
    /// Up to `limit` of the last of them, in order too.
    fn last_chunks(&self, inode: InodeNo, first: u64, limit: usize) -> Result<Vec<(u64, Chunk)>>;
    /// References beyond the first to one unit.
    fn shared_references(&self, segment: SegmentNo, position: u32) -> Result<u64>;
    /// All segment accounts, by number.
    fn segments(&self) -> Result<Vec<SegmentAccount>>;
    /// Inodes without a name: left by a crash or a kill while open.
    fn orphans(&self) -> Result<Vec<InodeNo>>;
    /// Up to `limit` (inode, chunk index) keys after `after`, over the whole catalog: what cleaner and check walk.
    fn all_chunks(
        &self,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64, Chunk)>>;
    /// Up to `limit` inodes with a number above `after`.
    fn all_inodes(&self, after: InodeNo, limit: usize) -> Result<Vec<Inode>>;
    /// Up to `limit` names after `(parent, cookie)`, over the whole catalog: what check walks.
    fn all_entries(&self, after: (InodeNo, u64), limit: usize) -> Result<Vec<(InodeNo, DirEntry)>>;
    /// All counts of shared units.
    fn all_shared(&self) -> Result<Vec<(SegmentNo, u32, u64)>>;
    /// The answers kept for a client, by slot.
    fn replies(&self, client: ClientKey) -> Result<Vec<CachedReply>>;
    /// The clients for which answers are kept, in order.
    fn reply_clients(&self) -> Result<Vec<ClientKey>>;
    /// All snapshots by number, deleted ones included as long as anything is kept for them. Takes no lock of the catalog.
    fn snapshots(&self) -> Arc<Vec<SnapshotRow>>;
    /// A snapshot of the catalog as it is now, under the next number. It is created by [`Change::CreateSnapshot`]; where a name
    /// was added in between, that is refused.
    fn new_snapshot(&self, name: &str, created: Timestamp, automatic: bool) -> SnapshotRow;
    /// An inode as snapshot `at` sees it. `NoSnapshot`, as all calls that name a snapshot.
    fn past_inode(&self, at: u64, no: InodeNo) -> Result<Option<Inode>>;
    /// A name in a directory, with the inode it leads to, as snapshot `at` sees them.
    fn past_lookup(&self, at: u64, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>>;
    /// Up to `limit` names with a cookie above `after`, in the order of cookies, as snapshot `at` sees them.
    fn past_entries(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>>;
    /// The same with the inodes.
    fn past_entries_plus(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>>;
    /// The name with a cookie, as snapshot `at` sees it.
    fn past_entry(&self, at: u64, parent: InodeNo, cookie: u64) -> Result<Option<DirEntry>>;
    /// Up to `limit` inode numbers from `from` on that the catalog has, now or for snapshots: those with a lower number than the
    /// first that is younger than snapshot `at`. Not all of them are inodes in it.
    fn past_numbers(&self, at: u64, from: InodeNo, limit: usize) -> Result<Vec<InodeNo>>;
    /// An extended attribute as snapshot `at` sees it.
    fn past_xattr(&self, at: u64, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The names of all extended attributes, sorted, as snapshot `at` sees them.
    fn past_xattr_names(&self, at: u64, inode: InodeNo) -> Result<Vec<Vec<u8>>>;
    /// The map of one chunk as snapshot `at` sees it: the live one, and over it what is kept of it.
    fn past_chunk(&self, at: u64, inode: InodeNo, index: u64) -> Result<Chunk>;
    /// Up to `limit` chunks from `first` on that are not empty, in order, as snapshot `at` sees them. None behind the end of the
    /// file.
    fn past_chunks_from(
        &self,
        at: u64,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>>;
    /// What is kept of one chunk for snapshot `until`; where nothing is, it covers nothing.
    fn kept_chunk(&self, inode: InodeNo, index: u64, until: u64) -> Result<KeptChunk>;
    /// All that is kept of one chunk, each with the snapshot until which it is kept.
    fn kept_chunks(&self, inode: InodeNo, index: u64) -> Result<Vec<(u64, KeptChunk)>>;
    /// After which snapshots below `until` the blocks of a chunk were written that are, or will be, kept for `until`.
    fn births(&self, inode: InodeNo, index: u64, until: u64) -> Result<Births>;
    /// The same for some blocks of a chunk only, which reads no more kept chunks than it takes to know them.
    fn births_of(&self, inode: InodeNo, index: u64, until: u64, blocks: &[u16]) -> Result<Births>;
    /// Up to `limit` kept chunks after `(inode, index, until)`, over the whole catalog.
    fn all_kept_chunks(
        &self,
        after: Option<(InodeNo, u64, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>>;
    /// Up to `limit` chunks after `(inode, index)` that are kept for snapshot `until`.
    fn kept_until(
        &self,
        until: u64,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>>;
    /// Up to `limit` inodes after `after` that are kept for snapshot `until`.
    fn inodes_until(&self, until: u64, after: InodeNo, limit: usize) -> Result<Vec<InodeNo>>;
    /// Up to `limit` names after `(parent, cookie)` that are kept for snapshot `until`, each as its directory and its cookie.
    fn entries_until(
        &self,
        until: u64,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64)>>;
    /// Up to `limit` extended attributes after `(inode, name)` that are kept for snapshot `until`.
    fn xattrs_until(
        &self,
        until: u64,
        after: &(InodeNo, Vec<u8>),
        limit: usize,
    ) -> Result<Vec<(InodeNo, Vec<u8>)>>;
    /// The account of blocks kept for snapshots, by `since` and `until`.
    fn snapshot_space_rows(&self) -> Result<Vec<SpaceRow>>;
    /// A fresh inode number.
    fn new_inode(&self) -> InodeNo;
    /// From now on fresh inode numbers are not below `next`.
    fn skip_inodes(&self, next: InodeNo);
    /// Applies one operation.
    fn apply(&self, changes: &[Change<'_>]) -> Result<()>;
    /// Whether anything was applied since the last commit.
    fn is_dirty(&self) -> bool;
    /// Writes pages of pending changes, as the commit would: it has less to write then. Nothing becomes durable. Returns how many pages
    /// the commit has so far; 0 in a catalog whose pages nothing vouches for. `NoSpace`: nothing was written.
    fn write_ahead(&self) -> Result<u64>;
    /// Makes everything applied durable, and returns the new generation. Nothing to do: the present one.
    fn commit(&self) -> Result<u64>;
    /// Makes everything applied durable by one record of the log, which later commits replace, and returns its generation.
    /// The record holds `units`, which are written to the segments but not durable there. `taken` runs when the record is complete,
    /// before it is written: what is applied from then on is not part of it. It makes everything else durable that the changes
    /// refer to, and says whether it is. `None`: it is not, or the log cannot take the record, and only a commit can do instead.
    fn sync(&self, units: Vec<SealedUnits>, taken: Taken<'_>) -> Result<Option<u64>>;
    /// The units of the records that opening the catalog has applied. They belong into the segments before the next commit.
    fn take_replayed(&self) -> Vec<SealedUnits>;
    /// The generation of the last commit or record: rises by one with each.
    fn generation(&self) -> u64;
    /// Small named values: format facts, statistics, the rekey's progress.
    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Sets a named value; part of the pending changes.
    fn set_meta(&self, key: &str, value: &[u8]) -> Result<()>;
    /// Whether an inode has, or once had, [`FileFlags`].
    fn has_flags(&self) -> bool;
    /// Number of inodes, unlinked ones included.
    fn inode_count(&self) -> Result<u64>;
    /// Moves the log into the catalog file, so that the log does not grow; durable when it returns.
    fn checkpoint(&self) -> Result<()>;
    /// Another catalog takes this one's place: closing it leaves its log as it is.
    fn leave_log(&self);
    /// Checks every page and every row's form; the findings, empty if none.
    fn verify(&self) -> Result<Vec<String>>;
    /// Writes a consistent copy of the last commit, pending changes committed first, to the file `name` of `target`
    /// (which must not exist) under `key`, durable when it returns. What backup and rekey use.
    fn copy_to(
        &self,
        target: &Arc<dyn storage::Storage>,
        name: &str,
        key: &seal::CatalogKey,
    ) -> Result<()>;
}
