//! Which blocks of segments extents refer to.
//!
//! What is counted are the extents that can be: one that leads nowhere is left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use catalog::{BlockRange, Catalog, Chunk, Extent, InodeNo, KeptRow, SegmentAccount, SegmentNo};
use segments::{SEGMENT_BLOCKS, UNIT_BLOCKS};

use crate::Result;

/// Rows read at once.
const PAGE: usize = 256;

/// A segment, and the position of a unit in it.
pub(crate) type Unit = (SegmentNo, u32);

/// Why a unit cannot be where an extent says, if others are there.
pub(crate) const OVERLAPS: &str = "overlaps other data";

fn blocks_of(unit: BlockRange) -> impl Iterator<Item = Unit> {
    let blocks = unit.position..unit.position.saturating_add(unit.blocks);
    blocks.map(move |block| (unit.segment, block))
}

/// A segment and the blocks in it that extents refer to.
pub(crate) struct Segment {
    pub(crate) account: SegmentAccount,
    /// Blocks that it has: those of the account, or more.
    pub(crate) length: u32,
    used: Vec<u64>,
    starts: Vec<u64>,
    pub(crate) live: u32,
}

impl Segment {
    pub(crate) fn new(account: SegmentAccount) -> Self {
        let words = account.length.div_ceil(64) as usize;
        Self {
            length: account.length,
            account,
            used: vec![0; words],
            starts: vec![0; words],
            live: 0,
        }
    }

    /// The end of the last block that is referred to.
    pub(crate) fn end(&self) -> u32 {
        let last = self.used.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| (at as u32 + 1) * 64 - self.used[at].leading_zeros())
    }

    /// What nothing refers to.
    fn dead(&self) -> Vec<BlockRange> {
        let is_dead = |block: &u32| !get(&self.used, *block);
        let blocks: Vec<u32> = (1..SEGMENT_BLOCKS).filter(is_dead).collect();
        blocks
            .chunk_by(|a, b| a + 1 == *b)
            .map(|run| BlockRange {
                segment: self.account.id.no,
                position: run[0],
                blocks: run.len() as u32,
            })
            .collect()
    }
}

fn get(bits: &[u64], at: u32) -> bool {
    bits.get(at as usize / 64)
        .is_some_and(|word| word >> (at % 64) & 1 == 1)
}

fn set(bits: &mut [u64], at: u32) {
    bits[at as usize / 64] |= 1 << (at % 64);
}

/// References to units, counted.
pub(crate) struct Counts {
    pub(crate) segments: BTreeMap<SegmentNo, Segment>,
    /// References beyond the first.
    pub(crate) extra: HashMap<Unit, u64>,
    /// Blocks reserved for holes.
    pub(crate) reserved: u64,
    /// Blocks to which units refer that overlap each other: at most one of them is there.
    pub(crate) disputed: HashSet<Unit>,
}

impl Counts {
    pub(crate) fn new(accounts: impl IntoIterator<Item = SegmentAccount>) -> Self {
        let accounts = accounts.into_iter();
        Self {
            segments: accounts.map(|a| (a.id.no, Segment::new(a))).collect(),
            extra: HashMap::new(),
            reserved: 0,
            disputed: HashSet::new(),
        }
    }

    /// Whether other units refer to blocks of this one.
    pub(crate) fn is_disputed(&self, unit: BlockRange) -> bool {
        !self.disputed.is_empty() && blocks_of(unit).any(|block| self.disputed.contains(&block))
    }

    /// Notes that a unit overlaps others.
    pub(crate) fn dispute(&mut self, unit: BlockRange) {
        self.disputed.extend(blocks_of(unit));
    }

