//! What the client knows of files: those that are open, and those with data on its way.
//!
//! 1. A block that was written is in exactly one of `dirty` (to be committed), `flight` (being committed), `returned`
//!    (committed, lost by the server, to be committed again) and `log` (committed, not yet known to be durable), newest first;
//!    the same block may be in several with different contents. Each counts against the [`Budget`] until it leaves the log or is
//!    discarded.
//! 2. What was returned is committed before anything else, and by itself: onto the file as it is after what the server still has of this
//!    client's, and not where another client has changed it since ([decision 51](../../../docs/decisions/0051-data-committed-again.md)).
//! 3. Order of locks: `writing`, `flushing`, `state`. The network is never waited for under `state`.
//! 4. A file of which locks were lost answers `Stale` until its last close.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::{Error, Inode, InodeNo, Lock, LockKind, LockOwner, LockTable, Result, Timestamp};
use parking_lot::{Condvar, Mutex};

use super::errors::WriteBackError;
use super::names::Name;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;

/// One block's bytes.
pub(super) type Block = [u8; BLOCK as usize];
/// Blocks by their index in the file.
pub(super) type Blocks = BTreeMap<u64, Arc<Block>>;

/// Committed data that is not yet known to be durable.
#[derive(Debug)]
pub(super) struct Logged {
    /// What the server said; durable when it settled that far.
    pub(super) stamp: u64,
    /// The file is at least this long with it.
    pub(super) end: u64,
    pub(super) blocks: Blocks,
    /// What the server said of the file's modification times before and after.
    pub(super) moments: Vec<Timestamp>,
    /// Before it, changes of this client may have been made whose answers were lost.
    pub(super) unsure: bool,
}

/// Committed data that the server lost, or may have lost.
#[derive(Debug, Default)]
pub(super) struct Returned {
    pub(super) blocks: Blocks,
    /// The file is at least this long with it; 0 without such.
    end: u64,
    /// Of what it consists, oldest first.
    parts: Vec<Part>,
    /// The file's modification time, as the restarted server has it. `None`: it was not asked for yet.
    onto: Option<Timestamp>,
}

/// What was logged, without its data.
#[derive(Debug)]
struct Part {
    end: u64,
    blocks: Vec<u64>,
    moments: Vec<Timestamp>,
    unsure: bool,
}

/// Names what is known of a file's maps: no two moments of any file have the same, also when a file was forgotten in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Version(u64);

impl Default for Version {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What an owner of locks has of a file.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) ranges: Vec<Lock>,
    /// The server may have granted more, with an answer that was lost; until all of the file is unlocked.
    unsure: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// As the server reported it last.
    pub(super) inode: Option<Inode>,
    /// A lock was taken since: its last holder may have changed the file.
    inode_is_old: bool,
    /// By which it was reached last.
    pub(super) name: Option<Name>,
    /// Opens here, and those that the server counts in its session of that generation.
    pub(super) opens: u64,
    pub(super) server_opens: u64,
    pub(super) generation: u64,
    pub(super) gone: bool,
    /// The locks that programs here hold, by whose they are, and whether some were lost.
    pub(super) locks: HashMap<(LockTable, LockOwner), Held>,
    pub(super) lost_locks: bool,
    pub(super) dirty: Blocks,
    pub(super) flight: Blocks,
    /// A part from `dirty`, because a change of the whole file that the server still made in its old incarnation is newer.
    pub(super) returned: Returned,
    /// What is to be committed has data that was committed before, and that the server lost.
    pub(super) owed: bool,
    /// A change of data by this client may have been made, and its answer was lost.
    pub(super) unsure: bool,
    pub(super) log: VecDeque<Logged>,
    /// Length that what is dirty or in flight gives the file; 0 without such.
    pub(super) end: u64,
    /// When data was last written that is not committed.
    pub(super) written: Option<Timestamp>,
    pub(super) dirty_since: Option<Instant>,
    /// Data that was refused, to be reported by each close until an fsync reports it. Until the first of them (`notified`) writes
    /// are refused too.
    pub(super) lost: Option<WriteBackError>,
    pub(super) notified: bool,
    /// The newest data that was discarded while it was open here: a number that rises with each such loss of any file.
    pub(super) loss: Option<(u64, WriteBackError)>,
    /// Another one whenever maps fetched before may be old.
    pub(super) version: Version,
    /// Rises when data was committed, and with each lock: attributes asked for before may be old.
    pub(super) placings: u64,
    /// Where the last read ended.
    pub(super) read_end: u64,
}

