//! The list of snapshots, and their creation and deletion.
//!
//! 1. The list in memory is the table. It can be looked at without the catalog's lock, and changes under it.
//! 2. What cannot be done is refused before the first statement of its operation.
//! 3. A deleted snapshot stays in the list as long as anything is kept for it. Its rows go to the snapshot before, which may
//!    be deleted too, where that needs them: because the row existed at that time, and is not kept for it already.
//! 4. The account of space names no deleted snapshot as the one after which blocks were written.

use std::sync::Arc;

use parking_lot::RwLock;

use super::State;
use super::rows::{self, damaged, to_sql};
use super::schema::{self, past};
use crate::{Change, InodeNo, Result, Snapshot, SnapshotRow, Timestamp, latest};

/// The snapshots by number, shared between the catalog and its state.
#[derive(Debug, Clone, Default)]
pub(super) struct SnapshotList(Arc<RwLock<Arc<Vec<SnapshotRow>>>>);

impl SnapshotList {
    pub(super) fn get(&self) -> Arc<Vec<SnapshotRow>> {
        self.0.read().clone()
    }
}

/// What decides whether a snapshot sees a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) no: u64,
    next_inode: InodeNo,
    pub(super) next_cookie: u64,
}

impl Moment {
    pub(super) fn of(row: &SnapshotRow) -> Self {
        Self {
            no: row.no(),
            next_inode: row.next_inode,
            next_cookie: row.next_cookie,
        }
    }

    /// Whether the inode had its number then. One that was stored later is kept as absent.
    pub(super) fn has_inode(&self, no: InodeNo) -> bool {
        no < self.next_inode
    }

    /// Inodes from this number on are younger.
    pub(super) fn next_inode(&self) -> InodeNo {
        self.next_inode
    }

    pub(super) fn has_cookie(&self, cookie: u64) -> bool {
        cookie < self.next_cookie
    }
}

/// The highest number of a snapshot that is not deleted, up to `no`; 0 where there is none.
pub(super) fn living(list: &[SnapshotRow], no: u64) -> u64 {
    let older = &list[..list.partition_point(|row| row.no() <= no)];
    let living = older.iter().rev().find(|row| !row.doomed);
    living.map_or(0, SnapshotRow::no)
}

impl State {
    /// Reads the list, at opening.
    pub(super) fn find_snapshots(&mut self) -> Result<()> {
        let Some(last) = self.meta(past::META_SNAPSHOTS)? else {
            return Ok(());
        };
        let last = last
            .try_into()
            .map_err(|_| damaged("the number of the last snapshot is not eight bytes"))?;
        self.last_snapshot = u64::from_le_bytes(last);
        let list = self.all(past::SNAPSHOTS, (), rows::snapshot)?;
        let newest = list.last().map_or(0, SnapshotRow::no);
        if self.last_snapshot > i64::MAX as u64 || newest > self.last_snapshot {
            return Err(damaged(format!(
                "snapshot {newest} is newer than the last one, {}",
                self.last_snapshot
            )));
        }
        self.put_list(list);
        Ok(())
    }

    fn put_list(&mut self, list: Vec<SnapshotRow>) {
        self.latest = latest(&list).map(Moment::of);
        self.kept_inodes.clear();
        *self.snapshots.0.write() = Arc::new(list);
    }

    /// Whether there are tables of snapshots.
    pub(super) fn has_past(&self) -> bool {
        self.last_snapshot > 0
    }

    pub(super) fn new_snapshot(
        &self,
        name: &str,
        created: Timestamp,
        automatic: bool,
        next_inode: InodeNo,
    ) -> SnapshotRow {
        SnapshotRow {
            snapshot: Snapshot {
                number: self.last_snapshot + 1,
                name: name.to_owned(),
                created,
                automatic,
            },
            doomed: false,
            next_inode,
            next_cookie: self.next_cookie,
        }
    }

