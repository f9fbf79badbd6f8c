//! Taking a mount away: by the system call as root, by fusermount3 as anybody else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{Error, Result};
use crate::exit::Exit;

/// For how long a mount that is in use is tried again. The process that serves it asks the kernel every second to write
/// back, and has the mount open for that moment, which is no user's business.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Unmounts; refuses while something is open there.
pub(crate) fn unmount(mountpoint: &Path) -> Result<()> {
    unless_in_use(|| unmount_now(mountpoint, false))
}

fn unless_in_use(mut unmount: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 1..TRIES {
        match unmount() {
            Err(e) if e.exit() == Exit::Busy => std::thread::sleep(PAUSE),
            ended => return ended,
        }
    }
    unmount()
}

/// Takes the mount out of sight at once; what is open there goes on until it is closed.
pub(crate) fn unmount_lazily(mountpoint: &Path) -> Result<()> {
    unmount_now(mountpoint, true)
}

/// Removes the mount at once and fails every call of the programs that use it; only root may.
pub(crate) fn unmount_by_force(mountpoint: &Path) -> Result<()> {
    as_root(mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH)
}

fn unmount_now(mountpoint: &Path, lazily: bool) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        let detach = if lazily {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        as_root(mountpoint, detach)
    } else {
        as_user(mountpoint, lazily)
    }
}

fn as_root(mountpoint: &Path, flags: UnmountFlags) -> Result<()> {
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(busy(mountpoint)),
        Err(Errno::INVAL | Errno::NOENT) => Err(not_mounted(mountpoint)),
        Err(e) => Err(Error::failed(format!(
            "{}: cannot unmount: {}",
            mountpoint.display(),
            std::io::Error::from(e)
        ))),
    }
}

fn as_user(mountpoint: &Path, lazily: bool) -> Result<()> {
    let Some(program) = fusermount() else {
        return Err(Error::said(
            Exit::CannotMount,
            "fusermount3 is missing, without which only root can unmount: install the package fuse3",
        ));
    };
    let mut command = Command::new(program);
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    // Its words are looked at, so they must not be translated.
    let output = command
        .arg("--")
        .arg(mountpoint)
        .env("LC_ALL", "C")
        .output();
    let output = output.map_err(|e| Error::failed(format!("fusermount3 cannot be run: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if words.contains("busy") {
        Err(busy(mountpoint))
    } else if words.contains("not found in") || words.contains("not mounted") {
        Err(not_mounted(mountpoint))
    } else {
        Err(Error::failed(format!(
            "{}: cannot unmount: {words}",
            mountpoint.display()
        )))
    }
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
    Error::said(
        Exit::NotMounted,
        format!("{}: no room is mounted here", path.display()),
    )
}

/// The program that mounts and unmounts for ordinary users.
pub(crate) fn fusermount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .chain([
            PathBuf::from("/usr/bin"),
            PathBuf::from("/bin"),
            PathBuf::from("/usr/local/bin"),
        ])
        .map(|dir| dir.join("fusermount3"))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_in_use_for_a_moment_is_unmounted() {
        let mut tries = 0;
        let ended = unless_in_use(|| {
            tries += 1;
            if tries < 3 {
                Err(busy(Path::new("mnt")))
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
            (busy as fn(&Path) -> Error, TRIES),
            (not_mounted as fn(&Path) -> Error, 1),
        ] {
            let mut tries = 0;
            let ended = unless_in_use(|| {
                tries += 1;
                Err(error(Path::new("mnt")))
            });
            assert!(ended.is_err());
            assert_eq!(tries, expected);
        }
    }
}
