//! An open file: read and written at a place, or at its position.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use room::{Error as RoomError, FileKind, Inode, InodeNo, NewFile, SetAttr};

use crate::shared::{OpenRoom, Shared};
use crate::{Error, Result};

/// How often a file that is to be made is looked for, while other threads remove it.
const TRIES: usize = 16;

/// For what a file is opened, as the flags of open(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMode {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Each write goes to the end, whatever the position. Needs `write`.
    pub append: bool,
    /// Make it where it is missing. Needs `write`.
    pub create: bool,
    /// Make it, and refuse one that is there, a symbolic link too. Needs `write`.
    pub create_new: bool,
    /// Cut it to nothing. Needs `write`.
    pub truncate: bool,
    /// Permission bits of a file that is made.
    pub mode: u16,
}

impl OpenMode {
    /// Reading only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        append: false,
        create: false,
        create_new: false,
        truncate: false,
        mode: 0o644,
    };
    /// Writing a new file, or one that is there from its start.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
        create: true,
        truncate: true,
        ..Self::READ
    };
}

/// From where a position is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The file's first byte.
    Start,
    /// The present position.
    Current,
    /// The file's end.
    End,
}

/// An open file. May be used from many threads; those that share its position take turns. It outlives its name, and is closed by
/// dropping it.
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
    no: InodeNo,
    mode: OpenMode,
    position: Mutex<u64>,
}

impl File {
    pub(crate) fn open(shared: &Arc<Shared>, path: &Path, mode: OpenMode) -> Result<Self> {
        if !mode.write && (mode.append || mode.create || mode.create_new || mode.truncate) {
            return Err(Error::Argument(
                "a file is made, appended to and truncated only where it is opened for writing"
                    .into(),
            ));
        }
        let room = shared.room()?;
        if mode.write && room.is_read_only() {
            return Err(RoomError::ReadOnly.into());
        }
        let no = hold(&room, path, mode)?;
        prepare(&room, no, mode).inspect_err(|_| room.release(no, 1))?;
        Ok(Self {
            shared: shared.clone(),
            no,
            mode,
            position: Mutex::new(0),
        })
    }

    fn room(&self) -> Result<OpenRoom<'_>> {
        self.shared.room()
    }

    /// The position, for changing it. Of another process it is not even asked for: a thread that is not there any more may hold it.
    fn place(&self) -> Result<MutexGuard<'_, u64>> {
        drop(self.room()?);
        Ok(self.position.lock())
    }

    fn writable(&self) -> Result<OpenRoom<'_>> {
        match self.mode.write {
            true => self.room(),
            false => Err(Error::NotOpenedFor("writing")),
        }
    }

    fn readable(&self) -> Result<OpenRoom<'_>> {
        match self.mode.read {
            true => self.room(),
            false => Err(Error::NotOpenedFor("reading")),
        }
    }

    /// Its inode number.
    pub fn inode(&self) -> InodeNo {
        self.no
    }

    /// For what it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Its attributes.
    pub fn stat(&self) -> Result<Inode> {
        Ok(self.room()?.attributes(self.no)?)
    }

    /// Its length in bytes.
    pub fn len(&self) -> Result<u64> {
        Ok(self.stat()?.size)
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets its length: cut, or made longer with zeros that take no space.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.set_attributes(&SetAttr::size(size))
    }

    /// Changes attributes. Of its length only where it was opened for writing.
    pub fn set_attributes(&self, set: &SetAttr) -> Result<()> {
        let room = match set.size {
            Some(_) => self.writable()?,
            None => self.room()?,
        };
        room.set_attributes(self.no, set)?;
        Ok(())
    }

    /// Makes what was written durable; within a transaction its completion does.
    pub fn sync(&self) -> Result<()> {
        Ok(self.room()?.fsync(self.no)?)
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file, 0 there.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.readable()?.read(self.no, offset, buf)?)
    }

    /// Writes all of `data` at `offset`, or, where it was opened for appending, at the end. Returns where it went.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<u64> {
        let room = self.writable()?;
        if !self.mode.append {
            room.write(self.no, offset, data)?;
            return Ok(offset);
        }
        let _one = self.shared.lane(self.no).lock();
        let end = room.attributes(self.no)?.size;
        room.write(self.no, end, data)?;
        Ok(end)
    }

    /// Reads at the position, and moves it.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let mut position = self.place()?;
        let n = self.read_at(*position, buf)?;
        *position += n as u64;
        Ok(n)
    }

    /// Writes all of `data` at the position (or the end), and moves it behind.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        let mut position = self.place()?;
        let at = self.write_at(*position, data)?;
        *position = at + data.len() as u64;
        Ok(())
    }

    /// Moves the position; returns the new one. It may be behind the end, and not before the start.
    pub fn seek(&self, whence: Whence, by: i64) -> Result<u64> {
        let mut position = self.place()?;
        let base = match whence {
            Whence::Start => 0,
            Whence::Current => *position,
            Whence::End => self.len()?,
        };
        let to = base
            .checked_add_signed(by)
            .filter(|to| i64::try_from(*to).is_ok())
            .ok_or_else(|| {
                Error::Argument("a position before the start of the file or beyond 2^63".into())
            })?;
        *position = to;
        Ok(to)
    }

    /// The position.
    pub fn position(&self) -> u64 {
        *self.position.lock()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A room that is closed, or another process's, holds nothing of this process.
        if let Ok(room) = self.shared.room() {
            room.release(self.no, 1);
        }
    }
}

/// Finds or makes a file and holds it; the caller releases it.
fn hold(room: &OpenRoom<'_>, path: &Path, mode: OpenMode) -> Result<InodeNo> {
    for _ in 0..TRIES {
        let Some(no) = find_or_make(room, path, mode)? else {
            continue;
        };
        room.hold(no);
        // Only now: what is held is not deleted by another thread in between.
        match room.attributes(no) {
            Ok(_) => return Ok(no),
            Err(e) => {
                room.release(no, 1);
                // A caller that asked to create the file never gets "not found".
                if !matches!(e, RoomError::NotFound) || !mode.create {
                    return Err(e.into());
                }
            }
        }
    }
    Err(RoomError::NotFound.into())
}

/// `None`: another thread made it first, and then removed it.
fn find_or_make(room: &OpenRoom<'_>, path: &Path, mode: OpenMode) -> Result<Option<InodeNo>> {
    let make = || -> std::result::Result<InodeNo, RoomError> {
        let (parent, name) = room.resolve_parent(path)?;
        let new = NewFile {
            mode: mode.mode & 0o7777,
            ..NewFile::of_kind(FileKind::Regular)
        };
        Ok(room.make(parent, name, &new)?.no)
    };
    let found = || room.resolve(path, true);
    let no = match mode.create_new {
        true => make(),
        false => found(),
    };
    match no {
        Err(RoomError::NotFound) if mode.create && !mode.create_new => match make() {
            Err(RoomError::Exists) => match found() {
                Err(RoomError::NotFound) => Ok(None),
                other => Ok(Some(other?)),
            },
            other => Ok(Some(other?)),
        },
        other => Ok(Some(other?)),
    }
}

/// What opening does to a file that is held.
fn prepare(room: &OpenRoom<'_>, no: InodeNo, mode: OpenMode) -> Result<()> {
    match room.attributes(no)?.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(RoomError::IsDirectory.into()),
        _ => return Err(RoomError::NotSupported("opening what is not a regular file").into()),
    }
    if mode.truncate {
        room.set_attributes(no, &SetAttr::size(0))?;
    }
    if mode.read && !room.is_read_only() {
        room.touch_atime(no);
    }
    Ok(())
}
