//! How long something takes.

use crate::Time;

/// The standard normal distribution's 99th percentile.
const Z99: f64 = 2.326_348;

/// A distribution of times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Latency {
    /// Always the same.
    Fixed(Time),
    /// Exponential, by its mean: times between events that know nothing of each other.
    Exponential(Time),
    /// Log-normal, by its median and its 99th percentile: what networks and stores look like.
    LogNormal {
        /// Half of all take longer.
        median: Time,
        /// One in a hundred takes longer.
        p99: Time,
    },
}

impl Latency {
    /// One of its times.
    pub fn sample(self, random: &mut fastrand::Rng) -> Time {
        match self {
            Self::Fixed(time) => time,
            Self::Exponential(mean) => (-(1.0 - random.f64()).ln() * mean as f64) as Time,
            Self::LogNormal { median, p99 } => {
                let sigma = (p99 as f64 / median as f64).ln() / Z99;
                (median as f64 * (sigma * normal(random)).exp()) as Time
            }
        }
    }
}

/// Box and Muller, 1958.
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}
