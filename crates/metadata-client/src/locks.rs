//! Locks, which the server keeps.
//!
//! 1. The new holder of a lock sees what the last one wrote: attributes and maps are fetched again.
//! 2. Before a lock is released, the data of its holder is committed and durable.
//! 3. What is held is noted here. A server that was started gets it claimed again, which it grants where it is sure that nobody else
//!    had it. Else the file answers `Stale` until it is closed, so that nobody goes on without their locks.
//! 4. A lock is noted after it was granted, and only while the session in which it was goes on; the note goes before the lock is
//!    released, and comes back where the server refuses the release. So nothing is claimed that somebody else may have been granted.
//! 5. A wait that is interrupted is taken back: the lock is asked for once more without waiting, and where it is free by then it is taken.
//! 6. Where nobody knows whether a lock was granted, it is not noted, but its owner's next releases are sent to the server.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{
    FORMER_MAX, LOCKS_MAX, LockClaim, MetadataClient, Posix, Refusal, SessionId,
};
use model::{Error, InodeNo, Lock, LockKind, LockOwner, LockTable, Result};

use super::calls::rest;
use super::client::ClientCore;
use super::errors::error;
use super::files::File;
use super::link::{Attempt, Connected};

/// For the server's answer after a wait was interrupted.
const LAST_ASKED: Duration = Duration::from_secs(2);

impl ClientCore {
    pub(super) fn set_lock_of(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        if lock.kind == LockKind::Unlock {
            return self.unlock(no, table, owner, lock);
        }
        let file = self.files.get_or_new(no);
        // What was written before the lock is not what it guards, and would hide what others wrote.
        self.flush_file(&file)?;
        if table == LockTable::Flock && lock.kind == LockKind::Exclusive {
            self.before_conversion(&file, owner)?;
        }
        let taken = self.take_lock(&file, table, owner, lock, wait, cancelled);
        drop(file);
        self.files.tidy(no);
        taken
    }

    /// A shared lock of a whole file is to become exclusive: where others are in the way the server releases it first.
    fn before_conversion(&self, file: &File, owner: LockOwner) -> Result<()> {
        let key = (LockTable::Flock, owner);
        let is_shared = |lock: &Lock| lock.kind == LockKind::Shared;
        let (shares, unsettled) = {
            let state = file.state.lock();
            let held = state.locks.get(&key);
            let shares = held.is_some_and(|held| held.ranges.iter().any(is_shared));
            (shares, !state.log.is_empty())
        };
        if shares {
            if unsettled {
                self.fsync_file(file.no)?;
            }
            let mut state = file.state.lock();
            state.may_be_locked(key.0, owner);
            if let Some(held) = state.locks.get_mut(&key) {
                held.ranges.clear();
            }
        }
        Ok(())
    }

    fn take_lock(
        &self,
        file: &File,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let no = file.no;
        let mut until = self.deadline();
        let mut pause = Duration::from_millis(10);
        let mut waits = false;
        loop {
            let cancelled = cancelled();
            if cancelled {
                if !std::mem::take(&mut waits) {
                    return Err(Error::Interrupted);
                }
                until = until.min(Instant::now() + LAST_ASKED);
            }
            let wait = wait && !cancelled;
            file.state.lock().usable()?;
            let connected = match self.connected(until) {
                Err(_) if cancelled => return Err(Error::Interrupted),
                connected => connected?,
            };
            let ask = |client: MetadataClient, context, session| async move {
                client
                    .set_lock(context, session, no, table, owner, lock, wait)
                    .await
            };
            let answer = self.link.attempt(&connected, until, ask);
            match answer {
                Attempt::Answer(Ok(())) => {
                    let mut state = file.state.lock();
                    if state.generation == connected.session.generation {
                        state.locked(table, owner, lock);
                        state.outdate_all();
                        self.placings.fetch_add(1, Ordering::AcqRel);
                        return Ok(());
                    }
                    // The session ended since, and the lock with it.
                    if Instant::now() >= until {
                        return Err(Error::Stale);
                    }
                }
                Attempt::Answer(Err(Refusal::Posix(Posix::WouldBlock))) if wait => {
                    // There was an answer: the timeout starts again.
                    until = self.deadline();
                    waits = true;
                }
                Attempt::Answer(Err(Refusal::Posix(Posix::WouldBlock))) if cancelled => {
                    return Err(Error::Interrupted);
                }
                Attempt::Answer(Err(Refusal::NoSession)) if Instant::now() < until => {}
                Attempt::Answer(Err(Refusal::NotNow(_))) if Instant::now() < until => {
                    rest(&mut pause, until);
                }
                Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
                Attempt::Unknown(why) => {
                    file.state.lock().may_be_locked(table, owner);
                    if Instant::now() >= until && !cancelled {
                        return Err(Error::Unreachable(format!("the metadata server ({why})")));
                    }
                }
            }
        }
    }

