//! Sealed blocks in segments, and the accounts of what is alive in each.
//!
//! What is appended is live at once. A block that nothing refers to any more is discarded here; the next commit frees it.
//!
//! It deliberately does not know files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use catalog::{BlockRange, CatalogError, Change, Released};
use parking_lot::{Mutex, MutexGuard};
use segments::{DirStore, Sealed, UNIT_BLOCKS};

use crate::accounts::{Accounts, Scope, Settlement};
use crate::current::CurrentCatalog;
use crate::environment::Environment;
use crate::layout::LAST_SEGMENT;
use crate::moves::Moves;
use crate::{Error, Result};

/// Bytes of one block.
pub(crate) const BLOCK: u64 = segments::BLOCK_LEN as u64;

/// Appended bytes after which the segments are flushed in the background, without a commit.
const FLUSH_EARLY: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Blocks {
    env: Arc<Environment>,
    catalog: Arc<CurrentCatalog>,
    segments: Arc<DirStore>,
    accounts: Mutex<Accounts>,
    /// Held while the count of a shared unit is read and acted on; where compaction took shared units.
    shares: Mutex<Moves>,
    /// Shared units whose discarding found no space: they keep their counts until the next record or commit.
    undiscarded: Mutex<Vec<BlockRange>>,
    /// Bytes appended since the last commit.
    pending_bytes: AtomicU64,
    /// Bytes appended since the last flush that was not part of a commit.
    unflushed_bytes: AtomicU64,
    /// The highest segment number as the catalog has it.
    noted_segment: AtomicU64,
    /// Whether the catalog may have maps of data that is not durable.
    unflushed_maps: AtomicBool,
}

impl Blocks {
    pub(crate) fn new(
        env: Arc<Environment>,
        catalog: Arc<CurrentCatalog>,
        segments: Arc<DirStore>,
        accounts: Accounts,
    ) -> Self {
        Self {
            env,
            catalog,
            segments,
            accounts: Mutex::new(accounts),
            shares: Mutex::default(),
            undiscarded: Mutex::default(),
            pending_bytes: AtomicU64::new(0),
            unflushed_bytes: AtomicU64::new(0),
            noted_segment: AtomicU64::new(0),
            unflushed_maps: AtomicBool::new(false),
        }
    }

    pub(crate) fn segments(&self) -> &DirStore {
        &self.segments
    }

