//! A short slice of the processor for the threads that serve requests, while programs make their changes durable.
//!
//! A request wakes a thread that works for some 10 µs and waits again. Beside a program that computes, the scheduler lets that program finish
//! its slice first, which is up to a tick of 4 ms for each request. A thread that asks for a shorter slice than the running
//! one's goes before it, as long as it has used less than its share: its share stays the same. Linux 6.12 and newer; an older kernel
//! takes the wish and does nothing with it.
//!
//! It is not for every request: programs that only read many small files were slower by a twentieth with it, on idle processors.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds: the least that Linux grants.
const SLICE_NS: u64 = 100_000;
/// For how long after a durable change threads keep the short slice.
const SHORT_FOR: Duration = Duration::from_secs(1);

thread_local! {
    static OF_THREAD: Cell<Slice> = const { Cell::new(Slice::Own) };
}

/// What slice a thread has.
#[derive(Debug, Clone, Copy)]
enum Slice {
    /// That with which it began.
    Own,
    /// The short one; its own has so many nanoseconds.
    Short(u64),
    /// One that stays: the thread is not scheduled by slices, its own is as short already, or the kernel refuses.
    Fixed,
}

/// The slices of the threads that serve one mount.
#[derive(Debug)]
pub(crate) struct Slices {
    start: Instant,
    /// Until when they are short, in milliseconds after `start`.
    short_until: AtomicU64,
}

impl Default for Slices {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            short_until: AtomicU64::new(0),
        }
    }
}

impl Slices {
    /// Changes are being made durable: this thread takes the short slice now, the others with their next requests.
    pub(crate) fn shorten(&self) {
        let until = self.millis(Instant::now() + SHORT_FOR);
        self.short_until.store(until, Ordering::Relaxed);
        take_short();
    }

    /// Before any request, at the moment `now`: this thread takes the slice that is due.
    pub(crate) fn follow(&self, now: Instant) {
        match self.millis(now) < self.short_until.load(Ordering::Relaxed) {
            true => take_short(),
            false => take_own(),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Best effort: where the kernel refuses, the thread has its own for good.
fn take_short() {
    if let Slice::Own = OF_THREAD.get() {
        let short = exchange(SLICE_NS).map(|own| own.map_or(Slice::Fixed, Slice::Short));
        OF_THREAD.set(short.unwrap_or_else(refused));
    }
}

fn take_own() {
    if let Slice::Short(own) = OF_THREAD.get() {
        OF_THREAD.set(exchange(own).map_or_else(refused, |_| Slice::Own));
    }
}

fn refused(e: io::Error) -> Slice {
    tracing::debug!("the slice of the processor stays as it is: {e}");
    Slice::Fixed
}

/// Gives this thread a slice of `nanoseconds`, and returns the one that it had. `None`: it is not scheduled by slices, or has that one
/// already. All else stays as somebody may have set it meanwhile.
fn exchange(nanoseconds: u64) -> io::Result<Option<u64>> {
    let mut of_thread = attributes()?;
    let by_slices =
        [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&of_thread.sched_policy.cast_signed());
    let before = std::mem::replace(&mut of_thread.sched_runtime, nanoseconds);
    if !by_slices || before == nanoseconds {
        return Ok(None);
    }
    set(&of_thread).map(|()| Some(before))
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
    fn threads_have_the_short_slice_while_changes_are_made_durable() {
        let own = slice();
        if own == 0 {
            eprintln!("skipped: this kernel knows no slices");
            return;
        }
        assert!(own > SLICE_NS, "this test runs with a short slice");
        let slices = Slices::default();
        let follows_at = |now| {
            slices.follow(now);
            slice()
        };
        let soon = Instant::now();
        assert_eq!(follows_at(soon), own, "nothing was made durable");
        let syncs = || {
            slices.shorten();
            slice()
        };
        let synced = thread::scope(|scope| scope.spawn(syncs).join().unwrap());
        assert_eq!(synced, SLICE_NS);
        let late = Instant::now() + 2 * SHORT_FOR;
        assert_eq!(slice(), own, "others follow with their next requests");
        assert_eq!(follows_at(soon), SLICE_NS);
        // What somebody changes meanwhile stays.
        let mut nicer = attributes().unwrap();
        nicer.sched_nice += 1;
        set(&nicer).unwrap();
        assert_eq!(follows_at(late), own);
        assert_eq!(attributes().unwrap().sched_nice, nicer.sched_nice);
    }
}
