//! Changing the shape of a file: truncation, holes, and sharing between files. Moves of whole ranges are in `shift`.
//!
//! 1. What is cut off or punched out is discarded at once in the maps and released after the next commit.
//! 2. A unit that comes to be referred to by more than one chunk has its count raised first and its extents marked
//!    shared, so that dropping one reference keeps the others.

use std::sync::Arc;

use catalog::{CHUNK_LEN, Change, Chunk, Extent, Inode, InodeNo, SegmentNo};

use crate::core::{BLOCK, Core};
use crate::data::{CHUNK_END, SIZE_MAX, regular};
use crate::flags::{refuse_flagged, refuse_immutable};
use crate::inodes::{Cell, State};
use crate::{Error, Fallocate, Result, SeekTo};

/// Chunks handled in one go where a file may have any number.
pub(crate) const CHUNKS_AT_ONCE: usize = 1024;

impl Core {
    /// Sets the length of a file. The caller holds a change and the state's lock.
    pub(crate) fn resize(&self, cell: &Arc<Cell>, state: &mut State, size: u64) -> Result<()> {
        regular(state)?;
        if size > SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        // Space may be reserved behind the end.
        if size < state.inode.size || self.space.reserved() > 0 {
            self.flush_buffer(cell, state)?;
            let keep = size % BLOCK;
            if keep > 0 && size < state.inode.size {
                // The rest of the last block must read as zeros if the file grows again.
                let end = (size - keep + BLOCK).min(state.inode.size);
                if self.is_stored(cell.no, state, size)? {
                    let zeros = vec![0; (end - size) as usize];
                    self.write_locked(cell, state, size, &zeros)?;
                    if let Err(e) = self.flush_buffer(cell, state) {
                        // The length stays, and with it what these zeros would hide.
                        state.buffer = None;
                        return Err(e);
                    }
                }
            }
            let first_gone = size.div_ceil(BLOCK) * BLOCK;
            if !first_gone.is_multiple_of(CHUNK_LEN) {
                let from = (first_gone % CHUNK_LEN / BLOCK) as u16;
                self.replace(
                    cell,
                    state,
                    first_gone / CHUNK_LEN,
                    from,
                    CHUNK_END - from,
                    &[],
                )?;
            }
            while self.cut_some_chunks(cell, state, first_gone.div_ceil(CHUNK_LEN), false)? {}
        }
        state.inode.size = size;
        state.row_dirty = true;
        self.inodes.mark_dirty(cell);
        Ok(())
    }

    fn is_stored(&self, no: InodeNo, state: &State, offset: u64) -> Result<bool> {
        let chunk = self.chunk(no, state, offset / CHUNK_LEN)?;
        Ok(chunk.find((offset % CHUNK_LEN / BLOCK) as u16).is_ok())
    }

