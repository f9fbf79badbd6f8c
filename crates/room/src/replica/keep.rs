//! Which snapshots a replica keeps that its room has deleted.
//!
//! 1. A snapshot stays if either of the two rules says so: it is young enough, or it is the newest of one of the periods.
//! 2. Periods count every snapshot that the replica has, made by hand or not: to the replica, all of them are moments of the room.
//! 3. The present is the moment that the replica is brought to, not a clock's: a transfer does the same whenever it is applied.
//!
//! It deliberately does not delete anything.

use catalog::{SnapshotRow, Timestamp, latest};
use model::{Snapshot, SnapshotPolicy};

/// Which snapshots a replica keeps although the room has deleted them. By default none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Those that were created since then.
    pub since: Option<Timestamp>,
    /// The newest of each of the last hours, days and weeks that have one. Free space is not looked at.
    pub periods: Option<SnapshotPolicy>,
}

impl Keep {
    /// Whether a snapshot may stay. With periods that is known only among all the others.
    pub(super) fn may_stay(&self, created: Timestamp) -> bool {
        self.periods.is_some() || self.is_young(created)
    }

    fn is_young(&self, created: Timestamp) -> bool {
        self.since.is_some_and(|since| created >= since)
    }

    /// Of all snapshots of a replica, the numbers of those that neither a period nor their age keeps. None where no periods are asked for.
    pub(super) fn expired(&self, rows: &[SnapshotRow]) -> Vec<u64> {
        let (Some(periods), Some(newest)) = (self.periods, latest(rows)) else {
            return Vec::new();
        };
        let there = rows.iter().filter(|row| !row.doomed);
        let all: Vec<Snapshot> = there
            .map(|row| Snapshot {
                automatic: true,
                ..row.snapshot.clone()
            })
            .collect();
        periods
            .expired(&all, newest.snapshot.created)
            .into_iter()
            .filter(|snapshot| !self.is_young(snapshot.created))
            .map(|snapshot| snapshot.number)
            .collect()
    }
}
