//! Snapshots by their numbers: open ones are kept, so that a request inside one does not look for its name.
//!
//! A number means the same snapshot for ever, a name does not.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Error, FileSystem, Result, Snapshot, Snapshots};
use parking_lot::RwLock;

/// A file system as it was.
pub(super) type View = Arc<dyn FileSystem>;

/// The snapshots of a file system.
#[derive(Debug)]
pub(super) struct Views {
    of: Arc<dyn Snapshots>,
    open: RwLock<HashMap<u64, View>>,
}

impl Views {
    pub(super) fn new(of: Arc<dyn Snapshots>) -> Self {
        Self {
            of,
            open: RwLock::default(),
        }
    }

    /// The live file system.
    pub(super) fn live(&self) -> &dyn Snapshots {
        &*self.of
    }

    /// All snapshots, by number. Those that are gone are closed.
    pub(super) fn list(&self) -> Result<Vec<Snapshot>> {
        let snapshots = self.of.snapshots()?;
        let is_gone = |number: &u64| {
            let found = snapshots.binary_search_by_key(number, |s| s.number);
            found.is_err()
        };
        if self.open.read().keys().any(is_gone) {
            self.open.write().retain(|number, _| !is_gone(number));
        }
        Ok(snapshots)
    }

    /// The snapshot of this number. `Stale` where it is gone.
    pub(super) fn by_number(&self, number: u64) -> Result<View> {
        if let Some(view) = self.open.read().get(&number) {
            return Ok(view.clone());
        }
        let snapshots = self.list()?;
        let snapshot = snapshots.iter().find(|s| s.number == number);
        self.open(snapshot.ok_or(Error::Stale)?)
    }

    /// The snapshot that had this name and number a moment ago. `Stale` where it is gone or has another name.
    pub(super) fn open(&self, snapshot: &Snapshot) -> Result<View> {
        if let Some(view) = self.open.read().get(&snapshot.number) {
            return Ok(view.clone());
        }
        let view = self.of.snapshot(&snapshot.name).map_err(|e| match e {
            Error::NotFound => Error::Stale,
            e => e,
        })?;
        // Otherwise the name may have been another snapshot's in between.
        let is_same = |s: &Snapshot| s.number == snapshot.number && s.name == snapshot.name;
        if !self.of.snapshots()?.iter().any(is_same) {
            return Err(Error::Stale);
        }
        self.open.write().insert(snapshot.number, view.clone());
        Ok(view)
    }
}
