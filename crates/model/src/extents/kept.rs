//! What a snapshot sees of a chunk that has changed since: the blocks that were replaced, with the extents they had.
//!
//! 1. A block is *covered* when it was replaced or discarded for the first time since the snapshot. It is covered once: later
//!    changes of the block are none of the snapshot's.
//! 2. Extents are within the covered blocks; a covered block without an extent was a hole. Nothing is reserved.
//! 3. Units are counted by chunk, and a kept chunk counts as one more of them. So a unit moves from the live chunk to the kept
//!    one without a change of its count, unless both refer to it, before or afterwards.
//!
//! It deliberately does not know numbers of snapshots, nor how counts of shared units are kept.

use super::reserved::BlockSet;
use super::{CHUNK_BLOCKS, Chunk, Extent, MapEdit, Released, check_range, release};
use crate::{BlockRange, UNIT_BLOCKS};

/// The blocks of a chunk as they were, where they have changed since.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptChunk {
    pub(super) covered: BlockSet,
    chunk: Chunk,
}

/// Blocks that follow each other, and the extents that they had.
struct Run {
    first: u16,
    blocks: u16,
    extents: Vec<Extent>,
}

/// What [`KeptChunk::replace_in`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replaced {
    /// Units that lose a reference.
    pub released: Vec<Released>,
    /// Units that gain one, each by itself: the live chunk and the kept one refer to them, and both say that they are shared.
    pub gained: Vec<BlockRange>,
    /// What the kept chunk got, cut to the blocks that it covers since.
    pub kept: Vec<Extent>,
}

/// What [`KeptChunk::replace_in`] is going to do to the units that the replaced blocks are in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Foreseen {
    /// [`Replaced::gained`].
    pub gained: Vec<BlockRange>,
    /// Units that only the kept chunk will refer to, each with the first block of the chunk that it holds there; one to which
    /// several extents will refer comes for each.
    pub moved: Vec<(BlockRange, u16)>,
    /// Whether a unit that may be shared leaves the live chunk, and the kept one will not refer to it.
    pub loses_shared: bool,
}

/// What [`KeptChunk::absorb`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Absorbed {
    /// Units that lose a reference.
    pub released: Vec<Released>,
    /// What came over.
    pub moved: Vec<Extent>,
    /// What did not: its blocks were covered already.
    pub dropped: Vec<Extent>,
}

impl KeptChunk {
    /// Whether it covers nothing.
    pub fn is_empty(&self) -> bool {
        self.covered.is_empty()
    }

    /// The extents of the covered blocks, as a map in which all other blocks are holes.
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// The same, as if all covered blocks had been holes.
    pub fn covered(&self) -> Self {
        Self {
            covered: self.covered,
            chunk: Chunk::default(),
        }
    }

