//! Snapshots: the whole room at one moment, under a name.
//!
//! 1. A snapshot is created between two changes, with everything in memory handed to the catalog, and is durable when its name is
//!    returned. From then on [`keep`](crate::data) keeps what it sees.
//! 2. A deleted snapshot is marked in the catalog, and goes by bounded steps, each whole by itself: a crash loses none of them.
//!
//! `delete` has these steps, `view` reads in a snapshot, `removed` finds what only snapshots have, `held` says how much they hold.
//! `automatic` creates and deletes snapshots by a `policy`. It deliberately does not know how a chunk's blocks are kept.

mod automatic;
mod delete;
mod held;
pub(crate) mod policy;
mod removed;
mod view;

use std::sync::Arc;
use std::time::Duration;

use catalog::{Change, SnapshotRow};
use model::{Snapshot, check_snapshot_name};
use parking_lot::{Mutex, MutexGuard};

use crate::blocks::Blocks;
use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::reap::Reaper;
use crate::space::Space;
use crate::{Error, Result};
pub use automatic::PolicyReport;
use held::{Held, numbers};
pub use removed::Removed;
pub(crate) use view::SnapshotView;

/// How long files without a name are deleted before a snapshot: their data would be kept for it.
const REAP: Duration = Duration::from_millis(10);
/// Bytes that the rows of a snapshot take.
const ROW_COST: u64 = 4096;

/// A snapshot to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewSnapshot {
    /// A retention policy creates it, and may delete it. By default it is created by hand.
    pub automatic: bool,
}

/// What a snapshot holds of the room's space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotSpace {
    /// Bytes that neither the room nor another snapshot refers to: what deleting this one alone frees. Data that was copied
    /// with [`copy_range`](crate::FileSystem::copy_range), or moved within its file, can be counted though another file still
    /// refers to it.
    pub exclusive: u64,
}

/// The snapshots of an open room.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) space: Arc<Space>,
    /// Held while snapshots are created, renamed or deleted: names stay as they are.
    pub(crate) names: Mutex<()>,
    /// Held for one step of a deletion.
    pub(crate) deleting: Mutex<()>,
    /// Held while a policy is applied: a period gets one snapshot, however many apply it.
    pub(crate) applying: Mutex<()>,
}

impl Past {
    /// All that are not deleted, by number.
    pub(crate) fn list(&self) -> Vec<Snapshot> {
        let rows = self.catalog.get().snapshots();
        let there = rows.iter().filter(|row| !row.doomed);
        there.map(|row| row.snapshot.clone()).collect()
    }

    /// While this is held, nothing that is kept for deleted snapshots moves.
    pub(crate) fn hold_still(&self) -> MutexGuard<'_, ()> {
        self.deleting.lock()
    }

    /// The snapshot of a name.
    pub(crate) fn find(&self, name: &str) -> Result<SnapshotRow> {
        let rows = self.catalog.get().snapshots();
        let mut there = rows.iter().filter(|row| !row.doomed);
        let found = there.find(|row| row.snapshot.name == name);
        found.cloned().ok_or(Error::NotFound)
    }

    pub(crate) fn create(&self, name: &str, new: NewSnapshot) -> Result<Snapshot> {
        self.check_changeable()?;
        check_snapshot_name(name)?;
        // What nobody can find any more would be kept for as long as the snapshot.
        self.reaper.reap_for(REAP)?;
        let _names = self.names.lock();
        if self.find(name).is_ok() {
            return Err(Error::Exists);
        }
        let created = std::cell::RefCell::new(None);
        let done = self.space.with_space(ROW_COST, || {
            // A program that does not know snapshots refuses the catalog from the first commit with one on.
            let first = self.catalog.get().snapshots().is_empty();
            self.commits.mark_moment(first, || {
                if created.borrow().is_some() {
                    // Done, and found no space to become durable.
                    return Ok(());
                }
                // Not before: who waits for the moment would keep a rekey from replacing it.
                let catalog = self.catalog.get();
                let row = catalog.new_snapshot(name, self.env.now(), new.automatic);
                catalog.apply(&[Change::CreateSnapshot(&row)])?;
                self.data.note_snapshots();
                *created.borrow_mut() = Some(row.snapshot);
                Ok(())
            })
        });
        match (done, created.into_inner()) {
            (Ok(()), Some(snapshot)) => Ok(snapshot),
            (Err(e), Some(snapshot)) => {
                // The caller does not know of it.
                let doomed = self.doom(snapshot.number);
                tracing::warn!("a snapshot could not be made durable: {e}");
                doomed.and(Err(e))
            }
            (done, None) => Err(done.err().unwrap_or(Error::Poisoned)),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_changeable()?;
        check_snapshot_name(to)?;
        let _names = self.names.lock();
        let row = self.find(from)?;
        if from == to {
            return Ok(());
        }
        if self.find(to).is_ok() {
            return Err(Error::Exists);
        }
        self.change(&[Change::RenameSnapshot {
            no: row.no(),
            name: to,
        }])
    }

    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        self.check_changeable()?;
        let _names = self.names.lock();
        let row = self.find(name)?;
        self.doom(row.no())
    }

    fn doom(&self, no: u64) -> Result<()> {
        let doomed = self.change(&[Change::DoomSnapshot(no)]);
        self.env.requests.ask(|wake| wake.merge = true);
        doomed
    }

    /// Applies a change of the list, and makes it durable.
    fn change(&self, changes: &[Change<'_>]) -> Result<()> {
        {
            let _change = self.commits.change()?;
            self.catalog.get().apply(changes)?;
        }
        self.commits.sync()
    }

    fn check_changeable(&self) -> Result<()> {
        if self.env.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.commits.check_poison()?;
        self.commits.check_no_transaction()
    }

    /// The space that each snapshot alone holds, and the space that all hold together, in bytes.
    pub(crate) fn space(&self) -> Result<(Vec<(Snapshot, SnapshotSpace)>, u64)> {
        let (snapshots, held) = self.account()?;
        let numbers = numbers(&snapshots);
        let space = |(index, snapshot)| {
            let exclusive = held.exclusive(&numbers, index);
            (snapshot, SnapshotSpace { exclusive })
        };
        let each = snapshots.into_iter().enumerate().map(space).collect();
        Ok((each, held.total()))
    }

    /// All snapshots, and what they hold, at one moment.
    fn account(&self) -> Result<(Vec<Snapshot>, Held)> {
        if self.catalog.get().snapshots().is_empty() {
            return Ok(Default::default());
        }
        // What is in memory counts too.
        self.commits.at_rest(|| {
            let rows = self.catalog.get().snapshot_space_rows()?;
            Ok((self.list(), Held::new(rows)))
        })
    }
}
