//! Inodes in memory: the ones in use, and the pending changes of each.
//!
//! 1. A cell that differs from the catalog is pending, which keeps it in memory until a commit has drained it.
//! 2. At most [`CELLS_MAX`] clean cells are kept; one in use by a thread is never dropped.
//! 3. There is at most one cell for an inode, so its lock orders everything done to the file.
//! 4. A cell that differs only by extents that other machines wrote to new blocks is *deferred*: a record of names leaves it out.
//!
//! It deliberately does not know POSIX rules or how data is stored.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use catalog::{BlockRange, Catalog, Chunk, DirEntry, Inode, InodeNo, KeptChunk, Timestamp};
use lru::LruCache;
use parking_lot::{Mutex, RwLock};

use crate::history::Held;
use crate::{Error, Result};

/// Clean inodes kept in memory.
const CELLS_MAX: usize = 16384;
/// Clean chunk maps kept in memory: with 4 KiB extents throughout about 40 MiB, usually 3.
const CHUNKS_MAX: usize = 2048;

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) no: InodeNo,
    pub(crate) state: RwLock<State>,
    /// Whether it is among the dirty ones. It changes with [`Pending`] locked, and becomes true only with `state` locked for writing. With
    /// that lock, true means that the next drain takes the cell and reads its state later: it need not be marked again.
    is_dirty: AtomicBool,
}

/// What is known of an inode, the catalog's row and what is pending on top of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) inode: Inode,
    /// Chunk maps that differ from the catalog.
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// What is kept of chunks for the newest snapshot, where it differs from the catalog.
    pub(crate) kept: BTreeMap<u64, KeptChunk>,
    /// Space that snapshots hold and the catalog has not counted.
    pub(crate) held: Held,
    /// Bytes written but not sealed yet.
    pub(crate) buffer: Option<WriteBuffer>,
    /// The row differs from the catalog.
    pub(crate) row_dirty: bool,
    pub(crate) liveness: Liveness,
}

/// How far an inode is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It has a name or a holder, or may still get a holder.
    Live,
    /// It has neither, and a lookup finds nothing: its data is being deleted, a part at a time.
    Doomed,
    /// The catalog has no row of it any more.
    Deleted,
}

/// A contiguous run of bytes within one chunk, waiting to be sealed together.
#[derive(Debug, Clone)]
pub(crate) struct WriteBuffer {
    /// Offset in the file.
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    /// What is stored before it in its first block, and behind it in its last one, where that was looked at.
    pub(crate) head: Vec<u8>,
    pub(crate) tail: Vec<u8>,
    /// Length and modification time of the file without it: what a commit says that finds no space for it.
    pub(crate) before: (u64, Timestamp),
}

impl WriteBuffer {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// What is stored around it may change.
    pub(crate) fn forget_surroundings(&mut self) {
        self.head.clear();
        self.tail.clear();
    }
}

impl State {
    /// Whether nobody may find it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.liveness != Liveness::Live
    }

    /// Whether the catalog has no row of it any more.
    pub(crate) fn is_deleted(&self) -> bool {
        self.liveness == Liveness::Deleted
    }

    fn clean(inode: Inode) -> Self {
        Self {
            inode,
            chunks: BTreeMap::new(),
            kept: BTreeMap::new(),
            held: Held::new(),
            buffer: None,
            row_dirty: false,
            liveness: Liveness::Live,
        }
    }
}

/// The cells that differ from the catalog, each in one of the two.
#[derive(Debug, Default)]
struct Pending {
    dirty: HashMap<InodeNo, Arc<Cell>>,
    /// With the blocks that the new extents refer to.
    deferred: HashMap<InodeNo, (Arc<Cell>, Vec<BlockRange>)>,
}

impl Pending {
    fn insert_dirty(&mut self, cell: &Arc<Cell>) {
        cell.is_dirty.store(true, Ordering::Release);
        self.dirty.entry(cell.no).or_insert_with(|| cell.clone());
    }

    /// Returns whether it was there.
    fn remove_dirty(&mut self, no: InodeNo) -> bool {
        let removed = self.dirty.remove(&no);
        if let Some(cell) = &removed {
            cell.is_dirty.store(false, Ordering::Release);
        }
        removed.is_some()
    }

