//! What to read for a range of a chunk.
//!
//! Only whole units can be opened: a piece names the units that hold it, and how many of their bytes come before it.
//!
//! It deliberately does not know who reads, or from where.

use crate::{BlockRange, Proofs, UNIT_BLOCKS};

use super::{Chunk, Extent};

const BLOCK: u64 = crate::BLOCK_LEN as u64;

/// A part of a range of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Zeros.
    Hole {
        /// Bytes.
        len: usize,
    },
    /// What has to be read and opened.
    Stored(Stored<'a>),
}

impl Piece<'_> {
    /// Bytes of the range.
    pub fn len(&self) -> usize {
        match self {
            Self::Hole { len } => *len,
            Self::Stored(stored) => stored.len,
        }
    }

    /// Never: a piece has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of a range that are in one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The units that hold them.
    pub range: BlockRange,
    /// What each is checked against.
    pub proofs: Proofs<'a>,
    /// Bytes of the opened units that come before them.
    pub skip: usize,
    /// Bytes.
    pub len: usize,
    extent: &'a Extent,
}

impl Stored<'_> {
    /// Whether they are all bytes of the units.
    pub fn is_whole(&self) -> bool {
        self.skip == 0 && self.len as u64 == u64::from(self.range.blocks) * BLOCK
    }

    /// The part of the file that a damaged unit hides: its byte offset in the chunk, and its length in bytes.
    /// `position` is a block of the segment within [`range`](Self::range).
    pub fn hidden_by(&self, position: u32) -> (u64, u64) {
        let in_run = u64::from(position.saturating_sub(self.extent.position)) * BLOCK;
        let offset = u64::from(self.extent.first) * BLOCK
            + in_run.saturating_sub(u64::from(self.extent.skip) * BLOCK);
        let end = self.range.position + self.range.blocks;
        let blocks = UNIT_BLOCKS.min(end.saturating_sub(position));
        (offset, u64::from(blocks) * BLOCK)
    }
}

/// The pieces of a range, in order.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    chunk: &'a Chunk,
    at: u64,
    end: u64,
}

impl Chunk {
    /// The pieces of `len` bytes from byte `start` of the chunk on.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn pieces(&self, start: u64, len: usize) -> Pieces<'_> {
        let end = start.saturating_add(len as u64);
        assert!(
            end <= super::CHUNK_LEN,
            "bytes {start} to {end} leave the chunk"
        );
        Pieces {
            chunk: self,
            at: start,
            end,
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.at >= self.end {
            return None;
        }
        let start = self.at;
        let piece = match self.chunk.find((start / BLOCK) as u16) {
            Ok(extent) => {
                self.at = self.end.min(u64::from(extent.end()) * BLOCK);
                Piece::Stored(stored(extent, start, self.at))
            }
            Err(following) => {
                self.at = self.end.min(u64::from(following) * BLOCK);
                Piece::Hole {
                    len: (self.at - start) as usize,
                }
            }
        };
        Some(piece)
    }
}

/// The bytes `start..end` of a chunk, which are within the extent.
fn stored(extent: &Extent, start: u64, end: u64) -> Stored<'_> {
    // Offsets from here on are in the extent's run of units.
    let from = start - u64::from(extent.first) * BLOCK + u64::from(extent.skip) * BLOCK;
    let to = from + (end - start);
    let first = (from / BLOCK) as u32 / UNIT_BLOCKS * UNIT_BLOCKS;
    let last = (to.div_ceil(BLOCK) as u32)
        .next_multiple_of(UNIT_BLOCKS)
        .min(u32::from(extent.stored));
    Stored {
        range: BlockRange {
            segment: extent.segment,
            position: extent.position + first,
            blocks: last - first,
        },
        proofs: extent.proofs().slice(
            (first / UNIT_BLOCKS) as usize,
            last.div_ceil(UNIT_BLOCKS) as usize,
        ),
        skip: (from - u64::from(first) * BLOCK) as usize,
        len: (end - start) as usize,
        extent,
    }
}
