//! What the host says of a path, as far as stores ask: what is known of the place, whether a process serves it, what is
//! behind a loop device.
//!
//! It deliberately does not know what a path is used for.

pub(crate) use crate::observe::block::{is_fuse, loop_file};
pub(crate) use crate::observe::store_facts as of_path;

#[cfg(test)]
mod tests {
    use std::path::Path;

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
