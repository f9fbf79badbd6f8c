//! Who may still take space in the storage below, and what is reserved of it.
//!
//! 1. New data stops first, then data that a cache had already accepted, then data that takes the place of its own; the
//!    catalog may have what is left. So a full room can still be overwritten piece by piece, and files can be deleted.
//! 2. Space that `fallocate` reserved belongs to its file: it is in nobody's available space, and writing there counts as
//!    replacing.
//! 3. What is reported as available can be written, with the catalog rows that it needs.
//!
//! It deliberately does not know where data is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use storage::Space as StorageSpace;

use crate::blocks::{BLOCK, Blocks};
use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::freed::Freed;
use crate::holds::Holds;
use crate::reap::Reaper;
use crate::reservations::Promise;
use crate::{Available, Error, Result, RoomSpace};

/// Bytes kept for the catalog, so that it can still be committed and files deleted.
const FOR_CATALOG: u64 = 16 << 20;
/// Bytes kept for replacing data: a write goes to a fresh place before a commit frees the old one.
const FOR_REPLACING: u64 = 16 << 20;
/// Bytes kept for data that a cache accepted before it knew that the room was full.
const FOR_CACHED: u64 = 64 << 20;
/// The largest part of a small storage that each of these takes: one in so many bytes.
const SMALL: [u64; 3] = [16, 32, 16];
/// On network disks one amount is kept, so that there is always a place to move data to.
const FOR_MOVING: u64 = 128 << 20;
/// Bytes promised to writers between two looks at the storage's free space.
const BUDGET: i64 = 64 << 20;
/// One byte in so many is for the catalog rows of data.
const ROWS: u64 = 64;
/// How long who asks for the space waits for the deletion of files without a name.
const REAP: Duration = Duration::from_millis(100);

/// What space is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// Data and names that were not there before.
    New,
    /// The same, but a cache has accepted it already: refusing it loses it.
    Cached,
    /// What takes the place of data, or of space reserved for it.
    Replace,
}

/// Bytes that data of a length takes, with its catalog rows and the padding to whole blocks.
fn cost(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / ROWS).saturating_add(BLOCK)
}

/// What is known of the space between two looks at the storage.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) freed: Arc<Freed>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) reaper: Arc<Reaper>,
    /// Bytes that new data may take without another look.
    pub(crate) budget: AtomicI64,
}

