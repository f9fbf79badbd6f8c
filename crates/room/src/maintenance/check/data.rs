//! Reading all data: every unit of every extent is opened, those kept for snapshots too.
//!
//! Each chunk is read under its file's lock, so nothing is released under the reader; what is written meanwhile was
//! sealed a moment ago. Only what is wrong with the bytes counts as lost: a storage that fails to read may do better
//! another day, and is a finding.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use catalog::{CHUNK_LEN, Chunk, Extent, InodeNo};
use parking_lot::Mutex;
use segments::SegmentError;

use super::super::Maintenance;
use crate::blocks::BLOCK;
use crate::reports::{CheckReport, LostExtent, Progress};
use crate::usage::by_unit;
use crate::{Error, Result};

/// Chunk maps handed out at once.
const PAGE: usize = 128;
/// Threads that read.
const THREADS: usize = 2;
/// Findings about a failing storage, at most.
const FAILURES_MAX: usize = 1000;

/// What reading found.
#[derive(Debug, Default)]
struct Found {
    lost: Vec<LostExtent>,
    failures: Vec<String>,
    /// What the storage failed to read, and for each file the first error.
    unread: Vec<LostExtent>,
    errors: BTreeMap<InodeNo, String>,
    segments: BTreeMap<u64, u64>,
    /// What is kept of chunks for snapshots, and fails authentication.
    kept: BTreeSet<(InodeNo, u64, u64)>,
}

/// Works on all items in a few threads, until `work` says that it is enough.
fn each<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<bool> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !work(item)? {
                break;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(work)).collect();
        let mine = work();
        // A panic of a reader is a panic here.
        others
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .fold(mine, Result::and)
    })
}

impl Maintenance {
    /// Reads everything; with `repair`, ranges that do not open become holes.
    pub(super) fn check_data(
        &self,
        repair: bool,
        total: u64,
        progress: Progress<'_>,
        report: &mut CheckReport,
        lost: &mut Vec<LostExtent>,
    ) -> Result<()> {
        let found = Mutex::new(Found::default());
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let step = |bytes: u64| {
            let so_far = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if !progress(so_far.min(total), total) {
                stop.store(true, Ordering::Relaxed);
            }
            !stop.load(Ordering::Relaxed)
        };
        let mut after = None;
        while !stop.load(Ordering::Relaxed) {
            let page = self.catalog.get().all_chunks(after, PAGE)?;
            let Some((no, index, _)) = page.last() else {
                break;
            };
            after = Some((*no, *index));
            each(&page, |(no, index, _)| {
                Ok(step(self.read_whole(*no, *index, &found)?))
            })?;
        }
        let mut after = None;
        while !stop.load(Ordering::Relaxed) {
            let page = self.catalog.get().all_kept_chunks(after, PAGE)?;
            let Some(last) = page.last() else {
                break;
            };
            after = Some((last.inode, last.index, last.until));
            each(&page, |row| {
                let key = (row.inode, row.index, row.until);
                Ok(step(self.read_kept(key, &found)?))
            })?;
        }
        let found = found.into_inner();
        report.stopped |= stop.load(Ordering::Relaxed);
        report.bytes_read = done.load(Ordering::Relaxed);
        report.findings.extend(found.failures);
        let mut unread = joined(found.unread);
        unread.truncate(FAILURES_MAX);
        for range in self.named(unread)? {
            let error = &found.errors[&InodeNo(range.inode)];
            report.findings.push(format!(
                "{}: {} bytes from byte {} cannot be read: {error}",
                range.path, range.len, range.offset
            ));
        }
        for (segment, bytes) in found.segments {
            report.findings.push(format!(
                "segment {segment}: {bytes} bytes do not open (damaged, missing or replaced)"
            ));
        }
        let unreadable = joined(found.lost);
        if repair {
            for range in &unreadable {
                self.discard_range(range, report)?;
            }
            for key in found.kept {
                self.discard_kept(key, report)?;
            }
        }
        lost.extend(unreadable);
        Ok(())
    }

    /// Reads one chunk of a file. Returns the bytes that opened.
    fn read_whole(&self, no: InodeNo, index: u64, found: &Mutex<Found>) -> Result<u64> {
        let cell = match self.data.cell(no) {
            Err(Error::NotFound) => return Ok(0),
            other => other?,
        };
        let state = cell.state.read();
        if state.is_deleted() {
            return Ok(0);
        }
        let chunk = self.data.chunk(no, &state, index)?;
        let (bytes, lost) = self.read_extents(chunk.extents(), no, index, found);
        let size = state.inode.size;
        let mut found = found.lock();
        for (offset, len) in lost {
            let len = len.min(size.saturating_sub(offset));
            if len > 0 {
                found.lost.push(LostExtent { no, offset, len });
            }
        }
        Ok(bytes)
    }

