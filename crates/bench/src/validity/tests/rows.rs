//! Rows of rounds, and a store against itself.

use super::*;

fn round(rate: f64, kinds: &[IssueKind]) -> Round {
    Round {
        rate,
        issues: kinds
            .iter()
            .map(|kind| issue(*kind, "on purpose"))
            .collect(),
        ..Round::default()
    }
}

#[test]
fn a_row_with_too_few_valid_rounds_is_invalid_and_says_why() {
    let rounds = [
        round(1.0, &[]),
        round(1.0, &[IssueKind::CacheHit]),
        round(1.0, &[IssueKind::NearlyFull]),
        round(1.0, &[IssueKind::CacheHit]),
    ];
    let verdict = of_row(&rounds, &Limits::default());
    assert!(verdict.invalid);
    fires(
        &verdict.issues,
        IssueKind::TooShort,
        "2 valid of 4 rounds; 3 are needed",
    );
    fires(
        &verdict.issues,
        IssueKind::CacheHit,
        "on purpose (2 of 4 rounds)",
    );
    let enough = Limits {
        rounds_min: 2,
        ..Limits::default()
    };
    assert!(!of_row(&rounds, &enough).invalid);
}

#[test]
fn no_valid_round_is_never_enough() {
    let none = Limits {
        rounds_min: 0,
        ..Limits::default()
    };
    assert!(of_row(&[], &none).invalid);
}

#[test]
fn a_drift_is_remarked_of_the_valid_rounds() {
    let falling: Vec<Round> = (0..6)
        .map(|at| round(100.0 - 6.0 * f64::from(at), &[]))
        .collect();
    let verdict = of_row(&falling, &Limits::default());
    assert!(!verdict.invalid);
    fires(&verdict.issues, IssueKind::Drift, "fell by");
}

#[test]
fn a_store_that_differs_from_itself_is_caught() {
    let kind = |low, high| {
        let itself = Itself {
            rounds: Vec::new(),
            ratio: 1.1,
            low,
            high,
        };
        of_noise("plain", &itself, &Limits::default()).map(|issue| issue.kind)
    };
    assert_eq!(kind(0.5, 1.2), Some(IssueKind::NoiseTooLarge));
    assert_eq!(kind(0.95, 1.3), Some(IssueKind::NoiseTooLarge));
    assert_eq!(kind(0.95, 1.2), None);
    assert_eq!(kind(1.02, 1.2), None);
}
