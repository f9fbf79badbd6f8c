//! A short slice of the processor for the threads that serve requests.
//!
//! A request wakes a thread that works for some 10 µs and waits again. Beside a program that computes, the scheduler lets that program finish
//! its slice first, which is up to a tick of 4 ms for each request. A thread that asks for a shorter slice than the running
//! one's goes before it, as long as it has used less than its share: its share stays the same. Linux 6.12 and newer; an older kernel
//! takes the wish and does nothing with it.

use std::io;

/// Nanoseconds: the least that Linux grants.
const SLICE_NS: u64 = 100_000;

/// Runs `start` so that the threads it starts, and those that they start, have the short slice. The calling thread keeps its own. Best
/// effort: where the kernel refuses, they have the caller's.
pub(crate) fn inherited<T>(start: impl FnOnce() -> T) -> T {
    let of_caller = attributes().ok().filter(is_longer);
    let to_restore = of_caller.filter(|of_caller| {
        let mut short = *of_caller;
        short.sched_runtime = SLICE_NS;
        set(&short)
            .inspect_err(|e| tracing::debug!("the slice of the processor stays as it is: {e}"))
            .is_ok()
    });
    let started = start();
    if let Some(of_caller) = to_restore
        && let Err(e) = set(&of_caller)
    {
        tracing::debug!("the starting thread keeps the short slice: {e}");
    }
    started
}

/// Whether this thread is scheduled by slices, and its own is not as short already.
fn is_longer(of: &libc::sched_attr) -> bool {
    let by_slices = [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&of.sched_policy.cast_signed());
    by_slices && (of.sched_runtime == 0 || of.sched_runtime > SLICE_NS)
}

/// The calling thread's policy, priority and slice.
#[allow(unsafe_code)]
fn attributes() -> io::Result<libc::sched_attr> {
    // SAFETY: all zeros is a value of this structure of integers.
    let mut found: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&found);
    // SAFETY: thread 0 is the calling one; the kernel writes `size` bytes at most to `found`, which has as many.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, size, 0) };
    match failed {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the calling thread's.
#[allow(unsafe_code)]
fn set(wanted: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: thread 0 is the calling one; the kernel reads `wanted`, whose size is in it.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *wanted, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn slice() -> u64 {
        attributes().unwrap().sched_runtime
    }

    #[test]
    fn threads_that_serve_have_the_short_slice_and_their_starter_has_its_own() {
        let before = slice();
        if before == 0 {
            eprintln!("skipped: this kernel knows no slices");
            return;
        }
        assert!(before > SLICE_NS, "this test runs with a short slice");
        let started = inherited(|| {
            thread::spawn(|| (slice(), thread::spawn(slice).join().unwrap()))
                .join()
                .unwrap()
        });
        assert_eq!(started, (SLICE_NS, SLICE_NS));
        assert_eq!(slice(), before);
    }
}
