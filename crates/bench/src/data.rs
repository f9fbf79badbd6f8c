//! What is written: bytes that cannot be compressed, are nowhere twice, and can be computed again from their offset.
//!
//! 1. A block of 4096 bytes is a function of (seed, file, block, version): a reader knows what must be there without a
//!    copy, and an old version or another file's block does not pass for it.
//! 2. [`Content::Zeros`] is the one exception, for finding out whether content matters to a store.

use std::num::Wrapping;

/// Bytes that are made, checked and versioned together.
pub const BLOCK: usize = 4096;

/// What blocks are filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Every block its own.
    Unique,
    /// Zeros: what a store that compresses, deduplicates or leaves holes is faster with.
    Zeros,
}

/// The bytes of one file.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    seed: u64,
    file: u64,
    content: Content,
}

/// A block that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the file, bytes.
    pub offset: u64,
}

impl Data {
    /// The bytes of the file number `file`.
    pub fn new(seed: u64, file: u64, content: Content) -> Self {
        Self {
            seed,
            file,
            content,
        }
    }

    /// Fills `buf` with the data at `offset`, a multiple of [`BLOCK`]. A last part that is no whole block is the
    /// beginning of one. `version` is asked for each block's number.
    pub fn fill(&self, offset: u64, buf: &mut [u8], version: impl Fn(u64) -> u32) {
        if self.content == Content::Zeros {
            return buf.fill(0);
        }
        let first = self.first(offset);
        for (number, block) in (first..).zip(buf.chunks_mut(BLOCK)) {
            self.stream(number, version(number)).fill(block);
        }
    }

    /// Whether `buf` is the data at `offset`, a multiple of [`BLOCK`].
    ///
    /// # Errors
    /// The first block that differs.
    pub fn check(
        &self,
        offset: u64,
        buf: &[u8],
        version: impl Fn(u64) -> u32,
    ) -> Result<(), Mismatch> {
        let mut wanted = [0; BLOCK];
        let first = self.first(offset);
        for (number, block) in (first..).zip(buf.chunks(BLOCK)) {
            if self.content == Content::Unique {
                self.stream(number, version(number))
                    .fill(&mut wanted[..block.len()]);
            }
            if wanted[..block.len()] != *block {
                return Err(Mismatch {
                    offset: number * BLOCK as u64,
                });
            }
        }
        Ok(())
    }

    fn first(&self, offset: u64) -> u64 {
        // Our own works only ever ask for whole blocks.
        assert!(offset.is_multiple_of(BLOCK as u64), "offset {offset}");
        offset / BLOCK as u64
    }

    fn stream(&self, block: u64, version: u32) -> fastrand::Rng {
        let mut state = mix(self.seed);
        for part in [self.file, block, u64::from(version)] {
            state = mix(state ^ part);
        }
        fastrand::Rng::with_seed(state)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = Wrapping(value) + Wrapping(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)) * Wrapping(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)) * Wrapping(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn block(seed: u64, file: u64, number: u64, version: u32) -> Vec<u8> {
        let mut buf = vec![0; BLOCK];
        Data::new(seed, file, Content::Unique).fill(number * BLOCK as u64, &mut buf, |_| version);
        buf
    }

    #[test]
    fn every_part_of_the_name_changes_the_block() {
        let blocks = [
            block(1, 2, 3, 4),
            block(9, 2, 3, 4),
            block(1, 9, 3, 4),
            block(1, 2, 9, 4),
            block(1, 2, 3, 9),
        ];
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), blocks.len());
        assert_eq!(block(1, 2, 3, 4), blocks[0]);
    }

    #[test]
    fn a_swapped_stale_or_damaged_block_does_not_pass() {
        let data = Data::new(7, 0, Content::Unique);
        let mut buf = vec![0; 3 * BLOCK + 100];
        data.fill(8192, &mut buf, |_| 1);
        assert_eq!(data.check(8192, &buf, |_| 1), Ok(()));
        assert_eq!(
            data.check(8192, &buf, |_| 2),
            Err(Mismatch { offset: 8192 })
        );
        assert_eq!(
            data.check(4096, &buf, |_| 1),
            Err(Mismatch { offset: 4096 })
        );
        buf[3 * BLOCK + 99] ^= 1;
        assert_eq!(
            data.check(8192, &buf, |_| 1),
            Err(Mismatch { offset: 5 * 4096 })
        );
    }

    #[test]
    fn the_data_has_all_bytes_about_equally_often() {
        let mut buf = vec![0; 256 * BLOCK];
        Data::new(3, 1, Content::Unique).fill(0, &mut buf, |_| 0);
        let mut counts = [0u32; 256];
        for byte in &buf {
            counts[usize::from(*byte)] += 1;
        }
        // 4096 each is expected, with a standard deviation of 64.
        assert!(counts.iter().all(|count| (3600..4600).contains(count)));
        let words: HashSet<_> = buf.chunks(8).collect();
        assert_eq!(words.len(), buf.len() / 8, "a word is there twice");
    }

    #[test]
    fn zeros_are_zeros() {
        let data = Data::new(7, 0, Content::Zeros);
        let mut buf = vec![1; BLOCK];
        data.fill(0, &mut buf, |_| 1);
        assert!(buf.iter().all(|byte| *byte == 0));
        assert_eq!(data.check(0, &buf, |_| 5), Ok(()));
    }
}
