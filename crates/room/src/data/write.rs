//! Gathering writes, and sealing them.

use std::borrow::Cow;
use std::sync::Arc;

use catalog::{CHUNK_LEN, Extent};
use segments::{Sealed, UNIT_BLOCKS};

use super::Data;
use crate::blocks::BLOCK;
use crate::inodes::{Cell, State, WriteBuffer};
use crate::{Error, Result};

/// Block-aligned writes of this many bytes are sealed at once instead of gathered.
const DIRECT: usize = 64 << 10;

impl Data {
    /// Writes with what surrounds the data in its first and last unit: a unit of which a block is left frees nothing.
    pub(crate) fn write_whole_units(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        /// Blocks around the data at most: a unit whose blocks are far apart in the file is left as it is.
        const AROUND: u64 = 2 * UNIT_BLOCKS as u64;
        self.flush_buffer(cell, state)?;
        let end = offset + data.len() as u64;
        let edge = |byte: u64| -> Result<(u64, u64)> {
            let (index, block) = (byte / CHUNK_LEN, (byte % CHUNK_LEN / BLOCK) as u16);
            let (from, to) = self.chunk(cell.no, state, index)?.whole_units(block, 1);
            let byte_of = |block: u16| index * CHUNK_LEN + u64::from(block) * BLOCK;
            Ok((byte_of(from), byte_of(to)))
        };
        let (from, to) = (edge(offset)?.0, edge(end - 1)?.1.min(state.inode.size));
        let from = if offset - from > AROUND * BLOCK {
            offset
        } else {
            from
        };
        let to = if to.saturating_sub(end) > AROUND * BLOCK {
            end
        } else {
            to.max(end)
        };
        if (from, to) == (offset, end) {
            return self.write_locked(cell, state, offset, data);
        }
        let mut whole = vec![0; (to - from) as usize];
        let (head, tail) = ((offset - from) as usize, (end - from) as usize);
        self.read_locked(cell, state, from, &mut whole[..head])?;
        whole[head..tail].copy_from_slice(data);
        self.read_locked(cell, state, end, &mut whole[tail..])?;
        self.write_locked(cell, state, from, &whole)
    }

    /// Writes, without touching times.
    pub(crate) fn write_locked(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        // First: what a failure leaves done in part is committed too.
        self.mark_dirty(cell);
        let mut at = offset;
        while at < end {
            let piece_end = end.min((at / CHUNK_LEN + 1).saturating_mul(CHUNK_LEN));
            let piece = &data[(at - offset) as usize..(piece_end - offset) as usize];
            let written = self.write_piece(cell, state, at, piece);
            let reached = match (&written, &state.buffer) {
                (Ok(()), _) => piece_end,
                // It is in the buffer, and could not be sealed.
                (Err(_), Some(buffer)) => buffer.end(),
                (Err(_), None) => 0,
            };
            if state.inode.size < reached {
                state.inode.size = reached;
                state.row_dirty = true;
            }
            written?;
            at = piece_end;
        }
        Ok(())
    }

    /// Writes within one chunk.
    fn write_piece(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        let (head, tail) = self.look_around(cell, state, offset, end)?;
        if let Some(buffer) = &mut state.buffer {
            let same_chunk = buffer.offset / CHUNK_LEN == offset / CHUNK_LEN;
            if same_chunk && buffer.offset <= offset && offset <= buffer.end() {
                let old_end = buffer.end();
                let from = (offset - buffer.offset) as usize;
                let overlap = data.len().min(buffer.data.len() - from);
                buffer.data[from..from + overlap].copy_from_slice(&data[..overlap]);
                buffer.data.extend_from_slice(&data[overlap..]);
                if end > old_end {
                    let grown = ((end - old_end) as usize).min(buffer.tail.len());
                    match (end - 1) / BLOCK == (old_end - 1) / BLOCK {
                        true => drop(buffer.tail.drain(..grown)),
                        false => buffer.tail = tail,
                    }
                }
                if buffer.end().is_multiple_of(CHUNK_LEN) {
                    self.flush_buffer(cell, state)?;
                }
                return Ok(());
            }
            self.flush_buffer(cell, state)?;
        }
        let (mut offset, mut data) = (offset, data);
        let mut size = state.inode.size;
        if offset.is_multiple_of(BLOCK) && data.len() >= DIRECT {
            let whole = data.len() / BLOCK as usize * BLOCK as usize;
            self.seal(cell, state, offset, &data[..whole])?;
            (offset, data) = (offset + whole as u64, &data[whole..]);
            size = size.max(offset);
        }
        if !data.is_empty() {
            state.buffer = Some(WriteBuffer {
                offset,
                data: data.to_vec(),
                head,
                tail,
                before: (size, state.inode.mtime),
            });
        }
        Ok(())
    }

