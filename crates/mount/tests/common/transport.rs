//! Which transport a test uses. `STRONGROOM_TEST_TRANSPORT=io_uring` has every test of a suite mount over io_uring; a test
//! may also ask for it by its options.

use std::path::Path;
use std::sync::Arc;

use mount::{MountOptions, Mounted, Transport};
use room::FileSystem;

use super::enable_uring::with_it_enabled;

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

/// Forbids system calls to this thread and those it starts.
pub fn forbid(calls: &[libc::c_long]) {
    const ALLOW: u32 = 0x7fff_0000;
    const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    // The number of the call is the first word.
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in calls {
        let is_it = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        steps.push(step(is_it, 1, *call as u32));
        steps.push(step(libc::BPF_RET | libc::BPF_K, 0, REFUSE));
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, ALLOW));
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program is read during the second call, and both only restrict this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        );
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}
