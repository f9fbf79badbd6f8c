//! A policy of snapshots as a room stores it, and what goes by it.
//!
//! 1. What the policy does not keep goes first. Then, for the sake of free space, the oldest, and only while that can free any. What earlier
//!    deletions still free counts as free.
//!
//! It deliberately does not know rooms or clocks.

use model::{RoomSpace, Snapshot, SnapshotPolicy, Timestamp, automatic_until};

use super::SnapshotSpace;
use super::held::{Held, numbers};
use crate::{Error, Result};

/// As it is stored.
pub(crate) fn to_json(policy: &SnapshotPolicy) -> Vec<u8> {
    // Numbers under fixed names.
    serde_json::to_vec(policy).expect("our own policies are JSON")
}

/// `NotSupported` where it is not one of this version.
pub(crate) fn from_json(text: &[u8]) -> Result<SnapshotPolicy> {
    let policy: Option<SnapshotPolicy> = serde_json::from_slice(text).ok();
    policy
        .filter(|policy| policy.check().is_ok())
        .ok_or(Error::NotSupported(
            "the room's snapshot policy is of a newer version: set it again",
        ))
}

/// What goes of these snapshots, which are all: first those that the policy does not keep, then the oldest while too little is free.
/// Each with the bytes that are freed when those before it are gone too.
pub(crate) fn deletions(
    policy: &SnapshotPolicy,
    snapshots: &[Snapshot],
    held: &Held,
    space: &RoomSpace,
    now: Timestamp,
) -> Vec<(Snapshot, SnapshotSpace)> {
    let mut deletions = Deletions::of(snapshots, held);
    for snapshot in policy.expired(snapshots, now) {
        deletions.add(snapshot);
    }
    let oldest_first = automatic_until(snapshots, now).into_iter().rev();
    let may_go: Vec<_> = oldest_first
        .filter(|snapshot| deletions.left.contains(&snapshot.number))
        .collect();
    // Where the others hold all there is, none of these can help.
    let most = held.seen_by_none(&without(&deletions.left, &may_go));
    for snapshot in may_go {
        if deletions.freed >= most || !policy.is_short(space, deletions.freed) {
            break;
        }
        deletions.add(snapshot);
    }
    deletions.gone
}

/// Deletions that are chosen one by one.
struct Deletions<'h> {
    held: &'h Held,
    /// Numbers of the snapshots that are left, which rise.
    left: Vec<u64>,
    /// Bytes that none of those sees.
    freed: u64,
    gone: Vec<(Snapshot, SnapshotSpace)>,
}

impl<'h> Deletions<'h> {
    fn of(snapshots: &[Snapshot], held: &'h Held) -> Self {
        let left = numbers(snapshots);
        Self {
            freed: held.seen_by_none(&left),
            held,
            left,
            gone: Vec::new(),
        }
    }

    fn add(&mut self, snapshot: &Snapshot) {
        self.left = without(&self.left, &[snapshot]);
        let freed = self.held.seen_by_none(&self.left);
        let exclusive = freed.saturating_sub(self.freed);
        self.freed = freed;
        self.gone
            .push((snapshot.clone(), SnapshotSpace { exclusive }));
    }
}

fn without(numbers: &[u64], gone: &[&Snapshot]) -> Vec<u64> {
    let stays = |number: &&u64| !gone.iter().any(|snapshot| snapshot.number == **number);
    numbers.iter().filter(stays).copied().collect()
}

#[cfg(test)]
mod tests {
    use catalog::SpaceRow;

    use super::*;
    use crate::blocks::BLOCK;

    const HOUR: i64 = 3600;
    /// Wednesday, 2026-11-25, 10:30:00 UTC.
    const NOW: i64 = 1_795_602_600;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn hourly(hours: u32, min_free_percent: u8) -> SnapshotPolicy {
        SnapshotPolicy {
            hourly: hours,
            min_free_percent,
            ..SnapshotPolicy::default()
        }
    }

