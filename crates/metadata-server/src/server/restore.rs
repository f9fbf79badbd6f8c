//! Restores: what a snapshot has comes back into a served room, while clients go on.
//!
//! 1. Where a disk does not answer nothing begins, and nothing is replaced.
//! 2. What is replaced is in a snapshot. What clients changed after that one, while the copy was made, is in another.
//! 3. Names and rights change while nobody else's do, and are durable when it is reported.
//! 4. What lost its last name is revoked on the disks before it is reported, but for sessions that have it open.
//!
//! It deliberately does not know how a copy is made (the room does), or who asked.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::Instant;

use room::restore::{BEFORE, DURING, Left, Prepared, Restored, Swapped, Wanted, prepare};
use room::{
    Error, FileKind, FileSystem as _, Inode, InodeNo, NewSnapshot, SetAttr, Snapshot,
    Snapshots as _,
};

use super::administration::LOCAL;
use super::changes::Losses;
use super::incarnation::Incarnation;
use super::snapshots::settle;
use super::{MetadataServer, ServerError};
use crate::audit::event::Admin;

/// Names removed between two revocations.
const REVOKED_AT_ONCE: usize = 256;

/// What is to be put back, and where.
#[derive(Debug, Clone, Copy)]
pub struct Restore<'a> {
    /// Name of the snapshot.
    pub snapshot: &'a str,
    /// What, by its path there. No path leads through a symbolic link: its owner could lead it elsewhere.
    pub path: &'a Path,
    /// Where it goes.
    pub to: &'a Path,
    /// Whether what is there is replaced; then a snapshot is created first.
    pub replaces: bool,
}

/// What was done.
#[derive(Debug)]
pub struct RestoreReport {
    /// Files and bytes.
    pub restored: Restored,
    /// The room before; `None`: nothing was replaced.
    pub before: Option<Snapshot>,
    /// Something of what was replaced changed while the copy was made: the snapshot that has it, and below which name of the target's directory.
    pub meanwhile: Option<(Snapshot, Vec<u8>)>,
    /// False: a disk does not answer, and until it does, or their capabilities end, clients may read there what was replaced.
    pub revoked: bool,
}

