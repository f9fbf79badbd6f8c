//! Snapshots and their policy, as tuples of Python.

use std::path::Path;

use embed::{Change, FileKind, PolicyReport, SnapshotInfo, SnapshotPolicy, What};

/// Number, name, seconds and nanoseconds since 1970, whether a policy created it, and the bytes that it alone holds.
pub(crate) type SnapshotFields = (u64, String, i64, u32, bool, u64);

pub(crate) fn fields(info: SnapshotInfo) -> SnapshotFields {
    let of = info.snapshot;
    (
        of.number,
        of.name,
        of.created.secs,
        of.created.nanos,
        of.automatic,
        info.exclusive,
    )
}

/// Hours, days and weeks of which one is kept, and percent of the storage that is to be free.
pub(crate) type PolicyFields = (u32, u32, u32, u32);

pub(crate) fn policy_fields(policy: SnapshotPolicy) -> PolicyFields {
    (
        policy.hourly,
        policy.daily,
        policy.weekly,
        policy.min_free_percent.into(),
    )
}

pub(crate) fn policy((hourly, daily, weekly, min_free): PolicyFields) -> SnapshotPolicy {
    SnapshotPolicy {
        hourly,
        daily,
        weekly,
        // What is far too much is refused as what is too much.
        min_free_percent: u8::try_from(min_free).unwrap_or(u8::MAX),
    }
}

/// The snapshot that was created, those that were deleted, and seconds since 1970 at which the next one is due.
pub(crate) type PolicyReportFields = (Option<SnapshotFields>, Vec<SnapshotFields>, Option<i64>);

pub(crate) fn report_fields(report: PolicyReport) -> PolicyReportFields {
    (
        report.created.map(fields),
        report.deleted.into_iter().map(fields).collect(),
        report.next_due.map(|next| next.secs),
    )
}

pub(crate) fn word(change: &Change) -> (&'static str, Option<&Path>) {
    match &change.what {
        What::Added => ("added", None),
        What::Removed => ("removed", None),
        What::Renamed { from } => ("renamed", Some(from)),
        What::Contents => ("changed", None),
        What::Attributes => ("attributes", None),
    }
}

pub(crate) fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char device",
        FileKind::BlockDevice => "block device",
    }
}
