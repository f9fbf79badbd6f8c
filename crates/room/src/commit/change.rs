//! Changes: what a commit waits for, and what waits for a commit.

use std::cell::Cell as Flag;
use std::sync::atomic::Ordering;

use parking_lot::RwLockReadGuard;

use super::{Commits, PENDING_BYTES, PENDING_CHANGES, PENDING_INODES, waiting};
use crate::{Error, Result};

thread_local! {
    /// Whether this thread holds `freeze` for several changes that one commit takes together: see [`Commits::whole`].
    static IN_WHOLE: Flag<bool> = const { Flag::new(false) };
}

impl Commits {
    /// Begins a change: refuses it where none may be, and keeps commits away until the guard is dropped.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        if self.env.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_poison()?;
        if self.is_in_whole() {
            // The thread has `freeze` already; asking again would wait for a commit that waits for this thread.
            return Ok(Change {
                commits: self,
                _freeze: None,
            });
        }
        self.throttle()?;
        Ok(Change {
            commits: self,
            _freeze: Some(
                self.freeze
                    .try_read()
                    .unwrap_or_else(|| waiting(|| self.freeze.read())),
            ),
        })
    }

    /// Whether this thread is within [`whole`](Self::whole): it must not wait for a commit.
    pub(crate) fn is_in_whole(&self) -> bool {
        IN_WHOLE.get()
    }

    /// Runs several changes of this thread that one commit takes together. None of them may be long, or touch another room.
    pub(crate) fn whole<T>(&self, changes: impl FnOnce() -> Result<T>) -> Result<T> {
        struct Mark;
        impl Drop for Mark {
            fn drop(&mut self) {
                IN_WHOLE.set(false);
            }
        }
        assert!(!self.is_in_whole(), "whole changes are not nested");
        let _change = self.change()?;
        IN_WHOLE.set(true);
        let _mark = Mark;
        changes()
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::SeqCst) {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    /// After a failed flush or commit, disk and memory may disagree: no more changes.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
    }

    /// Asks for a commit, or for work ahead of one, where much is pending, and holds a writer up where more is than memory should hold.
    pub(crate) fn throttle(&self) -> Result<()> {
        let behind = self
            .changes
            .load(Ordering::Relaxed)
            .saturating_sub(self.committed.load(Ordering::Relaxed))
            / PENDING_CHANGES;
        let pending = self.data.inodes().pending_len();
        let inodes = pending / PENDING_INODES;
        let bytes = self.blocks.pending() / PENDING_BYTES;
        if self.in_transaction() {
            return if inodes > 0 { self.spill() } else { Ok(()) };
        }
        if behind >= 4 || inodes >= 4 {
            return self.commit_or_defer();
        }
        let commit = behind + inodes as u64 + bytes > 0 || self.pace.is_due();
        let drains = self.pace.are_many(pending) && !self.env.options.network_backed;
        let ahead = drains || self.pace.has_unwritten();
        if (commit || ahead) && self.pace.ask() {
            self.env.requests.ask(|wake| {
                wake.commit |= commit;
                wake.ahead |= ahead;
            });
        }
        Ok(())
    }

    /// Something is to be committed that is no operation of its own.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Keeps commits away without a change in the file system.
    pub(crate) fn without_commits(&self) -> Result<RwLockReadGuard<'_, ()>> {
        if self.env.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_poison()?;
        Ok(self.freeze.read())
    }

    /// Closes the open segment and waits for writes to it.
    pub(crate) fn close_segment(&self) -> Result<()> {
        self.blocks.segments().rotate()?;
        drop(self.freeze.write());
        Ok(())
    }
}

/// A change under way: dropped when it is done, which is what a commit waits for.
pub(crate) struct Change<'a> {
    commits: &'a Commits,
    /// `None`: within [`Commits::whole`], which holds it.
    _freeze: Option<RwLockReadGuard<'a, ()>>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.commits.changes.fetch_add(1, Ordering::SeqCst);
    }
}