    /// Whether all blocks from `first` on are covered.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn covers(&self, first: u16, blocks: u16) -> bool {
        let end = check_range(first, blocks);
        self.covered.count_within(first, end) == u32::from(blocks)
    }

    /// The runs of covered blocks in order, as first block and number of blocks.
    pub fn covered_runs(&self) -> Vec<(u16, u16)> {
        runs(&self.covered)
    }

    /// The runs of blocks from `first` on that are not covered, as first block and number of blocks.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn uncovered_runs(&self, first: u16, blocks: u16) -> Vec<(u16, u16)> {
        let end = check_range(first, blocks);
        let mut missing = BlockSet::default();
        missing.insert(first, end);
        runs(&missing.without(&self.covered))
    }

    /// Covers a range in which no block is covered yet, with the extents that it had.
    ///
    /// # Panics
    /// If the range leaves the chunk or is covered in part, or the extents are not in order within it.
    pub fn keep(&mut self, first: u16, blocks: u16, extents: &[Extent]) {
        let end = check_range(first, blocks);
        assert_eq!(
            self.covered.count_within(first, end),
            0,
            "a block is covered once"
        );
        self.chunk.replace(first, blocks, extents);
        self.covered.insert(first, end);
    }

    /// Covers runs in which no block is covered yet, and returns their extents.
    fn keep_all(&mut self, taken: Vec<Run>) -> Vec<Extent> {
        let mut all = Vec::new();
        for run in taken {
            self.keep(run.first, run.blocks, &run.extents);
            all.extend(run.extents);
        }
        all
    }

    /// The units of runs to which it does not refer yet, each once.
    fn new_units(&self, taken: &[Run]) -> Vec<BlockRange> {
        let mut new = Vec::new();
        let extents = taken.iter().flat_map(|run| &run.extents);
        for (unit, _) in extents.flat_map(Extent::units) {
            if !self.chunk.refers_to(unit.segment, unit.position) && !new.contains(&unit) {
                new.push(unit);
            }
        }
        new
    }

    /// What [`replace_in`](Self::replace_in) is going to do; nothing is different yet.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn foresee(&self, live: &Chunk, first: u16, blocks: u16, with: &[Extent]) -> Foreseen {
        let end = check_range(first, blocks);
        let taken = cut(self.uncovered_runs(first, blocks), live);
        let stays = |unit: &BlockRange| {
            let mut new = with.iter();
            new.any(|e| e.keeps_unit(unit.segment, unit.position))
                || live.refers_outside(unit, first, end)
        };
        let mut out = Foreseen::default();
        let (mut shares, mut loses) = (false, false);
        let mut left: Vec<BlockRange> = Vec::new();
        for extent in live.slice(first, blocks) {
            shares |= extent.shared;
            for (unit, _) in extent.units() {
                if left.contains(&unit) || stays(&unit) {
                    continue;
                }
                left.push(unit);
                let kept = taken.iter().flat_map(|run| &run.extents);
                let kept = self.chunk.extents.iter().chain(kept);
                let places = kept.filter_map(|e| e.blocks_of(unit.segment, unit.position));
                let before = out.moved.len();
                out.moved.extend(places.map(|(place, _)| (unit, place)));
                loses |= out.moved.len() == before;
            }
        }
        out.gained = self.new_units(&taken);
        out.gained.retain(|unit| !left.contains(unit));
        out.loses_shared = shares && loses;
        out
    }

    /// Replaces blocks of the live chunk, as [`Chunk::replace`] does, and keeps what they were where that is not covered yet.
    ///
    /// # Panics
    /// As [`Chunk::replace`].
    pub fn replace_in(
        &mut self,
        live: &mut Chunk,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Replaced {
        let taken = cut(self.uncovered_runs(first, blocks), live);
        let new_here = self.new_units(&taken);
        let mut released = live.replace(first, blocks, with);
        let kept = self.keep_all(taken);
        // What the live chunk did not release it still refers to.
        let is_released = |unit: &BlockRange| released.iter().any(|r| r.range.has(unit));
        let (moved, gained): (Vec<_>, Vec<_>) = new_here.into_iter().partition(is_released);
        if !moved.is_empty() {
            released = without(&released, &moved);
        }
        for unit in &gained {
            live.mark_unit(unit);
            self.chunk.mark_unit(unit);
        }
        Replaced {
            released,
            gained,
            kept,
        }
    }

    /// Takes over what the next snapshot's kept chunk covers and this one does not: that snapshot is deleted, and `later` with it.
    pub fn absorb(&mut self, later: &Self) -> Absorbed {
        let mut out = Absorbed::default();
        for (first, end) in self.covered.runs() {
            out.dropped.extend(later.chunk.slice(first, end - first));
        }
        let taken = cut(runs(&later.covered.without(&self.covered)), &later.chunk);
        let new_here = self.new_units(&taken);
        out.moved = self.keep_all(taken);
        for extent in later.chunk.extents() {
            for (unit, _) in extent.units().filter(|(unit, _)| !new_here.contains(unit)) {
                release(&mut out.released, unit, extent.shared);
            }
        }
        out
    }

    /// Puts other copies of the same blocks in the place of those from `first` on, as [`Chunk::replace`] does: what
    /// compaction does. What is covered stays so.
    ///
    /// # Panics
    /// If an extent is outside the covered blocks; as [`Chunk::replace`].
    pub fn rewrite(&mut self, first: u16, blocks: u16, with: &[Extent]) -> Vec<Released> {
        for extent in with {
            assert!(
                self.covers(extent.first, extent.blocks),
                "an extent is kept for covered blocks"
            );
        }
        self.chunk.replace(first, blocks, with)
    }

    /// Takes over what is new. What was covered stays so.
    pub fn edit(&mut self, edit: &MapEdit) {
        edit.apply(&mut self.chunk);
        self.covered = self.covered.with(&edit.blocks);
    }

    /// Marks extents as shared, as [`Chunk::mark_shared`] does.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn mark_shared(&mut self, first: u16, blocks: u16) {
        self.chunk.mark_shared(first, blocks);
    }

    /// Adds what a later snapshot's kept chunk covers and this one does not, so that both are [put back](Self::overlay) at once.
    pub fn add_later(&mut self, later: &Self) {
        let taken = cut(runs(&later.covered.without(&self.covered)), &later.chunk);
        self.keep_all(taken);
    }

    /// Puts the covered blocks of `chunk` back to what they were.
    pub fn overlay(&self, chunk: &mut Chunk) {
        for (first, end) in self.covered.runs() {
            let blocks = end - first;
            chunk.replace(first, blocks, &self.chunk.slice(first, blocks));
        }
    }

    /// The stored form: a byte with the number of covered runs, for each its first block and its number of blocks less one, and
    /// the extents as [`Chunk::encode`] writes them. Empty where nothing is covered.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.is_empty() {
            self.covered.encode(&mut out);
            out.extend_from_slice(&self.chunk.encode());
        }
        out
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let mut kept = Self::decode_runs(&mut bytes)?;
        if kept.is_empty() {
            return Ok(kept);
        }
        kept.chunk = Chunk::decode(bytes)?;
        if kept.chunk.reserved_blocks() > 0 {
            return Err("a kept chunk reserves blocks".into());
        }
        match kept
            .chunk
            .extents()
            .iter()
            .find(|extent| !kept.covers(extent.first, extent.blocks))
        {
            Some(extent) => Err(format!("block {} is kept, not covered", extent.first)),
            None => Ok(kept),
        }
    }

    /// Reads only which blocks are covered: [`covered`](Self::covered).
    ///
    /// # Errors
    /// What is wrong with that, in words.
    pub fn decode_covered(mut bytes: &[u8]) -> Result<Self, String> {
        Self::decode_runs(&mut bytes)
    }

    fn decode_runs(bytes: &mut &[u8]) -> Result<Self, String> {
        let mut kept = Self::default();
        if bytes.is_empty() {
            return Ok(kept);
        }
        kept.covered = BlockSet::decode(bytes)?;
        if kept.is_empty() {
            return Err("a kept chunk covers nothing".into());
        }
        Ok(kept)
    }
}

