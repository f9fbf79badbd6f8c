//! XTS (IEEE 1619-2007) over sectors of whole blocks, many blocks at a time.
//!
//! No ciphertext stealing: a sector is a multiple of the block size.
//!
//! The block cipher is given [`BATCH`] blocks at once, across the borders of sectors, since its implementation keeps as many
//! in flight as the processor takes; one block at a time costs six times as much.

use super::iv::{Block, Block16};
use super::spec::Number;
use super::{IV_UNIT, Sectors};

/// Blocks given to the cipher at once: what AES takes in parallel with the widest instructions.
const BATCH: usize = 64;
/// Bytes of a block.
const BLOCK: usize = 16;

pub(super) struct Xts<C> {
    data: C,
    tweak: C,
    number: Number,
    sector_size: usize,
}

impl<C: Block16> Xts<C> {
    /// `None` where the cipher takes no keys of these lengths.
    pub(super) fn new(
        data: &[u8],
        tweak: &[u8],
        number: Number,
        sector_size: usize,
    ) -> Option<Self> {
        Some(Self {
            data: C::new_from_slice(data).ok()?,
            tweak: C::new_from_slice(tweak).ok()?,
            number,
            sector_size,
        })
    }

    fn run(&self, sectors: &mut [u8], first: u64, crypt: impl Fn(&C, &mut [Block])) {
        let units = (self.sector_size / IV_UNIT).max(1) as u64;
        let blocks_each = self.sector_size / BLOCK;
        let mut sector = first;
        // As many sectors as one batch of first tweaks makes.
        for group in sectors.chunks_mut(self.sector_size * BATCH) {
            let mut starts = [Block::default(); BATCH];
            let starts = &mut starts[..group.len() / self.sector_size];
            for start in starts.iter_mut() {
                *start = self.number.block(sector).into();
                sector = sector.wrapping_add(units);
            }
            self.tweak.encrypt_blocks(starts);

            let mut starts = starts.iter();
            let mut left = 0;
            let mut tweak = 0;
            let (blocks, _) = Block::slice_as_chunks_mut(group);
            for batch in blocks.chunks_mut(BATCH) {
                let mut tweaks = [0_u128; BATCH];
                for place in &mut tweaks[..batch.len()] {
                    if left == 0 {
                        // There is one for each sector.
                        tweak = starts.next().map_or(0, |b| u128::from_le_bytes(b.0));
                        left = blocks_each;
                    }
                    *place = tweak;
                    tweak = double(tweak);
                    left -= 1;
                }
                xor(batch, &tweaks);
                crypt(&self.data, batch);
                xor(batch, &tweaks);
            }
        }
    }
}

impl<C: Block16> Sectors for Xts<C> {
    fn encrypt(&self, sectors: &mut [u8], first: u64) {
        self.run(sectors, first, |cipher, blocks| {
            cipher.encrypt_blocks(blocks);
        });
    }

    fn decrypt(&self, sectors: &mut [u8], first: u64) {
        self.run(sectors, first, |cipher, blocks| {
            cipher.decrypt_blocks(blocks);
        });
    }
}

/// Times the primitive element of GF(2^128), little-endian (IEEE 1619, 5.2).
fn double(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak >> 127) * 0x87)
}

fn xor(blocks: &mut [Block], tweaks: &[u128; BATCH]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        *block = (u128::from_le_bytes(block.0) ^ tweak).to_le_bytes().into();
    }
}

#[cfg(test)]
mod tests {
    use aes::Aes128;

    use super::*;
    use crate::sector::tests::hex;

    /// IEEE 1619-2007, annex B, vectors 1 to 3: two blocks each.
    #[test]
    fn the_short_vectors_of_the_standard_hold() {
        for (keys, number, plain, sealed) in [
            (
                (
                    "00000000000000000000000000000000",
                    "00000000000000000000000000000000",
                ),
                0,
                "0000000000000000000000000000000000000000000000000000000000000000",
                "917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e",
            ),
            (
                (
                    "11111111111111111111111111111111",
                    "22222222222222222222222222222222",
                ),
                0x33_3333_3333,
                "4444444444444444444444444444444444444444444444444444444444444444",
                "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0",
            ),
            (
                (
                    "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0",
                    "22222222222222222222222222222222",
                ),
                0x33_3333_3333,
                "4444444444444444444444444444444444444444444444444444444444444444",
                "af85336b597afc1a900b2eb21ec949d292df4c047e0b21532186a5971a227a89",
            ),
        ] {
            let xts = Xts::<Aes128>::new(&hex(keys.0), &hex(keys.1), Number::ALL, 32).unwrap();
            let mut data = hex(plain);
            xts.encrypt(&mut data, number);
            assert_eq!(data, hex(sealed));
            xts.decrypt(&mut data, number);
            assert_eq!(data, hex(plain));
        }
    }
}
