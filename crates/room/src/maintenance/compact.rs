//! Moving live data out of segments, so that these can go.
//!
//! 1. A unit is opened before it is sealed again: damaged data never gets a good tag. A unit that fails authentication
//!    stays where it is and is named.
//! 2. Data moves under the same guards as a write: a change, the cell's lock. A commit may come between two chunks.
//! 3. A unit with several references is moved once; the others follow to the same place (`moves`).
//!
//! It deliberately does not know why a segment is to go: thin, short, or sealed under an older key.

mod mover;

use std::collections::HashSet;

use catalog::{Chunk, InodeNo, SegmentAccount, SegmentNo};
use segments::SEGMENT_BLOCKS;

use super::Maintenance;
use crate::Result;
use crate::blocks::BLOCK;
use crate::reports::{CompactReport, Progress};

/// Chunk maps looked at in one go.
const MAPS: usize = 256;
/// Bytes moved between two commits.
const COMMIT_EVERY: u64 = 64 << 20;
/// Bytes moved between two looks at `progress`.
const STEP: u64 = 4 << 20;
/// Walks over all maps for one set of segments: what was cloned meanwhile is found by the next one.
const PASSES: usize = 4;
/// Most live bytes of the segments emptied in one walk.
const BATCH: u64 = 4 << 30;
/// Most shared units of the segments emptied in one walk: their places are remembered.
const BATCH_SHARED: u64 = 500_000;
/// Named unreadable ranges, at most.
const NAMED: usize = 1000;

/// What was done so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Bytes appended.
    pub(crate) moved: u64,
    /// Segments emptied.
    pub(crate) segments: u64,
    /// Blocks in the files of these.
    pub(crate) freed_blocks: u64,
    pub(crate) unreadable: Vec<String>,
    pub(crate) stopped: bool,
}

impl Maintenance {
    /// Rewrites thin segments and merges short ones.
    pub(crate) fn compact(&self, percent: u8, progress: Progress<'_>) -> Result<CompactReport> {
        let _one = self.moving.lock();
        self.reaper.reap_all()?;
        self.commits.close_segment()?;
        self.commits.commit()?;
        self.rewrite(self.thin_segments(percent), progress)
    }

    /// Empties segments, whatever is alive in them.
    pub(crate) fn empty(
        &self,
        segments: &[SegmentNo],
        progress: Progress<'_>,
    ) -> Result<CompactReport> {
        let _one = self.moving.lock();
        self.reaper.reap_all()?;
        self.commits.close_segment()?;
        self.commits.commit()?;
        let accounts = self.blocks.accounts();
        let victims = segments.iter().filter_map(|no| accounts.get(*no).copied());
        let victims = victims.collect();
        drop(accounts);
        self.rewrite(victims, progress)
    }

    fn rewrite(
        &self,
        victims: Vec<SegmentAccount>,
        progress: Progress<'_>,
    ) -> Result<CompactReport> {
        let mut tally = Tally::default();
        self.move_out(victims, &mut tally, progress)?;
        Ok(CompactReport {
            segments_rewritten: tally.segments,
            bytes_moved: tally.moved,
            bytes_freed: (tally.freed_blocks * BLOCK).saturating_sub(tally.moved),
            unreadable: tally.unreadable,
            stopped: tally.stopped,
        })
    }

    /// Segments not in use of which less than `percent` is alive, thinnest first, and short ones if there are several.
    pub(crate) fn thin_segments(&self, percent: u8) -> Vec<SegmentAccount> {
        let in_use = self.blocks.segments().in_use();
        let closed: Vec<SegmentAccount> = self
            .blocks
            .accounts()
            .iter()
            .filter(|a| !in_use.contains(&a.id.no))
            .copied()
            .collect();
        let is_short = |a: &SegmentAccount| a.length < SEGMENT_BLOCKS / 2;
        let several = closed.iter().filter(|a| is_short(a)).count() > 1;
        let is_thin = |a: &SegmentAccount| {
            u64::from(a.live) * 100 < u64::from(percent) * u64::from(a.length.saturating_sub(1))
        };
        let mut victims: Vec<_> = closed
            .into_iter()
            .filter(|a| is_thin(a) || (several && is_short(a)))
            .collect();
        victims.sort_unstable_by_key(|a| (a.live, a.id.no));
        victims
    }

    /// Empties segments, as many at once as space and memory allow. The caller holds `moving`.
    pub(crate) fn move_out(
        &self,
        victims: Vec<SegmentAccount>,
        tally: &mut Tally,
        progress: Progress<'_>,
    ) -> Result<()> {
        let total: u64 = victims.iter().map(|a| u64::from(a.live) * BLOCK).sum();
        let mut left = victims.into_iter().peekable();
        let mut emptied = 0;
        while left.peek().is_some() && !tally.stopped {
            let shared = self.shared_units()?;
            let most = BATCH.min(self.space.room_to_move()? / 4);
            let (mut batch, mut bytes, mut units) = (Vec::new(), 0, 0);
            while let Some(next) = left.peek() {
                bytes += u64::from(next.live) * BLOCK;
                units += shared.get(&next.id.no).copied().unwrap_or(0);
                if !batch.is_empty() && (bytes > most || units > BATCH_SHARED) {
                    break;
                }
                batch.extend(left.next());
            }
            let batch_bytes: u64 = batch.iter().map(|a| u64::from(a.live) * BLOCK).sum();
            let reported =
                |moved: u64| progress((emptied + moved.min(batch_bytes)).min(total), total);
            let done = self.move_batch(&batch, tally, &reported);
            self.blocks.shares().clear();
            done?;
            emptied += batch_bytes;
        }
        Ok(())
    }

