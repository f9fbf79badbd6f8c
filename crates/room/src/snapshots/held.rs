//! How much space snapshots hold, by who sees it: the catalog's account, asked.
//!
//! A block that was written after snapshot `since`, and is kept up to `until`, is seen by the snapshots with `since < number <= until`.
//! It deliberately does not know how blocks are kept.

use catalog::SpaceRow;
use model::Snapshot;

use crate::blocks::BLOCK;

/// What snapshots hold. Numbers of snapshots that it is asked about are of all that are not deleted, and rise.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<SpaceRow>);

/// The numbers of snapshots.
pub(crate) fn numbers(snapshots: &[Snapshot]) -> Vec<u64> {
    snapshots.iter().map(|snapshot| snapshot.number).collect()
}

impl Held {
    pub(crate) fn new(rows: Vec<SpaceRow>) -> Self {
        Self(rows)
    }

    /// Bytes that they hold in all.
    pub(crate) fn total(&self) -> u64 {
        self.bytes(|_| true)
    }

    /// Bytes that the snapshot at `index` of these numbers alone holds.
    pub(crate) fn exclusive(&self, numbers: &[u64], index: usize) -> u64 {
        let own = numbers[index];
        let before = index.checked_sub(1).map_or(0, |before| numbers[before]);
        let behind = numbers.get(index + 1).copied().unwrap_or(u64::MAX);
        self.bytes(|row| (before..own).contains(&row.since) && (own..behind).contains(&row.until))
    }

    /// Bytes that no snapshot of these numbers sees: what is freed in the background, were they all there are.
    pub(crate) fn seen_by_none(&self, numbers: &[u64]) -> u64 {
        self.bytes(|row| {
            let first = numbers.partition_point(|number| *number <= row.since);
            numbers.get(first).is_none_or(|number| *number > row.until)
        })
    }

    fn bytes(&self, counts: impl Fn(&SpaceRow) -> bool) -> u64 {
        let rows = self.0.iter().filter(|row| counts(row));
        let blocks: i64 = rows.map(|row| row.blocks).sum();
        // Negative only in a damaged catalog.
        u64::try_from(blocks).unwrap_or(0) * BLOCK
    }
}
