//! Whether the time is wall time.

use super::{Issue, IssueKind, Seen, issue};
use crate::clock::Elapsed;
use crate::words;

/// Whether two times differ by more than the limits bear.
fn apart(seen: &Seen, one: i64, other: i64) -> bool {
    let longer = one.unsigned_abs().max(other.unsigned_abs()) as f64;
    let borne = longer * seen.limits.clock_share + seen.limits.clock_slack_ns as f64;
    one.abs_diff(other) as f64 > borne
}

/// Over the whole round, the clocks of this machine agree.
pub(super) fn disagree(seen: &Seen) -> Option<Issue> {
    let others = seen.evidence.elapsed.compared().into_iter();
    another(seen, others.map(|(name, ns)| (name.to_owned(), ns)))
}

/// And with the clock of a server elsewhere.
pub(super) fn disagree_elsewhere(seen: &Seen) -> Option<Issue> {
    let others = seen.claim.elsewhere.iter();
    another(
        seen,
        others.map(|(name, ns)| (format!("the clock of {name}"), *ns)),
    )
}

/// The first of these clocks that does not agree with the measuring one.
fn another(seen: &Seen, mut clocks: impl Iterator<Item = (String, i64)>) -> Option<Issue> {
    let raw = seen.evidence.elapsed.raw_ns;
    let (name, other) = clocks.find(|(_, other)| apart(seen, raw, *other))?;
    Some(issue(
        IssueKind::ClocksDisagree,
        format!(
            "the measuring clock passed {}, {name} {}",
            words::time_ns(raw as f64),
            words::time_ns(other as f64)
        ),
    ))
}

/// No clock went back, and in no slice did one leap: the others agree there.
pub(super) fn jumped(seen: &Seen) -> Option<Issue> {
    let said = seen.evidence.between.iter().find_map(|slice| {
        let clocks = named(slice);
        if let Some((name, passed)) = clocks.iter().find(|(_, passed)| *passed < 0) {
            return Some(format!(
                "{name} went back by {}",
                words::time_ns(-passed as f64)
            ));
        }
        // One of three differs from the two others, which agree, and is ahead of them: it leapt. Behind them it stalled.
        (0..3).find_map(|odd| {
            let (name, passed) = clocks[odd];
            let rest = [clocks[(odd + 1) % 3].1, clocks[(odd + 2) % 3].1];
            let leapt = !apart(seen, rest[0], rest[1])
                && apart(seen, passed, rest[0])
                && passed > rest[0].saturating_mul(2);
            leapt.then(|| {
                format!(
                    "{name} leapt by {}",
                    words::time_ns((passed - rest[0]) as f64)
                )
            })
        })
    });
    Some(issue(IssueKind::ClockJumped, said?))
}

/// In no slice does the measuring clock stop, or nearly, while the others run.
pub(super) fn stalled(seen: &Seen) -> Option<Issue> {
    let stood = |slice: &&Elapsed| {
        let others = slice.boottime_ns.max(slice.process_cpu_ns);
        others > seen.limits.clock_slack_ns
            && slice.raw_ns >= 0
            && (slice.raw_ns as f64) < others as f64 * seen.limits.stalled_share
    };
    let whole = &seen.evidence.elapsed;
    if let Some(slice) = seen.evidence.between.iter().find(stood) {
        return Some(issue(
            IssueKind::ClockStalled,
            format!(
                "the measuring clock passed {} where CLOCK_BOOTTIME passed {} and the processor worked for {}",
                words::time_ns(slice.raw_ns as f64),
                words::time_ns(slice.boottime_ns as f64),
                words::time_ns(slice.process_cpu_ns as f64)
            ),
        ));
    }
    (whole.raw_ns == 0 && seen.claim.operations > 0).then(|| {
        issue(
            IssueKind::ClockStalled,
            format!("{} operations took no time", seen.claim.operations),
        )
    })
}

/// The time is not the processor's time. Where one thread works and waits by turns, both being equal means that the waiting is missing;
/// where another clock passed more, equality shows what is wrong with this one.
pub(super) fn counts_processor(seen: &Seen) -> Option<Issue> {
    let passed = &seen.evidence.elapsed;
    let (raw, cpu) = (passed.raw_ns, passed.process_cpu_ns);
    let same = raw.abs_diff(cpu) as f64 <= raw.max(0) as f64 * seen.limits.processor_share;
    if raw <= 0 || !same {
        return None;
    }
    let apart = |(_, other): &(&str, i64)| apart(seen, raw, *other);
    if let Some((name, other)) = passed.compared().into_iter().find(apart) {
        return Some(issue(
            IssueKind::ClockCountsProcessor,
            format!(
                "the time ({}) is the processor time ({}), and {name} passed {}: waiting is not counted",
                words::time_ns(raw as f64),
                words::time_ns(cpu as f64),
                words::time_ns(other as f64)
            ),
        ));
    }
    let claim = seen.claim;
    let device = seen.evidence.top().filter(|device| !device.memory)?;
    let busy_ns = device.did.busy_ms as f64 * 1e6;
    // Writing in the background keeps a device busy without anybody waiting: only direct calls and syncs wait.
    let waits = claim.alone && (claim.direct || claim.syncs >= claim.operations.max(1));
    (waits && busy_ns > raw as f64 * seen.limits.busy_share).then(|| {
        issue(
            IssueKind::ClockCountsProcessor,
            format!(
                "the time ({}) is the processor time, though {} was busy for {} ms meanwhile: waiting is not counted",
                words::time_ns(raw as f64),
                device.name,
                device.did.busy_ms
            ),
        )
    })
}

/// The kernel counts a device's busy time by its own ticks: no round is shorter than that.
pub(super) fn shorter_than_the_device_was_busy(seen: &Seen) -> Option<Issue> {
    /// Ticks that a request at either end may add.
    const SLACK_MS: f64 = 20.0;
    let raw_ms = seen.evidence.elapsed.raw_ns as f64 / 1e6;
    let device = seen
        .evidence
        .devices
        .iter()
        .find(|device| device.did.busy_ms as f64 > raw_ms * 1.05 + SLACK_MS)?;
    Some(issue(
        IssueKind::ClocksDisagree,
        format!(
            "the measuring clock passed {}, but {} was busy for {} ms of it",
            words::time_ns(seen.evidence.elapsed.raw_ns as f64),
            device.name,
            device.did.busy_ms
        ),
    ))
}

fn named(slice: &Elapsed) -> [(&'static str, i64); 3] {
    let [boottime, realtime] = slice.compared();
    [("the measuring clock", slice.raw_ns), boottime, realtime]
}
