//! Operations of other machines on file data: grants, maps, and the commit of extents that they wrote.
//!
//! Everything from a client that could harm others is checked: where it wrote, that this was granted to it, and that nothing is
//! committed twice. A committed extent becomes durable like an append: the next commit flushes its segment before the catalog
//! refers to it.

use std::cell::Cell;
use std::sync::Arc;

use catalog::{BlockRange, CHUNK_BLOCKS, CHUNK_LEN, Chunk, InodeNo, SegmentAccount};
use model::{Timestamp, WriteGrantId, WrittenExtent};
use segments::{GRANT_BLOCKS_MAX, NoncePart, UNIT_BLOCKS};

use crate::blocks::{BLOCK, Blocks};
use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::data::{Data, SIZE_MAX, regular};
use crate::environment::Environment;
use crate::flags::refuse_immutable;
use crate::freed::Freed;
use crate::grants::WriteGrant;
use crate::inodes;
use crate::space::Space;
use crate::{Error, Result};

/// Most chunks in one request for maps.
const MAPS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) freed: Arc<Freed>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) space: Arc<Space>,
}

impl Remote {
    pub(crate) fn grant(&self, lane: usize, blocks: u32) -> Result<WriteGrant> {
        if !self.env.options.network_backed {
            return Err(Error::NotSupported(
                "granting writes in a room that is not on network disks",
            ));
        }
        if !(1..=GRANT_BLOCKS_MAX).contains(&blocks) {
            return Err(Error::InvalidArgument("a grant has 1 to 1024 blocks"));
        }
        self.space.with_space(u64::from(blocks) * BLOCK, || {
            // No commit may find the segment before the grant is known. A grant alone changes nothing in the file system.
            let _freeze = self.commits.without_commits()?;
            let range = self.blocks.segments().grant(lane, blocks)?;
            self.blocks.enter_new();
            Ok(WriteGrant {
                id: self.freed.grants().begin(range),
                segment: range.segment,
                position: range.position,
                blocks: range.blocks,
                append_nonces: self.blocks.segments().append_nonces(),
            })
        })
    }

    pub(crate) fn settle_grant(&self, grant: WriteGrantId) {
        let mut grants = self.freed.grants();
        let Some((segment, released)) = grants.end(grant) else {
            return;
        };
        self.blocks.segments().release_grant(segment);
        drop(grants);
        self.freed.gather(released);
        let dead = |a: &SegmentAccount| a.live == 0;
        if self.blocks.accounts().get(segment).is_some_and(dead) {
            // The next commit lets it go.
            self.commits.note_change();
        }
    }

    pub(crate) fn commit_extents(
        &self,
        grant: WriteGrantId,
        no: InodeNo,
        extents: &[WrittenExtent],
        onto: Option<Timestamp>,
    ) -> Result<Option<[Timestamp; 2]>> {
        let append_nonces = self.blocks.segments().append_nonces();
        extents
            .iter()
            .try_for_each(|p| check_form(p, append_nonces))?;
        // What was done, for the second try that may follow one without space.
        let (entered, done) = (Cell::new(false), Cell::new(0));
        let committed = self.space.with_space(2 * BLOCK, || {
            let _change = self.commits.change()?;
            let cell = self.data.cell(no)?;
            let mut state = cell.state.write();
            regular(&state)?;
            refuse_immutable(&state.inode)?;
            self.data.flush_buffer(&cell, &mut state)?;
            let before = state.inode.mtime;
            if !entered.get() && onto.is_some_and(|onto| onto != before) {
                return Ok(None);
            }
            let mut deferral = Deferral::begin(&self.data, &self.blocks, &cell);
            if !entered.get() {
                // The grant cannot end meanwhile.
                let mut grants = self.freed.grants();
                grants.note(grant, extents)?;
                for p in extents {
                    self.blocks.segments().written(p.sealed.range())?;
                    self.blocks.enter(p.sealed.range());
                }
                entered.set(true);
            }
            self.data.check_extents(&cell, &state, extents)?;
            let left = extents[done.get()..].iter();
            let ranges = left.map(|p| p.offset..p.offset + u64::from(p.sealed.blocks) * BLOCK);
            self.data.check_quota(&cell, &state, ranges)?;
            while let Some(p) = extents.get(done.get()) {
                let (index, first) = (p.offset / CHUNK_LEN, p.offset % CHUNK_LEN / BLOCK);
                let (first, blocks) = (first as u16, p.sealed.blocks as u16);
                let chunk = self.data.chunk(cell.no, &state, index)?;
                // That a snapshot keeps the hole refers to nothing.
                let fresh = chunk.allocated(first, blocks) == 0;
                self.data
                    .place(&cell, &mut state, index, first, &p.sealed)?;
                deferral.committed(p.sealed.range(), fresh);
                // What the old last block holds behind the old end are zeros, as in every file.
                state.inode.size = state.inode.size.max(p.end);
                done.set(done.get() + 1);
            }
            self.data.touch(&cell, &mut state, self.env.now());
            deferral.end();
            Ok(Some([before, state.inode.mtime]))
        });
        if committed.is_err() && entered.get() {
            let _change = self.commits.change();
            // It is in no file, and freed when the grant is over.
            let mut accounts = self.blocks.accounts();
            extents[done.get()..]
                .iter()
                .for_each(|p| accounts.release(p.sealed.range()));
        }
        committed
    }

