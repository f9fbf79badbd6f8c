//! NH, the hash below Adiantum's (Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level processors",
//! 2018, section 2.3): four passes over units of 16 bytes, keys 16 bytes apart.
//!
//! It is one half of an almost-universal hash, not a hash: what it gives must go on into Poly1305 and stay secret.

/// Bytes of a message that one call takes at most.
pub(super) const MESSAGE: usize = 1024;
/// Bytes of its key: the message's, and 16 for each further pass.
pub(super) const KEY: usize = MESSAGE + (PASSES - 1) * UNIT;
/// Bytes of its result.
pub(super) const HASH: usize = PASSES * 8;

const PASSES: usize = 4;
const UNIT: usize = 16;
/// 32-bit words of a unit.
const WORDS: usize = UNIT / 4;

/// The key as 32-bit words.
pub(super) type Key = [u32; KEY / 4];

/// Of a message of at most [`MESSAGE`] bytes, a multiple of 16.
pub(super) fn nh(key: &Key, message: &[u8]) -> [u8; HASH] {
    let mut sums = [0_u64; PASSES];
    let (units, _) = message.as_chunks::<UNIT>();
    for (at, unit) in units.iter().enumerate() {
        let (words, _) = unit.as_chunks::<4>();
        let message = [0, 1, 2, 3].map(|i| u32::from_le_bytes(words[i]));
        // Four passes read seven words' worth of units: one slice, so that its bounds are checked once.
        let key = &key[at * WORDS..at * WORDS + PASSES * WORDS];
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key = &key[pass * WORDS..(pass + 1) * WORDS];
            let add = |i: usize| u64::from(message[i].wrapping_add(key[i]));
            *sum = sum
                .wrapping_add(add(0) * add(2))
                .wrapping_add(add(1) * add(3));
        }
    }
    let mut hash = [0; HASH];
    for (place, sum) in hash.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        *place = sum.to_le_bytes();
    }
    hash
}
