//! Removing a disk from a room: its data is moved to the others while clients go on.
//!
//! 1. That a disk is being emptied is durable before this is answered; it takes nothing new from then on, and every later
//!    incarnation of the server goes on with it.
//! 2. A disk is forgotten when it is empty and nothing leaves it: then no capability for it is valid.
//! 3. Grants there are revoked: their clients keep the data that is not durable, and write it elsewhere.
//!
//! It deliberately does not know how data is moved (the room does), or who asked.

use std::collections::BTreeMap;
use std::time::Duration;

use netdisk::DiskId;
use parking_lot::Mutex;
use room::{FileSystem as _, Room, WriteGrantId};

use super::incarnation::Incarnation;
use super::{ServerError, io};
use crate::authority::{DiskState, Removal};
use crate::enrol::{self, EnrolError};
use crate::placement::{DiskFailed, NetStorage};

/// Between two times that a disk is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// The same after something was in the way.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What is in the way of the disks that are being emptied.
#[derive(Debug, Default)]
pub(super) struct Obstacles(Mutex<BTreeMap<DiskId, String>>);

impl Obstacles {
    fn set(&self, id: DiskId, what: Option<String>) {
        let mut all = self.0.lock();
        match what {
            Some(what) => {
                if all.get(&id) != Some(&what) {
                    tracing::warn!(disk = ?id, "a disk is not emptied: {what}");
                }
                all.insert(id, what);
            }
            None => {
                all.remove(&id);
            }
        }
    }
}

pub(super) fn find(room: &Room, name: &str) -> Result<enrol::Disk, ServerError> {
    let found = enrol::disks(room)?.into_iter().find(|d| d.name == name);
    Ok(found.ok_or_else(|| EnrolError::Unknown(format!("disk {name}")))?)
}

/// Bytes of file data on a disk.
pub(super) fn live_on(room: &Room, storage: &NetStorage, id: DiskId) -> u64 {
    room.live_in(&storage.segments_on(id))
}

/// Has a disk take nothing new, durably, and forgets it where it is empty. Returns the bytes that are to be moved before it
/// can be; `None`: it is gone.
pub(super) fn begin(
    room: &Room,
    storage: &NetStorage,
    disk: &enrol::Disk,
) -> Result<Option<u64>, ServerError> {
    let id = disk.address.id;
    storage
        .set_draining(id, true)
        .map_err(io("the placement of segments"))?;
    match forget(room, storage, disk)? {
        true => Ok(None),
        false => Ok(Some(live_on(room, storage, id))),
    }
}

/// Forgets a disk that is empty.
fn forget(room: &Room, storage: &NetStorage, disk: &enrol::Disk) -> Result<bool, ServerError> {
    let id = disk.address.id;
    if storage.used(id) > 0 {
        return Ok(false);
    }
    // Nothing new comes there. After a crash here the next incarnation only has to remove the mark.
    enrol::remove_disk(room, &disk.name)?;
    storage.detach(id).map_err(io("the placement of segments"))
}

/// The disks' states, with what is moved away from them.
pub(super) fn states(incarnation: &Incarnation) -> Vec<DiskState> {
    let draining = incarnation.storage.draining();
    let obstacles = incarnation.obstacles.0.lock().clone();
    let mut states = incarnation.authority.disks();
    for state in &mut states {
        let id = state.address.id;
        state.used = incarnation.storage.used(id);
        if draining.contains(&id) {
            state.removal = Some(Removal {
                left: live_on(&incarnation.room, &incarnation.storage, id),
                obstacle: obstacles.get(&id).cloned(),
            });
        }
    }
    states
}

/// Empties disks for as long as the incarnation goes on.
pub(super) fn run(incarnation: &Incarnation) {
    let mut pause = LOOK;
    while incarnation.pause(pause) {
        pause = LOOK;
        for id in incarnation.storage.draining() {
            let done = step(incarnation, id);
            if let Err(e) = &done {
                pause = LOOK_AGAIN;
                if incarnation.is_stopping() {
                    return;
                }
                incarnation.obstacles.set(id, Some(e.clone()));
            } else {
                incarnation.obstacles.set(id, None);
            }
        }
    }
}

/// Forgets a disk if it is empty. True: there is nothing left to do.
fn finish(incarnation: &Incarnation, id: DiskId) -> Result<bool, ServerError> {
    let _one = incarnation.emptying.lock();
    if !incarnation.storage.draining().contains(&id) {
        return Ok(true);
    }
    let known = enrol::disks(&incarnation.room)?;
    let Some(disk) = known.into_iter().find(|d| d.address.id == id) else {
        // Forgotten by an incarnation that ended just then, or by a change that found no space: then it is not durable yet.
        incarnation.room.sync()?;
        let gone = incarnation.storage.detach(id);
        let gone = gone.map_err(io("the placement of segments"))?;
        if gone {
            incarnation.authority.remove(id);
        }
        return Ok(gone);
    };
    let gone = forget(&incarnation.room, &incarnation.storage, &disk)?;
    if gone {
        incarnation.authority.remove(id);
        tracing::info!(disk = %disk.name, "the disk is empty, and not one of this room any more");
    }
    Ok(gone)
}

/// Does what can be done now; says what is in the way.
fn step(incarnation: &Incarnation, id: DiskId) -> Result<(), String> {
    if finish(incarnation, id).map_err(|e| e.to_string())? {
        return Ok(());
    }
    let segments = incarnation.storage.segments_on(id);
    if segments.is_empty() {
        // The space that left it is freed within a second.
        return match incarnation.authority.is_reachable(id) {
            true => Ok(()),
            false => {
                Err("it does not answer: what was taken from clients is to be revoked there".into())
            }
        };
    }
    let report = incarnation
        .room
        .empty_segments(&segments, &|_, _| {
            !incarnation.is_stopping() && incarnation.storage.draining().contains(&id)
        })
        .map_err(|e| match e {
            room::Error::NoSpace => {
                "the other disks have no space for what is on it: add one, or delete files".into()
            }
            room::Error::Io(e) if DiskFailed::is_away(&e) => "a disk does not answer".into(),
            other => other.to_string(),
        })?;
    reclaim_grants(incarnation, id)?;
    match report.unreadable.first() {
        Some(first) => Err(format!(
            "{} ranges do not open, and stay; the first: {first}. Delete the file, or write it again, and delete the snapshots that have it: it is the one that cannot be read (`find MOUNTPOINT -type f -exec cat {{}} + >/dev/null` names it)",
            report.unreadable.len()
        )),
        None => Ok(()),
    }
}

/// Ends the grants on a disk.
fn reclaim_grants(incarnation: &Incarnation, id: DiskId) -> Result<(), String> {
    for session in incarnation.sessions.alive() {
        let grants: Vec<WriteGrantId> = session.grants_on(id);
        if grants.is_empty() {
            continue;
        }
        incarnation
            .authority
            .revoke_grants(&grants, incarnation.authority.revocation_deadline())
            .map_err(|_| "a disk does not answer, and clients may still write there".to_owned())?;
        for grant in grants {
            if session.release_grant(grant).is_some() {
                incarnation.room.settle_grant(grant);
            }
        }
    }
    Ok(())
}
