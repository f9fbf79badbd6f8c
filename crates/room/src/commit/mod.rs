//! Making changes durable: records of the log for those who wait, commits of the catalog at intervals.
//!
//! 1. Order: sealed data durable, then the record or commit that refers to it, then, after a commit, what was replaced is
//!    released. Little data is in the record itself.
//! 2. Both see whole operations: `freeze` is held while rows are drained, and from what is drained last until the record is complete, or to
//!    the commit's end. A record takes everything that was done before it, to whatever file. Only a record of names leaves deferred
//!    inodes out: data that other machines wrote to new blocks and that nobody has asked to be durable.
//! 3. One record or commit serves everybody who asked for one before it began.
//! 4. After a failure other than lack of space the room is poisoned: no change is accepted until it is opened again.
//!
//! Locks are taken in this order, each released before an earlier one is taken again:
//! 1. `freeze`, shared by every change, exclusive for a commit: a commit sees whole operations only.
//! 2. the tree's, one at a time: every change of names.
//! 3. a cell's state, in the order of inode numbers where two are needed.
//! 4. the short ones: inode table, shares before accounts and catalog.
//!
//! Long work (check, backup, compaction, rekey) takes its own locks before all of these. Reading takes neither 1 nor 2. A reader
//! keeps the cell locked while it reads the segments, so what it looks at is not released under it.
//!
//! `change` lets operations in, `drain` hands what is pending to the catalog, `ahead` does so before a commit and `pace` says when,
//! `moment` does something between two changes, `transaction` puts commits off, `reclaim` finds what a crash kept from being freed.

mod ahead;
mod change;
mod drain;
mod moment;
mod pace;
mod reclaim;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use segments::SealedUnits;
use storage::spans;

use crate::accounts::Scope;
use crate::blocks::Blocks;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::freed::Freed;
use crate::inodes::Cell;
use crate::rollback::Memory;
use crate::{Error, Result};
use pace::Pace;
pub(crate) use reclaim::unpunched;

/// Appended bytes after which a commit is begun in the background.
const PENDING_BYTES: u64 = 256 << 20;
/// Inodes with pending changes after which a commit is begun in the background at the latest.
const PENDING_INODES: usize = 8192;
/// Changes after which a commit is begun in the background. The log holds no more: opening applies them again, which takes as
/// long as they took.
const PENDING_CHANGES: u64 = 50_000;
/// Bytes flushed ahead of a commit, while changes still go on.
const FLUSH_AHEAD: u64 = 4 << 20;
/// Blocks discarded by records of the log after which a commit frees them: 16 MiB.
const RELEASED_MAX: u64 = 4096;
/// Deferred inodes that a record of names takes with it all the same: a commit would have to wait for all of them.
const DEFERRED_MAX: usize = 512;

/// What orders changes and commits, and what is known of the last ones.
#[derive(Debug)]
pub(crate) struct Commits {
    env: Arc<Environment>,
    catalog: Arc<CurrentCatalog>,
    blocks: Arc<Blocks>,
    freed: Arc<Freed>,
    data: Arc<Data>,
    freeze: RwLock<()>,
    /// Counts changes; compared with what the last commit covered.
    changes: AtomicU64,
    /// `changes` as the last commit saw it.
    committed: AtomicU64,
    /// `changes` as the last commit or record of the log saw it.
    durable: AtomicU64,
    /// The same, where a record of names counts as well.
    names_durable: AtomicU64,
    /// Held while a commit runs, or a record is appended to the log.
    commit_lock: Mutex<()>,
    pace: Pace,
    /// Transactions begun and not completed, one in another. Changed with `commit_lock` held.
    transactions: AtomicUsize,
    /// What this machine remembers of the room.
    memory: Mutex<Memory>,
    poisoned: AtomicBool,
}

/// Within a transaction its completion makes everything durable.
fn or_defer(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::InTransaction) => Ok(()),
        other => other,
    }
}

/// Takes a lock that another thread may hold for long, in a span that says so.
fn waiting<T>(lock: impl FnOnce() -> T) -> T {
    let _span = tracing::trace_span!(target: spans::TARGET, spans::WAITING).entered();
    lock()
}

