//! How long automatic snapshots are kept: a policy, and the pure functions that apply it.
//!
//! 1. A snapshot made by hand is never deleted, and counts for nothing.
//! 2. A period keeps its newest snapshot. The policy says how many periods of each length keep one, counting only periods that have
//!    a snapshot: a room that nobody opens for a month keeps what it has.
//! 3. A snapshot later than now (the clock was wrong) is kept and counts for nothing.
//!
//! It deliberately does not know file systems, clocks or what a snapshot holds.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, RoomSpace, Snapshot, Timestamp};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// The first Monday after the beginning of 1970, in UTC.
const MONDAY: i64 = 4 * DAY;
/// The most of a storage that can be asked to be free, in percent.
const MIN_FREE_MAX: u8 = 99;

/// How many automatic snapshots a room keeps. The newest of a period is kept; only periods that have one count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPolicy {
    /// Hours of which one is kept.
    pub hourly: u32,
    /// Days in UTC, likewise.
    pub daily: u32,
    /// Weeks from Monday in UTC, likewise.
    pub weekly: u32,
    /// With less than this part of the storage free, the oldest go earlier, and none is created; percent, 0 to 99.
    #[serde(default, rename = "min_free")]
    pub min_free_percent: u8,
}

impl SnapshotPolicy {
    /// Refuses a policy that keeps nothing, and one that no storage can fulfil. `InvalidArgument`.
    pub fn check(&self) -> Result<()> {
        if self.shortest().is_none() {
            return Err(Error::InvalidArgument(
                "a snapshot policy keeps something: set hourly, daily or weekly above 0, or clear the policy",
            ));
        }
        if self.min_free_percent > MIN_FREE_MAX {
            return Err(Error::InvalidArgument(
                "a snapshot policy keeps 0 to 99 percent of the storage free",
            ));
        }
        Ok(())
    }

    /// Length of its shortest period in seconds, and a moment at which one begins.
    fn shortest(&self) -> Option<(i64, i64)> {
        self.periods()
            .into_iter()
            .find(|(count, ..)| *count > 0)
            .map(|(_, length, origin)| (length, origin))
    }

    fn periods(&self) -> [(u32, i64, i64); 3] {
        [
            (self.hourly, HOUR, 0),
            (self.daily, DAY, 0),
            (self.weekly, WEEK, MONDAY),
        ]
    }

    /// Whether the present period, of the policy's shortest, has no automatic snapshot yet.
    pub fn is_due(&self, snapshots: &[Snapshot], now: Timestamp) -> bool {
        self.shortest().is_some_and(|shortest| {
            automatic_until(snapshots, now)
                .first()
                .is_none_or(|newest| period(newest.created, shortest) < period(now, shortest))
        })
    }

    /// When the period after the present one begins. `None`: the policy keeps nothing.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.shortest().map(|(length, origin)| {
            let next = period(now, (length, origin)).saturating_add(1);
            Timestamp::new(next.saturating_mul(length).saturating_add(origin), 0)
        })
    }

    /// The snapshots that the policy does not keep, the oldest first. Space is not looked at.
    pub fn expired<'s>(&self, snapshots: &'s [Snapshot], now: Timestamp) -> Vec<&'s Snapshot> {
        let past = automatic_until(snapshots, now);
        let mut kept = BTreeSet::new();
        for (count, length, origin) in self.periods() {
            let mut periods = BTreeSet::new();
            for snapshot in &past {
                if periods.len() >= count as usize {
                    break;
                }
                if periods.insert(period(snapshot.created, (length, origin))) {
                    kept.insert(snapshot.number);
                }
            }
        }
        past.into_iter()
            .rev()
            .filter(|snapshot| !kept.contains(&snapshot.number))
            .collect()
    }

    /// Whether less of the storage is free than the policy asks for, with `freed` bytes more that are free already.
    pub fn is_short(&self, space: &RoomSpace, freed: u64) -> bool {
        let wanted = u128::from(space.total) * u128::from(self.min_free_percent) / 100;
        u128::from(space.available) + u128::from(freed) < wanted
    }
}

fn period(moment: Timestamp, (length, origin): (i64, i64)) -> i64 {
    (moment.secs.saturating_sub(origin)).div_euclid(length)
}

