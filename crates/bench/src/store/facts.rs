//! What the host says of a path, as far as stores ask: what is known of the place, whether a process serves it, what is
//! behind a loop device.
//!
//! It deliberately does not know what a path is used for.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) use crate::observe::store_facts as of_path;

/// Whether a process serves the file system at `path`.
pub(crate) fn is_fuse(path: &Path) -> bool {
    mount::table::containing(path).is_some_and(|mount| mount.kind.starts_with("fuse"))
}

/// The file behind a loop device.
pub(crate) fn loop_file(device: &Path) -> Option<PathBuf> {
    let number = std::fs::metadata(device).ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let at = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let name = std::fs::read(at).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proc_file_system_is_served_by_no_process() {
        assert_eq!(
            of_path(Path::new("/proc")).file_system.as_deref(),
            Some("proc")
        );
        assert!(!is_fuse(Path::new("/proc")));
        assert_eq!(loop_file(Path::new("/dev/null")), None);
    }
}