impl Commits {
    pub(crate) fn new(
        env: Arc<Environment>,
        catalog: Arc<CurrentCatalog>,
        blocks: Arc<Blocks>,
        freed: Arc<Freed>,
        data: Arc<Data>,
        memory: Memory,
    ) -> Self {
        Self {
            env,
            catalog,
            blocks,
            freed,
            data,
            freeze: RwLock::new(()),
            changes: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            names_durable: AtomicU64::new(0),
            commit_lock: Mutex::new(()),
            pace: Pace::new(),
            transactions: AtomicUsize::new(0),
            memory: Mutex::new(memory),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Counts changes; what is at or below [`durable`](Self::durable) is durable.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// The count that the last commit or record of the log covered.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Whether this machine remembers what it sees of the room.
    pub(crate) fn is_remembered(&self) -> bool {
        self.memory.lock().is_kept()
    }

    /// Writes down what is remembered, and waits for it.
    pub(crate) fn remember_now(&self) {
        self.memory.lock().write();
    }

    /// Makes everything done before the call durable, at the least cost; within a transaction, its completion does.
    pub(crate) fn sync_or_defer(&self) -> Result<()> {
        or_defer(self.sync())
    }

    /// Makes everything done before the call durable, at the least cost. `InTransaction` while one is open.
    pub(crate) fn sync(&self) -> Result<()> {
        self.unless_covered(&self.durable, Self::sync_now)
    }

    /// The same for names and attributes, and for all data but that of deferred inodes: no disk is flushed for that.
    pub(crate) fn sync_names_or_defer(&self) -> Result<()> {
        or_defer(self.unless_covered(&self.names_durable, Self::sync_names_now))
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
        if self.env.options.read_only {
            return Ok(());
        }
        self.check_poison()?;
        let mark = self.changes.load(Ordering::SeqCst);
        let _one = waiting(|| self.commit_lock.lock());
        self.check_no_transaction()?;
        if covered.load(Ordering::SeqCst) >= mark {
            return self.check_poison();
        }
        work(self)
    }

    /// With `commit_lock` held: makes everything durable by a record of the log, or by a commit where that cannot be.
    pub(crate) fn sync_now(&self) -> Result<()> {
        self.flush_ahead()?;
        let freeze = waiting(|| self.freeze.write());
        self.record(freeze, Scope::Everything)
    }

    /// With `commit_lock` held: the same without deferred inodes.
    fn sync_names_now(&self) -> Result<()> {
        if !self.env.options.network_backed {
            // The catalog may have maps of data that is not flushed.
            return self.sync_now();
        }
        let freeze = waiting(|| self.freeze.write());
        let inodes = self.data.inodes();
        let refers_to_data = |cell: &Arc<Cell>| {
            let state = cell.state.read();
            state.buffer.is_some() || !state.chunks.is_empty()
        };
        if inodes.deferred_len() >= DEFERRED_MAX
            || self.blocks.has_unflushed_maps()
            || inodes.dirty().iter().any(refers_to_data)
        {
            drop(freeze);
            return self.sync_now();
        }
        self.record(freeze, Scope::Names)
    }

    /// With `commit_lock` held: appends a record to the log, or commits.
    fn record(&self, freeze: RwLockWriteGuard<'_, ()>, scope: Scope) -> Result<()> {
        let mark = self.changes.load(Ordering::SeqCst);
        if self.is_far_behind(mark) {
            drop(freeze);
            return self.commit_for_space();
        }
        let ((), drained) = self
            .drain(scope, |blocks| blocks.record(scope))
            .map_err(|e| self.failed(e))?;
        if let Err(Error::NoSpace) = drained {
            // A commit makes space.
            drop(freeze);
            return self.commit_for_space();
        }
        drained?;
        self.append(freeze, scope, mark)
    }

    /// Whether a commit is due before so many changes are in the log.
    fn is_far_behind(&self, mark: u64) -> bool {
        mark.saturating_sub(self.committed.load(Ordering::SeqCst)) > PENDING_CHANGES
    }

    /// With `commit_lock` held, and everything drained: appends it as a record to the log, or commits. `mark` counts the changes.
    fn append(&self, freeze: RwLockWriteGuard<'_, ()>, scope: Scope, mark: u64) -> Result<()> {
        let units = match scope {
            // It refers to no data that was not flushed before.
            Scope::Names => Some(Vec::new()),
            Scope::Everything => self.take_data(),
        };
        let whole = scope == Scope::Everything || self.data.inodes().deferred_len() == 0;
        let flushes = units.is_none();
        let mut flushed = Ok(());
        // The data is all written: others go on while it becomes durable, and are served by the next record.
        let taken = || {
            if flushes {
                self.blocks.note_flush();
            }
            drop(freeze);
            if flushes {
                flushed = self.blocks.segments().flush();
            }
            flushed.is_ok()
        };
        let synced = self
            .catalog
            .get()
            .sync(units.unwrap_or_default(), Box::new(taken));
        flushed.map_err(|e| self.failed(e.into()))?;
        match synced {
            Ok(Some(generation)) => {
                self.names_durable.store(mark, Ordering::SeqCst);
                if whole {
                    self.durable.store(mark, Ordering::SeqCst);
                }
                self.remember(generation);
                if self.blocks.accounts().released_blocks() >= RELEASED_MAX {
                    self.env.requests.ask(|wake| wake.commit = true);
                }
                Ok(())
            }
            Ok(None) => {
                if !flushes {
                    // The commit flushes it; where that fails for want of space, a later record must not refer to it unflushed.
                    self.blocks.segments().put_unflushed_back();
                }
                self.commit_for_space()
            }
            Err(e) => Err(self.failed(e.into())),
        }
    }

    /// Units that the record is to carry; `None`: the segments are to be flushed instead.
    fn take_data(&self) -> Option<Vec<SealedUnits>> {
        // What network disks are given is durable there, or not at all.
        let carries = !self.env.options.network_backed;
        carries.then(|| self.blocks.segments().take_unflushed())?
    }

    /// With `commit_lock` held: commits, and where there is no space, once more when what was discarded is punched.
    fn commit_for_space(&self) -> Result<()> {
        let punched = self.freed.times_punched();
        let done = self.commit_now();
        if matches!(done, Err(Error::NoSpace)) {
            // Now somebody asks for the space.
            self.freed.punch_holes();
            self.reclaim_now()?;
            if self.freed.times_punched() != punched {
                return self.commit_now();
            }
        }
        done
    }

    /// Commits even when only access times changed, and frees what commits discarded.
    pub(crate) fn commit_all(&self) -> Result<()> {
        if self.env.options.read_only {
            return Ok(());
        }
        self.check_poison()?;
        {
            let _one = waiting(|| self.commit_lock.lock());
            self.check_no_transaction()?;
            let is_committed = self.committed.load(Ordering::SeqCst) >= self.changes()
                && self.data.inodes().pending_len() == 0
                && !self.catalog.get().is_dirty();
            if !is_committed {
                self.commit_for_space()?;
            }
        }
        self.freed.punch_holes();
        Ok(())
    }

    /// With `commit_lock` held: makes durable what is not.
    pub(crate) fn sync_now_if_dirty(&self) -> Result<()> {
        if self.durable() >= self.changes() && self.data.inodes().pending_len() == 0 {
            return Ok(());
        }
        self.sync_now()
    }

    fn commit_now(&self) -> Result<()> {
        self.commit_now_and(|drained| drained)
    }

    /// Commits everything but what waits in buffers and finds no space. `NoSpace`: not even that, and nothing is committed.
    pub(crate) fn commit_without_buffers(&self) -> Result<()> {
        let _one = waiting(|| self.commit_lock.lock());
        self.check_poison()?;
        self.check_no_transaction()?;
        self.commit_now_and(|_| Ok(()))
    }

    /// Commits, and does `then` before any other change is made: what it sees on disk is the state of one moment. A
    /// room opened for reading only is just held still.
    pub(crate) fn commit_and<T>(&self, then: impl FnOnce() -> Result<T>) -> Result<T> {
        let _one = waiting(|| self.commit_lock.lock());
        if self.env.options.read_only {
            let _freeze = waiting(|| self.freeze.write());
            return then();
        }
        self.check_poison()?;
        self.check_no_transaction()?;
        self.commit_now_and(|drained| drained.and_then(|()| then()))
    }

    /// Makes most of the data durable while others go on; what comes meanwhile is little.
    fn flush_ahead(&self) -> Result<()> {
        for _ in 0..3 {
            if self.blocks.take_pending() < FLUSH_AHEAD {
                break;
            }
            self.blocks
                .segments()
                .flush()
                .map_err(|e| self.failed(e.into()))?;
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
        let freeze = waiting(|| self.freeze.write());
        let mark = self.changes.load(Ordering::SeqCst);
        let (settlement, drained) = self
            .drain(Scope::Everything, Blocks::settle)
            .map_err(|e| self.failed(e))?;
        let durable = self
            .blocks
            .segments()
            .flush()
            .map_err(Error::from)
            .and_then(|()| {
                self.blocks.note_flush();
                Ok(self.catalog.get().commit()?)
            });
        let generation = match durable {
            Ok(generation) => generation,
            Err(e) => {
                self.blocks.accounts().put_back(settlement);
                return Err(self.failed(e));
            }
        };
        self.pace.restart();
        self.blocks.take_pending();
        // A buffer that found no space stays pending, and the caller gets the error.
        if drained.is_ok() {
            self.committed.store(mark, Ordering::SeqCst);
            self.durable.store(mark, Ordering::SeqCst);
            self.names_durable.store(mark, Ordering::SeqCst);
        }
        let outcome = then(drained);
        drop(freeze);
        self.freed.free(settlement);
        self.remember(generation);
        outcome
    }

    /// Remembers a durable generation outside the room. Writing that down waits for a disk, so the room's own thread does it.
    fn remember(&self, generation: u64) {
        if !self.memory.lock().note(generation) {
            return;
        }
        if self.env.options.background {
            self.env.requests.ask(|wake| wake.remember = true);
        } else {
            self.memory.lock().write();
        }
    }

    /// Writes down what is remembered, and lets commits go on meanwhile.
    pub(crate) fn write_memory(&self) {
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
}
