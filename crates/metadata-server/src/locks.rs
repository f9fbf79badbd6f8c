//! Locks of files: byte ranges as `fcntl` has them, whole files as `flock` has them, for processes on many clients.
//!
//! 1. Two holders never hold locks that conflict: an exclusive one and any other that overlaps it, in the same table.
//! 2. A wait that would never end, because those waited for wait in turn for the waiter, is refused as a deadlock (ranges only,
//!    as in POSIX).
//! 3. A waiter goes before a newcomer that holds nothing yet; a newcomer is kept back for at most `KEPT_BACK_MAX`, so
//!    that this causes no deadlock of its own.
//! 4. A lock of a whole file that is to become exclusive is released first where others are in the way, as flock(2) says: two that share one
//!    and both want it alone would wait for each other.
//! 5. Who asked to wait, and asks for the same without waiting, waits no more.
//! 6. What a session holds is bounded by [`LOCKS_MAX`], also where a release splits a range.
//!
//! It deliberately does not know what a session is allowed, or when it ends: the caller does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

pub use metadata_proto::rpc::LOCKS_MAX;
use metadata_proto::rpc::SessionId;
use parking_lot::Mutex;
use room::{InodeNo, Lock, LockKind, LockOwner, LockTable};
use tokio::sync::Notify;

/// How long somebody who asked to wait is taken for waiting still, without having asked again.
const WAITS_FOR: Duration = Duration::from_secs(3);
/// How long a newcomer goes behind those who wait.
const KEPT_BACK_MAX: Duration = Duration::from_secs(10);

/// Who holds or wants a lock: an owner of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The client's session.
    pub session: SessionId,
    /// The owner, as that client numbers them.
    pub owner: LockOwner,
}

/// Why a lock is not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// Somebody else holds one in the way.
    Held,
    /// Waiting for it would never end.
    Deadlock,
    /// The session would hold too many.
    TooMany,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldLock {
    holder: Holder,
    lock: Lock,
}

impl HeldLock {
    fn conflicts(&self, wanted: &HeldLock) -> bool {
        self.holder != wanted.holder
            && [self, wanted]
                .iter()
                .any(|h| h.lock.kind == LockKind::Exclusive)
            && self.lock.overlaps(&wanted.lock)
    }
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    wanted: HeldLock,
    no: InodeNo,
    table: LockTable,
    since: Instant,
    asked: Instant,
    /// Order of coming.
    ticket: u64,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<(InodeNo, LockTable), Vec<HeldLock>>,
    waiting: Vec<Waiter>,
    counts: HashMap<SessionId, usize>,
    tickets: u64,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    state: Mutex<State>,
    freed: Notify,
}

impl Locks {
    /// The lock that keeps `holder` from having `lock`, if any.
    pub fn test(&self, no: InodeNo, table: LockTable, holder: Holder, lock: Lock) -> Option<Lock> {
        let wanted = wanted(table, holder, lock)?;
        let state = self.state.lock();
        let held = state.held.get(&(no, table))?.iter();
        held.filter(|held| held.conflicts(&wanted))
            .map(|held| held.lock)
            .min_by_key(|lock| lock.start)
    }

    /// Whether `holder` has all of `lock`.
    pub fn has(&self, no: InodeNo, table: LockTable, holder: Holder, lock: Lock) -> bool {
        let lock = lock.in_table(table);
        let state = self.state.lock();
        let held = state.held.get(&(no, table));
        held.is_some_and(|held| {
            held.iter().any(|h| {
                h.holder == holder
                    && h.lock.kind == lock.kind
                    && h.lock.start <= lock.start
                    && lock.end <= h.lock.end
            })
        })
    }

