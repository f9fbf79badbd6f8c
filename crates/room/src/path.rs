//! Paths: for callers that have no kernel to walk them.
//!
//! A path is bytes between slashes; `.` and `..` are walked as a kernel would, and `..` above the root is the root.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use catalog::{FileKind, Inode, InodeNo};

use crate::core::Core;
use crate::{Error, NewFile, Result, SetAttr};

/// Most symbolic links followed on one path, as in Linux.
const SYMLINKS_MAX: u32 = 40;

impl Core {
    /// The inode at a path; `follow`: through a symbolic link at its end too.
    pub(crate) fn resolve(&self, path: &Path, follow: bool) -> Result<Inode> {
        self.walk(InodeNo::ROOT, path.as_os_str().as_bytes(), follow, &mut 0)
    }

    fn walk(&self, from: InodeNo, path: &[u8], follow: bool, links: &mut u32) -> Result<Inode> {
        let mut at = self.attributes(if path.starts_with(b"/") {
            InodeNo::ROOT
        } else {
            from
        })?;
        let mut names = path
            .split(|b| *b == b'/')
            .filter(|n| !n.is_empty() && *n != b".")
            .peekable();
        while let Some(name) = names.next() {
            if at.kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            let directory = at.no;
            at = match name {
                b".." => self.attributes(at.parent)?,
                _ => self.lookup(directory, name)?,
            };
            if at.kind == FileKind::Symlink && (follow || names.peek().is_some()) {
                *links += 1;
                if *links > SYMLINKS_MAX {
                    return Err(Error::TooManySymlinks);
                }
                at = self.walk(directory, &at.target, true, links)?;
            }
        }
        Ok(at)
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
        let mut at = self.attributes(InodeNo::ROOT)?;
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

/// An open file of a room, with a position: for readers and writers of streams. Held open, it outlives its name.
#[derive(Debug)]
pub struct RoomFile {
    core: Arc<Core>,
    no: InodeNo,
    position: u64,
}

impl RoomFile {
    pub(crate) fn new(core: Arc<Core>, no: InodeNo) -> Result<Self> {
        core.hold(no);
        let file = Self {
            core,
            no,
            position: 0,
        };
        // It may have lost its last name before it was held.
        file.attributes()?;
        Ok(file)
    }

    /// See [`Room::core`](crate::Room).
    fn core(&self) -> Result<&Arc<Core>> {
        self.core.opener.check()?;
        Ok(&self.core)
    }

    /// Its inode.
    pub fn inode(&self) -> InodeNo {
        self.no
    }

    /// Its attributes.
    pub fn attributes(&self) -> Result<Inode> {
        self.core()?.attributes(self.no)
    }

    /// Sets its length in bytes.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.core()?
            .set_attributes(
                self.no,
                &SetAttr {
                    size: Some(size),
                    ..SetAttr::default()
                },
            )
            .map(drop)
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        self.core()?.sync_or_defer()
    }
}

impl Drop for RoomFile {
    fn drop(&mut self) {
        match self.core() {
            Ok(core) => core.release(self.no, 1),
            Err(_) => self.core.leave(),
        }
    }
}

impl Read for RoomFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self
            .core()
            .and_then(|core| core.read(self.no, self.position, buf))
            .map_err(io::Error::other)?;
        self.position += n as u64;
        Ok(n)
    }
}

impl Write for RoomFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.core()
            .and_then(|core| core.write(self.no, self.position, data))
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
