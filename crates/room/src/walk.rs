//! Paths in any file system, for callers that have no kernel to walk them.
//!
//! A path is bytes between slashes; `.` and `..` are walked as a kernel would, and `..` above the root is the root.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use model::{FileKind, FileSystem, Inode, InodeNo};

use crate::{Error, Result};

/// Most symbolic links followed on one path, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// Where paths are walked: any file system, and the tree of an open room.
pub(crate) trait Names {
    fn attributes(&self, no: InodeNo) -> Result<Inode>;
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode>;
}

impl Names for &dyn FileSystem {
    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        (**self).attributes(no)
    }

    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        (**self).lookup(parent, name)
    }
}

/// What is at a path of a file system, such as a snapshot; `follow`: through a symbolic link at its end too. A path that does not begin
/// with a slash is from the root. `NotFound`, `NotDirectory`, `TooManySymlinks`.
pub fn resolve(files: &dyn FileSystem, path: &Path, follow: bool) -> Result<Inode> {
    let path = path.as_os_str().as_bytes();
    walk(&files, InodeNo::ROOT, path, follow, &mut 0)
}

/// From a directory on; `links` counts the symbolic links followed.
pub(crate) fn walk(
    files: &impl Names,
    from: InodeNo,
    path: &[u8],
    follow: bool,
    links: &mut u32,
) -> Result<Inode> {
    let is_absolute = path.starts_with(b"/");
    let mut at = files.attributes(if is_absolute { InodeNo::ROOT } else { from })?;
    let mut names = path
        .split(|b| *b == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .peekable();
    while let Some(name) = names.next() {
        if at.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let directory = at.no;
        at = match name {
            b".." => files.attributes(at.parent)?,
            _ => files.lookup(directory, name)?,
        };
        if at.kind == FileKind::Symlink && (follow || names.peek().is_some()) {
            *links += 1;
            if *links > SYMLINKS_MAX {
                return Err(Error::TooManySymlinks);
            }
            at = walk(files, directory, &at.target, true, links)?;
        }
    }
    Ok(at)
}
