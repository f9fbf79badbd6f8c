//! Which slice of the processor the threads of a mount ask for. The only test of this program: it looks at all its threads.

mod common;

use std::io::{Error, Write as _};
use std::time::{Duration, Instant};
use std::{fs, thread};

use common::{Mount, ok};

/// Nanoseconds: the least that Linux grants, which is what they ask for.
const SHORT: u64 = 100_000;

/// The slice of a thread, in nanoseconds; 0 where the kernel knows none, or the thread is gone.
#[allow(unsafe_code)]
fn slice(thread: i32) -> u64 {
    // SAFETY: all zeros is a value of this structure of integers.
    let mut found: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&found);
    // SAFETY: the kernel writes `size` bytes at most to `found`, which has as many.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut found, size, 0) } {
        0 => found.sched_runtime,
        _ => {
            assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::ESRCH));
            0
        }
    }
}

/// How many threads of this process have the short one.
fn short() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let threads = tasks.map(|task| task.unwrap().file_name());
    threads
        .filter(|thread| slice(thread.to_str().unwrap().parse().unwrap()) == SHORT)
        .count()
}

#[test]
fn threads_of_a_mount_have_short_slices_while_programs_sync() {
    let Some(mount) = Mount::new() else { return };
    if slice(0) == 0 {
        eprintln!("skipped: this kernel knows no slices");
        return;
    }
    ok(
        &mount,
        "mkdir d && echo some > d/file && cat d/file && ls d",
    );
    assert_eq!(short(), 0, "nothing was synced");

    let mut file = fs::File::create(mount.path("synced")).unwrap();
    file.write_all(b"some").unwrap();
    file.sync_all().unwrap();
    assert_ne!(short(), 0);

    let since = Instant::now();
    while short() > 0 {
        let took = since.elapsed();
        assert!(took < Duration::from_secs(300), "short after {took:?}");
        // Whichever thread is woken takes its own slice.
        fs::create_dir(mount.path("a")).unwrap();
        fs::remove_dir(mount.path("a")).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
}
