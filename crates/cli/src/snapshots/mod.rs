//! What a command or the process of a mount does with the snapshots of an open room.
//!
//! A name is text without `/`, `@`, `:` and control characters; where none is given it is the time in UTC. It deliberately does not know
//! how the request came, nor what a policy keeps.

pub(crate) mod schedule;

use std::path::Path;

use room::diff::{Change, What};
use room::{NewSnapshot, Room, Snapshot, Snapshots as _, check_snapshot_name};

use crate::error::{Error, Result};
use crate::hex::path_to_hex;
use crate::proxy::room_name;
use crate::wire::{ChangeReply, RemovedReply, SnapshotReply, SnapshotsReply};
use crate::words::{kind_word, quoted, size};

/// How many snapshots are named to who needs space.
const ADVISED: usize = 3;

/// Creates a snapshot made by hand; without a name it is called by the time.
pub(crate) fn create(dir: &Path, room: &Room, name: Option<&str>) -> Result<SnapshotReply> {
    let snapshot = match name {
        Some(name) => create_named(dir, room, name)?,
        None => create_by_time(dir, room, "")?,
    };
    found(dir, room, &snapshot.name)
}

fn create_named(dir: &Path, room: &Room, name: &str) -> Result<Snapshot> {
    check_name(name)?;
    let created = room.create_snapshot(name, NewSnapshot::default());
    created.map_err(|e| match e {
        room::Error::Exists => exists(dir, name),
        other => Error::room(dir, other),
    })
}

fn create_by_time(dir: &Path, room: &Room, beginning: &str) -> Result<Snapshot> {
    let created = room.create_snapshot_by_time(beginning, NewSnapshot::default());
    created.map_err(|e| Error::room(dir, e))
}

/// Creates the one that a restore has before it, or with what changed during it: by how its name begins.
pub(crate) fn of_restore(dir: &Path, room: &Room, beginning: &str) -> Result<SnapshotReply> {
    let snapshot = create_by_time(dir, room, beginning)?;
    found(dir, room, &snapshot.name)
}

/// All snapshots, by number, and what they hold.
pub(crate) fn list(dir: &Path, room: &Room) -> Result<SnapshotsReply> {
    held(room).map_err(|e| Error::room(dir, e))
}

/// The same for a caller that needs no sentence.
pub(crate) fn held(room: &Room) -> room::Result<SnapshotsReply> {
    let space = room.snapshot_space()?;
    Ok(SnapshotsReply {
        held: room.held_by_snapshots()?,
        snapshots: space
            .iter()
            .map(|(snapshot, space)| reply(snapshot, space.exclusive))
            .collect(),
    })
}

/// Where there is no space left: which snapshots could make some. Empty: none.
pub(crate) fn advice_when_full(dir: &Path, held: &SnapshotsReply) -> String {
    if held.held == 0 {
        return String::new();
    }
    let mut largest: Vec<_> = held.snapshots.iter().collect();
    largest.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.exclusive));
    let named: Vec<String> = largest
        .iter()
        .take(ADVISED)
        .map(|snapshot| format!("{} ({} alone)", snapshot.name, size(snapshot.exclusive)))
        .collect();
    format!(
        "Snapshots hold {}: {}{}. Delete some with: strongroom snapshot delete {} NAME",
        size(held.held),
        named.join(", "),
        if largest.len() > ADVISED { ", …" } else { "" },
        quoted(&room_name(dir))
    )
}

pub(crate) fn reply(snapshot: &Snapshot, exclusive: u64) -> SnapshotReply {
    SnapshotReply {
        number: snapshot.number,
        name: snapshot.name.clone(),
        created: (snapshot.created.secs, snapshot.created.nanos),
        automatic: snapshot.automatic,
        exclusive,
    }
}

fn found(dir: &Path, room: &Room, name: &str) -> Result<SnapshotReply> {
    let all = list(dir, room)?.snapshots;
    let found = all.into_iter().find(|snapshot| snapshot.name == name);
    found.ok_or_else(|| missing(dir, name))
}

