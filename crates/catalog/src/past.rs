//! Snapshots as the catalog knows them: their rows, and what is kept for them.
//!
//! 1. What a snapshot sees and the catalog no longer has is in *past rows*, each with the number of the newest snapshot that
//!    needs it: its `until`. A snapshot sees the past row with the lowest `until` that is not below its own number; where there
//!    is none, the live row, if that existed at the time.
//! 2. What existed is known by number: inodes and cookies only rise. [`SnapshotRow`] has the first of each that came later.
//! 3. The first change of a live row since the newest snapshot puts what it was into a past row. Rows of inodes, names and
//!    attributes are kept by the catalog itself, in the same operation; those of chunks by the room.

use crate::{InodeNo, KeptChunk, Snapshot};

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Number, name, time, kind.
    pub snapshot: Snapshot,
    /// Deleted: nothing is read in it any more, and what is kept for it is on its way out.
    pub doomed: bool,
    /// Inodes from this number on are younger.
    pub next_inode: InodeNo,
    /// Names from this cookie on are younger.
    pub next_cookie: u64,
}

impl SnapshotRow {
    /// Its number.
    pub fn no(&self) -> u64 {
        self.snapshot.number
    }
}

/// The newest snapshot, deleted or not: what is changed for the first time since is kept for it.
pub fn latest(snapshots: &[SnapshotRow]) -> Option<&SnapshotRow> {
    snapshots.last()
}

/// What is kept of one chunk for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRow {
    /// The inode.
    pub inode: InodeNo,
    /// Index of the chunk.
    pub index: u64,
    /// The newest snapshot that it is kept for.
    pub until: u64,
    /// Its blocks.
    pub kept: KeptChunk,
}

/// Blocks kept for the same snapshots: those after `since`, up to `until`. Of a unit, all blocks are kept until the last that a
/// snapshot sees is not.
///
/// Deleting snapshot `s` alone frees the blocks with `p <= since < s` and `s <= until < n`, where `p` and `n` are the numbers of
/// the snapshots before and behind it that are not deleted: 0 and none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceRow {
    /// The snapshot after which the blocks were written, never a deleted one: 0 where that was before all that are left.
    pub since: u64,
    /// The newest snapshot that they are kept for, which may be deleted.
    pub until: u64,
    /// Number of blocks; negative only in a damaged catalog.
    pub blocks: i64,
}
