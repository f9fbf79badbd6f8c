//! The catalog's calls: what each locks, and which part of the state does the work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use segments::SealedUnits;
use storage::Storage;

use super::{Catalog, State, copy, open, schema, verify, wal};
use crate::{
    Births, CHUNK_BLOCKS, CachedReply, Change, Chunk, ClientKey, DirEntry, Inode, InodeNo,
    KeptChunk, KeptRow, Result, SegmentAccount, SegmentNo, SnapshotRow, SpaceRow, Taken, Timestamp,
};

impl Catalog {
    /// An inode by number.
    pub fn inode(&self, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.inode(no))
    }

    /// A name in a directory, with the inode it leads to: one call.
    pub fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| state.lookup(parent, name))
    }

    /// Up to `limit` names with a cookie above `after`, in the order of cookies.
    pub fn entries(&self, parent: InodeNo, after: u64, limit: usize) -> Result<Vec<DirEntry>> {
        self.read(|state| state.entries(parent, after, limit))
    }

    /// The same with the inodes: one call.
    pub fn entries_plus(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| state.entries_plus(parent, after, limit))
    }

    /// The cookie that the next new entry gets: every entry has a lower one.
    pub fn next_cookie(&self) -> u64 {
        self.lock().next_cookie
    }

    /// Whether a directory has no names.
    pub fn is_empty(&self, parent: InodeNo) -> Result<bool> {
        self.read(|state| state.is_empty(parent))
    }

    /// An extended attribute.
    pub fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.xattr(inode, name))
    }

    /// The names of all extended attributes, sorted.
    pub fn xattr_names(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| state.xattr_names(inode))
    }

    /// The map of one chunk; an absent one is empty (a hole).
    pub fn chunk(&self, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.chunk(inode, index))
    }

    /// Up to `limit` chunks from `first` on that are not empty, in order.
    pub fn chunks_from(
        &self,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| state.chunks_from(inode, first, limit))
    }

    /// Up to `limit` of the last of them, in order too.
    pub fn last_chunks(
        &self,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| state.last_chunks(inode, first, limit))
    }

    /// References beyond the first to one unit.
    pub fn shared_references(&self, segment: SegmentNo, position: u32) -> Result<u64> {
        self.read(|state| state.shared_references(segment, position))
    }

    /// All segment accounts, by number.
    pub fn segments(&self) -> Result<Vec<SegmentAccount>> {
        self.read_tables(State::segments)
    }

    /// Inodes without a name: left by a crash or a kill while open.
    pub fn orphans(&self) -> Result<Vec<InodeNo>> {
        self.read(State::orphans)
    }

    /// Up to `limit` (inode, chunk index) keys after `after`, over the whole catalog: what cleaner and check walk.
    pub fn all_chunks(
        &self,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64, Chunk)>> {
        self.read_tables(|state| state.all_chunks(after, limit))
    }

    /// Up to `limit` inodes with a number above `after`.
    pub fn all_inodes(&self, after: InodeNo, limit: usize) -> Result<Vec<Inode>> {
        self.read(|state| state.all_inodes(after, limit))
    }

    /// Up to `limit` names after `(parent, cookie)`, over the whole catalog: what check walks.
    pub fn all_entries(
        &self,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, DirEntry)>> {
        self.read(|state| state.all_entries(after, limit))
    }

    /// All counts of shared units.
    pub fn all_shared(&self) -> Result<Vec<(SegmentNo, u32, u64)>> {
        self.read(State::all_shared)
    }

    /// The answers kept for a client, by slot.
    pub fn replies(&self, client: ClientKey) -> Result<Vec<CachedReply>> {
        self.read(|state| state.replies(client))
    }

    /// The clients for which answers are kept, in order.
    pub fn reply_clients(&self) -> Result<Vec<ClientKey>> {
        self.read(State::reply_clients)
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

    /// A name in a directory, with the inode it leads to, as snapshot `at` sees them.
    pub fn past_lookup(&self, at: u64, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| state.past_lookup(at, parent, name))
    }

    /// Up to `limit` names with a cookie above `after`, in the order of cookies, as snapshot `at` sees them.
    pub fn past_entries(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        self.read(|state| state.past_entries(at, parent, after, limit))
    }

    /// The same with the inodes.
    pub fn past_entries_plus(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| state.past_entries_plus(at, parent, after, limit))
    }

    /// The name with a cookie, as snapshot `at` sees it.
    pub fn past_entry(&self, at: u64, parent: InodeNo, cookie: u64) -> Result<Option<DirEntry>> {
        self.read(|state| state.past_entry(at, parent, cookie))
    }

    /// Up to `limit` inode numbers from `from` on that the catalog has, now or for snapshots: those with a lower number than the
    /// first that is younger than snapshot `at`. Not all of them are inodes in it.
    pub fn past_numbers(&self, at: u64, from: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| state.past_numbers(at, from, limit))
    }

    /// An extended attribute as snapshot `at` sees it.
    pub fn past_xattr(&self, at: u64, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.past_xattr(at, inode, name))
    }

    /// The names of all extended attributes, sorted, as snapshot `at` sees them.
    pub fn past_xattr_names(&self, at: u64, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| state.past_xattr_names(at, inode))
    }

    /// The map of one chunk as snapshot `at` sees it: the live one, and over it what is kept of it.
    pub fn past_chunk(&self, at: u64, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.past_chunk(at, inode, index))
    }

    /// Up to `limit` chunks from `first` on that are not empty, in order, as snapshot `at` sees them. None behind the end of the
    /// file.
    pub fn past_chunks_from(
        &self,
        at: u64,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read_tables(|state| state.past_chunks_from(at, inode, first, limit))
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

    /// Up to `limit` kept chunks after `(inode, index, until)`, over the whole catalog.
    pub fn all_kept_chunks(
        &self,
        after: Option<(InodeNo, u64, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read_tables(|state| state.all_kept_chunks(after, limit))
    }

    /// Up to `limit` chunks after `(inode, index)` that are kept for snapshot `until`.
    pub fn kept_until(
        &self,
        until: u64,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read_tables(|state| state.kept_until(until, after, limit))
    }

    /// Up to `limit` inodes after `after` that are kept for snapshot `until`.
    pub fn inodes_until(&self, until: u64, after: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| state.inodes_until(until, after, limit))
    }

    /// Up to `limit` names after `(parent, cookie)` that are kept for snapshot `until`, each as its directory and its cookie.
    pub fn entries_until(
        &self,
        until: u64,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64)>> {
        self.read(|state| state.entries_until(until, after, limit))
    }

    /// Up to `limit` extended attributes after `(inode, name)` that are kept for snapshot `until`.
    pub fn xattrs_until(
        &self,
        until: u64,
        after: &(InodeNo, Vec<u8>),
        limit: usize,
    ) -> Result<Vec<(InodeNo, Vec<u8>)>> {
        self.read(|state| state.xattrs_until(until, after, limit))
    }

    /// The account of blocks kept for snapshots, by `since` and `until`.
    pub fn snapshot_space_rows(&self) -> Result<Vec<SpaceRow>> {
        self.read(|state| state.snapshot_space_rows())
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
