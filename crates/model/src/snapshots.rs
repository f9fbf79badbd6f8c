//! Snapshots: names for past moments of a file system.
//!
//! It deliberately does not know how a past moment is kept.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, FileSystem, InodeNo, Result, Timestamp};

/// Longest name of a snapshot, in bytes.
pub const SNAPSHOT_NAME_MAX: usize = 255;

/// The whole file system at one moment, under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Rises with each snapshot, from 1, and is never used again.
    pub number: u64,
    /// Its name: see [`check_snapshot_name`].
    pub name: String,
    /// The moment.
    pub created: Timestamp,
    /// Whether a retention policy created it, and may delete it.
    pub automatic: bool,
}

/// A file system that keeps snapshots of itself.
pub trait Snapshots: FileSystem {
    /// All snapshots, by number.
    fn snapshots(&self) -> Result<Vec<Snapshot>>;

    /// The file system as it was: numbers of inodes, times and permissions are those of that moment, and every change is
    /// `ReadOnly`. `NotFound` where no snapshot has the name. After the snapshot is deleted its calls fail as `Stale`.
    fn snapshot(&self, name: &str) -> Result<Arc<dyn FileSystem>>;

    /// Appends to the regular file `to` what `from` has in the snapshot of this number, at the same offset in both, sharing blocks instead
    /// of copying them. Returns the bytes done: fewer at the end of `from`, and where not all can be shared. `NotSupported` where nothing
    /// can, or `to` does not end at or before `offset`: read and write then. `Stale` where there is no such snapshot.
    fn share_from_snapshot(
        &self,
        number: u64,
        from: InodeNo,
        to: InodeNo,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _ = (number, from, to, offset, len);
        Err(Error::NotSupported("sharing blocks with a snapshot"))
    }
}

/// Refuses what cannot be the name of a snapshot: a name has 1 to 255 bytes, is neither `.` nor `..`, and has no `/`, `@`, `:` and
/// control characters. `InvalidArgument`, `NameTooLong`.
pub fn check_snapshot_name(name: &str) -> Result<()> {
    if name.len() > SNAPSHOT_NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let is_bad = |c: char| matches!(c, '/' | '@' | ':') || c.is_control();
    if matches!(name, "" | "." | "..") || name.contains(is_bad) {
        return Err(Error::InvalidArgument(
            "a snapshot's name has 1 to 255 bytes, is neither . nor .., and has no /, @, : or control characters",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_path_or_a_command_line_could_mistake_are_refused() {
        for good in ["monday", "2026-11-25T10.00", "a b", "é", &"x".repeat(255)] {
            check_snapshot_name(good).unwrap();
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a@b",
            "a:b",
            "a\0",
            "a\nb",
            &"x".repeat(256),
        ] {
            check_snapshot_name(bad).unwrap_err();
        }
    }
}
