//! Moving what one chunk has in certain segments, with its file's cell locked; what is kept of it for snapshots too.
//!
//! Blocks that only this chunk refers to are gathered into runs and sealed together, without what is dead around them.
//! Units that others may refer to stay whole, so that the others can follow; what is kept for snapshots always does.

use std::collections::HashSet;
use std::sync::Arc;

use catalog::{
    Births, BlockRange, Change, Chunk, Digest, Extent, InodeNo, KeptChunk, Proofs, Released,
    SegmentNo, Tags,
};
use segments::{APPEND_BLOCKS_MAX, SegmentError, UNIT_BLOCKS};

use super::super::Maintenance;
use super::{NAMED, Tally};
use crate::blocks::BLOCK;
use crate::data::Data;
use crate::inodes::{Cell, State};
use crate::moves::Moved;
use crate::usage::by_unit;
use crate::{Error, Result};

/// A run of bytes of a chunk on its way to a new place.
#[derive(Debug, Default)]
struct Run {
    first: u16,
    data: Vec<u8>,
}

impl Maintenance {
    /// Moves what one chunk has in the given segments.
    pub(super) fn move_chunk(
        &self,
        no: InodeNo,
        index: u64,
        victims: &HashSet<SegmentNo>,
        tally: &mut Tally,
    ) -> Result<()> {
        let tally = std::cell::RefCell::new(tally);
        // A chunk at most, with units of which only a part is needed.
        self.space
            .with_set_aside(u64::from(APPEND_BLOCKS_MAX) * BLOCK, || {
                let _change = self.commits.change()?;
                let cell = match self.data.cell(no) {
                    Err(Error::NotFound) => return Ok(()),
                    other => other?,
                };
                let mut state = cell.state.write();
                if state.is_deleted() {
                    return Ok(());
                }
                let chunk = self.data.chunk(no, &state, index)?;
                let moving = within(&chunk, victims);
                drop(chunk);
                let births = self.data.births(no, &state, index)?;
                let mut tally = tally.borrow_mut();
                let mut map = LiveMap {
                    data: &self.data,
                    cell: &cell,
                    state: &mut state,
                    index,
                };
                Mover::new(self, (no, index), births, &mut tally, &mut map).extents(&moving)
            })
    }

    /// Moves what is kept of one chunk until a snapshot.
    pub(super) fn move_kept(
        &self,
        (no, index, until): (InodeNo, u64, u64),
        victims: &HashSet<SegmentNo>,
        tally: &mut Tally,
    ) -> Result<()> {
        let tally = std::cell::RefCell::new(tally);
        self.space
            .with_set_aside(u64::from(APPEND_BLOCKS_MAX) * BLOCK, || {
                let _change = self.commits.change()?;
                self.data.edit_kept((no, index, until), |kept, released| {
                    let moving = within(kept.chunk(), victims);
                    let mut tally = tally.borrow_mut();
                    let mut map = KeptMap { kept, released };
                    Mover::new(self, (no, index), None, &mut tally, &mut map).extents(&moving)
                })
            })
    }
}

fn within(chunk: &Chunk, segments: &HashSet<SegmentNo>) -> Vec<Extent> {
    let extents = chunk.extents().iter();
    let within = extents.filter(|e| segments.contains(&e.segment));
    within.cloned().collect()
}

/// A map of a chunk whose extents move.
trait Map {
    /// Whether its units stay as they are: blocks of several are not gathered.
    const WHOLE_UNITS: bool;

    /// Whether an extent refers to a unit.
    fn refers_to(&mut self, segment: SegmentNo, position: u32) -> Result<bool>;

    /// Puts copies of the same data in the place of blocks.
    fn put(&mut self, first: u16, blocks: u16, with: &[Extent]) -> Result<()>;
}

/// The map of a file.
struct LiveMap<'a> {
    data: &'a Data,
    cell: &'a Arc<Cell>,
    state: &'a mut State,
    index: u64,
}

impl Map for LiveMap<'_> {
    const WHOLE_UNITS: bool = false;

    fn refers_to(&mut self, segment: SegmentNo, position: u32) -> Result<bool> {
        let chunk = self.data.changed_chunk(self.cell, self.state, self.index)?;
        Ok(chunk.refers_to(segment, position))
    }

    fn put(&mut self, first: u16, blocks: u16, with: &[Extent]) -> Result<()> {
        let (cell, index) = (self.cell, self.index);
        self.data
            .relocate(cell, self.state, index, first, blocks, with)
    }
}