impl MetadataServer {
    /// Puts back what a snapshot has. `go_on` gets files and bytes done, and stops it before anything is replaced.
    ///
    /// # Errors
    /// `NotNow` and `Audit` as [`change_snapshots`](Self::change_snapshots). `RestoreWaits` where a disk does not answer, `Room` for paths, missing space
    /// and quotas, and with kind `Interrupted`: nothing was changed.
    pub fn restore(
        &self,
        what: &Restore<'_>,
        go_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<RestoreReport, ServerError> {
        let _one = self.shared.snapshotting.lock();
        let incarnation = self.incarnation()?;
        let server = &*incarnation;
        let change = match what.replaces {
            true => "restore",
            false => "undelete",
        };
        let change = change.to_owned();
        self.shared
            .recorded(LOCAL, Admin::SnapshotsChanged { change })?;
        let go_on =
            |files, bytes| !server.has_failed() && !server.is_stopping() && go_on(files, bytes);
        let done = restore(server, what, &go_on);
        if let Err(ServerError::Room(Error::Poisoned)) = &done {
            self.shared.fail(server);
        }
        self.shared.answerable(server, done)?
    }
}

fn all_disks_answer(server: &Incarnation) -> Result<(), ServerError> {
    let away = server.authority.first_away();
    away.map_or(Ok(()), |name| Err(ServerError::RestoreWaits(name)))
}

fn snapshot(server: &Incarnation, beginning: &str) -> Result<Snapshot, ServerError> {
    let room = &server.room;
    let created = room.create_snapshot_by_time(beginning, NewSnapshot::default())?;
    if !settle(server) {
        room.delete_snapshot(&created.name)?;
        return Err(ServerError::StillWritable);
    }
    Ok(created)
}

fn restore(
    server: &Incarnation,
    what: &Restore<'_>,
    go_on: &dyn Fn(u64, u64) -> bool,
) -> Result<RestoreReport, ServerError> {
    let room = &server.room;
    let mut all = room.snapshots()?.into_iter();
    let found = all.find(|snapshot| snapshot.name == what.snapshot);
    let wanted = Wanted {
        snapshot: found.ok_or(Error::NotFound)?.number,
        path: what.path,
        to: what.to,
        replaces: what.replaces,
        follows: false,
    };
    all_disks_answer(server)?;
    let before = match what.replaces {
        true => Some(snapshot(server, BEFORE)?),
        false => None,
    };
    let swapped = prepare(room, &wanted, go_on).map_err(ServerError::from);
    let swapped = swapped.and_then(|prepared| swap(server, prepared));
    let swapped = match (swapped, &before) {
        (Err(error), Some(before)) => {
            // Nothing is to be undone with it, unless a part of the restore is left.
            let is_left = matches!(&error, ServerError::Room(e) if Left::is_in(e));
            if !is_left && let Err(e) = room.delete_snapshot(&before.name) {
                tracing::info!("the snapshot of a restore that failed stays: {e}");
            }
            return Err(error);
        }
        (swapped, _) => swapped?,
    };
    room.sync()?;
    let beside = swapped.left().map(<[u8]>::to_vec);
    let left = |error: ServerError| ServerError::Left {
        name: String::from_utf8_lossy(beside.as_deref().unwrap_or_default()).into_owned(),
        why: error.to_string(),
    };
    let meanwhile = match &before {
        Some(before) => changed_meanwhile(server, &swapped, before),
        None => Ok(None),
    };
    let meanwhile = match meanwhile {
        Ok(meanwhile) => meanwhile,
        Err(error) => {
            swapped.keep()?;
            return Err(left(error));
        }
    };
    let copied = swapped.restored();
    let goes_on = || {
        go_on(copied.files, copied.bytes);
    };
    let removal = Removal::new(server, &goes_on);
    let removed = swapped.finish(&|inode, parent, remove| removal.remove(inode, parent, remove));
    let revoked = removal.end();
    let restored = removed.map_err(|e| left(e.into()))?;
    room.sync()?;
    Ok(RestoreReport {
        restored,
        before,
        meanwhile,
        revoked,
    })
}

/// Nobody else's names and rights change meanwhile.
fn swap<'r>(server: &'r Incarnation, prepared: Prepared<'r>) -> Result<Swapped<'r>, ServerError> {
    if let Err(away) = all_disks_answer(server) {
        prepared.discard();
        return Err(away);
    }
    let _leases = server.leases.hold(None);
    let _rights = server.rights.write();
    let swapped = prepared.swap().inspect_err(|error| {
        if Left::is_in(error) {
            server.paths.directory_changed();
        }
    })?;
    let directory = swapped.directory();
    for inode in swapped.replaced() {
        server.paths.name_gone(inode, directory);
        if inode.kind == FileKind::Directory {
            close(server, inode.no);
        }
    }
    // The root's rights may be others now.
    server.paths.directory_changed();
    Ok(swapped)
}

/// Keeps users out of a directory that is about to be removed. Files that they have open they keep.
fn close(server: &Incarnation, no: InodeNo) {
    let set = SetAttr {
        mode: Some(0o700),
        uid: Some(0),
        gid: Some(0),
        ..SetAttr::default()
    };
    if let Err(e) = server.room.set_attributes(no, &set) {
        tracing::info!("a directory that was replaced stays open: {e}");
    }
}

/// Keeps what clients changed after the first snapshot, and was replaced with the rest.
fn changed_meanwhile(
    server: &Incarnation,
    swapped: &Swapped<'_>,
    before: &Snapshot,
) -> Result<Option<(Snapshot, Vec<u8>)>, ServerError> {
    match swapped.left() {
        Some(left) if swapped.differs_from(&*server.room.snapshot_of_number(before.number)?)? => {
            Ok(Some((snapshot(server, DURING)?, left.to_vec())))
        }
        _ => Ok(None),
    }
}

/// The removal of what was replaced, name by name.
struct Removal<'a> {
    server: &'a Incarnation,
    /// Called for each name: the one that waits learns that it goes on.
    goes_on: &'a dyn Fn(),
    lost: RefCell<Losses>,
    /// Whether all that was lost so far is revoked.
    revoked: Cell<bool>,
}

impl<'a> Removal<'a> {
    fn new(server: &'a Incarnation, goes_on: &'a dyn Fn()) -> Self {
        Self {
            server,
            goes_on,
            lost: RefCell::default(),
            revoked: Cell::new(true),
        }
    }

    fn remove(
        &self,
        inode: &Inode,
        parent: InodeNo,
        remove: &dyn Fn() -> room::Result<()>,
    ) -> room::Result<()> {
        if self.server.has_failed() || self.server.is_stopping() {
            return Err(Error::Io(std::io::ErrorKind::Interrupted.into()));
        }
        (self.goes_on)();
        let mut lost = self.lost.borrow_mut();
        {
            let is_directory = inode.kind == FileKind::Directory;
            let _leases = is_directory.then(|| self.server.leases.hold(None));
            let _rights = self.server.rights.write();
            remove()?;
            self.server.paths.name_gone(inode, parent);
            lost.name_gone(self.server, inode);
        }
        if lost.files() >= REVOKED_AT_ONCE {
            self.revoke(&mut lost);
        }
        Ok(())
    }

    fn revoke(&self, lost: &mut Losses) {
        // A disk that did not answer once is not waited for again.
        let deadline = match self.revoked.get() {
            true => self.server.authority.revocation_deadline(),
            false => Instant::now(),
        };
        if lost.revoke_by(self.server, deadline).is_err() {
            self.revoked.set(false);
        }
        *lost = Losses::default();
    }

    /// Whether everything is revoked.
    fn end(self) -> bool {
        self.revoke(&mut self.lost.borrow_mut());
        self.revoked.get()
    }
}
