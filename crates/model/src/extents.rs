//! Where one mebibyte of a file is in the segments.
//!
//! 1. The extents of a [`Chunk`] are sorted by their first block, do not overlap, and end within the chunk.
//! 2. An [`Extent`] keeps whole sealed units: each unit it names holds at least one block of its range, and all of
//!    the units but the last have [`UNIT_BLOCKS`] blocks. Only whole units can be opened, so `skip` says how many
//!    blocks of the first one come before the range.
//! 3. A hole may have space reserved for it: see [`Chunk::reserve`].
//! 4. Two extents may refer to the same unit (a hole punched into its middle, a clone). [`Chunk::replace`] calls a
//!    unit released only when no extent of the chunk refers to it any more.
//!
//! It deliberately does not know which other chunks refer to a unit (that is the count of shared units), nor how a
//! chunk is stored.

mod code;
mod edits;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod kept;
mod pieces;
mod reserved;
#[cfg(test)]
mod tests;

pub use edits::{Encoded, MapEdit};
pub use kept::{Absorbed, Births, Foreseen, KeptChunk, Replaced};
pub use pieces::{Piece, Pieces, Stored};

use serde::{Deserialize, Serialize};

use crate::units::{put_tags, take_tags};
use crate::{BlockRange, Digest, NoncePart, Proofs, Sealed, SegmentNo, Tag, Tags, UNIT_BLOCKS};
use reserved::BlockSet;

/// Blocks of 4 KiB in one chunk.
pub const CHUNK_BLOCKS: u32 = 256;
/// Bytes in one chunk: the part of a file whose map is one record of the catalog.
pub const CHUNK_LEN: u64 = 1 << 20;

const UNIT: u16 = UNIT_BLOCKS as u16;
const CHUNK: u16 = CHUNK_BLOCKS as u16;

/// A run of blocks of a chunk that are consecutive in a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First block in the chunk, 0 to 255.
    pub first: u16,
    /// Number of blocks, from 1; `first + blocks` is at most [`CHUNK_BLOCKS`].
    pub blocks: u16,
    /// The segment.
    pub segment: SegmentNo,
    /// Block in the segment at which the first unit kept begins.
    pub position: u32,
    /// Blocks of the first unit that come before `first`; less than [`UNIT_BLOCKS`].
    pub skip: u8,
    /// Blocks of all units kept. Every unit has [`UNIT_BLOCKS`], the last may have fewer.
    pub stored: u16,
    /// Whether other chunks may refer to these units too: the count of shared units knows.
    pub shared: bool,
    /// The random part of the nonces of all units kept.
    pub nonce: NoncePart,
    /// One tag for each unit kept.
    #[serde(serialize_with = "put_tags", deserialize_with = "take_tags")]
    pub tags: Tags,
    /// One digest for each unit kept, in rooms whose clients write to segments; otherwise none.
    pub digests: Vec<Digest>,
}

/// Units that a chunk does not refer to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Whole units. Every one but the last has [`UNIT_BLOCKS`] blocks, so that their borders are known.
    pub range: BlockRange,
    /// Whether other chunks may refer to them.
    pub shared: bool,
}

impl Extent {
    /// The whole of an append, as the blocks of a chunk from `first` on.
    ///
    /// # Panics
    /// If it does not fit into the chunk.
    pub fn from_sealed(first: u16, sealed: &Sealed) -> Self {
        assert!(
            sealed.blocks >= 1 && u32::from(first) + sealed.blocks <= CHUNK_BLOCKS,
            "an append of {} blocks does not fit at block {first} of a chunk",
            sealed.blocks
        );
        assert_eq!(
            sealed.tags.len(),
            sealed.blocks.div_ceil(UNIT_BLOCKS) as usize,
            "one tag a unit"
        );
        let blocks = sealed.blocks as u16;
        Self {
            first,
            blocks,
            segment: sealed.segment,
            position: sealed.position,
            skip: 0,
            stored: blocks,
            shared: false,
            nonce: sealed.nonce,
            tags: sealed.tags.clone(),
            digests: sealed.digests.clone(),
        }
    }