impl State {
    /// Keeps an error that is final, for a later close or fsync to report; `false`: it may end by itself.
    pub(super) fn note_error(&mut self, e: &Error) -> bool {
        let lost = WriteBackError::of(e);
        if self.lost.is_none() {
            (self.lost, self.notified) = (lost, false);
        }
        lost.is_some()
    }

    /// Notes that data was discarded, apart from the error that the present caller gets: others may have written it.
    pub(super) fn note_loss(&mut self, lost: WriteBackError) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        self.loss = Some((LAST.fetch_add(1, Ordering::Relaxed) + 1, lost));
        (self.lost, self.notified) = (self.lost.or(Some(lost)), false);
    }

    /// Notes one more open, which the server counts in its session of this generation.
    pub(super) fn opened(&mut self, generation: u64) {
        if self.opens == 0 {
            (self.gone, self.lost_locks) = (false, false);
        }
        if self.generation != generation {
            (self.generation, self.server_opens) = (generation, 0);
        }
        self.opens += 1;
        self.server_opens += 1;
    }

    /// Refuses what must not go on.
    pub(super) fn usable(&self) -> Result<()> {
        if self.gone || self.lost_locks {
            return Err(Error::Stale);
        }
        Ok(())
    }

    pub(super) fn has_unplaced(&self) -> bool {
        self.is_dirty() || !self.flight.is_empty()
    }

    /// Notes that a lock was taken or released.
    pub(super) fn locked(&mut self, table: LockTable, owner: LockOwner, lock: Lock) {
        let held = self.locks.entry((table, owner)).or_default();
        let lock = lock.in_table(table);
        lock.apply_to(&mut held.ranges);
        held.unsure &= lock.kind != LockKind::Unlock || (lock.start, lock.end) != (0, u64::MAX);
        if held.ranges.is_empty() && !held.unsure {
            self.locks.remove(&(table, owner));
        }
    }

    /// Notes that a lock may have been taken: nobody knows.
    pub(super) fn may_be_locked(&mut self, table: LockTable, owner: LockOwner) {
        self.locks.entry((table, owner)).or_default().unsure = true;
    }

    /// Whether data is to be committed and is not in flight already.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.returned.blocks.is_empty()
    }

    /// The file's length, including uncommitted data.
    pub(super) fn size(&self) -> u64 {
        let stored = self.inode.as_ref().map_or(0, |i| i.size);
        stored.max(self.unplaced_end())
    }

    fn unplaced_end(&self) -> u64 {
        self.end.max(self.returned.end)
    }

    /// An inode as programs here are to see it.
    pub(super) fn seen(&self, mut inode: Inode) -> Inode {
        if self.has_unplaced() {
            let end = self.unplaced_end();
            if end > inode.size {
                inode.size = end;
                inode.blocks = inode.blocks.max(end.div_ceil(BLOCK));
            }
            if let Some(written) = self.written {
                inode.mtime = inode.mtime.max(written);
                inode.ctime = inode.ctime.max(written);
            }
        }
        inode
    }

    /// Somebody else may have changed the file: its attributes are asked for before anything relies on them.
    pub(super) fn outdate_all(&mut self) {
        self.outdate();
        self.inode_is_old = true;
        self.placings += 1;
    }

    /// Whether its attributes are to be asked for.
    pub(super) fn is_unknown(&self) -> bool {
        self.inode.is_none() || self.inode_is_old
    }

    /// Maps fetched before may be old.
    pub(super) fn outdate(&mut self) {
        self.version = Version::default();
    }

    /// Takes in what the server says of the file; maps of an older state are forgotten.
    pub(super) fn set_inode(&mut self, inode: &Inode) {
        let key = |i: &Inode| (i.ctime, i.mtime, i.size);
        match &self.inode {
            Some(known) if key(known) == key(inode) => {}
            _ => self.outdate(),
        }
        self.inode = Some(inode.clone());
        self.inode_is_old = false;
    }

    /// Takes in attributes that were asked for when there had been so many [`placings`](Self::placings). After others since they may be old.
    pub(super) fn learn(&mut self, inode: &Inode, placings: u64) {
        match self.placings == placings {
            true => self.set_inode(inode),
            false => self.outdate_all(),
        }
    }

    /// The uncommitted blocks of a range, newest contents.
    pub(super) fn overlay(&self, first: u64, last: u64) -> Blocks {
        let of = |blocks: &Blocks| -> Vec<(u64, Arc<Block>)> {
            let range = blocks.range(first..=last);
            range.map(|(at, block)| (*at, block.clone())).collect()
        };
        let mut blocks: Blocks = of(&self.returned.blocks).into_iter().collect();
        blocks.extend(of(&self.flight));
        blocks.extend(of(&self.dirty));
        blocks
    }

    /// Whether it is to be asked for how much of what is [`returned`](Self::returned) the server still has.
    pub(super) fn is_unjudged(&self) -> bool {
        !self.returned.blocks.is_empty() && self.returned.onto.is_none()
    }

    /// Decides what becomes of the returned data, by the file's modification time on the restarted server. What that still has is
    /// forgotten. `Err`: somebody else has changed the file since, so all of it is. The number of blocks.
    pub(super) fn judge(&mut self, found: Timestamp) -> std::result::Result<usize, usize> {
        let before = self.returned.blocks.len();
        let parts = &mut self.returned.parts;
        let unsure = self.unsure || parts.iter().any(|part| part.unsure);
        let lost_from = parts.iter().enumerate().rev().find_map(|(at, part)| {
            let mut moments = part.moments.iter().rev();
            match moments.position(|moment| *moment == found)? {
                0 => Some(at + 1),
                _ => Some(at),
            }
        });
        // What is not known may be this client's own.
        let Some(lost_from) = lost_from.or(unsure.then_some(0)) else {
            self.returned = Returned::default();
            self.committed();
            return Err(before);
        };
        parts.drain(..lost_from);
        let lost: HashSet<u64> = parts
            .iter()
            .flat_map(|part| &part.blocks)
            .copied()
            .collect();
        self.returned.end = parts.iter().map(|part| part.end).max().unwrap_or(0);
        self.returned.blocks.retain(|at, _| lost.contains(at));
        self.returned.onto = Some(found);
        self.committed();
        Ok(before - self.returned.blocks.len())
    }

    /// Moves the returned blocks to `flight`, which was empty, if there are any. The modification time of the file that they are for, and the
    /// length that it gets.
    pub(super) fn take_off_returned(&mut self) -> Option<(Timestamp, u64)> {
        let onto = self.returned.onto?;
        if self.returned.blocks.is_empty() {
            return None;
        }
        self.flight = std::mem::take(&mut self.returned.blocks);
        let stored = self.inode.as_ref().map_or(0, |i| i.size);
        Some((onto, stored.max(self.returned.end)))
    }

    /// Moves them back. Returns the number of blocks discarded because there are newer ones.
    pub(super) fn land_returned(&mut self) -> usize {
        let flight = std::mem::take(&mut self.flight);
        let before = flight.len();
        let older = flight
            .into_iter()
            .filter(|(at, _)| !self.dirty.contains_key(at));
        self.returned.blocks = older.collect();
        before - self.returned.blocks.len()
    }

    /// The file was changed since it was looked at.
    pub(super) fn judge_again(&mut self) {
        self.returned.onto = None;
    }

    /// Everything that is to be committed of what was returned, was.
    pub(super) fn returned_committed(&mut self) {
        self.returned = Returned::default();
    }

    /// Moves everything that is to be committed to `flight`, which was empty.
    pub(super) fn take_off(&mut self) {
        let returned = std::mem::take(&mut self.returned);
        self.end = self.end.max(returned.end);
        self.flight = returned.blocks;
        self.flight.append(&mut self.dirty);
        self.dirty_since = None;
    }

    /// Moves the blocks in flight back, to be committed again. Returns the number of blocks discarded because there are newer ones.
    pub(super) fn land(&mut self) -> usize {
        let mut discarded = 0;
        for (at, block) in std::mem::take(&mut self.flight) {
            match self.dirty.entry(at) {
                std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(block)),
                std::collections::btree_map::Entry::Occupied(_) => discarded += 1,
            }
        }
        if !self.dirty.is_empty() {
            self.dirty_since.get_or_insert_with(Instant::now);
        }
        discarded
    }

    /// The server lost what is logged: it is to be committed again, except what was overwritten. Returns the number of blocks discarded.
    pub(super) fn replay(&mut self) -> usize {
        let mut discarded = 0;
        self.returned.onto = None;
        let mut parts = Vec::with_capacity(self.log.len());
        // Also where all of it is dirty again: that was written over what is lost.
        self.owed |= !self.log.is_empty();
        // Newest first: what is there already is newer.
        while let Some(logged) = self.log.pop_back() {
            self.returned.end = self.returned.end.max(logged.end);
            parts.push(Part {
                end: logged.end,
                blocks: logged.blocks.keys().copied().collect(),
                moments: logged.moments,
                unsure: logged.unsure,
            });
            for (at, block) in logged.blocks {
                let layers = [&self.dirty, &self.flight, &self.returned.blocks];
                if layers.iter().any(|layer| layer.contains_key(&at)) {
                    discarded += 1;
                } else {
                    self.returned.blocks.insert(at, block);
                }
            }
        }
        self.returned.parts.extend(parts.into_iter().rev());
        if self.is_dirty() {
            self.dirty_since.get_or_insert_with(Instant::now);
        }
        discarded
    }

    /// Forgets what is durable now. Returns the number of blocks.
    pub(super) fn settle(&mut self, settled: u64) -> usize {
        let mut blocks = 0;
        while self.log.front().is_some_and(|l| l.stamp <= settled) {
            blocks += self.log.pop_front().map_or(0, |l| l.blocks.len());
        }
        blocks
    }

    /// Forgets all committed data, including what the server lost. Returns the number of blocks.
    pub(super) fn settle_all(&mut self) -> usize {
        let returned = std::mem::take(&mut self.returned).blocks.len();
        let logged: usize = self.log.drain(..).map(|l| l.blocks.len()).sum();
        self.unsure = false;
        self.committed();
        returned + logged
    }

    /// Forgets uncommitted data. Returns the number of blocks.
    pub(super) fn drop_unplaced(&mut self) -> usize {
        let returned = std::mem::take(&mut self.returned).blocks.len();
        let blocks = returned + self.dirty.len() + self.flight.len();
        self.dirty.clear();
        self.flight.clear();
        self.committed();
        blocks
    }

    /// Nothing may be left to place.
    pub(super) fn committed(&mut self) {
        if !self.has_unplaced() {
            self.end = 0;
            self.written = None;
            self.dirty_since = None;
            self.owed = false;
            self.returned = Returned::default();
        }
    }
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) no: InodeNo,
    /// Held while a program writes: a partly written block is completed from what is stored.
    pub(super) writing: Mutex<()>,
    /// Held while dirty data is committed, and during operations that depend on its order.
    pub(super) flushing: Mutex<()>,
    pub(super) state: Mutex<State>,
}

