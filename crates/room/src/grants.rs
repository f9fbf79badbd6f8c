//! Direct access of other machines to file data: write grants, maps, and the commit of written extents to files.
//!
//! 1. A grant is like an append under way: its positions are its client's alone, and its segment stays for as long as the
//!    grant does.
//! 2. Blocks committed under a grant and discarded again are released to the storage only when the grant is over: until
//!    then the client may write there.
//! 3. Everything from a client that could harm others is checked: where it wrote, that this was granted to it, and that
//!    nothing is committed twice. The bytes themselves are authenticated by their tags when the file is read.
//! 4. A client gets the keys of the units that it may read or write, and no key of a segment.
//! 5. A [committed](crate::Room::place) extent becomes durable like an append: the next commit flushes its segment before
//!    the catalog refers to it.
//!
//! It deliberately does not know how the other machine reaches the segments, or whether it may.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::Ordering;

use catalog::{BlockRange, CHUNK_BLOCKS, CHUNK_LEN, Chunk, InodeNo};
use model::{WriteGrantId, WrittenExtent};
use seal::PositionKeys;
use segments::{GRANT_BLOCKS_MAX, NoncePart, SegmentNo, UNIT_BLOCKS};

use crate::core::{BLOCK, Core};
use crate::data::{SIZE_MAX, regular};
use crate::{Error, Result, Room};

/// Most chunks in one request for maps.
const MAPS_MAX: usize = 1024;
/// Longest name of a note, in bytes.
const NOTE_NAME_MAX: usize = 64;
/// Longest note, in bytes.
const NOTE_MAX: usize = 1 << 20;

/// Blocks of a segment that one client alone may write, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteGrant {
    /// Its number.
    pub id: WriteGrantId,
    /// The segment.
    pub segment: SegmentNo,
    /// The first block.
    pub position: u32,
    /// How many.
    pub blocks: u32,
    /// Whether the borrower draws a part of the nonces for each append: see [`nonce_part`](Self::nonce_part).
    pub append_nonces: bool,
}

impl WriteGrant {
    /// The random part of the nonces of one append by the borrower.
    pub fn nonce_part(&self) -> std::io::Result<NoncePart> {
        seal::nonce_part(self.append_nonces)
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

/// The grants of a room.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    last: u64,
    live: HashMap<WriteGrantId, Granted>,
    /// Where each begins: grants do not overlap.
    by_position: BTreeMap<(SegmentNo, u32), WriteGrantId>,
    /// Discarded ranges, to be released when the grants that contain them are over.
    held: Vec<BlockRange>,
}

#[derive(Debug)]
struct Granted {
    range: BlockRange,
    /// A bit for each block: whether it was committed.
    written: [u64; GRANT_BLOCKS_MAX as usize / 64],
}

impl Granted {
    /// Notes that a range is committed; false, and no change, where it is not within the grant or was committed before.
    fn note(&mut self, range: BlockRange) -> bool {
        let Some(first) = range.position.checked_sub(self.range.position) else {
            return false;
        };
        if range.segment != self.range.segment
            || first >= self.range.blocks
            || range.blocks > self.range.blocks - first
        {
            return false;
        }
        let bits = first as usize..(first + range.blocks) as usize;
        if bits
            .clone()
            .any(|at| self.written[at / 64] >> (at % 64) & 1 == 1)
        {
            return false;
        }
        bits.for_each(|at| self.written[at / 64] |= 1 << (at % 64));
        true
    }
}

impl Grants {
    fn begin(&mut self, range: BlockRange) -> WriteGrantId {
        self.last += 1;
        let id = WriteGrantId(self.last);
        let written = [0; GRANT_BLOCKS_MAX as usize / 64];
        self.live.insert(id, Granted { range, written });
        self.by_position.insert((range.segment, range.position), id);
        id
    }

    /// Notes that all of these are committed, or nothing.
    fn note(&mut self, grant: WriteGrantId, extents: &[WrittenExtent]) -> Result<()> {
        let granted = self.live.get_mut(&grant).ok_or(Error::NotFound)?;
        let before = granted.written;
        if extents.iter().all(|p| granted.note(p.sealed.range())) {
            return Ok(());
        }
        granted.written = before;
        Err(Error::InvalidArgument(
            "an extent is within its grant, and committed once",
        ))
    }

