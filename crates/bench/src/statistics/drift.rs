//! Whether a rate wanders from round to round in one direction.
//!
//! Two things together: the straight line fitted to the rounds moves by more than a tenth of their average, and the order is not one that
//! chance makes often: Kendall's rank correlation with time (Mann, "Nonparametric tests against trend", Econometrica 13, 1945).

use super::steady::slope;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Change over all rounds, as a share of their average: negative when the rate falls.
    pub change: f64,
}

/// Change from which a drift is spoken of.
const CHANGE_MIN: f64 = 0.10;
/// Fewest rounds: with four, an order that chance makes seldom enough does not exist.
const ROUNDS_MIN: usize = 5;
/// How often chance may make such an order: one in twenty.
const CHANCE_MAX: f64 = 0.05;

/// Looks for a drift in rates in the order they were measured; `None` if there is none to be seen.
pub fn drift(rates: &[f64]) -> Option<Drift> {
    if rates.len() < ROUNDS_MIN {
        return None;
    }
    let average = rates.iter().sum::<f64>() / rates.len() as f64;
    let change = slope(rates) * (rates.len() - 1) as f64 / average;
    let seen = change.is_finite() && change.abs() > CHANGE_MIN && chance(rates) < CHANCE_MAX;
    seen.then_some(Drift { change })
}

/// How often chance alone makes an order at least as monotone as this one, in either direction.
fn chance(rates: &[f64]) -> f64 {
    let count = rates.len();
    // Pairs in descending order: as many as a sort by neighbours would swap.
    let mut falling = 0;
    for (at, earlier) in rates.iter().enumerate() {
        falling += rates[at + 1..]
            .iter()
            .filter(|later| *later < earlier)
            .count();
    }
    let pairs = count * (count - 1) / 2;
    let extreme = falling.min(pairs - falling);
    // Of all orders of `count` rounds, the share with so many falling pairs: one more round adds 0 to `size - 1` of them, each equally often.
    let mut shares = vec![1.0];
    for size in 2..=count {
        let mut next = vec![0.0; shares.len() + size - 1];
        for (pairs, share) in shares.iter().enumerate() {
            for more in 0..size {
                next[pairs + more] += share / size as f64;
            }
        }
        shares = next;
    }
    2.0 * shares[..=extreme].iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_fall_from_round_to_round_drift() {
        let found = drift(&[100.0, 96.0, 91.0, 88.0, 84.0, 80.0]).expect("a drift");
        assert!((found.change + 0.22).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn scatter_and_small_changes_are_no_drift() {
        assert_eq!(drift(&[100.0, 80.0, 110.0, 85.0, 105.0, 90.0]), None);
        assert_eq!(drift(&[100.0, 101.0, 102.0, 103.0, 104.0]), None);
        assert_eq!(drift(&[100.0, 50.0, 25.0]), None);
    }

    #[test]
    fn the_share_of_orders_is_exact() {
        // Of the 120 orders of five, one rises and one falls throughout.
        assert!((chance(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 2.0 / 120.0).abs() < 1e-12);
        // Four more have one pair out of order: (1 + 4) in both directions.
        assert!((chance(&[2.0, 1.0, 3.0, 4.0, 5.0]) - 10.0 / 120.0).abs() < 1e-12);
    }
}
