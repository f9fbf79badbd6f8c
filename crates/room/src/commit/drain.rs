//! Handing what is pending to the catalog.

use std::sync::Arc;

use catalog::{Change, Inode};

use super::Commits;
use crate::accounts::Scope;
use crate::blocks::Blocks;
use crate::history;
use crate::inodes::Cell;
use crate::layout::RESERVED;
use crate::{Error, Result};

/// Inodes whose rows are handed to the catalog at once.
const GROUP: usize = 64;

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
            let mut changes = Vec::new();
            for ((cell, state), row) in group.iter().zip(&states).zip(&rows) {
                if state.is_deleted() {
                    continue;
                }
                // Also without space for its buffer: what the maps no longer refer to is freed after this commit.
                changes.extend(state.chunks.iter().map(|(index, chunk)| Change::PutChunk {
                    inode: cell.no,
                    index: *index,
                    chunk,
                }));
                if let Some(until) = self.data.kept_until(cell.no) {
                    changes.extend(state.kept.iter().map(|(index, kept)| Change::KeepChunk {
                        inode: cell.no,
                        index: *index,
                        until,
                        kept,
                    }));
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
                    for (index, chunk) in std::mem::take(&mut state.chunks) {
                        self.data.inodes().keep_chunk(cell.no, index, chunk);
                    }
                    let until = self.data.kept_until(cell.no).unwrap_or(0);
                    for (index, kept) in std::mem::take(&mut state.kept) {
                        self.data.inodes().keep_kept((cell.no, index, until), kept);
                    }
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
}
