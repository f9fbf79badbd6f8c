//! Buffers for large payloads, kept between two requests over all connections.
//!
//! 1. A worker keeps only little between requests, and no more than a few large buffers are kept for all of them.

use parking_lot::Mutex;

/// A worker keeps a buffer of up to this many bytes between requests.
const KEPT: usize = 64 << 10;
/// Larger buffers that are kept over all connections, and their most bytes.
const LARGE_KEPT: usize = 16;
const LARGE_MAX: usize = 2 << 20;

/// Large buffers that wait for their next use.
#[derive(Debug, Default)]
pub struct Buffers {
    large: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// Makes `buffer` at least `len` bytes long; what they hold is not defined. A small buffer is swapped for a large one that
    /// was kept, where it needs that.
    pub fn fetch(&self, buffer: &mut Vec<u8>, len: usize) {
        if len > KEPT
            && let Some(large) = self.large.lock().pop()
        {
            *buffer = large;
        }
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
    }

    /// Takes a large buffer from a worker that goes on to its next request; keeps a few of them.
    pub fn put_away(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() > KEPT {
            let large = std::mem::take(buffer);
            let mut kept = self.large.lock();
            if kept.len() < LARGE_KEPT && large.capacity() <= LARGE_MAX {
                kept.push(large);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_used_again_but_few_and_not_too_large_ones_are_kept() {
        let buffers = Buffers::default();
        let mut buffer = Vec::new();
        buffers.fetch(&mut buffer, 1 << 20);
        assert_eq!(buffer.len(), 1 << 20);
        let place = buffer.as_ptr();
        buffers.put_away(&mut buffer);
        assert_eq!(buffer.capacity(), 0);
        buffers.fetch(&mut buffer, KEPT);
        assert_eq!(buffer.len(), KEPT);
        assert_ne!(buffer.as_ptr(), place);
        buffers.put_away(&mut buffer);
        assert_eq!(buffer.len(), KEPT);
        buffers.fetch(&mut buffer, KEPT + 1);
        assert_eq!(buffer.as_ptr(), place);
        buffers.put_away(&mut vec![0; LARGE_MAX + 1]);
        assert!(buffers.large.lock().is_empty());
        for _ in 0..2 * LARGE_KEPT {
            buffers.put_away(&mut vec![0; KEPT + 1]);
        }
        assert_eq!(buffers.large.lock().len(), LARGE_KEPT);
    }
}
