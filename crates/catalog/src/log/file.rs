//! The log of a room in a directory: one file of zeros that records are written over.
//!
//! 1. The file has its length and its blocks before the first record, so that a record's sync changes nothing else of the
//!    file system's: it costs one write.
//! 2. Records begin at multiples of 4 KiB, one behind the other from the file's beginning. Writing one touches no block of
//!    another: a torn write cannot damage what was acknowledged.
//! 3. A commit of the catalog makes the log empty without writing to it.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use seal::LogKey;
use storage::{OpenMode, Storage, StorageFile, is_full};

use super::{Header, Link, Record, open, seal};
use crate::{CatalogError, Result};

/// Bytes of the file.
const LEN: u64 = 4 << 20;
/// Bytes of free space below which no log is created: a small storage is for data.
const SPACE_LEAST: u64 = 16 * LEN;
/// What records begin at multiples of.
const BLOCK: u64 = 4096;

/// The name of the log of the catalog in the file `catalog`.
pub(crate) fn name(catalog: &str) -> String {
    format!("{catalog}-log")
}

/// The log, open for appending.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: Arc<dyn StorageFile>,
    /// Where the next record begins.
    end: u64,
    /// What the next record names as before it.
    last: Link,
}

/// What a log holds behind a commit.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) records: Vec<Record>,
    end: u64,
    last: Link,
    /// What is wrong behind the records, if anything.
    pub(crate) damage: Option<String>,
}

impl Found {
    /// Nothing behind the commit of this anchor.
    pub(crate) fn at(anchor: Link) -> Self {
        Self {
            last: anchor,
            ..Self::default()
        }
    }
}

impl LogFile {
    /// Opens the log, which is created where it is not there, and continues behind what was `found` in it; durable when it
    /// returns.
    pub(crate) fn open(storage: &dyn Storage, catalog: &str, found: &Found) -> io::Result<Self> {
        let path = name(catalog);
        let there = match storage.open(&path, OpenMode::ReadWrite) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other?),
        };
        let len = there.as_ref().map_or(Ok(0), |file| file.len())?;
        if len < LEN && storage.space_at(&path)?.available < SPACE_LEAST {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = match there {
            Some(file) => file,
            None => storage.open(&path, OpenMode::CreateNew)?,
        };
        if len < LEN {
            if let Err(error) = file.write_at(&vec![0; (LEN - len) as usize], len) {
                // Space that is missed elsewhere.
                let _ = file.set_len(len);
                return Err(error);
            }
            file.sync()?;
            storage.sync_dir(storage::parent(&path))?;
        }
        Ok(Self {
            file,
            end: found.end,
            last: found.last,
        })
    }

    /// Removes what is behind the last record found; durable when it returns.
    pub(crate) fn cut(&self) -> io::Result<()> {
        let rest = self.file.len()?.saturating_sub(self.end);
        self.file.write_at(&vec![0; rest as usize], self.end)?;
        self.file.sync()
    }

    /// Whether a record of `len` bytes fits.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.end + len as u64 <= LEN
    }

    /// Seals a record and appends it; durable when this returns. False where a storage that never writes over anything has no
    /// space for it: nothing may be appended before a commit then.
    pub(crate) fn append(
        &mut self,
        key: &LogKey,
        number: u64,
        record: &mut Vec<u8>,
    ) -> Result<bool> {
        let tag = seal(key, number, self.last, record)?;
        let end = record.len().next_multiple_of(BLOCK as usize);
        // Copied: to resize a vector puts byte after byte.
        record.extend_from_slice(&[0; BLOCK as usize][..end - record.len()]);
        let failed =
            |error| CatalogError::Io(format!("the log could not be made durable: {error}"));
        match self.file.write_durable(record, self.end) {
            Err(error) if is_full(&error) => return Ok(false),
            written => written.map_err(failed)?,
        }
        self.end += record.len() as u64;
        self.last = tag;
        Ok(true)
    }

    /// The catalog has what the records say: the next one follows the commit of this anchor.
    pub(crate) fn restart(&mut self, anchor: Link) {
        self.end = 0;
        self.last = anchor;
    }
}

/// Reads the records that follow the catalog's `generation`, whose commit has this anchor.
pub(crate) fn read(
    storage: &dyn Storage,
    catalog: &str,
    key: &LogKey,
    generation: u64,
    anchor: Link,
) -> io::Result<Found> {
    let mut found = Found::at(anchor);
    let file = match storage.open(&name(catalog), OpenMode::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        other => other?,
    };
    // A longer file is not one of ours; what is behind is no record.
    let len = file.len()?.min(LEN);
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    let mut again = false;
    let mut number = generation;
    loop {
        let Some((header, record)) = next(key, &bytes, &found, number) else {
            // A bit that was read wrong shall not end the log: only what is the same twice does.
            if again || is_end(&bytes, &found, number) {
                break;
            }
            again = true;
            file.read_at(&mut bytes, 0)?;
            continue;
        };
        number += 1;
        found.records.push(record);
        found.last = header.tag;
        let len = super::HEADER_LEN as u64 + header.body_len;
        found.end += len.next_multiple_of(BLOCK);
    }
    for at in (found.end..len).step_by(BLOCK as usize) {
        let rest = &bytes[at as usize..];
        let later = Header::parse(rest).is_some_and(|header| header.number > number);
        if later && let Some(record) = open(key, rest) {
            found.damage = Some(format!(
                "the log holds record {} but not record {}",
                record.number,
                number + 1
            ));
            break;
        }
    }
    Ok(found)
}

/// Whether there certainly is no record behind those found: zeros, or what an earlier use of the file left.
fn is_end(bytes: &[u8], found: &Found, number: u64) -> bool {
    let rest = &bytes[(found.end as usize).min(bytes.len())..];
    match Header::parse(rest) {
        Some(header) => header.number <= number,
        None => rest.iter().take(BLOCK as usize).all(|byte| *byte == 0),
    }
}

/// The record behind those found, if it is there and whole.
fn next(key: &LogKey, bytes: &[u8], found: &Found, number: u64) -> Option<(Header, Record)> {
    let bytes = bytes.get(found.end as usize..)?;
    let header = Header::parse(bytes)?;
    let follows = header.number == number + 1 && header.before == found.last;
    let record = follows.then(|| open(key, bytes)).flatten()?;
    Some((header, record))
}
