//! A container of IOCipher or libsqlfs as a tree to copy from.
//!
//! Its files belong to the importing user: the numbers in it are of an app on another machine. Where it has no mode, what it
//! holds is for its owner alone.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use import::{Container, Entry, EntryKind};
use room::{FileKind, Timestamp};

use super::{Fault, FileId, Meta, ReadFile, Result, Source};

/// An open container.
#[derive(Debug)]
pub(crate) struct ContainerTree {
    container: Container,
    uid: u32,
    gid: u32,
}

impl ContainerTree {
    pub(crate) fn new(container: Container) -> Self {
        Self {
            container,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    fn entry(&self, path: &Path) -> Result<&Entry> {
        self.container
            .get(names(path))
            .ok_or(Fault::Room(room::Error::NotFound))
    }

    fn meta(&self, entry: &Entry) -> Meta {
        let (kind, size, mode) = match &entry.kind {
            EntryKind::Directory => (FileKind::Directory, 0, 0o700),
            EntryKind::File { size, .. } => (FileKind::Regular, *size, 0o600),
            EntryKind::Symlink(target) => (FileKind::Symlink, target.len() as u64, 0o777),
        };
        let time = |secs| Timestamp { secs, nanos: 0 };
        Meta {
            id: FileId(0, entry.number),
            kind,
            mode: entry.mode.unwrap_or(mode),
            uid: self.uid,
            gid: self.gid,
            nlink: 1,
            size,
            allocated: 0,
            rdev: 0,
            atime: time(entry.atime),
            mtime: time(entry.mtime),
            ctime: time(entry.mtime),
            btime: None,
        }
    }
}

fn names(path: &Path) -> impl Iterator<Item = &[u8]> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    })
}

impl Source for ContainerTree {
    fn stat(&self, path: &Path, _follow: bool) -> Result<Meta> {
        Ok(self.meta(self.entry(path)?))
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Meta)>> {
        let entries = self
            .container
            .list(names(path))
            .ok_or(Fault::Room(room::Error::NotFound))?;
        Ok(entries
            .map(|(name, entry)| (OsString::from_vec(name.to_vec()), self.meta(entry)))
            .collect())
    }

    fn read_link(&self, path: &Path) -> Result<OsString> {
        match &self.entry(path)?.kind {
            EntryKind::Symlink(target) => Ok(OsString::from_vec(target.clone())),
            _ => Err(Fault::Refused("not a symbolic link".into())),
        }
    }

    fn open<'a>(&'a self, path: &Path) -> Result<Box<dyn ReadFile + 'a>> {
        Ok(Box::new(ContainerFile {
            tree: self,
            entry: self.entry(path)?,
        }))
    }

    fn xattrs(&self, _path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
        Ok(Vec::new())
    }
}

struct ContainerFile<'c> {
    tree: &'c ContainerTree,
    entry: &'c Entry,
}

impl ReadFile for ContainerFile<'_> {
    fn meta(&self) -> Result<Meta> {
        Ok(self.tree.meta(self.entry))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let container = &self.tree.container;
        container
            .read_at(self.entry, buf, offset)
            .map_err(Fault::Imported)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let container = &self.tree.container;
        container
            .next_data(self.entry, offset)
            .map_err(Fault::Imported)
    }
}
