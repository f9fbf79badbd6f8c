//! The interval of a ratio of medians, by the bootstrap.
//!
//! Both sets of rounds are drawn again from themselves, with replacement, [`RESAMPLES`] times; the ratio of the medians of each pair
//! of draws is kept, and the interval's ends are percentiles of those (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
//! chapter 13; for ratios of run times Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
//!
//! The plain percentile interval is too narrow for few rounds. Its ends are therefore taken further out, as far as Student's t is
//! wider than the normal distribution ("expanded percentile interval": Hesterberg, "What Teachers Should Know About the Bootstrap",
//! The American Statistician 69, 2015, section 4.1.2). With three rounds a side that is the whole range of ratios drawn, and the tests count how
//! often the truth lies inside.
//!
//! Rounds of two stores are measured in turns, but not paired here: pairing would give a narrower interval where the noise is common
//! to both, and with three pairs a much too narrow one.

use super::median;

/// Draws.
pub const RESAMPLES: usize = 4000;
/// The same for all reports: computed again, an interval is the same.
const SEED: u64 = 0x5eed_0f_7a71_05;

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
    /// Whether `value` lies in it.
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
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| drawn(above, &mut random) / drawn(below, &mut random))
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let outside = outside(below.len().min(above.len()));
    let at =
        |share: f64| ratios[((share * (RESAMPLES - 1) as f64).round() as usize).min(RESAMPLES - 1)];
    Some(Interval {
        ratio,
        low: at(outside),
        high: at(1.0 - outside),
    })
}

/// Median of as many values, drawn with replacement.
fn drawn(values: &[f64], random: &mut fastrand::Rng) -> f64 {
    let draw: Vec<f64> = (0..values.len())
        .map(|_| values[random.usize(..values.len())])
        .collect();
    median(&draw).unwrap_or(f64::NAN)
}

/// Share of the draws left out at each end, for a 95 % interval of `rounds` values: Φ(−√(n/(n−1))·t) with Student's t of n−1 degrees
/// of freedom.
fn outside(rounds: usize) -> f64 {
    /// 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom.
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    if rounds < 2 {
        return 0.0;
    }
    let t = T.get(rounds - 2).copied().unwrap_or(1.96);
    let n = rounds as f64;
    normal_below(-(n / (n - 1.0)).sqrt() * t)
}

/// Φ for x ≤ 0: Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, 26.2.17; off by less than 7.5e-8.
fn normal_below(x: f64) -> f64 {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.231_641_9 * size);
    let series = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = series
        .iter()
        .rev()
        .fold(0.0, |sum, factor| t * (sum + factor));
    (-size * size / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of a log-normal distribution around `median`, as rates of rounds are; Box and Muller.
    fn rounds(count: usize, median: f64, spread: f64, random: &mut fastrand::Rng) -> Vec<f64> {
        let normal = |random: &mut fastrand::Rng| {
            let (u, v) = (1.0 - random.f64(), random.f64());
            (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
        };
        (0..count)
            .map(|_| median * (spread * normal(random)).exp())
            .collect()
    }

    /// How often the truth lies in the interval, with `count` rounds a side.
    fn coverage(count: usize, spread: f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        const TRIALS: usize = 300;
        let inside = (0..TRIALS).filter(|_| {
            let below = rounds(count, 100.0, spread, &mut random);
            let above = rounds(count, 80.0, spread, &mut random);
            ratio_of_medians(&below, &above).is_some_and(|found| found.contains(0.8))
        });
        inside.count() as f64 / TRIALS as f64
    }

    #[test]
    fn the_truth_lies_in_the_interval_as_often_as_it_says() {
        for count in [3, 4, 5, 7, 10, 20] {
            let found = coverage(count, 0.1);
            println!("{count} rounds: {found:.3}");
            assert!(found >= 0.88, "{count} rounds: {found}");
        }
    }

    #[test]
    fn more_rounds_make_the_interval_narrower() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut width = |count| {
            let below = rounds(count, 100.0, 0.1, &mut random);
            let above = rounds(count, 100.0, 0.1, &mut random);
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

    #[test]
    fn the_normal_distribution_is_as_in_the_tables() {
        assert!((normal_below(-1.96) - 0.025).abs() < 1e-5);
        assert!((normal_below(0.0) - 0.5).abs() < 1e-6);
        assert!(outside(3) < 1e-5 && outside(1000) > 0.024);
    }
}
