//! Moving what one chunk has in certain segments, with its file's cell locked.
//!
//! Blocks that only this chunk refers to are gathered into runs and sealed together, without what is dead around them.
//! Units that others may refer to stay whole, so that the others can follow.

use std::collections::HashSet;
use std::sync::Arc;

use catalog::{BlockRange, Change, Digest, Extent, InodeNo, Proofs, SegmentNo, Tag};
use segments::{APPEND_BLOCKS_MAX, SegmentError, UNIT_BLOCKS};

use super::super::Maintenance;
use super::{NAMED, Tally};
use crate::blocks::BLOCK;
use crate::inodes::{Cell, State};
use crate::moves::Moved;
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
    core: &'a Maintenance,
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
            // One unit fails authentication: the others can move.
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
        let sealed = self.core.blocks.append(&run.data)?;
        let extent = Extent::from_sealed(run.first, &sealed);
        self.core.data.replace(
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
            let shares = self.core.blocks.shares();
            let Some(moved) = shares.get(piece.segment, piece.position) else {
                return Ok(false);
            };
            let (segment, position) = (moved.segment, moved.position);
            let chunk = self.core.data.changed_chunk(self.cell, state, self.index)?;
            if !chunk.refers_to(segment, position) {
                // While the lock is held its last reference cannot go.
                self.core.catalog.get().apply(&[Change::ShareUnit {
                    segment,
                    position,
                    references: 1,
                }])?;
            }
            Extent {
                segment,
                position,
                nonce: moved.nonce,
                tags: vec![moved.tag],
                digests: moved.digest.into_iter().collect(),
                shared: true,
                ..piece.clone()
            }
        };
        self.core.data.replace(
            self.cell,
            state,
            self.index,
            piece.first,
            piece.blocks,
            &[target],
        )?;
        Ok(true)
    }

    /// Moves consecutive units of one extent to a fresh place, for others to follow.
    fn fresh(&mut self, state: &mut State, pieces: &[Extent]) -> Result<()> {
        let [head, ..] = pieces else { return Ok(()) };
        let tags: Vec<Tag> = pieces.iter().flat_map(|p| p.tags.iter().copied()).collect();
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
                    self.fresh(state, std::slice::from_ref(piece))?;
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
                    tags: proofs.tags.to_vec(),
                    digests: proofs.digests.to_vec(),
                    shared: true,
                    ..piece.clone()
                }
            })
            .collect();
        let span = pieces.iter().map(|p| p.blocks).sum();
        self.core
            .data
            .replace(self.cell, state, self.index, head.first, span, &moved)?;
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
