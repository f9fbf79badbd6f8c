//! Transactions: commits that wait until the caller has done all that belongs together.
//!
//! A room has one commit point, and a commit takes whatever was done before it: so a transaction is a time without
//! commits. It is not isolated from other threads, and cannot be taken back while the room is open.

use std::sync::atomic::Ordering;

use super::{Commits, waiting};
use crate::accounts::Scope;
use crate::{Error, Result};

impl Commits {
    pub(crate) fn in_transaction(&self) -> bool {
        self.transactions.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn check_no_transaction(&self) -> Result<()> {
        match self.in_transaction() {
            true => Err(Error::InTransaction),
            false => Ok(()),
        }
    }

    pub(crate) fn begin(&self) -> Result<()> {
        if self.env.options.read_only {
            return Err(Error::ReadOnly);
        }
        let _one = waiting(|| self.commit_lock.lock());
        self.check_poison()?;
        if !self.in_transaction() {
            // Or a crash during a long transaction would take what was done before it too.
            self.sync_now_if_dirty()?;
        }
        self.transactions.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn complete(&self) -> Result<()> {
        let _one = waiting(|| self.commit_lock.lock());
        self.check_poison()?;
        match self.transactions.load(Ordering::SeqCst) {
            0 => {
                return Err(Error::InvalidArgument(
                    "there is no transaction to complete",
                ));
            }
            1 => {
                // First what may find no space: a commit would go on without it, and half a transaction is none.
                self.spill()?;
                self.sync_now_if_dirty()?;
            }
            _ => {}
        }
        self.transactions.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Hands pending changes to the catalog, which writes them to its log when they are many, without a commit.
    pub(crate) fn spill(&self) -> Result<()> {
        let _freeze = waiting(|| self.freeze.write());
        let ((), drained) = self
            .drain(Scope::Everything, |_| Ok(()))
            .map_err(|e| self.failed(e))?;
        self.blocks.note_unflushed_maps();
        drained
    }
}
