//! Taking a mount away, with what the user can do where it fails.

use std::path::Path;

use mount::{Detach, MountError};

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Unmounts what has this device number.
pub(crate) fn unmount(mountpoint: &Path, device: u64, how: Detach) -> Result<()> {
    mount::detach_own(mountpoint, device, how).map_err(|error| match error {
        MountError::Busy(_) => busy(mountpoint),
        MountError::NotMounted(_) if is_anywhere(device) => Error::failed_at(mountpoint, "something else is mounted over the room: unmount that first"),
        MountError::NotMounted(_) => not_mounted(mountpoint),
        MountError::NoFusermount => Error::said(
            Exit::CannotMount,
            "fusermount3 is missing, without which only root can unmount: install the package fuse3",
        ),
        other => Error::failed(other.to_string()),
    })
}

fn is_anywhere(device: u64) -> bool {
    let mut mounts = mount::table::all().into_iter();
    mounts.any(|mount| mount.device == device)
}

fn busy(mountpoint: &Path) -> Error {
    let name = mountpoint.display();
    Error::said(
        Exit::Busy,
        format!(
            "{name}: in use: a file is open in it, or it is somebody's working directory (`fuser -vm {}` shows \
             whose); close that and try again, or use --lazy",
            crate::words::quoted(mountpoint)
        ),
    )
}

pub(crate) fn not_mounted(path: &Path) -> Error {
    Error::said_at(Exit::NotMounted, path, "no room is mounted here")
}
