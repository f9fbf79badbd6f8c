//! Moving live data out of segments, so that these can go.
//!
//! 1. A unit is opened before it is sealed anew: nothing damaged is ever given a good tag. What does not open stays
//!    where it is and is named.
//! 2. Data moves under the same guards as a write: a change, the cell's lock. A commit may come between two chunks.
//! 3. A unit with several references is moved once; the others follow to the same place (`moves`).
//!
//! It deliberately does not know why a segment is to go: thin, short, or sealed under an older key.

use std::collections::HashSet;
use std::sync::Arc;

use catalog::{BlockRange, Change, Extent, InodeNo, SegmentAccount, SegmentNo, Tag};
use segments::{APPEND_BLOCKS_MAX, SEGMENT_BLOCKS, SegmentError, SegmentStore, UNIT_BLOCKS};

use crate::core::{BLOCK, Core};
use crate::inodes::{Cell, State};
use crate::maintenance::{CompactReport, Progress};
use crate::{Error, Result};

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

impl Core {
    /// Rewrites thin segments and merges short ones.
    pub(crate) fn compact(&self, percent: u8, progress: Progress<'_>) -> Result<CompactReport> {
        let _one = self.moving.lock();
        self.reap_all()?;
        self.close_segment()?;
        self.commit()?;
        let victims = self.thin_segments(percent);
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

    /// Closes the open segment and waits for whoever still writes to it.
    pub(crate) fn close_segment(&self) -> Result<()> {
        self.segments.rotate()?;
        drop(self.freeze.write());
        Ok(())
    }

    /// Closed segments of which less than `percent` is alive, thinnest first, and short ones if there are several.
    pub(crate) fn thin_segments(&self, percent: u8) -> Vec<SegmentAccount> {
        let open = self.segments.open_segment().map(|(no, _)| no);
        let closed: Vec<SegmentAccount> = self
            .accounts
            .lock()
            .iter()
            .filter(|a| Some(a.id.no) != open)
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
            let most = BATCH.min(self.space()?.available / 4);
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
            let told = |moved: u64| progress((emptied + moved.min(batch_bytes)).min(total), total);
            let done = self.move_batch(&batch, tally, &told);
            self.shares.lock().clear();
            done?;
            emptied += batch_bytes;
        }
        Ok(())
    }

    fn shared_units(&self) -> Result<std::collections::HashMap<SegmentNo, u64>> {
        let mut counts = std::collections::HashMap::new();
        for (segment, _, _) in self.catalog().all_shared()? {
            *counts.entry(segment).or_insert(0) += 1;
        }
        Ok(counts)
    }

    fn move_batch(
        &self,
        batch: &[SegmentAccount],
        tally: &mut Tally,
        told: &dyn Fn(u64) -> bool,
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
                    self.commit()?;
                    committed = tally.moved;
                }
                if !told(tally.moved - start) {
                    tally.stopped = true;
                    break;
                }
            }
            if !tally.stopped {
                self.drop_empty(&remaining);
            }
            self.commit()?;
            let accounts = self.accounts.lock();
            remaining.retain(|no| accounts.get(*no).is_some());
            drop(accounts);
            if remaining.is_empty() || tally.stopped || tally.moved == before {
                break;
            }
        }
        if !tally.stopped && !told(tally.moved - start) {
            tally.stopped = true;
        }
        for account in batch.iter().filter(|a| !remaining.contains(&a.id.no)) {
            tally.segments += 1;
            tally.freed_blocks += u64::from(account.length);
        }
        Ok(())
    }
}

impl Core {
    /// Lets the next commit drop those of the segments that nothing refers to. The caller has looked at every map: an
    /// account alone is not believed, because one left by an earlier opening may be wrong.
    pub(crate) fn drop_empty(&self, segments: &HashSet<SegmentNo>) {
        let mut accounts = self.accounts.lock();
        for no in segments {
            if accounts.get(*no).is_some_and(|a| a.live == 0) {
                accounts.correct(*no, 0);
            }
        }
        drop(accounts);
        self.changes
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// A walk over all chunk maps of the catalog, which moves what lies in certain segments.
#[derive(Debug)]
pub(crate) struct Walk {
    victims: HashSet<SegmentNo>,
    after: Option<(InodeNo, u64)>,
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
        }
    }

