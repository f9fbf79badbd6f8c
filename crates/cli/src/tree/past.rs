//! A snapshot of a room as a tree to read, through the library.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use room::{FileFlags, FileSystem, InodeNo, Room, Snapshots as _};

use super::in_room::{flags, list, must_be_regular, next_data, read_link, stat, xattrs};
use super::{Fault, Meta, ReadFile, Result, Source};

/// A snapshot of a room that this process has open.
#[derive(Debug)]
pub(crate) struct PastTree<'r> {
    room: &'r Room,
    name: String,
    files: Arc<dyn FileSystem>,
}

impl<'r> PastTree<'r> {
    /// `NotFound` where the room has no snapshot of this name.
    pub(crate) fn new(room: &'r Room, name: &str) -> room::Result<Self> {
        Ok(Self {
            room,
            name: name.to_owned(),
            files: room.snapshot(name)?,
        })
    }

    fn no(&self, path: &Path, follow: bool) -> Result<InodeNo> {
        room::resolve(&*self.files, path, follow)
            .map(|inode| inode.no)
            .map_err(Fault::Room)
    }
}

impl Source for PastTree<'_> {
    fn stat(&self, path: &Path, follow: bool) -> Result<Meta> {
        stat(&*self.files, self.no(path, follow)?)
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Meta)>> {
        list(&*self.files, self.no(path, true)?)
    }

    fn read_link(&self, path: &Path) -> Result<OsString> {
        read_link(&*self.files, self.no(path, false)?)
    }

    fn open<'a>(&'a self, path: &Path) -> Result<Box<dyn ReadFile + 'a>> {
        let no = self.no(path, true)?;
        must_be_regular(&*self.files, no)?;
        Ok(Box::new(PastFile { tree: self, no }))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
        xattrs(&*self.files, self.no(path, false)?)
    }

    fn flags(&self, path: &Path) -> Result<FileFlags> {
        flags(&*self.files, self.no(path, true)?)
    }
}

struct PastFile<'t> {
    tree: &'t PastTree<'t>,
    no: InodeNo,
}

impl ReadFile for PastFile<'_> {
    fn meta(&self) -> Result<Meta> {
        stat(&*self.tree.files, self.no)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let files = &self.tree.files;
        files.read(self.no, offset, buf).map_err(Fault::Room)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        next_data(&*self.tree.files, self.no, offset)
    }

    fn as_past(&self) -> Option<(&Room, &str, InodeNo)> {
        Some((self.tree.room, &self.tree.name, self.no))
    }
}
