//! Unmounting: by the system call for those who may, else through `fusermount3`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::MountError;
use crate::{table, tune};

/// For how long a mount that is in use is tried again. Who serves one asks the kernel every second to
/// [write it back](crate::write_back), and may have it open for that moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// What becomes of what is open in a mount that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detach {
    /// Nothing may be open.
    Unused,
    /// The mount is out of sight at once, and ends when the last file is closed.
    Lazily,
    /// As `Lazily`, and every call of the programs that use it fails; only root may.
    ByForce,
}

/// Unmounts what is mounted at `mountpoint`.
///
/// # Errors
/// `Busy` (after 0.2 s), `NotMounted`, `NoFusermount`, `Unmount`.
pub fn detach(mountpoint: &Path, how: Detach) -> Result<(), MountError> {
    unless_busy(|| detach_now(mountpoint, how))
}

/// Unmounts what is mounted at `mountpoint` if it has this device number, as stat(2) returns it: since the mount was looked at, it may have
/// been removed, and another one be there.
///
/// # Errors
/// As [`detach`]; `NotMounted` also where something else is mounted there.
pub fn detach_own(mountpoint: &Path, device: u64, how: Detach) -> Result<(), MountError> {
    unless_busy(|| match table::at(mountpoint) {
        Some(mount) if mount.device == device => detach_now(mountpoint, how),
        _ => Err(MountError::NotMounted(mountpoint.to_owned())),
    })
}

/// Whether the mount with this device number is in no table any more and goes on: it was unmounted lazily while it was in use. False where
/// `/sys` does not show it.
pub fn is_out_of_sight(device: u64) -> bool {
    let mut mounts = table::all().into_iter();
    !mounts.any(|mount| mount.device == device) && tune::settings_of(device).exists()
}

fn unless_busy(mut detach: impl FnMut() -> Result<(), MountError>) -> Result<(), MountError> {
    for _ in 1..TRIES {
        match detach() {
            Err(MountError::Busy(_)) => std::thread::sleep(PAUSE),
            ended => return ended,
        }
    }
    detach()
}

fn detach_now(mountpoint: &Path, how: Detach) -> Result<(), MountError> {
    let flags = match how {
        Detach::Unused => UnmountFlags::empty(),
        Detach::Lazily => UnmountFlags::DETACH,
        Detach::ByForce => UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(mountpoint.to_owned())),
        Err(Errno::INVAL | Errno::NOENT) => Err(MountError::NotMounted(mountpoint.to_owned())),
        Err(Errno::PERM) if how != Detach::ByForce => detach_by_helper(mountpoint, how),
        Err(e) => Err(failed(mountpoint, &io::Error::from(e).to_string())),
    }
}

fn detach_by_helper(mountpoint: &Path, how: Detach) -> Result<(), MountError> {
    let mut command = Command::new(fusermount().ok_or(MountError::NoFusermount)?);
    command.arg("-u");
    if how == Detach::Lazily {
        command.arg("-z");
    }
    // Its words are looked at, so they must not be translated.
    let output = command
        .arg("--")
        .arg(mountpoint)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(mountpoint, &format!("fusermount3 cannot be run: {e}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else if said.contains("busy") {
        Err(MountError::Busy(mountpoint.to_owned()))
    } else if said.contains("not found in") || said.contains("not mounted") {
        Err(MountError::NotMounted(mountpoint.to_owned()))
    } else {
        Err(failed(mountpoint, said.trim()))
    }
}

fn failed(mountpoint: &Path, reason: &str) -> MountError {
    MountError::Unmount {
        path: mountpoint.to_owned(),
        reason: reason.to_owned(),
    }
}

/// The program that mounts and unmounts for ordinary users, where it is installed.
pub fn fusermount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from))
        .map(|dir| dir.join("fusermount3"))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_in_use_for_a_moment_is_unmounted() {
        let mut tries = 0;
        let ended = unless_busy(|| {
            tries += 1;
            if tries < 3 {
                Err(MountError::Busy("mnt".into()))
            } else {
                Ok(())
            }
        });
        assert!(ended.is_ok());
        assert_eq!(tries, 3);
    }

    #[test]
    fn only_use_is_waited_for_and_not_for_ever() {
        for (error, expected) in [
            (MountError::Busy as fn(PathBuf) -> MountError, TRIES),
            (MountError::NotMounted as fn(PathBuf) -> MountError, 1),
        ] {
            let mut tries = 0;
            let ended = unless_busy(|| {
                tries += 1;
                Err(error("mnt".into()))
            });
            assert!(ended.is_err());
            assert_eq!(tries, expected);
        }
    }

    #[test]
    fn a_directory_with_nothing_mounted_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for how in [Detach::Unused, Detach::Lazily] {
            let refused = detach(dir.path(), how).unwrap_err();
            // Without fusermount3 an ordinary user cannot find out.
            let expected = matches!(
                refused,
                MountError::NotMounted(_) | MountError::NoFusermount
            );
            assert!(expected, "{refused}");
        }
    }
}