    fn shared_units(&self) -> Result<std::collections::HashMap<SegmentNo, u64>> {
        let mut counts = std::collections::HashMap::new();
        for (segment, _, _) in self.catalog.get().all_shared()? {
            *counts.entry(segment).or_insert(0) += 1;
        }
        Ok(counts)
    }

    fn move_batch(
        &self,
        batch: &[SegmentAccount],
        tally: &mut Tally,
        reported: &dyn Fn(u64) -> bool,
    ) -> Result<()> {
        let start = tally.moved;
        let mut remaining: HashSet<SegmentNo> = batch.iter().map(|a| a.id.no).collect();
        for _ in 0..PASSES {
            let before = tally.moved;
            let mut committed = before;
            // What the last pass could not move is found again by this one, and named once.
            tally.unreadable.truncate(NAMED);
            let mut walk = Walk::new(remaining.clone());
            while walk.step(self, STEP, tally)? {
                if tally.moved - committed >= COMMIT_EVERY {
                    self.commits.commit()?;
                    committed = tally.moved;
                }
                if !reported(tally.moved - start) {
                    tally.stopped = true;
                    break;
                }
            }
            if !tally.stopped {
                self.drop_empty(&remaining);
            }
            self.commits.commit()?;
            let accounts = self.blocks.accounts();
            remaining.retain(|no| accounts.get(*no).is_some());
            drop(accounts);
            if remaining.is_empty() || tally.stopped || tally.moved == before {
                break;
            }
        }
        if !tally.stopped && !reported(tally.moved - start) {
            tally.stopped = true;
        }
        for account in batch.iter().filter(|a| !remaining.contains(&a.id.no)) {
            tally.segments += 1;
            tally.freed_blocks += u64::from(account.length);
        }
        Ok(())
    }
}

impl Maintenance {
    /// Lets the next commit drop those of the segments that nothing refers to. The caller has read every map: an
    /// account alone is not enough, because one left by an earlier opening may be wrong.
    pub(crate) fn drop_empty(&self, segments: &HashSet<SegmentNo>) {
        let mut accounts = self.blocks.accounts();
        for no in segments {
            if accounts.get(*no).is_some_and(|a| a.live == 0) {
                accounts.correct(*no, 0);
            }
        }
        drop(accounts);
        self.commits.note_change();
    }
}

/// A walk over all chunk maps of the catalog, and over what is kept of chunks for snapshots, which moves the data of certain segments.
#[derive(Debug)]
pub(crate) struct Walk {
    victims: HashSet<SegmentNo>,
    after: Option<(InodeNo, u64)>,
    /// Behind the maps of files.
    in_past: bool,
    after_kept: Option<(InodeNo, u64, u64)>,
}

impl Walk {
    /// The segments that are emptied.
    pub(crate) fn victims(&self) -> &HashSet<SegmentNo> {
        &self.victims
    }

    pub(crate) fn new(victims: HashSet<SegmentNo>) -> Self {
        Self {
            victims,
            after: None,
            in_past: false,
            after_kept: None,
        }
    }

    /// Goes on until `bytes` are moved or some maps were looked at. False at the end.
    pub(crate) fn step(
        &mut self,
        core: &Maintenance,
        bytes: u64,
        tally: &mut Tally,
    ) -> Result<bool> {
        let before = tally.moved;
        if self.in_past {
            return self.step_in_past(core, bytes, tally);
        }
        let rows = core.catalog.get().all_chunks(self.after, MAPS)?;
        for (no, index, chunk) in &rows {
            if self.concerns(chunk) {
                core.move_chunk(*no, *index, &self.victims, tally)?;
            }
            self.after = Some((*no, *index));
            if tally.moved - before >= bytes {
                return Ok(true);
            }
        }
        self.in_past = rows.len() < MAPS;
        Ok(!self.in_past || !core.catalog.get().snapshots().is_empty())
    }

    fn step_in_past(&mut self, core: &Maintenance, bytes: u64, tally: &mut Tally) -> Result<bool> {
        let before = tally.moved;
        let rows = core.catalog.get().all_kept_chunks(self.after_kept, MAPS)?;
        for row in &rows {
            let key = (row.inode, row.index, row.until);
            if self.concerns(row.kept.chunk()) {
                core.move_kept(key, &self.victims, tally)?;
            }
            self.after_kept = Some(key);
            if tally.moved - before >= bytes {
                return Ok(true);
            }
        }
        Ok(rows.len() == MAPS)
    }

    fn concerns(&self, chunk: &Chunk) -> bool {
        let mut extents = chunk.extents().iter();
        extents.any(|e| self.victims.contains(&e.segment))
    }
}
