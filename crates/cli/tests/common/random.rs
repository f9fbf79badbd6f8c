//! What random trials share: settings from the environment, the seed, and the numbers that it decides.

/// A number that the environment sets.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seed of a trial: `STRONGROOM_SEED`, or another one each time.
pub fn seed() -> u64 {
    number("STRONGROOM_SEED").unwrap_or_else(|| {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    })
}

/// The choices of one participant in a round of a trial.
pub fn choices(seed: u64, round: u64, who: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(
        seed ^ round.wrapping_mul(0x9e37_79b9) ^ who.wrapping_mul(0x85eb_ca6b_0000),
    )
}