/// The automatic snapshots up to now, the newest first.
pub fn automatic_until(snapshots: &[Snapshot], now: Timestamp) -> Vec<&Snapshot> {
    let mut past: Vec<_> = snapshots
        .iter()
        .filter(|snapshot| snapshot.automatic && snapshot.created <= now)
        .collect();
    past.sort_unstable_by_key(|snapshot| std::cmp::Reverse((snapshot.created, snapshot.number)));
    past
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wednesday, 2026-11-25, 10:30:00 UTC.
    const NOW: i64 = 1_795_602_600;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn policy(hourly: u32, daily: u32, weekly: u32) -> SnapshotPolicy {
        SnapshotPolicy {
            hourly,
            daily,
            weekly,
            min_free_percent: 0,
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

    fn kept(policy: &SnapshotPolicy, snapshots: &[Snapshot]) -> Vec<u64> {
        let gone: BTreeSet<u64> = policy
            .expired(snapshots, at(NOW))
            .into_iter()
            .map(|snapshot| snapshot.number)
            .collect();
        let numbers = snapshots.iter().map(|snapshot| snapshot.number);
        numbers.filter(|number| !gone.contains(number)).collect()
    }

    #[test]
    fn a_period_keeps_its_newest_snapshot() {
        // 10:29, 10:10, 09:59, 09:01, 08:45
        let snapshots = aged([60, 1200, 1860, 5340, 6300]);
        assert_eq!(kept(&policy(1, 0, 0), &snapshots), [1]);
        assert_eq!(kept(&policy(2, 0, 0), &snapshots), [1, 3]);
        assert_eq!(kept(&policy(3, 0, 0), &snapshots), [1, 3, 5]);
        assert_eq!(kept(&policy(24, 0, 0), &snapshots), [1, 3, 5]);
        assert_eq!(kept(&policy(0, 1, 0), &snapshots), [1]);
        assert_eq!(kept(&policy(0, 0, 0), &snapshots), [0; 0]);
    }

    #[test]
    fn what_any_of_the_periods_keeps_is_kept() {
        // Every hour of the last sixty days.
        let snapshots = aged((0..60 * 24).map(|hours| hours * HOUR));
        let kept = kept(&policy(24, 7, 5), &snapshots);
        let ages: Vec<i64> = kept.iter().map(|number| *number as i64 - 1).collect();
        // The last 24 hours, the last snapshots (23:30) of six days before today, and of four weeks before this one (Sundays). Those
        // of the day and of the week so far are the newest.
        let days: Vec<i64> = (0..6).map(|day| 11 + 24 * day).collect();
        let sundays: Vec<i64> = (0..4).map(|week| 11 + 48 + 24 * 7 * week).collect();
        let expected: BTreeSet<i64> = (0..24).chain(days).chain(sundays).collect();
        assert_eq!(ages, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn only_periods_with_a_snapshot_count() {
        // Nothing for a hundred days.
        let snapshots = aged([100 * DAY, 101 * DAY, 102 * DAY]);
        assert_eq!(kept(&policy(0, 2, 0), &snapshots), [1, 2]);
    }

    #[test]
    fn one_made_by_hand_is_never_deleted_and_counts_for_nothing() {
        let mut snapshots = aged([60, 3 * HOUR, 5 * HOUR]);
        snapshots[0].automatic = false;
        snapshots[2].automatic = false;
        assert_eq!(kept(&policy(1, 0, 0), &snapshots), [1, 2, 3]);
        assert_eq!(kept(&policy(0, 0, 0), &snapshots), [1, 3]);
        let may_go = automatic_until(&snapshots, at(NOW));
        assert_eq!(may_go.len(), 1);
        assert_eq!(may_go[0].number, 2);
    }

    #[test]
    fn one_of_the_future_is_kept_and_counts_for_nothing() {
        let snapshots = aged([-1000 * DAY, HOUR, 2 * HOUR]);
        assert_eq!(kept(&policy(1, 0, 0), &snapshots), [1, 2]);
        assert!(policy(1, 0, 0).is_due(&snapshots, at(NOW)));
    }

    #[test]
    fn applying_it_at_every_hour_keeps_what_applying_it_once_would() {
        let policy = policy(24, 7, 5);
        let all = aged((0..60 * 24).map(|hours| hours * HOUR));
        let mut living: Vec<Snapshot> = Vec::new();
        for snapshot in all.iter().rev() {
            living.push(snapshot.clone());
            let gone: Vec<u64> = policy
                .expired(&living, snapshot.created)
                .into_iter()
                .map(|snapshot| snapshot.number)
                .collect();
            living.retain(|snapshot| !gone.contains(&snapshot.number));
        }
        let mut numbers: Vec<u64> = living.iter().map(|snapshot| snapshot.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, kept(&policy, &all));
    }

    #[test]
    fn what_expired_comes_the_oldest_first() {
        let snapshots = aged([60, 2 * HOUR, 5 * HOUR, 4 * HOUR]);
        let policy = policy(1, 0, 0);
        let gone = policy.expired(&snapshots, at(NOW));
        let numbers: Vec<u64> = gone.iter().map(|snapshot| snapshot.number).collect();
        assert_eq!(numbers, [3, 4, 2]);
    }

    #[test]
    fn one_is_due_once_in_the_shortest_period() {
        let hourly = policy(24, 7, 0);
        assert!(hourly.is_due(&[], at(NOW)));
        // 10:00 is of this hour, 09:59 is not.
        assert!(!hourly.is_due(&aged([30 * 60]), at(NOW)));
        assert!(hourly.is_due(&aged([31 * 60]), at(NOW)));
        let daily = policy(0, 7, 5);
        assert!(!daily.is_due(&aged([10 * HOUR]), at(NOW)));
        assert!(daily.is_due(&aged([11 * HOUR]), at(NOW)));
        // Monday was two days ago.
        let weekly = policy(0, 0, 5);
        assert!(!weekly.is_due(&aged([2 * DAY + 10 * HOUR]), at(NOW)));
        assert!(weekly.is_due(&aged([2 * DAY + 11 * HOUR]), at(NOW)));
        assert!(!policy(0, 0, 0).is_due(&[], at(NOW)));
        // One by hand does not do instead.
        let mut by_hand = aged([60]);
        by_hand[0].automatic = false;
        assert!(hourly.is_due(&by_hand, at(NOW)));
    }

    #[test]
    fn the_earliest_and_the_latest_moment_overflow_nothing() {
        let mut snapshots = aged([0, 0]);
        snapshots[0].created = at(i64::MIN);
        snapshots[1].created = at(i64::MAX);
        let policy = policy(1, 1, 1);
        assert!(policy.expired(&snapshots, at(i64::MAX)).len() == 1);
        assert!(!policy.is_due(&snapshots, at(i64::MIN)));
        for moment in [i64::MIN, i64::MAX] {
            assert!(policy.next_due(at(moment)).is_some());
        }
    }

    #[test]
    fn the_next_one_is_due_when_the_next_period_begins() {
        let next = |policy: SnapshotPolicy| policy.next_due(at(NOW)).map(|next| next.secs - NOW);
        assert_eq!(next(policy(24, 7, 5)), Some(30 * 60));
        assert_eq!(next(policy(0, 7, 5)), Some(13 * HOUR + 30 * 60));
        // The Monday after this Wednesday.
        assert_eq!(next(policy(0, 0, 5)), Some(4 * DAY + 13 * HOUR + 30 * 60));
        assert_eq!(next(policy(0, 0, 0)), None);
        // At its very beginning it is that period's turn, and the next one is a whole period away.
        let begins = at(NOW + 30 * 60);
        assert_eq!(
            policy(1, 0, 0).next_due(begins),
            Some(at(begins.secs + HOUR))
        );
    }

    #[test]
    fn what_keeps_nothing_or_all_of_a_storage_is_refused() {
        policy(0, 0, 1).check().unwrap();
        let nearly_all = SnapshotPolicy {
            min_free_percent: 99,
            ..policy(1, 0, 0)
        };
        nearly_all.check().unwrap();
        policy(0, 0, 0).check().unwrap_err();
        let all = SnapshotPolicy {
            min_free_percent: 100,
            ..policy(1, 0, 0)
        };
        all.check().unwrap_err();
    }
}
