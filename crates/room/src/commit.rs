//! Making changes durable: records of the log for those who wait, commits of the catalog at intervals.
//!
//! 1. Order: sealed data durable, then the record or commit that refers to it, then, after a commit, what was replaced is
//!    released. Little data is in the record itself.
//! 2. Both see whole operations: `freeze` is held from the first row drained until the record is complete, or to the
//!    commit's end. A record takes everything that was done before it, to whatever file.
//! 3. One record or commit serves everybody who asked for one before it began.
//! 4. After a failure other than lack of space the room is poisoned: no change is accepted until it is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use catalog::{Change, Inode, InodeNo};
use segments::SegmentStore;
use storage::spans;

use crate::accounts::Settlement;
use crate::check::LostExtent;
use crate::cleaner::Cleaner;
use crate::core::Core;
use crate::inodes::{Cell, Liveness};
use crate::maintenance::LostRange;
use crate::open::RESERVED;
use crate::{Error, Result};

/// Appended bytes after which a commit is begun in the background.
const PENDING_BYTES: u64 = 256 << 20;
/// Inodes with pending changes after which a commit is begun in the background.
const PENDING_INODES: usize = 8192;
/// Changes after which a commit is begun in the background. The log holds no more: opening applies them again, which takes as
/// long as they took.
const PENDING_CHANGES: u64 = 50_000;
/// Bytes flushed ahead of a commit, while changes still go on.
const FLUSH_AHEAD: u64 = 4 << 20;
/// Discarded blocks after which their holes are punched without a request: 1 MiB.
const HOLES_GATHERED: u32 = 256;
/// Blocks discarded by records of the log after which a commit frees them: 16 MiB.
const RELEASED_MAX: u64 = 4096;
/// Inodes whose rows are handed to the catalog at once.
const GROUP: usize = 64;

/// Within a transaction its completion makes everything durable.
fn or_defer(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::InTransaction) => Ok(()),
        other => other,
    }
}

impl Core {
    /// Makes everything done before the call durable, at the least cost; within a transaction, its completion does.
    pub(crate) fn sync_or_defer(&self) -> Result<()> {
        or_defer(self.sync())
    }

    /// Makes everything done before the call durable, at the least cost. `InTransaction` while one is open.
    pub(crate) fn sync(&self) -> Result<()> {
        self.unless_covered(&self.durable, Self::sync_now)
    }

    /// Commits; within a transaction, its completion does.
    pub(crate) fn commit_or_defer(&self) -> Result<()> {
        or_defer(self.commit())
    }

    /// Makes everything done before the call durable in the catalog, and frees what that discards. `InTransaction`
    /// while one is open.
    pub(crate) fn commit(&self) -> Result<()> {
        self.unless_covered(&self.committed, Self::commit_for_space)
    }

    /// Does `work` with `commit_lock` held, unless `covered` already counts every change made before the call.
    fn unless_covered(
        &self,
        covered: &AtomicU64,
        work: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.check_poison()?;
        let mark = self.changes.load(Ordering::SeqCst);
        let _one = self.waiting(|| self.commit_lock.lock());
        self.check_no_transaction()?;
        if covered.load(Ordering::SeqCst) >= mark {
            return self.check_poison();
        }
        work(self)
    }

    /// With `commit_lock` held: makes everything durable by a record of the log, or by a commit where that cannot be.
    pub(crate) fn sync_now(&self) -> Result<()> {
        self.flush_ahead()?;
        let freeze = self.waiting(|| self.freeze.write());
        let mark = self.changes.load(Ordering::SeqCst);
        if mark.saturating_sub(self.committed.load(Ordering::SeqCst)) > PENDING_CHANGES {
            drop(freeze);
            return self.commit_for_space();
        }
        let ((), drained) = self
            .drain(Self::record_accounts)
            .map_err(|e| self.failed(e))?;
        if let Err(Error::NoSpace) = drained {
            // A commit makes space.
            drop(freeze);
            return self.commit_for_space();
        }
        drained?;
        // What network disks are given is durable there, or not at all.
        let carried = (!self.options.network_backed).then(|| self.segments.take_unflushed());
        let units = match carried.flatten() {
            Some(units) => units,
            None => {
                self.segments.flush().map_err(|e| self.failed(e.into()))?;
                Vec::new()
            }
        };
        let taken = Box::new(move || drop(freeze));
        match self.catalog().sync(units, taken) {
            Ok(Some(generation)) => {
                self.durable.store(mark, Ordering::SeqCst);
                self.remember(generation);
                if self.accounts.lock().released_blocks() >= RELEASED_MAX {
                    self.ask(|wake| wake.commit = true);
                }
                Ok(())
            }
            Ok(None) => self.commit_for_space(),
            Err(e) => Err(self.failed(e.into())),
        }
    }