    /// Refuses an operation whose changes of snapshots do not fit what there is.
    pub(super) fn check_snapshots(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut list = self.snapshots.get();
        let found = |list: &[SnapshotRow], no: u64, doomed: bool| -> Result<usize> {
            match list.binary_search_by_key(&no, SnapshotRow::no) {
                Ok(index) if list[index].doomed == doomed => Ok(index),
                Ok(_) if doomed => Err(damaged(format!("snapshot {no} is not deleted"))),
                _ => Err(crate::CatalogError::NoSnapshot(no)),
            }
        };
        let name_fits = |list: &[SnapshotRow], name: &str| -> Result<()> {
            let is_taken = list
                .iter()
                .any(|row| !row.doomed && row.snapshot.name == name);
            if is_taken || model::check_snapshot_name(name).is_err() {
                return Err(damaged("a snapshot would get a name that it cannot have"));
            }
            Ok(())
        };
        for change in changes {
            match *change {
                Change::CreateSnapshot(row) => {
                    name_fits(&list, &row.snapshot.name)?;
                    if changes.len() > 1
                        || row.no() <= self.last_snapshot
                        || row.next_cookie != self.next_cookie
                        || self.highest_inode()? >= row.next_inode
                        || row.doomed
                    {
                        return Err(damaged(format!(
                            "snapshot {} is not of the catalog as it is",
                            row.no()
                        )));
                    }
                }
                Change::RenameSnapshot { no, name } => {
                    let index = found(&list, no, false)?;
                    let list = Arc::make_mut(&mut list);
                    list[index].snapshot.name.clear();
                    name_fits(list, name)?;
                    name.clone_into(&mut list[index].snapshot.name);
                }
                Change::DoomSnapshot(no) => {
                    let index = found(&list, no, false)?;
                    Arc::make_mut(&mut list)[index].doomed = true;
                }
                Change::DropSnapshot(no) | Change::MergePast { no, .. } => {
                    found(&list, no, true)?;
                }
                Change::KeepChunk { until, .. }
                | Change::EditKept { until, .. }
                | Change::CountSpace { until, .. }
                    if list.binary_search_by_key(&until, SnapshotRow::no).is_err() =>
                {
                    return Err(crate::CatalogError::NoSnapshot(until));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn highest_inode(&self) -> Result<InodeNo> {
        let highest = self.one(schema::LAST_INODE, (), |row| {
            rows::number(row, 0, "an inode number")
        })?;
        Ok(InodeNo(highest.unwrap_or(0)))
    }

    pub(super) fn create_snapshot(&mut self, row: &SnapshotRow) -> Result<()> {
        if !self.has_past() {
            self.conn.execute_batch(past::TABLES)?;
            self.raise_version(schema::SNAPSHOTS_VERSION)?;
            // A record of it would follow a commit whose version does not say what the record holds.
            self.pending.lose();
        }
        let SnapshotRow {
            snapshot,
            next_inode,
            next_cookie,
            ..
        } = row;
        self.run(
            past::INSERT_SNAPSHOT,
            (
                to_sql(snapshot.number),
                &snapshot.name,
                snapshot.created.secs,
                snapshot.created.nanos,
                snapshot.automatic,
                to_sql(next_inode.0),
                to_sql(*next_cookie),
            ),
        )?;
        let last = snapshot.number.to_le_bytes();
        self.run(schema::PUT_META, (past::META_SNAPSHOTS, &last[..]))?;
        self.last_snapshot = snapshot.number;
        let before = self.latest.map_or(0, |latest| latest.no);
        let mut list = (*self.snapshots.get()).clone();
        list.push(row.clone());
        self.put_list(list);
        self.births.get_mut().created(before);
        Ok(())
    }

    pub(super) fn rename_snapshot(&mut self, no: u64, name: &str) -> Result<()> {
        self.run(past::RENAME_SNAPSHOT, (to_sql(no), name))?;
        self.changed_list(|list| {
            for row in list.iter_mut().filter(|row| row.no() == no) {
                name.clone_into(&mut row.snapshot.name);
            }
        });
        Ok(())
    }

    pub(super) fn doom_snapshot(&mut self, no: u64) -> Result<()> {
        self.run(past::DOOM_SNAPSHOT, [to_sql(no)])?;
        self.changed_list(|list| {
            for row in list.iter_mut().filter(|row| row.no() == no) {
                row.doomed = true;
            }
        });
        let before = living(&self.snapshots.get(), no);
        self.write_space()?;
        let counts = self.all(past::SPACE_SINCE, [to_sql(no)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        self.run(past::DROP_SPACE_SINCE, [to_sql(no)])?;
        for (until, blocks) in counts {
            self.put_space(to_sql(before), until, blocks)?;
        }
        Ok(())
    }

    /// Removes the row of a deleted snapshot, if nothing is kept for it.
    pub(super) fn drop_snapshot(&mut self, no: u64) -> Result<()> {
        self.write_kept()?;
        let until = to_sql(no);
        let mut is_needed = self
            .one(past::ANY_CHUNK_UNTIL, [until], |_| Ok(()))?
            .is_some();
        for sql in [past::INODES_UNTIL, past::ENTRIES_UNTIL, past::XATTRS_UNTIL] {
            is_needed = is_needed || self.one(sql, (until, 1), |_| Ok(()))?.is_some();
        }
        if !is_needed {
            self.run(past::DELETE_SNAPSHOT, [until])?;
            self.changed_list(|list| list.retain(|row| row.no() != no));
        }
        Ok(())
    }

    /// Changes what there was: not for a new one.
    fn changed_list(&mut self, change: impl FnOnce(&mut Vec<SnapshotRow>)) {
        self.births.get_mut().clear();
        let mut list = (*self.snapshots.get()).clone();
        change(&mut list);
        self.put_list(list);
    }

    /// One step of a deletion: up to `limit` rows.
    pub(super) fn merge_past(&mut self, no: u64, limit: u32) -> Result<()> {
        let list = self.snapshots.get();
        let before = list.iter().rev().find(|row| row.no() < no).map(Moment::of);
        let (until, mut left) = (to_sql(no), i64::from(limit));

        let inodes = self.all(past::INODES_UNTIL, (until, left), |row| {
            rows::number(row, 0, "an inode number").map(InodeNo)
        })?;
        for no in &inodes {
            let key = to_sql(no.0);
            let moved = match before.filter(|before| before.has_inode(*no)) {
                Some(before) => self.run(past::MOVE_INODE, (key, until, to_sql(before.no)))?,
                None => 0,
            };
            if moved == 0 {
                self.run(past::DROP_INODE, (key, until))?;
            }
        }
        left -= inodes.len() as i64;

        let entries = self.all(past::ENTRIES_UNTIL, (until, left), |row| {
            let parent: u64 = rows::number(row, 0, "an entry's directory")?;
            Ok((parent, rows::number(row, 1, "a cookie")?))
        })?;
        for (parent, cookie) in &entries {
            let (parent, key) = (to_sql(*parent), to_sql(*cookie));
            let moved = match before.filter(|before| before.has_cookie(*cookie)) {
                Some(before) => {
                    self.run(past::MOVE_ENTRY, (parent, key, until, to_sql(before.no)))?
                }
                None => 0,
            };
            if moved == 0 {
                self.run(past::DROP_ENTRY, (parent, key, until))?;
            }
        }
        left -= entries.len() as i64;

        let xattrs = self.all(past::XATTRS_UNTIL, (until, left), |row| {
            let inode = rows::number(row, 0, "an attribute's inode")?;
            Ok((InodeNo(inode), rows::bytes(row, 1, "an attribute's name")?))
        })?;
        for (inode, name) in &xattrs {
            let key = to_sql(inode.0);
            let moved = match before.filter(|before| before.has_inode(*inode)) {
                Some(before) => {
                    self.run(past::MOVE_XATTR, (key, name, until, to_sql(before.no)))?
                }
                None => 0,
            };
            if moved == 0 {
                self.run(past::DROP_XATTR, (key, name, until))?;
            }
        }
        Ok(())
    }
}
