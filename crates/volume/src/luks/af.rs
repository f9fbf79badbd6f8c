//! The anti-forensic splitter: a key spread over so many stripes that losing any one of them loses the key.
//!
//! LUKS On-Disk Format Specification 1.2.3, section 2.4. `D` is the diffusion, `s` the stripes:
//! `d(0) = 0; d(k) = D(d(k-1) xor s(k)); key = d(n-1) xor s(n)`.

use aws_lc_rs::digest;
use zeroize::Zeroizing;

use super::error::{LuksError, Result};
use super::hash::Hash;

/// The key that was split. `material` is at least `key_len * stripes` bytes; the rest is not looked at.
///
/// # Panics
/// When `material` is shorter: the caller checked it.
pub(super) fn merge(
    hash: Hash,
    material: &[u8],
    key_len: usize,
    stripes: usize,
) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; key_len]);
    let (last, others) = material[..key_len * stripes]
        .rchunks_exact(key_len)
        .next()
        .map(|last| (last, &material[..key_len * (stripes - 1)]))
        .expect("there is at least one stripe, of at least one byte");
    for stripe in others.chunks_exact(key_len) {
        xor(&mut key, stripe);
        diffuse(hash, &mut key);
    }
    xor(&mut key, last);
    key
}

/// Splits a key into `stripes` stripes of its length, all but the last random.
pub(super) fn split(hash: Hash, key: &[u8], stripes: usize) -> Result<Zeroizing<Vec<u8>>> {
    let mut material = Zeroizing::new(vec![0; key.len() * stripes]);
    let at = key.len() * (stripes - 1);
    getrandom::fill(&mut material[..at]).map_err(|e| LuksError::Derivation(e.to_string()))?;
    // With zeros for the last stripe the merge yields what the last stripe must be combined with.
    let mut last = merge(hash, &material, key.len(), stripes);
    xor(&mut last, key);
    material[at..].copy_from_slice(&last);
    Ok(material)
}

fn xor(into: &mut [u8], other: &[u8]) {
    for (a, b) in into.iter_mut().zip(other) {
        *a ^= b;
    }
}

/// Hashes each digest-sized part with its number before it; the last part keeps its length.
fn diffuse(hash: Hash, block: &mut [u8]) {
    let algorithm = hash.digest();
    for (number, part) in block.chunks_mut(algorithm.output_len()).enumerate() {
        let mut context = digest::Context::new(algorithm);
        // A key has at most 512 bytes, so 26 parts.
        context.update(&(number as u32).to_be_bytes());
        context.update(part);
        let hashed = context.finish();
        let len = part.len();
        part.copy_from_slice(&hashed.as_ref()[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_split_merges_to_the_key() {
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha512] {
            for len in [1, 16, 32, 64, 100] {
                for stripes in [1, 2, 4000] {
                    let key: Vec<u8> = (0..len).collect();
                    let material = split(hash, &key, stripes).unwrap();
                    assert_eq!(merge(hash, &material, key.len(), stripes)[..], key[..]);
                }
            }
        }
    }

    #[test]
    fn losing_a_bit_of_any_stripe_loses_the_key() {
        let key = [7; 64];
        let material = split(Hash::Sha256, &key, 10).unwrap();
        for at in (0..material.len()).step_by(63) {
            let mut other = material.clone();
            other[at] ^= 1;
            assert_ne!(merge(Hash::Sha256, &other, 64, 10)[..], key[..]);
        }
    }
}
