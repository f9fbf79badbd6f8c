//! Deleting what lost its last name and its last holder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::InodeNo;
use parking_lot::Mutex;

use crate::commit::Commits;
use crate::data::Data;
use crate::holds::Holds;
use crate::inodes::{Cell, Liveness};
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct Reaper {
    data: Arc<Data>,
    commits: Arc<Commits>,
    holds: Arc<Holds>,
    /// Held while inodes are deleted: who waits for it finds none under way.
    reaping: Mutex<()>,
}

impl Reaper {
    pub(crate) fn new(data: Arc<Data>, commits: Arc<Commits>, holds: Arc<Holds>) -> Self {
        Self {
            data,
            commits,
            holds,
            reaping: Mutex::new(()),
        }
    }

    /// Deletes every inode that lost its last name and its last holder.
    pub(crate) fn reap_all(&self) -> Result<()> {
        self.reap_until(None)
    }

    /// The same; where there is no space for it, once more when a commit has freed what was discarded before.
    pub(crate) fn reap_all_and_make_space(&self) -> Result<()> {
        match self.reap_all() {
            Err(Error::NoSpace) => {
                self.commits.commit_all()?;
                self.reap_all()
            }
            done => done,
        }
    }

    /// Deletes such inodes for about so long, and leaves the others to the room's own thread.
    pub(crate) fn reap_for(&self, time: Duration) -> Result<()> {
        self.reap_until(Some(Instant::now() + time))
    }

    fn reap_until(&self, end: Option<Instant>) -> Result<()> {
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        let _one = match end {
            None => self.reaping.lock(),
            Some(end) => match self.reaping.try_lock_until(end) {
                Some(one) => one,
                None => return Ok(()),
            },
        };
        let mut outcome = Ok(());
        self.holds.try_again();
        while !is_over() {
            let Some(no) = self.holds.take_doomed() else {
                break;
            };
            match self.reap(no, is_over) {
                Ok(()) => {}
                Err(Error::Poisoned) => return Err(Error::Poisoned),
                // One that resists keeps its space until the next opening, or until there is space for its deletion; the others go.
                Err(e) => {
                    if matches!(e, Error::NoSpace) {
                        self.holds.put_off(no);
                    }
                    tracing::error!("inode {} could not be deleted: {e}", no.0);
                    outcome = Err(e);
                }
            }
        }
        outcome
    }

    /// Deletes one such inode, a bounded part of it at a time: a commit may come between two parts, and what a crash
    /// leaves is found by its missing name when the room is opened.
    fn reap(&self, no: InodeNo, is_over: impl Fn() -> bool) -> Result<()> {
        // One cell throughout, which a thread that uses it keeps in memory, and with it the inode's liveness.
        let cell: Arc<Cell> = match self.data.cell(no) {
            Err(Error::NotFound) => return Ok(()),
            other => other?,
        };
        loop {
            let _change = self.commits.change()?;
            let mut state = cell.state.write();
            if state.is_deleted() || state.inode.nlink > 0 {
                return Ok(());
            }
            if state.liveness == Liveness::Live {
                // Somebody may have found it by its last name and hold it only since that is gone. From here on nobody does:
                // who holds it later sees, by its attributes, that it is doomed.
                let doom = || state.liveness = Liveness::Doomed;
                if !self.holds.unless_held(no, doom) {
                    return Ok(());
                }
            }
            state.buffer = None;
            self.data.mark_dirty(&cell);
            if self
                .data
                .cut_last_chunks(&cell, &mut state, 0, true)?
                .is_some()
            {
                if is_over() {
                    self.holds.doom(no);
                    return Ok(());
                }
                continue;
            }
            state.liveness = Liveness::Deleted;
            self.data.owners().went(&state.inode);
            drop(state);
            self.data.inodes().forget(no);
            return Ok(());
        }
    }
}
