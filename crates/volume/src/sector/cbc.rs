//! CBC over sectors, each with its own IV.
//!
//! A sector's blocks can be encrypted one after the other only, so encryption takes the blocks of [`LANES`] sectors at once;
//! decryption takes the blocks of one sector at once.

use std::array;

use super::iv::{Block, Block16, Iv};
use super::{IV_UNIT, Sectors};

/// Sectors encrypted side by side.
const LANES: usize = 16;
/// Blocks decrypted at once.
const BATCH: usize = 64;

pub(super) struct Cbc<C, E> {
    cipher: C,
    iv: Iv<E>,
    sector_size: usize,
}

impl<C: Block16, E: Block16> Cbc<C, E> {
    /// `None` where the cipher takes no key of this length.
    pub(super) fn new(key: &[u8], iv: Iv<E>, sector_size: usize) -> Option<Self> {
        Some(Self {
            cipher: C::new_from_slice(key).ok()?,
            iv,
            sector_size,
        })
    }

    fn units(&self) -> u64 {
        (self.sector_size / IV_UNIT).max(1) as u64
    }

    /// Encrypts up to [`LANES`] sectors, a block of each at a time. `chain` holds their IVs.
    fn encrypt_lanes(&self, group: &mut [u8], chain: &mut [Block]) {
        let mut lanes: [&mut [Block]; LANES] = array::from_fn(|_| Default::default());
        for (lane, sector) in lanes.iter_mut().zip(group.chunks_mut(self.sector_size)) {
            *lane = Block::slice_as_chunks_mut(sector).0;
        }
        let lanes = &mut lanes[..chain.len()];
        for at in 0..lanes[0].len() {
            for (last, lane) in chain.iter_mut().zip(lanes.iter()) {
                *last = xor(last, &lane[at]);
            }
            self.cipher.encrypt_blocks(chain);
            for (last, lane) in chain.iter().zip(lanes.iter_mut()) {
                lane[at] = *last;
            }
        }
    }
}

impl<C: Block16, E: Block16> Sectors for Cbc<C, E> {
    fn encrypt(&self, sectors: &mut [u8], first: u64) {
        let mut sector = first;
        for group in sectors.chunks_mut(self.sector_size * LANES) {
            let count = group.len() / self.sector_size;
            let mut chain = [Block::default(); LANES];
            let chain = &mut chain[..count];
            self.iv.fill(chain, sector, self.units());
            self.encrypt_lanes(group, chain);
            sector = sector.wrapping_add(self.units() * count as u64);
        }
    }

    fn decrypt(&self, sectors: &mut [u8], first: u64) {
        let mut sector = first;
        for group in sectors.chunks_mut(self.sector_size * LANES) {
            let count = group.len() / self.sector_size;
            let mut ivs = [Block::default(); LANES];
            self.iv.fill(&mut ivs[..count], sector, self.units());
            for (data, iv) in group.chunks_mut(self.sector_size).zip(ivs) {
                let mut last = iv;
                for batch in Block::slice_as_chunks_mut(data).0.chunks_mut(BATCH) {
                    let mut before = [Block::default(); BATCH];
                    before[0] = last;
                    before[1..batch.len()].copy_from_slice(&batch[..batch.len() - 1]);
                    last = batch[batch.len() - 1];
                    self.cipher.decrypt_blocks(batch);
                    for (block, before) in batch.iter_mut().zip(&before) {
                        *block = xor(block, before);
                    }
                }
            }
            sector = sector.wrapping_add(self.units() * count as u64);
        }
    }
}

fn xor(a: &Block, b: &Block) -> Block {
    (u128::from_ne_bytes(a.0) ^ u128::from_ne_bytes(b.0))
        .to_ne_bytes()
        .into()
}

#[cfg(test)]
mod tests {
    use aes::{Aes128, Aes192, Aes256};

    use super::*;
    use crate::sector::tests::hex;

    fn holds<C: Block16>(key: &str, number: &str, plain: &str, sealed: &str) {
        let key = hex(key);
        let number = u64::from_le_bytes(hex(number).try_into().unwrap());
        let mut data = hex(plain);
        let iv = Iv::<Aes256>::essiv(&key).unwrap();
        let cbc = Cbc::<C, Aes256>::new(&key, iv, data.len()).unwrap();
        cbc.encrypt(&mut data, number);
        assert_eq!(data, hex(sealed));
        cbc.decrypt(&mut data, number);
        assert_eq!(data, hex(plain));
    }

    const NIST: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
        30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";

    /// The vectors of Linux for `essiv(cbc(aes),sha256)`, one for each length of key.
    #[test]
    fn the_vectors_of_linux_for_essiv_hold() {
        holds::<Aes128>(
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28",
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "c8599afe79e67b20067d550a5ec7b5a70b9c80d215a1b86dc6ab7b65d9fd88eb",
        );
        holds::<Aes192>(
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "0001020304050607",
            NIST,
            "966da97a42e601c717fca741d3380be55148f77e5e26a9fe45721cd9deabf34d\
             3947c54f973a55638029644c33e8218a6aef6b6a8f43c0cbf0f36e7454449244",
        );
        holds::<Aes256>(
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "0001020304050607",
            NIST,
            "2452f14874d0a793759b6346c01c1e174ddc5b3a27932a63f7f1c7b354565b50\
             a331a58bd6fdb63c8bf6f245050cc8bb320b261ce98b02c0b26f37a75ba8a942",
        );
    }
}
