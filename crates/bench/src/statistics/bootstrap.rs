//! The interval of a ratio of medians, by the bootstrap.
//!
//! Both sets of rounds are drawn again from themselves, with replacement, [`RESAMPLES`] times; the ratio of the medians of each pair
//! of draws is kept, and the interval's ends are percentiles of those (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
//! chapter 13; for ratios of run times Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
//!
//! For medians of five rounds and more this interval holds the truth as often as it says, and a little oftener
//! (Hesterberg's expanded percentiles were tried too: they are wider without need). Draws cannot be more extreme than the rounds
//! themselves: with fewer than five a side the interval would be too narrow, and is made at least as wide as Welch's for the
//! difference of the mean logarithms (Welch, "The generalization of 'Student's' problem", Biometrika 34, 1947). The tests count how
//! often the truth is inside.
//!
//! Rounds of two stores are measured in turns, but not paired here: pairing would give a narrower interval where the noise is common
//! to both, and with three pairs a much too narrow one.

use super::{median, middle};

/// Draws.
pub const RESAMPLES: usize = 4000;
/// Below so many rounds a side, draws alone give too narrow an interval.
const FEW: usize = 5;
/// Share of the draws left out at each end.
const OUTSIDE: f64 = 0.025;
/// The same for all reports: computed again, an interval is the same.
const SEED: u64 = 0x5eed_7a71_0501;

/// A ratio and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Of the medians.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` is in it.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// At least as wide as `factor` (≥ 1) to both sides of the ratio.
    pub fn widened(&self, factor: f64) -> Interval {
        Interval {
            low: self.low.min(self.ratio / factor),
            high: self.high.max(self.ratio * factor),
            ..*self
        }
    }
}

/// The ratio of the median of `above` to that of `below`, with its interval: rates, all greater than zero. `None` when one side is empty
/// or has a rate that is not. With one round on a side the interval says nothing of that side's noise; three are needed for it
/// to mean what it says.
pub fn ratio_of_medians(below: &[f64], above: &[f64]) -> Option<Interval> {
    let good = |rates: &[f64]| rates.iter().all(|rate| rate.is_finite() && *rate > 0.0);
    if !good(below) || !good(above) {
        return None;
    }
    let ratio = median(above)? / median(below)?;
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut draw = Vec::new();
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| drawn(above, &mut random, &mut draw) / drawn(below, &mut random, &mut draw))
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at =
        |share: f64| ratios[((share * (RESAMPLES - 1) as f64).round() as usize).min(RESAMPLES - 1)];
    let draws = Interval {
        ratio,
        low: at(OUTSIDE),
        high: at(1.0 - OUTSIDE),
    };
    if below.len().min(above.len()) < FEW {
        return Some(draws.widened(welch_factor(below, above)));
    }
    Some(draws)
}

/// Half the width of Welch's interval for the difference of mean logarithms, as a factor; 1 where a side has a single round.
fn welch_factor(below: &[f64], above: &[f64]) -> f64 {
    // Variance of the mean of the logarithms.
    let of_mean = |rates: &[f64]| {
        let logs: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        squares / (count - 1.0) / count
    };
    let (one, other) = (of_mean(below), of_mean(above));
    let together = one + other;
    if together.is_nan() || together <= 0.0 {
        return 1.0;
    }
    let of_freedom = |part: f64, count: usize| part * part / (count as f64 - 1.0);
    let freedom =
        together * together / (of_freedom(one, below.len()) + of_freedom(other, above.len()));
    (student(freedom as usize) * together.sqrt()).exp()
}

/// Median of as many values, drawn with replacement into `draw`.
fn drawn(values: &[f64], random: &mut fastrand::Rng, draw: &mut Vec<f64>) -> f64 {
    draw.clear();
    draw.extend((0..values.len()).map(|_| values[random.usize(..values.len())]));
    draw.sort_unstable_by(f64::total_cmp);
    middle(draw).unwrap_or(f64::NAN)
}

