//! SQLite's write-ahead log beside the catalog's file: its space and its durability. Its contents are SQLite's.
//!
//! 1. The disk holds room for all that a commit of the accepted changes can append: what may come behind the end of the file
//!    is reserved. Only a little is accepted without, for a disk that gets space again.
//!    What a commit did not need of it is freed where that is much.
//! 2. The beginning of a fresh log is filled with zeros, so that the commits of the first mebibyte change no file
//!    length: their sync is a third of the price. SQLite takes zeros for an empty log.
//!
//! It deliberately does not know where in the file SQLite writes; only that it is never behind its length.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use storage::{OpenMode, Storage, StorageFile, is_full};

use crate::{CatalogError, Result};

/// Bytes of a fresh log filled with zeros, and the step in which room is reserved.
const STEP: u64 = 1 << 20;
/// Bytes of a page in the log at most: with SQLite's header and the commit's code.
pub(super) const FRAME: u64 = 4096 + 24 + 32;
/// What a commit needs beside the changes themselves: header, counters, the roots of some trees.
const COMMIT: u64 = 16 * FRAME;
/// Bytes of changes that are accepted on a full disk, and wait for space.
const UNRESERVED: u64 = COMMIT;
/// Bytes that may stay reserved behind the end of the log for the next commits.
const KEPT: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Wal {
    file: Option<Arc<dyn StorageFile>>,
    /// Bytes that the pending changes may need.
    expected: u64,
    /// Offset up to which room is reserved; behind the file's length or at it.
    reserved: u64,
    /// Length of the file when the first of the pending changes came: they go behind it at worst.
    base: Option<u64>,
    /// The last `base`.
    len: u64,
}

/// The name SQLite gives the log of the catalog in the file `catalog`.
pub(super) fn name(catalog: &str) -> String {
    format!("{catalog}-wal")
}