    /// Discards a bounded number of whole chunks from `first` on, and with the last of them the inode's row if that is
    /// to go too. True if there may be more. The catalog's rows go first: if it has no space for that, nothing changed.
    pub(crate) fn cut_some_chunks(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        first: u64,
        with_inode: bool,
    ) -> Result<bool> {
        let catalog = self.catalog();
        let stored = catalog.chunks_from(cell.no, first, CHUNKS_AT_ONCE)?;
        let more = stored.len() == CHUNKS_AT_ONCE;
        let nothing = Chunk::default();
        let changes: Vec<Change<'_>> = if with_inode && !more {
            vec![Change::DeleteInode(cell.no)]
        } else {
            stored
                .iter()
                .map(|(index, _)| Change::PutChunk {
                    inode: cell.no,
                    index: *index,
                    chunk: &nothing,
                })
                .collect()
        };
        if !changes.is_empty() {
            catalog.apply(&changes)?;
        }
        for (index, chunk) in stored {
            self.inodes.drop_chunk(cell.no, index);
            let newest = state.chunks.remove(&index).unwrap_or(chunk);
            self.discard_chunk(state, newest)?;
        }
        if !more {
            // The rest are in memory only.
            for (_, chunk) in state.chunks.split_off(&first) {
                self.discard_chunk(state, chunk)?;
            }
        }
        Ok(more)
    }

    fn discard_chunk(&self, state: &mut State, mut chunk: Chunk) -> Result<()> {
        state.inode.blocks = state.inode.blocks.saturating_sub(u64::from(chunk.blocks()));
        state.row_dirty = true;
        self.space.end_reserved(u64::from(chunk.reserved_blocks()));
        self.discard(&chunk.replace(0, CHUNK_END, &[]))
    }

    /// Allocates, punches, zeroes, collapses, inserts.
    pub(crate) fn fallocate(
        &self,
        no: InodeNo,
        what: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return Err(Error::InvalidArgument("an empty range"));
        }
        let check = |inode: &Inode| match what {
            // As Linux has it, also where that makes the file longer.
            Fallocate::Allocate { .. } => refuse_immutable(inode),
            _ => refuse_flagged(inode),
        };
        check(&self.cell(no)?.state.read().inode)?;
        if let Fallocate::Allocate { .. } | Fallocate::ZeroRange { .. } = what {
            self.allocate(no, offset, end)?;
        }
        self.replacing(2 * BLOCK, || {
            let _change = self.change()?;
            let cell = self.cell(no)?;
            let mut state = cell.state.write();
            regular(&state)?;
            check(&state.inode)?;
            self.flush_buffer(&cell, &mut state)?;
            let size = state.inode.size;
            match what {
                Fallocate::Allocate { keep_size } => {
                    if end > size && !keep_size {
                        self.resize(&cell, &mut state, end)?;
                    }
                }
                Fallocate::PunchHole => self.punch(&cell, &mut state, offset, end)?,
                Fallocate::ZeroRange { keep_size } => {
                    self.punch(&cell, &mut state, offset, end)?;
                    if !self.options.network_backed {
                        // The space of what was stored there stays the file's.
                        self.mark_locked(&cell, &mut state, offset / BLOCK, end.div_ceil(BLOCK))?;
                    }
                    if end > size && !keep_size {
                        self.resize(&cell, &mut state, end)?;
                    }
                }
                Fallocate::Collapse => {
                    aligned(offset, len)?;
                    if end >= size {
                        return Err(Error::InvalidArgument(
                            "collapsing up to or beyond the end of the file",
                        ));
                    }
                    self.punch(&cell, &mut state, offset, end)?;
                    self.shift(&cell, &mut state, end, offset)?;
                    // Nothing may fail from here on: tried again, it would collapse once more. Behind the new end there
                    // is nothing, and the rest of the last block came along as zeros.
                    state.inode.size = size - len;
                }
                Fallocate::Insert => {
                    aligned(offset, len)?;
                    if offset >= size {
                        return Err(Error::InvalidArgument(
                            "inserting at or beyond the end of the file",
                        ));
                    }
                    if size + len > SIZE_MAX {
                        return Err(Error::FileTooLarge);
                    }
                    self.shift(&cell, &mut state, offset, end)?;
                    state.inode.size = size + len;
                }
            }
            self.touch(&cell, &mut state, self.now());
            Ok(())
        })
    }

    /// Makes a range read as zeros, discarding whole blocks.
    fn punch(&self, cell: &Arc<Cell>, state: &mut State, offset: u64, end: u64) -> Result<()> {
        // Behind the file's end there can be reservations only.
        let end = match self.space.reserved() {
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
            let stored = self.catalog().chunks_from(no, from, 1)?.pop();
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

    /// The next data or hole at or after `offset`.
    pub(crate) fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let cell = self.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        if offset >= state.inode.size {
            return Err(Error::NoMoreData);
        }
        if state.buffer.is_some() {
            drop(state);
            let _change = self.change()?;
            state = cell.state.write();
            self.flush_buffer(&cell, &mut state)?;
        }
        let size = state.inode.size;
        let mut at = offset;
        loop {
            let index = at / CHUNK_LEN;
            let found = self.next_chunk(no, &state, index)?;
            let Some((next, chunk)) = found else {
                return if to == SeekTo::Hole {
                    Ok(at)
                } else {
                    Err(Error::NoMoreData)
                };
            };
            if next > index {
                match to {
                    SeekTo::Hole => return Ok(at),
                    SeekTo::Data => at = next.saturating_mul(CHUNK_LEN),
                }
            }
            while at / CHUNK_LEN == next {
                let base = next * CHUNK_LEN;
                let (is_data, end) = match chunk.find(((at - base) / BLOCK) as u16) {
                    Ok(extent) => (true, base + u64::from(extent.end()) * BLOCK),
                    Err(following) => (false, base + u64::from(following) * BLOCK),
                };
                if is_data == (to == SeekTo::Data) {
                    return match to {
                        SeekTo::Data if at >= size => Err(Error::NoMoreData),
                        _ => Ok(at.min(size)),
                    };
                }
                at = end;
            }
            if at >= size {
                return if to == SeekTo::Hole {
                    Ok(size)
                } else {
                    Err(Error::NoMoreData)
                };
            }
        }
    }

    /// Copies a range, sharing whole blocks where both offsets are block-aligned. Returns the bytes copied.
    pub(crate) fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if to_offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(Error::FileTooLarge);
        }
        if from == to
            && from_offset < to_offset.saturating_add(len)
            && to_offset < from_offset.saturating_add(len)
        {
            return Err(Error::InvalidArgument("copying a range onto itself"));
        }
        // A copy within one file may make it longer: what counts is its end before.
        let len = len.min(self.attributes(from)?.size.saturating_sub(from_offset));
        let mut done = 0;
        while done < len {
            // One chunk of the source at a time, so that others get their turn and a commit its moment.
            let at = from_offset + done;
            let step = (len - done).min(CHUNK_LEN - at % CHUNK_LEN);
            let aligned = (at | (to_offset + done)).is_multiple_of(BLOCK);
            let bytes = if aligned { 2 * BLOCK } else { step };
            let copied = self.with_space(bytes, || {
                self.copy_step(from, at, to, to_offset + done, step)
            })?;
            done += copied;
            if copied < step {
                break;
            }
        }
        Ok(done)
    }

    fn copy_step(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _change = self.change()?;
        let source = self.cell(from)?;
        let target = if from == to {
            source.clone()
        } else {
            self.cell(to)?
        };
        {
            // What is only in the buffer cannot be shared.
            for cell in [&source, &target] {
                let mut state = cell.state.write();
                regular(&state)?;
                self.flush_buffer(cell, &mut state)?;
            }
        }
        let mut target_state;
        let mut source_state;
        if from == to {
            target_state = target.state.write();
            source_state = None;
        } else if from < to {
            source_state = Some(source.state.write());
            target_state = target.state.write();
        } else {
            target_state = target.state.write();
            source_state = Some(source.state.write());
        }
        match to_offset < target_state.inode.size {
            true => refuse_flagged(&target_state.inode)?,
            false => refuse_immutable(&target_state.inode)?,
        }
        let size = source_state
            .as_ref()
            .map_or(target_state.inode.size, |s| s.inode.size);
        let len = len.min(size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(0);
        }
        let ends = from_offset + len;
        // A last partial block can be shared where nothing follows it in either file: beyond the end it is zeros.
        let whole_tail = ends == size && to_offset + len >= target_state.inode.size;
        let sharable = from_offset.is_multiple_of(BLOCK)
            && to_offset.is_multiple_of(BLOCK)
            && (len.is_multiple_of(BLOCK) || whole_tail);
        if sharable {
            let source_state = source_state.as_deref_mut();
            self.share(
                &source,
                source_state,
                &target,
                &mut target_state,
                from_offset,
                to_offset,
                len,
            )?;
        } else {
            let mut data = vec![0; len as usize];
            let state = source_state.as_deref().unwrap_or(&target_state);
            self.read_locked(&source, state, from_offset, &mut data)?;
            self.write_locked(&target, &mut target_state, to_offset, &data)?;
        }
        if target_state.inode.size < to_offset + len {
            target_state.inode.size = to_offset + len;
        }
        self.touch(&target, &mut target_state, self.now());
        Ok(len)
    }

    /// Lets the target refer to the source's units. Offsets are whole blocks; all within one chunk of the source.
    #[allow(
        clippy::too_many_arguments,
        reason = "two files, two offsets: a struct would have one use"
    )]
    fn share(
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
                self.inodes.mark_dirty(source);
            }
            // Counts first: the replacement may discard the very units that come in.
            let chunk = self.changed_chunk(target, target_state, to_index)?;
            let mut gained: Vec<(SegmentNo, u32)> = pieces
                .iter()
                .flat_map(|e| e.units().map(|(r, _)| (r.segment, r.position)))
                .filter(|(segment, position)| !chunk.refers_to(*segment, *position))
                .collect();
            gained.sort_unstable();
            gained.dedup();
            let changes: Vec<Change<'_>> = gained
                .into_iter()
                .map(|(segment, position)| Change::ShareUnit {
                    segment,
                    position,
                    references: 1,
                })
                .collect();
            if !changes.is_empty() {
                self.catalog().apply(&changes)?;
            }
            self.replace(target, target_state, to_index, to, blocks, &pieces)?;
            from += blocks;
            to_block += u64::from(blocks);
            left -= blocks;
        }
        Ok(())
    }
}

fn aligned(offset: u64, len: u64) -> Result<()> {
    if offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK) {
        Ok(())
    } else {
        Err(Error::InvalidArgument(
            "offset and length must be multiples of 4096",
        ))
    }
}
