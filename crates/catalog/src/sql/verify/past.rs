//! The form of the rows of snapshots, and that each belongs to one.

use std::fmt::Display;

use rusqlite::Row;

use super::super::rows::damaged;
use super::super::schema::past;
use super::super::snapshots::Moment;
use super::{State, each, rows};
use crate::{InodeNo, Result, SnapshotRow};

pub(super) fn findings(state: &State, found: &mut Vec<String>) {
    each(state, "snapshots", past::SNAPSHOTS, found, |row| {
        rows::snapshot(row).map(drop)
    });
    let list = state.snapshots.get();
    let moment = |row: &Row<'_>, column: usize, what: &dyn Display| -> Result<Moment> {
        let no: u64 = rows::number(row, column, "a snapshot")?;
        match list.binary_search_by_key(&no, SnapshotRow::no) {
            Ok(index) => Ok(Moment::of(&list[index])),
            Err(_) => Err(damaged(format!(
                "{what} is kept for snapshot {no}, which is not there"
            ))),
        }
    };
    let older = |row: &Row<'_>, until: usize, inode: InodeNo| -> Result<()> {
        let moment = moment(row, until, &format_args!("inode {}", inode.0))?;
        match moment.has_inode(inode) && inode.0 != 0 {
            true => Ok(()),
            false => Err(damaged(format!(
                "inode {} is kept for snapshot {}, which is older",
                inode.0, moment.no
            ))),
        }
    };
    each(
        state,
        "past inodes",
        "SELECT no, until, inode FROM past_inodes",
        found,
        |row| {
            let no = InodeNo(rows::number(row, 0, "an inode number")?);
            rows::past_inode(row, 2, no)?;
            older(row, 1, no)
        },
    );
    each(
        state,
        "past entries",
        "SELECT cookie, name, inode, kind, hash, until FROM past_entries",
        found,
        |row| {
            let entry = rows::entry(row, 0)?;
            let which = format!("the directory entry with cookie {}", entry.cookie);
            let moment = moment(row, 5, &which)?;
            if state.name_hash(&entry.name) != row.get::<_, i64>(4)? {
                return Err(damaged(format!("{which} has a wrong hash")));
            }
            match moment.has_cookie(entry.cookie) {
                true => Ok(()),
                false => Err(damaged(format!(
                    "{which} is kept for snapshot {}, which is older",
                    moment.no
                ))),
            }
        },
    );
    each(
        state,
        "past xattrs",
        "SELECT inode, name, until, value FROM past_xattrs",
        found,
        |row| {
            let inode = InodeNo(rows::number(row, 0, "an attribute's inode")?);
            let name = rows::blob(row, 1, "an attribute's name")?;
            if !(1..=255).contains(&name.len()) {
                return Err(damaged(format!(
                    "inode {} has an attribute with a name of {} bytes",
                    inode.0,
                    name.len()
                )));
            }
            rows::past_value(row, 3)?;
            older(row, 2, inode)
        },
    );
    each(
        state,
        "past chunks",
        "SELECT inode, idx, until, kept FROM past_chunks",
        found,
        |row| {
            let inode: u64 = rows::number(row, 0, "a chunk's inode")?;
            let index: u64 = rows::number(row, 1, "a chunk's index")?;
            let kept = rows::kept_row(row)
                .map_err(|error| damaged(format!("inode {inode}, chunk {index}: {error}")))?;
            if index >= 1 << 43 {
                return Err(damaged(format!(
                    "inode {inode}, chunk {index}: no such map can be"
                )));
            }
            older(row, 2, kept.inode)
        },
    );
    each(state, "snapshot space", past::SPACE, found, |row| {
        let space = rows::space(row)?;
        moment(row, 1, &format_args!("{} blocks", space.blocks))?;
        let is_after = list
            .binary_search_by_key(&space.since, SnapshotRow::no)
            .is_ok_and(|index| !list[index].doomed);
        if space.blocks <= 0 || space.since >= space.until || (space.since != 0 && !is_after) {
            return Err(damaged(format!(
                "{} blocks are counted after snapshot {} up to {}",
                space.blocks, space.since, space.until
            )));
        }
        Ok(())
    });
}
