//! A new master key for a room that no server serves: its data is sealed again on its disks.
//!
//! 1. Every disk must answer before anything is changed.
//! 2. A rekey that was cut off goes on with the next one, or with the next start of the server.
//!
//! It deliberately does not know what a rekey does: the room does it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use room::{Credential, OpenOptions, Progress, RekeyReport, Room};

use super::ServerError;
use super::attach::attach;
use super::incarnation::open as open_room;
use crate::authority::{Authority, Timing};
use crate::enrol;
use crate::fence::{RoomFiles, Turn};
use crate::placement::NetStorage;

/// How long a flush of a disk that cannot be reached is tried.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// Gives a shared room another master key. Its server must not run; its disks must. From then on clients get the keys of the
/// units that they may use, also in a room of before. With `keep_slots` as [`Room::rekey_keeping_slots`].
///
/// # Errors
/// `DiskAway`, and no change, where a disk does not answer; as for [`MetadataServer::start`](super::MetadataServer::start);
/// as for [`Room::rekey`].
pub fn rekey(
    dir: &Path,
    credential: &Credential,
    keep_slots: bool,
    options: OpenOptions,
    files: &dyn RoomFiles,
    progress: Progress<'_>,
) -> Result<RekeyReport, ServerError> {
    let options = OpenOptions {
        without_position_keys: true,
        ..options
    };
    let (room, storage, fence) =
        open_room((files, &Turn::NOW), dir, credential, options, FLUSH_TIMEOUT)?;
    let disks = enrol::disks(&room)?;
    let authority = attach(&room, &storage, &fence, disks, Timing::default())?;
    let rekey = || match keep_slots {
        true => room.rekey_keeping_slots(credential, progress),
        false => room.rekey(credential, progress),
    };
    let outcome = resealed(rekey, &storage, &authority);
    authority.stop();
    let closed = room.close();
    authority.withdraw();
    let report = outcome?;
    closed?;
    Ok(report)
}

fn resealed(
    rekey: impl FnOnce() -> room::Result<RekeyReport>,
    storage: &NetStorage,
    authority: &Arc<Authority>,
) -> Result<RekeyReport, ServerError> {
    if let Some(away) = authority.disks().into_iter().find(|disk| !disk.reachable) {
        return Err(ServerError::DiskAway(away.name));
    }
    let report = rekey()?;
    // What the old segments had is free. A disk that fails now frees it under the next server.
    storage.release();
    Ok(report)
}

/// Goes on with a rekey that was cut off, before clients come.
pub(super) fn finish(room: &Room, credential: &Credential) -> Result<(), ServerError> {
    if !room.info()?.rekeying {
        return Ok(());
    }
    tracing::info!("a rekey was cut off, and goes on");
    let report = room.rekey(credential, &|_, _| true)?;
    for range in &report.unreadable {
        tracing::warn!("not sealed again, because it fails authentication: {range}");
    }
    Ok(())
}
