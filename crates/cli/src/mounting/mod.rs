//! Mounting from the command's side: what is checked before, the process that serves, how it is started and ended.
//!
//! Invariant: `mount` returns when the room is mounted, or with the reason why not and a true exit code; afterwards the
//! serving process is detached, without terminal or working directory.

pub(crate) mod ending;
pub(crate) mod follow;
pub(crate) mod helper;
pub(crate) mod launch;
pub(crate) mod lock;
pub(crate) mod mounter;
pub(crate) mod options;
pub(crate) mod remote;
pub(crate) mod serve;
pub(crate) mod target;
pub(crate) mod users;

use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounts;
use crate::output::quoted;

/// Refuses what cannot work, each with the next step, before a passphrase is asked for. `room`: its directory, where it has one
/// here.
pub(crate) fn check_possible(room: Option<&Path>, mountpoint: &Path) -> Result<()> {
    check_mountpoint(room, mountpoint)?;
    check_fuse()
}

fn check_mountpoint(room: Option<&Path>, mountpoint: &Path) -> Result<()> {
    let name = mountpoint.display();
    let refuse = |words: String| Err(Error::said(Exit::CannotMount, format!("{name}: {words}")));
    // Asks the serving process itself; what is known of the directory otherwise may come from the kernel's memory.
    let died = rustix::fs::statfs(mountpoint).err() == Some(rustix::io::Errno::NOTCONN);
    match std::fs::metadata(mountpoint) {
        _ if died => {
            return refuse(format!(
                "a mount is here whose process has died; clear it with: strongroom umount {}",
                quoted(mountpoint)
            ));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return refuse(format!(
                "there is no such directory to mount on; make it with: mkdir {}",
                quoted(mountpoint)
            ));
        }
        Err(e) => return refuse(e.to_string()),
        Ok(meta) if !meta.is_dir() => {
            return refuse("not a directory; a room is mounted on an empty directory".into());
        }
        Ok(_) => {}
    }
    let canonical = mountpoint
        .canonicalize()
        .map_err(|e| Error::host(mountpoint, e))?;
    if let Some(mount) = mounts::strongroom_at(&canonical) {
        return refuse(format!(
            "{} is mounted here already; unmount it with: strongroom umount {}",
            mount.source.display(),
            quoted(mountpoint)
        ));
    }
    if let Some(room) = room {
        let room = room.canonicalize().map_err(|e| Error::host(room, e))?;
        if canonical.starts_with(&room) || room.starts_with(&canonical) {
            return refuse(
                "the mountpoint and the room's own directory must not contain each other".into(),
            );
        }
    }
    match std::fs::read_dir(mountpoint).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            refuse("not empty, and what is in it would be hidden; choose an empty directory".into())
        }
        // A directory that may not be read can still be mounted on.
        Ok(false) | Err(_) => Ok(()),
    }
}

fn check_fuse() -> Result<()> {
    let refuse = |words: &str| Err(Error::said(Exit::CannotMount, words));
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
    {
        Err(e) if e.kind() == ErrorKind::NotFound => refuse(
            "/dev/fuse is missing: load the kernel's module with `modprobe fuse`; in a container, start it with \
             --device /dev/fuse --cap-add SYS_ADMIN",
        ),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            refuse("/dev/fuse may not be opened by this user: as root, run: chmod 0666 /dev/fuse")
        }
        Err(e) => refuse(&format!(
            "/dev/fuse: {e}: load the kernel's module with `modprobe fuse`"
        )),
        Ok(_) if !rustix::process::geteuid().is_root() && mount::fusermount().is_none() => refuse(
            "fusermount3 is missing, without which only root can mount: install the package fuse3",
        ),
        Ok(_) => Ok(()),
    }
}
