//! Clocks that are wrong on purpose: tests give them to the runner, and so does the program when it begins, to see them caught.
//!
//! Each is a real clock ([`SystemClock`]) with one fault.

use super::{Clock, Reading, SystemClock};

/// Measures with processor time: what C's `clock()` became under the phone benchmark of 2014. Waiting is not in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessorClock {
    /// Whether the clocks it is compared with count processor time as well, so that only the device can tell.
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

/// Stands still some time after it was made.
#[derive(Debug, Clone, Copy)]
pub struct StalledClock {
    stops_ns: u64,
}

impl StalledClock {
    /// Runs for `after_ns` more, then no more.
    pub fn after(after_ns: u64) -> StalledClock {
        StalledClock {
            stops_ns: SystemClock.raw_ns() + after_ns,
        }
    }
}

impl Clock for StalledClock {
    fn read(&self) -> Reading {
        let real = SystemClock.read();
        Reading {
            raw_ns: real.raw_ns.min(self.stops_ns),
            ..real
        }
    }
}

/// Leaps once, forward or back.
#[derive(Debug, Clone, Copy)]
pub struct JumpingClock {
    leaps_at_ns: u64,
    by_ns: i64,
}

impl JumpingClock {
    /// Leaps by `by_ns` when `after_ns` more have passed.
    pub fn after(after_ns: u64, by_ns: i64) -> JumpingClock {
        JumpingClock {
            leaps_at_ns: SystemClock.raw_ns() + after_ns,
            by_ns,
        }
    }
}

impl Clock for JumpingClock {
    fn read(&self) -> Reading {
        let mut reading = SystemClock.read();
        if reading.raw_ns >= self.leaps_at_ns {
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
