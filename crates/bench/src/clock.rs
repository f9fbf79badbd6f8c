//! The clocks: what measures, what must agree with it, and clocks that are wrong on purpose.
//!
//! 1. CLOCK_MONOTONIC_RAW measures: no daemon slews it. The others are only compared with it (`clock_gettime(2)`).
//! 2. A [`Reading`] is of one moment: the raw clock is read first and last, and the reading made again when the two are far apart.
//!
//! It deliberately does not judge: that is `validity::clocks`.

use rustix::time::{ClockId, clock_gettime};

pub mod wrong;

/// All clocks at one moment, nanoseconds since moments of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// CLOCK_MONOTONIC_RAW: the one that measures.
    pub raw_ns: u64,
    /// CLOCK_BOOTTIME: also runs while the machine sleeps.
    pub boottime_ns: u64,
    /// CLOCK_REALTIME: what a person may set.
    pub realtime_ns: u64,
    /// CLOCK_PROCESS_CPUTIME_ID: processor time of this process, all threads.
    pub process_cpu_ns: u64,
}

/// What passed between two readings, nanoseconds; negative when a clock went back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// By [`Reading::raw_ns`].
    pub raw_ns: i64,
    /// By [`Reading::boottime_ns`].
    pub boottime_ns: i64,
    /// By [`Reading::realtime_ns`].
    pub realtime_ns: i64,
    /// By [`Reading::process_cpu_ns`].
    pub process_cpu_ns: i64,
}

impl Reading {
    /// From `earlier` to this one.
    pub fn since(&self, earlier: &Reading) -> Elapsed {
        let less = |now: u64, then: u64| now.wrapping_sub(then) as i64;
        Elapsed {
            raw_ns: less(self.raw_ns, earlier.raw_ns),
            boottime_ns: less(self.boottime_ns, earlier.boottime_ns),
            realtime_ns: less(self.realtime_ns, earlier.realtime_ns),
            process_cpu_ns: less(self.process_cpu_ns, earlier.process_cpu_ns),
        }
    }
}

/// Where time comes from: passed in, so that a test can give a wrong one to the very runner that measures.
pub trait Clock: Send + Sync {
    /// All clocks at one moment.
    fn read(&self) -> Reading;

    /// The measuring clock alone, nanoseconds: cheap enough for the latency of a single call.
    fn raw_ns(&self) -> u64 {
        self.read().raw_ns
    }
}

/// The kernel's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// How far apart the two ends of one reading may be, and how often to try for that.
const READING_NS_MAX: u64 = 20_000;
const READINGS_MAX: u32 = 8;

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let mut best = (u64::MAX, Reading::default());
        for _ in 0..READINGS_MAX {
            let raw_ns = now_ns(ClockId::MonotonicRaw);
            let reading = Reading {
                raw_ns,
                boottime_ns: now_ns(ClockId::Boottime),
                realtime_ns: now_ns(ClockId::Realtime),
                process_cpu_ns: now_ns(ClockId::ProcessCPUTime),
            };
            let apart = now_ns(ClockId::MonotonicRaw).saturating_sub(raw_ns);
            if apart < best.0 {
                best = (apart, reading);
            }
            if apart <= READING_NS_MAX {
                break;
            }
        }
        best.1
    }

    fn raw_ns(&self) -> u64 {
        now_ns(ClockId::MonotonicRaw)
    }
}

fn now_ns(id: ClockId) -> u64 {
    let now = clock_gettime(id);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_a_reading_never_go_back() {
        let first = SystemClock.read();
        let second = SystemClock.read();
        let passed = second.since(&first);
        assert!(passed.raw_ns >= 0 && passed.boottime_ns >= 0 && passed.process_cpu_ns >= 0);
    }

    #[test]
    fn a_clock_that_went_back_shows_as_negative() {
        let earlier = Reading {
            raw_ns: 10,
            ..Reading::default()
        };
        let later = Reading {
            raw_ns: 4,
            ..Reading::default()
        };
        assert_eq!(later.since(&earlier).raw_ns, -6);
    }
}
