//! After which snapshots the blocks of a chunk were written.
//!
//! 1. What is kept of a chunk for older snapshots than the newest changes only with their deletion. So an answer is remembered, and
//!    the next one adds what was kept for the snapshots in between: otherwise every first change of a block would read rows of a
//!    hundred snapshots.
//! 2. Remembered is what the tables say: an entry goes with a change of a row that it was read from, and all go with a deletion.

use std::collections::HashMap;

use super::State;
use super::rows::{self, bound};
use super::schema::past;
use super::snapshots::living;
use crate::{Births, CHUNK_BLOCKS, InodeNo, Result, SnapshotRow};

/// Chunks remembered at most: 4 MiB.
const REMEMBERED: usize = 2048;

/// Answers, each with the snapshot before which all rows are in it.
#[derive(Debug, Default)]
pub(super) struct KnownBirths(HashMap<(InodeNo, u64), (u64, Box<Births>)>);

impl KnownBirths {
    /// What is kept of a chunk until a snapshot is about to change.
    pub(super) fn kept_changes(&mut self, chunk: (InodeNo, u64), until: u64) {
        if self.0.get(&chunk).is_some_and(|(end, _)| until < *end) {
            self.0.remove(&chunk);
        }
    }

    /// A snapshot was created. Makes room for others where chunks were not asked for since `before`, the newest one until now.
    pub(super) fn created(&mut self, before: u64) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, (end, _)| *end == before);
        }
    }

    /// A snapshot was deleted or removed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl State {
    pub(super) fn births(
        &self,
        inode: InodeNo,
        index: u64,
        until: u64,
        blocks: &[u16],
    ) -> Result<Births> {
        let list = self.snapshots.get();
        // The file itself is younger than the snapshots that do not have it.
        let younger = list
            .iter()
            .rev()
            .find(|row| row.no() < until && row.next_inode <= inode);
        let younger = younger.map_or(0, |row| living(&list, row.no()));
        let mut births = Births::after(younger);
        if !self.has_past() {
            return Ok(births);
        }
        let all = || (0..CHUNK_BLOCKS as u16).collect();
        let mut known = self.births.borrow_mut();
        // Later snapshots have the file too: none of them changes what was found.
        let lasts = list
            .binary_search_by_key(&until, SnapshotRow::no)
            .is_ok_and(|at| inode < list[at].next_inode);
        let remembered = known.0.get_mut(&(inode, index)).filter(|_| lasts);
        if let Some((end, births)) = remembered.filter(|(end, _)| *end <= until) {
            if *end < until {
                self.note_births(births, (inode, index), *end..until, &list, all())?;
                *end = until;
            }
            return Ok((**births).clone());
        }
        let remember = lasts && known.0.len() < REMEMBERED;
        let unknown = match remember {
            true => all(),
            false => blocks.to_vec(),
        };
        self.note_births(&mut births, (inode, index), 0..until, &list, unknown)?;
        if remember {
            let answer = (until, Box::new(births.clone()));
            known.0.insert((inode, index), answer);
        }
        Ok(births)
    }

    /// Adds what is kept of a chunk for a range of snapshots, from the newest down: the first that covers a block decides. Ends when
    /// all blocks in `unknown` are covered.
    fn note_births(
        &self,
        births: &mut Births,
        (inode, index): (InodeNo, u64),
        snapshots: std::ops::Range<u64>,
        list: &[SnapshotRow],
        mut unknown: Vec<u16>,
    ) -> Result<()> {
        let mut statement = self.statement(past::KEPT_BETWEEN)?;
        let (from, end) = (bound(snapshots.start), bound(snapshots.end));
        let mut rows = statement.query((bound(inode.0), bound(index), from, end))?;
        while !unknown.is_empty()
            && let Some(row) = rows.next()?
        {
            let since: u64 = rows::number(row, 0, "a snapshot")?;
            let kept = rows::covered(row, 1)?;
            births.note(&kept, living(list, since));
            unknown.retain(|block| !kept.covers(*block, 1));
        }
        Ok(())
    }
}
