//! What rounds amount to: medians, the interval of a ratio, steadiness, drift.
//!
//! 1. Only valid rounds enter ([`Round::is_valid`]).
//! 2. Nothing here is random from run to run: the bootstrap's seed is fixed, so a report computed again says the same.
//!
//! It deliberately does not know what was measured, only in which unit and which direction.

mod bootstrap;
mod drift;
mod steady;

pub use bootstrap::{Interval, RESAMPLES, ratio_of_medians};
pub use drift::{Drift, drift};
pub use steady::{Steadiness, WINDOW, steadiness};

use crate::model::{Comparison, Report, Round, Row, Summary, Unit};

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let at = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[at]),
        _ => Some((sorted[at - 1] + sorted[at]) / 2.0),
    }
}

/// Of the valid rounds; `None` when there is none. `writes` says whether the work writes: only then is there a write amplification.
pub fn summary(rounds: &[Round], writes: bool) -> Option<Summary> {
    let valid: Vec<&Round> = rounds.iter().filter(|round| round.is_valid()).collect();
    let rates: Vec<f64> = valid.iter().map(|round| round.rate).collect();
    let per_byte = |of: &dyn Fn(&Round) -> Option<f64>| {
        let values: Vec<f64> = valid
            .iter()
            .filter(|round| round.bytes > 0)
            .filter_map(|round| Some(of(round)? / round.bytes as f64))
            .collect();
        median(&values)
    };
    Some(Summary {
        median: median(&rates)?,
        least: rates.iter().copied().reduce(f64::min)?,
        most: rates.iter().copied().reduce(f64::max)?,
        rounds: u32::try_from(rates.len()).unwrap_or(u32::MAX),
        cpu_s_per_gb: per_byte(&|round| round.cpu_s).map(|of_a_byte| of_a_byte * 1e9),
        write_amplification: per_byte(&|round| {
            round.device_written_bytes.map(|bytes| bytes as f64)
        })
        .filter(|_| writes),
    })
}

/// How many times as fast `other` is as `base`: the ratio of their medians, or its inverse where the unit is a time, with its 95 %
/// interval. `noise` is the factor of [`noise`] or [`noise_factor`]: a difference is seen when the interval, widened to that, leaves
/// out 1.
pub fn compare(base: &Row, other: &Row, noise: f64) -> Comparison {
    let blank = Comparison {
        work: base.work.clone(),
        base: base.store.clone(),
        other: other.store.clone(),
        ratio: None,
        low: None,
        high: None,
        differs: false,
        invalid: None,
    };
    let why_not = if base.work != other.work || base.unit != other.unit {
        Some(format!(
            "not the same work: {} is not {}",
            other.work, base.work
        ))
    } else {
        [base, other]
            .into_iter()
            .find_map(|row| Some(format!("{}: {}", row.store, why_invalid(row)?)))
    };
    if why_not.is_some() {
        return Comparison {
            invalid: why_not,
            ..blank
        };
    }
    let (below, above) = match base.unit {
        Unit::Seconds => (rates(other), rates(base)),
        _ => (rates(base), rates(other)),
    };
    match ratio_of_medians(&below, &above) {
        None => Comparison {
            invalid: Some("a rate is zero: there is no ratio".to_owned()),
            ..blank
        },
        Some(found) => Comparison {
            ratio: Some(found.ratio),
            low: Some(found.low),
            high: Some(found.high),
            differs: !found.widened(noise).contains(1.0),
            ..blank
        },
    }
}

fn rates(row: &Row) -> Vec<f64> {
    let valid = row.rounds.iter().filter(|round| round.is_valid());
    valid.map(|round| round.rate).collect()
}

/// Why a row enters no ratio.
fn why_invalid(row: &Row) -> Option<String> {
    let said = |issues: &[crate::model::Issue]| {
        let first = issues.iter().find(|issue| issue.kind.invalidates());
        first.map(|issue| issue.said.clone())
    };
    if row.verdict.invalid {
        let why = said(&row.verdict.issues);
        return Some(why.unwrap_or_else(|| "INVALID".to_owned()));
    }
    if row.rounds.iter().any(Round::is_valid) {
        return None;
    }
    let why = row.rounds.iter().find_map(|round| said(&round.issues));
    Some(why.unwrap_or_else(|| "nothing was measured".to_owned()))
}

