//! What maintenance reports.

use catalog::InodeNo;
use seal::SlotInfo;
use serde::Serialize;

/// Called with the number of bytes done and in all, on any working thread. `false` stops the work at the next safe
/// point.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// What a compaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Segments that are gone, their data moved elsewhere.
    pub segments_rewritten: u64,
    /// Bytes of live data moved.
    pub bytes_moved: u64,
    /// Bytes of segment files less than before.
    pub bytes_freed: u64,
    /// Ranges of files that could not be moved because they do not open, in words. They stay as they are.
    pub unreadable: Vec<String>,
    /// Whether `progress` stopped it before the end.
    pub stopped: bool,
}

/// A range of a file whose data is damaged, missing or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostRange {
    /// Path of the file in the room, from `/`; bytes that are not UTF-8 are replaced. Without a name: `inode <number>`.
    pub path: String,
    /// Its inode number.
    pub inode: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Files of any kind but directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of file data read and opened.
    pub bytes_read: u64,
    /// What contradicts itself or is not there, one line each. Empty: the structure is whole.
    pub findings: Vec<String>,
    /// Ranges of files that cannot be read; with repair, those that now read as zeros.
    pub lost: Vec<LostRange>,
    /// What was repaired, one line each.
    pub repaired: Vec<String>,
    /// Whether `progress` stopped it before the end.
    pub stopped: bool,
}

/// What a backup did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// Generation of the room that the copy holds.
    pub generation: u64,
    /// Segments copied.
    pub segments_copied: u64,
    /// Segments that an earlier backup had copied already.
    pub segments_kept: u64,
    /// Bytes of segments and catalog copied.
    pub bytes_copied: u64,
    /// What the room itself lacks, in words: the backup lacks it too, unless an earlier one had it.
    pub problems: Vec<String>,
}

/// What a rekey did.
#[derive(Debug, Clone, Default)]
pub struct RekeyReport {
    /// Key slots that could not be carried over, because nobody here has their credentials.
    pub dropped_slots: Vec<SlotInfo>,
    /// Segments of older keys that are gone, their data re-encrypted.
    pub segments_resealed: u64,
    /// Whether nothing sealed under an older key is left, and the older key is gone.
    pub finished: bool,
    /// Ranges of files that could not be re-encrypted because they fail authentication, in words. As long as there are
    /// any the older key is kept: `check` with repair discards them.
    pub unreadable: Vec<String>,
}

/// A range of a file that cannot be read or was not written, without the file's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LostExtent {
    pub(crate) no: InodeNo,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}
