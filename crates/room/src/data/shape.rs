//! Changing the shape of a file: length, holes, reservations, and sharing between files.
//!
//! 1. What is cut off or punched out is discarded at once in the maps and released after the next commit.
//! 2. A unit that comes to be referred to by more than one chunk has its count raised first and its extents marked
//!    shared, so that dropping one reference keeps the others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use catalog::{CHUNK_LEN, Change, Chunk, Extent, InodeNo, Released};
use segments::Sealed;

use super::keep::Cut;
use super::{CHUNK_END, Data, SIZE_MAX, regular};
use crate::blocks::BLOCK;
use crate::inodes::{Cell, State};
use crate::{Error, Result};

/// Chunks handled in one go where a file may have any number. The catalog reserves space in its log for each.
pub(super) const CHUNKS_AT_ONCE: usize = 128;

impl Data {
    /// Sets the length of a file. The caller holds a change and the state's lock.
    pub(crate) fn resize(&self, cell: &Arc<Cell>, state: &mut State, size: u64) -> Result<()> {
        regular(state)?;
        if size > SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        // First: what a failure leaves done in part is committed too.
        self.note_change(cell, state);
        let shorter = size < state.inode.size;
        // Space may be reserved behind the end: the same length cuts it off, a longer file keeps it.
        if shorter || (size == state.inode.size && self.reservations.reserved() > 0) {
            self.flush_buffer(cell, state)?;
            let last = match shorter {
                true => self.seal_last_block(cell, state, size)?,
                false => None,
            };
            let before = state.inode.size;
            let cut = self.cut(cell, state, size);
            if let (Err(Error::NoSpace), Some(last)) = (&cut, &last) {
                self.blocks.accounts().release(last.range());
            }
            let cut = cut.and_then(|()| match &last {
                Some(last) => self.place_sealed(cell, state, size - size % BLOCK, last),
                None => Ok(()),
            });
            if cut.is_err() && state.inode.size < before {
                self.touch_contents(cell, state);
            }
            cut?;
        }
        state.inode.size = size;
        Ok(())
    }

    /// Seals what will be the last block of a file that becomes shorter: if it grows again, the rest of the block must read as zeros. It
    /// is in no map yet. `None`: that is so already.
    fn seal_last_block(&self, cell: &Cell, state: &State, size: u64) -> Result<Option<Sealed>> {
        let keep = (size % BLOCK) as usize;
        if keep == 0 || !self.is_stored(cell.no, state, size)? {
            return Ok(None);
        }
        let mut block = vec![0; BLOCK as usize];
        self.read_locked(cell, state, size - keep as u64, &mut block[..keep])?;
        self.blocks.append(&block).map(Some)
    }

    /// Discards the blocks behind a length. A failure half-way leaves a shorter file, and all that it still has.
    fn cut(&self, cell: &Arc<Cell>, state: &mut State, size: u64) -> Result<()> {
        let first_gone = size.div_ceil(BLOCK) * BLOCK;
        let ends = |state: &mut State, at: u64| state.inode.size = state.inode.size.min(at);
        let whole = first_gone.div_ceil(CHUNK_LEN);
        while let Some(first) = self.cut_last_chunks(cell, state, whole, false)? {
            ends(state, first * CHUNK_LEN);
        }
        ends(state, whole * CHUNK_LEN);
        if !first_gone.is_multiple_of(CHUNK_LEN) {
            let from = (first_gone % CHUNK_LEN / BLOCK) as u16;
            let index = first_gone / CHUNK_LEN;
            self.replace(cell, state, index, from, CHUNK_END - from, &[])?;
            ends(state, first_gone);
        }
        Ok(())
    }

    fn is_stored(&self, no: InodeNo, state: &State, offset: u64) -> Result<bool> {
        let chunk = self.chunk(no, state, offset / CHUNK_LEN)?;
        Ok(chunk.find((offset % CHUNK_LEN / BLOCK) as u16).is_ok())
    }

