//! Automatic snapshots: created when a policy says that one is due, deleted when it does not keep them.
//!
//! 1. Only automatic snapshots are deleted, and by their numbers: a name may be another snapshot's by then.
//! 2. Each step is durable by itself. A crash between two of them leaves work for the next time, which comes to the same.
//!
//! It deliberately does not know where the policy is stored, nor who asks.

use model::{Snapshot, SnapshotPolicy, Timestamp};

use super::held::numbers;
use super::policy::deletions;
use super::{NewSnapshot, Past, SnapshotSpace};
use crate::{Error, Result};

/// How the names of automatic snapshots begin.
const AUTOMATIC: &str = "auto-";
/// How many snapshots of one second get a name by themselves.
const NAMES_MAX: u32 = 100;

/// What applying a policy did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyReport {
    /// The automatic snapshot that was due.
    pub created: Option<Snapshot>,
    /// The automatic snapshots that the policy does not keep, with the bytes that deleting them frees.
    pub deleted: Vec<(Snapshot, SnapshotSpace)>,
    /// When the next automatic snapshot is due. `None`: there is no policy.
    pub next_due: Option<Timestamp>,
}

impl Past {
    /// Creates a snapshot with a name of this beginning and the time.
    pub(crate) fn create_by_time(&self, beginning: &str, new: NewSnapshot) -> Result<Snapshot> {
        let time = time_in_name(self.env.now());
        let mut name = format!("{beginning}{time}");
        for number in 2..NAMES_MAX {
            match self.create(&name, new) {
                Err(Error::Exists) => name = format!("{beginning}{time}-{number}"),
                other => return other,
            }
        }
        self.create(&name, new)
    }

    pub(crate) fn apply(&self, policy: &SnapshotPolicy) -> Result<PolicyReport> {
        self.check_changeable()?;
        let _one = self.applying.lock();
        let now = self.env.now();
        let mut created = None;
        // Where too little is free, a new one would be the next to go.
        if policy.is_due(&self.list(), now) && !self.is_short(policy)? {
            let new = NewSnapshot { automatic: true };
            created = Some(self.create_by_time(AUTOMATIC, new)?);
        }
        let looked = created.as_ref().map_or(now, |snapshot| snapshot.created);
        Ok(PolicyReport {
            created,
            deleted: self.prune_now(policy)?,
            next_due: policy.next_due(looked),
        })
    }

    /// Deletes what the policy does not keep, and returns it; `dry_run`: deletes nothing.
    pub(crate) fn prune(
        &self,
        policy: &SnapshotPolicy,
        dry_run: bool,
    ) -> Result<Vec<(Snapshot, SnapshotSpace)>> {
        policy.check()?;
        if dry_run {
            return self.deletions(policy);
        }
        self.check_changeable()?;
        let _one = self.applying.lock();
        self.prune_now(policy)
    }

    fn prune_now(&self, policy: &SnapshotPolicy) -> Result<Vec<(Snapshot, SnapshotSpace)>> {
        let mut deleted = Vec::new();
        for (snapshot, space) in self.deletions(policy)? {
            if self.delete_automatic(snapshot.number)? {
                deleted.push((snapshot, space));
            }
        }
        Ok(deleted)
    }

    fn deletions(&self, policy: &SnapshotPolicy) -> Result<Vec<(Snapshot, SnapshotSpace)>> {
        let (space, now) = (self.space.total()?, self.env.now());
        if !policy.is_short(&space, 0) && policy.expired(&self.list(), now).is_empty() {
            // So it is nearly always, and no change waits for the account.
            return Ok(Vec::new());
        }
        let (snapshots, held) = self.account()?;
        Ok(deletions(policy, &snapshots, &held, &space, now))
    }

    fn is_short(&self, policy: &SnapshotPolicy) -> Result<bool> {
        let space = self.space.total()?;
        if !policy.is_short(&space, 0) {
            return Ok(false);
        }
        let (snapshots, held) = self.account()?;
        Ok(policy.is_short(&space, held.seen_by_none(&numbers(&snapshots))))
    }

    /// False where there is no automatic snapshot of this number any more.
    fn delete_automatic(&self, number: u64) -> Result<bool> {
        let _names = self.names.lock();
        let all = self.list();
        let mut automatic = all.iter().filter(|snapshot| snapshot.automatic);
        let is_there = automatic.any(|snapshot| snapshot.number == number);
        if is_there {
            self.doom(number)?;
        }
        Ok(is_there)
    }
}

/// A moment in UTC as part of a name; its seconds where no calendar has it.
fn time_in_name(moment: Timestamp) -> String {
    jiff::Timestamp::from_second(moment.secs).map_or_else(
        |_| moment.secs.to_string(),
        |time| time.strftime("%Y-%m-%dT%H.%M.%SZ").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_a_name_is_one_of_the_calendar() {
        let named = |secs| time_in_name(Timestamp { secs, nanos: 9 });
        assert_eq!(named(1_795_316_645), "2026-11-22T03.04.05Z");
        assert_eq!(named(-1), "1969-12-31T23.59.59Z");
        assert_eq!(named(i64::MAX), i64::MAX.to_string());
        for secs in [i64::MIN, 0, i64::MAX] {
            model::check_snapshot_name(&named(secs)).unwrap();
        }
    }
}
