//! File data: maps of extents, what is read through them, and what waits to be sealed.
//!
//! 1. Extents cover whole 4 KiB blocks. The part of a last block beyond the file's end is sealed as zeros, so that a
//!    longer file reads zeros there.
//! 2. Small writes that continue each other gather in the inode's buffer and are sealed together; what reads sees is
//!    buffer over changed maps over the catalog's maps.
//! 3. All of it happens under the cell's lock, which callers pass in, and every change within a
//!    [change](crate::commit::Commits::change).
//!
//! `write` gathers and seals, `shape` changes lengths and holes, `shift` moves whole ranges, `keep` keeps what snapshots see,
//! `restore` brings it back, `append_only` looks at files with flags. It deliberately does not know names, permissions or when a commit is due.

mod append_only;
mod keep;
mod restore;
mod shape;
mod shift;
mod write;

use std::ops::Range;
use std::sync::Arc;

use catalog::{CHUNK_BLOCKS, CHUNK_LEN, Chunk, Extent, Inode, InodeNo, Piece, Stored, Timestamp};
use segments::SegmentError;

use crate::blocks::{BLOCK, Blocks};
use crate::current::CurrentCatalog;
use crate::environment::Environment;
use crate::inodes::{Cell, InodeTable, State};
use crate::owners::{More, Owners};
use crate::reports::LostExtent;
use crate::reservations::Reservations;
use crate::{Error, FileKind, Result};
use append_only::Flagged;
use keep::Newest;

/// Largest size and end of a write: off_t's.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Blocks in a chunk, as offsets in it count them.
pub(crate) const CHUNK_END: u16 = CHUNK_BLOCKS as u16;

#[derive(Debug)]
pub(crate) struct Data {
    env: Arc<Environment>,
    catalog: Arc<CurrentCatalog>,
    blocks: Arc<Blocks>,
    inodes: InodeTable,
    reservations: Reservations,
    owners: Owners,
    flagged: Flagged,
    newest: Newest,
}

impl Data {
    pub(crate) fn new(
        env: Arc<Environment>,
        catalog: Arc<CurrentCatalog>,
        blocks: Arc<Blocks>,
        reserved: u64,
    ) -> Self {
        Self {
            env,
            catalog,
            blocks,
            inodes: InodeTable::new(),
            reservations: Reservations::new(reserved),
            owners: Owners::default(),
            flagged: Flagged::default(),
            newest: Newest::default(),
        }
    }