    /// What its units are checked against.
    pub fn proofs(&self) -> Proofs<'_> {
        Proofs {
            nonce: self.nonce,
            tags: &self.tags,
            digests: &self.digests,
        }
    }

    /// The block behind the last, 1 to 256.
    pub fn end(&self) -> u16 {
        self.first + self.blocks
    }

    /// The blocks of the units kept.
    pub fn range(&self) -> BlockRange {
        BlockRange {
            segment: self.segment,
            position: self.position,
            blocks: u32::from(self.stored),
        }
    }

    /// The part from block `first` to before block `end`, with the units it needs.
    ///
    /// # Panics
    /// If the part is empty or not within the extent.
    pub fn trim(&self, first: u16, end: u16) -> Self {
        assert!(
            self.first <= first && first < end && end <= self.end(),
            "a part is within its extent"
        );
        let from = u16::from(self.skip) + first - self.first;
        let unit = from / UNIT;
        let unit_end = (from + end - first).div_ceil(UNIT);
        let kept = self.proofs().slice(unit.into(), unit_end.into());
        Self {
            first,
            blocks: end - first,
            segment: self.segment,
            position: self.position + u32::from(unit * UNIT),
            skip: (from % UNIT) as u8,
            stored: self.stored.min(unit_end * UNIT) - unit * UNIT,
            shared: self.shared,
            nonce: self.nonce,
            tags: kept.tags.into(),
            digests: kept.digests.to_vec(),
        }
    }

    /// Each unit with its tag, in order.
    pub fn units(&self) -> impl Iterator<Item = (BlockRange, Tag)> + '_ {
        self.unit_ranges(0, self.tags.len())
            .zip(self.tags.iter().copied())
    }

    /// The units from index `from` to before index `to`.
    fn unit_ranges(&self, from: usize, to: usize) -> impl Iterator<Item = BlockRange> + use<> {
        let (segment, position, stored) = (self.segment, self.position, u32::from(self.stored));
        (from as u32..to as u32).map(move |unit| BlockRange {
            segment,
            position: position + unit * UNIT_BLOCKS,
            blocks: UNIT_BLOCKS.min(stored - unit * UNIT_BLOCKS),
        })
    }

    /// The units that hold blocks of `first..end`, which overlaps the extent.
    fn units_within(&self, first: u16, end: u16) -> impl Iterator<Item = BlockRange> + use<> {
        let from = u16::from(self.skip) + first.max(self.first) - self.first;
        let to = u16::from(self.skip) + end.min(self.end()) - self.first;
        self.unit_ranges(usize::from(from / UNIT), usize::from(to.div_ceil(UNIT)))
    }

    fn touches(&self, range: &BlockRange) -> bool {
        self.segment == range.segment
            && self.position < range.position + range.blocks
            && range.position < self.position + u32::from(self.stored)
    }

    /// Whether one of the units kept begins at `position`.
    fn keeps_unit(&self, segment: SegmentNo, position: u32) -> bool {
        let at = position.wrapping_sub(self.position);
        self.segment == segment && at < u32::from(self.stored) && at.is_multiple_of(UNIT_BLOCKS)
    }

    /// The blocks of the extent that are in the unit beginning at `position`, as first block and the one behind the last.
    fn blocks_of(&self, segment: SegmentNo, position: u32) -> Option<(u16, u16)> {
        let unit = self
            .keeps_unit(segment, position)
            .then(|| position - self.position)? as u16;
        let first = self.first + unit.saturating_sub(u16::from(self.skip));
        let end = self.first + (unit + UNIT - u16::from(self.skip)).min(self.blocks);
        Some((first, end))
    }

    /// Whether `next` can become part of this extent: it goes on in the file and in the segment, with whole units
    /// before the seam and the same nonce part (mostly: it is of the same append).
    fn continues_with(&self, next: &Extent) -> bool {
        self.end() == next.first
            && self.segment == next.segment
            && self.stored.is_multiple_of(UNIT)
            && self.position + u32::from(self.stored) == next.position
            && self.stored == u16::from(self.skip) + self.blocks
            && next.skip == 0
            && self.nonce == next.nonce
            && self.shared == next.shared
            && self.digests.is_empty() == next.digests.is_empty()
    }

    fn extend_with(&mut self, next: &Extent) {
        self.blocks += next.blocks;
        self.stored += next.stored;
        self.tags.extend_from_slice(&next.tags);
        self.digests.extend_from_slice(&next.digests);
    }

    /// What is wrong with the extent, if anything.
    fn fault(&self) -> Option<&'static str> {
        let needed = u32::from(self.skip) + u32::from(self.blocks);
        let stored = u32::from(self.stored);
        if self.blocks == 0 || u32::from(self.first) + u32::from(self.blocks) > CHUNK_BLOCKS {
            Some("an extent is not within its chunk")
        } else if u32::from(self.skip) >= UNIT_BLOCKS
            || stored < needed
            || stored.div_ceil(UNIT_BLOCKS) != needed.div_ceil(UNIT_BLOCKS)
            || !self.proofs().fit(stored.div_ceil(UNIT_BLOCKS) as usize)
        {
            Some("an extent's units do not fit its blocks")
        } else if self.segment.0 == 0 || self.segment.0 > i64::MAX as u64 {
            Some("an extent names an impossible segment")
        } else if self.position == 0 || self.position.checked_add(stored).is_none() {
            Some("an extent is outside every segment")
        } else {
            None
        }
    }
}

