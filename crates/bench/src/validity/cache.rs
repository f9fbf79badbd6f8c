//! Whether cold reads were cold and direct calls direct.

use super::{Claim, Direction, Issue, IssueKind, Seen, issue};
use crate::observe::CachedPages;
use crate::words;

/// Pages of the very files, or of the files that keep a served store's bytes, were not cached before a cold read, and the device read as
/// much as was claimed.
pub(super) fn hit(seen: &Seen) -> Option<Issue> {
    let claim = seen.claim;
    if !claim.cold || claim.direction != Direction::Read || claim.bytes == 0 {
        return None;
    }
    let borne = claim.bytes as f64 * seen.limits.warm_share;
    let opening = seen.limits.opening_bytes as f64;
    let before = [
        ("the file", seen.evidence.cached_before, borne),
        (
            "the backing files",
            seen.evidence.backing_cached_before,
            borne + opening,
        ),
    ];
    for (what, cached, borne) in before {
        let bytes = cached.map_or(0, |pages| pages.resident_bytes());
        if bytes as f64 > borne {
            return Some(issue(
                IssueKind::CacheHit,
                format!(
                    "{} of {what} were in the page cache before {} were read cold",
                    words::bytes(bytes),
                    words::bytes(claim.bytes)
                ),
            ));
        }
    }
    if claim.direct {
        // Not this machine's page cache then: `device::bytes_missing` says it.
        return None;
    }
    let least = claim.bytes as f64 * (1.0 - seen.limits.missing_share);
    let device = seen
        .evidence
        .devices
        .iter()
        .find(|device| (device.did.read_bytes as f64) < least)?;
    Some(issue(
        IssueKind::CacheHit,
        format!(
            "{} were read cold, but {} read only {}",
            words::bytes(claim.bytes),
            device.name,
            words::bytes(device.did.read_bytes)
        ),
    ))
}

/// Descriptors of direct calls have the flag, and such calls leave nothing behind in the page cache: some file systems take the flag
/// and go through the cache all the same.
pub(super) fn not_direct(seen: &Seen) -> Option<Issue> {
    let Claim { direct, bytes, .. } = *seen.claim;
    if !direct {
        return None;
    }
    if seen.claim.direct_flag == Some(false) {
        return Some(issue(
            IssueKind::NotDirect,
            "the descriptor was opened without O_DIRECT",
        ));
    }
    let resident = |pages: Option<CachedPages>| Some(pages?.resident_bytes());
    let before = resident(seen.evidence.cached_before)?;
    let after = resident(seen.evidence.cached_after)?;
    let came = after.saturating_sub(before);
    (came as f64 > bytes as f64 * seen.limits.warm_share).then(|| {
        issue(
            IssueKind::NotDirect,
            format!(
                "{} of the file came into the page cache while {} were moved directly",
                words::bytes(came),
                words::bytes(bytes)
            ),
        )
    })
}
