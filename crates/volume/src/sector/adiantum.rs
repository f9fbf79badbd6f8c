//! Adiantum (Crowley and Biggers, 2018) over XChaCha12 or XChaCha20, AES-256, NH and Poly1305, as Linux has it.
//!
//! A sector but its last block is the left part L, its last block the right part R. With the hash H keyed on the tweak T:
//! `M = R + H(T, L)`, `C = AES(M)`, `L' = L ^ XChaCha(C)`, `R' = C - H(T, L')`. A change of any bit changes the whole sector.
//!
//! Linux's tweak is 32 bytes: the sector's number in the first 8, zeros behind it.

use aes::Aes256;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};
use chacha20::{XChaCha12, XChaCha20};
use poly1305::Poly1305;
use zeroize::{Zeroize, Zeroizing};

use super::spec::Number;
use super::{IV_UNIT, Sectors, nh};

const BLOCK: usize = 16;
/// Bytes of Linux's tweak.
const TWEAK: usize = 32;

/// Rounds of the stream cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounds {
    Twelve,
    Twenty,
}

impl Rounds {
    fn apply(self, key: &[u8; 32], nonce: &[u8; 24], data: &mut [u8]) {
        match self {
            Self::Twelve => XChaCha12::new(key.into(), nonce.into()).apply_keystream(data),
            Self::Twenty => XChaCha20::new(key.into(), nonce.into()).apply_keystream(data),
        }
    }
}

pub(super) struct Adiantum {
    rounds: Rounds,
    stream: Zeroizing<[u8; 32]>,
    block: Aes256,
    /// Hashes tweak and length.
    tweak_hash: Poly1305,
    /// Hashes what NH gives.
    message_hash: Poly1305,
    nh: Zeroizing<nh::Key>,
    number: Number,
    sector_size: usize,
}

impl Adiantum {
    pub(super) fn new(rounds: Rounds, key: &[u8; 32], number: Number, sector_size: usize) -> Self {
        // Every key is cut from the stream under the nonce 1, 0, …: AES's, then the two of Poly1305, then NH's.
        let mut keys = Zeroizing::new([0; 32 + 16 + 16 + nh::KEY]);
        let mut nonce = [0; 24];
        nonce[0] = 1;
        rounds.apply(key, &nonce, &mut keys[..]);
        let (block, rest) = keys.split_at(32);
        let (tweak, rest) = rest.split_at(16);
        let (message, words) = rest.split_at(16);
        let mut nh = Zeroizing::new([0; nh::KEY / 4]);
        for (place, word) in nh.iter_mut().zip(words.as_chunks::<4>().0) {
            *place = u32::from_le_bytes(*word);
        }
        let mut aes = Zeroizing::new([0; 32]);
        aes.copy_from_slice(block);
        Self {
            rounds,
            stream: Zeroizing::new(*key),
            block: Aes256::new((&*aes).into()),
            tweak_hash: poly1305(tweak),
            message_hash: poly1305(message),
            nh,
            number,
            sector_size,
        }
    }

    fn tweak(&self, sector: u64) -> [u8; TWEAK] {
        let mut tweak = [0; TWEAK];
        tweak[..BLOCK].copy_from_slice(&self.number.block(sector));
        tweak
    }

    /// H(T, L), 128 bits.
    fn hash(&self, tweak: &[u8], left: &[u8]) -> u128 {
        // The tweak's part: the length in bits in 16 bytes, then the tweak.
        let mut head = [0; BLOCK + TWEAK];
        let bits = 8 * left.len() as u128;
        head[..BLOCK].copy_from_slice(&bits.to_le_bytes());
        head[BLOCK..BLOCK + tweak.len()].copy_from_slice(tweak);
        let tweaked = self
            .tweak_hash
            .clone()
            .compute_unpadded(&head[..BLOCK + tweak.len()]);

        // The message's: NH of each 1024 bytes, the last filled with zeros to whole units of 16.
        let mut hashes = [0; (4096 / nh::MESSAGE) * nh::HASH];
        let mut used = 0;
        for (part, place) in left
            .chunks(nh::MESSAGE)
            .zip(hashes.chunks_exact_mut(nh::HASH))
        {
            place.copy_from_slice(&self.nh(part));
            used += nh::HASH;
        }
        let message = self.message_hash.clone().compute_unpadded(&hashes[..used]);
        hashes.zeroize();
        u128::from_le_bytes(tweaked.0).wrapping_add(u128::from_le_bytes(message.0))
    }

