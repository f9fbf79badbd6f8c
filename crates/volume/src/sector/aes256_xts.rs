//! AES-256 in XTS by AWS-LC's assembler, which keeps as many blocks in flight as the widest instructions take.
//!
//! 1. The only unsafe code of this crate: `aws-lc-rs` has no safe interface to this cipher. What is called is in the
//!    [`Context`]'s methods, a line of reason beside each.
//! 2. A context is one thread's at a time; those not in use wait in a pool.
//!
//! It deliberately does not know keys whose halves are equal: the library refuses them, the portable [`Xts`](super::xts) does not.

#![allow(unsafe_code)]

use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, PoisonError};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_Cipher, EVP_CipherInit_ex,
    EVP_aes_256_xts,
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::spec::Number;
use super::{IV_UNIT, Sectors};

/// Bytes of both keys together.
const KEY_LEN: usize = 64;
/// Idle contexts that are kept.
const KEPT: usize = 16;

pub(super) struct Aes256Xts {
    key: Zeroizing<[u8; KEY_LEN]>,
    number: Number,
    sector_size: usize,
    encrypting: Pool,
    decrypting: Pool,
}

/// Contexts with the key in them, for one direction.
#[derive(Default)]
struct Pool(Mutex<Vec<Context>>);

/// One of the library's cipher contexts, with its key. Freed, and so wiped, when it is dropped.
struct Context(NonNull<EVP_CIPHER_CTX>);

// SAFETY: a context holds no reference to a thread, and is used by one at a time (`&mut self`).
unsafe impl Send for Context {}

impl Context {
    /// `None` where the library refuses the key, or has no memory.
    fn new(key: &[u8; KEY_LEN], encrypt: bool) -> Option<Self> {
        // SAFETY: no arguments; null is looked for.
        let context = Self(NonNull::new(unsafe { EVP_CIPHER_CTX_new() })?);
        // SAFETY: the context is fresh, the cipher static, the key as long as this cipher's; null means "not now".
        let done = unsafe {
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                EVP_aes_256_xts(),
                null_mut(),
                key.as_ptr(),
                null(),
                i32::from(encrypt),
            )
        };
        (done == 1).then_some(context)
    }

    /// Works on one sector in place.
    fn run(&mut self, sector: &mut [u8], iv: &[u8; 16]) {
        // SAFETY: the context has its cipher and key; the IV is as long as this cipher's; -1 keeps the direction.
        let ready = unsafe {
            EVP_CipherInit_ex(self.0.as_ptr(), null(), null_mut(), null(), iv.as_ptr(), -1)
        };
        // SAFETY: in and out are the same bytes, which the library allows, and as many as is said.
        let done = unsafe {
            EVP_Cipher(
                self.0.as_ptr(),
                sector.as_mut_ptr(),
                sector.as_ptr(),
                sector.len(),
            )
        };
        // What it can refuse is a missing key, or lengths that no sector has: a fault of ours.
        assert!(ready == 1 && done == 1, "AES-XTS refused a sector");
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by EVP_CIPHER_CTX_new, and nobody has it any more.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}

impl Aes256Xts {
    /// `None` for a key of another length, or one whose halves are equal.
    pub(super) fn new(key: &[u8], number: Number, sector_size: usize) -> Option<Self> {
        let key: Zeroizing<[u8; KEY_LEN]> = Zeroizing::new(key.try_into().ok()?);
        let (data, tweak) = key.split_at(KEY_LEN / 2);
        if bool::from(data.ct_eq(tweak)) {
            return None;
        }
        let made = Self {
            encrypting: Pool::with(Context::new(&key, true)?),
            decrypting: Pool::with(Context::new(&key, false)?),
            key,
            number,
            sector_size,
        };
        Some(made)
    }

    fn run(&self, sectors: &mut [u8], first: u64, pool: &Pool, encrypt: bool) {
        let kept = pool.lock().pop();
        let context = kept.or_else(|| Context::new(&self.key, encrypt));
        // It took this key before.
        let mut context = context.expect("memory for a cipher's context");
        let units = (self.sector_size / IV_UNIT).max(1) as u64;
        let mut number = first;
        for sector in sectors.chunks_exact_mut(self.sector_size) {
            context.run(sector, &self.number.block(number));
            number = number.wrapping_add(units);
        }
        let mut kept = pool.lock();
        if kept.len() < KEPT {
            kept.push(context);
        }
    }
}

impl Pool {
    fn with(context: Context) -> Self {
        Self(Mutex::new(vec![context]))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Context>> {
        // A list of whole contexts is one after every panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sectors for Aes256Xts {
    fn encrypt(&self, sectors: &mut [u8], first: u64) {
        self.run(sectors, first, &self.encrypting, true);
    }

    fn decrypt(&self, sectors: &mut [u8], first: u64) {
        self.run(sectors, first, &self.decrypting, false);
    }
}

#[cfg(test)]
mod tests {
    use aes::Aes256;

    use super::super::xts::Xts;
    use super::*;

    #[test]
    fn it_is_the_portable_one_for_every_sector_size_and_number() {
        let key: Vec<u8> = (0..64).map(|n: u8| n.wrapping_mul(37)).collect();
        let (data, tweak) = key.split_at(32);
        for sector_size in [512, 1024, 2048, 4096] {
            for first in [0, 1, 8, u64::from(u32::MAX) - 8, u64::MAX - 16] {
                let fast = Aes256Xts::new(&key, Number::ALL, sector_size).unwrap();
                let plain = Xts::<Aes256>::new(data, tweak, Number::ALL, sector_size).unwrap();
                let mut one: Vec<u8> = (0..sector_size * 5).map(|n| (n * 7) as u8).collect();
                let text = one.clone();
                let mut other = one.clone();
                fast.encrypt(&mut one, first);
                plain.encrypt(&mut other, first);
                assert_eq!(one, other, "{sector_size} {first}");
                fast.decrypt(&mut one, first);
                assert_eq!(one, text);
            }
        }
    }

    #[test]
    fn equal_halves_are_left_to_the_portable_one() {
        assert!(Aes256Xts::new(&[7; KEY_LEN], Number::ALL, 512).is_none());
    }
}