/// What is kept of a chunk for snapshots.
struct KeptMap<'a> {
    kept: &'a mut KeptChunk,
    released: &'a mut Vec<Released>,
}

impl Map for KeptMap<'_> {
    const WHOLE_UNITS: bool = true;

    fn refers_to(&mut self, segment: SegmentNo, position: u32) -> Result<bool> {
        Ok(self.kept.chunk().refers_to(segment, position))
    }

    fn put(&mut self, first: u16, blocks: u16, with: &[Extent]) -> Result<()> {
        self.released.extend(self.kept.rewrite(first, blocks, with));
        Ok(())
    }
}

/// Moves extents of one chunk, whose cell is locked.
struct Mover<'a, M> {
    core: &'a Maintenance,
    no: InodeNo,
    index: u64,
    /// After which snapshots its blocks were written: only what has one birth is sealed together, so that it can go together.
    births: Option<Births>,
    tally: &'a mut Tally,
    run: Run,
    map: &'a mut M,
}

impl<'a, M: Map> Mover<'a, M> {
    fn new(
        core: &'a Maintenance,
        (no, index): (InodeNo, u64),
        births: Option<Births>,
        tally: &'a mut Tally,
        map: &'a mut M,
    ) -> Self {
        Self {
            core,
            no,
            index,
            births,
            tally,
            run: Run::default(),
            map,
        }
    }

    fn extents(mut self, extents: &[Extent]) -> Result<()> {
        for extent in extents {
            self.extent(extent)?;
        }
        self.finish_run()
    }

    fn extent(&mut self, extent: &Extent) -> Result<()> {
        if M::WHOLE_UNITS || (extent.shared && self.is_shared(extent)?) {
            self.finish_run()?;
            return self.shared(extent);
        }
        if let Some(data) = self.read(extent)? {
            self.add(extent.first, &data)?;
        } else if extent.tags.len() == 1 {
            self.name(extent);
        } else {
            // One unit fails authentication: the others can move.
            for piece in by_unit(extent) {
                match self.read(&piece)? {
                    Some(data) => self.add(piece.first, &data)?,
                    None => self.name(&piece),
                }
            }
        }
        Ok(())
    }

