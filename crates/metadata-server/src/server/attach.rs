//! The disks of an open room, as one program reaches them.

use std::sync::Arc;

use room::Room;

use super::ServerError;
use crate::authority::{Authority, Before, Timing};
use crate::enrol;
use crate::fence::Fence;
use crate::placement::NetStorage;

/// Begins to look after the disks of a room. Those that answer are attached to its storage when this returns.
pub(super) fn attach(
    room: &Room,
    storage: &NetStorage,
    fence: &Arc<dyn Fence>,
    disks: Vec<enrol::Disk>,
    timing: Timing,
) -> Result<Arc<Authority>, ServerError> {
    let authority = Authority::new(room, timing, fence.clone())?;
    std::thread::scope(|scope| {
        for disk in disks {
            let authority = &authority;
            scope.spawn(move || authority.add(disk, Before::Earlier, storage));
        }
    });
    Ok(authority)
}
