//! Whether the kernel offers FUSE over io_uring: a setting of the whole machine, which a test changes for the moment of a mount.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Whether the kernel offers FUSE over io_uring to the next mount: of the whole machine, and `N` unless somebody changed it.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

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

/// Calls `f` while the kernel offers it. A mount keeps it, so the machine has its own setting again when this returns; until
/// then another mount gets it only if it asks for it.
pub fn with_it_enabled<T>(f: impl FnOnce() -> T) -> T {
    let _lock = lock();
    let before = fs::read_to_string(OFFERED).unwrap();
    let set = |value: &str| before.trim() == "Y" || fs::write(OFFERED, value).is_ok();
    assert!(set("Y"), "it was writable");
    let result = catch_unwind(AssertUnwindSafe(f));
    set("N");
    result.unwrap_or_else(|panic| resume_unwind(panic))
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