    /// Goes on until `bytes` are moved or some maps were looked at. False at the end.
    pub(crate) fn step(&mut self, core: &Core, bytes: u64, tally: &mut Tally) -> Result<bool> {
        let before = tally.moved;
        let rows = core.catalog().all_chunks(self.after, MAPS)?;
        for (no, index, chunk) in &rows {
            if chunk
                .extents()
                .iter()
                .any(|e| self.victims.contains(&e.segment))
            {
                core.move_chunk(*no, *index, &self.victims, tally)?;
            }
            self.after = Some((*no, *index));
            if tally.moved - before >= bytes {
                return Ok(true);
            }
        }
        Ok(rows.len() == MAPS)
    }
}

/// A run of bytes of a chunk on its way to a new place.
#[derive(Debug, Default)]
struct Run {
    first: u16,
    data: Vec<u8>,
}

impl Core {
    /// Moves what one chunk has in the given segments.
    fn move_chunk(
        &self,
        no: InodeNo,
        index: u64,
        victims: &HashSet<SegmentNo>,
        tally: &mut Tally,
    ) -> Result<()> {
        let tally = std::cell::RefCell::new(tally);
        // A chunk at most, with units of which only a part is needed.
        self.with_space(u64::from(APPEND_BLOCKS_MAX) * BLOCK, || {
            let _change = self.change()?;
            let cell = match self.cell(no) {
                Err(Error::NotFound) => return Ok(()),
                other => other?,
            };
            let mut state = cell.state.write();
            if state.deleted {
                return Ok(());
            }
            let chunk = self.chunk(no, &state, index)?;
            let moving: Vec<Extent> = chunk
                .extents()
                .iter()
                .filter(|e| victims.contains(&e.segment))
                .cloned()
                .collect();
            drop(chunk);
            let mut tally = tally.borrow_mut();
            let mut mover = Mover {
                core: self,
                cell: &cell,
                index,
                tally: &mut tally,
                run: Run::default(),
            };
            for extent in &moving {
                mover.extent(&mut state, extent)?;
            }
            mover.finish_run(&mut state)
        })
    }
}

/// Moves extents of one chunk, whose cell is locked.
struct Mover<'a> {
    core: &'a Core,
    cell: &'a Arc<Cell>,
    index: u64,
    tally: &'a mut Tally,
    run: Run,
}

