//! What changes leave to the commit: it is gathered in memory, and written to the tables once, in the order of their keys.
//!
//! 1. What is gathered belongs to the pending transaction: there is some only while that is open, and the commit writes it first. Records
//!    of the log have each change by itself.
//! 2. What the catalog holds is what its tables say and what is gathered. Every reader looks at both, or has what is gathered written
//!    before.
//! 3. Maps stay in memory when they are written, as long as they are few: the log has what is [new](super::maps) in the next ones.

use super::State;
use super::accounts::Accounts;
use super::counts::Counts;
use super::maps::Maps;
use crate::{InodeNo, Result};

/// What is not in the tables yet.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) accounts: Accounts,
    pub(super) counts: Counts,
    /// Of files, by inode and index.
    pub(super) chunks: Maps<(InodeNo, u64)>,
    /// What is kept of them, by inode, index and snapshot.
    pub(super) kept: Maps<(InodeNo, u64, u64)>,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.accounts.is_empty()
            && self.counts.is_empty()
            && self.chunks.is_empty()
            && self.kept.is_empty()
    }

    fn are_many(&self) -> bool {
        self.counts.are_many() || self.chunks.are_many() || self.kept.are_many()
    }
}

impl State {
    /// Writes what is gathered, for those who look at the tables themselves.
    pub(super) fn bring_up_to_date(&mut self) -> Result<()> {
        match self.gathered.get_mut().is_empty() {
            true => Ok(()),
            false => {
                self.writable()?;
                self.changing(0, Self::write_gathered)
            }
        }
    }

    /// Writes what is gathered where that is much. Within an operation.
    pub(super) fn bound_gathered(&mut self) -> Result<()> {
        match self.gathered.get_mut().are_many() {
            true => self.write_gathered(),
            false => Ok(()),
        }
    }

    /// Writes what is gathered to its tables. A failure ends the pending transaction.
    pub(super) fn write_gathered(&mut self) -> Result<()> {
        self.write_accounts()?;
        self.write_shares()?;
        self.write_space()?;
        self.write_chunks()?;
        self.write_kept()
    }
}
