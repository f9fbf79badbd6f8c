//! What a deleted snapshot alone holds goes, and the rest to the snapshot before it.
//!
//! 1. Each step is bounded and whole: the catalog's rows, the counts of shared units and the account of space change together.
//! 2. A chunk that several deleted snapshots keep something of is handled once for all of them: its account is counted from all its
//!    rows, which takes longer than moving one.

use std::collections::BTreeMap;

use catalog::{Change, KeptChunk, KeptRow, SnapshotRow};
use parking_lot::MutexGuard;

use super::Past;
use crate::data::CHUNK_END;
use crate::history;
use crate::{Error, Result};

/// Chunks handled in one step.
const CHUNKS: usize = 32;
/// Deleted snapshots for which a chunk is handled at once.
const SNAPSHOTS: usize = 64;
/// Chunks handled in one step while nobody makes changes.
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
    fn delete_some(&self) -> Result<bool> {
        self.step(&self.deleting.lock())
    }

    /// The same, but `None` instead of a wait for somebody who [holds them still](Self::hold_still), perhaps for minutes.
    pub(crate) fn delete_some_now(&self) -> Option<Result<bool>> {
        Some(self.step(&self.deleting.try_lock()?))
    }

    fn step(&self, _one: &MutexGuard<'_, ()>) -> Result<bool> {
        if self.env.options.read_only || self.commits.in_transaction() {
            return Ok(false);
        }
        let snapshots = self.catalog.get().snapshots();
        let Some(at) = snapshots.iter().position(|row| row.doomed) else {
            return Ok(false);
        };
        let row = &snapshots[at];
        let chunks = self.catalog.get().kept_until(row.no(), None, CHUNKS)?;
        let is_newest = at + 1 == snapshots.len();
        // The newest one is merged by itself: changes may still keep something for it.
        let end = snapshots.len() - usize::from(!is_newest);
        if chunks.len() == CHUNKS || (!is_newest && !chunks.is_empty()) {
            for chunk in &chunks {
                let _change = self.commits.change()?;
                self.merge_chunk(chunk, &snapshots[..end])?;
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
                self.merge_chunk(chunk, &snapshots[..end])?;
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

    /// Merges what is kept of one chunk for those of `snapshots` that are deleted, from that of `row` on, into what is kept for the
    /// ones before that are not. Within a change.
    fn merge_chunk(&self, row: &KeptRow, snapshots: &[SnapshotRow]) -> Result<()> {
        let (no, index) = (row.inode, row.index);
        let cell = match self.data.cell(no) {
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        let mut state = cell.as_ref().map(|cell| cell.state.write());
        let _past = self.data.change_past();
        let mut history = self.data.history(no, index, state.as_deref())?;
        let held_before = history.held();
        let (mut merged, mut released) = (BTreeMap::new(), Vec::new());
        // The oldest first: what it covers hides what the others have.
        let mut before = None;
        for snapshot in snapshots {
            let until = snapshot.no();
            if !snapshot.doomed {
                // One that does not know the file needs nothing of it.
                before = (no < snapshot.next_inode).then_some(until);
            } else if until >= row.until
                && merged.len() < 2 * SNAPSHOTS
                && let Some(kept) = history.kept.remove(&until)
            {
                merged.insert(until, KeptChunk::default());
                match before {
                    None => released.extend(kept.clone().rewrite(0, CHUNK_END, &[])),
                    Some(before) => {
                        let earlier = history.kept.entry(before).or_default();
                        released.extend(earlier.absorb(&kept).released);
                        merged.insert(before, earlier.clone());
                    }
                }
            }
        }
        let changes = merged
            .iter()
            .map(|(until, kept)| Change::keep_chunk(no, index, *until, kept));
        let held = history::difference(&held_before, &history.held());
        let key = (no, index, row.until);
        self.data
            .put_kept(key, state.as_deref_mut(), changes.collect(), held)?;
        self.blocks.discard(&released)
    }
}
