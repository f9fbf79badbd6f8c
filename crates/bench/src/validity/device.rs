//! Whether the counters of the device and of the process fit what was done, and whether nobody else was there.

use super::{Direction, Issue, IssueKind, Seen, issue};
use crate::observe::block::DeviceCounters;
use crate::observe::{DeviceEvidence, process};
use crate::words;

/// Direct calls reach the device with all their bytes.
pub(super) fn bytes_missing(seen: &Seen) -> Option<Issue> {
    if !seen.claim.direct {
        return None;
    }
    let device = seen.evidence.top().filter(|device| !device.memory)?;
    fewer(
        seen,
        device.did.read_bytes,
        device.did.written_bytes,
        |verb| format!("were {verb} directly, but {} counted", device.name),
    )
}

/// Calls of this process are in its own counters.
pub(super) fn calls_missing(seen: &Seen) -> Option<Issue> {
    if !seen.claim.by_calls {
        return None;
    }
    let io = seen.evidence.own_io?;
    fewer(
        seen,
        io.called_read_bytes,
        io.called_written_bytes,
        |verb| format!("are said to be {verb}, but the calls of this process moved"),
    )
}

/// Whether a counter of what was read, or written, lacks bytes of the claim; `said` has the words between the two amounts.
fn fewer(seen: &Seen, read: u64, written: u64, said: impl Fn(&str) -> String) -> Option<Issue> {
    let (did, verb) = match seen.claim.direction {
        Direction::Read => (read, "read"),
        Direction::Write => (written, "written"),
        Direction::Neither => return None,
    };
    let [claimed, counted] = [seen.claim.bytes, did].map(words::bytes);
    missing(seen, did).then(|| {
        let said = format!("{claimed} {} only {counted}", said(verb));
        issue(IssueKind::CountersDisagree, said)
    })
}

/// Whether every device beneath counted all bytes of the work.
pub(super) fn moved_all(seen: &Seen) -> bool {
    let devices = &seen.evidence.devices;
    let counted = |did: &DeviceCounters| match seen.claim.direction {
        Direction::Read => !missing(seen, did.read_bytes),
        Direction::Write => !missing(seen, did.written_bytes),
        Direction::Neither => false,
    };
    !devices.is_empty() && devices.iter().all(|device| counted(&device.did))
}

fn missing(seen: &Seen, did: u64) -> bool {
    (did as f64) < seen.claim.bytes as f64 * (1.0 - seen.limits.missing_share)
}

/// Writes count when they are durable: the work says so, no page of the files is dirty any more, and the device was given the bytes.
pub(super) fn not_durable(seen: &Seen) -> Option<Issue> {
    if seen.claim.direction != Direction::Write {
        return None;
    }
    let say = |said: String| Some(issue(IssueKind::NotDurable, said));
    if !seen.claim.durable {
        return say("the clock was read before what was written was durable".to_owned());
    }
    // What others write to the device does not count.
    let evidence = seen.evidence;
    let own = evidence.own_io.zip(evidence.server_io);
    let own = own.map_or(u64::MAX, |(own, servers)| own.and(&servers).written_bytes);
    let given = evidence
        .top()
        .map(|device| device.did.written_bytes.min(own));
    let after = [
        ("the file", seen.evidence.cached_after),
        ("the backing files", seen.evidence.backing_cached_after),
    ];
    for (what, cached) in after {
        let dirty = cached.and_then(|pages| pages.dirty_bytes()).unwrap_or(0);
        // A file that was synced has nothing dirty. A served store may have synced the data in its log, and written it to its
        // place as well, where it waits.
        let borne = match (what, given) {
            ("the file", Some(_)) => 0.0,
            (_, Some(given)) if given < seen.claim.bytes => seen.limits.missing_share,
            _ => continue,
        };
        if dirty as f64 > seen.claim.bytes as f64 * borne {
            return say(format!(
                "{} of {what} were still dirty when {} were said to be durable",
                words::bytes(dirty),
                words::bytes(seen.claim.bytes)
            ));
        }
    }
    // How many bytes must come is not known: what is overwritten in the cache goes to the device once. But some must.
    let device = evidence.top()?;
    (given == Some(0) && seen.claim.bytes > 0).then(|| {
        issue(
            IssueKind::NotDurable,
            format!(
                "{} are said to be durable, but {} was given nothing to write",
                words::bytes(seen.claim.bytes),
                device.name
            ),
        )
    })
}