    /// Opens what surrounds a range in its first and last block, where it will be needed to seal these: damage there is the
    /// writer's error, and not that of a commit, which would stop everybody. Returns what is before the range and behind it, empty
    /// where nothing was looked at.
    fn look_around(
        &self,
        cell: &Cell,
        state: &State,
        offset: u64,
        end: u64,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let size = state.inode.size;
        // What is buffered of a block was written after that block was looked at.
        let buffered = |at: u64| {
            let block = at / BLOCK * BLOCK;
            let buffer = state.buffer.as_ref();
            buffer.is_some_and(|buffer| buffer.offset < block + BLOCK && block < buffer.end())
        };
        let read = |from: u64, to: u64| {
            let mut bytes = vec![0; (to - from) as usize];
            self.read_locked(cell, state, from, &mut bytes)
                .map(|()| bytes)
        };
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        if !offset.is_multiple_of(BLOCK) && offset / BLOCK * BLOCK < size && !buffered(offset) {
            head = read(offset / BLOCK * BLOCK, offset)?;
        }
        if !end.is_multiple_of(BLOCK) && end < size && !buffered(end) {
            tail = read(end, size.min(end.next_multiple_of(BLOCK)))?;
        }
        Ok((head, tail))
    }

    /// Seals the buffer, if there is one. On failure it stays.
    pub(crate) fn flush_buffer(&self, cell: &Arc<Cell>, state: &mut State) -> Result<()> {
        let Some(buffer) = state.buffer.take() else {
            return Ok(());
        };
        let sealed = self
            .whole_blocks(cell, state, &buffer)
            .and_then(|(offset, blocks)| self.seal(cell, state, offset, &blocks));
        if sealed.is_err() {
            state.buffer = Some(buffer);
        }
        sealed
    }

    /// The buffer's bytes with what surrounds them in their first and last block.
    fn whole_blocks<'a>(
        &self,
        cell: &Cell,
        state: &State,
        buffer: &'a WriteBuffer,
    ) -> Result<(u64, Cow<'a, [u8]>)> {
        let (start, end) = (
            buffer.offset / BLOCK * BLOCK,
            buffer.end().div_ceil(BLOCK) * BLOCK,
        );
        if start == buffer.offset && end == buffer.end() {
            return Ok((start, Cow::Borrowed(&buffer.data)));
        }
        let mut blocks = Vec::with_capacity((end - start) as usize);
        let head = (buffer.offset - start) as usize;
        match buffer.head.len() == head {
            true => blocks.extend_from_slice(&buffer.head),
            false => {
                blocks.resize(head, 0);
                self.read_locked(cell, state, start, &mut blocks)?;
            }
        }
        blocks.extend_from_slice(&buffer.data);
        // Beyond the end of the file a block is zeros; before it, what is stored there counts.
        let visible = state.inode.size.min(end).saturating_sub(buffer.end()) as usize;
        let tail = blocks.len();
        match buffer.tail.is_empty() {
            true => {
                blocks.resize(tail + visible, 0);
                self.read_locked(cell, state, buffer.end(), &mut blocks[tail..])?;
            }
            // If the file has grown since, then by zeros.
            false => blocks.extend_from_slice(&buffer.tail[..buffer.tail.len().min(visible)]),
        }
        blocks.resize((end - start) as usize, 0);
        Ok((start, Cow::Owned(blocks)))
    }

    /// Seals whole blocks within one chunk and puts them into the map.
    fn seal(&self, cell: &Arc<Cell>, state: &mut State, offset: u64, blocks: &[u8]) -> Result<()> {
        let sealed = self.blocks.append(blocks)?;
        self.place_sealed(cell, state, offset, &sealed)
    }

    /// Puts what was just sealed into the map. Where that finds no space, it is in no map, and is discarded.
    pub(super) fn place_sealed(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        offset: u64,
        sealed: &Sealed,
    ) -> Result<()> {
        let index = offset / CHUNK_LEN;
        let first = (offset % CHUNK_LEN / BLOCK) as u16;
        let done = self.place(cell, state, index, first, sealed);
        if let Err(Error::NoSpace) = done {
            self.blocks.accounts().release(sealed.range());
        }
        done
    }

    pub(crate) fn place(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        index: u64,
        first: u16,
        sealed: &Sealed,
    ) -> Result<()> {
        let extent = Extent::from_sealed(first, sealed);
        self.replace(cell, state, index, first, sealed.blocks as u16, &[extent])
    }
}