    /// With `commit_lock` held: commits, and where there is no space, once more when what was discarded is punched.
    fn commit_for_space(&self) -> Result<()> {
        let punched = self.punched.load(Ordering::SeqCst);
        let done = self.commit_now();
        if matches!(done, Err(Error::NoSpace)) {
            // Now somebody asks for the space.
            self.punch_holes();
            self.reclaim_now()?;
            if self.punched.load(Ordering::SeqCst) != punched {
                return self.commit_now();
            }
        }
        done
    }

    /// Commits even when only access times changed, and frees what commits discarded.
    pub(crate) fn commit_all(&self) -> Result<()> {
        self.commit_if_dirty()?;
        self.punch_holes();
        Ok(())
    }

    fn commit_if_dirty(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.check_poison()?;
        let _one = self.waiting(|| self.commit_lock.lock());
        self.check_no_transaction()?;
        self.commit_now_if_dirty()
    }

    /// With `commit_lock` held: makes durable what is not.
    pub(crate) fn sync_now_if_dirty(&self) -> Result<()> {
        if self.durable.load(Ordering::SeqCst) >= self.changes.load(Ordering::SeqCst)
            && self.inodes.dirty_len() == 0
        {
            return Ok(());
        }
        self.sync_now()
    }

    /// With `commit_lock` held: commits if anything changed.
    pub(crate) fn commit_now_if_dirty(&self) -> Result<()> {
        if self.committed.load(Ordering::SeqCst) >= self.changes.load(Ordering::SeqCst)
            && self.inodes.dirty_len() == 0
            && !self.catalog().is_dirty()
        {
            return Ok(());
        }
        self.commit_now()
    }

