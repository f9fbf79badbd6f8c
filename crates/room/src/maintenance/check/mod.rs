//! Whether a room is whole, and the repair of damage.
//!
//! 1. The structure is looked at while no change is made, so nothing is found that is only under way. Data is read
//!    afterwards, each chunk under its file's lock.
//! 2. Repair starts only from a walk that saw everything: after a row that cannot be read, what seems to be missing may
//!    only be hidden.
//! 3. Nothing readable is discarded. Discarded data failed authentication and is listed with its file and range.
//!
//! `tree` checks inodes and names, `space` extent maps and segments, `past` what is kept for snapshots, `repair` repairs both, `data` reads, `names` finds
//! paths, `examine` checks a room that cannot be opened.

mod data;
mod examine;
mod names;
mod past;
mod repair;
mod space;
mod tree;

use std::collections::HashSet;
use std::io::ErrorKind;

use catalog::{FileKind, InodeNo, SegmentNo};
use seal::Header;

pub(crate) use examine::examine;

use super::Maintenance;
use crate::Result;
use crate::header::{self, BACKUP, HEADER, HEADER_MAX};
use crate::reports::{CheckReport, LostExtent, Progress};
use repair::Repair;

/// Rounds of checks and repairs: one repair can uncover another fault.
const ROUNDS: usize = 4;
/// More findings than this say nothing new.
const FINDINGS_MAX: usize = 10_000;

/// What one look at the structure found.
#[derive(Debug, Default)]
struct Look {
    files: u64,
    directories: u64,
    findings: Vec<String>,
    repairs: Vec<Repair>,
    /// Ranges whose extents lead nowhere.
    lost: Vec<LostExtent>,
    /// A row could not be read: what seems to be missing may be there.
    incomplete: bool,
    /// Segments whose own header is wrong: their data is to be moved.
    suspect: Vec<SegmentNo>,
}

impl Look {
    fn find(&mut self, finding: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding.into());
        }
    }

    fn find_and_repair(&mut self, finding: impl Into<String>, repair: Repair) {
        self.find(finding);
        self.repairs.push(repair);
    }
}

impl Maintenance {
    /// Checks, and repairs on request.
    pub(crate) fn check(
        &self,
        read_data: bool,
        repair: bool,
        progress: Progress<'_>,
    ) -> Result<CheckReport> {
        // Another catalog must not take the place of the one that is looked at.
        let swap = self.catalog.keep();
        let mut report = CheckReport::default();
        let total = self.blocks.accounts().live_blocks() * crate::blocks::BLOCK;
        if !progress(0, total) {
            report.stopped = true;
            return Ok(report);
        }
        report.findings = self
            .catalog
            .get()
            .verify()?
            .into_iter()
            .map(|f| format!("catalog: {f}"))
            .collect();
        if repair && !report.findings.is_empty() {
            report
                .findings
                .push("nothing is repaired while the catalog itself is damaged: restore the room from a backup".into());
        }
        let repair = repair && report.findings.is_empty();
        self.check_header(repair, &mut report)?;
        let (mut lost, suspect) = self.check_structure(repair, &mut report)?;
        // Reading asks for the catalog page by page: a rekey need not wait for it.
        drop(swap);
        if read_data {
            self.check_data(repair, total, progress, &mut report, &mut lost)?;
        }
        report.lost = self.named(lost)?;
        if repair && !suspect.is_empty() {
            self.move_suspects(&suspect, progress, &mut report)?;
        }
        if repair {
            self.commits.commit()?;
        }
        Ok(report)
    }

    /// Looks whether both copies of the header are there and authentic: with one of them gone, damage to the other loses the room.
    fn check_header(&self, repair: bool, report: &mut CheckReport) -> Result<()> {
        let storage = &*self.env.storage;
        let header = self.keys.header();
        let before = report.findings.len();
        // A crash may have left such a copy, perhaps of the epoch before a rekey, under another key: the next opening for writing
        // replaces it.
        let is_a_step_behind = |bytes: &[u8]| {
            Header::parse(bytes).is_ok_and(|copy| {
                copy.epoch() != header.header.epoch() || copy.verify(&header.master).is_ok()
            })
        };
        for name in [HEADER, BACKUP] {
            let finding = match storage::read_limited(storage, name, HEADER_MAX) {
                Ok(bytes) if bytes == header.bytes || is_a_step_behind(&bytes) => continue,
                Ok(_) => "damaged".to_owned(),
                Err(e) if e.kind() == ErrorKind::NotFound => "missing".to_owned(),
                Err(e) => e.to_string(),
            };
            report.findings.push(format!("{name}: {finding}"));
        }
        if repair && report.findings.len() > before {
            header::write_both(storage, &header.bytes)?;
            report.repaired.extend(
                (before..report.findings.len())
                    .map(|i| format!("{}, by the copy in use", report.findings[i])),
            );
        }
        Ok(())
    }

    fn check_structure(
        &self,
        repair: bool,
        report: &mut CheckReport,
    ) -> Result<(Vec<LostExtent>, Vec<SegmentNo>)> {
        let mut lost = Vec::new();
        let mut said: HashSet<String> = HashSet::new();
        let mut suspect = Vec::new();
        for _ in 0..ROUNDS {
            let (look, repaired) = self.commits.commit_and(|| {
                let look = self.look();
                let repaired = if repair && !look.incomplete {
                    self.repair(&look.repairs)?
                } else {
                    Vec::new()
                };
                Ok((look, repaired))
            })?;
            (report.files, report.directories) = (look.files, look.directories);
            report
                .findings
                .extend(look.findings.into_iter().filter(|f| said.insert(f.clone())));
            lost.extend(look.lost);
            suspect = look.suspect;
            if repaired.is_empty() {
                break;
            }
            report.repaired.extend(repaired);
            self.commits.commit()?;
        }
        lost.sort_unstable();
        lost.dedup();
        Ok((lost, suspect))
    }

    /// Looks at everything but data. No change is under way.
    fn look(&self) -> Look {
        let mut look = Look::default();
        let catalog = self.catalog.get();
        let outcome = tree::look(&catalog, &mut look)
            .map_err(crate::Error::from)
            .and_then(|()| space::look(self, &catalog, &mut look));
        if let Err(e) = outcome {
            look.find(format!("the catalog cannot be read any further: {e}"));
            look.incomplete = true;
        }
        look
    }

    /// Moves data out of segments whose own header is wrong; with the last of it they go.
    fn move_suspects(
        &self,
        suspect: &[SegmentNo],
        progress: Progress<'_>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let _one = self.moving.lock();
        let accounts: Vec<_> = {
            let accounts = self.blocks.accounts();
            suspect
                .iter()
                .filter_map(|no| accounts.get(*no).copied())
                .collect()
        };
        self.commits.close_segment()?;
        let mut tally = super::compact::Tally::default();
        self.move_out(accounts, &mut tally, progress)?;
        report.stopped |= tally.stopped;
        let accounts = self.blocks.accounts();
        for no in suspect.iter().filter(|no| accounts.get(**no).is_none()) {
            report.repaired.push(format!(
                "segment {}: its data was moved to another one",
                no.0
            ));
        }
        Ok(())
    }
}

/// How a finding names an inode.
fn inode_text(no: InodeNo) -> String {
    format!("inode {}", no.0)
}

/// A name as a finding shows it.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn kind_text(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "FIFO",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}
