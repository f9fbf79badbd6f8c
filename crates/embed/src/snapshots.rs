//! Snapshots of an open room: created, listed, renamed, deleted, compared, read as a session of their own, and put back.
//!
//! 1. A session of a snapshot reads that moment, whatever the snapshot is called by now. Every change is refused as read-only.
//! 2. It belongs to the session it came from: when that is closed, it is closed too. Closing it closes nothing else.

use std::path::Path;

use room::diff::Change;
use room::restore::{self, Restored, Wanted};
use room::{FileSystem as _, NewSnapshot, Room, Snapshot, SnapshotSpace, Snapshots as _};

use crate::{Error, Result, Session};

/// A snapshot, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its number, name and moment, and whether a policy created it.
    pub snapshot: Snapshot,
    /// Bytes that it alone holds: deleting it frees as much.
    pub exclusive: u64,
}

impl From<(Snapshot, SnapshotSpace)> for SnapshotInfo {
    fn from((snapshot, space): (Snapshot, SnapshotSpace)) -> Self {
        Self {
            snapshot,
            exclusive: space.exclusive,
        }
    }
}

impl Session {
    /// Creates a snapshot: the whole room at this moment. It copies nothing, and is durable when this returns. Its name has 1 to 255
    /// bytes without `/`, `@`, `:` and control characters. Exists; busy within a transaction; read-only.
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        let snapshot = {
            let room = self.0.room()?;
            let new = NewSnapshot { automatic: false };
            room.changeable()?.create_snapshot(name, new)?
        };
        // New, it holds nothing: what it sees is in the room.
        Ok(SnapshotInfo {
            snapshot,
            exclusive: 0,
        })
    }

    /// All snapshots, from the oldest, with the space that each alone holds. None: an empty list.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let all = self.0.room()?.room().snapshot_space()?;
        Ok(all.into_iter().map(SnapshotInfo::from).collect())
    }

    /// Bytes that all snapshots together hold, and the room itself does not refer to any more: what deleting all of them frees.
    pub fn held_by_snapshots(&self) -> Result<u64> {
        Ok(self.0.room()?.room().held_by_snapshots()?)
    }

    /// Gives a snapshot another name, durable when this returns. Not found; exists; busy within a transaction; read-only.
    pub fn rename_snapshot(&self, from: &str, to: &str) -> Result<()> {
        let room = self.0.room()?;
        let renamed = room.changeable()?.rename_snapshot(from, to);
        named(renamed, from)
    }

    /// Deletes a snapshot, durable when this returns. The space that it alone holds is freed in the background. Files of it that are
    /// open fail as not found. Not found; busy within a transaction; read-only.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        let room = self.0.room()?;
        let deleted = room.changeable()?.delete_snapshot(name);
        named(deleted, name)
    }

    /// The room as it was in a snapshot, as a session that reads: it lists, opens files for reading and so on, and refuses changes as
    /// read-only. Closed with this session, and by itself. When the snapshot is deleted, its calls fail as not found.
    pub fn open_snapshot(&self, name: &str) -> Result<Session> {
        let number = find(self.0.room()?.room(), name)?.number;
        Ok(self.past(number))
    }

    /// What differs between two snapshots, or between one and now, by path. Reads every directory of both moments.
    pub fn diff_snapshots(&self, earlier: &str, later: Option<&str>) -> Result<Vec<Change>> {
        let room = self.0.room()?;
        let room = room.room();
        let earlier = find(room, earlier)?;
        let later = later.map(|name| find(room, name)).transpose()?;
        Ok(room.diff_snapshots(&earlier, later.as_ref(), &|| true)?)
    }

    /// Puts a file or directory back as it was in a snapshot, at `to`, or where it was: contents, holes, mode, owner, times, extended
    /// attributes, and hard links within it. What is there now is replaced as a whole in one step, when the copy is complete. Where
    /// that fails nothing is replaced, or, if names of the root could not be moved back, they are in `.strongroom-restore-N`, which the error
    /// says; an error after it, while what was replaced is removed, leaves the rest of that beside the target, below a name like that. Data is shared with the snapshot, so it takes next to no space. Directories above `to` that are missing
    /// are created. `/` puts the whole room back, in one transaction.
    ///
    /// What is replaced is gone: create a snapshot first to keep it. Durable when this returns. Busy within a
    /// transaction.
    pub fn restore_snapshot(
        &self,
        name: &str,
        path: impl AsRef<Path>,
        to: Option<&Path>,
    ) -> Result<Restored> {
        let room = self.0.room()?;
        let room = room.changeable()?;
        let snapshot = find(room, name)?.number;
        let path = path.as_ref();
        let wanted = Wanted {
            snapshot,
            path,
            to: to.unwrap_or(path),
            replaces: true,
            follows: true,
        };
        let prepared = restore::prepare(room, &wanted, &|_, _| true)?;
        let restored = prepared.swap()?.finish(&|_, _, remove| remove())?;
        room.sync()?;
        Ok(restored)
    }
}

fn find(room: &Room, name: &str) -> Result<Snapshot> {
    let all = room.snapshots()?;
    let found = all.into_iter().find(|snapshot| snapshot.name == name);
    found.ok_or_else(|| Error::NoSnapshot(name.to_owned()))
}

fn named(done: room::Result<()>, name: &str) -> Result<()> {
    done.map_err(|e| match e {
        room::Error::NotFound => Error::NoSnapshot(name.to_owned()),
        other => other.into(),
    })
}