    /// Whether another chunk refers to one of the units, or did until its reference moved.
    fn is_shared(&self, extent: &Extent) -> Result<bool> {
        let shares = self.core.blocks.shares();
        let catalog = self.core.catalog.get();
        for (unit, _) in extent.units() {
            if shares.get(unit.segment, unit.position).is_some()
                || catalog.shared_references(unit.segment, unit.position)? > 0
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The bytes of an extent's blocks; `None` where a unit fails authentication.
    fn read(&self, extent: &Extent) -> Result<Option<Vec<u8>>> {
        let Some(units) = self.read_units(extent.range(), extent.proofs())? else {
            return Ok(None);
        };
        let skip = usize::from(extent.skip) * BLOCK as usize;
        Ok(Some(
            units[skip..skip + usize::from(extent.blocks) * BLOCK as usize].to_vec(),
        ))
    }

    fn read_units(&self, range: BlockRange, proofs: Proofs<'_>) -> Result<Option<Vec<u8>>> {
        let mut units = vec![0; range.blocks as usize * BLOCK as usize];
        match self.core.blocks.segments().read(range, proofs, &mut units) {
            Ok(()) => Ok(Some(units)),
            Err(
                e @ (SegmentError::Corrupt { .. }
                | SegmentError::Missing { .. }
                | SegmentError::UnknownEpoch { .. }),
            ) => {
                tracing::warn!("inode {}: {e}; it stays where it is", self.no.0);
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn name(&mut self, extent: &Extent) {
        let offset = self.index * catalog::CHUNK_LEN + u64::from(extent.first) * BLOCK;
        let line = format!(
            "inode {}: {} bytes from byte {offset} do not open (segment {})",
            self.no.0,
            u64::from(extent.blocks) * BLOCK,
            extent.segment.0
        );
        if self.tally.unreadable.len() < NAMED && !self.tally.unreadable.contains(&line) {
            self.tally.unreadable.push(line);
        }
    }

    /// Adds blocks to the run, beginning another one where they do not continue it.
    fn add(&mut self, first: u16, data: &[u8]) -> Result<()> {
        for (at, block) in data.chunks(BLOCK as usize).enumerate() {
            let at = first + at as u16;
            let end = usize::from(self.run.first) + self.run.data.len() / BLOCK as usize;
            let born = |block: u16| self.births.as_ref().map(|births| births.since(block));
            if usize::from(at) != end || born(at) != born(self.run.first) {
                self.finish_run()?;
            }
            if self.run.data.is_empty() {
                self.run.first = at;
            }
            self.run.data.extend_from_slice(block);
        }
        Ok(())
    }

    fn finish_run(&mut self) -> Result<()> {
        if self.run.data.is_empty() {
            return Ok(());
        }
        let run = std::mem::take(&mut self.run);
        let sealed = self.core.blocks.append(&run.data)?;
        let extent = Extent::from_sealed(run.first, &sealed);
        self.map.put(run.first, extent.blocks, &[extent])?;
        self.tally.moved += run.data.len() as u64;
        Ok(())
    }

    /// Moves an extent whose units others refer to: unit by unit to where they went, the rest to a fresh place.
    fn shared(&mut self, extent: &Extent) -> Result<()> {
        let mut fresh: Vec<Extent> = Vec::new();
        for piece in by_unit(extent) {
            if self.join(&piece)? {
                self.fresh(&std::mem::take(&mut fresh))?;
            } else {
                if fresh.len() as u32 == APPEND_BLOCKS_MAX / UNIT_BLOCKS {
                    self.fresh(&std::mem::take(&mut fresh))?;
                }
                fresh.push(piece);
            }
        }
        self.fresh(&fresh)
    }

    /// Lets the one unit of an extent follow to where another chunk's reference took it. False if it was not moved yet.
    fn join(&mut self, piece: &Extent) -> Result<bool> {
        let target = {
            let shares = self.core.blocks.shares();
            let Some(moved) = shares.get(piece.segment, piece.position) else {
                return Ok(false);
            };
            let (segment, position) = (moved.segment, moved.position);
            if !self.map.refers_to(segment, position)? {
                // While the lock is held its last reference cannot go.
                self.core
                    .catalog
                    .get()
                    .apply(&[Change::share_unit(segment, position, 1)])?;
            }
            Extent {
                segment,
                position,
                nonce: moved.nonce,
                tags: Tags::from([moved.tag]),
                digests: moved.digest.into_iter().collect(),
                shared: true,
                ..piece.clone()
            }
        };
        self.map.put(piece.first, piece.blocks, &[target])?;
        Ok(true)
    }

    /// Moves consecutive units of one extent to a fresh place, for others to follow.
    fn fresh(&mut self, pieces: &[Extent]) -> Result<()> {
        let [head, ..] = pieces else { return Ok(()) };
        let tags: Tags = pieces.iter().flat_map(|p| p.tags.iter().copied()).collect();
        let blocks = pieces.iter().map(|p| u32::from(p.stored)).sum();
        let range = BlockRange {
            segment: head.segment,
            position: head.position,
            blocks,
        };
        let digests: Vec<Digest> = pieces
            .iter()
            .flat_map(|p| p.digests.iter().copied())
            .collect();
        let proofs = Proofs {
            nonce: head.nonce,
            tags: &tags,
            digests: &digests,
        };
        let Some(data) = self.read_units(range, proofs)? else {
            if let [only] = pieces {
                self.name(only);
            } else {
                for piece in pieces {
                    self.fresh(std::slice::from_ref(piece))?;
                }
            }
            return Ok(());
        };
        let sealed = self.core.blocks.append(&data)?;
        self.tally.moved += data.len() as u64;
        let moved: Vec<Extent> = pieces
            .iter()
            .enumerate()
            .map(|(unit, piece)| {
                let proofs = sealed.proofs().slice(unit, unit + 1);
                Extent {
                    segment: sealed.segment,
                    position: sealed.position + (piece.position - head.position),
                    nonce: proofs.nonce,
                    tags: proofs.tags.into(),
                    digests: proofs.digests.to_vec(),
                    shared: true,
                    ..piece.clone()
                }
            })
            .collect();
        let span = pieces.iter().map(|p| p.blocks).sum();
        self.map.put(head.first, span, &moved)?;
        let mut shares = self.core.blocks.shares();
        for (old, new) in pieces.iter().zip(&moved) {
            let moved = Moved {
                segment: new.segment,
                position: new.position,
                nonce: new.nonce,
                tag: new.tags[0],
                digest: new.digests.first().copied(),
            };
            shares.note((old.segment, old.position), moved);
        }
        Ok(())
    }
}
