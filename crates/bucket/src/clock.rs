//! A clock that nobody sets, and that goes on while the machine is suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the machine's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        Self(time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Duration::from_millis(Self::now().0.saturating_sub(self.0))
    }
}

/// How long the machine was suspended since its start.
pub(crate) fn suspended() -> Duration {
    let of = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    // In this order it is never less than none.
    let awake = of(ClockId::Monotonic);
    of(ClockId::Boottime).saturating_sub(awake)
}
