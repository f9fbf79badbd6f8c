//! A device whose contents are those of another, decrypted.
//!
//! 1. The device below holds only whole sectors of ciphertext: a write of part of one reads it, changes it and writes it back.
//! 2. Requests that share a sector, one of them a write, come one after the other, in the order they arrived; so no part of a
//!    sector is lost to its neighbour, and none is read half written.
//! 3. A hole below is not zeros here, and a discarded range reads as nobody knows what: neither is ever reported as zeros.
//! 4. Memory is bounded: a request is worked off in pieces of `PIECE` bytes, and buffers are kept for the next.
//!
//! It deliberately does not know where the key came from. It uses one thread a request: a server has many requests.

mod buffers;
mod locks;

use std::fmt;
use std::io;
use std::sync::Arc;

use device::{Device, range};

use crate::sector::{IV_UNIT, SectorCipher};
use buffers::Buffers;
use locks::{RangeLocks, Share};

/// Bytes encrypted or decrypted at once; a multiple of every sector size. Small enough to stay in a core's cache between the
/// device below and the cipher.
const PIECE: usize = 128 << 10;

/// Where the encrypted contents are in the device below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes, whole sectors.
    pub len: u64,
    /// Number that the first sector has for the cipher, in units of 512 bytes.
    pub iv_offset: u64,
}

/// What a [`CryptDevice`] lets through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CryptOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Pass discards down. They reveal the unused sectors to anyone who can read the device below.
    pub allow_discards: bool,
}

/// The decrypted contents of a device.
pub struct CryptDevice {
    below: Arc<dyn Device>,
    cipher: SectorCipher,
    at: Extent,
    options: CryptOptions,
    locks: RangeLocks,
    buffers: Buffers,
}

impl CryptDevice {
    /// The part `at` of `below`, decrypted by `cipher`. `InvalidInput` where the part is not whole sectors or leaves the device.
    pub fn new(
        below: Arc<dyn Device>,
        cipher: SectorCipher,
        at: Extent,
        options: CryptOptions,
    ) -> io::Result<Self> {
        let sector = cipher.sector_size() as u64;
        let end = at.offset.checked_add(at.len);
        if !at.len.is_multiple_of(sector) || end.is_none_or(|end| end > below.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "encrypted contents of {} bytes from byte {} are not whole sectors of {sector} bytes within the {} bytes of the device",
                    at.len,
                    at.offset,
                    below.len()
                ),
            ));
        }
        Ok(Self {
            options: CryptOptions {
                read_only: options.read_only || below.is_read_only(),
                ..options
            },
            below,
            cipher,
            at,
            locks: RangeLocks::default(),
            buffers: Buffers::new(PIECE),
        })
    }

    /// Bytes of a sector: writes of whole ones cost no reading.
    pub fn sector_size(&self) -> usize {
        self.cipher.sector_size()
    }

    fn sector(&self) -> u64 {
        self.cipher.sector_size() as u64
    }

    /// The cipher's number of the sector at `offset`, which is a multiple of the sector size.
    fn number(&self, offset: u64) -> u64 {
        self.at.iv_offset.wrapping_add(offset / IV_UNIT as u64)
    }

    /// The sectors that a range touches: first byte and the byte behind them. The range is within the device.
    fn around(&self, offset: u64, len: u64) -> (u64, u64) {
        let sector = self.sector();
        (
            offset / sector * sector,
            // The device's length is whole sectors.
            (offset + len).next_multiple_of(sector),
        )
    }

    fn writable(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.options.read_only {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the volume is read-only",
            ));
        }
        range::to_write(self.at.len, offset, len)
    }

    /// Reads whole sectors.
    fn read_sectors(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, self.at.offset + offset)?;
        self.cipher.decrypt(buf, self.number(offset));
        Ok(())
    }

    /// Writes whole sectors out of a buffer that they are encrypted in.
    fn write_sectors(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.cipher.encrypt(buf, self.number(offset));
        self.below.write_at(buf, self.at.offset + offset)
    }

    /// Writes a range piece by piece; `fill` puts the plain bytes that come from the `usize`th byte of the range on.
    fn write_pieces(&self, offset: u64, len: u64, fill: &dyn Fn(&mut [u8], u64)) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (first, end) = self.around(offset, len);
        let _turn = self.locks.take(first, end, Share::Alone);
        let mut buffer = self.buffers.take();
        let mut at = first;
        while at < end {
            let piece_len = (end - at).min(PIECE as u64);
            // At most PIECE.
            let piece = &mut buffer[..piece_len as usize];
            let from = offset.max(at);
            let to = (offset + len).min(at + piece_len);
            self.fill_partial(piece, at, from, to)?;
            fill(
                &mut piece[(from - at) as usize..(to - at) as usize],
                from - offset,
            );
            self.write_sectors(piece, at)?;
            at += piece_len;
        }
        Ok(())
    }

    /// Reads the first and the last sector of a piece at `at`, where `from..to` does not cover them.
    fn fill_partial(&self, piece: &mut [u8], at: u64, from: u64, to: u64) -> io::Result<()> {
        let sector = self.cipher.sector_size();
        let last = piece.len() - sector;
        let head = from > at;
        let tail = to < at + piece.len() as u64;
        if head {
            self.read_sectors(&mut piece[..sector], at)?;
        }
        if tail && !(head && last == 0) {
            self.read_sectors(&mut piece[last..], at + last as u64)?;
        }
        Ok(())
    }
}

impl Device for CryptDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let len = buf.len() as u64;
        range::to_read(self.at.len, offset, len)?;
        if buf.is_empty() {
            return Ok(());
        }
        let (first, end) = self.around(offset, len);
        let _turn = self.locks.take(first, end, Share::Shared);
        if first == offset && end == offset + len {
            let mut at = offset;
            for piece in buf.chunks_mut(PIECE) {
                self.read_sectors(piece, at)?;
                at += piece.len() as u64;
            }
            return Ok(());
        }
        let mut buffer = self.buffers.take();
        let mut at = first;
        while at < end {
            let piece_len = (end - at).min(PIECE as u64);
            let piece = &mut buffer[..piece_len as usize];
            self.read_sectors(piece, at)?;
            let from = offset.max(at);
            let to = (offset + len).min(at + piece_len);
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
            at += piece_len;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let len = buf.len() as u64;
        self.writable(offset, len)?;
        self.write_pieces(offset, len, &|piece, from| {
            let from = from as usize;
            piece.copy_from_slice(&buf[from..from + piece.len()]);
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }

    /// Whole sectors are passed down where that is allowed; nothing happens otherwise.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.writable(offset, len)?;
        if !self.options.allow_discards {
            return Ok(());
        }
        let sector = self.sector();
        let first = offset.next_multiple_of(sector);
        let end = (offset + len) / sector * sector;
        if first >= end {
            return Ok(());
        }
        let _turn = self.locks.take(first, end, Share::Alone);
        self.below.discard(self.at.offset + first, end - first)
    }

    /// Zeros are encrypted like any bytes: a hole below would not read as zeros.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.writable(offset, len)?;
        self.write_pieces(offset, len, &|piece, _| piece.fill(0))
    }

    fn prefetch(&self, offset: u64, len: u64) -> io::Result<()> {
        range::to_read(self.at.len, offset, len)?;
        self.below.prefetch(self.at.offset + offset, len)
    }

    fn len(&self) -> u64 {
        self.at.len
    }

    fn discards_to_zeros(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        self.options.read_only
    }
}

impl fmt::Debug for CryptDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptDevice")
            .field("below", &self.below)
            .field("cipher", &self.cipher)
            .field("at", &self.at)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
