//! The catalog's calls: what each locks, and which part of the state does the work. Questions that only its users ask are beside their
//! statements.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use segments::SealedUnits;
use storage::Storage;

use super::{Catalog, State, copy, open, schema, verify, wal};
use crate::{
    Births, CHUNK_BLOCKS, Change, Chunk, Inode, InodeNo, KeptChunk, Result, SnapshotRow, Taken,
    Timestamp,
};

impl Catalog {
    /// An inode by number.
    pub fn inode(&self, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.inode(no))
    }

    /// The cookie that the next new entry gets: every entry has a lower one.
    pub fn next_cookie(&self) -> u64 {
        self.lock().next_cookie
    }

    /// An extended attribute.
    pub fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.xattr(inode, name))
    }

    /// The map of one chunk; an absent one is empty (a hole).
    pub fn chunk(&self, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.chunk(inode, index))
    }

    /// All snapshots by number, deleted ones included as long as anything is kept for them. Takes no lock of the catalog.
    pub fn snapshots(&self) -> Arc<Vec<SnapshotRow>> {
        self.snapshots.get()
    }

    /// A snapshot of the catalog as it is now, under the next number. It is created by [`Change::CreateSnapshot`]; where a name
    /// was added in between, that is refused.
    pub fn new_snapshot(&self, name: &str, created: Timestamp, automatic: bool) -> SnapshotRow {
        let state = self.lock();
        state.new_snapshot(
            name,
            created,
            automatic,
            InodeNo(self.next_inode.load(Ordering::Relaxed)),
        )
    }

    /// An inode as snapshot `at` sees it. `NoSnapshot`, as all calls that name a snapshot.
    pub fn past_inode(&self, at: u64, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.past_inode(at, no))
    }

    /// The map of one chunk as snapshot `at` sees it: the live one, and over it what is kept of it.
    pub fn past_chunk(&self, at: u64, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.past_chunk(at, inode, index))
    }

    /// What is kept of one chunk for snapshot `until`; where nothing is, it covers nothing.
    pub fn kept_chunk(&self, inode: InodeNo, index: u64, until: u64) -> Result<KeptChunk> {
        self.read(|state| state.kept_chunk(inode, index, until))
    }

    /// All that is kept of one chunk, each with the snapshot until which it is kept.
    pub fn kept_chunks(&self, inode: InodeNo, index: u64) -> Result<Vec<(u64, KeptChunk)>> {
        self.read(|state| state.kept_chunks(inode, index, 0))
    }

    /// After which snapshots below `until` the blocks of a chunk were written that are, or will be, kept for `until`.
    pub fn births(&self, inode: InodeNo, index: u64, until: u64) -> Result<Births> {
        let all: Vec<u16> = (0..CHUNK_BLOCKS as u16).collect();
        self.births_of(inode, index, until, &all)
    }

    /// The same for some blocks of a chunk only, which reads no more kept chunks than it takes to know them.
    pub fn births_of(
        &self,
        inode: InodeNo,
        index: u64,
        until: u64,
        blocks: &[u16],
    ) -> Result<Births> {
        self.read(|state| state.births(inode, index, until, blocks))
    }

    /// From now on fresh inode numbers are not below `next`.
    pub fn skip_inodes(&self, next: InodeNo) {
        self.next_inode.fetch_max(next.0, Ordering::Relaxed);
    }

    /// A fresh inode number.
    pub fn new_inode(&self) -> InodeNo {
        InodeNo(self.next_inode.fetch_add(1, Ordering::Relaxed))
    }

    /// Applies one operation.
    pub fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        self.write(|state| state.apply(changes))
    }

    /// Whether anything was applied since the last commit.
    pub fn is_dirty(&self) -> bool {
        self.lock().dirty
    }

    /// Writes pages of pending changes, as the commit would: it has less to write then. Nothing becomes durable. Returns how many pages
    /// the commit has so far; 0 in a catalog whose pages nothing vouches for. `NoSpace`: nothing was written.
    pub fn write_ahead(&self) -> Result<u64> {
        self.write(State::write_ahead)
    }

    /// Makes everything applied durable, and returns the new generation. Nothing to do: the present one.
    pub fn commit(&self) -> Result<u64> {
        if self.read_only {
            return Ok(self.generation());
        }
        self.commit_now()
    }

    /// Makes everything applied durable by one record of the log, which later commits replace, and returns its generation.
    /// The record holds `units`, which are written to the segments but not durable there. `taken` runs when the record is complete,
    /// before it is written: what is applied from then on is not part of it. It makes everything else durable that the changes
    /// refer to, and says whether it is. `None`: it is not, or the log cannot take the record, and only a commit can do instead.
    pub fn sync(&self, units: Vec<SealedUnits>, taken: Taken<'_>) -> Result<Option<u64>> {
        self.append_record(units, taken)
    }

    /// The units of the records that opening the catalog has applied. They belong into the segments before the next commit.
    pub fn take_replayed(&self) -> Vec<SealedUnits> {
        std::mem::take(&mut self.replayed.lock())
    }

    /// The generation of the last commit or record: rises by one with each.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Small named values: format facts, statistics, the rekey's progress.
    pub fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.meta(key))
    }

    /// Sets a named value; part of the pending changes.
    pub fn set_meta(&self, key: &str, value: &[u8]) -> Result<()> {
        assert!(
            ![
                schema::META_VERSION,
                schema::META_HASH_KEY,
                schema::META_COUNTERS,
                schema::META_FLAGS,
                schema::META_ANCHOR,
                schema::past::META_SNAPSHOTS,
            ]
            .contains(&key),
            "{key} is the catalog's own"
        );
        self.write(|state| state.set_meta(key, value))
    }

    /// Whether an inode has, or once had, [`FileFlags`].
    pub fn has_flags(&self) -> bool {
        self.lock().has_flags
    }

    /// Number of inodes, unlinked ones included.
    pub fn inode_count(&self) -> Result<u64> {
        self.read(|state| Ok(state.inodes))
    }

    /// Moves the log into the catalog file, so that the log does not grow; durable when it returns.
    pub fn checkpoint(&self) -> Result<()> {
        self.write(State::checkpoint)
    }

    /// Another catalog takes this one's place: closing it leaves its log as it is.
    pub fn leave_log(&self) {
        open::keep_log_on_close(&self.lock().conn);
    }

    /// Checks every page and every row's form; the findings, empty if none.
    pub fn verify(&self) -> Result<Vec<String>> {
        let mut state = self.lock();
        state.bring_up_to_date()?;
        let file_is_all = if self.read_only {
            wal::is_left(&*self.storage, &self.name).is_ok_and(|left| !left)
        } else {
            !state.dirty && state.writable().is_ok() && state.checkpoint().is_ok()
        };
        verify::findings(&state, file_is_all)
    }

    /// Writes a consistent copy of the last commit, pending changes committed first, to the file `name` of `target`
    /// (which must not exist) under `key`, durable when it returns. What backup and rekey use.
    pub fn copy_to(
        &self,
        target: &Arc<dyn Storage>,
        name: &str,
        key: &seal::CatalogKey,
    ) -> Result<()> {
        copy::copy(self, target, name, key)
    }
}
