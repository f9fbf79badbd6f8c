//! Whether a round was long and undisturbed enough.

use super::{Issue, IssueKind, Seen, issue};
use crate::statistics::{Steadiness, steadiness};

/// Long enough for its ends and the clocks' slack to weigh little, and enough operations to speak of a rate.
pub(super) fn too_short(seen: &Seen) -> Option<Issue> {
    let seconds = seen.evidence.seconds();
    let operations = seen.claim.operations;
    let limits = seen.limits;
    let said = if seconds < limits.seconds_min {
        format!(
            "the round took {seconds:.3} s; {} s are needed: more must be read or written",
            limits.seconds_min
        )
    } else if operations < limits.operations_min {
        format!(
            "the round has {operations} operations; {} are needed",
            limits.operations_min
        )
    } else {
        return None;
    };
    Some(issue(IssueKind::TooShort, said))
}

/// At some time the rate was steady.
pub(super) fn not_steady(seen: &Seen) -> Option<Issue> {
    (steadiness(&seen.claim.slices) == Steadiness::Never).then(|| {
        issue(
            IssueKind::NotSteady,
            format!(
                "in {} slices the rate was never steady (range within 20 %, slope within 10 %)",
                seen.claim.slices.len()
            ),
        )
    })
}

/// The host took no processor away.
pub(super) fn stolen(seen: &Seen) -> Option<Issue> {
    let stolen = seen.evidence.stolen?;
    (stolen > seen.limits.stolen_share).then(|| {
        issue(
            IssueKind::StolenTime,
            format!(
                "the host took away {:.0} % of the processors' time",
                stolen * 100.0
            ),
        )
    })
}

/// The processor kept its frequency.
pub(super) fn frequency(seen: &Seen) -> Option<Issue> {
    let change = seen.evidence.frequency_change?;
    (change > seen.limits.frequency_share).then(|| {
        issue(
            IssueKind::FrequencyChanged,
            format!("a processor's frequency changed by {:.0} %", change * 100.0),
        )
    })
}

/// What could not be seen here.
pub(super) fn unobserved(seen: &Seen) -> Option<Issue> {
    let missing = &seen.evidence.unobserved;
    (!missing.is_empty()).then(|| issue(IssueKind::NotObservable, missing.join("; ")))
}
