//! Anything with numbered bytes that can be read, written, made durable and emptied: a file, a block device, memory.
//!
//! 1. Nothing is durable before [`Device::flush`] returns. A flush that failed once is never believed later: see
//!    [`Device::flush`].
//! 2. A discarded range reads as zeros, or as what it held: [`Device::discards_to_zeros`] says which.
//!
//! It deliberately does not know what the bytes mean: volumes, network disks and servers stand on it.

#![forbid(unsafe_code)]

mod file;
mod memory;
mod range;

use std::fmt::Debug;
use std::io;

pub use file::{Access, FileDevice, FileIdentity};
pub use memory::MemoryDevice;

/// A random-access store of bytes with a fixed length. Offsets and lengths are bytes. All methods may be called from many
/// threads at once; ranges that overlap in time end as one or the other, block by block.
pub trait Device: Send + Sync + Debug {
    /// Fills `buf` from `offset`. `UnexpectedEof` where the range leaves the device.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf` at `offset`. `StorageFull` where the range leaves the device or no space is left below;
    /// `PermissionDenied` on a read-only device.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes durable what writes and discards that returned before this call did. After a failure every later call fails
    /// too, until the device is opened anew: the kernel may have dropped what it could not write.
    fn flush(&self) -> io::Result<()>;
    /// Gives a range's space back where the device can; a hint otherwise.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Makes a range read as zeros.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()>;
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
