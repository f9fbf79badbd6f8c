//! Anything with numbered bytes that can be read, written, made durable and emptied: a file, a block device, memory.
//!
//! To begin with, copy `examples/file_device.rs`.
//!
//! 1. Nothing is durable before [`Device::flush`] returns. After a failed flush no later one succeeds: see
//!    [`Device::flush`].
//! 2. A discarded range reads as zeros, or as what it held: [`Device::discards_to_zeros`] says which.
//!
//! It deliberately does not know what the bytes mean: volumes, network disks and servers use it.

#![forbid(unsafe_code)]

mod file;
mod known;
mod memory;
pub mod range;

use std::fmt::Debug;
use std::io;

pub use file::{Access, FileDevice, FileIdentity, lock_alone};
pub use memory::{AroundMemory, MemoryDevice};

/// Bytes of zeros written at once.
const ZEROS: usize = 64 << 10;

/// What a device knows of a range without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes from the range's beginning for which the rest holds; at least 1, at most what was asked.
    pub len: u64,
    /// Space is taken for them.
    pub allocated: bool,
    /// They read as zeros. `false` says nothing.
    pub zeros: bool,
}

impl Extent {
    /// What is true of any bytes.
    pub fn data(len: u64) -> Self {
        Self {
            len,
            allocated: true,
            zeros: false,
        }
    }
}

/// How a range is made to read as zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// Space stays taken for the range, so that writing there later cannot fail for want of it.
    pub keep_space: bool,
    /// Only where that is faster than writing zeros; `Unsupported`, at once, otherwise.
    pub only_fast: bool,
}

/// A random-access store of bytes with a fixed length. Offsets and lengths are bytes. All methods may be called from many
/// threads at once; ranges that overlap in time end as one or the other, block by block.
pub trait Device: Send + Sync + Debug {
    /// Fills `buf` from `offset`. `UnexpectedEof` where the range leaves the device.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf` at `offset`. `StorageFull` where the range leaves the device or no space is left below;
    /// `PermissionDenied` on a read-only device.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes durable what writes and discards that returned before this call did. After a failure every later call fails
    /// too, until the device is opened again: the kernel may have dropped what it could not write.
    fn flush(&self) -> io::Result<()>;
    /// Gives a range's space back where the device can; a hint otherwise.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Makes a range read as zeros.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Makes a range read as zeros, in a certain way.
    fn zero(&self, offset: u64, len: u64, how: Zeroing) -> io::Result<()> {
        if how.only_fast {
            return Err(range::not_fast());
        }
        if how.keep_space {
            return write_zeros_by_hand(self, offset, len);
        }
        self.write_zeros(offset, len)
    }
    /// What is known of the beginning of a range of at least one byte. `UnexpectedEof` where the range leaves the device.
    fn status(&self, offset: u64, len: u64) -> io::Result<Extent> {
        range::to_read(self.len(), offset, len)?;
        Ok(Extent::data(len))
    }
    /// A hint that a range is soon read.
    fn prefetch(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Length in bytes.
    fn len(&self) -> u64;
    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether a discarded range is known to read as zeros.
    fn discards_to_zeros(&self) -> bool;
    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;
}

/// Zeros as data are written.
fn write_zeros_by_hand<D: Device + ?Sized>(
    device: &D,
    mut offset: u64,
    mut len: u64,
) -> io::Result<()> {
    range::to_write(device.len(), offset, len)?;
    let zeros = vec![0; ZEROS];
    while len > 0 {
        // At most 64 KiB, so it fits a usize.
        let part = len.min(zeros.len() as u64) as usize;
        device.write_at(&zeros[..part], offset)?;
        offset += part as u64;
        len -= part as u64;
    }
    Ok(())
}
