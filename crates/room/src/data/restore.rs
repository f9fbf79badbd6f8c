//! Letting a file refer to what another one, or itself, held at a snapshot.
//!
//! Whatever refers to a unit already is marked as sharing it, and the count raised, before the file refers to it too.

use std::collections::HashSet;
use std::sync::Arc;

use catalog::{Change, Chunk, Extent, Inode, InodeNo};

use super::{CHUNK_END, Data};
use crate::history;
use crate::inodes::{Cell, State};
use crate::usage::Unit;
use crate::{Error, Result};

impl Data {
    /// An inode at a snapshot.
    pub(crate) fn past_inode(&self, at: u64, no: InodeNo) -> Result<Inode> {
        let inode = self.catalog.get().past_inode(at, no)?;
        inode.ok_or(Error::NotFound)
    }

    /// The indexes of up to `limit` chunks that are not empty at a snapshot, from `first` on.
    pub(crate) fn past_chunks(
        &self,
        at: u64,
        no: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<u64>> {
        let chunks = self.catalog.get().past_chunks_from(at, no, first, limit)?;
        Ok(chunks.into_iter().map(|(index, _)| index).collect())
    }

    /// Makes one chunk of a file refer to the units that a file's chunk referred to at a snapshot. `change` is made with the target's
    /// state locked. Within a change.
    pub(crate) fn restore_chunk(
        &self,
        at: u64,
        from: InodeNo,
        target: &Arc<Cell>,
        index: u64,
        change: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        let source = match self.cell(from) {
            _ if from == target.no => None,
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        // In the order of their numbers.
        let (mut source_state, mut state);
        match &source {
            Some(source) if from < target.no => {
                source_state = Some(source.state.write());
                state = target.state.write();
            }
            _ => {
                state = target.state.write();
                source_state = source.as_ref().map(|source| source.state.write());
            }
        }
        super::regular(&state)?;
        self.flush_buffer(target, &mut state)?;
        let past = self.change_past();
        let catalog = self.catalog.get();
        let then = catalog.past_chunk(at, from, index)?;
        let pieces: Vec<Extent> = then
            .extents()
            .iter()
            .cloned()
            .map(|e| Extent { shared: true, ..e })
            .collect();
        let wanted: HashSet<Unit> = history::units(&pieces).collect();
        // What refers to a unit that is not shared yet.
        if !then.extents().iter().all(|e| e.shared) {
            let (cell, own) = match (&source, &mut source_state) {
                (Some(source), Some(state)) => (Some(source), Some(&mut **state)),
                _ if from == target.no => (Some(target), Some(&mut *state)),
                _ => (None, None),
            };
            self.mark_referring(from, index, (cell, own), &wanted)?;
        }
        self.replace_by_shared(target, &mut state, index, 0, CHUNK_END, &pieces)?;
        // They stay without a snapshot.
        drop((past, source_state));
        change(&mut state)
    }

    /// Marks as shared what refers to these units of a chunk: its live map, and what is kept of it.
    fn mark_referring(
        &self,
        no: InodeNo,
        index: u64,
        (cell, mut state): (Option<&Arc<Cell>>, Option<&mut State>),
        units: &HashSet<Unit>,
    ) -> Result<()> {
        let unmarked = |chunk: &Chunk| -> Vec<(u16, u16)> {
            let extents = chunk.extents().iter();
            extents
                .filter(|e| {
                    !e.shared && history::units(&[(*e).clone()]).any(|u| units.contains(&u))
                })
                .map(|e| (e.first, e.blocks))
                .collect()
        };
        let history = self.history(no, index, state.as_deref())?;
        for (until, mut kept) in history.kept {
            let ranges = unmarked(kept.chunk());
            if ranges.is_empty() {
                continue;
            }
            for (first, blocks) in ranges {
                kept.mark_shared(first, blocks);
            }
            let change = Change::keep_chunk(no, index, until, &kept);
            let nothing = history::Held::new();
            self.put_kept(
                (no, index, until),
                state.as_deref_mut(),
                vec![change],
                nothing,
            )?;
        }
        if let (Some(cell), Some(state)) = (cell, state) {
            let ranges = unmarked(&*self.chunk(no, state, index)?);
            if !ranges.is_empty() {
                let chunk = self.changed_chunk(cell, state, index)?;
                for (first, blocks) in ranges {
                    chunk.mark_shared(first, blocks);
                }
                self.mark_dirty(cell);
            }
        }
        Ok(())
    }
}