    /// The segment of a grant that is over, and what may be released now.
    fn end(&mut self, grant: WriteGrantId) -> Option<(SegmentNo, Vec<BlockRange>)> {
        let granted = self.live.remove(&grant)?;
        let segment = granted.range.segment;
        self.by_position.remove(&(segment, granted.range.position));
        let held = std::mem::take(&mut self.held);
        Some((segment, self.hold_back(held)))
    }

    /// Keeps ranges within grants that are not over, and returns what may be released.
    pub(crate) fn hold_back(&mut self, mut released: Vec<BlockRange>) -> Vec<BlockRange> {
        let held = released.extract_if(.., |range| {
            let until = (range.segment, range.position.saturating_add(range.blocks));
            let before = self.by_position.range(..until).next_back();
            before.is_some_and(|((segment, position), id)| {
                *segment == range.segment
                    && self
                        .live
                        .get(id)
                        .is_some_and(|granted| position + granted.range.blocks > range.position)
            })
        });
        self.held.extend(held);
        released
    }
}

impl Room {
    /// Grants `blocks` blocks (1 to 1024) of a segment; fewer where the segment ends, but at least 256 or what was asked
    /// for. `lane` chooses among several open segments (64, taken modulo 64), so that clients write in parallel. Only a room
    /// whose segments are [on network disks](crate::OpenOptions::network_backed) grants writes.
    pub fn grant(&self, lane: usize, blocks: u32) -> Result<WriteGrant> {
        self.core()?.grant(lane, blocks)
    }

    /// Ends a grant: its client will neither write there nor commit written data any more.
    pub fn settle_grant(&self, grant: WriteGrantId) {
        if let Ok(core) = self.core() {
            core.settle_grant(grant);
        }
    }

    /// The keys of the units at these positions of a segment, and of no others; `None` where the catalog knows no such segment.
    /// None at all of a segment sealed before the room had such keys: a rekey seals its data again.
    pub fn position_keys(
        &self,
        segment: SegmentNo,
        positions: &[Range<u32>],
    ) -> Result<Option<PositionKeys>> {
        Ok(self.core()?.segments.position_keys(segment, positions)?)
    }

    /// Commits extents that were written under a grant to a file, all of them or, where it fails, none as a rule.
    /// `InvalidArgument` where one is not within the grant, was committed before, or does not fit into a chunk; `NotFound` where
    /// the grant is over or the file is gone. Returns the [stamp](Self::stamp) that covers it.
    pub fn place(
        &self,
        grant: WriteGrantId,
        no: InodeNo,
        extents: &[WrittenExtent],
    ) -> Result<u64> {
        self.core()?.commit_extents(grant, no, extents)?;
        Ok(self.stamp())
    }

    /// The newest maps of those of the `count` chunks (at most 1024) from index `first` on that are not holes.
    pub fn maps(&self, no: InodeNo, first: u64, count: usize) -> Result<Vec<(u64, Chunk)>> {
        self.core()?.maps(no, first, count)
    }

    /// Counts changes; what is at or below [`settled`](Self::settled) is durable.
    pub fn stamp(&self) -> u64 {
        self.core.changes.load(Ordering::SeqCst)
    }

    /// The stamp that the last commit or record of the log covered.
    pub fn settled(&self) -> u64 {
        self.core.durable.load(Ordering::SeqCst)
    }

    /// A value that a program keeps in the room beside the files, sealed and authenticated with the catalog. The name has 1 to
    /// 64 bytes.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.core()?.catalog().meta(&note_key(name)?)?)
    }

    /// Sets it, at most 1 MiB; durable when this returns.
    pub fn set_note(&self, name: &str, value: &[u8]) -> Result<()> {
        let key = note_key(name)?;
        if value.len() > NOTE_MAX {
            return Err(Error::InvalidArgument("a note has at most 1 MiB"));
        }
        // No segment space is needed: notes record where the disks are, also while no disk is attached.
        {
            let core = self.core()?;
            let _change = core.change()?;
            core.catalog().set_meta(&key, value)?;
        }
        self.core()?.sync()
    }
}

/// The catalog's name of a note, which none of its own is like.
fn note_key(name: &str) -> Result<String> {
    match name.len() {
        1..=NOTE_NAME_MAX => Ok(format!("note:{name}")),
        _ => Err(Error::InvalidArgument("a note's name has 1 to 64 bytes")),
    }
}

