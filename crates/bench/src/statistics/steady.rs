//! From when on a rate is steady, after SNIA's "Solid State Storage Performance Test Specification" (version 2.0.1, "steady state"):
//! over a window of five measurements the range is at most 20 % of their average, and the straight line fitted to them by least squares
//! rises or falls by at most 10 % of it from the window's one end to the other.
//!
//! SNIA's measurements are a minute each; here they are slices of a round, so what is found is that a round's beginning (a cache
//! that fills, a frequency that rises) is over, not that a flash device is worn in.

/// Slices that are looked at together.
pub const WINDOW: usize = 5;
/// Slices distinguished in a round, at most.
const LOOKED_AT: usize = 16;
/// Largest difference between two slices of a window, as a share of its average.
const RANGE_MAX: f64 = 0.20;
/// Largest rise or fall of the fitted line over a window, as a share of its average.
const SLOPE_MAX: f64 = 0.10;

/// Whether and when a round became steady.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steadiness {
    /// Fewer slices than a window: nothing can be said.
    TooFewSlices,
    /// From this slice on; so many leading ones are to be cut off.
    From(u32),
    /// No window meets the criterion.
    Never,
}

/// Looks for the first window of `slices` (rates of equal slices of a round) that is steady. Of more than `LOOKED_AT` slices
/// neighbours are taken together: the shorter a slice, the more of its rate is chance.
pub fn steadiness(slices: &[f64]) -> Steadiness {
    let per = slices.len().div_ceil(LOOKED_AT).max(1);
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
    let together: Vec<f64> = slices.chunks_exact(per).map(mean).collect();
    if together.len() < WINDOW {
        return Steadiness::TooFewSlices;
    }
    match together.windows(WINDOW).position(is_steady) {
        Some(first) => Steadiness::From(u32::try_from(first * per).unwrap_or(u32::MAX)),
        None => Steadiness::Never,
    }
}

fn is_steady(window: &[f64]) -> bool {
    let count = window.len() as f64;
    let average = window.iter().sum::<f64>() / count;
    if !average.is_finite() || average <= 0.0 {
        return false;
    }
    let most = window.iter().copied().fold(f64::MIN, f64::max);
    let least = window.iter().copied().fold(f64::MAX, f64::min);
    let rise = slope(window) * (count - 1.0);
    most - least <= RANGE_MAX * average && rise.abs() <= SLOPE_MAX * average
}

/// Of the straight line fitted by least squares, a step.
pub(super) fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let average = values.iter().sum::<f64>() / count;
    let (mut together, mut alone) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let from_middle = at as f64 - middle;
        together += from_middle * (value - average);
        alone += from_middle * from_middle;
    }
    if alone == 0.0 { 0.0 } else { together / alone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_that_is_not_steady_is_cut_off() {
        let slices = [300.0, 220.0, 150.0, 101.0, 99.0, 100.0, 102.0, 98.0];
        assert_eq!(steadiness(&slices), Steadiness::From(3));
        assert_eq!(steadiness(&slices[3..]), Steadiness::From(0));
    }

    #[test]
    fn a_window_within_the_range_that_keeps_falling_is_not_steady() {
        // 16 % between its ends, all of it slope.
        let falling: Vec<f64> = (0..9).map(|at| 100.0 * 0.96_f64.powi(at)).collect();
        assert_eq!(steadiness(&falling), Steadiness::Never);
        // The same range without slope is.
        assert_eq!(
            steadiness(&[100.0, 90.0, 106.0, 92.0, 100.0]),
            Steadiness::From(0)
        );
    }

    #[test]
    fn of_many_slices_neighbours_are_taken_together() {
        // Each pair scatters by far more than is borne; the pairs' means do not.
        let mut slices: Vec<f64> = (0..32).map(|at| [60.0, 140.0][at % 2]).collect();
        assert_eq!(steadiness(&slices), Steadiness::From(0));
        slices[..6].fill(400.0);
        assert_eq!(steadiness(&slices), Steadiness::From(6));
    }

    #[test]
    fn slices_that_scatter_are_never_steady() {
        assert_eq!(
            steadiness(&[100.0, 70.0, 130.0, 75.0, 125.0, 100.0]),
            Steadiness::Never
        );
        assert_eq!(steadiness(&[0.0; 6]), Steadiness::Never);
        assert_eq!(steadiness(&[1.0; 4]), Steadiness::TooFewSlices);
    }
}