    fn unlock(&self, no: InodeNo, table: LockTable, owner: LockOwner, lock: Lock) -> Result<()> {
        let file = self.files.get(no);
        let mut kept = Ok(());
        let mut noted = (0, Vec::new());
        if let Some(file) = &file {
            let (held, unsettled) = {
                let state = file.state.lock();
                let unsettled = state.has_unplaced() || !state.log.is_empty();
                (state.locks.contains_key(&(table, owner)), unsettled)
            };
            if !held {
                return Ok(());
            }
            if unsettled {
                kept = self.fsync_file(no);
            }
            let mut state = file.state.lock();
            let held = state.locks.get(&(table, owner));
            noted = (
                state.generation,
                held.map_or(Vec::new(), |held| held.ranges.clone()),
            );
            state.locked(table, owner, lock);
        }
        let given = self.call(|client, context, session| async move {
            client
                .set_lock(context, session, no, table, owner, lock, false)
                .await
        });
        if let Some(file) = file {
            if matches!(given, Err(Error::NoSpace)) {
                // There would be too many ranges: nothing was released.
                let mut state = file.state.lock();
                let (generation, ranges) = noted;
                if state.generation == generation {
                    let ranges = ranges.into_iter();
                    ranges.for_each(|held| state.locked(table, owner, held));
                }
            }
            drop(file);
            self.files.tidy(no);
        }
        kept.and(given)
    }

    /// Takes up the locks that are noted in a new session; those that are lost are forgotten. `former`: the sessions of earlier
    /// incarnations of the server in which they may be, and this one from now on; `None` where others may have had the locks
    /// meanwhile. `false`: the session is gone as well.
    pub(super) fn take_up_locks(
        &self,
        connected: &Connected,
        former: Option<&mut Vec<SessionId>>,
        deadline: Instant,
    ) -> Result<bool> {
        let mut claims = Vec::new();
        for file in self.files.all() {
            for (&(table, owner), held) in &file.state.lock().locks {
                claims.extend(held.ranges.iter().map(|&lock| LockClaim {
                    no: file.no,
                    table,
                    owner,
                    lock,
                }));
            }
        }
        let kept = match former {
            None => vec![false; claims.len()],
            Some(former) => match self.reclaim(connected, former, &claims, deadline)? {
                Some(kept) => kept,
                None => return Ok(false),
            },
        };
        for claim in claims
            .iter()
            .zip(kept)
            .filter_map(|(c, kept)| (!kept).then_some(c))
        {
            let file = self.files.get_or_new(claim.no);
            let mut state = file.state.lock();
            // Unless it was released meanwhile.
            if state.locks.contains_key(&(claim.table, claim.owner)) {
                tracing::warn!(inode = claim.no.0, "locks were lost with the session");
                state.locks.clear();
                state.lost_locks = state.opens > 0;
            }
        }
        Ok(true)
    }

    /// Which of the claims a new session has after asking for them; `None`: it is gone.
    fn reclaim(
        &self,
        connected: &Connected,
        former: &mut Vec<SessionId>,
        claims: &[LockClaim],
        deadline: Instant,
    ) -> Result<Option<Vec<bool>>> {
        let sessions = former.clone();
        if !former.contains(&connected.session.id) {
            former.push(connected.session.id);
        }
        // More are not kept: after so many servers that ended before they had answered, locks are lost.
        let excess = former.len().saturating_sub(FORMER_MAX);
        former.drain(..excess);
        let mut pause = Duration::from_millis(10);
        let count = claims.len();
        // The server grants no more: others, if there are any, are lost.
        let claims = &claims[..count.min(LOCKS_MAX)];
        loop {
            let (sessions, claims) = (sessions.clone(), claims.to_vec());
            let asked = claims.len();
            let ask = |client: MetadataClient, context, session| async move {
                client
                    .reclaim_locks(context, session, sessions, claims)
                    .await
            };
            match self.link.attempt(connected, deadline, ask) {
                Attempt::Answer(Ok(mut kept)) if kept.len() == asked => {
                    kept.resize(count, false);
                    return Ok(Some(kept));
                }
                Attempt::Answer(Ok(_)) => return Ok(Some(vec![false; count])),
                // Refused for good. The locks are lost then, but not the mount.
                Attempt::Answer(Err(Refusal::Posix(why))) => {
                    tracing::warn!("locks are not claimed again: {why:?}");
                    return Ok(Some(vec![false; count]));
                }
                Attempt::Answer(Err(Refusal::NoSession)) | Attempt::Unknown(_) => return Ok(None),
                Attempt::Answer(Err(Refusal::NotNow(_))) if Instant::now() < deadline => {
                    rest(&mut pause, deadline);
                }
                Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
            }
        }
    }

    pub(super) fn test_lock_of(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<Option<Lock>> {
        self.call(|client, context, session| async move {
            client
                .test_lock(context, session, no, table, owner, lock)
                .await
        })
    }
}
