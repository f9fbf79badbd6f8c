//! What a deleted snapshot alone holds goes, and the rest to the snapshot before it.
//!
//! Each step is bounded and whole: the catalog's rows, the counts of shared units and the account of space change together.

use catalog::{Change, KeptChunk, KeptRow, SnapshotRow};

use super::Past;
use crate::data::CHUNK_END;
use crate::history;
use crate::{Error, Result};

/// Chunks handled in one step.
const CHUNKS: usize = 32;
/// The same while nobody makes changes.
const CHUNKS_AT_REST: usize = 256;
/// Rows of other kinds handled in one step.
const ROWS: u32 = 1024;

impl Past {
    /// Whether a deleted snapshot still holds anything.
    pub(crate) fn has_deleted(&self) -> bool {
        self.catalog.get().snapshots().iter().any(|row| row.doomed)
    }

    /// Goes on until nothing of deleted snapshots is left.
    pub(crate) fn delete_all(&self) -> Result<()> {
        while self.delete_some()? {}
        Ok(())
    }

    /// One bounded step; false where nothing is left to do, or nothing may be done now.
    pub(crate) fn delete_some(&self) -> Result<bool> {
        if self.env.options.read_only || self.commits.in_transaction() {
            return Ok(false);
        }
        let _one = self.deleting.lock();
        let snapshots = self.catalog.get().snapshots();
        let Some(at) = snapshots.iter().position(|row| row.doomed) else {
            return Ok(false);
        };
        let row = &snapshots[at];
        let before = at.checked_sub(1).map(|at| &snapshots[at]);
        let chunks = self.catalog.get().kept_until(row.no(), None, CHUNKS)?;
        let is_newest = at + 1 == snapshots.len();
        if chunks.len() == CHUNKS || (!is_newest && !chunks.is_empty()) {
            for chunk in &chunks {
                let _change = self.commits.change()?;
                self.merge_chunk(chunk, before)?;
            }
            return Ok(true);
        }
        if !is_newest {
            let _change = self.commits.change()?;
            self.merge_rows(row.no())?;
            return Ok(true);
        }
        // Changes still keep something for the newest one: the last step must see all of it.
        self.commits.at_rest(|| {
            self.commits.note_change();
            let mut left = self
                .catalog
                .get()
                .kept_until(row.no(), None, CHUNKS_AT_REST + 1)?;
            let all = left.len() <= CHUNKS_AT_REST;
            left.truncate(CHUNKS_AT_REST);
            for chunk in &left {
                self.merge_chunk(chunk, before)?;
            }
            if all {
                self.merge_rows(row.no())?;
                // Another one may be the newest now.
                self.data.note_snapshots();
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Merges rows of other kinds, and with the last of them removes the snapshot.
    fn merge_rows(&self, no: u64) -> Result<()> {
        let changes = [
            Change::MergePast { no, limit: ROWS },
            // Has no effect as long as anything is left.
            Change::DropSnapshot(no),
        ];
        self.catalog.get().apply(&changes)?;
        Ok(())
    }

    /// Merges what is kept of one chunk into what is kept for the snapshot before. Within a change.
    fn merge_chunk(&self, row: &KeptRow, before: Option<&SnapshotRow>) -> Result<()> {
        let (no, index, until) = (row.inode, row.index, row.until);
        let cell = match self.data.cell(no) {
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        let mut state = cell.as_ref().map(|cell| cell.state.write());
        let _past = self.data.change_past();
        let mut history = self.data.history(no, index, state.as_deref())?;
        let Some(kept) = history.kept.remove(&until) else {
            return Ok(());
        };
        let held_before = {
            let mut with = history.clone();
            with.kept.insert(until, kept.clone());
            with.held()
        };
        let before = before.filter(|row| no < row.next_inode);
        let nothing = KeptChunk::default();
        let mut changes = vec![Change::KeepChunk {
            inode: no,
            index,
            until,
            kept: &nothing,
        }];
        let merged;
        let released = match before {
            None => kept.clone().rewrite(0, CHUNK_END, &[]),
            Some(before) => {
                let earlier = history.kept.entry(before.no()).or_default();
                let released = earlier.absorb(&kept).released;
                merged = earlier.clone();
                changes.push(Change::KeepChunk {
                    inode: no,
                    index,
                    until: before.no(),
                    kept: &merged,
                });
                released
            }
        };
        let held = history::difference(&held_before, &history.held());
        let key = (no, index, until);
        self.data
            .put_kept(key, state.as_deref_mut(), changes, held)?;
        self.blocks.discard(&released)
    }
}
