//! The catalog's calls: what each locks, and which part of the state does the work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use segments::SealedUnits;
use storage::Storage;

use super::{SqlCatalog, State, copy, open, schema, verify, wal};
use crate::{
    Births, CHUNK_BLOCKS, CachedReply, Catalog, Change, Chunk, ClientKey, DirEntry, Inode, InodeNo,
    KeptChunk, KeptRow, Result, SegmentAccount, SegmentNo, SnapshotRow, SpaceRow, Taken, Timestamp,
};

impl Catalog for SqlCatalog {
    fn inode(&self, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.inode(no))
    }

    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| state.lookup(parent, name))
    }

    fn entries(&self, parent: InodeNo, after: u64, limit: usize) -> Result<Vec<DirEntry>> {
        self.read(|state| state.entries(parent, after, limit))
    }

    fn entries_plus(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| state.entries_plus(parent, after, limit))
    }

    fn next_cookie(&self) -> u64 {
        self.lock().next_cookie
    }

    fn is_empty(&self, parent: InodeNo) -> Result<bool> {
        self.read(|state| state.is_empty(parent))
    }

    fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.xattr(inode, name))
    }

    fn xattr_names(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| state.xattr_names(inode))
    }

    fn chunk(&self, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.chunk(inode, index))
    }

    fn chunks_from(&self, inode: InodeNo, first: u64, limit: usize) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| state.chunks_from(inode, first, limit))
    }

    fn last_chunks(&self, inode: InodeNo, first: u64, limit: usize) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| state.last_chunks(inode, first, limit))
    }

    fn shared_references(&self, segment: SegmentNo, position: u32) -> Result<u64> {
        self.read(|state| state.shared_references(segment, position))
    }

    fn segments(&self) -> Result<Vec<SegmentAccount>> {
        self.read_tables(State::segments)
    }

    fn orphans(&self) -> Result<Vec<InodeNo>> {
        self.read(State::orphans)
    }

    fn all_chunks(
        &self,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64, Chunk)>> {
        self.read_tables(|state| state.all_chunks(after, limit))
    }

    fn all_inodes(&self, after: InodeNo, limit: usize) -> Result<Vec<Inode>> {
        self.read(|state| state.all_inodes(after, limit))
    }

    fn all_entries(&self, after: (InodeNo, u64), limit: usize) -> Result<Vec<(InodeNo, DirEntry)>> {
        self.read(|state| state.all_entries(after, limit))
    }

    fn all_shared(&self) -> Result<Vec<(SegmentNo, u32, u64)>> {
        self.read(State::all_shared)
    }

    fn replies(&self, client: ClientKey) -> Result<Vec<CachedReply>> {
        self.read(|state| state.replies(client))
    }

    fn reply_clients(&self) -> Result<Vec<ClientKey>> {
        self.read(State::reply_clients)
    }

    fn snapshots(&self) -> Arc<Vec<SnapshotRow>> {
        self.snapshots.get()
    }

    fn new_snapshot(&self, name: &str, created: Timestamp, automatic: bool) -> SnapshotRow {
        let state = self.lock();
        state.new_snapshot(
            name,
            created,
            automatic,
            InodeNo(self.next_inode.load(Ordering::Relaxed)),
        )
    }

    fn past_inode(&self, at: u64, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.past_inode(at, no))
    }

    fn past_lookup(&self, at: u64, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| state.past_lookup(at, parent, name))
    }

    fn past_entries(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        self.read(|state| state.past_entries(at, parent, after, limit))
    }

    fn past_entries_plus(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| state.past_entries_plus(at, parent, after, limit))
    }

    fn past_entry(&self, at: u64, parent: InodeNo, cookie: u64) -> Result<Option<DirEntry>> {
        self.read(|state| state.past_entry(at, parent, cookie))
    }

    fn past_numbers(&self, at: u64, from: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| state.past_numbers(at, from, limit))
    }

    fn past_xattr(&self, at: u64, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.past_xattr(at, inode, name))
    }

    fn past_xattr_names(&self, at: u64, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| state.past_xattr_names(at, inode))
    }

    fn past_chunk(&self, at: u64, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.past_chunk(at, inode, index))
    }

    fn past_chunks_from(
        &self,
        at: u64,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read_tables(|state| state.past_chunks_from(at, inode, first, limit))
    }

    fn kept_chunk(&self, inode: InodeNo, index: u64, until: u64) -> Result<KeptChunk> {
        self.read(|state| state.kept_chunk(inode, index, until))
    }

    fn kept_chunks(&self, inode: InodeNo, index: u64) -> Result<Vec<(u64, KeptChunk)>> {
        self.read(|state| state.kept_chunks(inode, index, 0))
    }

    fn births(&self, inode: InodeNo, index: u64, until: u64) -> Result<Births> {
        let all: Vec<u16> = (0..CHUNK_BLOCKS as u16).collect();
        self.births_of(inode, index, until, &all)
    }

    fn births_of(&self, inode: InodeNo, index: u64, until: u64, blocks: &[u16]) -> Result<Births> {
        self.read(|state| state.births(inode, index, until, blocks))
    }

    fn all_kept_chunks(
        &self,
        after: Option<(InodeNo, u64, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read_tables(|state| state.all_kept_chunks(after, limit))
    }

    fn kept_until(
        &self,
        until: u64,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read_tables(|state| state.kept_until(until, after, limit))
    }

    fn inodes_until(&self, until: u64, after: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| state.inodes_until(until, after, limit))
    }

    fn entries_until(
        &self,
        until: u64,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64)>> {
        self.read(|state| state.entries_until(until, after, limit))
    }

    fn xattrs_until(
        &self,
        until: u64,
        after: &(InodeNo, Vec<u8>),
        limit: usize,
    ) -> Result<Vec<(InodeNo, Vec<u8>)>> {
        self.read(|state| state.xattrs_until(until, after, limit))
    }

    fn snapshot_space_rows(&self) -> Result<Vec<SpaceRow>> {
        self.read(|state| state.snapshot_space_rows())
    }

    fn skip_inodes(&self, next: InodeNo) {
        self.next_inode.fetch_max(next.0, Ordering::Relaxed);
    }

    fn new_inode(&self) -> InodeNo {
        InodeNo(self.next_inode.fetch_add(1, Ordering::Relaxed))
    }

    fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        self.write(|state| state.apply(changes))
    }

    fn is_dirty(&self) -> bool {
        self.lock().dirty
    }

    fn write_ahead(&self) -> Result<u64> {
        self.write(State::write_ahead)
    }

    fn commit(&self) -> Result<u64> {
        if self.read_only {
            return Ok(self.generation());
        }
        self.commit_now()
    }

    fn sync(&self, units: Vec<SealedUnits>, taken: Taken<'_>) -> Result<Option<u64>> {
        self.append_record(units, taken)
    }

    fn take_replayed(&self) -> Vec<SealedUnits> {
        std::mem::take(&mut self.replayed.lock())
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.meta(key))
    }

    fn set_meta(&self, key: &str, value: &[u8]) -> Result<()> {
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

    fn has_flags(&self) -> bool {
        self.lock().has_flags
    }

    fn inode_count(&self) -> Result<u64> {
        self.read(|state| Ok(state.inodes))
    }

    fn checkpoint(&self) -> Result<()> {
        self.write(State::checkpoint)
    }

    fn leave_log(&self) {
        open::keep_log_on_close(&self.lock().conn);
    }

    fn verify(&self) -> Result<Vec<String>> {
        let mut state = self.lock();
        state.bring_up_to_date()?;
        let file_is_all = if self.read_only {
            wal::is_left(&*self.storage, &self.name).is_ok_and(|left| !left)
        } else {
            !state.dirty && state.writable().is_ok() && state.checkpoint().is_ok()
        };
        verify::findings(&state, file_is_all)
    }

    fn copy_to(&self, target: &Arc<dyn Storage>, name: &str, key: &seal::CatalogKey) -> Result<()> {
        copy::copy(self, target, name, key)
    }
}