impl Core {
    /// Whether the segments are on network disks, where clients reach them.
    pub(crate) fn is_shared(&self) -> bool {
        self.options.network_backed
    }

    fn grant(&self, lane: usize, blocks: u32) -> Result<WriteGrant> {
        if !self.is_shared() {
            return Err(Error::NotSupported(
                "granting writes in a room that is not on network disks",
            ));
        }
        if !(1..=GRANT_BLOCKS_MAX).contains(&blocks) {
            return Err(Error::InvalidArgument("a grant has 1 to 1024 blocks"));
        }
        self.with_space(u64::from(blocks) * BLOCK, || {
            if self.options.read_only {
                return Err(Error::ReadOnly);
            }
            self.check_poison()?;
            // No commit may find the segment before the grant is known. A grant alone changes nothing in the file system.
            let _freeze = self.freeze.read();
            let range = self.segments.grant(lane, blocks)?;
            self.enter_new();
            Ok(WriteGrant {
                id: self.grants.lock().begin(range),
                segment: range.segment,
                position: range.position,
                blocks: range.blocks,
                append_nonces: self.segments.append_nonces(),
            })
        })
    }

    fn settle_grant(&self, grant: WriteGrantId) {
        let mut grants = self.grants.lock();
        let Some((segment, released)) = grants.end(grant) else {
            return;
        };
        self.segments.release_grant(segment);
        drop(grants);
        self.holes.lock().extend(released);
        let dead = |a: &catalog::SegmentAccount| a.live == 0;
        if self.accounts.lock().get(segment).is_some_and(dead) {
            // The next commit lets it go.
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn commit_extents(
        &self,
        grant: WriteGrantId,
        no: InodeNo,
        extents: &[WrittenExtent],
    ) -> Result<()> {
        let append_nonces = self.segments.append_nonces();
        extents
            .iter()
            .try_for_each(|p| check_form(p, append_nonces))?;
        // What was done, for the second try that may follow one without space.
        let (entered, done) = (Cell::new(false), Cell::new(0));
        self.with_space(2 * BLOCK, || {
            let _change = self.change()?;
            let cell = self.cell(no)?;
            let mut state = cell.state.write();
            regular(&state)?;
            crate::flags::refuse_immutable(&state.inode)?;
            self.flush_buffer(&cell, &mut state)?;
            if !entered.get() {
                // The grant cannot end meanwhile.
                let mut grants = self.grants.lock();
                grants.note(grant, extents)?;
                for p in extents {
                    self.segments.written(p.sealed.range())?;
                    self.enter(p.sealed.range());
                }
                entered.set(true);
            }
            if let Err(e) = self.check_extents(&cell, &state, extents) {
                // It is in no file, and freed when the grant is over.
                let mut accounts = self.accounts.lock();
                extents[done.get()..]
                    .iter()
                    .for_each(|p| accounts.release(p.sealed.range()));
                return Err(e);
            }
            while let Some(p) = extents.get(done.get()) {
                let (index, first) = (p.offset / CHUNK_LEN, p.offset % CHUNK_LEN / BLOCK);
                self.place(&cell, &mut state, index, first as u16, &p.sealed)?;
                // What the old last block holds behind the old end are zeros, as in every file.
                state.inode.size = state.inode.size.max(p.end);
                done.set(done.get() + 1);
            }
            self.touch(&cell, &mut state, self.now());
            Ok(())
        })
    }

    fn maps(&self, no: InodeNo, first: u64, count: usize) -> Result<Vec<(u64, Chunk)>> {
        let cell = self.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        if state.buffer.is_some() {
            drop(state);
            let _change = self.change()?;
            state = cell.state.write();
            regular(&state)?;
            self.flush_buffer(&cell, &mut state)?;
        }
        let end = first
            .saturating_add(count.min(MAPS_MAX) as u64)
            .min(state.inode.size.div_ceil(CHUNK_LEN));
        let mut maps = Vec::new();
        for index in first..end {
            let chunk = self.chunk(no, &state, index)?;
            if !chunk.is_empty() {
                maps.push((index, chunk.clone()));
            }
        }
        Ok(maps)
    }
}