/// For each block of a chunk, the snapshot after which what it holds was written: 0 where that was before all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Births([u64; CHUNK_BLOCKS as usize]);

impl Births {
    /// All blocks were written after snapshot `since`.
    pub fn after(since: u64) -> Self {
        Self([since; CHUNK_BLOCKS as usize])
    }

    /// What the kept chunk of snapshot `since` covers was written after it. In any order.
    pub fn note(&mut self, kept: &KeptChunk, since: u64) {
        for (first, end) in kept.covered.runs() {
            for birth in &mut self.0[usize::from(first)..usize::from(end)] {
                *birth = since.max(*birth);
            }
        }
    }

    /// The snapshot after which a block's contents were written.
    ///
    /// # Panics
    /// If the block is not in the chunk.
    pub fn since(&self, block: u16) -> u64 {
        self.0[usize::from(block)]
    }

    /// How many of the extents' blocks were written after which snapshot, by snapshot.
    pub fn count(&self, extents: &[Extent]) -> Vec<(u64, u32)> {
        let mut counts = std::collections::BTreeMap::new();
        for extent in extents {
            for block in extent.first..extent.end() {
                *counts.entry(self.since(block)).or_default() += 1;
            }
        }
        counts.into_iter().collect()
    }
}

impl Chunk {
    /// Whether a block outside a range refers to a unit.
    fn refers_outside(&self, unit: &BlockRange, first: u16, end: u16) -> bool {
        let mut extents = self.extents.iter();
        extents.any(|extent| {
            let blocks = extent.blocks_of(unit.segment, unit.position);
            blocks.is_some_and(|(from, to)| from < first || to > end)
        })
    }

    fn mark_unit(&mut self, unit: &BlockRange) {
        for extent in &mut self.extents {
            extent.shared |= extent.keeps_unit(unit.segment, unit.position);
        }
    }
}

fn runs(set: &BlockSet) -> Vec<(u16, u16)> {
    set.runs()
        .map(|(first, end)| (first, end - first))
        .collect()
}

/// The extents of each run.
fn cut(runs: Vec<(u16, u16)>, chunk: &Chunk) -> Vec<Run> {
    let cut = |(first, blocks)| Run {
        first,
        blocks,
        extents: chunk.slice(first, blocks),
    };
    runs.into_iter().map(cut).collect()
}

/// What is released but for some units.
fn without(released: &[Released], moved: &[BlockRange]) -> Vec<Released> {
    let mut left = Vec::new();
    for Released { range, shared } in released {
        for unit in range.units().filter(|unit| !moved.contains(unit)) {
            release(&mut left, unit, *shared);
        }
    }
    left
}

impl BlockRange {
    /// The units of a range that begins with one.
    fn units(self) -> impl Iterator<Item = Self> {
        let step = UNIT_BLOCKS as usize;
        (0..self.blocks).step_by(step).map(move |at| Self {
            segment: self.segment,
            position: self.position + at,
            blocks: UNIT_BLOCKS.min(self.blocks - at),
        })
    }
}