/// Whether there is a log that may hold commits which the catalog's file does not.
pub(super) fn is_left(storage: &dyn Storage, catalog: &str) -> io::Result<bool> {
    let mut start = [0; 4];
    match storage
        .open(&name(catalog), OpenMode::Read)
        .and_then(|file| file.read_at(&mut start, 0))
    {
        Ok(()) => Ok(start != [0; 4]),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Makes durable what a log holds, before SQLite reads it: it may show commits whose sync failed in an earlier opening.
/// The system then takes their pages for clean, and every later sync succeeds without writing them. What SQLite moves
/// from there into the catalog's file would outlive the rest of the commit. So the pages are written again.
pub(super) fn write_again(storage: &dyn Storage, catalog: &str) -> io::Result<()> {
    if !is_left(storage, catalog)? {
        return Ok(());
    }
    let file = storage.open(&name(catalog), OpenMode::ReadWrite)?;
    let len = file.len()?;
    let mut buffer = vec![0; STEP as usize];
    let mut at = 0;
    while at < len {
        let piece = &mut buffer[..STEP.min(len - at) as usize];
        file.read_at(piece, at)?;
        // Behind the frames there are zeros, which mean nothing. Looked for by blocks, which compare fast.
        let zeros = [0; 4096];
        let end = piece
            .chunks(zeros.len())
            .rposition(|block| *block != zeros[..block.len()])
            .map_or(0, |i| ((i + 1) * zeros.len()).min(piece.len()));
        match file.write_at(&piece[..end], at) {
            // On storage that wants space even for this, opening must work all the same.
            Err(error) if is_full(&error) => break,
            done => done?,
        }
        at += piece.len() as u64;
    }
    file.sync()
}

/// Frees the space reserved behind the end of a file of `len` bytes, where that is more than [`KEPT`]. True where it was.
fn free_rest(file: &dyn StorageFile, len: u64) -> io::Result<bool> {
    let is_much = file.allocated()?.is_some_and(|all| all > len + KEPT);
    if is_much {
        file.set_len(len)?;
    }
    Ok(is_much)
}

impl Wal {
    /// Of a catalog that is only read.
    pub(super) fn none() -> Self {
        Self {
            file: None,
            expected: 0,
            reserved: 0,
            base: None,
            len: 0,
        }
    }

    /// Takes the log of a catalog that SQLite has opened for writing.
    pub(super) fn open(storage: &dyn Storage, catalog: &str) -> io::Result<Self> {
        let file = storage.open(&name(catalog), OpenMode::ReadWrite)?;
        let mut len = file.len()?;
        if len == 0 {
            match file.write_at(&vec![0; STEP as usize], 0) {
                Ok(()) => {}
                // A full disk: opening must work all the same, so that something can be deleted.
                Err(error) if is_full(&error) => file.set_len(0)?,
                Err(error) => return Err(error),
            }
            len = file.len()?;
        }
        // What a process that was killed had reserved.
        let _ = free_rest(&*file, len);
        Ok(Self {
            file: Some(file),
            expected: 0,
            reserved: len,
            base: None,
            len,
        })
    }

    /// The file, to sync it.
    pub(super) fn file(&self) -> Result<Arc<dyn StorageFile>> {
        self.file
            .clone()
            .ok_or_else(|| CatalogError::Io("the catalog is open for reading only".into()))
    }

    /// Notes that a change is coming, and reserves room for it: SQLite writes to the log before the commit when its memory is full.
    ///
    /// # Errors
    /// `NoSpace`: the change must not be made; those before it can be committed, but for the first few on a full disk.
    pub(super) fn expect(&mut self, bytes: u64) -> Result<()> {
        self.expected += bytes;
        match self.reserve() {
            Err(CatalogError::NoSpace) if self.expected <= UNRESERVED => Ok(()),
            Err(error) => {
                self.expected -= bytes;
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Reserves room for everything expected.
    ///
    /// # Errors
    /// `NoSpace`: the commit must wait.
    pub(super) fn reserve(&mut self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let io = |error: io::Error| CatalogError::Io(format!("the catalog's log: {error}"));
        let base = match self.base {
            Some(base) => base,
            None => {
                let len = file.len().map_err(io)?;
                if len < self.len {
                    // SQLite has cut the file, and with it what was reserved behind.
                    self.reserved = len;
                }
                self.len = len;
                *self.base.insert(len)
            }
        };
        let needed = base + self.expected + COMMIT;
        if needed <= self.reserved {
            return Ok(());
        }
        // The more is pending, the larger the steps: reserving is a call of the system, which takes as long as several changes.
        let target = (needed + self.expected / 4).next_multiple_of(STEP);
        match file.allocate(base, target - base) {
            Ok(()) => {}
            Err(error) if is_full(&error) => {
                // Perhaps there is room for what is needed now, if not for the step.
                match file.allocate(base, needed - base) {
                    Ok(()) => {
                        self.reserved = needed;
                        return Ok(());
                    }
                    Err(error) if is_full(&error) => return Err(CatalogError::NoSpace),
                    Err(error) => return Err(io(error)),
                }
            }
            // A storage that cannot reserve: when it is full, that costs the pending changes.
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(io(error)),
        }
        self.reserved = target;
        Ok(())
    }

    /// Whether room is reserved for changes whose pages are not in the log.
    pub(super) fn expects_any(&self) -> bool {
        self.expected > 0
    }

    /// The pages of the pending changes are in the log. Those that change again are written in the same place.
    pub(super) fn written(&mut self) {
        self.expected = 0;
        self.base = None;
    }

    /// A commit is done: frees what was reserved for it and not needed. SQLite cuts the file only where its length is more
    /// than it keeps.
    pub(super) fn committed(&mut self) {
        self.written();
        let Some(file) = &self.file else {
            return;
        };
        if self.reserved > self.len + KEPT
            && let Ok(len) = file.len()
            && free_rest(&**file, len).unwrap_or(false)
        {
            self.reserved = len;
        }
    }
}