    /// Discards a bounded number of whole chunks, the last ones from `first` on, and with the last of them the inode's row if that is to
    /// go too. Returns from which chunk on all are gone, if there may be more. The catalog's rows go first: if it has no space for that,
    /// nothing changed.
    pub(crate) fn cut_last_chunks(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        first: u64,
        with_inode: bool,
    ) -> Result<Option<u64>> {
        let catalog = self.catalog.get();
        let mut stored = catalog.last_chunks(cell.no, first, CHUNKS_AT_ONCE)?;
        let changed = state.chunks.range(first..).rev().take(CHUNKS_AT_ONCE);
        let stored_too = stored.iter().map(|(index, _)| *index);
        let last: BTreeSet<u64> = stored_too.chain(changed.map(|(index, _)| *index)).collect();
        let more = last.iter().rev().nth(CHUNKS_AT_ONCE - 1).copied();
        let from = more.unwrap_or(first);
        stored.retain(|(index, _)| *index >= from);
        let mut cuts = match self.kept_until(cell.no) {
            None => HashMap::new(),
            Some(until) => self.cut_and_keep(cell.no, state, until, &stored, from)?,
        };
        let nothing = Chunk::default();
        let last = with_inode && more.is_none();
        let mut changes: Vec<Change<'_>> = if last {
            vec![Change::DeleteInode(cell.no)]
        } else {
            stored
                .iter()
                .map(|(index, _)| Change::put_chunk(cell.no, *index, &nothing))
                .collect()
        };
        if let Some(until) = self.kept_until(cell.no) {
            self.keep_in(&mut changes, cell.no, state, until, &cuts, last);
        }
        if !changes.is_empty() {
            catalog.apply(&changes)?;
        }
        drop(changes);
        state.held.clear();
        if last {
            state.kept.clear();
        }
        // Before anything else that can fail: the catalog does not have these maps any more.
        let mut released = Vec::new();
        for (index, chunk) in stored {
            self.inodes.drop_chunk(cell.no, index);
            let newest = state.chunks.remove(&index).unwrap_or(chunk);
            released.extend(self.drop_chunk(cell.no, state, index, newest, cuts.remove(&index)));
        }
        // The rest are in memory only.
        for (index, chunk) in state.chunks.split_off(&from) {
            released.extend(self.drop_chunk(cell.no, state, index, chunk, cuts.remove(&index)));
        }
        self.blocks.discard(&released)?;
        Ok(more)
    }

    /// Takes note that a chunk is gone. Returns what is to be discarded.
    fn drop_chunk(
        &self,
        no: InodeNo,
        state: &mut State,
        index: u64,
        mut chunk: Chunk,
        cut: Option<Cut>,
    ) -> Vec<Released> {
        let blocks = state.inode.blocks.saturating_sub(u64::from(chunk.blocks()));
        self.set_blocks(state, blocks);
        self.reservations.end(u64::from(chunk.reserved_blocks()));
        match cut {
            None => chunk.replace(0, CHUNK_END, &[]),
            Some(cut) => {
                state.kept.remove(&index);
                self.inodes.drop_kept((no, index, cut.until));
                cut.released
            }
        }
    }

    /// Makes a range read as zeros, discarding whole blocks.
    pub(crate) fn punch(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        // Behind the file's end there can be reservations only.
        let end = match self.reservations.reserved() {
            0 => end.min(state.inode.size.div_ceil(BLOCK) * BLOCK),
            _ => end,
        };
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(BLOCK) * BLOCK, end / BLOCK * BLOCK);
        let edges = if first > last {
            [(offset, end), (end, end)]
        } else {
            [(offset, first), (last, end)]
        };
        for (from, to) in edges {
            let to = to.min(state.inode.size);
            if from < to && self.is_stored(cell.no, state, from)? {
                self.write_locked(cell, state, from, &vec![0; (to - from) as usize])?;
                self.flush_buffer(cell, state)?;
            }
        }
        let mut at = first;
        while at < last {
            let index = at / CHUNK_LEN;
            let chunk_end = ((index + 1) * CHUNK_LEN).min(last);
            if at.is_multiple_of(CHUNK_LEN) && last - at >= CHUNK_LEN {
                // Whole chunks: only those that exist cost anything.
                let Some((next, _)) = self.next_chunk(cell.no, state, index)? else {
                    break;
                };
                if next > index {
                    at = next.saturating_mul(CHUNK_LEN);
                    continue;
                }
            }
            let (from, to) = (
                (at % CHUNK_LEN / BLOCK) as u16,
                ((chunk_end - index * CHUNK_LEN) / BLOCK) as u16,
            );
            self.replace(cell, state, index, from, to - from, &[])?;
            at = chunk_end;
        }
        Ok(())
    }

    /// The first chunk from `index` on that is not a hole, newest state.
    pub(crate) fn next_chunk(
        &self,
        no: InodeNo,
        state: &State,
        index: u64,
    ) -> Result<Option<(u64, Chunk)>> {
        let mut from = index;
        loop {
            let changed = state.chunks.range(from..).find(|(_, c)| !c.is_empty());
            let stored = self.catalog.get().chunks_from(no, from, 1)?.pop();
            match (changed, stored) {
                (Some((c, chunk)), stored) if stored.as_ref().is_none_or(|(s, _)| c <= s) => {
                    return Ok(Some((*c, chunk.clone())));
                }
                // The catalog has one that is changed in memory to a hole, or the catalog's is the first.
                (_, Some((s, _))) if state.chunks.contains_key(&s) => from = s + 1,
                (_, Some(found)) => return Ok(Some(found)),
                (_, None) => return Ok(None),
            }
        }
    }

    /// Marks the holes among the blocks `first..end` as reserved; returns how many. The caller holds a change.
    pub(crate) fn mark_locked(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        first: u64,
        end: u64,
    ) -> Result<u64> {
        // First: what a failure leaves done in part is committed too.
        self.note_change(cell, state);
        let mut marked = 0;
        let mut at = first;
        while at < end {
            let (index, block) = (
                at / u64::from(CHUNK_END),
                (at % u64::from(CHUNK_END)) as u16,
            );
            let blocks = (end - at).min(u64::from(CHUNK_END - block)) as u16;
            let chunk = self.changed_chunk(cell, state, index)?;
            let fresh = u64::from(chunk.reserve(block, blocks));
            self.reservations.add(fresh);
            let allocated = state.inode.blocks + fresh;
            self.set_blocks(state, allocated);
            marked += fresh;
            at += u64::from(blocks);
        }
        Ok(marked)
    }

    /// Lets the target refer to the source's units. Offsets are whole blocks; all within one chunk of the source.
    #[allow(
        clippy::too_many_arguments,
        reason = "two files, two offsets: a struct would have one use"
    )]
    pub(crate) fn share(
        &self,
        source: &Arc<Cell>,
        mut source_state: Option<&mut State>,
        target: &Arc<Cell>,
        target_state: &mut State,
        from_offset: u64,
        to_offset: u64,
        len: u64,
    ) -> Result<()> {
        let index = from_offset / CHUNK_LEN;
        let mut from = (from_offset % CHUNK_LEN / BLOCK) as u16;
        let mut left = len.div_ceil(BLOCK) as u16;
        let mut to_block = to_offset / BLOCK;
        while left > 0 {
            let to_index = to_block / u64::from(CHUNK_END);
            let to = (to_block % u64::from(CHUNK_END)) as u16;
            let blocks = left.min(CHUNK_END - to);
            let chunk = match &mut source_state {
                Some(state) => self.changed_chunk(source, state, index)?,
                None => self.changed_chunk(target, target_state, index)?,
            };
            chunk.mark_shared(from, blocks);
            let pieces: Vec<Extent> = chunk
                .slice(from, blocks)
                .into_iter()
                .map(|mut e| {
                    e.first = e.first - from + to;
                    e.shared = true;
                    e
                })
                .collect();
            if source_state.is_some() {
                self.mark_dirty(source);
            }
            self.replace_by_shared(target, target_state, to_index, to, blocks, &pieces)?;
            let reached = ((to_block + u64::from(blocks)) * BLOCK).min(to_offset + len);
            if target_state.inode.size < reached {
                // Also if the rest fails: nothing may be behind a file's end.
                target_state.inode.size = reached;
                target_state.row_dirty = true;
            }
            from += blocks;
            to_block += u64::from(blocks);
            left -= blocks;
        }
        Ok(())
    }
}
