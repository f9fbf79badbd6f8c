//! What a command or the process of a mount does with the snapshots of an open room.
//!
//! 1. Names are text without `/`, `@`, `:` and control characters; where none is given it is the time in UTC.
//! 2. Only snapshots that a policy created are ever deleted without being named.
//!
//! It deliberately does not know how the request came.

pub(crate) mod schedule;

use std::path::Path;

use room::diff::{Change, What};
use room::{FileSystem as _, NewSnapshot, Room, Snapshot, Snapshots as _, check_snapshot_name};

use crate::error::{Error, Result};
use crate::hex::path_to_hex;
use crate::proxy::room_name;
use crate::retention::{self, Policy};
use crate::wire::{ChangeReply, RemovedReply, SnapshotReply, SnapshotsReply};
use crate::words::{file_moment, kind_word, quoted, size};

/// The room's note with its policy, as JSON; empty: none.
const POLICY: &str = "snapshot-policy";
/// How many snapshots of one second get a name by themselves.
const NAMES_MAX: u32 = 100;
/// How many snapshots are named to who needs space.
const ADVISED: usize = 3;

/// Creates a snapshot made by hand; without a name it is called by the time.
pub(crate) fn create(dir: &Path, room: &Room, name: Option<&str>) -> Result<SnapshotReply> {
    let new = NewSnapshot { automatic: false };
    let snapshot = match name {
        Some(name) => create_named(dir, room, name, new)?,
        None => create_by_time(room, "", new).map_err(|e| Error::room(dir, e))?,
    };
    found(dir, room, &snapshot.name)
}

fn create_named(dir: &Path, room: &Room, name: &str, new: NewSnapshot) -> Result<Snapshot> {
    check_name(name)?;
    room.create_snapshot(name, new).map_err(|e| match e {
        room::Error::Exists => exists(dir, name),
        other => Error::room(dir, other),
    })
}

/// Creates one with a name of this beginning and the time.
fn create_by_time(room: &Room, beginning: &str, new: NewSnapshot) -> room::Result<Snapshot> {
    let time = file_moment(room::now().secs);
    let mut name = format!("{beginning}{time}");
    for number in 2..NAMES_MAX {
        match room.create_snapshot(&name, new) {
            Err(room::Error::Exists) => name = format!("{beginning}{time}-{number}"),
            other => return other,
        }
    }
    room.create_snapshot(&name, new)
}

/// Creates the one that a restore of something can be undone with.
pub(crate) fn before_restore(dir: &Path, room: &Room) -> Result<SnapshotReply> {
    let new = NewSnapshot { automatic: false };
    let snapshot = create_by_time(room, "before-restore-", new).map_err(|e| Error::room(dir, e))?;
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

fn reply(snapshot: &Snapshot, exclusive: u64) -> SnapshotReply {
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

fn exists(dir: &Path, name: &str) -> Error {
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

/// The room's policy.
pub(crate) fn policy(dir: &Path, room: &Room) -> Result<Option<Policy>> {
    let note = room.note(POLICY).map_err(|e| Error::room(dir, e))?;
    let Some(text) = note.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    serde_json::from_slice(&text).map(Some).map_err(|_| {
        Error::failed(format!(
            "{}: its snapshot policy is of a newer version: set it again with: strongroom snapshot policy set",
            dir.display()
        ))
    })
}

/// Sets the room's policy, or takes it away.
pub(crate) fn set_policy(dir: &Path, room: &Room, policy: Option<&Policy>) -> Result<()> {
    let text = match policy {
        Some(policy) if !policy.keeps_any() => {
            return Err(Error::usage(
                "a policy keeps something: give --hourly, --daily or --weekly a number above 0; `policy clear` removes a policy",
            ));
        }
        // Numbers under fixed names.
        Some(policy) => serde_json::to_vec(policy).expect("our own policies are JSON"),
        None => Vec::new(),
    };
    room.set_note(POLICY, &text)
        .map_err(|e| Error::room(dir, e))
}

/// Deletes what the policy does not keep; returns it. `dry_run`: returns what would go, and deletes nothing.
pub(crate) fn prune(dir: &Path, room: &Room, dry_run: bool) -> Result<Vec<SnapshotReply>> {
    let policy = policy(dir, room)?.ok_or_else(|| {
        Error::failed(format!(
            "{}: has no snapshot policy; set one with: strongroom snapshot policy set {} --hourly 24 --daily 7 --weekly 5",
            dir.display(),
            quoted(dir)
        ))
    })?;
    pruned(room, &policy, dry_run).map_err(|e| Error::room(dir, e))
}

/// What a policy does to a room, snapshot after snapshot.
struct Pruning<'r> {
    room: &'r Room,
    dry_run: bool,
    gone: Vec<SnapshotReply>,
}

impl Pruning<'_> {
    fn delete(&mut self, snapshot: &Snapshot) -> room::Result<()> {
        let held = held(self.room)?.snapshots.into_iter();
        self.gone
            .extend(held.filter(|held| held.number == snapshot.number));
        match self.dry_run {
            true => Ok(()),
            false => self.room.delete_snapshot(&snapshot.name),
        }
    }

    /// What is deleted is freed in the background: it counts as free already.
    fn freed(&self) -> u64 {
        self.gone.iter().map(|snapshot| snapshot.exclusive).sum()
    }
}

fn pruned(room: &Room, policy: &Policy, dry_run: bool) -> room::Result<Vec<SnapshotReply>> {
    let now = room::now();
    let mut pruning = Pruning {
        room,
        dry_run,
        gone: Vec::new(),
    };
    let mut living = room.snapshots()?;
    for snapshot in retention::expired(policy, &living, now) {
        pruning.delete(snapshot)?;
    }
    living.retain(|snapshot| {
        let is_gone = |gone: &SnapshotReply| gone.number == snapshot.number;
        !pruning.gone.iter().any(is_gone)
    });
    let space = room.space()?;
    let wanted = u128::from(space.total) * u128::from(policy.min_free) / 100;
    for snapshot in retention::oldest_first(&living, now) {
        let free = u128::from(space.available) + u128::from(pruning.freed());
        // Where snapshots hold nothing, none of them can help.
        if free >= wanted || room.held_by_snapshots()? == 0 {
            break;
        }
        pruning.delete(snapshot)?;
    }
    Ok(pruning.gone)
}
