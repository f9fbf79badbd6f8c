//! Maintenance of an open room: what it reports, and the calls that begin it.
//!
//! All of it works while the room is in use. It deliberately does not know how any of it is done.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::SegmentNo;
use seal::{Credential, SlotInfo};
use serde::Serialize;
use storage::Storage;

use crate::{Error, Result, Room};

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

impl Room {
    /// Rewrites segments of which less than `thinner_than_percent` is alive, and merges short ones, so that their space
    /// goes back to the disk. Data that fails authentication is left where it is.
    pub fn compact(
        &self,
        thinner_than_percent: u8,
        progress: Progress<'_>,
    ) -> Result<CompactReport> {
        self.writable()?;
        self.core()?.compact(thinner_than_percent, progress)
    }

    /// Moves everything out of these segments, so that they go: before a disk is removed. Those with write grants stay, and
    /// go when the grants are over.
    pub fn empty_segments(
        &self,
        segments: &[SegmentNo],
        progress: Progress<'_>,
    ) -> Result<CompactReport> {
        self.writable()?;
        self.core()?.empty(segments, progress)
    }

    /// Bytes of file data in these segments.
    pub fn live_in(&self, segments: &[SegmentNo]) -> u64 {
        let accounts = self.core.accounts.lock();
        let live = segments.iter().filter_map(|no| accounts.get(*no));
        live.map(|a| u64::from(a.live) * crate::core::BLOCK).sum()
    }

    /// Checks that the room is whole: its structure, and with `read_data` every unit of every file. Changes to the room
    /// wait while the structure is checked. With `repair`, what can be repaired is; files without a name are moved into
    /// a new directory `/lost+found-<n>`, and ranges that fail authentication read as zeros from then on. Every such
    /// range is in [`CheckReport::lost`], with or without repair.
    pub fn check(
        &self,
        read_data: bool,
        repair: bool,
        progress: Progress<'_>,
    ) -> Result<CheckReport> {
        if repair {
            self.writable()?;
        }
        self.core()?.check(read_data, repair, progress)
    }

    /// Checks a room that cannot be opened, or any closed one, and reports what is wrong with it. Nothing is changed.
    /// Parts that cannot be checked because an earlier part is unreadable are not in the report. `InUse`, `NotARoom`,
    /// `WrongCredential`.
    pub fn examine(dir: &Path, credential: &Credential) -> Result<CheckReport> {
        crate::check::examine(crate::open::host(dir)?, dir.to_owned(), credential)
    }

    /// The same for a room in a storage.
    pub fn examine_on(storage: Arc<dyn Storage>, credential: &Credential) -> Result<CheckReport> {
        crate::check::examine(storage, PathBuf::new(), credential)
    }

    /// Makes `target` a copy of the room as of one moment: a room of its own, with the same keys and the same id. An
    /// earlier backup in `target` is brought up to date, copying only segments it does not have; stopped in the middle,
    /// it stays what it was.
    ///
    /// A backup is a lineage of its own for the detection of rollbacks: it opens wherever it is, and using it does not make
    /// the room look old. Only at the place of the room itself is an older backup refused without
    /// [`accept_rollback`](crate::OpenOptions::accept_rollback). A backup that was changed as a room is a fork: do not bring it
    /// up to date.
    ///
    /// `NotEmptyTarget` where the target holds anything but a backup of this room, `InUse` where that is open,
    /// `InvalidArgument` where it is inside the room, `Io` with kind `Interrupted` where `progress` stopped it.
    pub fn backup(&self, target: &Path, progress: Progress<'_>) -> Result<BackupReport> {
        self.core()?.backup(target, progress)
    }

    /// The same with a storage as the target.
    pub fn backup_on(
        &self,
        target: Arc<dyn Storage>,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        self.core()?
            .backup_on(target, PathBuf::new(), progress, &|| {})
    }

    /// Gives the room a new master key and re-encrypts everything under it; goes on with a rekey that was interrupted.
    /// `credential` keeps its slot. The room can be used meanwhile. Space for about a segment more is needed.
    pub fn rekey(&self, credential: &Credential, progress: Progress<'_>) -> Result<RekeyReport> {
        self.writable()?;
        self.core()?.rekey(credential, progress)
    }

    fn writable(&self) -> Result<()> {
        let core = self.core()?;
        if core.options.read_only {
            Err(Error::ReadOnly)
        } else {
            core.check_poison()
        }
    }
}
