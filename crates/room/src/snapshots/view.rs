//! A snapshot as a file system that cannot be changed.
//!
//! 1. The catalog alone knows what a snapshot sees: nothing of it is pending in memory.
//! 2. While data is looked up and read, the file's cell is locked, if it still exists, and what is kept for snapshots stays where
//!    it is: no unit is released or moved under the reader.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use catalog::{CHUNK_LEN, DirEntry, FileKind, Inode, InodeNo};
use model::ReadFiles;

use super::Past;
use crate::blocks::BLOCK;
use crate::{Error, Result, RoomSpace, SeekTo};

/// Longest name, in bytes.
const NAME_MAX: usize = 255;

/// The room as it was when a snapshot was created. When the snapshot is deleted, all calls are `Stale`.
pub(crate) struct SnapshotView {
    past: Arc<Past>,
    /// The snapshot's number.
    at: u64,
    /// The room stays open as long as this.
    room: Arc<dyn Any + Send + Sync>,
}

// Not what it holds: too much for a log.
impl fmt::Debug for SnapshotView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotView").finish_non_exhaustive()
    }
}

impl SnapshotView {
    pub(crate) fn new(past: Arc<Past>, at: u64, room: Arc<dyn Any + Send + Sync>) -> Self {
        Self { past, at, room }
    }

    fn past(&self) -> Result<&Past> {
        self.past.env.opener.check()?;
        Ok(&self.past)
    }

    fn inode(&self, no: InodeNo) -> Result<Inode> {
        self.past()?.data.past_inode(self.at, no)
    }

    fn regular(&self, no: InodeNo) -> Result<Inode> {
        let inode = self.inode(no)?;
        match inode.kind {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    fn directory(&self, no: InodeNo) -> Result<()> {
        match self.inode(no)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(Error::NotDirectory),
        }
    }
}

impl Drop for SnapshotView {
    fn drop(&mut self) {
        if self.past().is_err() {
            // A fork: the room is its parent's.
            std::mem::forget(self.room.clone());
        }
    }
}

impl ReadFiles for SnapshotView {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let found = self
            .past()?
            .catalog
            .get()
            .past_lookup(self.at, parent, name)?;
        match found {
            Some(inode) => Ok(inode),
            // A lookup in what is not a directory finds nothing either, but the reason differs.
            None => Err(self.directory(parent).err().unwrap_or(Error::NotFound)),
        }
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.inode(no)
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        self.directory(no)?;
        let catalog = self.past()?.catalog.get();
        Ok(catalog.past_entries_plus(self.at, no, after, limit)?)
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.regular(no)?;
        if offset >= inode.size {
            return Ok(0);
        }
        let len = (inode.size - offset).min(buf.len() as u64) as usize;
        self.past()?
            .data
            .read_past(self.at, no, offset, &mut buf[..len])?;
        Ok(len)
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let size = self.regular(no)?.size;
        if offset >= size {
            return Err(Error::NoMoreData);
        }
        let catalog = self.past()?.catalog.get();
        let hole = |at: u64| match to {
            SeekTo::Hole => Ok(at.min(size)),
            SeekTo::Data => Err(Error::NoMoreData),
        };
        let mut at = offset;
        while at < size {
            let found = catalog.past_chunks_from(self.at, no, at / CHUNK_LEN, 1)?;
            let Some((index, chunk)) = found.into_iter().next() else {
                return hole(at);
            };
            let base = index * CHUNK_LEN;
            if base > at {
                if to == SeekTo::Hole {
                    return Ok(at);
                }
                at = base;
            }
            while at < size && at / CHUNK_LEN == index {
                let (is_data, end) = match chunk.find(((at - base) / BLOCK) as u16) {
                    Ok(extent) => (true, base + u64::from(extent.end()) * BLOCK),
                    Err(following) => (false, base + u64::from(following) * BLOCK),
                };
                if is_data == (to == SeekTo::Data) {
                    return Ok(at);
                }
                at = end;
            }
        }
        hole(size)
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        self.inode(no)?;
        let value = self.past()?.catalog.get().past_xattr(self.at, no, name)?;
        value.ok_or(Error::NoXattr)
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.inode(no)?;
        Ok(self.past()?.catalog.get().past_xattr_names(self.at, no)?)
    }

    fn space(&self) -> Result<RoomSpace> {
        Ok(RoomSpace {
            available: 0,
            ..self.past()?.space.total()?
        })
    }

    fn has_flags(&self) -> bool {
        self.past.data.has_flags()
    }
}
