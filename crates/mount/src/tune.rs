//! Lifts limits that the kernel sets a FUSE mount by default. Only root may.

use std::path::{Path, PathBuf};

use crate::attach;

/// Read ahead in KiB: two requests of the largest size.
const READ_AHEAD_KIB: u32 = 2048;

/// Lets the mount use the kernel's cache as other file systems do: its share of dirty pages is otherwise 1 % of memory, which
/// throttles small writes, and its read-ahead 128 KiB. Best effort: returns whether all of it was done, and an ordinary
/// user's mount works without. `mountpoint` is absolute and without symbolic links.
pub fn tune(mountpoint: &Path) -> bool {
    let Some((major, minor)) = attach::device(mountpoint) else {
        return false;
    };
    let device = format!("{major}:{minor}");
    let dir = PathBuf::from("/sys/class/bdi").join(device);
    let read_ahead = READ_AHEAD_KIB.to_string();
    let mut all = true;
    for (file, value) in [
        ("strict_limit", "0"),
        ("max_ratio", "100"),
        ("read_ahead_kb", read_ahead.as_str()),
    ] {
        if let Err(e) = std::fs::write(dir.join(file), value) {
            tracing::debug!("{file} of the mount is left as it is: {e}");
            all = false;
        }
    }
    all
}