    fn take_dirty(&mut self) -> Vec<Arc<Cell>> {
        let cells = self.dirty.drain().map(|(_, cell)| cell);
        cells
            .inspect(|cell| cell.is_dirty.store(false, Ordering::Release))
            .collect()
    }
}

/// All cells.
#[derive(Debug)]
pub(crate) struct InodeTable {
    cells: Mutex<LruCache<InodeNo, Arc<Cell>>>,
    /// Counts evictions, so that a row read before one is not taken for the latest after it.
    evictions: AtomicU64,
    pending: Mutex<Pending>,
    chunks: Mutex<LruCache<(InodeNo, u64), Arc<Chunk>>>,
    /// What is kept of chunks until a snapshot, which is the newest or was it.
    kept: Mutex<LruCache<(InodeNo, u64, u64), Arc<KeptChunk>>>,
}

impl InodeTable {
    pub(crate) fn new() -> Self {
        let chunks = NonZeroUsize::new(CHUNKS_MAX).unwrap_or(NonZeroUsize::MIN);
        Self {
            cells: Mutex::new(LruCache::unbounded()),
            evictions: AtomicU64::new(0),
            pending: Mutex::default(),
            chunks: Mutex::new(LruCache::new(chunks)),
            kept: Mutex::new(LruCache::new(chunks)),
        }
    }

    /// The cell of an inode, from the catalog if it is not in memory.
    pub(crate) fn get(&self, catalog: &Catalog, no: InodeNo) -> Result<Arc<Cell>> {
        loop {
            if let Some(cell) = self.cells.lock().get(&no) {
                return Ok(cell.clone());
            }
            let seen = self.evictions();
            let inode = catalog.inode(no)?.ok_or(Error::NotFound)?;
            if let Some(cell) = self.adopt(inode, seen) {
                return Ok(cell);
            }
        }
    }