impl Mover<'_> {
    fn extent(&mut self, state: &mut State, extent: &Extent) -> Result<()> {
        if extent.shared && self.is_shared(extent)? {
            self.finish_run(state)?;
            return self.shared(state, extent);
        }
        if let Some(data) = self.read(extent)? {
            self.add(state, extent.first, &data)?;
        } else if extent.tags.len() == 1 {
            self.name(extent);
        } else {
            // One unit does not open: the others can move.
            for piece in units(extent) {
                match self.read(&piece)? {
                    Some(data) => self.add(state, piece.first, &data)?,
                    None => self.name(&piece),
                }
            }
        }
        Ok(())
    }

    /// Whether another chunk refers to one of the units, or did until its reference moved.
    fn is_shared(&self, extent: &Extent) -> Result<bool> {
        let shares = self.core.shares.lock();
        let catalog = self.core.catalog();
        for (unit, _) in extent.units() {
            if shares.get(unit.segment, unit.position).is_some()
                || catalog.shared_references(unit.segment, unit.position)? > 0
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The bytes of an extent's blocks; `None` where a unit does not open.
    fn read(&self, extent: &Extent) -> Result<Option<Vec<u8>>> {
        let Some(units) = self.read_units(extent.range(), &extent.tags)? else {
            return Ok(None);
        };
        let skip = usize::from(extent.skip) * BLOCK as usize;
        Ok(Some(
            units[skip..skip + usize::from(extent.blocks) * BLOCK as usize].to_vec(),
        ))
    }

    fn read_units(&self, range: BlockRange, tags: &[Tag]) -> Result<Option<Vec<u8>>> {
        let mut units = vec![0; range.blocks as usize * BLOCK as usize];
        match self.core.segments.read(range, tags, &mut units) {
            Ok(()) => Ok(Some(units)),
            Err(
                e @ (SegmentError::Corrupt { .. }
                | SegmentError::Missing { .. }
                | SegmentError::UnknownEpoch { .. }),
            ) => {
                tracing::warn!("inode {}: {e}; it stays where it is", self.cell.no.0);
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn name(&mut self, extent: &Extent) {
        let offset = self.index * catalog::CHUNK_LEN + u64::from(extent.first) * BLOCK;
        let line = format!(
            "inode {}: {} bytes from byte {offset} do not open (segment {})",
            self.cell.no.0,
            u64::from(extent.blocks) * BLOCK,
            extent.segment.0
        );
        if self.tally.unreadable.len() < NAMED && !self.tally.unreadable.contains(&line) {
            self.tally.unreadable.push(line);
        }
    }

    /// Adds blocks to the run, beginning another one where they do not continue it.
    fn add(&mut self, state: &mut State, first: u16, data: &[u8]) -> Result<()> {
        let end = usize::from(self.run.first) + self.run.data.len() / BLOCK as usize;
        if usize::from(first) != end {
            self.finish_run(state)?;
        }
        if self.run.data.is_empty() {
            self.run.first = first;
        }
        self.run.data.extend_from_slice(data);
        Ok(())
    }

    fn finish_run(&mut self, state: &mut State) -> Result<()> {
        if self.run.data.is_empty() {
            return Ok(());
        }
        let run = std::mem::take(&mut self.run);
        let sealed = self.core.append(&run.data)?;
        let extent = Extent::from_sealed(run.first, &sealed);
        self.core.replace(
            self.cell,
            state,
            self.index,
            run.first,
            extent.blocks,
            &[extent],
        )?;
        self.tally.moved += run.data.len() as u64;
        Ok(())
    }

    /// Moves an extent whose units others refer to: unit by unit to where they went, the rest to a fresh place.
    fn shared(&mut self, state: &mut State, extent: &Extent) -> Result<()> {
        let mut fresh: Vec<Extent> = Vec::new();
        for piece in units(extent) {
            if self.join(state, &piece)? {
                self.fresh(state, &std::mem::take(&mut fresh))?;
            } else {
                if fresh.len() as u32 == APPEND_BLOCKS_MAX / UNIT_BLOCKS {
                    self.fresh(state, &std::mem::take(&mut fresh))?;
                }
                fresh.push(piece);
            }
        }
        self.fresh(state, &fresh)
    }

    /// Lets the one unit of an extent follow to where another chunk's reference took it. False if it was not moved yet.
    fn join(&mut self, state: &mut State, piece: &Extent) -> Result<bool> {
        let target = {
            let shares = self.core.shares.lock();
            let Some((segment, position, tag)) = shares.get(piece.segment, piece.position) else {
                return Ok(false);
            };
            let chunk = self.core.changed_chunk(self.cell, state, self.index)?;
            if !chunk.refers_to(segment, position) {
                // While the lock is held its last reference cannot go.
                self.core.catalog().apply(&[Change::ShareUnit {
                    segment,
                    position,
                    references: 1,
                }])?;
            }
            Extent {
                segment,
                position,
                tags: vec![tag],
                shared: true,
                ..piece.clone()
            }
        };
        self.core.replace(
            self.cell,
            state,
            self.index,
            piece.first,
            piece.blocks,
            &[target],
        )?;
        Ok(true)
    }

    /// Moves consecutive units to a fresh place, for others to follow.
    fn fresh(&mut self, state: &mut State, pieces: &[Extent]) -> Result<()> {
        let [head, ..] = pieces else { return Ok(()) };
        let tags: Vec<Tag> = pieces.iter().flat_map(|p| p.tags.iter().copied()).collect();
        let blocks = pieces.iter().map(|p| u32::from(p.stored)).sum();
        let range = BlockRange {
            segment: head.segment,
            position: head.position,
            blocks,
        };
        let Some(data) = self.read_units(range, &tags)? else {
            if let [only] = pieces {
                self.name(only);
            } else {
                for piece in pieces {
                    self.fresh(state, std::slice::from_ref(piece))?;
                }
            }
            return Ok(());
        };
        let sealed = self.core.append(&data)?;
        self.tally.moved += data.len() as u64;
        let moved: Vec<Extent> = pieces
            .iter()
            .zip(&sealed.tags)
            .map(|(piece, tag)| Extent {
                segment: sealed.segment,
                position: sealed.position + (piece.position - head.position),
                tags: vec![*tag],
                shared: true,
                ..piece.clone()
            })
            .collect();
        let span = pieces.iter().map(|p| p.blocks).sum();
        self.core
            .replace(self.cell, state, self.index, head.first, span, &moved)?;
        let mut shares = self.core.shares.lock();
        for (old, new) in pieces.iter().zip(&moved) {
            shares.note(
                (old.segment, old.position),
                (new.segment, new.position),
                new.tags[0],
            );
        }
        Ok(())
    }
}

/// The extent cut at its units.
fn units(extent: &Extent) -> Vec<Extent> {
    let unit = UNIT_BLOCKS as u16;
    let mut at = extent.first;
    let mut pieces = Vec::with_capacity(extent.tags.len());
    while at < extent.end() {
        let in_run = u16::from(extent.skip) + at - extent.first;
        let end = (at + unit - in_run % unit).min(extent.end());
        pieces.push(extent.trim(at, end));
        at = end;
    }
    pieces
}
