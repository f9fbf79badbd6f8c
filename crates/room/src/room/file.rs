//! Files with a position.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use catalog::{Inode, InodeNo};

use crate::parts::Parts;
use crate::{Result, SetAttr};

/// An open file of a room, with a position: for readers and writers of streams. Held open, it outlives its name.
#[derive(Debug)]
pub struct RoomFile {
    parts: Arc<Parts>,
    no: InodeNo,
    position: u64,
}

impl RoomFile {
    pub(crate) fn new(parts: Arc<Parts>, no: InodeNo) -> Result<Self> {
        parts.holds.hold(no);
        let file = Self {
            parts,
            no,
            position: 0,
        };
        // It may have lost its last name before it was held.
        file.attributes()?;
        Ok(file)
    }

    /// See [`Room::parts`](crate::Room).
    fn parts(&self) -> Result<&Arc<Parts>> {
        self.parts.env.opener.check()?;
        Ok(&self.parts)
    }

    /// Its inode.
    pub fn inode(&self) -> InodeNo {
        self.no
    }

    /// Its attributes.
    pub fn attributes(&self) -> Result<Inode> {
        self.parts()?.data.attributes(self.no)
    }

    /// Sets its length in bytes.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.parts()?
            .attributes
            .set_attributes(self.no, &SetAttr::size(size))
            .map(drop)
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        self.parts()?.commits.sync_or_defer()
    }
}

impl Drop for RoomFile {
    fn drop(&mut self) {
        match self.parts() {
            Ok(parts) => parts.holds.release(self.no, 1),
            Err(_) => self.parts.leave(),
        }
    }
}

impl Read for RoomFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self
            .parts()
            .and_then(|parts| parts.contents.read(self.no, self.position, buf))
            .map_err(io::Error::other)?;
        self.position += n as u64;
        Ok(n)
    }
}

impl Write for RoomFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.parts()
            .and_then(|parts| parts.contents.write(self.no, self.position, data))
            .map_err(io::Error::other)?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for RoomFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.attributes().map_err(io::Error::other)?.size, by),
        };
        self.position = base.checked_add_signed(by).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a position before the start of the file",
            )
        })?;
        Ok(self.position)
    }
}
