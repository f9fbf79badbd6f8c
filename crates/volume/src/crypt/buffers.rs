//! Buffers that are used again: allocating and faulting in a fresh one costs more than encrypting what it holds.
//!
//! Plain text passes through them, so they are wiped before they are freed.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use zeroize::Zeroizing;

/// Buffers kept while nobody uses them.
const KEPT: usize = 16;

pub(super) struct Buffers {
    len: usize,
    free: Mutex<Vec<Zeroizing<Vec<u8>>>>,
}

impl Buffers {
    /// Buffers of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self {
            len,
            free: Mutex::new(Vec::new()),
        }
    }

    /// One of them; it holds anything.
    pub(super) fn take(&self) -> Buffer<'_> {
        let free = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        Buffer {
            of: self,
            bytes: free.unwrap_or_else(|| Zeroizing::new(vec![0; self.len])),
        }
    }
}

/// A buffer that goes back when it is dropped.
pub(super) struct Buffer<'a> {
    of: &'a Buffers,
    bytes: Zeroizing<Vec<u8>>,
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = self.of.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(bytes);
        }
    }
}
