//! The contents of a file: blocks by number, zeros where there is none.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::{Container, Entry, EntryKind};
use crate::{Error, Result};

/// How many blocks one answer of [`Container::next_data`] spans at most: no more rows than this are looked at for it.
const RUN: u64 = 4096;

impl Container {
    /// Reads up to `buf.len()` bytes of a file at `offset`; fewer only at its end. What is no file has none.
    pub fn read_at(&self, entry: &Entry, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.database
            .checked(|connection| read_blocks(connection, entry, buf, offset))
    }

    /// The next range of a file, at or after `offset`, that has blocks: first byte and end, which another can follow at once.
    /// `None`: only holes follow.
    pub fn next_data(&self, entry: &Entry, offset: u64) -> Result<Option<(u64, u64)>> {
        self.database
            .checked(|connection| next_blocks(connection, entry, offset))
    }
}

fn read_blocks(
    connection: &Connection,
    entry: &Entry,
    buf: &mut [u8],
    offset: u64,
) -> Result<usize> {
    let EntryKind::File { size, block } = entry.kind else {
        return Ok(0);
    };
    let len = usize::try_from(size.saturating_sub(offset))
        .unwrap_or(usize::MAX)
        .min(buf.len());
    let buf = &mut buf[..len];
    if len == 0 {
        return Ok(0);
    }
    buf.fill(0);
    let end = offset + len as u64;
    let (first, last) = match block {
        0 => (0, 0),
        block => (offset / block, (end - 1) / block),
    };
    let mut query = connection.prepare_cached(
            "SELECT block_no, data_block FROM value_data WHERE key = ?1 AND block_no BETWEEN ?2 AND ?3 ORDER BY block_no",
        )?;
    let mut rows = query.query(params![entry.key, first as i64, last as i64])?;
    let mut before = None;
    while let Some(row) = rows.next()? {
        let no = number(row.get_ref(0)?)?;
        if before.replace(no) == Some(no) {
            return Err(Error::Damaged(format!("block {no} is there twice")));
        }
        let stored = match row.get_ref(1)? {
            ValueRef::Blob(stored) | ValueRef::Text(stored) => stored,
            ValueRef::Null => &[],
            _ => return Err(Error::Damaged(format!("block {no} is a number"))),
        };
        if block != 0 && stored.len() as u64 > block {
            return Err(Error::Damaged(format!(
                "block {no} has {} bytes, and its file blocks of {block}",
                stored.len()
            )));
        }
        let starts = no * block;
        // The part of the block within the range.
        let from = offset.max(starts);
        let to = end.min(starts + stored.len() as u64);
        if from < to {
            let piece = &stored[(from - starts) as usize..(to - starts) as usize];
            let at = (from - offset) as usize;
            buf[at..at + piece.len()].copy_from_slice(piece);
        }
    }
    Ok(len)
}

fn next_blocks(connection: &Connection, entry: &Entry, offset: u64) -> Result<Option<(u64, u64)>> {
    let EntryKind::File { size, block } = entry.kind else {
        return Ok(None);
    };
    if offset >= size {
        return Ok(None);
    }
    let mut query = connection.prepare_cached(
        "SELECT block_no FROM value_data WHERE key = ?1 AND block_no >= ?2 ORDER BY block_no",
    )?;
    let wanted = offset.checked_div(block).unwrap_or(0);
    let mut rows = query.query(params![entry.key, wanted as i64])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let first = number(row.get_ref(0)?)?;
    if block == 0 {
        // Without a length of blocks, only the first has a place.
        let more = rows.next()?.is_some();
        return if first == 0 && !more {
            Ok(Some((offset, size)))
        } else {
            Err(Error::Damaged(
                "it has blocks, and does not say how long they are".into(),
            ))
        };
    }
    let mut next = first.saturating_add(1);
    while next - first < RUN {
        match rows.next()? {
            Some(row) if number(row.get_ref(0)?)? == next => next += 1,
            _ => break,
        }
    }
    let start = first.saturating_mul(block).max(offset);
    let end = next.saturating_mul(block).min(size);
    Ok((start < end).then_some((start, end)))
}

/// A block's number.
fn number(value: ValueRef<'_>) -> Result<u64> {
    match value {
        // Up to here, times the largest block, a position is still a number of 64 bits.
        ValueRef::Integer(no @ 0..=0x7F_FFFF_FFFF) => Ok(no as u64),
        _ => Err(Error::Damaged("a block has no number that can be".into())),
    }
}
