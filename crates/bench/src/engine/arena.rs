//! Memory for what is read and written, at a boundary that direct calls want.
//!
//! It is asked for in large pages: each call has a place of its own here, and a direct call into small pages that were not used a
//! moment ago pays for each of them, which a program that reads everything into one buffer never sees.

use crate::sys;

/// Bytes of a page, enough for direct calls to every device.
const PAGE: usize = 4096;
/// What an arena begins at: a multiple of a large page.
const ALIGNMENT: usize = 2 << 20;
/// What memory that was not read into holds; no block of ours begins so.
const POISON: [u8; 16] = *b"never read into!";

/// Aligned memory, all of it touched before it is used.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Vec<u8>,
    start: usize,
}

impl Arena {
    /// The first `len` bytes, aligned to 2 MiB. Grows as needed, and keeps what it has.
    pub fn get(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < self.start + len {
            // The old one first: two of them at a time may be more than there is.
            *self = Self::default();
            self.bytes = vec![0; len + ALIGNMENT];
            self.start = self.bytes.as_ptr().align_offset(ALIGNMENT);
            sys::prefer_large_pages(&mut self.bytes[self.start..]);
        }
        &mut self.bytes[self.start..self.start + len]
    }

    /// The same with every block of 4096 bytes marked, so that a call that reads nothing does not leave an earlier read's
    /// bytes to be found.
    pub fn poisoned(&mut self, len: usize) -> &mut [u8] {
        let bytes = self.get(len);
        for block in bytes.chunks_mut(PAGE) {
            let mark = POISON.len().min(block.len());
            block[..mark].copy_from_slice(&POISON[..mark]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_and_remembers_nothing() {
        let mut arena = Arena::default();
        for len in [1, 4096, 1 << 20, 5000] {
            let bytes = arena.poisoned(len);
            assert_eq!(bytes.len(), len);
            assert!(bytes.as_ptr().addr().is_multiple_of(ALIGNMENT));
            bytes.fill(7);
        }
        let again = arena.poisoned(8192);
        assert_eq!(again[..16], POISON);
        assert_eq!(again[4096..4112], POISON);
    }
}
