//! Everything that a snapshot must see, as a copy.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::{CHUNK_BLOCKS, Extent};
use segments::UNIT_BLOCKS;

pub(super) const CHUNK: u16 = CHUNK_BLOCKS as u16;

/// A block of a file: its unit, its place in it, and what opens the unit.
pub(super) type Block = Option<(SegmentNo, u32, u32, [u8; 16])>;

pub(super) fn blocks(chunk: &Chunk) -> Vec<Block> {
    let mut out = vec![None; usize::from(CHUNK)];
    for extent in chunk.extents() {
        let units: Vec<_> = extent.units().collect();
        for i in 0..extent.blocks {
            let at = u32::from(extent.skip) + u32::from(i);
            let (range, tag) = units[(at / UNIT_BLOCKS) as usize];
            let cell = (range.segment, range.position, at % UNIT_BLOCKS, tag);
            out[usize::from(extent.first + i)] = Some(cell);
        }
    }
    out
}

pub(super) fn units(chunk: &Chunk) -> BTreeSet<(SegmentNo, u32)> {
    let units = chunk.extents().iter().flat_map(Extent::units);
    units
        .map(|(unit, _)| (unit.segment, unit.position))
        .collect()
}

/// Everything that a snapshot must see.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Whole {
    inodes: BTreeMap<InodeNo, Inode>,
    entries: BTreeMap<InodeNo, Vec<DirEntry>>,
    xattrs: BTreeMap<InodeNo, BTreeMap<Vec<u8>, Vec<u8>>>,
    chunks: BTreeMap<(InodeNo, u64), Vec<Block>>,
}

impl Whole {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let mut whole = Self::default();
        for inode in catalog.all_inodes(InodeNo(0), 10_000).unwrap() {
            for name in catalog.xattr_names(inode.no).unwrap() {
                let value = catalog.xattr(inode.no, &name).unwrap().unwrap();
                let own = whole.xattrs.entry(inode.no).or_default();
                own.insert(name, value);
            }
            whole.inodes.insert(inode.no, inode);
        }
        for (parent, entry) in catalog.all_entries((InodeNo(0), 0), 10_000).unwrap() {
            whole.entries.entry(parent).or_default().push(entry);
        }
        for (inode, index, chunk) in catalog.all_chunks(None, 10_000).unwrap() {
            whole.chunks.insert((inode, index), blocks(&chunk));
        }
        whole
    }

    pub(super) fn lookup(&self, parent: InodeNo, name: &[u8]) -> Option<&Inode> {
        let entries = self.entries.get(&parent)?;
        let entry = entries.iter().find(|entry| entry.name == name)?;
        self.inodes.get(&entry.inode)
    }

    /// The same, by what a snapshot sees.
    pub(super) fn in_snapshot(catalog: &Catalog, at: u64, highest: InodeNo, page: usize) -> Self {
        let mut whole = Self::default();
        for no in (1..=highest.0).map(InodeNo) {
            let inode = catalog.past_inode(at, no).unwrap();
            let mut after = 0;
            loop {
                let some = catalog.past_entries(at, no, after, page).unwrap();
                assert!(some.len() <= page);
                let plus = catalog.past_entries_plus(at, no, after, page).unwrap();
                let each = some.iter().map(|entry| {
                    let inode = catalog.past_inode(at, entry.inode).unwrap();
                    (entry.clone(), inode.unwrap())
                });
                assert_eq!(plus, each.collect::<Vec<_>>());
                let Some(last) = some.last() else { break };
                after = last.cookie;
                whole.entries.entry(no).or_default().extend(some);
            }
            let Some(inode) = inode else { continue };
            whole.inodes.insert(no, inode);
            for name in catalog.past_xattr_names(at, no).unwrap() {
                let value = catalog.past_xattr(at, no, &name).unwrap().unwrap();
                whole.xattrs.entry(no).or_default().insert(name, value);
            }
            let mut first = 0;
            while let Some((index, chunk)) =
                catalog.past_chunks_from(at, no, first, 1).unwrap().pop()
            {
                assert_eq!(catalog.past_chunk(at, no, index).unwrap(), chunk);
                whole.chunks.insert((no, index), blocks(&chunk));
                first = index + 1;
            }
        }
        whole
    }
}
