//! Snapshots of an open room: the calls that create, rename, delete and read them.

use std::sync::Arc;

use model::{FileSystem, InodeNo, ReadOnly, Snapshot, SnapshotPolicy, Snapshots};

use super::Room;
use crate::Result;
use crate::diff::{self, Change, Moment};
use crate::snapshots::{NewSnapshot, PolicyReport, Removed, SnapshotSpace, SnapshotView, policy};

/// The room's note with its policy, as JSON; empty: none.
const POLICY: &str = "snapshot-policy";

impl Room {
    /// Creates a snapshot: the whole room at this moment, whatever is still in memory included. It copies nothing, and is durable
    /// when this returns. `Exists`, `InvalidArgument` and `NameTooLong` for the name, `ReadOnly`, `InTransaction`. In a room on network disks
    /// a grant that is not over can still overwrite what was [committed](Self::place) under it, and so what the snapshot sees: end such grants.
    pub fn create_snapshot(&self, name: &str, new: NewSnapshot) -> Result<Snapshot> {
        self.parts()?.past.create(name, new)
    }

    /// The same with this beginning and the time in UTC as its name, as in `before-restore-2026-11-25T10.00.00Z`.
    pub fn create_snapshot_by_time(&self, beginning: &str, new: NewSnapshot) -> Result<Snapshot> {
        self.parts()?.past.create_by_time(beginning, new)
    }

    /// Gives a snapshot another name, durable when this returns. `NotFound`, and as [`create_snapshot`](Self::create_snapshot)
    /// for the new name.
    pub fn rename_snapshot(&self, from: &str, to: &str) -> Result<()> {
        self.parts()?.past.rename(from, to)
    }

    /// Deletes a snapshot, durable when this returns; its name is free at once. Its space is freed in the background, and by
    /// [`tend`](Self::tend). `NotFound`, `ReadOnly`, `InTransaction`.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.parts()?.past.delete(name)
    }

    /// The snapshot of a number, whatever its name is by now. Where there is none, or none any more, its calls fail as `Stale`.
    pub fn snapshot_of_number(&self, number: u64) -> Result<Arc<dyn FileSystem>> {
        let parts = self.parts()?;
        let past = parts.past.clone();
        let view = SnapshotView::new(past, number, parts.clone());
        Ok(Arc::new(ReadOnly(view)))
    }

    /// All snapshots, by number, with the space that each alone holds. The time it takes does not depend on the room.
    pub fn snapshot_space(&self) -> Result<Vec<(Snapshot, SnapshotSpace)>> {
        Ok(self.parts()?.past.space()?.0)
    }

    /// The room's policy for automatic snapshots. `NotSupported` where a newer version set it.
    pub fn snapshot_policy(&self) -> Result<Option<SnapshotPolicy>> {
        let note = self.note(POLICY)?.filter(|text| !text.is_empty());
        note.map(|text| policy::from_json(&text)).transpose()
    }

    /// Sets the policy, or removes it; durable when this returns. Nothing is created or deleted before the policy is
    /// [applied](Self::apply_snapshot_policy). `InvalidArgument`: [`SnapshotPolicy::check`].
    pub fn set_snapshot_policy(&self, policy: Option<&SnapshotPolicy>) -> Result<()> {
        policy.map_or(Ok(()), SnapshotPolicy::check)?;
        let text = policy.map(policy::to_json);
        self.set_note(POLICY, &text.unwrap_or_default())
    }

    /// Does what the room's policy asks for now: creates an automatic snapshot, `auto-TIME`, where the present hour, day or week has none,
    /// and deletes those that it does not keep. To be called now and then: a room does not do it by itself. Without a policy nothing is
    /// done. `ReadOnly`, `InTransaction`, and as [`create_snapshot`](Self::create_snapshot).
    pub fn apply_snapshot_policy(&self) -> Result<PolicyReport> {
        match self.snapshot_policy()? {
            Some(policy) => self.parts()?.past.apply(&policy),
            None => Ok(PolicyReport::default()),
        }
    }

    /// Deletes the automatic snapshots that a policy does not keep, and returns them with the bytes that this frees; `dry_run`: deletes
    /// none. A snapshot made by hand is never deleted. `ReadOnly`, `InTransaction`.
    pub fn prune_snapshots(
        &self,
        policy: &SnapshotPolicy,
        dry_run: bool,
    ) -> Result<Vec<(Snapshot, SnapshotSpace)>> {
        self.parts()?.past.prune(policy, dry_run)
    }

    /// What snapshots have and the room has not any more, by path: everything that was removed since the snapshot `since`, or since the
    /// first one. What was in a directory that was removed with it is part of that directory. A file that has another path or another
    /// name now is not removed. Reads what is kept of names since then, and the directories above what was removed. `NotFound`.
    pub fn removed_since(&self, since: Option<&str>) -> Result<Vec<Removed>> {
        self.parts()?.past.removed(since)
    }

    /// What differs between two snapshots, or between one and now (`later` is `None`), by path. Reads every directory of both moments.
    /// `go_on`: asked now and then; false ends it with `Interrupted`. `Stale` where a snapshot was deleted.
    pub fn diff_snapshots(
        &self,
        earlier: &Snapshot,
        later: Option<&Snapshot>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<Change>> {
        let files = |snapshot: &Snapshot| self.snapshot_of_number(snapshot.number);
        let (before, after) = (files(earlier)?, later.map(files).transpose()?);
        let earlier = Moment {
            files: &*before,
            taken: earlier.created.secs,
            is_now: false,
        };
        let later = match (later, &after) {
            (Some(later), Some(after)) => Moment {
                files: &**after,
                taken: later.created.secs,
                is_now: false,
            },
            _ => Moment {
                files: self,
                taken: model::now().secs,
                is_now: true,
            },
        };
        diff::diff(earlier, later, go_on)
    }

    /// Bytes that snapshots hold and the room itself does not refer to any more: what deleting all of them frees.
    pub fn held_by_snapshots(&self) -> Result<u64> {
        Ok(self.parts()?.past.space()?.1)
    }

    /// Makes the contents of the regular file `to` those that the file `from` had in a snapshot, sharing blocks instead of copying
    /// them. Attributes stay but for size and times. A crash may leave a beginning of it; give the file its name afterwards.
    /// `NotFound`, `IsDirectory`, and as a truncation of `to`.
    pub fn copy_from_snapshot(&self, name: &str, from: InodeNo, to: InodeNo) -> Result<()> {
        let parts = self.parts()?;
        let at = parts.past.find(name)?.no();
        parts.contents.copy_from_snapshot(at, from, to)
    }
}

impl Snapshots for Room {
    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.parts()?.past.list())
    }

    fn snapshot(&self, name: &str) -> Result<Arc<dyn FileSystem>> {
        self.snapshot_of_number(self.parts()?.past.find(name)?.no())
    }

    fn share_from_snapshot(
        &self,
        number: u64,
        from: InodeNo,
        to: InodeNo,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        let contents = &self.parts()?.contents;
        contents.share_from_snapshot(number, from, to, offset, len)
    }
}