    /// Takes or releases a lock now. `waits`: whether the caller will ask again after [`Denied::Held`]. A release can be refused too, as
    /// [`Denied::TooMany`].
    pub fn set(
        &self,
        no: InodeNo,
        table: LockTable,
        holder: Holder,
        lock: Lock,
        waits: bool,
        now: Instant,
    ) -> Result<(), Denied> {
        let mut state = self.state.lock();
        let Some(wanted) = wanted(table, holder, lock) else {
            state.forget_waiter(no, table, holder);
            let released = state.replace(no, table, holder, lock);
            drop(state);
            self.freed.notify_waiters();
            return released;
        };
        let blocked = state.conflicts(no, table, &wanted);
        if blocked || state.kept_back(no, table, &wanted, waits, now) {
            if blocked && table == LockTable::Flock && state.release_whole(no, holder) {
                self.freed.notify_waiters();
            }
            if !waits {
                state.forget_wait_for(no, table, &wanted);
                return Err(Denied::Held);
            }
            if table == LockTable::Posix && blocked && state.would_deadlock(no, &wanted, now) {
                state.forget_waiter(no, table, holder);
                return Err(Denied::Deadlock);
            }
            state.wait(no, table, wanted, now);
            return Err(Denied::Held);
        }
        state.forget_waiter(no, table, holder);
        state.replace(no, table, holder, lock)?;
        drop(state);
        // A shared lock in place of an exclusive one, and one who waited less, let others go on.
        self.freed.notify_waiters();
        Ok(())
    }

    /// Takes a lock, waiting for at most `timeout`.
    pub async fn set_within(
        &self,
        no: InodeNo,
        table: LockTable,
        holder: Holder,
        lock: Lock,
        timeout: Duration,
    ) -> Result<(), Denied> {
        let until = tokio::time::Instant::now() + timeout;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.set(no, table, holder, lock, true, Instant::now()) {
                Err(Denied::Held) => {}
                other => return other,
            }
            if tokio::time::timeout_at(until, freed).await.is_err() {
                return Err(Denied::Held);
            }
        }
    }

    /// A client closed a file for good: nothing of it is locked by that client any more.
    pub fn closed(&self, session: SessionId, no: InodeNo) {
        self.drop_where(|key, holder| key.0 == no && holder.session == session);
        self.state
            .lock()
            .waiting
            .retain(|w| w.no != no || w.wanted.holder.session != session);
    }

    /// A session is over.
    pub fn end(&self, session: SessionId) {
        self.drop_where(|_, holder| holder.session == session);
        let mut state = self.state.lock();
        state.waiting.retain(|w| w.wanted.holder.session != session);
        state.counts.remove(&session);
    }

    /// How many ranges are locked.
    pub fn len(&self) -> usize {
        self.state.lock().held.values().map(Vec::len).sum()
    }

    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn drop_where(&self, gone: impl Fn(&(InodeNo, LockTable), &Holder) -> bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.held.retain(|key, held| {
            held.retain(|h| {
                let goes = gone(key, &h.holder);
                if goes && let Some(count) = state.counts.get_mut(&h.holder.session) {
                    *count -= 1;
                }
                !goes
            });
            !held.is_empty()
        });
        self.freed.notify_waiters();
    }
}

impl State {
    fn conflicts(&self, no: InodeNo, table: LockTable, wanted: &HeldLock) -> bool {
        self.held
            .get(&(no, table))
            .is_some_and(|held| held.iter().any(|h| h.conflicts(wanted)))
    }

    /// Whether somebody who waits goes first.
    fn kept_back(
        &mut self,
        no: InodeNo,
        table: LockTable,
        wanted: &HeldLock,
        waits: bool,
        now: Instant,
    ) -> bool {
        self.waiting
            .retain(|w| now.saturating_duration_since(w.asked) < WAITS_FOR);
        let holds_some = || {
            self.held
                .iter()
                .any(|(key, held)| key.1 == table && held.iter().any(|h| h.holder == wanted.holder))
        };
        if !waits || self.waiting.is_empty() {
            return false;
        }
        let own = self.waiter(no, table, wanted.holder);
        if own.is_some_and(|w| now.saturating_duration_since(w.since) >= KEPT_BACK_MAX) {
            return false;
        }
        let ticket = own.map_or(u64::MAX, |w| w.ticket);
        self.waiting.iter().any(|w| {
            w.no == no && w.table == table && w.ticket < ticket && w.wanted.conflicts(wanted)
        }) && !holds_some()
    }

    fn waiter(&self, no: InodeNo, table: LockTable, holder: Holder) -> Option<&Waiter> {
        self.waiting
            .iter()
            .find(|w| w.no == no && w.table == table && w.wanted.holder == holder)
    }

