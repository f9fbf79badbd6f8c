//! Moments: what must find everything in the catalog and no change under way.

use std::sync::atomic::Ordering;

use super::{Commits, waiting};
use crate::accounts::Scope;
use crate::{Error, Result};

impl Commits {
    /// Hands everything to the catalog, does `mark`, which changes the catalog, and makes that durable with all that was done before.
    /// `by_commit`: by a commit even where a record of the log would do. `NoSpace` where a buffer found none, and then `mark` was
    /// not done; or where making it durable did, and then it was.
    pub(crate) fn mark_moment(
        &self,
        by_commit: bool,
        mark: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _one = waiting(|| self.commit_lock.lock());
        self.check_poison()?;
        self.check_no_transaction()?;
        self.flush_ahead()?;
        let freeze = waiting(|| self.freeze.write());
        let ((), drained) = self
            .drain(Scope::Everything, |blocks| blocks.record(Scope::Everything))
            .map_err(|e| self.failed(e))?;
        if let Err(e) = drained.and_then(|()| mark()) {
            self.blocks.note_unflushed_maps();
            return Err(e);
        }
        let count = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        if by_commit || self.is_far_behind(count) {
            drop(freeze);
            return self.commit_for_space();
        }
        self.append(freeze, Scope::Everything, count)
    }

    /// Hands everything to the catalog, and does something before any other change is made.
    pub(crate) fn at_rest<T>(&self, then: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.env.options.read_only {
            return then();
        }
        self.check_poison()?;
        let _freeze = waiting(|| self.freeze.write());
        let ((), drained) = self
            .drain(Scope::Everything, |blocks| blocks.record(Scope::Everything))
            .map_err(|e| self.failed(e))?;
        match drained {
            // A buffer keeps what found no space: none of it is in a map.
            Ok(()) | Err(Error::NoSpace) => {}
            Err(e) => return Err(e),
        }
        self.blocks.note_unflushed_maps();
        then()
    }
}
