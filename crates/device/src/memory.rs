//! Memory as a [`Device`], and as one that does something else at a read, a write or a flush: for tests.

use std::fmt;
use std::io;
use std::sync::{PoisonError, RwLock};

use crate::{Device, Zeroing, range};

/// Bytes in memory, zeros at first.
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    len: u64,
    read_only: bool,
}

impl MemoryDevice {
    /// `len` zeros.
    pub fn new(len: usize) -> Self {
        Self {
            bytes: RwLock::new(vec![0; len]),
            len: len as u64,
            read_only: false,
        }
    }

    /// These bytes, which nobody can change.
    pub fn read_only(bytes: Vec<u8>) -> Self {
        Self {
            len: bytes.len() as u64,
            bytes: RwLock::new(bytes),
            read_only: true,
        }
    }

    /// A copy of all bytes.
    pub fn contents(&self) -> Vec<u8> {
        self.bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn change(&self, offset: u64, len: u64, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        if self.read_only {
            return Err(range::read_only());
        }
        range::to_write(self.len, offset, len)?;
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        // Within the length, which came from a usize.
        change(&mut bytes[offset as usize..(offset + len) as usize]);
        Ok(())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("len", &self.len)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Device for MemoryDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        range::to_read(self.len, offset, buf.len() as u64)?;
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let start = offset as usize;
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.change(offset, buf.len() as u64, |bytes| bytes.copy_from_slice(buf))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_zeros(offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(offset, len, |bytes| bytes.fill(0))
    }

    fn zero(&self, offset: u64, len: u64, _how: Zeroing) -> io::Result<()> {
        self.write_zeros(offset, len)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn discards_to_zeros(&self) -> bool {
        true
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// Memory whose reads, writes or flushes do something else, such as count, wait or fail. What is not said here is the memory's.
pub trait AroundMemory: Send + Sync + fmt::Debug {
    /// What keeps the bytes.
    fn memory(&self) -> &MemoryDevice;
    /// [`Device::read_at`].
    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory().read_at(buf, offset)
    }
    /// [`Device::write_at`].
    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.memory().write_at(buf, offset)
    }
    /// [`Device::flush`].
    fn sync(&self) -> io::Result<()> {
        self.memory().flush()
    }
}

impl<A: AroundMemory> Device for A {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.sync()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory().discard(offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory().write_zeros(offset, len)
    }

    fn len(&self) -> u64 {
        self.memory().len()
    }

    fn discards_to_zeros(&self) -> bool {
        self.memory().discards_to_zeros()
    }

    fn is_read_only(&self) -> bool {
        self.memory().is_read_only()
    }
}
