//! Writes past the page cache that are durable when they return.
//!
//! A small record that is written and synced by way of the page cache costs twice the processor time, because the kernel looks through all
//! blocks of a large folio for the few that are dirty.

use std::fs::File;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

/// What memory, places and lengths of direct calls must be multiples of: enough for every disk with blocks of up to that size.
const ALIGNMENT: usize = 4096;

/// Whether an open file has `O_DIRECT` (open(2)).
#[derive(Debug, Default)]
pub(crate) struct Direct {
    is_on: AtomicBool,
    writer: Mutex<Writer>,
}

#[derive(Debug, Default)]
struct Writer {
    /// Its file system cannot do it.
    is_refused: bool,
    /// Contains the bytes of a call at an aligned place.
    buffer: Vec<u8>,
}

impl Direct {
    /// Writes all of `bytes` and makes them durable. False where that is not possible here: then nothing is known of the range.
    pub(crate) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> Result<bool, Errno> {
        let is_aligned = |of: u64| of.is_multiple_of(ALIGNMENT as u64);
        if bytes.is_empty() || !is_aligned(bytes.len() as u64) || !is_aligned(offset) {
            return Ok(false);
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_refused {
            return Ok(false);
        }
        let written = self
            .turn(file, true)
            .and_then(|()| write_all(file, writer.aligned(bytes), offset));
        match written {
            // What a kernel says that cannot do it, or a file system with larger blocks.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                writer.is_refused = true;
                self.turn(file, false)?;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Has calls go through the page cache again, whose memory may be anywhere.
    pub(crate) fn end(&self, file: &File) -> Result<(), Errno> {
        self.turn(file, false)
    }

    fn turn(&self, file: &File, on: bool) -> Result<(), Errno> {
        if self.is_on.load(Ordering::Acquire) == on {
            return Ok(());
        }
        let mut flags = fcntl_getfl(file)?;
        flags.set(OFlags::DIRECT, on);
        fcntl_setfl(file, flags)?;
        self.is_on.store(on, Ordering::Release);
        Ok(())
    }
}

impl Writer {
    fn aligned(&mut self, bytes: &[u8]) -> &[u8] {
        let len = bytes.len() + ALIGNMENT;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let at = self.buffer.as_ptr().align_offset(ALIGNMENT);
        let aligned = &mut self.buffer[at..at + bytes.len()];
        aligned.copy_from_slice(bytes);
        aligned
    }
}

fn write_all(file: &File, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