pub(crate) fn rename(dir: &Path, room: &Room, from: &str, to: &str) -> Result<()> {
    check_name(to)?;
    room.rename_snapshot(from, to).map_err(|e| match e {
        room::Error::NotFound => missing(dir, from),
        room::Error::Exists => exists(dir, to),
        other => Error::room(dir, other),
    })
}

pub(crate) fn delete(dir: &Path, room: &Room, name: &str) -> Result<()> {
    room.delete_snapshot(name).map_err(|e| match e {
        room::Error::NotFound => missing(dir, name),
        other => Error::room(dir, other),
    })
}

/// Refuses what cannot be a name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    check_snapshot_name(name).map_err(|e| Error::usage(format!("{name:?}: {e}")))
}

/// That a room has no snapshot of this name.
pub(crate) fn missing(dir: &Path, name: &str) -> Error {
    Error::failed(format!(
        "{}: there is no snapshot {name}; list them with: strongroom snapshot list {}",
        dir.display(),
        quoted(dir)
    ))
}

/// That a room has a snapshot of this name.
pub(crate) fn exists(dir: &Path, name: &str) -> Error {
    Error::failed(format!(
        "{}: there is a snapshot {name} already",
        dir.display()
    ))
}

/// What differs between two snapshots, or between one and now.
pub(crate) fn changes(
    dir: &Path,
    room: &Room,
    from: &str,
    to: Option<&str>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<ChangeReply>> {
    let failed = |e| Error::room(dir, e);
    let all = room.snapshots().map_err(failed)?;
    let find = |name: &str| {
        let found = all.iter().find(|snapshot| snapshot.name == name);
        found.ok_or_else(|| missing(dir, name))
    };
    let (earlier, later) = (find(from)?, to.map(find).transpose()?);
    let changes = room.diff_snapshots(earlier, later, go_on);
    Ok(changes.map_err(failed)?.into_iter().map(change).collect())
}

fn change(change: Change) -> ChangeReply {
    let (word, from) = match change.what {
        What::Added => ("added", None),
        What::Removed => ("removed", None),
        What::Renamed { from } => ("renamed", Some(path_to_hex(&from))),
        What::Contents => ("changed", None),
        What::Attributes => ("attributes", None),
    };
    ChangeReply {
        change: word.to_owned(),
        kind: kind_word(change.kind).to_owned(),
        path: path_to_hex(&change.path),
        from,
        before: change.before,
        after: change.after,
    }
}

/// What was removed since a snapshot, or since the first one, and snapshots still have.
pub(crate) fn removed(dir: &Path, room: &Room, since: Option<&str>) -> Result<Vec<RemovedReply>> {
    let removed = room.removed_since(since).map_err(|e| match (e, since) {
        (room::Error::NotFound, Some(name)) => missing(dir, name),
        (other, _) => Error::room(dir, other),
    })?;
    let reply = |removed: room::Removed| RemovedReply {
        path: path_to_hex(&removed.path),
        kind: kind_word(removed.inode.kind).to_owned(),
        snapshots: removed.snapshots.into_iter().map(|s| s.name).collect(),
        files: removed.files,
        bytes: removed.bytes,
        modified: (removed.inode.mtime.secs, removed.inode.mtime.nanos),
    };
    Ok(removed.into_iter().map(reply).collect())
}

/// Deletes what the room's policy does not keep; returns it. `dry_run`: returns what would go, and deletes nothing.
pub(crate) fn prune(dir: &Path, room: &Room, dry_run: bool) -> Result<Vec<SnapshotReply>> {
    let failed = |e| Error::room(dir, e);
    let policy = room.snapshot_policy().map_err(failed)?;
    let policy = policy.ok_or_else(|| no_policy(dir))?;
    let gone = room.prune_snapshots(&policy, dry_run).map_err(failed)?;
    let replies = gone
        .iter()
        .map(|(snapshot, space)| reply(snapshot, space.exclusive));
    Ok(replies.collect())
}

/// That a room has no policy by which snapshots could be deleted.
pub(crate) fn no_policy(dir: &Path) -> Error {
    Error::failed(format!(
        "{}: has no snapshot policy; set one with: strongroom snapshot policy set {} --hourly 24 --daily 7 --weekly 5",
        dir.display(),
        quoted(dir)
    ))
}