/// All files the client knows something of.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<HashMap<InodeNo, Arc<File>>>);

impl Files {
    pub(super) fn get(&self, no: InodeNo) -> Option<Arc<File>> {
        self.0.lock().get(&no).cloned()
    }

    pub(super) fn get_or_new(&self, no: InodeNo) -> Arc<File> {
        let mut files = self.0.lock();
        let new = || {
            Arc::new(File {
                no,
                writing: Mutex::default(),
                flushing: Mutex::default(),
                state: Mutex::default(),
            })
        };
        files.entry(no).or_insert_with(new).clone()
    }

    pub(super) fn all(&self) -> Vec<Arc<File>> {
        self.0.lock().values().cloned().collect()
    }

    /// Forgets a file of which nothing is left to know, and that nobody uses: not the caller either.
    pub(super) fn tidy(&self, no: InodeNo) {
        let mut files = self.0.lock();
        let idle = files.get(&no).is_some_and(|file| {
            let state = file.state.lock();
            // Only the table has it: another thread may be opening it, and wait for the server.
            Arc::strong_count(file) == 1
                && state.opens == 0
                && !state.has_unplaced()
                && state.log.is_empty()
                && state.locks.is_empty()
                && state.lost.is_none()
        });
        if idle {
            files.remove(&no);
        }
    }
}

/// Files made without a name, which the session holds until they are released.
#[derive(Debug, Default)]
pub(super) struct Unnamed(pub(super) Mutex<HashSet<InodeNo>>);

/// Bounds what is kept of written data.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

impl Budget {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max / BLOCK as usize,
            used: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    /// Blocks in use, as a part of the bound in percent.
    pub(super) fn percent(&self) -> usize {
        *self.used.lock() * 100 / self.max.max(1)
    }

    /// Takes `blocks`, waiting until there is room (one writer is let through in any case when nothing is in use). `false`:
    /// not in time.
    pub(super) fn take(&self, blocks: usize, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut used = self.used.lock();
        while *used != 0 && *used + blocks > self.max {
            if self.freed.wait_until(&mut used, until).timed_out() {
                return false;
            }
        }
        *used += blocks;
        true
    }

    pub(super) fn release(&self, blocks: usize) {
        if blocks > 0 {
            let mut used = self.used.lock();
            *used = used.saturating_sub(blocks);
            self.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
