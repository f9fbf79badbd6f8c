//! Snapshots, as tuples of Python.

use std::path::Path;

use embed::{Change, FileKind, SnapshotInfo, What};

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