    fn wait(&mut self, no: InodeNo, table: LockTable, wanted: HeldLock, now: Instant) {
        if let Some(known) = self
            .waiting
            .iter_mut()
            .find(|w| w.no == no && w.table == table && w.wanted.holder == wanted.holder)
        {
            known.asked = now;
            known.wanted = wanted;
            return;
        }
        self.tickets += 1;
        self.waiting.push(Waiter {
            wanted,
            no,
            table,
            since: now,
            asked: now,
            ticket: self.tickets,
        });
    }

    fn forget_waiter(&mut self, no: InodeNo, table: LockTable, holder: Holder) {
        self.waiting
            .retain(|w| w.no != no || w.table != table || w.wanted.holder != holder);
    }

    /// Its holder does not wait for `wanted` any more; for another range of the file another thread of it may.
    fn forget_wait_for(&mut self, no: InodeNo, table: LockTable, wanted: &HeldLock) {
        let (holder, range) = (wanted.holder, (wanted.lock.start, wanted.lock.end));
        let is_it = |w: &Waiter| (w.wanted.lock.start, w.wanted.lock.end) == range;
        if self.waiter(no, table, holder).is_some_and(is_it) {
            self.forget_waiter(no, table, holder);
        }
    }

    /// Releases a lock of a whole file; whether there was one.
    fn release_whole(&mut self, no: InodeNo, holder: Holder) -> bool {
        let key = (no, LockTable::Flock);
        let held = self.held.get(&key);
        let has_one = held.is_some_and(|held| held.iter().any(|h| h.holder == holder));
        let all = Lock {
            kind: LockKind::Unlock,
            start: 0,
            end: u64::MAX,
            pid: 0,
        };
        has_one && self.replace(no, LockTable::Flock, holder, all).is_ok()
    }

    /// Whether those who hold what `wanted` needs wait, over any number of others, for its holder.
    fn would_deadlock(&self, no: InodeNo, wanted: &HeldLock, now: Instant) -> bool {
        let holders_of = |no: InodeNo, wanted: &HeldLock| -> Vec<Holder> {
            self.held
                .get(&(no, LockTable::Posix))
                .map(|held| {
                    held.iter()
                        .filter(|h| h.conflicts(wanted))
                        .map(|h| h.holder)
                        .collect()
                })
                .unwrap_or_default()
        };
        let mut seen = Vec::new();
        let mut next = holders_of(no, wanted);
        while let Some(holder) = next.pop() {
            if holder == wanted.holder {
                return true;
            }
            if seen.contains(&holder) {
                continue;
            }
            seen.push(holder);
            for w in &self.waiting {
                if w.wanted.holder == holder
                    && w.table == LockTable::Posix
                    && now.saturating_duration_since(w.asked) < WAITS_FOR
                {
                    next.extend(holders_of(w.no, &w.wanted));
                }
            }
        }
        false
    }

    /// Takes or releases a holder's lock. `TooMany`, and no change, where its session would hold more ranges than it may.
    fn replace(
        &mut self,
        no: InodeNo,
        table: LockTable,
        holder: Holder,
        lock: Lock,
    ) -> Result<(), Denied> {
        let held = self.held.entry((no, table)).or_default();
        let own = held.iter().filter(|h| h.holder == holder);
        let mut own: Vec<Lock> = own.map(|h| h.lock).collect();
        let before = own.len();
        lock.in_table(table).apply_to(&mut own);
        let count = self.counts.get(&holder.session).copied().unwrap_or(0);
        let after = (count + own.len()).saturating_sub(before);
        if own.len() > before && after > LOCKS_MAX {
            if held.is_empty() {
                self.held.remove(&(no, table));
            }
            return Err(Denied::TooMany);
        }
        match after {
            0 => self.counts.remove(&holder.session),
            _ => self.counts.insert(holder.session, after),
        };
        held.retain(|h| h.holder != holder);
        held.extend(own.into_iter().map(|lock| HeldLock { holder, lock }));
        if held.is_empty() {
            self.held.remove(&(no, table));
        }
        Ok(())
    }
}

/// `None`: the lock is released.
fn wanted(table: LockTable, holder: Holder, lock: Lock) -> Option<HeldLock> {
    let lock = lock.in_table(table);
    (lock.kind != LockKind::Unlock).then_some(HeldLock { holder, lock })
}

#[cfg(test)]
mod tests;
