//! Which transport a test uses. `STRONGROOM_TEST_TRANSPORT=io_uring` has every test of a suite mount over io_uring; a test
//! may also ask for it by its options.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use mount::{MountOptions, Mounted, Transport};
use room::FileSystem;

/// Whether the kernel offers FUSE over io_uring to the next mount: of the whole machine, and `N` unless somebody changed it.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

pub fn all_over_io_uring() -> bool {
    std::env::var_os("STRONGROOM_TEST_TRANSPORT").is_some_and(|t| t == "io_uring")
}

/// Whether mounts may be over io_uring here; says so if not.
pub fn offered() -> Option<()> {
    let Ok(offered) = fs::read_to_string(OFFERED) else {
        eprintln!("skipped: this kernel has no FUSE over io_uring");
        return None;
    };
    if offered.trim() != "Y" && File::options().write(true).open(OFFERED).is_err() {
        eprintln!("skipped: FUSE over io_uring is not enabled, and enabling it needs root");
        return None;
    }
    if fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|d| d.trim() != "0") {
        eprintln!("skipped: io_uring is disabled");
        return None;
    }
    Some(())
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

/// Calls `f` while the kernel offers it. A mount keeps it, so the machine has its own setting again when this returns; until
/// then another mount gets it only if it asks for it.
pub fn with_it_enabled<T>(f: impl FnOnce() -> T) -> T {
    let _lock = lock();
    let before = fs::read_to_string(OFFERED).unwrap();
    let set = |value: &str| before.trim() == "Y" || fs::write(OFFERED, value).is_ok();
    assert!(set("Y"), "it was writable");
    let result = f();
    set("N");
    result
}

/// Calls `f` while the kernel does not offer it; `None`, said on standard error, where it always does.
pub fn with_it_disabled<T>(f: impl FnOnce() -> T) -> Option<T> {
    let _lock = lock();
    if fs::read_to_string(OFFERED).is_ok_and(|offered| offered.trim() == "Y") {
        eprintln!("skipped: FUSE over io_uring is enabled on this machine");
        return None;
    }
    Some(f())
}

/// Of one test at a time, of all processes, as long as the file is open.
fn lock() -> File {
    let lock = File::create(std::env::temp_dir().join("strongroom-test-enable-uring")).unwrap();
    lock.lock().unwrap();
    lock
}

/// Forbids io_uring to this thread and those it starts, as a container's filter does.
pub fn forbid_io_uring() {
    const ALLOW: u32 = 0x7fff_0000;
    const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut steps = [
        // The number of the call is the first word.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, REFUSE),
        step(libc::BPF_RET | libc::BPF_K, 0, ALLOW),
    ];
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
