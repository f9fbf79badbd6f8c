//! Paths, [walked](crate::walk) in the tree: for callers that have no kernel to walk them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use catalog::{FileKind, Inode, InodeNo};

use super::Tree;
use crate::walk::{self, Names};
use crate::{Error, NewFile, Result};

impl Names for Tree {
    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.data.attributes(no)
    }

    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        Self::lookup(self, parent, name)
    }
}

impl Tree {
    /// The inode at a path; `follow`: through a symbolic link at its end too.
    pub(crate) fn resolve(&self, path: &Path, follow: bool) -> Result<Inode> {
        self.walk(InodeNo::ROOT, path.as_os_str().as_bytes(), follow, &mut 0)
    }

    fn walk(&self, from: InodeNo, path: &[u8], follow: bool, links: &mut u32) -> Result<Inode> {
        walk::walk(self, from, path, follow, links)
    }

    /// The directory that holds a path's last name, and that name.
    pub(crate) fn resolve_parent<'a>(&self, path: &'a Path) -> Result<(InodeNo, &'a [u8])> {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes
            .iter()
            .rposition(|b| *b != b'/')
            .ok_or(Error::InvalidArgument("the root has no name"))?
            + 1;
        let trimmed = &bytes[..end];
        let cut = trimmed
            .iter()
            .rposition(|b| *b == b'/')
            .map_or(0, |at| at + 1);
        let (parent, name) = trimmed.split_at(cut);
        let parent = self.walk(InodeNo::ROOT, parent, true, &mut 0)?;
        if parent.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok((parent.no, name))
    }

    pub(crate) fn make_dir(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.resolve_parent(path)?;
        self.make_dir_in(parent, name)
    }

    fn make_dir_in(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        let new = NewFile::of_kind(FileKind::Directory);
        self.make(parent, name, &new).map(drop)
    }

    /// Creates a directory and those above it that are missing. `Exists` where something else is there.
    pub(crate) fn make_dirs(&self, path: &Path) -> Result<()> {
        let names = path.as_os_str().as_bytes().split(|b| *b == b'/');
        let mut at = self.data.attributes(InodeNo::ROOT)?;
        let mut links = 0;
        // No recursion: how deep it would go is the caller's to choose.
        for name in names.filter(|name| !name.is_empty()) {
            at = match self.walk(at.no, name, true, &mut links) {
                Err(Error::NotFound) => match self.make_dir_in(at.no, name) {
                    // Another thread was first, or a symbolic link leads nowhere.
                    Ok(()) | Err(Error::Exists) => self.walk(at.no, name, true, &mut links)?,
                    Err(e) => return Err(e),
                },
                other => other?,
            };
        }
        match at.kind {
            FileKind::Directory => Ok(()),
            _ => Err(Error::Exists),
        }
    }

    /// The file at a path, made if it is not there.
    pub(crate) fn open_or_make(&self, path: &Path) -> Result<Inode> {
        match self.resolve(path, true) {
            Err(Error::NotFound) => {
                let (parent, name) = self.resolve_parent(path)?;
                self.make(parent, name, &NewFile::of_kind(FileKind::Regular))
            }
            other => other,
        }
    }
}
