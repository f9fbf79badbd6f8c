use std::mem::align_of;

use crate::ll::fuse_abi as abi;

/// Bytes; room for headers and arguments beside the data of a write request.
const HEADER_ROOM: usize = 4096;

/// Bytes; room for the largest request that is not a write: an extended attribute of 64 KiB,
/// or the many inodes of a `BATCH_FORGET`.
const MIN_DATA_ROOM: usize = 128 * 1024;

/// A buffer that provides an aligned sub-slice for FUSE operations.
///
/// This struct wraps a `Vec<u8>` and provides access to an aligned portion
/// of the buffer, ensuring proper alignment for `fuse_in_header`.
#[derive(Debug)]
pub(crate) struct FuseReadBuf {
    buffer: Vec<u8>,
}

impl FuseReadBuf {
    /// Creates a new `FuseReadBuf` for write requests of up to `max_write` bytes.
    ///
    /// The actual buffer may be slightly larger to accommodate alignment requirements.
    pub(crate) fn new(max_write: usize) -> Self {
        Self {
            buffer: vec![0; max_write.max(MIN_DATA_ROOM) + HEADER_ROOM],
        }
    }

    /// Returns a mutable reference to the aligned portion of the buffer.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        let alignment = align_of::<abi::fuse_in_header>();
        let off = alignment - (self.buffer.as_ptr() as usize) % alignment;
        if off == alignment {
            &mut self.buffer
        } else {
            &mut self.buffer[off..]
        }
    }
}