    /// Automatic snapshots of these ages in seconds, numbered from 1.
    fn aged(ages: impl IntoIterator<Item = i64>) -> Vec<Snapshot> {
        ages.into_iter()
            .zip(1..)
            .map(|(age, number)| Snapshot {
                number,
                name: number.to_string(),
                created: at(NOW - age),
                automatic: true,
            })
            .collect()
    }

    #[test]
    fn what_others_may_have_stored_is_read_or_refused() {
        let policy = hourly(1, 99);
        assert_eq!(from_json(&to_json(&policy)).unwrap(), policy);
        let earlier = br#"{"hourly":1,"daily":0,"weekly":0}"#;
        assert_eq!(from_json(earlier).unwrap(), hourly(1, 0));
        for other in [
            &b"{}"[..],
            br#"{"hourly":1,"daily":0,"weekly":0,"yearly":1}"#,
            br#"{"hourly":0,"daily":0,"weekly":0}"#,
            br#"{"hourly":1,"daily":0,"weekly":0,"min_free":100}"#,
        ] {
            assert!(matches!(from_json(other), Err(Error::NotSupported(_))));
        }
    }

    /// A storage of 1,000 blocks, of which so many are free.
    fn space(available: u64) -> RoomSpace {
        RoomSpace {
            total: 1000 * BLOCK,
            available: available * BLOCK,
            ..RoomSpace::default()
        }
    }

    /// Number and freed blocks of each that goes where 10 % are to be free.
    fn gone(snapshots: &[Snapshot], held: &[(u64, u64, i64)], available: u64) -> Vec<(u64, u64)> {
        let rows = held.iter().map(|(since, until, blocks)| SpaceRow {
            since: *since,
            until: *until,
            blocks: *blocks,
        });
        let held = Held::new(rows.collect());
        let gone = deletions(
            &hourly(24, 10),
            snapshots,
            &held,
            &space(available),
            at(NOW),
        );
        gone.into_iter()
            .map(|(snapshot, space)| (snapshot.number, space.exclusive / BLOCK))
            .collect()
    }

    #[test]
    fn the_oldest_go_while_too_little_is_free_and_no_longer() {
        let snapshots = aged([5 * HOUR, 4 * HOUR, 3 * HOUR, 2 * HOUR]);
        let held = [(0, 1, 10), (1, 2, 20), (2, 3, 40), (3, 4, 80)];
        assert_eq!(gone(&snapshots, &held, 100), []);
        assert_eq!(gone(&snapshots, &held, 99), [(1, 10)]);
        assert_eq!(gone(&snapshots, &held, 90), [(1, 10)]);
        assert_eq!(gone(&snapshots, &held, 89), [(1, 10), (2, 20)]);
        assert_eq!(
            gone(&snapshots, &held, 0),
            [(1, 10), (2, 20), (3, 40), (4, 80)]
        );
        // What two of them hold together is freed with the second.
        assert_eq!(gone(&snapshots, &[(0, 2, 50)], 90), [(1, 0), (2, 50)]);
    }

    #[test]
    fn what_an_earlier_deletion_still_frees_is_free_already() {
        // Number 5 is deleted, and not merged yet.
        let snapshots = aged([5 * HOUR, 4 * HOUR]);
        assert_eq!(gone(&snapshots, &[(0, 1, 10), (2, 5, 50)], 50), []);
        assert_eq!(gone(&snapshots, &[(0, 1, 10), (2, 5, 50)], 49), [(1, 10)]);
    }

    #[test]
    fn none_goes_for_space_that_it_cannot_free() {
        let mut snapshots = aged([5 * HOUR, 4 * HOUR, 3 * HOUR]);
        snapshots[0].automatic = false;
        // All is held by the one made by hand, alone or with the next.
        assert_eq!(gone(&snapshots, &[(0, 1, 500), (0, 2, 500)], 0), []);
        // The second frees something, the third nothing more.
        assert_eq!(gone(&snapshots, &[(0, 1, 500), (1, 2, 1)], 0), [(2, 1)]);
    }
}