    pub(crate) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock()
    }

    /// Where compaction took shared units. While it is held, no count of a shared unit changes. Taken before the accounts.
    pub(crate) fn shares(&self) -> MutexGuard<'_, Moves> {
        self.shares.lock()
    }

    /// Bytes appended since the last commit.
    pub(crate) fn pending(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// The same, counted from zero again.
    pub(crate) fn take_pending(&self) -> u64 {
        self.pending_bytes.swap(0, Ordering::Relaxed)
    }

    /// Makes everything appended so far durable, ahead of a commit.
    pub(crate) fn flush_early(&self) -> Result<()> {
        self.unflushed_bytes.store(0, Ordering::Relaxed);
        Ok(self.segments.flush()?)
    }

    /// Whether a record must make data durable, because the catalog may have maps of some that is not.
    pub(crate) fn has_unflushed_maps(&self) -> bool {
        self.unflushed_maps.load(Ordering::SeqCst)
    }

    /// Notes that the catalog gets maps of data that may not be durable.
    pub(crate) fn note_unflushed_maps(&self) {
        self.unflushed_maps.store(true, Ordering::SeqCst);
    }

    /// Notes that all data is flushed, or will be before any record. Called while no change is under way.
    pub(crate) fn note_flush(&self) {
        self.unflushed_maps.store(false, Ordering::SeqCst);
    }

    /// Seals and writes whole blocks, and takes them into the accounts.
    pub(crate) fn append(&self, plain: &[u8]) -> Result<Sealed> {
        // Of what is moved for snapshots, the catalog gets the new place at once.
        self.note_unflushed_maps();
        let sealed = self.segments.append(plain)?;
        self.enter(sealed.range());
        Ok(sealed)
    }

    /// Takes segments begun lately into the accounts.
    pub(crate) fn enter_new(&self) {
        let mut accounts = self.accounts.lock();
        for id in self.segments.take_new() {
            accounts.begin(id);
        }
    }

    /// Takes what was written into the accounts.
    pub(crate) fn enter(&self, range: BlockRange) {
        self.enter_new();
        self.accounts.lock().add(range);
        let len = u64::from(range.blocks) * BLOCK;
        self.pending_bytes.fetch_add(len, Ordering::Relaxed);
        // The disk writes while the next units are sealed: what a sync waits for is short.
        let unflushed = self.unflushed_bytes.fetch_add(len, Ordering::Relaxed);
        if unflushed < FLUSH_EARLY && unflushed + len >= FLUSH_EARLY {
            self.env.requests.ask(|wake| wake.flush = true);
        }
    }

    /// Discards units that a chunk no longer refers to. The change of the map cannot be taken back, so this does not fail for want
    /// of space.
    pub(crate) fn discard(&self, released: &[Released]) -> Result<()> {
        for r in released {
            if r.shared {
                self.discard_shared(r.range)?;
            } else {
                self.accounts.lock().release(r.range);
            }
        }
        Ok(())
    }

    fn discard_shared(&self, range: BlockRange) -> Result<()> {
        // Two files that give the same unit up at the same time must not both see the other's reference.
        let mut shares = self.shares.lock();
        let catalog = self.catalog.get();
        let mut position = range.position;
        let end = range.position + range.blocks;
        while position < end {
            let blocks = UNIT_BLOCKS.min(end - position);
            let unit = BlockRange {
                segment: range.segment,
                position,
                blocks,
            };
            if catalog.shared_references(unit.segment, position)? > 0 {
                let dropped = catalog.apply(&[Change::share_unit(unit.segment, position, -1)]);
                if let Err(CatalogError::NoSpace) = dropped {
                    self.undiscarded.lock().push(BlockRange {
                        position,
                        blocks: end - position,
                        ..range
                    });
                    return Ok(());
                }
                dropped?;
            } else {
                self.accounts.lock().release(unit);
                shares.forget(unit.segment, position);
            }
            position += blocks;
        }
        Ok(())
    }

    /// Discards what found no space before. `NoSpace`: there still is none, and what is made durable must wait.
    fn discard_left(&self) -> Result<()> {
        let left = std::mem::take(&mut *self.undiscarded.lock());
        for range in left {
            self.discard_shared(range)?;
        }
        match self.undiscarded.lock().is_empty() {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Writes what a record of the log is to say of segments.
    pub(crate) fn record(&self, scope: Scope) -> Result<()> {
        self.discard_left()?;
        self.enter_new();
        let mut accounts = self.accounts.lock();
        let unrecorded = accounts.unrecorded(scope);
        let changes: Vec<_> = unrecorded.iter().map(|a| Change::PutSegment(*a)).collect();
        self.apply(&changes)?;
        accounts.recorded(scope);
        Ok(())
    }

    /// Writes what a commit is to say of segments. Returns what may be freed when it is durable.
    pub(crate) fn settle(&self) -> Result<Settlement> {
        self.discard_left()?;
        self.enter_new();
        let in_use = self.segments.in_use();
        let mut accounts = self.accounts.lock();
        let settlement = accounts.propose(&in_use);
        let mut changes: Vec<Change<'_>> = settlement
            .changed
            .iter()
            .map(|a| Change::PutSegment(*a))
            .collect();
        changes.extend(settlement.dead.iter().map(|no| Change::DropSegment(*no)));
        self.apply(&changes)?;
        accounts.accept(&settlement);
        Ok(settlement)
    }

    fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let catalog = self.catalog.get();
        // Noted, so that it is never used again even when its segment is gone.
        let last = self.segments.last_number().0;
        if self.noted_segment.load(Ordering::SeqCst) != last {
            catalog.set_meta(LAST_SEGMENT, last.to_string().as_bytes())?;
            self.noted_segment.store(last, Ordering::SeqCst);
        }
        Ok(catalog.apply(changes)?)
    }
}
