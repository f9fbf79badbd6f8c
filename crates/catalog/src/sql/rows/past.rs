//! The rows of snapshots.

use rusqlite::Row;

use super::{blob, bytes, damaged, number, time};
use crate::{
    FileFlags, Inode, InodeNo, KeptChunk, KeptRow, Result, Snapshot, SnapshotRow, SpaceRow,
};
use rusqlite::types::ValueRef;

/// A snapshot from the columns of its table.
pub(in crate::sql) fn snapshot(row: &Row<'_>) -> Result<SnapshotRow> {
    let flag = |column, what| match row.get::<_, i64>(column)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(damaged(format!("{what} is {other}"))),
    };
    let snapshot = Snapshot {
        number: number(row, 0, "a snapshot's number")?,
        name: row.get(1)?,
        created: time(row, 2)?,
        automatic: flag(4, "whether a snapshot is automatic")?,
    };
    if snapshot.number == 0 || model::check_snapshot_name(&snapshot.name).is_err() {
        return Err(damaged(format!(
            "snapshot {} has a name of {} bytes that it cannot have",
            snapshot.number,
            snapshot.name.len()
        )));
    }
    Ok(SnapshotRow {
        snapshot,
        doomed: flag(5, "whether a snapshot is deleted")?,
        next_inode: InodeNo(number(row, 6, "an inode number")?),
        next_cookie: number(row, 7, "a cookie")?,
    })
}

/// The stored form of an inode in the past: as in the log.
pub(in crate::sql) fn past_inode_bytes(inode: &Inode) -> Vec<u8> {
    // A vector takes everything; no inode fails to encode.
    postcard::to_extend(inode, Vec::with_capacity(96)).expect("an inode can be encoded")
}

/// An inode in the past, from one column; `None` where there was none.
pub(in crate::sql) fn past_inode(
    row: &Row<'_>,
    column: usize,
    no: InodeNo,
) -> Result<Option<Inode>> {
    if row.get_ref(column)? == ValueRef::Null {
        return Ok(None);
    }
    let bytes = blob(row, column, "an inode in a snapshot")?;
    let inode = postcard::take_from_bytes::<Inode>(bytes)
        .ok()
        .filter(|(inode, rest)| rest.is_empty() && inode.no == no && is_sound(inode));
    match inode {
        Some((inode, _)) => Ok(Some(inode)),
        None => Err(damaged(format!(
            "inode {} in a snapshot is malformed",
            no.0
        ))),
    }
}

fn is_sound(inode: &Inode) -> bool {
    let times = [inode.atime, inode.mtime, inode.ctime, inode.btime];
    let numbers = [inode.size, inode.blocks, inode.parent.0];
    inode.no.0 != 0
        && inode.mode <= 0o7777
        && FileFlags::from_bits(inode.flags.bits()).is_some()
        && times.iter().all(|time| time.nanos < super::NANOS)
        && numbers.iter().all(|number| *number <= i64::MAX as u64)
}

/// An attribute's value in the past; `None` where it was absent.
pub(in crate::sql) fn past_value(row: &Row<'_>, column: usize) -> Result<Option<Vec<u8>>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => bytes(row, column, "an attribute's value").map(Some),
    }
}

/// A kept chunk, from one column.
pub(in crate::sql) fn kept(row: &Row<'_>, column: usize) -> Result<KeptChunk> {
    kept_map(blob(row, column, "a kept chunk")?)
}

/// A kept chunk from its stored form.
pub(in crate::sql) fn kept_map(map: &[u8]) -> Result<KeptChunk> {
    let kept = KeptChunk::decode(map).map_err(damaged)?;
    match kept.is_empty() {
        true => Err(damaged("a kept chunk covers nothing")),
        false => Ok(kept),
    }
}

/// A kept chunk with its key, from the columns of its table.
pub(in crate::sql) fn kept_row(row: &Row<'_>) -> Result<KeptRow> {
    Ok(KeptRow {
        inode: InodeNo(number(row, 0, "a chunk's inode")?),
        index: number(row, 1, "a chunk's index")?,
        until: number(row, 2, "a snapshot")?,
        kept: kept(row, 3)?,
    })
}

/// A count of kept blocks.
pub(in crate::sql) fn space(row: &Row<'_>) -> Result<SpaceRow> {
    Ok(SpaceRow {
        since: number(row, 0, "a snapshot")?,
        until: number(row, 1, "a snapshot")?,
        blocks: row.get(2)?,
    })
}