    /// Why a unit cannot be where an extent says, if so.
    pub(crate) fn fault(&self, unit: BlockRange) -> Option<&'static str> {
        let Some(segment) = self.segments.get(&unit.segment) else {
            return Some("leads to a segment that is not known");
        };
        if unit.position == 0
            || unit
                .position
                .checked_add(unit.blocks)
                .is_none_or(|end| end > segment.length)
        {
            return Some("leads beyond the end of a segment");
        }
        let mut blocks = unit.position..unit.position + unit.blocks;
        let overlaps =
            !get(&segment.starts, unit.position) && blocks.any(|block| get(&segment.used, block));
        overlaps.then_some(OVERLAPS)
    }

    /// Whether only the length of its segment's account says that a unit cannot be.
    pub(crate) fn is_behind(&self, unit: BlockRange) -> bool {
        let end = unit.position.checked_add(unit.blocks);
        let behind = |segment: &Segment| {
            end.is_some_and(|end| end > segment.length && end <= SEGMENT_BLOCKS)
        };
        unit.position > 0 && self.segments.get(&unit.segment).is_some_and(behind)
    }

    /// A segment goes on to the end of this unit.
    pub(crate) fn lengthen(&mut self, unit: BlockRange) {
        if let Some(segment) = self.segments.get_mut(&unit.segment) {
            segment.length = segment.length.max(unit.position + unit.blocks);
            let words = segment.length.div_ceil(64) as usize;
            segment.used.resize(words, 0);
            segment.starts.resize(words, 0);
        }
    }

    /// Counts a reference to a unit without fault.
    pub(crate) fn refer(&mut self, unit: BlockRange) {
        let Some(segment) = self.segments.get_mut(&unit.segment) else {
            return;
        };
        if get(&segment.starts, unit.position) {
            *self.extra.entry((unit.segment, unit.position)).or_insert(0) += 1;
            return;
        }
        set(&mut segment.starts, unit.position);
        (unit.position..unit.position + unit.blocks)
            .for_each(|block| set(&mut segment.used, block));
        segment.live += unit.blocks;
    }

    /// Whether an extent has a unit with more than one reference, and is not marked as shared.
    pub(crate) fn lacks_mark(&self, extent: &Extent) -> bool {
        let mut units = extent.units().map(|(unit, _)| unit);
        !extent.shared && units.any(|u| self.extra.contains_key(&(u.segment, u.position)))
    }
}

/// The extent cut at its units.
pub(crate) fn by_unit(extent: &Extent) -> Vec<Extent> {
    let unit = UNIT_BLOCKS as u16;
    let mut at = extent.first;
    let mut pieces = Vec::with_capacity(extent.tags.len());
    while at < extent.end() {
        let in_run = u16::from(extent.skip) + at - extent.first;
        let end = (at + unit - in_run % unit).min(extent.end());
        pieces.push(extent.trim(at, end));
        at = end;
    }
    pieces
}

/// Does something with each chunk of the catalog that is not empty.
pub(crate) fn each_chunk(
    catalog: &Catalog,
    mut each: impl FnMut(InodeNo, u64, Chunk) -> Result<()>,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = catalog.all_chunks(after, PAGE)?;
        let Some((no, index, _)) = page.last() else {
            return Ok(());
        };
        after = Some((*no, *index));
        for (no, index, chunk) in page {
            each(no, index, chunk)?;
        }
    }
}

/// Does something with all that is kept of chunks for snapshots.
pub(crate) fn each_kept(
    catalog: &Catalog,
    mut each: impl FnMut(KeptRow) -> Result<()>,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = catalog.all_kept_chunks(after, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some((last.inode, last.index, last.until));
        page.into_iter().try_for_each(&mut each)?;
    }
}

/// The end of the last block of each segment that an extent refers to.
pub(crate) fn ends(catalog: &Catalog) -> Result<HashMap<SegmentNo, u32>> {
    let mut ends = HashMap::new();
    let mut note = |chunk: &Chunk| {
        for (unit, _) in chunk.extents().iter().flat_map(Extent::units) {
            let end = ends.entry(unit.segment).or_insert(0);
            *end = unit.position.saturating_add(unit.blocks).max(*end);
        }
        Ok(())
    };
    each_chunk(catalog, |_, _, chunk| note(&chunk))?;
    each_kept(catalog, |row| note(row.kept.chunk()))?;
    Ok(ends)
}

/// Counts the units of a map; a segment with one that cannot be is left out.
fn refer_to_all(counts: &mut Counts, chunk: &Chunk) {
    for (unit, _) in chunk.extents().iter().flat_map(Extent::units) {
        match counts.fault(unit) {
            Some(_) => drop(counts.segments.remove(&unit.segment)),
            None => counts.refer(unit),
        }
    }
}

/// The ranges of these segments that no extent refers to, their unused ends included. A segment with an extent that
/// cannot be is left out. No change is under way, and nobody writes to them.
pub(crate) fn dead_ranges(
    catalog: &Catalog,
    segments: &HashSet<SegmentNo>,
) -> Result<Vec<BlockRange>> {
    let mut accounts = catalog.segments()?;
    accounts.retain(|a| segments.contains(&a.id.no));
    let mut counts = Counts::new(accounts);
    each_chunk(catalog, |_, _, chunk| {
        refer_to_all(&mut counts, &chunk);
        Ok(())
    })?;
    each_kept(catalog, |row| {
        refer_to_all(&mut counts, row.kept.chunk());
        Ok(())
    })?;
    let segments = counts.segments.into_values();
    Ok(segments.flat_map(|segment| segment.dead()).collect())
}
