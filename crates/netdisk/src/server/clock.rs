//! The disk's clock, by which capabilities expire.
//!
//! 1. It never goes back, and is set by nobody: it begins with the machine's date when the server starts, and goes on with the
//!    time that the machine has been running since, suspended or not.
//! 2. After a restart it may begin earlier than it ended. Nothing depends on that: what was given before a restart is of groups
//!    that are not valid any more.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Where a disk's clock has its time from.
pub trait TimeSource: Debug + Send + Sync {
    /// The date, seconds since 1970. Anybody may set it.
    fn date(&self) -> u64;
    /// How long the machine has been running.
    fn running(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct MachineTime;

impl TimeSource for MachineTime {
    fn date(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }

    fn running(&self) -> Duration {
        // Unlike `CLOCK_MONOTONIC` it counts the time in which the machine was suspended. Neither part is negative.
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// The disk's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    source: Arc<dyn TimeSource>,
    begun_at: u64,
    begun: Duration,
    /// The latest time that was read.
    highest: AtomicU64,
}

impl Clock {
    /// It begins now.
    pub(crate) fn new(source: Arc<dyn TimeSource>) -> Self {
        let (begun_at, begun) = (source.date(), source.running());
        Self {
            source,
            begun_at,
            begun,
            highest: AtomicU64::new(begun_at),
        }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let since = self.source.running().saturating_sub(self.begun);
        let now = self.begun_at.saturating_add(since.as_secs());
        self.highest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[derive(Debug, Default)]
    struct Set {
        date: AtomicU64,
        running: AtomicU64,
    }

    impl TimeSource for Set {
        fn date(&self) -> u64 {
            self.date.load(Ordering::SeqCst)
        }

        fn running(&self) -> Duration {
            Duration::from_secs(self.running.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn no_clock_that_is_set_changes_it() {
        let source = Arc::new(Set::default());
        source.date.store(1000, Ordering::SeqCst);
        source.running.store(50, Ordering::SeqCst);
        let clock = Clock::new(source.clone());
        assert_eq!(clock.now(), 1000);
        source.running.store(60, Ordering::SeqCst);
        for date in [0, 5000, u64::MAX] {
            source.date.store(date, Ordering::SeqCst);
            assert_eq!(clock.now(), 1010);
        }
        source.running.store(20, Ordering::SeqCst);
        assert_eq!(clock.now(), 1010);
        assert!(MachineTime.running() > Duration::ZERO);
    }
}
