//! Lifts the limit that the kernel sets the read-ahead of a FUSE mount. Only root may.

use std::path::{Path, PathBuf};

use crate::attach;

/// Read ahead in KiB: two requests of the largest size.
const READ_AHEAD_KIB: u32 = 2048;

/// Lets the kernel read further ahead than its 128 KiB. Best effort: returns whether it was done; an ordinary user's mount works
/// without. `mountpoint` is absolute and without symbolic links.
pub fn tune(mountpoint: &Path) -> bool {
    let Some((major, minor)) = attach::device(mountpoint) else {
        return false;
    };
    let file = PathBuf::from("/sys/class/bdi").join(format!("{major}:{minor}/read_ahead_kb"));
    let done = std::fs::write(file, READ_AHEAD_KIB.to_string());
    if let Err(e) = &done {
        tracing::debug!("the read-ahead of the mount is left as it is: {e}");
    }
    done.is_ok()
}