    /// Takes a lock that another thread may hold for long, in a span that says so.
    pub(crate) fn waiting<T>(&self, lock: impl FnOnce() -> T) -> T {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::WAITING).entered();
        lock()
    }

    fn commit_now(&self) -> Result<()> {
        self.commit_now_and(|drained| drained)
    }

    /// Commits, and does `then` before any other change is made: what it sees on disk is the state of one moment. A
    /// room opened for reading only is just held still.
    pub(crate) fn commit_and<T>(&self, then: impl FnOnce() -> Result<T>) -> Result<T> {
        let _one = self.waiting(|| self.commit_lock.lock());
        if self.options.read_only {
            let _freeze = self.waiting(|| self.freeze.write());
            return then();
        }
        self.check_poison()?;
        self.check_no_transaction()?;
        self.commit_now_and(|drained| drained.and_then(|()| then()))
    }

    /// Makes most of the data durable while others go on; what comes meanwhile is little.
    fn flush_ahead(&self) -> Result<()> {
        for _ in 0..3 {
            if self.pending_bytes.swap(0, Ordering::Relaxed) < FLUSH_AHEAD {
                break;
            }
            self.segments.flush().map_err(|e| self.failed(e.into()))?;
        }
        Ok(())
    }

    /// With `commit_lock` held: commits, and does `then` before any other change is made. Its argument says whether a buffer
    /// found no space; everything else is committed.
    pub(crate) fn commit_now_and<T>(
        &self,
        then: impl FnOnce(Result<()>) -> Result<T>,
    ) -> Result<T> {
        self.flush_ahead()?;
        let freeze = self.waiting(|| self.freeze.write());
        let mark = self.changes.load(Ordering::SeqCst);
        let (settlement, drained) = self
            .drain(Self::drain_accounts)
            .map_err(|e| self.failed(e))?;
        let durable = self
            .segments
            .flush()
            .map_err(Error::from)
            .and_then(|()| Ok(self.catalog().commit()?));
        let generation = match durable {
            Ok(generation) => generation,
            Err(e) => {
                self.accounts.lock().put_back(settlement);
                return Err(self.failed(e));
            }
        };
        self.pending_bytes.store(0, Ordering::Relaxed);
        // A buffer that found no space stays pending, and the caller gets the error.
        if drained.is_ok() {
            self.committed.store(mark, Ordering::SeqCst);
            self.durable.store(mark, Ordering::SeqCst);
        }
        let outcome = then(drained);
        drop(freeze);
        self.free_settled(settlement);
        self.remember(generation);
        outcome
    }

    /// Remembers a durable generation outside the room. Writing that down waits for a disk, so the room's own thread does it.
    fn remember(&self, generation: u64) {
        if !self.memory.lock().note(generation) {
            return;
        }
        if self.options.background {
            self.ask(|wake| wake.remember = true);
        } else {
            self.memory.lock().write();
        }
    }

    /// Writes down what is remembered, and lets commits go on meanwhile.
    fn write_memory(&self) {
        let unwritten = self.memory.lock().unwritten();
        if let Some(unwritten) = unwritten {
            let written = unwritten.write();
            self.memory.lock().written(written);
        }
    }

    /// Notes a failure after which disk and memory may differ.
    pub(crate) fn failed(&self, error: Error) -> Error {
        if !matches!(error, Error::NoSpace) {
            tracing::error!("commit failed, the room takes no more changes: {error}");
            self.poison();
        }
        error
    }

    /// Writes every pending change to the catalog, what `accounts` has to say of space last. The inner result says whether a
    /// buffer found no space.
    pub(crate) fn drain<T>(
        &self,
        accounts: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<(T, Result<()>)> {
        let dirty = self.inodes.take_dirty();
        let drained = self
            .drain_cells(&dirty)
            .and_then(|outcome| Ok((accounts(self)?, outcome)));
        if drained.is_err() {
            self.keep_dirty(&dirty);
        }
        drained
    }

    /// What the catalog did not take is still to be written.
    fn keep_dirty(&self, dirty: &[Arc<Cell>]) {
        for cell in dirty {
            let _state = cell.state.write();
            self.inodes.mark_dirty(cell);
        }
    }

    fn drain_cells(&self, dirty: &[Arc<Cell>]) -> Result<Result<()>> {
        let catalog = self.catalog();
        let mut outcome = Ok(());
        for group in dirty.chunks(GROUP) {
            // The cells stay locked until the catalog has their rows: a reader must find one or the other.
            let mut states: Vec<_> = group.iter().map(|cell| cell.state.write()).collect();
            for (cell, state) in group.iter().zip(&mut states) {
                match self.flush_buffer(cell, state) {
                    Err(Error::NoSpace) => {
                        self.inodes.mark_dirty(cell);
                        outcome = Err(Error::NoSpace);
                    }
                    other => other?,
                }
            }
            // A file whose buffer found no space is written as it was without: never longer than its data.
            let rows: Vec<Option<Inode>> = states
                .iter()
                .map(|state| {
                    let (size, mtime) = state.buffer.as_ref()?.before;
                    let inode = state.inode.clone();
                    Some(Inode {
                        size,
                        mtime,
                        ..inode
                    })
                })
                .collect();
            let mut changes = Vec::new();
            for ((cell, state), row) in group.iter().zip(&states).zip(&rows) {
                if state.is_deleted() {
                    continue;
                }
                // Also without space for its buffer: what the maps no longer refer to is freed after this commit.
                changes.extend(state.chunks.iter().map(|(index, chunk)| Change::PutChunk {
                    inode: cell.no,
                    index: *index,
                    chunk,
                }));
                if state.row_dirty {
                    changes.push(Change::PutInode(row.as_ref().unwrap_or(&state.inode)));
                }
            }
            catalog.apply(&changes)?;
            drop(changes);
            for (cell, state) in group.iter().zip(&mut states) {
                if !state.is_deleted() {
                    state.row_dirty = state.buffer.is_some();
                    for (index, chunk) in std::mem::take(&mut state.chunks) {
                        self.inodes.keep_chunk(cell.no, index, chunk);
                    }
                }
            }
        }
        Ok(outcome)
    }

    /// Writes what a record is to say of segments and space.
    fn record_accounts(&self) -> Result<()> {
        self.enter_new();
        let mut accounts = self.accounts.lock();
        let unrecorded = accounts.unrecorded();
        let changes: Vec<_> = unrecorded.iter().map(|a| Change::PutSegment(*a)).collect();
        self.apply_accounts(&changes)?;
        accounts.recorded();
        Ok(())
    }

    /// Writes changes of segments to the catalog, with the totals that go with them.
    fn apply_accounts(&self, changes: &[Change<'_>]) -> Result<()> {
        let catalog = self.catalog();
        if !changes.is_empty() {
            self.note_last_segment()?;
            catalog.apply(changes)?;
        }
        if let Some(blocks) = self.space.unstored() {
            catalog.set_meta(RESERVED, blocks.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn drain_accounts(&self) -> Result<Settlement> {
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
        self.apply_accounts(&changes)?;
        accounts.accept(&settlement);
        Ok(settlement)
    }

    /// Gives the space of what is dead for good back. Failures cost space, not data.
    pub(crate) fn free_settled(&self, settlement: Settlement) {
        let settlement = self.pins.lock().hold_back(settlement);
        for no in &settlement.dead {
            if let Err(e) = self.segments.remove(*no) {
                tracing::warn!("segment {} is dead but could not be deleted: {e}", no.0);
            }
            self.unpunched.lock().remove(no);
        }
        if settlement.released.is_empty() {
            return;
        }
        let mut holes = self.holes.lock();
        holes.extend(settlement.released);
        let blocks: u32 = holes.iter().map(|range| range.blocks).sum();
        drop(holes);
        if blocks >= HOLES_GATHERED {
            if self.options.background {
                self.ask(|wake| wake.punch = true);
            } else {
                self.punch_holes();
            }
        }
    }

    /// Punches what commits discarded. They gather it for this: a hole costs milliseconds beside a journal that is being
    /// committed, and a caller that waits for a commit need not wait for space that is not needed yet. Holes that a crash
    /// prevents are reclaimed (`reclaim`). Returns when all are punched, including those of another thread.
    pub(crate) fn punch_holes(&self) {
        let _one = self.punching.lock();
        let released = std::mem::take(&mut *self.holes.lock());
        let released = self.grants.lock().hold_back(released);
        if self.punch_dead(released) {
            self.punched.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Asks for a commit where much is pending, and holds a writer up where more is than memory should hold.
    pub(crate) fn throttle(&self) -> Result<()> {
        let behind = self
            .changes
            .load(Ordering::Relaxed)
            .saturating_sub(self.committed.load(Ordering::Relaxed))
            / PENDING_CHANGES;
        let inodes = self.inodes.dirty_len() / PENDING_INODES;
        let bytes = self.pending_bytes.load(Ordering::Relaxed) / PENDING_BYTES;
        if self.in_transaction() {
            return if inodes > 0 { self.spill() } else { Ok(()) };
        }
        if behind >= 4 || inodes >= 4 {
            return self.commit_or_defer();
        }
        if behind + inodes as u64 + bytes > 0 {
            self.ask(|wake| wake.commit = true);
        }
        Ok(())
    }

    /// Sends the maintenance thread a request.
    pub(crate) fn ask(&self, what: impl FnOnce(&mut crate::core::Wake)) {
        what(&mut self.wake.0.lock());
        self.wake.1.notify_one();
    }

    /// The maintenance thread: deletes what lost its last name, commits at the interval, keeps the log short.
    pub(crate) fn maintain(self: Arc<Self>) {
        let interval = match self.options.commit_interval_ms {
            0 => Duration::from_secs(3600),
            ms => Duration::from_millis(ms),
        };
        let mut due = Instant::now() + interval;
        let mut cleaner = Cleaner::new();
        loop {
            let (stop, commit, reap, flush, punch, clean, remember, damaged) = {
                let mut wake = self.wake.0.lock();
                let asked = wake.commit
                    || wake.reap
                    || wake.flush
                    || wake.punch
                    || wake.clean
                    || wake.remember;
                if !wake.stop && !asked && wake.damaged.is_empty() {
                    self.wake.1.wait_until(&mut wake, due.min(cleaner.due()));
                }
                let damaged = std::mem::take(&mut wake.damaged);
                (
                    wake.stop,
                    std::mem::take(&mut wake.commit),
                    std::mem::take(&mut wake.reap),
                    std::mem::take(&mut wake.flush),
                    std::mem::take(&mut wake.punch),
                    std::mem::take(&mut wake.clean),
                    std::mem::take(&mut wake.remember),
                    damaged,
                )
            };
            self.log_damage(damaged);
            if stop {
                return;
            }
            if remember {
                self.write_memory();
            }
            if self.check_poison().is_err() {
                due = Instant::now() + Duration::from_secs(3600);
                cleaner.pause();
                continue;
            }
            if flush {
                self.unflushed_bytes.store(0, Ordering::Relaxed);
                if let Err(e) = self.segments.flush() {
                    self.failed(e.into());
                }
            }
            if reap && let Err(e) = self.reap_all() {
                tracing::error!("deleting unlinked files: {e}");
            }
            if commit || Instant::now() >= due {
                due = Instant::now() + interval;
                if let Err(e) = self.commit_or_defer() {
                    tracing::error!("commit: {e}");
                }
                if let Err(e) = self.catalog().checkpoint() {
                    tracing::warn!("checkpoint: {e}");
                }
                self.punch_holes();
            } else if punch {
                self.punch_holes();
            }
            if clean {
                cleaner.hurry();
            }
            cleaner.step(&self);
        }
    }
}

impl Core {
    /// Logs the files of ranges that failed authentication. A file's name is searched in the whole tree: not while a
    /// caller waits for an answer.
    fn log_damage(&self, damaged: Vec<LostExtent>) {
        match self.named(damaged) {
            Ok(ranges) => {
                for LostRange {
                    path,
                    inode,
                    offset,
                    len,
                } in ranges
                {
                    let end = offset + len;
                    tracing::error!(
                        "{path} (inode {inode}): bytes {offset} to {end} are damaged, replaced or missing"
                    );
                }
            }
            Err(e) => tracing::error!("damaged files could not be named: {e}"),
        }
    }

    /// Deletes every inode that lost its last name and its last holder.
    pub(crate) fn reap_all(&self) -> Result<()> {
        let _one = self.reap_lock.lock();
        let mut outcome = Ok(());
        loop {
            let Some(no) = self.reaping.lock().pop() else {
                return outcome;
            };
            match self.reap(no) {
                Ok(()) => {}
                Err(Error::Poisoned) => return Err(Error::Poisoned),
                // One that resists keeps its space until the next opening; the others go.
                Err(e) => {
                    tracing::error!("inode {} could not be deleted: {e}", no.0);
                    outcome = Err(e);
                }
            }
        }
    }

    /// Deletes one such inode, a bounded part of it at a time: a commit may come between two parts, and what a crash
    /// leaves is found by its missing name when the room is opened.
    fn reap(&self, no: InodeNo) -> Result<()> {
        // One cell throughout, which a thread that uses it keeps in memory, and with it the inode's liveness.
        let cell: Arc<Cell> = match self.cell(no) {
            Err(Error::NotFound) => return Ok(()),
            other => other?,
        };
        loop {
            let _change = self.change()?;
            let mut state = cell.state.write();
            if state.is_deleted() || state.inode.nlink > 0 {
                return Ok(());
            }
            if state.liveness == Liveness::Live {
                // Somebody may have found it by its last name and hold it only since that is gone. From here on nobody does:
                // who holds it later sees, by its attributes, that it is doomed.
                let mut holds = self.holds.lock();
                if holds.counts.contains_key(&no) {
                    holds.unlinked.insert(no);
                    return Ok(());
                }
                state.liveness = Liveness::Doomed;
            }
            state.buffer = None;
            if self.cut_some_chunks(&cell, &mut state, 0, true)? {
                continue;
            }
            state.liveness = Liveness::Deleted;
            drop(state);
            self.inodes.forget(no);
            return Ok(());
        }
    }
}
