//! Buffers that appends seal into, and that units are opened in of which a part is read, kept for the next one.
//!
//! 1. A buffer is aligned to a block and holds [`LEN_MAX`] bytes of no meaning: its user fills what it uses.
//!    Keeping them spares each append a fresh megabyte for the kernel to zero, and each read of a part zeros that it overwrites.
//! 2. At most [`KEPT`] idle ones are kept. The last one returned is the first given out, still warm in the cache.

use parking_lot::Mutex;
use seal::BLOCK_LEN;

use crate::{APPEND_BLOCKS_MAX, UNIT_BLOCKS};

/// Idle buffers kept: 8 MiB in all.
const KEPT: usize = 8;
/// The longest append, and a unit: where as many blocks begin within a unit, their units have more.
const LEN_MAX: usize = (APPEND_BLOCKS_MAX + UNIT_BLOCKS) as usize * BLOCK_LEN;

#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Runs `work` with the first `len` bytes of a buffer; `len` is at most [`LEN_MAX`].
    pub(crate) fn with<R>(&self, len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let idle = self.0.lock().pop();
        let mut bytes = idle.unwrap_or_else(|| vec![0; LEN_MAX + BLOCK_LEN]);
        let start = bytes.as_ptr().align_offset(BLOCK_LEN);
        let result = work(&mut bytes[start..start + len]);
        let mut idle = self.0.lock();
        if idle.len() < KEPT {
            idle.push(bytes);
        }
        result
    }
}