    /// The count to take before a row is read and to give to [`adopt`](Self::adopt).
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::SeqCst)
    }

    /// The cell of an inode whose row was just read or written; `None` if the row may be outdated by now: read again. A cell that is there stays:
    /// another thread may have found the row of a new file, and have written to it.
    pub(crate) fn adopt(&self, inode: Inode, seen: u64) -> Option<Arc<Cell>> {
        let mut cells = self.cells.lock();
        if let Some(cell) = cells.get(&inode.no) {
            return Some(cell.clone());
        }
        if self.evictions() != seen {
            return None;
        }
        Some(self.put(&mut cells, inode))
    }

    fn put(&self, cells: &mut LruCache<InodeNo, Arc<Cell>>, inode: Inode) -> Arc<Cell> {
        let no = inode.no;
        let cell = Arc::new(Cell {
            no,
            state: RwLock::new(State::clean(inode)),
            is_dirty: AtomicBool::new(false),
        });
        cells.put(no, cell.clone());
        // A few tries suffice: a cell in use is moved to the young end, and the table may be a little longer meanwhile.
        for _ in 0..4 {
            if cells.len() <= CELLS_MAX {
                break;
            }
            let Some((old_no, old)) = cells.pop_lru() else {
                break;
            };
            if Arc::strong_count(&old) > 1 {
                cells.put(old_no, old);
            } else {
                self.evictions.fetch_add(1, Ordering::SeqCst);
            }
        }
        cell
    }

    /// The newest attributes of inodes whose rows were just read for a listing; `seen` is the count from before that. The
    /// inodes stay in memory: the reader usually asks for each file's extended attributes next.
    pub(crate) fn listed(&self, rows: Vec<(DirEntry, Inode)>, seen: u64) -> Vec<(DirEntry, Inode)> {
        let known: Vec<Option<Arc<Cell>>> = {
            let mut cells = self.cells.lock();
            // All of them first: one that is evicted below for another may be newer than its row here.
            let known: Vec<_> = rows
                .iter()
                .map(|(_, row)| cells.get(&row.no).cloned())
                .collect();
            if self.evictions() == seen {
                for ((_, row), _) in rows.iter().zip(&known).filter(|(_, cell)| cell.is_none()) {
                    self.put(&mut cells, row.clone());
                }
            }
            known
        };
        rows.into_iter()
            .zip(known)
            .map(|((entry, row), cell)| match cell {
                Some(cell) => (entry, cell.state.read().inode.clone()),
                None => (entry, row),
            })
            .collect()
    }

    /// Notes that a cell differs from the catalog. Called with its state locked for writing. Returns the blocks for which it was
    /// deferred: it is not any more.
    pub(crate) fn mark_dirty(&self, cell: &Arc<Cell>) -> Vec<BlockRange> {
        if cell.is_dirty.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut pending = self.pending.lock();
        let deferred = pending.deferred.remove(&cell.no);
        pending.insert_dirty(cell);
        deferred.map_or_else(Vec::new, |(_, blocks)| blocks)
    }

    /// Notes that cells do not differ from the catalog any more. Called with their states locked for writing, since they were taken.
    pub(crate) fn drained(&self, numbers: impl IntoIterator<Item = InodeNo>) {
        let mut pending = self.pending.lock();
        for no in numbers {
            pending.remove_dirty(no);
        }
    }

    /// Takes a cell out of the deferred ones. `None`: it differs from the catalog in another way. Called with its state locked for
    /// writing.
    pub(crate) fn take_deferred(&self, cell: &Cell) -> Option<Vec<BlockRange>> {
        let mut pending = self.pending.lock();
        if pending.dirty.contains_key(&cell.no) {
            return None;
        }
        let deferred = pending.deferred.remove(&cell.no);
        Some(deferred.map_or_else(Vec::new, |(_, blocks)| blocks))
    }

    /// Notes that a cell differs only by extents of these blocks. Called with its state locked for writing, since
    /// [`take_deferred`](Self::take_deferred).
    pub(crate) fn defer(&self, cell: &Arc<Cell>, blocks: Vec<BlockRange>) {
        let mut pending = self.pending.lock();
        pending.remove_dirty(cell.no);
        pending.deferred.insert(cell.no, (cell.clone(), blocks));
    }

    /// Forgets an inode that is gone.
    pub(crate) fn forget(&self, no: InodeNo) {
        self.pending.lock().remove_dirty(no);
        if self.cells.lock().pop(&no).is_some() {
            self.evictions.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes everything that is pending: what a commit writes to the catalog.
    pub(crate) fn take_pending(&self) -> Vec<Arc<Cell>> {
        let mut pending = self.pending.lock();
        let mut cells = pending.take_dirty();
        cells.extend(pending.deferred.drain().map(|(_, (cell, _))| cell));
        cells
    }

    /// Takes what is pending and not deferred.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Cell>> {
        self.pending.lock().take_dirty()
    }

    /// Takes those of some cells that are pending and not deferred.
    pub(crate) fn take(&self, cells: &[Arc<Cell>]) -> Vec<Arc<Cell>> {
        let mut pending = self.pending.lock();
        let mut taken = cells.to_vec();
        taken.retain(|cell| pending.remove_dirty(cell.no));
        taken
    }

    /// What is pending and not deferred, left as it is.
    pub(crate) fn dirty(&self) -> Vec<Arc<Cell>> {
        self.pending.lock().dirty.values().cloned().collect()
    }

    /// How many inodes differ from the catalog.
    pub(crate) fn pending_len(&self) -> usize {
        let pending = self.pending.lock();
        pending.dirty.len() + pending.deferred.len()
    }

    /// How many of them are deferred.
    pub(crate) fn deferred_len(&self) -> usize {
        self.pending.lock().deferred.len()
    }

    /// A clean chunk map. Called with the cell's state locked.
    pub(crate) fn clean_chunk(
        &self,
        catalog: &Catalog,
        no: InodeNo,
        index: u64,
    ) -> Result<Arc<Chunk>> {
        if let Some(chunk) = self.chunks.lock().get(&(no, index)) {
            return Ok(chunk.clone());
        }
        let chunk = Arc::new(catalog.chunk(no, index)?);
        self.chunks.lock().put((no, index), chunk.clone());
        Ok(chunk)
    }

    /// Keeps a chunk map that the catalog now has. Called with the cell's state locked for writing.
    pub(crate) fn keep_chunk(&self, no: InodeNo, index: u64, chunk: Chunk) {
        self.chunks.lock().put((no, index), Arc::new(chunk));
    }

    /// Drops a clean chunk map, because a changed one takes its place. Called with the state locked for writing.
    pub(crate) fn drop_chunk(&self, no: InodeNo, index: u64) -> Option<Arc<Chunk>> {
        self.chunks.lock().pop(&(no, index))
    }

    /// What is kept of a chunk until the newest snapshot, as the catalog has it. Called with the cell's state locked.
    pub(crate) fn clean_kept(
        &self,
        catalog: &Catalog,
        (no, index, until): (InodeNo, u64, u64),
    ) -> Result<Arc<KeptChunk>> {
        if let Some(kept) = self.kept.lock().get(&(no, index, until)) {
            return Ok(kept.clone());
        }
        let kept = Arc::new(catalog.kept_chunk(no, index, until)?);
        self.kept.lock().put((no, index, until), kept.clone());
        Ok(kept)
    }

    /// Keeps what the catalog now keeps of a chunk. Called with the cell's state locked for writing.
    pub(crate) fn keep_kept(&self, key: (InodeNo, u64, u64), kept: KeptChunk) {
        self.kept.lock().put(key, Arc::new(kept));
    }

    /// Drops what was kept of a chunk, because it changed. Called with the state locked for writing.
    pub(crate) fn drop_kept(&self, key: (InodeNo, u64, u64)) {
        self.kept.lock().pop(&key);
    }

    /// Another snapshot is the newest. No change is under way.
    pub(crate) fn forget_kept(&self) {
        self.kept.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use catalog::FileKind;

    use super::*;

    fn inode(no: u64, size: u64) -> Inode {
        let at = Timestamp { secs: 0, nanos: 0 };
        Inode {
            mode: 0o644,
            size,
            ..Inode::new(InodeNo(no), FileKind::Regular, at)
        }
    }

    fn row(no: u64, size: u64) -> (DirEntry, Inode) {
        let entry = DirEntry {
            name: no.to_string().into_bytes(),
            inode: InodeNo(no),
            kind: FileKind::Regular,
            cookie: 16 + no,
        };
        (entry, inode(no, size))
    }

    fn known(table: &InodeTable, inode: Inode) -> Arc<Cell> {
        table.adopt(inode, table.evictions()).unwrap()
    }

    fn has(table: &InodeTable, no: u64) -> bool {
        table.cells.lock().contains(&InodeNo(no))
    }

    /// What failed: the thread that created a file put its cell in the place of another thread's, which had found the file and written to it.
    #[test]
    fn what_another_thread_wrote_to_a_new_file_outlives_the_end_of_its_creation() {
        let table = InodeTable::new();
        let seen = table.evictions();
        // The row can be found from here on.
        let found = known(&table, inode(1, 0));
        found.state.write().inode.size = 5;
        let created = table.adopt(inode(1, 0), seen).unwrap();
        assert!(Arc::ptr_eq(&created, &found));
        assert_eq!(created.state.read().inode.size, 5);
    }

    #[test]
    fn a_listing_keeps_its_rows_but_not_in_place_of_a_newer_inode() {
        let table = InodeTable::new();
        known(&table, inode(1, 5));
        // Two names of one file.
        let rows = vec![row(1, 3), row(2, 7), row(2, 7)];
        let listed = table.listed(rows, table.evictions());
        let sizes: Vec<_> = listed.iter().map(|(_, inode)| inode.size).collect();
        assert_eq!(sizes, [5, 7, 7]);
        assert!(has(&table, 2));
        assert_eq!(table.cells.lock().len(), 2);
    }

    #[test]
    fn rows_from_before_an_eviction_are_listed_and_not_kept() {
        let table = InodeTable::new();
        known(&table, inode(1, 5));
        let seen = table.evictions();
        table.forget(InodeNo(1));
        let listed = table.listed(vec![row(2, 7)], seen);
        assert_eq!(listed[0].1.size, 7);
        assert!(!has(&table, 2));
    }

    #[test]
    fn a_full_table_keeps_a_whole_listing_and_what_it_knew_of_it() {
        let table = InodeTable::new();
        let listed = 1..=100;
        // The oldest of all, and so the first to be evicted.
        known(&table, inode(50, 5));
        for no in 0..CELLS_MAX as u64 - 1 {
            known(&table, inode(1000 + no, 0));
        }
        let rows = listed.clone().map(|no| row(no, 7)).collect();
        let got = table.listed(rows, table.evictions());
        assert_eq!(got[49].1.size, 5);
        assert!(listed.clone().all(|no| has(&table, no)));
        assert_eq!(table.cells.lock().len(), CELLS_MAX);
        assert_eq!(table.evictions(), 99);
    }
}
