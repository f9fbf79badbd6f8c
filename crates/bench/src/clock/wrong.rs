//! Clocks that are wrong on purpose: tests give them to the runner, and so does the program when it begins, to see them caught.
//!
//! Each is a real clock ([`SystemClock`]) with one fault. What goes wrong later does so after the first reading: a round begins with one.

use std::sync::OnceLock;

use super::{Clock, Reading, SystemClock};

/// Measures with processor time: what C's `clock()` became under the phone benchmark of 2014. Waiting is not in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessorClock {
    /// Whether the clocks it is compared with count processor time as well, so that only the device shows it.
    pub all: bool,
}

impl Clock for ProcessorClock {
    fn read(&self) -> Reading {
        let real = SystemClock.read();
        let cpu = real.process_cpu_ns;
        if self.all {
            Reading {
                raw_ns: cpu,
                boottime_ns: cpu,
                realtime_ns: cpu,
                process_cpu_ns: cpu,
            }
        } else {
            Reading {
                raw_ns: cpu,
                ..real
            }
        }
    }
}

/// Stops some time after it was first read.
#[derive(Debug, Clone)]
pub struct StalledClock {
    first_ns: OnceLock<u64>,
    after_ns: u64,
}

impl StalledClock {
    /// Runs for `after_ns`, then no more.
    pub fn after(after_ns: u64) -> StalledClock {
        StalledClock {
            first_ns: OnceLock::new(),
            after_ns,
        }
    }
}

impl Clock for StalledClock {
    fn read(&self) -> Reading {
        let real = SystemClock.read();
        let first = *self.first_ns.get_or_init(|| real.raw_ns);
        Reading {
            raw_ns: real.raw_ns.min(first + self.after_ns),
            ..real
        }
    }
}

/// Leaps once, forward or back.
#[derive(Debug, Clone)]
pub struct JumpingClock {
    first_ns: OnceLock<u64>,
    after_ns: u64,
    by_ns: i64,
}

impl JumpingClock {
    /// Leaps by `by_ns` when `after_ns` have passed.
    pub fn after(after_ns: u64, by_ns: i64) -> JumpingClock {
        JumpingClock {
            first_ns: OnceLock::new(),
            after_ns,
            by_ns,
        }
    }
}

impl Clock for JumpingClock {
    fn read(&self) -> Reading {
        let mut reading = SystemClock.read();
        let first = *self.first_ns.get_or_init(|| reading.raw_ns);
        if reading.raw_ns >= first + self.after_ns {
            reading.raw_ns = reading.raw_ns.wrapping_add_signed(self.by_ns);
        }
        reading
    }
}

/// Runs too fast or too slow.
#[derive(Debug, Clone, Copy)]
pub struct DriftingClock {
    made_ns: u64,
    percent: i64,
}

impl DriftingClock {
    /// Runs `percent` too fast; too slow when negative.
    pub fn by(percent: i64) -> DriftingClock {
        DriftingClock {
            made_ns: SystemClock.raw_ns(),
            percent,
        }
    }
}

impl Clock for DriftingClock {
    fn read(&self) -> Reading {
        let mut reading = SystemClock.read();
        let ran = reading.raw_ns.saturating_sub(self.made_ns) as i64;
        reading.raw_ns = reading.raw_ns.wrapping_add_signed(ran * self.percent / 100);
        reading
    }
}