impl Space {
    /// Promises blocks that are about to be reserved: new data must look again.
    pub(crate) fn promise_blocks(&self, blocks: u64) -> Promise<'_> {
        let promise = self.data.reservations().promise(blocks);
        self.budget.store(0, Ordering::SeqCst);
        promise
    }

    /// Bytes of the storage that a claim may still take, its catalog rows included.
    fn left_for(&self, claim: Claim, space: &StorageSpace) -> u64 {
        let mut available = space.available;
        if self.env.options.network_backed {
            // Open segments have their space already.
            available += self.blocks.segments().left_open() * BLOCK;
        }
        available.saturating_sub(self.kept_from(claim, space))
    }

    /// Bytes that a claim must leave free.
    fn kept_from(&self, claim: Claim, space: &StorageSpace) -> u64 {
        if self.env.options.network_backed {
            // The catalog is elsewhere there.
            return FOR_MOVING.min(space.total / SMALL[0]);
        }
        let part = |amount: u64, small: u64| amount.min(space.total / small);
        let mut kept = part(FOR_CATALOG, SMALL[0]);
        if claim < Claim::Replace {
            kept += part(FOR_REPLACING, SMALL[1]);
        }
        if claim < Claim::Cached {
            kept += part(FOR_CACHED, SMALL[2]);
        }
        if claim < Claim::Replace {
            // Two programs may ask for more than there are numbers for.
            let promised = self.data.reservations().promised().saturating_mul(BLOCK);
            kept = kept.saturating_add(cost(promised));
        }
        kept
    }

    /// Whether there is space for all that is reserved, without what is kept.
    pub(crate) fn reservations_fit(&self) -> Result<bool> {
        let space = self.env.storage.space()?;
        Ok(self.kept_from(Claim::New, &space) <= space.available)
    }

    /// Bytes of data that can be written now.
    fn available_of(&self, claim: Claim, space: &StorageSpace) -> u64 {
        let left = self.left_for(claim, space);
        // The inverse of `cost`.
        (left.saturating_sub(BLOCK) / (ROWS + 1) * ROWS) / BLOCK * BLOCK
    }

    /// Promises space for `bytes` more of new data, or says that there is none.
    pub(crate) fn promise(&self, bytes: u64) -> Result<()> {
        let wanted = cost(bytes) as i64;
        let budget = &self.budget;
        if budget.fetch_sub(wanted, Ordering::SeqCst) >= wanted {
            return Ok(());
        }
        let left = self.left_for(Claim::New, &self.env.storage.space()?) as i64;
        if left < wanted {
            budget.store(0, Ordering::SeqCst);
            return Err(Error::NoSpace);
        }
        budget.store(left.min(BUDGET) - wanted, Ordering::SeqCst);
        Ok(())
    }

    /// Whether there is space for `bytes` more.
    pub(crate) fn fits(&self, claim: Claim, bytes: u64) -> Result<bool> {
        Ok(self.left_for(claim, &self.env.storage.space()?) >= cost(bytes))
    }

    /// Bytes that moved data may take at once. Of a room on network disks: what is kept for it too, as far as the storage can give
    /// another segment.
    pub(crate) fn room_to_move(&self) -> Result<u64> {
        let space = self.env.storage.space()?;
        Ok(match self.env.options.network_backed {
            true => space.available,
            false => self.left_for(Claim::Replace, &space),
        })
    }

    /// Runs a step that moves data: it may take the space that is kept for it.
    pub(crate) fn with_set_aside<T>(&self, bytes: u64, step: impl Fn() -> Result<T>) -> Result<T> {
        if !self.env.options.network_backed {
            return self.replacing(bytes, step);
        }
        match step() {
            Err(Error::NoSpace) => {
                self.make_space()?;
                step()
            }
            other => other,
        }
    }

    /// Frees what was deleted before.
    pub(crate) fn make_space(&self) -> Result<()> {
        if self.commits.is_in_whole() {
            // The commit would wait for this thread. What runs the whole makes space, and tries all of it once more.
            return Err(Error::NoSpace);
        }
        // Whatever was promised, the storage knows better.
        self.budget.store(0, Ordering::SeqCst);
        self.holds.await_release();
        let reaped = self.reaper.reap_all();
        if !matches!(reaped, Err(Error::NoSpace)) {
            reaped?;
            return self.free_discarded();
        }
        // There may be space for that when the rest is free.
        self.free_discarded()?;
        match self.reaper.reap_all() {
            Err(Error::NoSpace) => Ok(()),
            again => again.and_then(|()| self.free_discarded()),
        }
    }

    fn free_discarded(&self) -> Result<()> {
        self.commits.commit_or_defer()?;
        // Only now: what this commit discarded is part of it.
        self.freed.punch_holes();
        self.commits.reclaim()
    }

    /// Runs a change that needs space; where there is none, commits, which frees what was deleted before, and tries
    /// once more.
    pub(crate) fn with_space<T>(&self, bytes: u64, change: impl Fn() -> Result<T>) -> Result<T> {
        self.with_what_is_left(|| self.promise(bytes).and_then(|()| change()))
    }

    /// The same for a change that needs no space but the catalog's, or says itself what it needs.
    pub(crate) fn with_what_is_left<T>(&self, change: impl Fn() -> Result<T>) -> Result<T> {
        match change() {
            Err(Error::NoSpace) => {
                self.make_space()?;
                let again = change();
                if self.env.options.network_backed && matches!(again, Err(Error::NoSpace)) {
                    // Space comes in segments there: dead blocks among live ones make none until these are moved.
                    self.env.requests.ask(|wake| wake.clean = true);
                }
                again
            }
            other => other,
        }
    }

    /// Runs a change that frees as much space as it takes.
    pub(crate) fn replacing<T>(&self, bytes: u64, change: impl Fn() -> Result<T>) -> Result<T> {
        let attempt = || match self.promise(bytes) {
            Err(Error::NoSpace) if self.fits(Claim::Replace, bytes)? => change(),
            promised => promised.and_then(|()| change()),
        };
        match attempt() {
            Err(Error::NoSpace) => {
                self.make_space()?;
                attempt()
            }
            other => other,
        }
    }

    /// Space of the room and of the storage below.
    pub(crate) fn total(&self) -> Result<RoomSpace> {
        let space = self.look()?;
        let accounts = self.blocks.accounts();
        let (live, stored) = (
            accounts.live_blocks() * BLOCK,
            accounts.stored_blocks() * BLOCK,
        );
        drop(accounts);
        let reserved = self.data.reservations().reserved() * BLOCK;
        Ok(RoomSpace {
            total: space.total,
            free: space.free.saturating_sub(reserved),
            available: self.available_in(space).new,
            live,
            stored,
            reserved,
            inodes: self.catalog.get().inode_count()?,
        })
    }

    /// Bytes that can still be written: what was deleted and is not yet punched counts, also from before a crash, for a
    /// writer who needs it has it punched.
    pub(crate) fn available(&self) -> Result<Available> {
        Ok(self.available_in(self.look()?))
    }

    /// Space of the storage below, once files without a name are deleted.
    fn look(&self) -> Result<StorageSpace> {
        if self.holds.has_doomed()
            && let Err(e) = self.reaper.reap_for(REAP)
        {
            tracing::debug!("deleting unlinked files: {e}");
        }
        Ok(self.env.storage.space()?)
    }

    fn available_in(&self, mut space: StorageSpace) -> Available {
        if !self.env.options.network_backed {
            let deleted = self.blocks.accounts().released_blocks() + self.freed.hole_blocks();
            space.available += deleted * BLOCK + self.freed.reclaimable();
        }
        Available {
            new: self.available_of(Claim::New, &space),
            cached: self.available_of(Claim::Cached, &space),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::room_in;

    /// Two such promises made 2^64 bytes together, which were taken for none.
    #[test]
    fn promises_of_more_than_can_be_counted_do_not_fit() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        let space = &room.parts.space;
        assert!(space.reservations_fit().unwrap());
        let one = space.promise_blocks(1 << 51);
        let other = space.promise_blocks(1 << 51);
        assert!(!space.reservations_fit().unwrap());
        drop(one);
        assert!(!space.reservations_fit().unwrap());
        drop(other);
        assert!(space.reservations_fit().unwrap());
    }
}
