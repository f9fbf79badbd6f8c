//! One chunk as all snapshots see it, and the space that they hold of it.
//!
//! 1. A unit belongs to the newest map of its chunk that refers to it: the live one, or what is kept for a snapshot. Only in the
//!    second case do snapshots hold it.
//! 2. Snapshots hold a unit from its *birth* on, which is the snapshot after which it was written, until the one for which it is
//!    kept. All blocks of a unit have one birth: they were sealed together, and compaction keeps them apart from others.
//!
//! It deliberately does not know other chunks: a unit that a copy refers to as well is counted for each of them.

use std::collections::{BTreeMap, HashSet};

use catalog::{Births, Catalog, Change, Chunk, Extent, InodeNo, KeptChunk, SnapshotRow};

use crate::Result;
use crate::usage::Unit;

/// Changes of the space that snapshots hold: blocks, by the snapshots after which they were written, and until which they are kept.
pub(crate) type Held = BTreeMap<(u64, u64), i64>;

/// Adds the changes of another account.
pub(crate) fn add(held: &mut Held, (since, until): (u64, u64), blocks: i64) {
    let sum = held.entry((since, until)).or_insert(0);
    *sum += blocks;
    if *sum == 0 {
        held.remove(&(since, until));
    }
}

/// Adds all changes of another account.
pub(crate) fn add_all(held: &mut Held, other: &Held) {
    for (class, blocks) in other {
        add(held, *class, *blocks);
    }
}

/// The changes as the catalog takes them.
pub(crate) fn counts<'a>(held: &Held) -> Vec<Change<'a>> {
    held.iter()
        .map(|((since, until), blocks)| Change::count_space(*since, *until, *blocks))
        .collect()
}

/// A chunk, and what is kept of it for snapshots.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// Its map in the room.
    pub(crate) live: Chunk,
    /// By the snapshot until which it is kept.
    pub(crate) kept: BTreeMap<u64, KeptChunk>,
    /// The newest snapshot that does not know the file; 0 if none.
    pub(crate) born: u64,
    /// The snapshots that are not deleted, in order.
    pub(crate) living: Vec<u64>,
}

impl History {
    /// A chunk as the catalog has it.
    pub(crate) fn read(catalog: &Catalog, no: InodeNo, index: u64) -> Result<Self> {
        Ok(Self {
            kept: catalog.kept_chunks(no, index)?.into_iter().collect(),
            ..Self::of_live(catalog, no, index)?
        })
    }

    /// The same without what is kept.
    pub(crate) fn of_live(catalog: &Catalog, no: InodeNo, index: u64) -> Result<Self> {
        Ok(Self {
            live: catalog.chunk(no, index)?,
            kept: BTreeMap::new(),
            born: older(&catalog.snapshots(), no),
            living: living(&catalog.snapshots()),
        })
    }

    /// A birth as the account of space has it: a deleted snapshot is none.
    fn since(&self, snapshot: u64) -> u64 {
        let older = self.living.partition_point(|living| *living <= snapshot);
        older.checked_sub(1).map_or(0, |at| self.living[at])
    }

    /// The space that snapshots hold.
    pub(crate) fn held(&self) -> Held {
        let mut births = Births::after(self.since(self.born));
        let mut by_snapshot = Vec::with_capacity(self.kept.len());
        for (until, kept) in &self.kept {
            by_snapshot.push((*until, born(located_units(kept.chunk()), &births)));
            births.note(kept, self.since(*until));
        }
        let mut held = Held::new();
        let mut seen: HashSet<Unit> = units(self.live.extents()).collect();
        for (until, units) in by_snapshot.into_iter().rev() {
            for (unit, (since, blocks)) in units {
                if seen.insert(unit) {
                    add(&mut held, (since, until), i64::from(blocks));
                }
            }
        }
        held
    }
}

/// The newest snapshot that does not know an inode; 0 where all do.
fn older(snapshots: &[SnapshotRow], no: InodeNo) -> u64 {
    let before = snapshots.iter().rev().find(|s| s.next_inode <= no);
    before.map_or(0, SnapshotRow::no)
}

/// The snapshots that are not deleted.
fn living(snapshots: &[SnapshotRow]) -> Vec<u64> {
    let living = snapshots.iter().filter(|s| !s.doomed);
    living.map(SnapshotRow::no).collect()
}

/// The units of a map, each with its blocks and the first block of the chunk that it holds; one to which several extents refer comes
/// for each.
pub(crate) fn located_units(chunk: &Chunk) -> impl Iterator<Item = (Unit, u32, u16)> + '_ {
    chunk.extents().iter().flat_map(|extent| {
        let skip = u32::from(extent.skip);
        extent.units().map(move |(range, _)| {
            let before = (range.position - extent.position).saturating_sub(skip);
            let place = extent.first + before as u16;
            ((range.segment, range.position), range.blocks, place)
        })
    })
}

/// Units with their birth and their blocks.
pub(crate) fn born(
    units: impl Iterator<Item = (Unit, u32, u16)>,
    births: &Births,
) -> BTreeMap<Unit, (u64, u32)> {
    let mut born = BTreeMap::new();
    for (unit, blocks, place) in units {
        let since = births.since(place);
        let known = born.entry(unit).or_insert((since, blocks));
        known.0 = known.0.min(since);
    }
    born
}

/// The units of extents.
pub(crate) fn units(extents: &[Extent]) -> impl Iterator<Item = Unit> + '_ {
    let ranges = extents.iter().flat_map(Extent::units);
    ranges.map(|(range, _)| (range.segment, range.position))
}

/// What `after` holds more than `before`.
pub(crate) fn difference(before: &Held, after: &Held) -> Held {
    let mut out = after.clone();
    for (class, blocks) in before {
        add(&mut out, *class, -blocks);
    }
    out
}
