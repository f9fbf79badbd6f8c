//! The log in front of the catalog: sealed records of what was applied since the catalog's last commit.
//!
//! 1. A record is a value: a number, the changes of one moment, sealed units they refer to. Its bytes say nothing of where
//!    they are stored, so that another place than [`file`] can keep them.
//! 2. Records are numbered with the catalog's generations: the first after a commit of generation `g` has `g + 1`, and the
//!    next commit has the number behind the last one. A number is never used again, so what is left of earlier records is
//!    known by it.
//! 3. Each record names the one before it by its tag; the first names the commit it follows by the commit's anchor, 16
//!    random bytes in the catalog. So records of two histories do not go together.
//! 4. A record that fails authentication ends the log, unless a later one does not: then the log is damaged.

mod entry;
pub(crate) mod file;
mod sealed;

use segments::SealedUnits;

use crate::{Change, InodeNo};

pub(crate) use entry::{EntryMap, Replayed, changes};
pub(crate) use sealed::{HEADER_LEN, Header, open, seal};

/// Bytes of encoded changes that one record holds at most: what is more is committed.
const CHANGES_MAX: usize = 1 << 20;
/// Bytes before the changes in a record's body: the next inode number, the length of the changes.
const BODY_FIXED: usize = 12;

/// Names the record before, or the commit.
pub(crate) type Link = [u8; 16];

/// What was applied since the last record, encoded.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The beginning of a record: place for its header and the fixed part of its body, then the changes.
    bytes: Vec<u8>,
    /// More came than a record holds.
    overflowed: bool,
    /// What is applied comes from a record.
    replaying: bool,
}

impl Pending {
    pub(crate) fn replaying(&mut self, replaying: bool) {
        self.replaying = replaying;
    }

    /// Notes changes that were applied, each with what its entry has of its map.
    pub(crate) fn note(&mut self, changes: &[Change<'_>], maps: &[EntryMap]) {
        self.add(|bytes| entry::put(bytes, changes, maps));
    }

    /// Notes a named value that was set.
    pub(crate) fn note_meta(&mut self, key: &str, value: &[u8]) {
        self.add(|bytes| entry::put_meta(bytes, key, value));
    }

    fn add(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if self.overflowed || self.replaying {
            return;
        }
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_LEN + BODY_FIXED, 0);
        }
        put(&mut self.bytes);
        if self.bytes.len() > CHANGES_MAX {
            self.lose();
        }
    }

    /// A record that was taken is lost: only a commit makes durable what it held.
    pub(crate) fn lose(&mut self) {
        self.overflowed = true;
        self.bytes = Vec::new();
    }

    /// Whether nothing was applied since the last record or commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.overflowed
    }

    /// A commit has made all of it durable.
    pub(crate) fn clear(&mut self) {
        self.overflowed = false;
        self.bytes.clear();
        self.bytes.shrink_to(64 << 10);
    }

    /// Bytes of the record that holds it with `units`; `None` where no record does.
    pub(crate) fn record_len(&self, units: &[SealedUnits]) -> Option<usize> {
        let units = units.iter().map(|u| UNIT_FIXED + u.bytes.len());
        (!self.overflowed).then(|| self.bytes.len() + units.sum::<usize>())
    }

    /// Takes it as a record that is not sealed yet.
    pub(crate) fn take(&mut self, next_inode: u64, units: &[SealedUnits]) -> Vec<u8> {
        let mut record = std::mem::take(&mut self.bytes);
        record.resize(record.len().max(HEADER_LEN + BODY_FIXED), 0);
        let len = (record.len() - HEADER_LEN - BODY_FIXED) as u32;
        let fixed = &mut record[HEADER_LEN..];
        fixed[..8].copy_from_slice(&next_inode.to_le_bytes());
        fixed[8..BODY_FIXED].copy_from_slice(&len.to_le_bytes());
        for unit in units {
            record.extend_from_slice(&unit.segment.0.to_le_bytes());
            record.extend_from_slice(&unit.position.to_le_bytes());
            record.extend_from_slice(&(unit.bytes.len() as u32).to_le_bytes());
            record.extend_from_slice(&unit.bytes);
        }
        record
    }

    /// Keeps the memory of a record for the next one.
    pub(crate) fn reuse(&mut self, mut record: Vec<u8>) {
        if self.bytes.is_empty() {
            record.clear();
            record.shrink_to(256 << 10);
            self.bytes = record;
        }
    }
}

/// Bytes before the data of sealed units: segment, position, length.
const UNIT_FIXED: usize = 16;

/// A record as it was read.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) next_inode: InodeNo,
    body: Vec<u8>,
    changes_len: usize,
}

impl Record {
    /// Takes the body of a record apart.
    fn parse(number: u64, body: Vec<u8>) -> Option<Self> {
        let fixed: &[u8; BODY_FIXED] = body.first_chunk()?;
        let next_inode = u64::from_le_bytes(*fixed.first_chunk()?);
        let changes_len = u32::from_le_bytes(*fixed.last_chunk()?) as usize;
        body.len()
            .checked_sub(BODY_FIXED)?
            .checked_sub(changes_len)?;
        Some(Self {
            number,
            next_inode: InodeNo(next_inode),
            body,
            changes_len,
        })
    }

    /// The encoded changes.
    pub(crate) fn changes(&self) -> &[u8] {
        &self.body[BODY_FIXED..][..self.changes_len]
    }

    /// The sealed units; `None` where the bytes are none.
    pub(crate) fn units(&self) -> Option<Vec<SealedUnits>> {
        let mut bytes = &self.body[BODY_FIXED + self.changes_len..];
        let mut units = Vec::new();
        while !bytes.is_empty() {
            let segment = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
            let position = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
            let len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
            units.push(SealedUnits {
                segment: segments::SegmentNo(segment),
                position,
                bytes: bytes.split_off(..len as usize)?.to_vec(),
            });
        }
        Some(units)
    }
}
