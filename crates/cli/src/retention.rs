//! How long automatic snapshots are kept: a policy, and the pure functions that apply it.
//!
//! 1. A snapshot made by hand is never deleted, and counts for nothing.
//! 2. A period keeps its newest snapshot. The policy says how many periods of each length keep one, counting only periods that have
//!    a snapshot: a room that nobody mounts for a month keeps what it has.
//! 3. A snapshot later than now (the clock was wrong) is kept and counts for nothing.
//!
//! It deliberately does not know rooms or clocks.

use std::collections::BTreeSet;

use room::{Snapshot, Timestamp};
use serde::{Deserialize, Serialize};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// The first Monday after the beginning of 1970, in UTC.
const MONDAY: i64 = 4 * DAY;

/// How many automatic snapshots a room keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Hours of which one is kept.
    pub(crate) hourly: u32,
    /// Days, likewise.
    pub(crate) daily: u32,
    /// Weeks, from Monday, likewise.
    pub(crate) weekly: u32,
    /// With less than this part of the disk free, the oldest go earlier; percent, 0 to 99.
    #[serde(default)]
    pub(crate) min_free: u8,
}

impl Policy {
    /// Whether it keeps anything.
    pub(crate) fn keeps_any(&self) -> bool {
        self.hourly > 0 || self.daily > 0 || self.weekly > 0
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
}

fn period(moment: Timestamp, (length, origin): (i64, i64)) -> i64 {
    (moment.secs.saturating_sub(origin)).div_euclid(length)
}

/// The automatic snapshots up to now, the newest first.
fn past(snapshots: &[Snapshot], now: Timestamp) -> Vec<&Snapshot> {
    let mut past: Vec<_> = snapshots
        .iter()
        .filter(|snapshot| snapshot.automatic && snapshot.created <= now)
        .collect();
    past.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.created, snapshot.number)));
    past
}

/// The snapshots that the policy does not keep, the oldest first. Space is not looked at.
pub(crate) fn expired<'s>(
    policy: &Policy,
    snapshots: &'s [Snapshot],
    now: Timestamp,
) -> Vec<&'s Snapshot> {
    let past = past(snapshots, now);
    let mut kept = BTreeSet::new();
    for (count, length, origin) in policy.periods() {
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

/// The automatic snapshots that may go for the sake of free space, the oldest first.
pub(crate) fn oldest_first(snapshots: &[Snapshot], now: Timestamp) -> Vec<&Snapshot> {
    let mut oldest = past(snapshots, now);
    oldest.reverse();
    oldest
}

/// Whether the present period, of the policy's shortest, has no automatic snapshot yet.
pub(crate) fn is_due(policy: &Policy, snapshots: &[Snapshot], now: Timestamp) -> bool {
    policy.shortest().is_some_and(|shortest| {
        past(snapshots, now)
            .first()
            .is_none_or(|newest| period(newest.created, shortest) < period(now, shortest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wednesday, 2026-11-25, 10:30:00 UTC.
    const NOW: i64 = 1_795_602_600;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn policy(hourly: u32, daily: u32, weekly: u32) -> Policy {
        Policy {
            hourly,
            daily,
            weekly,
            min_free: 0,
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

    fn kept(policy: &Policy, snapshots: &[Snapshot]) -> Vec<u64> {
        let gone: BTreeSet<u64> = expired(policy, snapshots, at(NOW))
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
        let may_go = oldest_first(&snapshots, at(NOW));
        assert_eq!(may_go.len(), 1);
        assert_eq!(may_go[0].number, 2);
    }

    #[test]
    fn one_of_the_future_is_kept_and_counts_for_nothing() {
        let snapshots = aged([-1000 * DAY, HOUR, 2 * HOUR]);
        assert_eq!(kept(&policy(1, 0, 0), &snapshots), [1, 2]);
        assert!(is_due(&policy(1, 0, 0), &snapshots, at(NOW)));
    }

    #[test]
    fn applying_it_at_every_hour_keeps_what_applying_it_once_would() {
        let policy = policy(24, 7, 5);
        let all = aged((0..60 * 24).map(|hours| hours * HOUR));
        let mut living: Vec<Snapshot> = Vec::new();
        for snapshot in all.iter().rev() {
            living.push(snapshot.clone());
            let gone: Vec<u64> = expired(&policy, &living, snapshot.created)
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
        let gone = expired(&policy(1, 0, 0), &snapshots, at(NOW));
        let numbers: Vec<u64> = gone.iter().map(|snapshot| snapshot.number).collect();
        assert_eq!(numbers, [3, 4, 2]);
    }

    #[test]
    fn one_is_due_once_in_the_shortest_period() {
        let hourly = policy(24, 7, 0);
        assert!(is_due(&hourly, &[], at(NOW)));
        // 10:00 is of this hour, 09:59 is not.
        assert!(!is_due(&hourly, &aged([30 * 60]), at(NOW)));
        assert!(is_due(&hourly, &aged([31 * 60]), at(NOW)));
        let daily = policy(0, 7, 5);
        assert!(!is_due(&daily, &aged([10 * HOUR]), at(NOW)));
        assert!(is_due(&daily, &aged([11 * HOUR]), at(NOW)));
        // Monday was two days ago.
        let weekly = policy(0, 0, 5);
        assert!(!is_due(&weekly, &aged([2 * DAY + 10 * HOUR]), at(NOW)));
        assert!(is_due(&weekly, &aged([2 * DAY + 11 * HOUR]), at(NOW)));
        assert!(!is_due(&policy(0, 0, 0), &[], at(NOW)));
        // One by hand does not do instead.
        let mut by_hand = aged([60]);
        by_hand[0].automatic = false;
        assert!(is_due(&hourly, &by_hand, at(NOW)));
    }

    #[test]
    fn the_earliest_and_the_latest_moment_overflow_nothing() {
        let mut snapshots = aged([0, 0]);
        snapshots[0].created = at(i64::MIN);
        snapshots[1].created = at(i64::MAX);
        let policy = policy(1, 1, 1);
        assert!(expired(&policy, &snapshots, at(i64::MAX)).len() == 1);
        assert!(!is_due(&policy, &snapshots, at(i64::MIN)));
    }
}