/// Changed names are durable when the device was given something to write, and emptied its cache if it has one.
pub(super) fn names_not_durable(seen: &Seen) -> Option<Issue> {
    let device = seen.evidence.top().filter(|device| !device.memory)?;
    // One made of others may pass a flush on without counting it.
    let flushed = |of: &DeviceEvidence| of.did.flushes != Some(0);
    let flushed = !device.write_cache || seen.evidence.devices.iter().any(flushed);
    let lacks = match device.did.written_bytes {
        0 => "given nothing to write",
        _ if !flushed => "not asked to empty its cache",
        _ => return None,
    };
    (seen.claim.changed_names && seen.claim.durable).then(|| {
        issue(
            IssueKind::NotDurable,
            format!(
                "changed names are said to be durable, but {} was {lacks}",
                device.name
            ),
        )
    })
}

/// A device with a cache of its own gets a request to empty it at every sync that one thread waits for.
pub(super) fn sync_without_flush(seen: &Seen) -> Option<Issue> {
    let device = seen.evidence.top().filter(|device| device.write_cache)?;
    let flushes = device.did.flushes?;
    let syncs = seen.claim.syncs;
    // Half of them: a sync whose data another one's flush has covered need not flush again.
    (seen.claim.direction == Direction::Write && syncs > 0 && flushes < syncs.div_ceil(2)).then(
        || {
            issue(
                IssueKind::SyncTooFast,
                format!(
                    "{syncs} syncs returned, but {} was asked to empty its cache {flushes} times",
                    device.name
                ),
            )
        },
    )
}

/// Bytes at the device are this round's own.
pub(super) fn shared(seen: &Seen) -> Option<Issue> {
    let evidence = seen.evidence;
    let device = evidence.top()?;
    let own = evidence.own_io?.and(&evidence.server_io?);
    let others = evidence.others;
    // What the device did beyond our own, as far as somebody else is seen doing it: a file system's journal is nobody's.
    let beyond = |did: u64, own: u64, others: u64| did.saturating_sub(own).min(others);
    let foreign = beyond(device.did.read_bytes, own.read_bytes, others.read_bytes)
        + beyond(
            device.did.written_bytes,
            own.written_bytes,
            others.written_bytes,
        );
    let borne = (own.read_bytes + own.written_bytes) as f64 * seen.limits.foreign_share
        + seen.limits.foreign_slack as f64;
    (foreign as f64 > borne).then(|| {
        let who = others.busiest.map(|pid| match process::name_of(pid) {
            Some(name) => format!(", most by process {pid} ({name})"),
            None => format!(", most by process {pid}"),
        });
        issue(
            IssueKind::DeviceShared,
            format!(
                "others moved {} at {} meanwhile{}",
                words::bytes(foreign),
                device.name,
                who.unwrap_or_default()
            ),
        )
    })
}

/// A store that is nearly full is slower than it need be.
pub(super) fn nearly_full(seen: &Seen) -> Option<Issue> {
    let space = seen.evidence.space?;
    let free = space.free_bytes as f64 / space.bytes as f64;
    let said = if free < seen.limits.free_share {
        format!("{:.0} % of the space are free", free * 100.0)
    } else {
        let inodes = space
            .free_inodes
            .filter(|free| *free < seen.limits.free_share)?;
        format!("{:.0} % of the inodes are free", inodes * 100.0)
    };
    Some(issue(IssueKind::NearlyFull, said))
}