    pub(crate) fn inodes(&self) -> &InodeTable {
        &self.inodes
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// `QuotaExceeded` where the owner of a file may not have what these ranges of bytes need. The ranges are as short as data
    /// that is there: each of their chunks is looked at.
    pub(crate) fn check_quota(
        &self,
        cell: &Cell,
        state: &State,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<()> {
        if !self.owners.is_counting() {
            return Ok(());
        }
        let mut blocks = 0;
        for range in ranges {
            let (mut at, end) = (range.start / BLOCK, range.end.div_ceil(BLOCK));
            while at < end {
                let (index, block) = (at / u64::from(CHUNK_BLOCKS), at % u64::from(CHUNK_BLOCKS));
                let here = (end - at).min(u64::from(CHUNK_BLOCKS) - block);
                let chunk = self.chunk(cell.no, state, index)?;
                blocks += here - u64::from(chunk.allocated(block as u16, here as u16));
                at += here;
            }
        }
        self.owners
            .check(state.inode.uid, More { blocks, files: 0 })
    }

    /// Sets the number of a file's blocks.
    pub(crate) fn set_blocks(&self, state: &mut State, blocks: u64) {
        self.owners
            .blocks_changed(state.inode.uid, state.inode.blocks, blocks);
        state.inode.blocks = blocks;
        state.row_dirty = true;
    }

    /// An inode in memory.
    pub(crate) fn cell(&self, no: InodeNo) -> Result<Arc<Cell>> {
        self.inodes.get(&self.catalog.get(), no)
    }

    /// Attributes.
    pub(crate) fn attributes(&self, no: InodeNo) -> Result<Inode> {
        let cell = self.cell(no)?;
        let state = cell.state.read();
        if state.is_gone() {
            return Err(Error::NotFound);
        }
        let mut inode = state.inode.clone();
        if let Some(buffer) = &state.buffer {
            // What waits to be sealed will take at least this much; rounding settles it when it is.
            inode.blocks = inode.blocks.max((buffer.data.len() as u64).div_ceil(BLOCK));
        }
        Ok(inode)
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
                &self.catalog.get(),
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
        let segments = self.blocks.segments();
        let read = match stored.is_whole() {
            true => segments.read(stored.range, stored.proofs, buf),
            false => segments.read_part(stored.range, stored.proofs, stored.skip, buf),
        };
        read.map_err(offset_of)
    }

    /// Notes that an inode differs from the catalog. Called with its state locked for writing.
    pub(crate) fn mark_dirty(&self, cell: &Arc<Cell>) {
        let deferred = self.inodes.mark_dirty(cell);
        if !deferred.is_empty() {
            self.blocks.accounts().end_deferral(&deferred);
        }
    }

    /// Notes that the data changed.
    pub(crate) fn touch(&self, cell: &Arc<Cell>, state: &mut State, now: Timestamp) {
        state.inode.mtime = now;
        self.touch_inode(cell, state, now);
    }

    /// Notes that a file's data changed, and stamps it unless the caller does.
    pub(crate) fn touch_contents(&self, cell: &Arc<Cell>, state: &mut State) {
        match self.env.stamp() {
            Some(now) => self.touch(cell, state, now),
            None => self.note_change(cell, state),
        }
    }

    /// Notes that the inode changed.
    pub(crate) fn touch_inode(&self, cell: &Arc<Cell>, state: &mut State, now: Timestamp) {
        state.inode.ctime = now;
        self.note_change(cell, state);
    }

    /// Notes that the inode's row changed, and no time that a program sees.
    pub(crate) fn note_change(&self, cell: &Arc<Cell>, state: &mut State) {
        state.row_dirty = true;
        self.mark_dirty(cell);
    }

    /// Replaces part of a chunk's map, and discards what neither it nor a snapshot refers to any more. The inode's block count
    /// follows.
    pub(crate) fn replace(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        match self.kept_until(cell.no) {
            None => self.replace_now(cell, state, index, first, blocks, with),
            Some(until) => self.replace_and_keep(cell, state, until, index, first, blocks, with),
        }
    }

    /// Lets part of a chunk's map refer to other copies of the same data: nothing that a snapshot sees changes.
    pub(crate) fn relocate(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        let old = self.chunk(cell.no, state, index)?.slice(first, blocks);
        if !old.iter().chain(with).any(|extent| extent.shared) {
            return self.replace_now(cell, state, index, first, blocks, with);
        }
        self.unseen(cell.no, state, index, |state| {
            self.replace_now(cell, state, index, first, blocks, with)
        })
    }

    fn replace_now(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        let chunk = self.changed_chunk(cell, state, index)?;
        let before = (chunk.blocks(), chunk.reserved_blocks());
        let released = chunk.replace(first, blocks, with);
        self.count_blocks(state, index, before);
        self.mark_dirty(cell);
        self.blocks.discard(&released)
    }

    /// Counts what a change of a chunk did to the blocks of its inode and to reservations.
    fn count_blocks(&self, state: &mut State, index: u64, (blocks, reserved): (u32, u32)) {
        let Some(chunk) = state.chunks.get(&index) else {
            return;
        };
        let ended = reserved - chunk.reserved_blocks();
        self.reservations.end(u64::from(ended));
        let blocks =
            (state.inode.blocks + u64::from(chunk.blocks())).saturating_sub(u64::from(blocks));
        self.set_blocks(state, blocks);
    }

    /// A chunk's map, to be changed.
    pub(crate) fn changed_chunk<'a>(
        &self,
        cell: &Arc<Cell>,
        state: &'a mut State,
        index: u64,
    ) -> Result<&'a mut Chunk> {
        use std::collections::btree_map::Entry;
        if let Some(buffer) = &mut state.buffer {
            buffer.forget_surroundings();
        }
        match state.chunks.entry(index) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let clean = match self.inodes.drop_chunk(cell.no, index) {
                    Some(chunk) => Arc::unwrap_or_clone(chunk),
                    None => self.catalog.get().chunk(cell.no, index)?,
                };
                Ok(entry.insert(clean))
            }
        }
    }

    /// Notes a range that fails authentication, for the log line that names its file.
    fn note_damage(&self, lost: LostExtent) {
        if self.env.options.read_only {
            // No thread looks names up there.
            tracing::error!(
                "inode {}: {} bytes at {} are damaged, replaced or missing",
                lost.no.0,
                lost.len,
                lost.offset
            );
        } else {
            self.env.requests.note_damage(lost);
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