    fn nh(&self, part: &[u8]) -> [u8; nh::HASH] {
        if part.len().is_multiple_of(BLOCK) {
            return nh::nh(&self.nh, part);
        }
        let mut filled = [0; nh::MESSAGE];
        filled[..part.len()].copy_from_slice(part);
        nh::nh(&self.nh, &filled[..part.len().next_multiple_of(BLOCK)])
    }

    fn stream(&self, right: u128, left: &mut [u8]) {
        let mut nonce = [0; 24];
        nonce[..BLOCK].copy_from_slice(&right.to_le_bytes());
        nonce[BLOCK] = 1;
        self.rounds.apply(&self.stream, &nonce, left);
    }

    fn encrypt_one(&self, sector: &mut [u8], tweak: &[u8]) {
        let Some((left, right)) = sector.split_last_chunk_mut::<BLOCK>() else {
            return;
        };
        let middle = u128::from_le_bytes(*right).wrapping_add(self.hash(tweak, left));
        let mut block = middle.to_le_bytes().into();
        self.block.encrypt_block(&mut block);
        let middle = u128::from_le_bytes(block.0);
        self.stream(middle, left);
        *right = middle.wrapping_sub(self.hash(tweak, left)).to_le_bytes();
    }

    fn decrypt_one(&self, sector: &mut [u8], tweak: &[u8]) {
        let Some((left, right)) = sector.split_last_chunk_mut::<BLOCK>() else {
            return;
        };
        let middle = u128::from_le_bytes(*right).wrapping_add(self.hash(tweak, left));
        self.stream(middle, left);
        let mut block = middle.to_le_bytes().into();
        self.block.decrypt_block(&mut block);
        let middle = u128::from_le_bytes(block.0);
        *right = middle.wrapping_sub(self.hash(tweak, left)).to_le_bytes();
    }

    fn each(&self, sectors: &mut [u8], first: u64, one: impl Fn(&Self, &mut [u8], &[u8])) {
        let mut number = first;
        for sector in sectors.chunks_mut(self.sector_size) {
            one(self, sector, &self.tweak(number));
            number = number.wrapping_add((self.sector_size / IV_UNIT) as u64);
        }
    }
}

impl Sectors for Adiantum {
    fn encrypt(&self, sectors: &mut [u8], first: u64) {
        self.each(sectors, first, Self::encrypt_one);
    }

    fn decrypt(&self, sectors: &mut [u8], first: u64) {
        self.each(sectors, first, Self::decrypt_one);
    }
}

/// Poly1305 without the number that is added at the end, as the first 16 bytes of its key have it.
fn poly1305(key: &[u8]) -> Poly1305 {
    let mut whole = Zeroizing::new([0; 32]);
    whole[..16].copy_from_slice(key);
    Poly1305::new((&*whole).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sector::tests::hex;

    /// One line a vector: rounds, key, tweak, plain, sealed. From Google's repository `adiantum`, `test_vectors/ours/Adiantum`:
    /// for each number of rounds the first of every pair of lengths up to 1536 bytes.
    const VECTORS: &str = include_str!("../../tests/vectors/adiantum.txt");

    #[test]
    fn the_vectors_of_its_authors_hold() {
        let mut count = 0;
        for line in VECTORS.lines() {
            let [rounds, key, tweak, plain, sealed] =
                line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let rounds = match rounds {
                "12" => Rounds::Twelve,
                "20" => Rounds::Twenty,
                other => panic!("{other} rounds"),
            };
            let cipher = Adiantum::new(
                rounds,
                &hex(key).try_into().unwrap(),
                Number::ALL,
                plain.len() / 2,
            );
            let (tweak, mut data) = (hex(tweak), hex(plain));
            cipher.encrypt_one(&mut data, &tweak);
            assert_eq!(data, hex(sealed), "line {count}");
            cipher.decrypt_one(&mut data, &tweak);
            assert_eq!(data, hex(plain), "line {count}");
            count += 1;
        }
        assert_eq!(count, 30);
    }
}
