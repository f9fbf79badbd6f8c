//! Handing what is pending to the catalog.

use std::sync::Arc;

use catalog::{Change, Inode, InodeNo};
use parking_lot::RwLockWriteGuard;

use super::Commits;
use crate::accounts::Scope;
use crate::blocks::Blocks;
use crate::history;
use crate::inodes::{Cell, State};
use crate::layout::RESERVED;
use crate::{Error, Result};

/// Inodes whose rows are handed to the catalog at once.
const GROUP: usize = 64;
/// Chunks whose maps are handed to it at once.
const CHUNKS: usize = 128;
/// Behind the last chunk of any file.
const END: u64 = u64::MAX;

impl Commits {
    /// Writes pending changes to the catalog, what `accounts` says of segments last. The inner result says whether a
    /// buffer found no space.
    pub(crate) fn drain<T>(
        &self,
        scope: Scope,
        accounts: impl FnOnce(&Blocks) -> Result<T>,
    ) -> Result<(T, Result<()>)> {
        let dirty = match scope {
            Scope::Everything => self.data.inodes().take_pending(),
            Scope::Names => self.data.inodes().take_dirty(),
        };
        let drained = self.drain_cells(&dirty).and_then(|outcome| {
            if let Some(blocks) = self.data.reservations().unstored() {
                let value = blocks.to_string();
                self.catalog.get().set_meta(RESERVED, value.as_bytes())?;
                self.data.reservations().stored(blocks);
            }
            Ok((accounts(&self.blocks)?, outcome))
        });
        if !matches!(drained, Ok((_, Ok(())))) {
            self.blocks.note_unflushed_maps();
        }
        if drained.is_err() {
            self.keep_dirty(&dirty);
        }
        drained
    }

    /// What the catalog did not take is still to be written.
    pub(super) fn keep_dirty(&self, dirty: &[Arc<Cell>]) {
        for cell in dirty {
            let _state = cell.state.write();
            self.data.mark_dirty(cell);
        }
    }

    pub(super) fn drain_cells(&self, dirty: &[Arc<Cell>]) -> Result<Result<()>> {
        let catalog = self.catalog.get();
        let mut outcome = Ok(());
        for group in dirty.chunks(GROUP) {
            // The cells stay locked until the catalog has their rows: a reader must find one or the other.
            let mut states: Vec<_> = group.iter().map(|cell| cell.state.write()).collect();
            for (cell, state) in group.iter().zip(&mut states) {
                match self.data.flush_buffer(cell, state) {
                    Err(Error::NoSpace) => {
                        self.data.mark_dirty(cell);
                        outcome = Err(Error::NoSpace);
                    }
                    other => other?,
                }
            }
            // A file whose buffer found no space is written as it was without: never longer than its data.
            let rows: Vec<Option<Inode>> = states
                .iter()
                .map(|state| {
                    let (size, mtime) = state.buffer.as_ref()?.before;
                    let inode = state.inode.clone();
                    Some(Inode {
                        size,
                        mtime,
                        ..inode
                    })
                })
                .collect();
            while self.hand_over_maps(group, &mut states)? {}
            let mut changes = Vec::new();
            for ((cell, state), row) in group.iter().zip(&states).zip(&rows) {
                if state.is_deleted() {
                    continue;
                }
                // Also without space for its buffer: what the maps no longer refer to is freed after this commit.
                changes.extend(self.maps(cell.no, state, END));
                if self.data.kept_until(cell.no).is_some() {
                    changes.extend(history::counts(&state.held));
                }
                if state.row_dirty {
                    changes.push(Change::PutInode(row.as_ref().unwrap_or(&state.inode)));
                }
            }
            catalog.apply(&changes)?;
            drop(changes);
            for (cell, state) in group.iter().zip(&mut states) {
                if !state.is_deleted() {
                    state.row_dirty = state.buffer.is_some();
                    self.are_handed_over(cell.no, state, END);
                    state.held.clear();
                }
            }
            // A buffer that was sealed has marked its cell again.
            let cells = group.iter().zip(&states);
            let drained = cells.filter(|(_, state)| state.buffer.is_none());
            self.data.inodes().drained(drained.map(|(cell, _)| cell.no));
        }
        self.pace.drained(dirty.len());
        Ok(outcome)
    }

    /// Where files have too many maps for one operation, hands some of them to the catalog, and has their pages written: in its log
    /// these take far less than was reserved for them. The space that snapshots hold stays pending; no commit comes before that is
    /// handed over too. False if there are not too many.
    fn hand_over_maps(
        &self,
        group: &[Arc<Cell>],
        states: &mut [RwLockWriteGuard<'_, State>],
    ) -> Result<bool> {
        let pending = states.iter().filter(|state| !state.is_deleted());
        if pending.map(|state| state.chunks.len()).sum::<usize>() <= CHUNKS {
            return Ok(false);
        }
        let (mut changes, mut ends, mut left) = (Vec::new(), Vec::new(), CHUNKS);
        for (cell, state) in group.iter().zip(&*states) {
            let mut end = 0;
            if left > 0 && !state.is_deleted() {
                end = state.chunks.keys().nth(left).copied().unwrap_or(END);
                left = left.saturating_sub(state.chunks.len());
            }
            changes.extend(self.maps(cell.no, state, end));
            ends.push(end);
        }
        let catalog = self.catalog.get();
        catalog.apply(&changes)?;
        drop(changes);
        for ((cell, state), end) in group.iter().zip(states).zip(ends) {
            self.are_handed_over(cell.no, state, end);
        }
        catalog.write_ahead()?;
        Ok(true)
    }

    /// The pending maps of a file's chunks before `end`, with what is kept of each.
    fn maps<'a>(
        &self,
        inode: InodeNo,
        state: &'a State,
        end: u64,
    ) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let chunks = state.chunks.range(..end).map(move |(index, chunk)| {
            let index = *index;
            Change::put_chunk(inode, index, chunk)
        });
        let until = self.data.kept_until(inode);
        let kept = state.kept.range(..end).filter_map(move |(index, kept)| {
            let (index, until) = (*index, until?);
            Some(Change::keep_chunk(inode, index, until, kept))
        });
        chunks.chain(kept)
    }

    /// The catalog has these maps now.
    fn are_handed_over(&self, no: InodeNo, state: &mut State, end: u64) {
        let later = state.chunks.split_off(&end);
        let chunks = std::mem::replace(&mut state.chunks, later);
        let later = state.kept.split_off(&end);
        let kept = std::mem::replace(&mut state.kept, later);
        for (index, chunk) in chunks {
            self.data.inodes().keep_chunk(no, index, chunk);
        }
        let until = self.data.kept_until(no).unwrap_or(0);
        for (index, kept) in kept {
            self.data.inodes().keep_kept((no, index, until), kept);
        }
    }
}