/// The map of one mebibyte of a file. What no extent covers is a hole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    extents: Vec<Extent>,
    /// Holes for which space is reserved.
    reserved: BlockSet,
}

impl Chunk {
    /// A map of extents that somebody else made.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn from_extents(extents: Vec<Extent>) -> Result<Self, String> {
        let mut end = 0;
        for extent in &extents {
            if let Some(fault) = extent.fault() {
                return Err(format!("{fault} (block {})", extent.first));
            }
            if extent.first < end {
                return Err(format!("two extents overlap at block {}", extent.first));
            }
            end = extent.end();
        }
        Ok(Self {
            extents,
            ..Self::default()
        })
    }

    /// The extents, by first block.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Whether the chunk is one hole without reservations.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.reserved.is_empty()
    }

    /// Blocks that are allocated: stored, or reserved. 0 to 256.
    pub fn blocks(&self) -> u32 {
        let stored = self.extents.iter().map(|extent| u32::from(extent.blocks));
        stored.sum::<u32>() + self.reserved.count()
    }

    /// The extent that holds a block; for a hole, the first block behind it that is in an extent, 256 if none.
    ///
    /// # Errors
    /// The hole's end, as said: not a failure.
    pub fn find(&self, block: u16) -> Result<&Extent, u16> {
        match self.extents.get(self.first_ending_after(block)) {
            Some(extent) if extent.first <= block => Ok(extent),
            Some(extent) => Err(extent.first),
            None => Err(CHUNK),
        }
    }

    /// Puts `with` in the place of the blocks from `first` on; what `with` leaves out becomes a hole without
    /// reservation. Returns the units that the chunk referred to before and does not refer to any more, each once.
    ///
    /// # Panics
    /// If the range leaves the chunk, or `with` is not sorted, overlaps, or leaves the range.
    pub fn replace(&mut self, first: u16, blocks: u16, with: &[Extent]) -> Vec<Released> {
        let end = check_range(first, blocks);
        let mut from = first;
        for extent in with {
            assert!(
                extent.first >= from && extent.end() <= end,
                "new extents are in order within the range"
            );
            assert_eq!(extent.fault(), None, "new extents are well formed");
            from = extent.end();
        }
        if blocks == 0 {
            return Vec::new();
        }
        self.reserved.remove(first, end);
        let lo = self.first_ending_after(first);
        let hi = lo + self.extents[lo..].partition_point(|extent| extent.first < end);
        let removed = self.put(lo, hi, first, end, with);
        self.join(lo, with.len());
        self.without_reference(&removed, first, end)
    }

    /// The extents of a range, cut to it.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn slice(&self, first: u16, blocks: u16) -> Vec<Extent> {
        let end = check_range(first, blocks);
        self.extents[self.first_ending_after(first)..]
            .iter()
            .take_while(|extent| extent.first < end && blocks > 0)
            .map(|extent| extent.trim(extent.first.max(first), extent.end().min(end)))
            .collect()
    }

    /// Marks every extent as shared that refers to a unit of the range, also where it is elsewhere in the chunk:
    /// whichever of them goes last has to ask the count.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn mark_shared(&mut self, first: u16, blocks: u16) {
        for piece in self.slice(first, blocks) {
            let range = piece.range();
            for extent in self
                .extents
                .iter_mut()
                .filter(|extent| extent.touches(&range))
            {
                extent.shared = true;
            }
        }
    }

    /// Whether an extent refers to the unit that begins at `position`.
    pub fn refers_to(&self, segment: SegmentNo, position: u32) -> bool {
        self.extents
            .iter()
            .any(|extent| extent.keeps_unit(segment, position))
    }

    fn first_ending_after(&self, block: u16) -> usize {
        // Appending is the commonest change of all.
        match self.extents.last() {
            Some(last) if last.end() > block => {
                self.extents.partition_point(|extent| extent.end() <= block)
            }
            _ => self.extents.len(),
        }
    }

    /// Puts `with` and what remains of the extents `lo..hi` outside `first..end` in the place of these extents, and
    /// returns them.
    fn put(&mut self, lo: usize, hi: usize, first: u16, end: u16, with: &[Extent]) -> Vec<Extent> {
        if lo == hi {
            match with {
                [] => {}
                [one] => self.extents.insert(lo, one.clone()),
                _ => drop(self.extents.splice(lo..lo, with.iter().cloned())),
            }
            return Vec::new();
        }
        let (head, tail) = (&self.extents[lo], &self.extents[hi - 1]);
        let before = (head.first < first).then(|| head.trim(head.first, first));
        let after = (tail.end() > end).then(|| tail.trim(end, tail.end()));
        self.extents
            .splice(
                lo..hi,
                before.into_iter().chain(with.iter().cloned()).chain(after),
            )
            .collect()
    }

    /// Joins neighbours that continue each other, at the seams of `new` extents put in at about index `lo`.
    fn join(&mut self, lo: usize, new: usize) {
        // One extent left of the place, the remainder before it, the new ones, the remainder after.
        let mut index = (lo + new + 2).min(self.extents.len());
        while index > lo.saturating_sub(1) + 1 {
            index -= 1;
            let (left, right) = self.extents.split_at(index);
            if left[index - 1].continues_with(&right[0]) {
                let next = self.extents.remove(index);
                self.extents[index - 1].extend_with(&next);
            }
        }
    }

    fn without_reference(&self, removed: &[Extent], first: u16, end: u16) -> Vec<Released> {
        let mut released: Vec<Released> = Vec::new();
        for old in removed {
            let range = old.range();
            // Mostly empty: then no unit of the old extent needs to be looked for.
            let kept: Vec<&Extent> = self
                .extents
                .iter()
                .filter(|extent| extent.touches(&range))
                .collect();
            for unit in old.units_within(first, end) {
                if !kept
                    .iter()
                    .any(|extent| extent.keeps_unit(unit.segment, unit.position))
                {
                    release(&mut released, unit, old.shared);
                }
            }
        }
        released
    }
}

fn check_range(first: u16, blocks: u16) -> u16 {
    assert!(
        u32::from(first) + u32::from(blocks) <= CHUNK_BLOCKS,
        "blocks {first}+{blocks} leave the chunk"
    );
    first + blocks
}

/// Adds a unit, once, to the last range where it continues it.
fn release(released: &mut Vec<Released>, unit: BlockRange, shared: bool) {
    if let Some(known) = released.iter_mut().find(|r| r.range.has(&unit)) {
        known.shared |= shared;
        return;
    }
    match released.last_mut() {
        Some(last)
            if last.range.segment == unit.segment
                && last.range.position + last.range.blocks == unit.position
                && last.shared == shared
                && last.range.blocks.is_multiple_of(UNIT_BLOCKS) =>
        {
            last.range.blocks += unit.blocks;
        }
        _ => released.push(Released {
            range: unit,
            shared,
        }),
    }
}
