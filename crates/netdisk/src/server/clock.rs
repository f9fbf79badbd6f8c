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
    /// The date, since 1970. Anybody may set it.
    fn date(&self) -> Duration;
    /// How long the machine has been running.
    fn running(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct MachineTime;

impl TimeSource for MachineTime {
    fn date(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
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
    begun_at: Duration,
    begun: Duration,
    /// The latest time that was read.
    highest: AtomicU64,
}

impl Clock {
    /// It begins now.
    pub(crate) fn new(source: Arc<dyn TimeSource>) -> Self {
        // In this order: a pause in between must not put it behind the date.
        let begun = source.running();
        let begun_at = source.date();
        Self {
            source,
            begun_at,
            begun,
            highest: AtomicU64::new(begun_at.as_secs()),
        }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let since = self.source.running().saturating_sub(self.begun);
        let now = self.begun_at.saturating_add(since).as_secs();
        self.highest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// In milliseconds.
    #[derive(Debug, Default)]
    struct Set {
        date: AtomicU64,
        running: AtomicU64,
    }

    impl TimeSource for Set {
        fn date(&self) -> Duration {
            Duration::from_millis(self.date.load(Ordering::SeqCst))
        }

        fn running(&self) -> Duration {
            Duration::from_millis(self.running.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn no_clock_that_is_set_changes_it() {
        let source = Arc::new(Set::default());
        source.date.store(1_000_000, Ordering::SeqCst);
        source.running.store(50_000, Ordering::SeqCst);
        let clock = Clock::new(source.clone());
        assert_eq!(clock.now(), 1000);
        source.running.store(60_000, Ordering::SeqCst);
        for date in [0, 5_000_000, u64::MAX] {
            source.date.store(date, Ordering::SeqCst);
            assert_eq!(clock.now(), 1010);
        }
        source.running.store(20_000, Ordering::SeqCst);
        assert_eq!(clock.now(), 1010);
        assert!(MachineTime.running() > Duration::ZERO);
    }

    /// It was behind the date by what was left of the second in which it began, and took what had expired in it.
    #[test]
    fn a_second_of_the_date_is_one_of_the_clock() {
        let source = Arc::new(Set::default());
        source.date.store(1_000_900, Ordering::SeqCst);
        let clock = Clock::new(source.clone());
        assert_eq!(clock.now(), 1000);
        source.running.store(100, Ordering::SeqCst);
        assert_eq!(clock.now(), 1001);
    }
}
