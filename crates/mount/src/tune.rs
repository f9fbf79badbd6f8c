//! Lifts the limit that the kernel sets the read-ahead of a FUSE mount. Only root may.

use std::path::{Path, PathBuf};

use crate::table;

/// Read ahead in KiB: two requests of the largest size.
const READ_AHEAD_KIB: u32 = 2048;

/// Lets the kernel read further ahead than its 128 KiB. Best effort: returns whether it was done; an ordinary user's mount works
/// without. `mountpoint` is absolute and without symbolic links.
pub fn tune(mountpoint: &Path) -> bool {
    let Some(mount) = table::at(mountpoint) else {
        return false;
    };
    let file = settings_of(mount.device).join("read_ahead_kb");
    let done = std::fs::write(file, READ_AHEAD_KIB.to_string());
    if let Err(e) = &done {
        tracing::debug!("the read-ahead of the mount is left as it is: {e}");
    }
    done.is_ok()
}

/// Where the kernel shows the settings of a mount's device, as stat(2) returns it.
pub(crate) fn settings_of(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Path::new("/sys/class/bdi").join(format!("{major}:{minor}"))
}
