//! The log beside the catalog's file: its room and its durability. Its contents are SQLite's.
//!
//! 1. Before a commit, the disk holds room for all that the commit can append: `len` bytes of the file are written
//!    already, and what may come behind them is reserved.
//! 2. The beginning of a fresh log is filled with zeros, so that the commits of the first mebibyte change no file
//!    length: their sync is a third of the price. SQLite takes zeros for an empty log.
//!
//! It deliberately does not know where in the file SQLite writes; only that it is never behind its length.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::{CatalogError, Result};

/// Bytes of a fresh log filled with zeros, and the step in which room is reserved.
const STEP: u64 = 1 << 20;
/// What a commit needs beside the changes themselves: header, counters, the roots of some trees.
const COMMIT: u64 = 16 * (4096 + 24);

#[derive(Debug)]
pub(super) struct Log {
    file: Option<Arc<File>>,
    /// Bytes that the pending changes may need.
    expected: u64,
    /// Offset up to which room is reserved; behind the file's length or at it.
    reserved: u64,
    /// Length of the file when last seen.
    len: u64,
}

/// The name SQLite gives the log of the catalog at `path`.
pub(super) fn path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Whether there is a log that may hold commits which the catalog's file does not.
pub(super) fn is_left(catalog: &Path) -> io::Result<bool> {
    let mut start = [0; 4];
    match File::open(path(catalog)).and_then(|file| file.read_exact_at(&mut start, 0)) {
        Ok(()) => Ok(start != [0; 4]),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Log {
    /// Of a catalog that is only read.
    pub(super) fn none() -> Self {
        Self {
            file: None,
            expected: 0,
            reserved: 0,
            len: 0,
        }
    }

    /// Takes the log of a catalog that SQLite has opened for writing.
    pub(super) fn open(catalog: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path(catalog))?;
        let mut len = file.metadata()?.len();
        if len == 0 {
            match file.write_all_at(&vec![0; STEP as usize], 0) {
                Ok(()) => {}
                // A full disk: opening must work all the same, so that something can be deleted.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => file.set_len(0)?,
                Err(error) => return Err(error),
            }
            len = file.metadata()?.len();
        }
        Ok(Self {
            file: Some(Arc::new(file)),
            expected: 0,
            reserved: len,
            len,
        })
    }

    /// The file, to sync it.
    pub(super) fn file(&self) -> Result<Arc<File>> {
        self.file
            .clone()
            .ok_or_else(|| CatalogError::Io("the catalog is open for reading only".into()))
    }

    /// Notes that a change is coming; reserves room early where many have come, because SQLite writes to the log
    /// before the commit when its memory is full.
    ///
    /// # Errors
    /// `NoSpace`: the change must not be made; those before it can wait.
    pub(super) fn expect(&mut self, bytes: u64) -> Result<()> {
        let before = self.expected;
        self.expected += bytes;
        if before / STEP != self.expected / STEP
            && let Err(error) = self.reserve()
        {
            self.expected = before;
            return Err(error);
        }
        Ok(())
    }

    /// Reserves room for everything expected.
    ///
    /// # Errors
    /// `NoSpace`: the commit must wait.
    pub(super) fn reserve(&mut self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let io =
            |error: &dyn std::fmt::Display| CatalogError::Io(format!("the catalog's log: {error}"));
        let len = file.metadata().map_err(|error| io(&error))?.len();
        if len < self.len {
            // SQLite has cut the file, and with it what was reserved behind.
            self.reserved = len;
        }
        self.len = len;
        let needed = len + self.expected + COMMIT;
        if needed <= self.reserved {
            return Ok(());
        }
        let target = needed.next_multiple_of(STEP);
        match fallocate(&**file, FallocateFlags::KEEP_SIZE, len, target - len) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                // Perhaps there is room for what is needed now, if not for the step.
                match fallocate(&**file, FallocateFlags::KEEP_SIZE, len, needed - len) {
                    Ok(()) => {
                        self.reserved = needed;
                        return Ok(());
                    }
                    Err(Errno::NOSPC | Errno::DQUOT) => return Err(CatalogError::NoSpace),
                    Err(error) => return Err(io(&error)),
                }
            }
            // A file system that cannot reserve: a full disk then costs the pending changes.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(io(&error)),
        }
        self.reserved = target;
        Ok(())
    }

    /// The pending changes are in the log.
    pub(super) fn committed(&mut self) {
        self.expected = 0;
    }
}
