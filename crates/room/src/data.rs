//! Reading and writing file data.
//!
//! 1. Extents cover whole 4 KiB blocks. The part of a last block beyond the file's end is sealed as zeros, so that a
//!    longer file reads zeros there.
//! 2. Small writes that continue each other gather in the inode's buffer and are sealed together; what reads sees is
//!    buffer over changed maps over the catalog's maps.
//! 3. All of it happens under the cell's lock, which callers pass in.
//!
//! It deliberately does not know names, permissions or when a commit is due.

use std::borrow::Cow;
use std::sync::Arc;

use catalog::{CHUNK_BLOCKS, CHUNK_LEN, Chunk, Extent, InodeNo, Piece, Stored, Timestamp};
use segments::{Sealed, SegmentError, SegmentStore, UNIT_BLOCKS};

use crate::check::LostExtent;
use crate::core::{BLOCK, Core};
use crate::flags;
use crate::inodes::{Cell, State, WriteBuffer};
use crate::space::Claim;
use crate::{Error, FileKind, Result};

/// Largest size and end of a write: off_t's.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Block-aligned writes of this many bytes are sealed at once instead of gathered.
const DIRECT: usize = 64 << 10;

impl Core {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    pub(crate) fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let cell = self.cell(no)?;
        let state = cell.state.read();
        regular(&state)?;
        if offset >= state.inode.size {
            return Ok(0);
        }
        let len = (state.inode.size - offset).min(buf.len() as u64) as usize;
        self.read_locked(&cell, &state, offset, &mut buf[..len])?;
        Ok(len)
    }

    /// Fills `buf` from `offset` on; what is not stored reads as zeros.
    pub(crate) fn read_locked(
        &self,
        cell: &Cell,
        state: &State,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        if let Some(buffer) = &state.buffer
            && buffer.offset <= offset
            && offset + buf.len() as u64 <= buffer.end()
        {
            let from = (offset - buffer.offset) as usize;
            buf.copy_from_slice(&buffer.data[from..from + buf.len()]);
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let index = at / CHUNK_LEN;
            let piece_end = end.min((index + 1).saturating_mul(CHUNK_LEN));
            let piece = &mut buf[(at - offset) as usize..(piece_end - offset) as usize];
            let chunk = self.chunk(cell.no, state, index)?;
            self.read_chunk(cell.no, index, &chunk, at - index * CHUNK_LEN, piece)?;
            at = piece_end;
        }
        if let Some(buffer) = &state.buffer {
            let (from, to) = (offset.max(buffer.offset), end.min(buffer.end()));
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                    &buffer.data[(from - buffer.offset) as usize..(to - buffer.offset) as usize],
                );
            }
        }
        Ok(())
    }

    /// The newest map of a chunk.
    pub(crate) fn chunk<'a>(
        &self,
        no: InodeNo,
        state: &'a State,
        index: u64,
    ) -> Result<ChunkRef<'a>> {
        match state.chunks.get(&index) {
            Some(chunk) => Ok(ChunkRef::Changed(chunk)),
            None => Ok(ChunkRef::Clean(self.inodes.clean_chunk(
                &*self.catalog(),
                no,
                index,
            )?)),
        }
    }

    /// Reads within one chunk; `start` is a byte offset in it.
    pub(crate) fn read_chunk(
        &self,
        no: InodeNo,
        index: u64,
        chunk: &Chunk,
        start: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut rest = buf;
        for piece in chunk.pieces(start, rest.len()) {
            let (now, later) = rest.split_at_mut(piece.len());
            match piece {
                Piece::Hole { .. } => now.fill(0),
                Piece::Stored(stored) => self.read_stored(no, index, &stored, now)?,
            }
            rest = later;
        }
        Ok(())
    }

    fn read_stored(
        &self,
        no: InodeNo,
        index: u64,
        stored: &Stored<'_>,
        buf: &mut [u8],
    ) -> Result<()> {
        let offset_of = |e: SegmentError| {
            let position = match &e {
                SegmentError::Corrupt { position, .. } | SegmentError::Missing { position, .. } => {
                    *position
                }
                _ => return Error::from(e),
            };
            // A damaged unit hides the file from its first byte that the unit holds.
            let (in_chunk, len) = stored.hidden_by(position);
            let offset = index * CHUNK_LEN + in_chunk;
            tracing::debug!("inode {}, offset {offset}: {e}", no.0);
            self.note_damage(LostExtent { no, offset, len });
            Error::Corrupt {
                inode: no,
                offset,
                segment: stored.range.segment.0,
                position,
            }
        };
        if stored.is_whole() {
            let read = self.segments.read(stored.range, stored.proofs, buf);
            return read.map_err(offset_of);
        }
        let mut units = vec![0; stored.range.blocks as usize * BLOCK as usize];
        self.segments
            .read(stored.range, stored.proofs, &mut units)
            .map_err(offset_of)?;
        buf.copy_from_slice(&units[stored.skip..][..buf.len()]);
        Ok(())
    }

    /// Writes all of `data` at `offset`.
    pub(crate) fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        self.write_for(Claim::New, no, offset, data).map(drop)
    }

    /// Writes all of `data` at `offset`; true where it took space that is kept for `claim`, because there was none for new data.
    pub(crate) fn write_for(
        &self,
        claim: Claim,
        no: InodeNo,
        offset: u64,
        data: &[u8],
    ) -> Result<bool> {
        if data.is_empty() {
            return Ok(false);
        }
        let len = data.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        let write = || self.write_and_touch(no, offset, data, false);
        match self.promise(len).and_then(|()| write()) {
            Err(Error::NoSpace) => {}
            done => return done.map(|()| false),
        }
        if self.owns_space(no, offset, end)? {
            let whole = len + 2 * u64::from(UNIT_BLOCKS) * BLOCK;
            return self
                .replacing(whole, || self.write_and_touch(no, offset, data, true))
                .map(|()| false);
        }
        match self.with_space(len, write) {
            Err(Error::NoSpace) if claim > Claim::New && self.fits(claim, len)? => {
                write().map(|()| true)
            }
            done => done.map(|()| false),
        }
    }

    fn write_and_touch(
        &self,
        no: InodeNo,
        offset: u64,
        data: &[u8],
        whole_units: bool,
    ) -> Result<()> {
        let _change = self.change()?;
        let cell = self.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        let (data, refused) = match state.inode.flags.is_empty() {
            true => (Cow::Borrowed(data), false),
            false => self.allowed(&cell, &state, offset, data)?,
        };
        match whole_units {
            true => self.write_whole_units(&cell, &mut state, offset, &data)?,
            false => self.write_locked(&cell, &mut state, offset, &data)?,
        }
        self.touch(&cell, &mut state, self.now());
        match refused {
            true => Err(flags::append_refused()),
            false => Ok(()),
        }
    }

    /// Whether writing a range needs no space but its own.
    fn owns_space(&self, no: InodeNo, offset: u64, end: u64) -> Result<bool> {
        let cell = self.cell(no)?;
        let state = cell.state.read();
        let mut at = offset / BLOCK;
        let end = end.div_ceil(BLOCK);
        while at < end {
            let index = at / u64::from(CHUNK_END);
            let first = (at % u64::from(CHUNK_END)) as u16;
            let blocks = (end - at).min(u64::from(CHUNK_END - first)) as u16;
            if !self.chunk(no, &state, index)?.owns_space(first, blocks) {
                return Ok(false);
            }
            at += u64::from(blocks);
        }
        Ok(true)
    }

    /// Writes with what surrounds the data in its first and last unit: a unit of which a block is left frees nothing.
    fn write_whole_units(
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

    /// Notes that the data changed.
    pub(crate) fn touch(&self, cell: &Arc<Cell>, state: &mut State, now: Timestamp) {
        state.inode.mtime = now;
        self.touch_inode(cell, state, now);
    }

    /// Notes that the inode changed.
    pub(crate) fn touch_inode(&self, cell: &Arc<Cell>, state: &mut State, now: Timestamp) {
        state.inode.ctime = now;
        state.row_dirty = true;
        self.inodes.mark_dirty(cell);
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
        let mut at = offset;
        while at < end {
            let piece_end = end.min((at / CHUNK_LEN + 1).saturating_mul(CHUNK_LEN));
            self.write_piece(
                cell,
                state,
                at,
                &data[(at - offset) as usize..(piece_end - offset) as usize],
            )?;
            at = piece_end;
            if state.inode.size < at {
                state.inode.size = at;
                state.row_dirty = true;
            }
        }
        self.inodes.mark_dirty(cell);
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
        self.check_around(cell, state, offset, offset + data.len() as u64)?;
        if let Some(buffer) = &mut state.buffer {
            let same_chunk = buffer.offset / CHUNK_LEN == offset / CHUNK_LEN;
            if same_chunk && buffer.offset <= offset && offset <= buffer.end() {
                let from = (offset - buffer.offset) as usize;
                let overlap = data.len().min(buffer.data.len() - from);
                buffer.data[from..from + overlap].copy_from_slice(&data[..overlap]);
                buffer.data.extend_from_slice(&data[overlap..]);
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
                before: (size, state.inode.mtime),
            });
        }
        Ok(())
    }

    /// Opens what surrounds a range in its first and last block, where it will be needed to seal these: damage there is the
    /// writer's error, and not that of a commit, which would stop everybody.
    fn check_around(&self, cell: &Cell, state: &State, offset: u64, end: u64) -> Result<()> {
        let size = state.inode.size;
        // What is buffered of a block was written after that block was looked at.
        let buffered = |at: u64| {
            let block = at / BLOCK * BLOCK;
            let buffer = state.buffer.as_ref();
            buffer.is_some_and(|buffer| buffer.offset < block + BLOCK && block < buffer.end())
        };
        let mut byte = [0];
        if !offset.is_multiple_of(BLOCK) && offset / BLOCK * BLOCK < size && !buffered(offset) {
            self.read_locked(cell, state, offset / BLOCK * BLOCK, &mut byte)?;
        }
        if !end.is_multiple_of(BLOCK) && end < size && !buffered(end) {
            self.read_locked(cell, state, end, &mut byte)?;
        }
        Ok(())
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
        let mut blocks = vec![0; (end - start) as usize];
        let head = (buffer.offset - start) as usize;
        let tail = head + buffer.data.len();
        if head > 0 {
            self.read_locked(cell, state, start, &mut blocks[..head])?;
        }
        // Beyond the end of the file a block is zeros; before it, what is stored there counts.
        if buffer.end() < end && buffer.end() < state.inode.size {
            let visible = (state.inode.size.min(end) - start) as usize;
            self.read_locked(cell, state, buffer.end(), &mut blocks[tail..visible])?;
        }
        blocks[head..tail].copy_from_slice(&buffer.data);
        Ok((start, Cow::Owned(blocks)))
    }

    /// Seals whole blocks within one chunk and puts them into the map.
    fn seal(&self, cell: &Arc<Cell>, state: &mut State, offset: u64, blocks: &[u8]) -> Result<()> {
        let sealed = self.append(blocks)?;
        let index = offset / CHUNK_LEN;
        let first = (offset % CHUNK_LEN / BLOCK) as u16;
        self.place(cell, state, index, first, &sealed)
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

    /// Replaces part of a chunk's map, and discards what it no longer refers to. The inode's block count follows.
    pub(crate) fn replace(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        let chunk = self.changed_chunk(cell, state, index)?;
        let (before, reserved) = (chunk.blocks(), chunk.reserved_blocks());
        let released = chunk.replace(first, blocks, with);
        let after = chunk.blocks();
        let ended = reserved - chunk.reserved_blocks();
        self.space.end_reserved(u64::from(ended));
        state.inode.blocks =
            (state.inode.blocks + u64::from(after)).saturating_sub(u64::from(before));
        state.row_dirty = true;
        self.inodes.mark_dirty(cell);
        self.discard(&released)
    }

    /// A chunk's map, to be changed.
    pub(crate) fn changed_chunk<'a>(
        &self,
        cell: &Arc<Cell>,
        state: &'a mut State,
        index: u64,
    ) -> Result<&'a mut Chunk> {
        use std::collections::btree_map::Entry;
        match state.chunks.entry(index) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let clean = match self.inodes.drop_chunk(cell.no, index) {
                    Some(chunk) => Arc::unwrap_or_clone(chunk),
                    None => self.catalog().chunk(cell.no, index)?,
                };
                Ok(entry.insert(clean))
            }
        }
    }
}

/// A chunk's map, wherever it is.
pub(crate) enum ChunkRef<'a> {
    Changed(&'a Chunk),
    Clean(Arc<Chunk>),
}

impl std::ops::Deref for ChunkRef<'_> {
    type Target = Chunk;

    fn deref(&self) -> &Chunk {
        match self {
            Self::Changed(chunk) => chunk,
            Self::Clean(chunk) => chunk,
        }
    }
}

/// Refuses what has no data.
pub(crate) fn regular(state: &State) -> Result<()> {
    match state.inode.kind {
        _ if state.is_gone() => Err(Error::NotFound),
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::InvalidArgument("not a regular file")),
    }
}

/// Blocks in a chunk, as offsets in it count them.
pub(crate) const CHUNK_END: u16 = CHUNK_BLOCKS as u16;
