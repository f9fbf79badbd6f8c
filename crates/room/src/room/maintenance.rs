//! Maintenance of an open room: the calls that begin it. All of it works while the room is in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::SegmentNo;
use seal::Credential;
use storage::Storage;

use super::Room;
use crate::blocks::BLOCK;
use crate::reports::{BackupReport, CheckReport, CompactReport, Progress, RekeyReport};
use crate::{Error, Result};

impl Room {
    /// Rewrites segments of which less than `thinner_than_percent` is alive, and merges short ones, so that their space
    /// goes back to the disk. Data that fails authentication is left where it is.
    pub fn compact(
        &self,
        thinner_than_percent: u8,
        progress: Progress<'_>,
    ) -> Result<CompactReport> {
        self.writable()?;
        self.parts()?
            .maintenance
            .compact(thinner_than_percent, progress)
    }

    /// Moves everything out of these segments, so that they go: before a disk is removed. Those with write grants stay, and
    /// go when the grants are over.
    pub fn empty_segments(
        &self,
        segments: &[SegmentNo],
        progress: Progress<'_>,
    ) -> Result<CompactReport> {
        self.writable()?;
        self.parts()?.maintenance.empty(segments, progress)
    }

    /// Bytes of file data in these segments.
    pub fn live_in(&self, segments: &[SegmentNo]) -> u64 {
        let accounts = self.parts.blocks.accounts();
        let live = segments.iter().filter_map(|no| accounts.get(*no));
        live.map(|a| u64::from(a.live) * BLOCK).sum()
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
        self.parts()?.maintenance.check(read_data, repair, progress)
    }

    /// Checks a room that cannot be opened, or any closed one, and reports what is wrong with it. Nothing is changed.
    /// Parts that cannot be checked because an earlier part is unreadable are not in the report. `InUse`, `NotARoom`,
    /// `WrongCredential`.
    pub fn examine(dir: &Path, credential: &Credential) -> Result<CheckReport> {
        crate::maintenance::examine(crate::open::host(dir)?, dir.to_owned(), credential)
    }

    /// The same for a room in a storage.
    pub fn examine_on(storage: Arc<dyn Storage>, credential: &Credential) -> Result<CheckReport> {
        crate::maintenance::examine(storage, PathBuf::new(), credential)
    }

    /// Makes `target` a copy of the room as of one moment: a room of its own, with the same keys and the same id. An
    /// earlier backup in `target` is brought up to date, copying only segments it does not have; stopped in the middle,
    /// it stays what it was.
    ///
    /// A backup is a lineage of its own for the detection of rollbacks: it opens wherever it is, and using it does not make
    /// the room look old. Only at the place of the room itself is an older backup refused without
    /// [`accept_rollback`](crate::OpenOptions::accept_rollback). A backup that was changed as a room is a room of its own, and is not
    /// brought up to date; nor is one that was open for writing in a process that was killed.
    ///
    /// `NotEmptyTarget` where the target holds anything but a backup of this room that nobody has changed, `InUse` where that is open,
    /// `InvalidArgument` where it is inside the room, `Io` with kind `Interrupted` where `progress` stopped it.
    pub fn backup(&self, target: &Path, progress: Progress<'_>) -> Result<BackupReport> {
        self.parts()?.maintenance.backup(target, progress)
    }

    /// The same with a storage as the target.
    pub fn backup_on(
        &self,
        target: Arc<dyn Storage>,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        self.parts()?
            .maintenance
            .backup_on(target, PathBuf::new(), progress, &|| {})
    }

    /// The same where another process has the directory `target` open for this one: `storage` reaches it. It was prepared by
    /// [`prepare_backup`](crate::prepare_backup).
    pub fn backup_through(
        &self,
        storage: Arc<dyn Storage>,
        target: &Path,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        self.parts()?
            .maintenance
            .backup_on(storage, target.to_owned(), progress, &|| {})
    }

    /// Gives the room a new master key and re-encrypts everything under it; goes on with a rekey that was interrupted.
    /// `credential` keeps its slot; what cannot be renewed is dropped. The room can be used meanwhile. Space for about a segment more
    /// is needed.
    pub fn rekey(&self, credential: &Credential, progress: Progress<'_>) -> Result<RekeyReport> {
        self.writable()?;
        self.parts()?.maintenance.rekey(credential, false, progress)
    }

    /// The same, if all key slots can be kept.
    ///
    /// # Errors
    /// [`seal::SealError::SlotsLost`], and no change, where a rekey that begins would drop some.
    pub fn rekey_keeping_slots(
        &self,
        credential: &Credential,
        progress: Progress<'_>,
    ) -> Result<RekeyReport> {
        self.writable()?;
        self.parts()?.maintenance.rekey(credential, true, progress)
    }

    fn writable(&self) -> Result<()> {
        let parts = self.parts()?;
        if parts.env.options.read_only {
            Err(Error::ReadOnly)
        } else {
            parts.commits.check_poison()
        }
    }
}
