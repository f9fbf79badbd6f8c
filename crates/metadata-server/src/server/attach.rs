//! The disks of an open room, as one program reaches them.

use std::sync::Arc;
use std::thread::Builder;

use parking_lot::Mutex;
use room::Room;

use super::{ServerError, io};
use crate::authority::{Authority, Before, Timing};
use crate::enrol;
use crate::fence::Fence;
use crate::placement::NetStorage;

/// What an error of [`Authority::add`] is about.
pub(super) const LOOKS_AFTER: &str = "a thread that looks after a disk cannot be started";

/// Begins to look after the disks of a room. Those that answer are attached to its storage when this returns.
pub(super) fn attach(
    room: &Room,
    storage: &NetStorage,
    fence: &Arc<dyn Fence>,
    disks: Vec<enrol::Disk>,
    timing: Timing,
) -> Result<Arc<Authority>, ServerError> {
    let authority = Authority::new(room, timing, fence.clone())?;
    let others = disks.len().saturating_sub(1);
    let left = Mutex::new(disks.into_iter());
    let failed = Mutex::new(None);
    let add = || {
        let next = || left.lock().next();
        while let Some(disk) = next() {
            if let Err(e) = authority.add(disk, Before::Earlier, storage) {
                *failed.lock() = Some(e);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..others {
            // Where no thread can be started, the others do its work.
            if Builder::new().spawn_scoped(scope, add).is_err() {
                break;
            }
        }
        add();
    });
    match failed.into_inner() {
        None => Ok(authority),
        Some(e) => {
            authority.stop();
            Err(io(LOOKS_AFTER)(e))
        }
    }
}