/// How far from 1 the noise reaches, as a factor of at least 1: the farther end of the interval of a store against itself.
pub fn noise_factor(low: f64, high: f64) -> f64 {
    let downwards = if low > 0.0 { 1.0 / low } else { f64::INFINITY };
    high.max(downwards).max(1.0)
}

/// The factor of a work: that of its own floor, else of the report's one floor; 1 where neither was measured.
pub fn noise(report: &Report, work: &str) -> f64 {
    let own = report.floors().find(|(row, _)| row.work == work);
    let of_all = report.noise.as_ref();
    own.map(|(_, itself)| (itself.low, itself.high))
        .or(of_all.map(|floor| (floor.low, floor.high)))
        .map_or(1.0, |(low, high)| noise_factor(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Issue, IssueKind, Verdict};

    fn row(store: &str, unit: Unit, rates: &[f64]) -> Row {
        let rounds = rates.iter().map(|rate| Round {
            rate: *rate,
            bytes: 1_000_000_000,
            cpu_s: Some(2.0),
            device_written_bytes: Some(3_000_000_000),
            ..Round::default()
        });
        Row {
            store: store.to_owned(),
            work: "write".to_owned(),
            unit,
            rounds: rounds.collect(),
            summary: None,
            latency: None,
            verdict: Verdict::default(),
            itself: None,
        }
    }

    fn issue_of(kind: IssueKind) -> Issue {
        Issue {
            kind,
            said: "on purpose".to_owned(),
        }
    }

    #[test]
    fn an_invalid_round_enters_no_summary_and_no_ratio() {
        let mut base = row("a", Unit::MegabytesPerSecond, &[10.0, 11.0, 12.0, 900.0]);
        base.rounds[3].issues.push(issue_of(IssueKind::CacheHit));
        let found = summary(&base.rounds, true).expect("a summary");
        assert_eq!((found.median, found.most, found.rounds), (11.0, 12.0, 3));
        assert_eq!(found.cpu_s_per_gb, Some(2.0));
        assert_eq!(found.write_amplification, Some(3.0));
        assert_eq!(
            summary(&base.rounds, false)
                .expect("a summary")
                .write_amplification,
            None
        );

        let other = row("b", Unit::MegabytesPerSecond, &[10.0, 11.0, 12.0]);
        assert_eq!(compare(&base, &other, 1.0).ratio, Some(1.0));
    }

    #[test]
    fn a_side_without_a_valid_round_has_no_ratio_and_the_reason_is_said() {
        let mut base = row("a", Unit::MegabytesPerSecond, &[10.0]);
        base.rounds[0].issues.push(issue_of(IssueKind::SyncTooFast));
        let other = row("b", Unit::MegabytesPerSecond, &[10.0]);
        let found = compare(&base, &other, 1.0);
        assert_eq!(found.ratio, None);
        assert_eq!(found.invalid.as_deref(), Some("a: on purpose"));
    }

    #[test]
    fn of_times_the_shorter_is_the_faster() {
        let base = row("a", Unit::Seconds, &[4.0, 4.0, 4.0]);
        let other = row("b", Unit::Seconds, &[2.0, 2.0, 2.0]);
        assert_eq!(compare(&base, &other, 1.0).ratio, Some(2.0));
    }

    #[test]
    fn a_difference_inside_the_noise_is_not_seen() {
        let base = row(
            "a",
            Unit::OperationsPerSecond,
            &[100.0, 101.0, 99.0, 100.0, 100.5],
        );
        let other = row(
            "b",
            Unit::OperationsPerSecond,
            &[104.0, 105.0, 103.0, 104.0, 104.5],
        );
        assert!(compare(&base, &other, 1.0).differs);
        assert!(!compare(&base, &other, noise_factor(0.94, 1.05)).differs);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
