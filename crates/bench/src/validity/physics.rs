//! Whether the rate is one that the machine and the device can have.
//!
//! What the device can was measured at another moment, perhaps a bad one. Where its counters say that it did all of the work, and nobody
//! else was at it, it could.

use super::{Direction, Issue, IssueKind, Seen, device, issue};
use crate::words;

/// A sync takes a good part of the shortest time that was measured for one on that device.
pub(super) fn sync_too_fast(seen: &Seen) -> Option<Issue> {
    let flushes = seen.evidence.top().and_then(|device| device.did.flushes);
    let seen_to_flush = flushes.is_some_and(|flushes| flushes >= seen.claim.syncs.max(1));
    if seen_to_flush && device::shared(seen).is_none() {
        return None;
    }
    let floor = seen.ceilings.sync_ns?;
    let took = seen.claim.sync_p50_ns?;
    ((took as f64) < floor as f64 * seen.limits.sync_share).then(|| {
        issue(
            IssueKind::SyncTooFast,
            format!(
                "a sync took {}, a durable write of 4 KiB on this device never less than {}",
                words::time_ns(took as f64),
                words::time_ns(floor as f64)
            ),
        )
    })
}

/// No faster than copying memory; and where every byte goes to the device, no faster than that.
pub(super) fn faster_than_physics(seen: &Seen) -> Option<Issue> {
    let seconds = seen.evidence.seconds();
    if seconds <= 0.0 || seen.claim.bytes == 0 {
        return None;
    }
    let rate = seen.claim.bytes as f64 / seconds;
    let claim = seen.claim;
    let confirmed = device::moved_all(seen) && device::shared(seen).is_none();
    let device = match claim.direction {
        _ if confirmed => None,
        Direction::Read if claim.direct || claim.cold => seen.ceilings.device_read,
        Direction::Write if claim.direct || claim.durable => seen.ceilings.device_write,
        _ => None,
    };
    let ceilings = [
        ("this machine copies memory", seen.ceilings.memory_copy),
        (
            "the raw device moves them",
            device.map(|rate| rate * seen.limits.above_device),
        ),
    ];
    let (what, ceiling) = ceilings
        .into_iter()
        .find_map(|(what, ceiling)| Some((what, ceiling.filter(|ceiling| rate > *ceiling)?)))?;
    Some(issue(
        IssueKind::FasterThanPhysics,
        format!(
            "{} a second are more than {what}: at most {} a second",
            words::bytes(rate as u64),
            words::bytes(ceiling as u64)
        ),
    ))
}
