//! What is measured: one trait for a directory, a file, a device, a volume, a room, and file systems mounted for the occasion.
//!
//! 1. Whatever a store writes to is a file it made itself, below a work directory that a [run file](crate::run_file) named
//!    before it was made. Files and devices that were there before are opened for reading only.
//! 2. [`Store::make_cold`] may mount afresh: nothing opened before it is used after it.
//! 3. [`Store::close`] leaves nothing behind, and so does dropping a store, which tries its best.
//!
//! It deliberately does not know what is done to a store, nor what it is compared with.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::StoreFacts;
use crate::{Error, Result};

mod blkflsbuf;
mod directory;
mod facts;
mod host;
mod nbd;
mod read_only;
mod room;
mod served;
mod single;
mod target;
mod volume;

pub use room::remove_in_room;
pub use served::Kind as ServedKind;
pub use target::{AskVolumeKey, Key, Making, VolumeKey, labels, make};

/// Something that can be measured.
pub trait Store: Send {
    /// What it is. The label is no other store's in the same run.
    fn facts(&self) -> &StoreFacts;

    /// What it can do.
    fn powers(&self) -> Powers;

    /// Opens the object `name`; with [`Mode::Make`] and [`Mode::MakeDirect`] it must not exist, and is made. Stores that are
    /// one object ([`Powers::single`]) ignore the name.
    ///
    /// # Errors
    /// [`Error::Refused`] where the store may not be written; what the system says otherwise, as
    /// for a direct opening where that is not possible.
    fn open(&mut self, name: &str, mode: Mode) -> Result<Arc<dyn Object>>;

    /// Removes an object that was made; one that is not there is fine.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&mut self, name: &str) -> Result<()>;

    /// Its names, for works on small files.
    ///
    /// # Errors
    /// [`Error::Refused`] where there are none ([`Powers::names`]).
    fn names(&mut self) -> Result<Arc<dyn Names>>;

    /// Brings everything written to the disk, so that it does not disturb what is measured next.
    ///
    /// # Errors
    /// What the system says.
    fn settle(&mut self) -> Result<()>;

    /// Empties what caches it can, and says how. Everything opened before is of no use afterwards.
    ///
    /// # Errors
    /// Where it can no longer be mounted.
    fn make_cold(&mut self) -> Result<Cold>;

    /// Where it is on the host: a directory, file or device; `None` where it is not on this host's disks.
    fn path(&self) -> Option<PathBuf>;

    /// Where its bytes are stored when a process or library of ours is between: the ciphertext's directory.
    fn backing(&self) -> Option<PathBuf> {
        None
    }

    /// Processes that serve it, whose processor time counts.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Unmounts and removes all it made.
    ///
    /// # Errors
    /// What is still there, and how it is removed.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Powers {
    /// Objects may be opened so that calls bypass the page cache.
    pub direct: bool,
    /// Its names are files of the host below [`Store::path`], which any library can open.
    pub files: bool,
    /// It is one object that was there before, with content nobody here knows, and is only read. Every other has a tree of names, in which
    /// files can be made and written.
    pub single: bool,
}

/// How an object is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For reading, through the page cache.
    Read,
    /// For reading, past it (`O_DIRECT`).
    ReadDirect,
    /// Created, for reading and writing.
    Make,
    /// Created, past the page cache.
    MakeDirect,
    /// One that was made by us, for reading and writing.
    Write,
    /// The same, past the page cache.
    WriteDirect,
}

impl Mode {
    /// Whether calls go past the page cache.
    pub fn is_direct(self) -> bool {
        matches!(
            self,
            Self::ReadDirect | Self::MakeDirect | Self::WriteDirect
        )
    }

    /// Whether it may be written.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::ReadDirect)
    }

    /// Whether it is made.
    pub fn makes(self) -> bool {
        matches!(self, Self::Make | Self::MakeDirect)
    }
}

/// What was done to empty caches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cold {
    /// Each step in a few words, as in "mounted afresh".
    pub done: Vec<String>,
    /// What could not be done, and why: the reads that follow may be warm.
    pub missing: Vec<String>,
}

/// An open file, device or other sequence of bytes.
pub trait Object: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Reads exactly `buf.len()` bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` beyond the end; what the system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `PermissionDenied` where it is only read; what the system says.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let _ = (data, offset);
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> io::Result<()>;

    /// Its descriptor, where the kernel knows it: for io_uring and for asking the page cache.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A tree of names. Paths are relative to the store's work directory, without `..`.
pub trait Names: Send + Sync {
    /// Creates a directory whose parent exists.
    ///
    /// # Errors
    /// What the system says; so for all that follow.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Creates a file that is not there, writes, closes; with `sync` the file is synced before that.
    fn create(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()>;
    /// Opens for reading, and closes.
    fn open(&self, path: &str) -> io::Result<()>;
    /// Opens, reads from the beginning into `buf`, closes. Returns how many bytes there were.
    fn read(&self, path: &str, buf: &mut [u8]) -> io::Result<usize>;
    /// Opens, writes over the beginning, closes; with `sync` durable before it returns.
    fn write(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()>;
    /// Length in bytes, from the attributes.
    fn stat(&self, path: &str) -> io::Result<u64>;
    /// Reads a whole directory; returns how many names it has, `.` and `..` not counted.
    fn list(&self, path: &str) -> io::Result<u64>;
    /// Changes permission bits.
    fn chmod(&self, path: &str, mode: u32) -> io::Result<()>;
    /// Renames within the tree.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Makes everything done so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// Removes a file of ours on the host; one that is not there is fine.
pub(crate) fn remove_host(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "removing", e)),
        _ => Ok(()),
    }
}

/// Empties the machine's caches, if that is wanted.
fn forget_all(wanted: bool, cold: &mut Cold) {
    if wanted {
        match host::forget_everything() {
            Ok(()) => cold.done.push("the whole machine's caches emptied".into()),
            Err(e) => cold
                .missing
                .push(format!("/proc/sys/vm/drop_caches: {e}; run it as root")),
        }
    }
}

/// Says what of the process that serves `what` stays warm: its own memory whatever is done, and its files' pages as well unless the
/// whole machine's caches are emptied.
fn say_of_server(what: &str, drop_caches: bool, cold: &mut Cold) {
    let own = format!("what the process that serves {what} keeps in its own memory");
    cold.missing.push(match drop_caches {
        true => format!("{own} cannot be emptied from outside"),
        false => format!(
            "{own}, and the page cache of its files, cannot be emptied from outside; as root use --drop-caches for the latter"
        ),
    });
}

/// A file of the host, for tests of what works on objects.
#[cfg(test)]
pub(crate) fn host_file(path: &Path, mode: Mode) -> Result<Arc<dyn Object>> {
    host::HostFile::open(path, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What failed: with --drop-caches nothing was said to be warm, and what a process keeps in its memory was.
    #[test]
    fn what_a_server_keeps_is_warm_with_drop_caches_too() {
        for drop_caches in [false, true] {
            let mut cold = Cold::default();
            say_of_server("m", drop_caches, &mut cold);
            let said = &cold.missing[0];
            assert!(said.starts_with("what the process that serves m keeps in its own memory"));
            assert_eq!(said.contains("--drop-caches"), !drop_caches, "{said}");
        }
    }
}
