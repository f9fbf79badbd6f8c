//! Locks, which the server keeps.
//!
//! 1. The new holder of a lock sees what the last one wrote: maps are fetched again.
//! 2. Before a lock is released, the data of its holder is committed and durable.
//! 3. Locks end with the session; then the file answers `Stale` until it is closed, so that nobody goes on without them.

use std::time::{Duration, Instant};

use metadata_proto::rpc::{MetadataClient, Posix, Refusal};
use model::{Error, InodeNo, Lock, LockKind, LockOwner, LockTable, Result};

use super::calls::rest;
use super::client::ClientCore;
use super::errors::error;
use super::files::File;
use super::link::Attempt;

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
        // Noted first: if the session ends in between, the lock is known to be lost.
        let new = file.state.lock().locks.insert((table, owner));
        let taken = self.take_lock(&file, table, owner, lock, wait, cancelled);
        if taken.is_err() && new {
            file.state.lock().locks.remove(&(table, owner));
        }
        drop(file);
        self.files.tidy(no);
        taken
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
        loop {
            if cancelled() {
                return Err(Error::Interrupted);
            }
            file.state.lock().usable()?;
            let connected = self.connected(until)?;
            file.state.lock().locks.insert((table, owner));
            let ask = |client: MetadataClient, context, session| async move {
                client
                    .set_lock(context, session, no, table, owner, lock, wait)
                    .await
            };
            let answer = self.link.attempt(&connected, until, ask);
            match answer {
                Attempt::Answer(Ok(())) => {
                    let mut state = file.state.lock();
                    if !state.locks.contains(&(table, owner)) {
                        // The session ended since: it is not held.
                        return Err(Error::Stale);
                    }
                    state.outdate();
                    return Ok(());
                }
                Attempt::Answer(Err(Refusal::Posix(Posix::WouldBlock))) if wait => {
                    // There was an answer: the timeout starts again.
                    until = self.deadline();
                    continue;
                }
                Attempt::Answer(Err(Refusal::NoSession)) | Attempt::Unknown(_)
                    if Instant::now() < until => {}
                Attempt::Answer(Err(Refusal::NotNow(_))) if Instant::now() < until => {
                    rest(&mut pause, until);
                }
                Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
                Attempt::Unknown(why) => {
                    return Err(Error::Unreachable(format!("the metadata server ({why})")));
                }
            }
        }
    }

    fn unlock(&self, no: InodeNo, table: LockTable, owner: LockOwner, lock: Lock) -> Result<()> {
        let file = self.files.get(no);
        let mut kept = Ok(());
        if let Some(file) = &file {
            let (held, unsettled) = {
                let state = file.state.lock();
                let unsettled = state.has_unplaced() || !state.log.is_empty();
                (state.locks.contains(&(table, owner)), unsettled)
            };
            if !held {
                return Ok(());
            }
            if unsettled {
                kept = self.fsync_file(no);
            }
        }
        let given = self.call(|client, context, session| async move {
            client
                .set_lock(context, session, no, table, owner, lock, false)
                .await
        });
        if let Some(file) = file {
            if lock.start == 0 && lock.end == u64::MAX {
                file.state.lock().locks.remove(&(table, owner));
            }
            drop(file);
            self.files.tidy(no);
        }
        kept.and(given)
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
