//! A file of a room as a device: authenticated, thin, and after a crash the state of one moment.
//!
//! 1. The length is the file's when it was opened, and does not change.
//! 2. A flush is a commit of the room: everything answered before it is durable.
//! 3. What was never written, or was freed, is a hole and reads as zeros.

use std::io;
use std::sync::Arc;

use device::{Device, Extent, Zeroing, range};
use room::{Error, Fallocate, FileKind, FileSystem as _, InodeNo, Room, SeekTo};

/// A regular file of a room.
#[derive(Debug)]
pub(crate) struct RoomDevice {
    file: OpenFile,
    len: u64,
    read_only: bool,
}

/// An inode that outlives its name.
#[derive(Debug)]
struct OpenFile {
    room: Arc<Room>,
    no: InodeNo,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.room.release(self.no, 1);
    }
}

impl RoomDevice {
    /// `IsDirectory` or a similar error where the inode is no regular file.
    pub(crate) fn new(room: Arc<Room>, no: InodeNo, read_only: bool) -> room::Result<Self> {
        room.hold(no);
        let file = OpenFile { room, no };
        let inode = file.room.attributes(no)?;
        match inode.kind {
            FileKind::Regular => Ok(Self {
                read_only: read_only || file.room.is_read_only(),
                len: inode.size,
                file,
            }),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    fn readable(&self, offset: u64, len: u64) -> io::Result<()> {
        range::to_read(self.len, offset, len)
    }

    fn writable(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(range::read_only());
        }
        range::to_write(self.len, offset, len)
    }

    fn change(&self, what: Fallocate, offset: u64, len: u64) -> io::Result<()> {
        self.writable(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let OpenFile { room, no } = &self.file;
        room.fallocate(*no, what, offset, len).map_err(of_room)
    }

    fn seek(&self, offset: u64, to: SeekTo) -> io::Result<Option<u64>> {
        match self.file.room.seek(self.file.no, offset, to) {
            Ok(at) => Ok(Some(at)),
            Err(Error::NoMoreData) => Ok(None),
            Err(error) => Err(of_room(error)),
        }
    }
}

/// A room's error as a device's.
fn of_room(error: Error) -> io::Error {
    let kind = match &error {
        Error::NoSpace => io::ErrorKind::StorageFull,
        Error::ReadOnly => io::ErrorKind::PermissionDenied,
        Error::Corrupt { .. } => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Device for RoomDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.readable(offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let OpenFile { room, no } = &self.file;
            let at = offset + done as u64;
            match room.read(*no, at, &mut buf[done..]).map_err(of_room)? {
                // Nobody else has the room open, and here nobody shortens its files.
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                got => done += got,
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.writable(offset, buf.len() as u64)?;
        let OpenFile { room, no } = &self.file;
        room.write(*no, offset, buf).map_err(of_room)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        // After a commit that failed the room refuses every further one by itself.
        self.file.room.fsync(self.file.no).map_err(of_room)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(Fallocate::PunchHole, offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(Fallocate::PunchHole, offset, len)
    }

    fn zero(&self, offset: u64, len: u64, _how: Zeroing) -> io::Result<()> {
        // A room cannot keep space for a range: every write goes to a fresh place.
        self.write_zeros(offset, len)
    }

    fn status(&self, offset: u64, len: u64) -> io::Result<Extent> {
        self.readable(offset, len)?;
        match self.seek(offset, SeekTo::Data)? {
            Some(at) if at == offset => {
                let end = self.seek(offset, SeekTo::Hole)?.unwrap_or(self.len);
                // A hole made in between leaves nothing of the data that was found.
                Ok(Extent::data(len.min(end.saturating_sub(offset)).max(1)))
            }
            next => Ok(Extent {
                len: next.map_or(len, |at| len.min(at - offset)),
                allocated: false,
                zeros: true,
            }),
        }
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

#[cfg(test)]
mod tests;
