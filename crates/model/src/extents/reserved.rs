//! The blocks of a chunk for which space is reserved though nothing is stored there: `fallocate` on a hole.
//!
//! 1. A reserved block is in no extent, and reads as zeros.
//! 2. Writing, punching or cutting a block ends its reservation.

use super::{CHUNK, CHUNK_BLOCKS, Chunk, check_range};

const WORDS: usize = CHUNK_BLOCKS as usize / 64;

/// A set of the 256 blocks of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BlockSet([u64; WORDS]);

impl BlockSet {
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn has(&self, block: u16) -> bool {
        self.0[usize::from(block / 64)] >> (block % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, first: u16, end: u16) {
        for (word, mask) in masks(first, end) {
            self.0[word] |= mask;
        }
    }

    pub(super) fn remove(&mut self, first: u16, end: u16) {
        for (word, mask) in masks(first, end) {
            self.0[word] &= !mask;
        }
    }

    /// The blocks that are not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = *self;
        for (word, other) in left.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        left
    }

    /// The blocks that are in either.
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut all = *self;
        for (word, other) in all.0.iter_mut().zip(other.0) {
            *word |= other;
        }
        all
    }

    /// How many blocks of the range are in the set.
    pub(super) fn count_within(&self, first: u16, end: u16) -> u32 {
        masks(first, end)
            .map(|(word, mask)| (self.0[word] & mask).count_ones())
            .sum()
    }

    /// The runs of blocks, as first block and the one behind the last, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next(at, |word| word)?;
            at = self.next(first, |word| !word).unwrap_or(CHUNK);
            Some((first, at))
        })
    }

    /// Appends the stored form: a byte with the number of runs, for each its first block and its number of blocks less one.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let place = out.len();
        out.push(0);
        for (first, end) in self.runs() {
            out.extend_from_slice(&[first as u8, (end - first - 1) as u8]);
            // At most one run for every two blocks.
            out[place] += 1;
        }
    }

    /// Takes the stored form off the front.
    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, String> {
        let mut set = Self::default();
        let count = *bytes.split_off_first().ok_or("no number of runs")?;
        let mut end = None;
        for _ in 0..count {
            let run = bytes.split_off(..2).ok_or("the runs are cut off")?;
            let (first, after) = (u16::from(run[0]), u16::from(run[0]) + u16::from(run[1]) + 1);
            // Runs that meet would be one: a set has one encoding.
            if after > CHUNK || end.is_some_and(|end| first <= end) {
                return Err(format!("runs out of order at block {first}"));
            }
            set.insert(first, after);
            end = Some(after);
        }
        Ok(set)
    }

    /// The first block from `from` on whose bit is set in what `of` makes of its word.
    fn next(&self, from: u16, of: impl Fn(u64) -> u64) -> Option<u16> {
        let mut behind = u64::MAX << (from % 64);
        for word in usize::from(from / 64)..WORDS {
            let bits = of(self.0[word]) & behind;
            if bits != 0 {
                return Some(word as u16 * 64 + bits.trailing_zeros() as u16);
            }
            behind = u64::MAX;
        }
        None
    }
}

/// The words that have bits of `first..end`, each with these bits.
fn masks(first: u16, end: u16) -> impl Iterator<Item = (usize, u64)> {
    let (from, to) = (usize::from(first / 64), usize::from(end.div_ceil(64)));
    (from..to).map(move |word| {
        let here = |block: u16| usize::from(block).saturating_sub(word * 64).min(64) as u32;
        let below = |bits: u32| u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        (word, below(here(end)) & !below(here(first.min(end))))
    })
}

impl Chunk {
    /// Reserves space for the holes among the blocks from `first` on; returns for how many that were not reserved before.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn reserve(&mut self, first: u16, blocks: u16) -> u32 {
        let end = check_range(first, blocks);
        let before = self.reserved.count();
        let mut at = first;
        while at < end {
            match self.find(at) {
                Ok(extent) => at = extent.end(),
                Err(following) => {
                    let hole_end = following.min(end);
                    self.reserved.insert(at, hole_end);
                    at = hole_end;
                }
            }
        }
        self.reserved.count() - before
    }

    /// Holes for which space is reserved, 0 to 256.
    pub fn reserved_blocks(&self) -> u32 {
        self.reserved.count()
    }

    /// How many of the blocks from `first` on are stored or reserved.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn allocated(&self, first: u16, blocks: u16) -> u32 {
        let end = check_range(first, blocks);
        let stored = self.extents.iter().map(|extent| {
            let (from, to) = (extent.first.max(first), extent.end().min(end));
            u32::from(to.saturating_sub(from))
        });
        stored.sum::<u32>() + self.reserved.count_within(first, end)
    }

    /// The runs of such holes in order, as first block and number of blocks.
    pub fn reserved_runs(&self) -> Vec<(u16, u16)> {
        self.reserved
            .runs()
            .map(|(first, end)| (first, end - first))
            .collect()
    }

    /// Whether writing the blocks from `first` on takes no space that is not theirs: each is reserved, or in an extent that
    /// no other chunk shares.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn owns_space(&self, first: u16, blocks: u16) -> bool {
        let end = check_range(first, blocks);
        let mut at = first;
        while at < end {
            match self.find(at) {
                Ok(extent) if extent.shared => return false,
                Ok(extent) => at = extent.end(),
                Err(_) if !self.reserved.has(at) => return false,
                Err(_) => at += 1,
            }
        }
        true
    }

    /// The smallest range around the blocks from `first` on that leaves no unit half replaced, as first block and the one
    /// behind the last. Replacing part of a unit frees none of it.
    ///
    /// # Panics
    /// If the range leaves the chunk.
    pub fn whole_units(&self, first: u16, blocks: u16) -> (u16, u16) {
        let end = check_range(first, blocks);
        let (mut from, mut to) = (first, end);
        for edge in [first, end.saturating_sub(1).max(first)] {
            let Ok(extent) = self.find(edge) else {
                continue;
            };
            for unit in extent.units_within(edge, edge + 1) {
                for other in &self.extents {
                    if let Some((a, b)) = other.blocks_of(unit.segment, unit.position) {
                        (from, to) = (from.min(a), to.max(b));
                    }
                }
            }
        }
        (from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_blocks_is_what_was_put_in_and_not_taken_out() {
        let mut set = BlockSet::default();
        assert!(set.is_empty() && set.runs().next().is_none());
        set.insert(0, 256);
        assert_eq!(set.count(), 256);
        assert_eq!(set.runs().collect::<Vec<_>>(), [(0, 256)]);
        set.remove(63, 65);
        set.remove(255, 256);
        set.remove(100, 100);
        assert_eq!(set.runs().collect::<Vec<_>>(), [(0, 63), (65, 255)]);
        assert_eq!(set.count(), 253);
        assert_eq!(set.count_within(60, 66), 4);
        assert_eq!((set.count_within(63, 65), set.count_within(5, 5)), (0, 0));
        assert!(set.has(62) && !set.has(63) && set.has(65));
        set.remove(0, 256);
        assert!(set.is_empty());
    }
}
