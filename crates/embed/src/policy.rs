//! The policy for automatic snapshots of an open room: set, shown, applied.
//!
//! 1. A snapshot made by hand is never deleted.
//! 2. Nothing happens by itself: the program says when. It alone knows when its files belong together, and whether it may work at all.

use room::{SnapshotPolicy, SnapshotSpace, Timestamp};

use crate::{Error, Result, Session, SnapshotInfo};

/// What applying a policy did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyReport {
    /// The automatic snapshot that was due.
    pub created: Option<SnapshotInfo>,
    /// The automatic snapshots that the policy does not keep any more, the oldest first, with what was freed.
    pub deleted: Vec<SnapshotInfo>,
    /// When the next automatic snapshot is due. `None`: the room has no policy.
    pub next_due: Option<Timestamp>,
}

impl Session {
    /// The room's policy for automatic snapshots; `None`: it has none. Not supported where a newer version set it.
    pub fn snapshot_policy(&self) -> Result<Option<SnapshotPolicy>> {
        Ok(self.0.room()?.room().snapshot_policy()?)
    }

    /// Sets the policy, durable when this returns. Nothing is created or deleted before it is applied: by this program, or by a mount of
    /// the room. Invalid argument where it keeps nothing, or asks for more than 99 % of the storage; busy within a transaction;
    /// read-only.
    pub fn set_snapshot_policy(&self, policy: &SnapshotPolicy) -> Result<()> {
        let room = self.0.room()?;
        Ok(room.changeable()?.set_snapshot_policy(Some(policy))?)
    }

    /// Removes the policy. Its snapshots stay. Busy within a transaction; read-only.
    pub fn clear_snapshot_policy(&self) -> Result<()> {
        let room = self.0.room()?;
        Ok(room.changeable()?.set_snapshot_policy(None)?)
    }

    /// Does what the policy asks for now: creates an automatic snapshot where the present hour, day or week has none, and deletes
    /// the automatic ones that it does not keep. Call it now and then, and when your files belong together; more often than needed costs
    /// next to nothing. Without a policy nothing is done. Busy within a transaction; read-only; no space.
    pub fn apply_snapshot_policy(&self) -> Result<PolicyReport> {
        let room = self.0.room()?;
        let report = room.changeable()?.apply_snapshot_policy()?;
        // New, it holds nothing.
        let created = report.created.map(|new| (new, SnapshotSpace::default()));
        Ok(PolicyReport {
            created: created.map(SnapshotInfo::from),
            deleted: report.deleted.into_iter().map(SnapshotInfo::from).collect(),
            next_due: report.next_due,
        })
    }

    /// Deletes the automatic snapshots that the policy does not keep, and creates none. Returns them, the oldest first, each with what is
    /// freed. `dry_run`: deletes nothing. Not found where the room has no policy; busy within a transaction; read-only.
    pub fn prune_snapshots(&self, dry_run: bool) -> Result<Vec<SnapshotInfo>> {
        let room = self.0.room()?;
        let room = match dry_run {
            true => room.room(),
            false => room.changeable()?,
        };
        let policy = room.snapshot_policy()?.ok_or(Error::NoSnapshotPolicy)?;
        let deleted = room.prune_snapshots(&policy, dry_run)?;
        Ok(deleted.into_iter().map(SnapshotInfo::from).collect())
    }
}