    pub(crate) fn maps(&self, no: InodeNo, first: u64, count: usize) -> Result<Vec<(u64, Chunk)>> {
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        if state.buffer.is_some() {
            drop(state);
            let _change = self.commits.change()?;
            state = cell.state.write();
            regular(&state)?;
            self.data.flush_buffer(&cell, &mut state)?;
        }
        let end = end_of_maps(first, count, state.inode.size);
        let mut maps = Vec::new();
        for index in first..end {
            let chunk = self.data.chunk(no, &state, index)?;
            if !chunk.is_empty() {
                maps.push((index, chunk.clone()));
            }
        }
        Ok(maps)
    }

    pub(crate) fn past_maps(
        &self,
        at: u64,
        no: InodeNo,
        first: u64,
        count: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        let end = end_of_maps(first, count, self.data.past_inode(at, no)?.size);
        self.data.with_past(no, || {
            let count = end.saturating_sub(first) as usize;
            let chunks = self.catalog.get().past_chunks_from(at, no, first, count)?;
            let within = chunks.into_iter().filter(|(index, _)| *index < end);
            Ok(within.collect())
        })
    }
}

/// The index behind the last map that is returned of a file with this size.
fn end_of_maps(first: u64, count: usize, size: u64) -> u64 {
    let asked = first.saturating_add(count.min(MAPS_MAX) as u64);
    asked.min(size.div_ceil(CHUNK_LEN))
}

/// Whether an inode is deferred when extents are committed to it: it was, or did not differ from the catalog, and they replace
/// nothing. Otherwise a record without it would say of segments and space what is not so.
struct Deferral<'a> {
    data: &'a Data,
    blocks: &'a Blocks,
    cell: &'a Arc<inodes::Cell>,
    /// Blocks that deferred extents refer to; `None`: it is not deferred.
    before: Option<Vec<BlockRange>>,
    new: Vec<BlockRange>,
}

impl<'a> Deferral<'a> {
    /// The inode's state is locked for writing until this is dropped.
    fn begin(data: &'a Data, blocks: &'a Blocks, cell: &'a Arc<inodes::Cell>) -> Self {
        Self {
            data,
            blocks,
            cell,
            before: data.inodes().take_deferred(cell),
            new: Vec::new(),
        }
    }

    /// An extent of these blocks was committed; `fresh`: to a hole.
    fn committed(&mut self, range: BlockRange, fresh: bool) {
        self.new.push(range);
        if !fresh {
            self.end_deferral();
        }
    }

    fn end_deferral(&mut self) {
        if let Some(before) = self.before.take() {
            self.blocks.accounts().end_deferral(&before);
        }
    }

    /// All of them were committed.
    fn end(mut self) {
        let Some(mut blocks) = self.before.take() else {
            return;
        };
        let mut accounts = self.blocks.accounts();
        self.new.iter().for_each(|range| accounts.defer(*range));
        blocks.append(&mut self.new);
        self.data.inodes().defer(self.cell, blocks);
    }
}

impl Drop for Deferral<'_> {
    fn drop(&mut self) {
        if self.before.is_some() {
            // They were not all committed: what was counts as any change.
            self.data.mark_dirty(self.cell);
            self.end_deferral();
        }
    }
}

/// Refuses what no file can hold.
fn check_form(p: &WrittenExtent, append_nonces: bool) -> Result<()> {
    let (blocks, in_chunk) = (u64::from(p.sealed.blocks), p.offset % CHUNK_LEN);
    if p.end > SIZE_MAX || p.offset > SIZE_MAX {
        return Err(Error::FileTooLarge);
    }
    if !p.offset.is_multiple_of(BLOCK)
        || blocks == 0
        || in_chunk / BLOCK + blocks > u64::from(CHUNK_BLOCKS)
    {
        return Err(Error::InvalidArgument(
            "an extent has whole blocks of one chunk",
        ));
    }
    let units = p.sealed.blocks.div_ceil(UNIT_BLOCKS) as usize;
    if p.sealed.tags.len() != units || p.sealed.digests.len() != units {
        return Err(Error::InvalidArgument(
            "an extent has one tag and one digest for each unit",
        ));
    }
    // A room without the feature is read by programs that do not know it.
    if !append_nonces && p.sealed.nonce != NoncePart::NONE {
        return Err(Error::InvalidArgument(
            "a part of a nonce in a room without the feature append-nonces",
        ));
    }
    if p.end <= p.offset + (blocks - 1) * BLOCK {
        return Err(Error::InvalidArgument(
            "an extent ends in its last block or behind it",
        ));
    }
    Ok(())
}
