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

/// SplitMix64: short, and the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, round: u64, who: u64) -> Self {
        let mut random =
            Self(seed ^ round.wrapping_mul(0x9e37_79b9) ^ who.wrapping_mul(0x85eb_ca6b_0000));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound`, which it never is.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn of<'a>(&mut self, these: &'a [String]) -> &'a str {
        &these[self.below(these.len() as u64) as usize]
    }
}
