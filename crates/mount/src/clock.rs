//! The clock by which the kernel stamps files.
//!
//! With the write-back cache the kernel stamps the files that programs write, by its coarse clock: the moment of its last
//! tick. The room's own stamps have to come from that clock too. From a finer one, a file just created would look newer than
//! one written after it, and newer than its own data.
//!
//! 1. A stamp is never later than one that the kernel gives after it.
//! 2. Since Linux 6.13 the kernel's stamps run ahead of the tick, up to the present moment, once a file system that wants
//!    fine times has asked for one. FUSE does not show that clock; but the stamps that the kernel passes on do, and none
//!    given after them is earlier.
//! 3. When the clock is set back, stamps follow it, as the kernel's do.
//! 4. A file whose times the kernel keeps is stamped by the kernel alone: it shows its own for as long as it knows the file, so
//!    another stamp here would have the times jump at the next mount.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The latest stamp that the kernel passed on, in nanoseconds since 1970. The kernel has one clock for all mounts.
static LATEST: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Whether this thread changes a file whose times the kernel keeps.
    static KEPT: Cell<bool> = const { Cell::new(false) };
}

/// What a room stamps a file with; `None` within [`kept`].
pub(crate) fn stamp() -> Option<Timestamp> {
    (!KEPT.get()).then(now)
}

/// Makes a change to a file whose times the kernel keeps. It sends them later, where the change changed them.
pub(crate) fn kept<T>(change: impl FnOnce() -> T) -> T {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            KEPT.set(false);
        }
    }
    KEPT.set(true);
    let _end = End;
    change()
}

/// The present moment by that clock. One before 1970 gives 1970.
fn now() -> Timestamp {
    let coarse = read(ClockId::RealtimeCoarse);
    let latest = LATEST.load(Ordering::Relaxed);
    if latest <= coarse {
        return timestamp(coarse);
    }
    if latest <= read(ClockId::Realtime) {
        return timestamp(latest);
    }
    // The clock was set back.
    let _ = LATEST.compare_exchange(latest, 0, Ordering::Relaxed, Ordering::Relaxed);
    timestamp(coarse)
}

/// Notes a stamp of the kernel's.
pub(crate) fn passed_on(stamp: Timestamp) {
    let nanos = stamp
        .secs
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(stamp.nanos));
    if nanos > LATEST.load(Ordering::Relaxed) && nanos <= read(ClockId::Realtime) {
        LATEST.fetch_max(nanos, Ordering::Relaxed);
    }
}

fn read(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
        .max(0)
}

fn timestamp(nanos: i64) -> Timestamp {
    Timestamp::new(nanos / 1_000_000_000, (nanos % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_kernels_stamps_but_never_the_future() {
        let before = now();
        let fine = timestamp(read(ClockId::Realtime));
        passed_on(fine);
        assert!(
            now() >= fine,
            "a stamp that the kernel gave is not undercut"
        );
        passed_on(Timestamp::new(fine.secs + 3600, 0));
        assert!(now().secs < fine.secs + 3600);
        // As after the clock was set back.
        LATEST.store(i64::MAX, Ordering::Relaxed);
        let after = now();
        assert!(before <= after && after.secs < fine.secs + 3600);
        assert_eq!(LATEST.load(Ordering::Relaxed), 0);
    }
}