/// 97.5 % quantile of Student's t; of two sides with fewer than [`FEW`] rounds each there are at most `2 * FEW - 4` degrees.
fn student(freedom: usize) -> f64 {
    const T: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    T[freedom.clamp(1, T.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates around a median as those of rounds are: log-normal (Box and Muller).
    fn scattered(random: &mut fastrand::Rng) -> f64 {
        let (u, v) = (1.0 - random.f64(), random.f64());
        let normal = (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos();
        (0.1 * normal).exp()
    }

    /// And lopsided: mostly near the best, now and then much slower. The median is 1.
    fn lopsided(random: &mut fastrand::Rng) -> f64 {
        ((1.0 - random.f64()).ln() * 0.1).exp() / 0.5_f64.powf(0.1)
    }

    fn rounds(
        count: usize,
        median: f64,
        of: fn(&mut fastrand::Rng) -> f64,
        random: &mut fastrand::Rng,
    ) -> Vec<f64> {
        (0..count).map(|_| median * of(random)).collect()
    }

    /// How often the truth is in the interval, with `count` rounds a side.
    fn coverage(count: usize, of: fn(&mut fastrand::Rng) -> f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        const TRIALS: usize = 200;
        let inside = (0..TRIALS).filter(|_| {
            let below = rounds(count, 100.0, of, &mut random);
            let above = rounds(count, 80.0, of, &mut random);
            ratio_of_medians(&below, &above).is_some_and(|found| found.contains(0.8))
        });
        inside.count() as f64 / TRIALS as f64
    }

    #[test]
    fn the_truth_is_in_the_interval_as_often_as_it_says() {
        for (name, of) in [
            ("scattered", scattered as fn(&mut _) -> _),
            ("lopsided", lopsided),
        ] {
            for count in [3, 4, 5, 7, 10, 20] {
                let found = coverage(count, of);
                println!("{name}, {count} rounds: {found:.3}");
                // 200 trials of 0.95 are below 0.92 once in forty.
                assert!(found >= 0.92, "{name}, {count} rounds: {found}");
                // Welch's interval is wide where there is little to go by.
                let most = if count < FEW { 1.0 } else { 0.995 };
                assert!(found <= most, "{name}, {count} rounds: {found} is too wide");
            }
        }
    }

    #[test]
    fn more_rounds_make_the_interval_narrower() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut width = |count| {
            let below = rounds(count, 100.0, scattered, &mut random);
            let above = rounds(count, 100.0, scattered, &mut random);
            let found = ratio_of_medians(&below, &above).expect("an interval");
            found.high - found.low
        };
        assert!(width(100) < width(5) / 2.0);
    }

    #[test]
    fn the_same_rounds_give_the_same_interval() {
        let (below, above) = ([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]);
        assert_eq!(
            ratio_of_medians(&below, &above),
            ratio_of_medians(&below, &above)
        );
    }

    #[test]
    fn no_ratio_is_made_of_nothing_or_of_zero() {
        assert_eq!(ratio_of_medians(&[], &[1.0]), None);
        assert_eq!(ratio_of_medians(&[0.0], &[1.0]), None);
        assert_eq!(ratio_of_medians(&[1.0], &[f64::NAN]), None);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

        #[test]
        fn an_interval_holds_its_ratio_and_does_not_know_the_unit(
            below in proptest::collection::vec(1.0..1000.0_f64, 1..12),
            above in proptest::collection::vec(1.0..1000.0_f64, 1..12),
        ) {
            let found = ratio_of_medians(&below, &above).expect("an interval");
            proptest::prop_assert!(found.low > 0.0 && found.contains(found.ratio));
            // Four times: floating point is exact about it.
            let larger: Vec<f64> = above.iter().map(|rate| rate * 4.0).collect();
            let scaled = ratio_of_medians(&below, &larger).expect("an interval");
            proptest::prop_assert!((scaled.low / found.low - 4.0).abs() < 1e-9);
            proptest::prop_assert!((scaled.high / found.high - 4.0).abs() < 1e-9);
        }
    }
}
