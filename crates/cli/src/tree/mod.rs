//! One trait for trees of files, so that `ls`, `cp` and their like are written once: a room or a snapshot through the library, and a
//! host directory, which a mounted room is too.
//!
//! 1. Paths are absolute in a room; symbolic links never lead out of it, mounted or not.
//! 2. Nothing follows a symbolic link at a path's end unless asked to.
//!
//! It deliberately does not know how anything is shown or which tree an argument meant.

mod container;
mod host;
mod in_room;
mod past;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::Path;

pub(crate) use container::ContainerTree;
pub(crate) use host::{HostTree, sync_file_system};
pub(crate) use in_room::RoomTree;
pub(crate) use past::PastTree;
use room::{FileFlags, FileKind, InodeNo, RenameMode, Room, Timestamp};

pub(crate) use crate::fault::Fault;
use crate::words::shown_path;

pub(crate) type Result<T> = std::result::Result<T, Fault>;

/// Which file a name leads to: two names with equal identity are hard links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) u64, pub(crate) u64);

/// Attributes of a file.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    pub(crate) id: FileId,
    pub(crate) kind: FileKind,
    /// Permission bits with set-id and sticky.
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Bytes of storage its data takes.
    pub(crate) allocated: u64,
    pub(crate) rdev: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Option<Timestamp>,
}

/// Attributes to be set; `None` stays.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attrs {
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) mode: Option<u16>,
    /// Access and modification.
    pub(crate) times: Option<(Timestamp, Timestamp)>,
}

/// A regular file, open for reading.
pub(crate) trait ReadFile {
    /// Attributes as they are now.
    fn meta(&self) -> Result<Meta>;
    /// Reads at an offset; fewer bytes only at the file's end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// The next range of stored data at or after an offset: first byte and end. `None`: only holes follow.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>>;
    /// The descriptor of a host's file.
    fn as_host(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The inode of a room's file.
    fn as_inode(&self) -> Option<(&Room, InodeNo)> {
        None
    }
    /// A file of a snapshot of a room: the room, the snapshot's name, the inode.
    fn as_past(&self) -> Option<(&Room, &str, InodeNo)> {
        None
    }
}

/// A regular file, open for writing too.
pub(crate) trait OpenFile: ReadFile {
    /// Writes all of it.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Sets the length in bytes.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Makes the file durable.
    fn sync(&self) -> Result<()>;
}

/// A tree of files to read: all that can be copied from.
pub(crate) trait Source {
    /// Attributes; `follow` a symbolic link at the end.
    fn stat(&self, path: &Path, follow: bool) -> Result<Meta>;
    /// Names and attributes in a directory, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<(OsString, Meta)>>;
    /// Target of a symbolic link.
    fn read_link(&self, path: &Path) -> Result<OsString>;
    /// Opens a regular file for reading, through symbolic links.
    fn open<'a>(&'a self, path: &Path) -> Result<Box<dyn ReadFile + 'a>>;
    /// All extended attributes this user can see.
    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>>;
    /// What keeps a regular file or directory from being changed, as far as this user can see it.
    fn flags(&self, path: &Path) -> Result<FileFlags> {
        let _ = path;
        Ok(FileFlags::NONE)
    }
}

/// A tree of files.
pub(crate) trait Tree: Source {
    /// Makes a regular file with mode 0600, or one that nobody else may read yet; it must not exist.
    fn create<'a>(&'a self, path: &Path) -> Result<Box<dyn OpenFile + 'a>>;
    /// Creates a directory.
    fn make_dir(&self, path: &Path, mode: u16) -> Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &OsString, path: &Path) -> Result<()>;
    /// Gives a file (or a symbolic link itself) another name.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes a FIFO, socket or device node.
    fn make_node(&self, path: &Path, kind: FileKind, mode: u16, rdev: u64) -> Result<()>;
    /// Removes a name of anything but a directory.
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Moves a name.
    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()>;
    /// Sets attributes of the file itself, not of what a symbolic link leads to.
    fn set_attrs(&self, path: &Path, attrs: &Attrs) -> Result<()>;
    /// Sets an extended attribute.
    fn set_xattr(&self, path: &Path, name: &OsString, value: &[u8]) -> Result<()>;
    /// Removes an extended attribute, if it is there.
    fn remove_xattr(&self, path: &Path, name: &OsString) -> Result<()>;
    /// Makes everything durable that was done through this tree, as far as the tree can.
    fn sync(&self) -> Result<()>;
}

/// Makes the directories above `path` where they are missing.
pub(crate) fn make_above(tree: &dyn Tree, path: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for above in path.ancestors().skip(1) {
        match tree.stat(above, true) {
            Ok(there) if there.kind == FileKind::Directory => break,
            Ok(_) => {
                return Err(Fault::Refused(format!(
                    "{} is not a directory",
                    shown_path(above)
                )));
            }
            Err(fault) if fault.is_not_found() => missing.push(above),
            Err(fault) => return Err(fault),
        }
    }
    missing
        .into_iter()
        .rev()
        .try_for_each(|above| tree.make_dir(above, 0o755))
}
