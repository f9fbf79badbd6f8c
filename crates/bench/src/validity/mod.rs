//! Whether a number is valid.
//!
//! A round says what it did ([`Claim`]); the machine says what it saw ([`Evidence`]). Each check compares the two and answers a
//! [`Issue`] or nothing. Limits are in [`Limits`], the table of all checks in `docs/benchmark.md`.
//!
//! 1. A check that lacks its evidence does not fire here, and what is lacking is one remark, [`IssueKind::NotObservable`].
//! 2. Checks do not know each other: one fault may be seen by several.
//! 3. Where honest work could look like this, a check does not fire: false alarms would teach people to ignore it.

use crate::clock::Elapsed;
use crate::model::{Issue, IssueKind, Itself, Round, Verdict};
use crate::observe::{Ceilings, Evidence};
use crate::statistics;

mod cache;
mod clocks;
mod data;
mod device;
mod limits;
mod physics;
mod steadiness;

pub use data::{Zeros, data_matters};
pub use limits::Limits;

/// Which way the bytes went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// Read from the store.
    Read,
    /// Written to it.
    Write,
    /// Both, or names and attributes only: bytes at the device mean nothing then.
    #[default]
    Neither,
}

/// What the work says it did in the time between the first and the last reading of the clocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claim {
    /// Which way.
    pub direction: Direction,
    /// Operations.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Nothing of it was to come from a cache.
    pub cold: bool,
    /// Every call was to go past the page cache.
    pub direct: bool,
    /// Whether the descriptors have O_DIRECT (`fcntl(2)`, F_GETFL) as far as the store has descriptors.
    pub direct_flag: Option<bool>,
    /// Whether everything written was durable before the clock was read last; for work that writes nothing it means nothing.
    pub durable: bool,
    /// Whether names or attributes were changed.
    pub changed_names: bool,
    /// Calls of this process moved the bytes, not io_uring nor a library's own threads: `/proc/self/io` must have them.
    pub by_calls: bool,
    /// One thread of this process does all its work, a call after the other: its processor time and its waiting exclude each other.
    pub alone: bool,
    /// Syncs that were each waited for, by one thread at a time.
    pub syncs: u64,
    /// Median of their times, nanoseconds.
    pub sync_p50_ns: Option<u64>,
    /// Bytes compared with what had been written, and those that differed.
    pub compared_bytes: u64,
    /// Bytes of them that differed.
    pub wrong_bytes: u64,
    /// Rates of the slices of the round, if it has any.
    pub slices: Vec<f64>,
    /// Time passed by the clock of a server elsewhere, nanoseconds, with its name.
    pub elsewhere: Vec<(String, i64)>,
}

/// Every check on one round.
pub fn of_round(
    evidence: &Evidence,
    claim: &Claim,
    ceilings: &Ceilings,
    limits: &Limits,
) -> Vec<Issue> {
    let seen = Seen {
        evidence,
        claim,
        ceilings,
        limits,
    };
    CHECKS.iter().filter_map(|check| check(&seen)).collect()
}

/// What a check looks at.
struct Seen<'a> {
    evidence: &'a Evidence,
    claim: &'a Claim,
    ceilings: &'a Ceilings,
    limits: &'a Limits,
}

type Check = fn(&Seen) -> Option<Issue>;

const CHECKS: [Check; 23] = [
    clocks::disagree,
    clocks::disagree_elsewhere,
    clocks::jumped,
    clocks::stalled,
    clocks::counts_processor,
    clocks::shorter_than_the_device_was_busy,
    device::bytes_missing,
    device::calls_missing,
    device::not_durable,
    device::names_not_durable,
    device::sync_without_flush,
    device::shared,
    device::nearly_full,
    cache::hit,
    cache::not_direct,
    data::wrong,
    physics::sync_too_fast,
    physics::faster_than_physics,
    steadiness::too_short,
    steadiness::not_steady,
    steadiness::stolen,
    steadiness::frequency,
    steadiness::unobserved,
];

/// Whether a row of rounds is valid: enough valid rounds, no drift. What made rounds invalid is repeated once a kind, with
/// how many it struck.
pub fn of_row(rounds: &[Round], limits: &Limits) -> Verdict {
    let valid: Vec<f64> = rounds
        .iter()
        .filter(|round| round.is_valid())
        .map(|round| round.rate)
        .collect();
    let mut issues = repeated(rounds);
    let needed = limits.rounds_min.max(1);
    let enough = valid.len() >= needed;
    if !enough {
        issues.push(issue(
            IssueKind::TooShort,
            format!(
                "{} valid of {} rounds; {needed} are needed",
                valid.len(),
                rounds.len()
            ),
        ));
    }
    if let Some(drift) = statistics::drift(&valid) {
        issues.push(issue(
            IssueKind::Drift,
            format!(
                "the rate {} by {:.0} % over {} rounds",
                if drift.change > 0.0 { "rose" } else { "fell" },
                drift.change.abs() * 100.0,
                valid.len()
            ),
        ));
    }
    Verdict {
        invalid: !enough,
        issues,
    }
}

fn repeated(rounds: &[Round]) -> Vec<Issue> {
    let mut kinds: Vec<IssueKind> = rounds
        .iter()
        .flat_map(|round| round.issues.iter().map(|issue| issue.kind))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let repeat = |kind: IssueKind| {
        let of_kind = |round: &&Round| round.issues.iter().any(|issue| issue.kind == kind);
        let struck = rounds.iter().filter(of_kind).count();
        let first = rounds
            .iter()
            .flat_map(|round| &round.issues)
            .find(|issue| issue.kind == kind)?;
        let said = if rounds.len() > 1 && struck < rounds.len() {
            format!("{} ({struck} of {} rounds)", first.said, rounds.len())
        } else {
            first.said.clone()
        };
        Some(issue(kind, said))
    };
    kinds.into_iter().filter_map(repeat).collect()
}

/// Whether a store may differ so much from itself that nothing can be measured. An interval that leaves out 1 is no reason: chance alone
/// makes one in twenty, and ratios are widened by it.
pub fn of_noise(store: &str, itself: &Itself, limits: &Limits) -> Option<Issue> {
    let factor = statistics::noise_factor(itself.low, itself.high);
    (factor > 1.0 + limits.noise_max).then(|| {
        issue(
            IssueKind::NoiseTooLarge,
            format!(
                "{store} compared with itself may differ by ±{:.0} % (at most {:.0} % is accepted)",
                (factor - 1.0) * 100.0,
                limits.noise_max * 100.0
            ),
        )
    })
}

fn issue(kind: IssueKind, said: impl Into<String>) -> Issue {
    Issue {
        kind,
        said: said.into(),
    }
}

impl Elapsed {
    /// The clocks that the measuring one is compared with, with names for a sentence.
    fn compared(&self) -> [(&'static str, i64); 2] {
        [
            ("CLOCK_BOOTTIME", self.boottime_ns),
            ("CLOCK_REALTIME", self.realtime_ns),
        ]
    }
}

#[cfg(test)]
mod tests;
