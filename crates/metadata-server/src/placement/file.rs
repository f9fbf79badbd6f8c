//! A segment in its place, as a file.
//!
//! 1. It is looked up for each call: one that was removed is `NotFound`, never what its place holds now.
//! 2. Whole blocks only, as segments are read and written.

use std::io;
use std::sync::Arc;

use netdisk::BLOCK_LEN;
use segments::SegmentNo;
use storage::{StorageFile, spans};

use super::Shared;
use super::link::failed;

/// Most bytes of one request to a disk.
const REQUEST: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct NetFile {
    pub(super) shared: Arc<Shared>,
    pub(super) segment: SegmentNo,
    pub(super) writable: bool,
}

/// The first block of a range of bytes in a place of `all` bytes.
fn blocks(all: u64, offset: u64, len: u64, beyond: io::ErrorKind) -> io::Result<u64> {
    let block = BLOCK_LEN as u64;
    if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a segment on a network disk is read and written in whole blocks",
        ));
    }
    match offset.checked_add(len) {
        Some(end) if end <= all => Ok(offset / block),
        _ => Err(beyond.into()),
    }
}

impl StorageFile for NetFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_READ).entered();
        let first = blocks(
            self.len()?,
            offset,
            buf.len() as u64,
            io::ErrorKind::UnexpectedEof,
        )?;
        let (disk, start) = self.shared.place(self.segment)?;
        let mut at = start + first;
        for piece in buf.chunks_mut(REQUEST) {
            disk.read(at, piece).map_err(|e| failed(disk.id, e))?;
            at += (piece.len() / BLOCK_LEN) as u64;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_WRITE).entered();
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let first = blocks(
            self.len()?,
            offset,
            buf.len() as u64,
            io::ErrorKind::InvalidInput,
        )?;
        let (disk, start) = self.shared.place(self.segment)?;
        let mut at = start + first;
        for piece in buf.chunks(REQUEST) {
            disk.write(at, piece).map_err(|e| failed(disk.id, e))?;
            at += (piece.len() / BLOCK_LEN) as u64;
        }
        Ok(())
    }

    /// The length of the disk range: a read of unwritten blocks fails authentication.
    fn len(&self) -> io::Result<u64> {
        self.shared.len(self.segment)
    }

    fn capacity(&self) -> io::Result<Option<u64>> {
        self.len().map(Some)
    }

    /// Frees the rest, in whole units of space, for good.
    fn set_len(&self, len: u64) -> io::Result<()> {
        if !self.writable || len > self.len()? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.shared
            .cut(self.segment, len.div_ceil(BLOCK_LEN as u64));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_SYNC).entered();
        self.shared.flush()
    }

    /// Gives it back with the next release. It does not read as zeros at once: nothing refers to it any more.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let first = blocks(self.len()?, offset, len, io::ErrorKind::InvalidInput)?;
        self.shared.place(self.segment)?;
        self.shared
            .put_holes(self.segment, &[(first, len / BLOCK_LEN as u64)]);
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn prefetch(&self, _: u64, _: u64) {}
}
