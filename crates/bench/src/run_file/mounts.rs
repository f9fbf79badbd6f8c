//! What is mounted where, and ending it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mount::{Detach, MountError, table};

use crate::{Error, Result};

/// How long a busy mount is tried: a process that just ended may still be giving its files back.
const UNMOUNT_FOR: Duration = Duration::from_secs(15);

/// Whether something is mounted at exactly this absolute path.
pub fn is_mounted(at: &Path) -> bool {
    table::at(at).is_some()
}

/// Something mounted at or below this absolute path.
pub fn mounted_below(path: &Path) -> Option<PathBuf> {
    let mut points = table::all().into_iter().map(|mount| mount.mountpoint);
    points.find(|point| point.starts_with(path))
}

/// Ends the mount at `at`.
///
/// # Errors
/// [`Error::Store`] with what the system said, when it is still busy after 15 seconds.
pub fn unmount(at: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        let ended = mount::detach(at, Detach::Unused);
        if !is_mounted(at) {
            return Ok(());
        }
        if began.elapsed() > UNMOUNT_FOR {
            let why = match ended {
                Ok(()) => "something else is mounted there".to_owned(),
                Err(MountError::Busy(_)) => "it is in use".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(Error::store(
                at.display().to_string(),
                format!(
                    "cannot be unmounted: {why}; close what uses it, and run: strongroom bench clean"
                ),
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_mounted_and_nothing_else_is() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
        assert_eq!(mounted_below(Path::new("/no-such-directory")), None);
    }
}