    /// Reads what is kept of a chunk until a snapshot. Returns the bytes that opened.
    fn read_kept(
        &self,
        (no, index, until): (InodeNo, u64, u64),
        found: &Mutex<Found>,
    ) -> Result<u64> {
        self.data.with_past(no, || {
            let kept = self.catalog.get().kept_chunk(no, index, until)?;
            let (bytes, lost) = self.read_extents(kept.chunk().extents(), no, index, found);
            let mut found = found.lock();
            for (offset, len) in lost {
                found.kept.insert((no, index, until));
                if found.failures.len() < FAILURES_MAX {
                    found.failures.push(format!(
                        "inode {}, kept for snapshot {until}: {len} bytes from byte {offset} do not open",
                        no.0
                    ));
                }
            }
            Ok(bytes)
        })
    }

    /// Reads extents of a chunk. Returns the bytes that opened, and the ranges of the file that fail authentication.
    fn read_extents(
        &self,
        extents: &[Extent],
        no: InodeNo,
        index: u64,
        found: &Mutex<Found>,
    ) -> (u64, Vec<(u64, u64)>) {
        let (mut bytes, mut lost, mut unread) = (0, Vec::new(), Vec::new());
        for extent in extents {
            if self.read_extent(extent).is_ok() {
                bytes += u64::from(extent.blocks) * BLOCK;
                continue;
            }
            for (first, blocks, error) in self.bad_units(extent) {
                let offset = index * CHUNK_LEN + u64::from(first) * BLOCK;
                let len = u64::from(blocks) * BLOCK;
                let mut found = found.lock();
                if is_damage(&error) {
                    *found.segments.entry(extent.segment.0).or_insert(0) += len;
                    lost.push((offset, len));
                } else {
                    unread.push(LostExtent { no, offset, len });
                    let first = found.errors.entry(no);
                    first.or_insert_with(|| error.to_string());
                }
            }
        }
        if !unread.is_empty() {
            found.lock().unread.extend(joined(unread));
        }
        (bytes, lost)
    }

    /// The units of an extent that fail authentication: the blocks of the chunk in each, and the error.
    fn bad_units(&self, extent: &Extent) -> Vec<(u16, u16, SegmentError)> {
        let mut bad = Vec::new();
        for piece in by_unit(extent) {
            if let Err(error) = self.read_extent(&piece) {
                bad.push((piece.first, piece.blocks, error));
            }
        }
        bad
    }

    /// Opens the units of an extent.
    pub(super) fn read_extent(&self, extent: &Extent) -> std::result::Result<(), SegmentError> {
        let mut out = vec![0; usize::from(extent.stored) * BLOCK as usize];
        let segments = self.blocks.segments();
        segments.read(extent.range(), extent.proofs(), &mut out)
    }

    /// Replaces the units of a range that still fail authentication by holes.
    fn discard_range(&self, range: &LostExtent, report: &mut CheckReport) -> Result<()> {
        let end = range.offset + range.len;
        for index in range.offset / CHUNK_LEN..end.div_ceil(CHUNK_LEN) {
            let _change = self.commits.change()?;
            let cell = match self.data.cell(range.no) {
                Err(Error::NotFound) => return Ok(()),
                other => other?,
            };
            let mut state = cell.state.write();
            if state.is_deleted() {
                return Ok(());
            }
            let chunk: Chunk = (*self.data.chunk(range.no, &state, index)?).clone();
            for extent in chunk.extents() {
                for (first, blocks, error) in self.bad_units(extent) {
                    let offset = index * CHUNK_LEN + u64::from(first) * BLOCK;
                    let inside = offset < end && offset + u64::from(blocks) * BLOCK > range.offset;
                    let lost = is_damage(&error);
                    if inside && lost {
                        self.data
                            .replace(&cell, &mut state, index, first, blocks, &[])?;
                    }
                }
            }
        }
        report.repaired.push(format!(
            "inode {}: {} bytes from byte {} failed authentication and are zeros now",
            range.no.0, range.len, range.offset
        ));
        Ok(())
    }

    /// Replaces the units that are kept of a chunk until a snapshot and still fail authentication by holes.
    fn discard_kept(&self, key: (InodeNo, u64, u64), report: &mut CheckReport) -> Result<()> {
        let _change = self.commits.change()?;
        let mut gone = 0;
        self.data.edit_kept(key, |kept, released| {
            let extents = kept.chunk().extents().to_vec();
            for (first, blocks, error) in extents.iter().flat_map(|e| self.bad_units(e)) {
                if is_damage(&error) {
                    released.extend(kept.rewrite(first, blocks, &[]));
                    gone += u64::from(blocks) * BLOCK;
                }
            }
            Ok(())
        })?;
        report.repaired.push(format!(
            "inode {}, kept for snapshot {}: {gone} bytes failed authentication and are zeros now",
            key.0.0, key.2
        ));
        Ok(())
    }
}

/// Whether it is the bytes that are wrong.
pub(super) fn is_damage(error: &SegmentError) -> bool {
    matches!(
        error,
        SegmentError::Corrupt { .. }
            | SegmentError::Missing { .. }
            | SegmentError::UnknownEpoch { .. }
    )
}

/// The ranges in order, those that touch as one.
fn joined(mut ranges: Vec<LostExtent>) -> Vec<LostExtent> {
    ranges.sort_unstable();
    let mut out: Vec<LostExtent> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.no == range.no && range.offset <= last.offset + last.len => {
                last.len = last.len.max(range.offset + range.len - last.offset);
            }
            _ => out.push(range),
        }
    }
    out
}
