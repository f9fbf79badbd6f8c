//! Which transport a test uses. `STRONGROOM_TEST_TRANSPORT=io_uring` has every test of a suite mount over io_uring; a test
//! may also ask for it by its options.

use std::path::Path;
use std::sync::Arc;

use mount::{MountOptions, Mounted, Transport};
use room::FileSystem;

use super::enable_uring::with_it_enabled;
pub use super::forbid::forbid;

pub fn all_over_io_uring() -> bool {
    std::env::var_os("STRONGROOM_TEST_TRANSPORT").is_some_and(|t| t == "io_uring")
}

/// Mounts; over io_uring where the options or the environment say so, and then really over io_uring.
pub fn mount(room: Arc<dyn FileSystem>, at: &Path, mut options: MountOptions) -> Mounted {
    if all_over_io_uring() {
        options.transport = Transport::IoUring;
    }
    let wanted = options.transport;
    let mounted = match wanted {
        Transport::Device => mount::mount(room, at, &options),
        Transport::IoUring => with_it_enabled(|| mount::mount(room, at, &options)),
    }
    .unwrap();
    assert_eq!(mounted.transport(), wanted);
    mounted
}

/// Forbids io_uring to this thread and those it starts, as a container's filter does.
pub fn forbid_io_uring() {
    forbid(&[libc::SYS_io_uring_setup]);
}
