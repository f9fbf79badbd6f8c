//! Keeping, for the newest snapshot, what a row was before its first change since.
//!
//! A row that is younger than the snapshot is not kept, nor is one that is kept already: the tables' keys see to it.

use super::State;
use super::changes::LOG_PER_CHANGE;
use super::rows::{self, to_sql};
use super::schema::past;
use crate::{Change, InodeNo, Result};

/// Rough bytes of log for a row that changes its snapshot: rows are moved in the order of their keys, several in a page.
const MOVED_ROW: u64 = 1024;
/// Numbers remembered at most.
const REMEMBERED: usize = 4096;

impl State {
    /// Before an inode is put or removed. One that is put for the first time though its number is older than the snapshot is
    /// kept as absent.
    pub(super) fn keep_inode(&mut self, no: InodeNo) -> Result<()> {
        let Some(latest) = self.latest.filter(|latest| latest.has_inode(no)) else {
            return Ok(());
        };
        // A directory in use changes with each of its names.
        if self.kept_inodes.contains(&no) {
            return Ok(());
        }
        let before = self.inode(no)?.map(|inode| rows::past_inode_bytes(&inode));
        self.run(past::KEEP_INODE, (to_sql(no.0), to_sql(latest.no), before))?;
        if self.kept_inodes.len() >= REMEMBERED {
            self.kept_inodes.clear();
        }
        self.kept_inodes.insert(no);
        Ok(())
    }

    /// Before a name is pointed elsewhere, gets another name, or is removed; returns whether it is there.
    pub(super) fn keep_entry(&self, parent: i64, hash: i64, name: &[u8]) -> Result<bool> {
        let found = self.one(past::ENTRY_BY_NAME, (parent, hash, name), |row| {
            let cookie: u64 = rows::number(row, 0, "a cookie")?;
            Ok((cookie, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        let Some((cookie, inode, kind)) = found else {
            return Ok(false);
        };
        if let Some(latest) = self.latest.filter(|latest| latest.has_cookie(cookie)) {
            let (cookie, until) = (to_sql(cookie), to_sql(latest.no));
            self.run(
                past::KEEP_ENTRY,
                (parent, cookie, until, hash, name, inode, kind),
            )?;
        }
        Ok(true)
    }

    /// Before an attribute is set or removed.
    pub(super) fn keep_xattr(&self, inode: InodeNo, name: &[u8]) -> Result<()> {
        match self.latest.filter(|latest| latest.has_inode(inode)) {
            Some(latest) => self
                .run(past::KEEP_XATTR, (to_sql(inode.0), name, to_sql(latest.no)))
                .map(drop),
            None => Ok(()),
        }
    }

    /// Before all attributes of an inode are removed.
    pub(super) fn keep_xattrs(&self, inode: InodeNo) -> Result<()> {
        match self.latest.filter(|latest| latest.has_inode(inode)) {
            Some(latest) => self
                .run(past::KEEP_XATTRS, (to_sql(inode.0), to_sql(latest.no)))
                .map(drop),
            None => Ok(()),
        }
    }

    /// Rough bytes of log that changes need for the past, beside their own.
    pub(super) fn past_bytes(&self, changes: &[Change<'_>]) -> Result<u64> {
        let Some(latest) = self.latest else {
            return Ok(0);
        };
        let mut bytes = 0;
        for change in changes {
            bytes += match *change {
                Change::DeleteInode(no) | Change::PutXattr { inode: no, .. }
                    if latest.has_inode(no) =>
                {
                    let values = self.one(past::XATTR_BYTES, [to_sql(no.0)], |row| {
                        rows::number::<u64>(row, 0, "the bytes of attributes")
                    })?;
                    LOG_PER_CHANGE + values.unwrap_or(0)
                }
                Change::PutInode(inode)
                    if latest.has_inode(inode.no) && !self.kept_inodes.contains(&inode.no) =>
                {
                    LOG_PER_CHANGE
                }
                Change::RenameEntry { .. } | Change::RemoveEntry { .. } => LOG_PER_CHANGE,
                Change::MergePast { no, limit } => self.bytes_until(no, limit)?,
                // Mostly a new name, of which nothing is kept.
                _ => 0,
            };
        }
        Ok(bytes)
    }

    /// The same, of moving up to `limit` rows to another snapshot.
    fn bytes_until(&self, no: u64, limit: u32) -> Result<u64> {
        let mut bytes = 0;
        for sql in [past::INODES_UNTIL, past::ENTRIES_UNTIL] {
            let rows = self.all(sql, (to_sql(no), limit), |_| Ok(()))?;
            bytes += rows.len() as u64 * MOVED_ROW;
        }
        let values = self.all(past::XATTRS_UNTIL, (to_sql(no), limit), |row| {
            rows::number::<u64>(row, 2, "the bytes of an attribute")
        })?;
        Ok(bytes + values.iter().map(|value| MOVED_ROW + value).sum::<u64>())
    }
}
