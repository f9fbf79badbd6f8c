//! Random changes with snapshots, against whole copies of what each snapshot saw. The test does what a room does: it hands over
//! the kept chunks, and counts units and blocks.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use storage::testing::MemoryStorage;

use super::super::vouched::copy_of;
use super::super::*;
use super::whole::{CHUNK, Whole, units};
use super::{create_in, open_in};
use crate::{Extent, KeptChunk, Released, SnapshotRow, latest};
use segments::{NoncePart, Sealed, UNIT_BLOCKS};

mod checks;

const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
const DIRS: u64 = 3;
const CHUNKS: u64 = 3;

/// The catalog as a room uses it.
struct Rooms {
    random: Rng,
    memory: MemoryStorage,
    catalog: Catalog,
    /// Goes through the same changes without snapshots.
    plain: Catalog,
    wholes: BTreeMap<u64, Whole>,
    /// Numbers handed out and not used yet.
    numbers: Vec<InodeNo>,
    highest: InodeNo,
    next_position: u32,
    freed: BTreeSet<(SegmentNo, u32)>,
    names: u64,
}

impl Rooms {
    fn new(seed: u64) -> Self {
        let memory = MemoryStorage::new();
        Self {
            random: Rng::with_seed(seed),
            catalog: create_in(&memory),
            plain: create_in(&MemoryStorage::new()),
            memory,
            wholes: BTreeMap::new(),
            numbers: Vec::new(),
            highest: InodeNo(1),
            next_position: 1,
            freed: BTreeSet::new(),
            names: 0,
        }
    }

    fn apply(&self, changes: &[Change<'_>]) {
        self.catalog.apply(changes).unwrap();
        self.plain.apply(changes).unwrap();
    }

    fn an_inode(&mut self) -> Option<Inode> {
        let inodes = self.catalog.all_inodes(InodeNo(0), 10_000).unwrap();
        self.random.choice(&inodes).cloned()
    }

    fn a_name(&mut self) -> (InodeNo, &'static [u8]) {
        let parent = InodeNo(1 + self.random.u64(..DIRS));
        (parent, self.random.choice(NAMES).unwrap())
    }

    fn step(&mut self) {
        match self.random.u64(..40) {
            0..=3 => self.put_inode(),
            4..=7 => self.change_inode(),
            8..=12 => self.put_entry(),
            13..=15 => self.rename_entry(),
            16..=18 => self.remove_entry(),
            19..=21 => self.put_xattr(),
            22 => self.remove_xattr(),
            23 => self.delete_inode(),
            24..=29 => self.write(),
            30 => self.punch(),
            31 => self.copy(),
            32..=33 => self.create_snapshot(),
            34 => self.doom_snapshot(),
            35..=37 => self.delete_step(),
            38 => self.rename_snapshot(),
            _ => self.crash(),
        }
    }

    fn put_inode(&mut self) {
        let fresh = self.catalog.new_inode();
        self.highest = fresh;
        self.numbers.push(fresh);
        if self.random.u64(..4) > 0 {
            let at = self.random.usize(..self.numbers.len());
            let no = self.numbers.swap_remove(at);
            self.apply(&[Change::PutInode(&file(no.0))]);
        }
    }

    fn change_inode(&mut self) {
        if let Some(inode) = self.an_inode() {
            let changed = Inode {
                uid: inode.uid.wrapping_add(1),
                target: vec![7; self.random.usize(..30)],
                ..inode
            };
            self.apply(&[Change::PutInode(&changed)]);
        }
    }

    fn put_entry(&mut self) {
        let (parent, name) = self.a_name();
        if let Some(inode) = self.an_inode() {
            self.apply(&[Change::put_entry(parent, name, inode.no, inode.kind)]);
        }
    }

    fn rename_entry(&mut self) {
        let ((parent, name), (_, new_name)) = (self.a_name(), self.a_name());
        let entries = self.catalog.entries(parent, 0, 100).unwrap();
        let has = |name: &[u8]| entries.iter().any(|entry| entry.name == name);
        if has(name) && !has(new_name) {
            self.apply(&[Change::rename_entry(parent, name, new_name)]);
        }
    }

    fn remove_entry(&mut self) {
        let (parent, name) = self.a_name();
        self.apply(&[Change::remove_entry(parent, name)]);
    }

    fn put_xattr(&mut self) {
        let name = self.random.choice(NAMES).unwrap();
        let value = vec![self.random.u8(..); self.random.usize(..100)];
        if let Some(inode) = self.an_inode() {
            self.apply(&[Change::put_xattr(inode.no, name, &value)]);
        }
    }

    fn remove_xattr(&mut self) {
        let name = self.random.choice(NAMES).unwrap();
        if let Some(Inode { no: inode, .. }) = self.an_inode() {
            self.apply(&[Change::remove_xattr(inode, name)]);
        }
    }

    /// Names that lead to it go first.
    fn delete_inode(&mut self) {
        let Some(Inode { no, .. }) = self.an_inode() else {
            return;
        };
        for (parent, entry) in self.catalog.all_entries((InodeNo(0), 0), 10_000).unwrap() {
            if entry.inode == no {
                self.apply(&[Change::remove_entry(parent, &entry.name)]);
            }
        }
        for (index, _) in self.catalog.chunks_from(no, 0, 100).unwrap() {
            self.replace(no, index, 0, CHUNK, &[]);
        }
        self.apply(&[Change::DeleteInode(no)]);
    }

    fn a_range(&mut self) -> (u16, u16) {
        let first = self.random.u64(..u64::from(CHUNK)) as u16;
        let most = match self.random.u64(..3) {
            0 => u64::from(CHUNK),
            _ => 7,
        };
        let blocks = 1 + self.random.u64(..most) as u16;
        (first, blocks.min(CHUNK - first))
    }

    fn write(&mut self) {
        let (first, blocks) = self.a_range();
        let Some(inode) = self.an_inode() else { return };
        let index = self.random.u64(..CHUNKS);
        let position = self.next_position;
        self.next_position += u32::from(blocks);
        let units = u32::from(blocks).div_ceil(UNIT_BLOCKS);
        let tags = (0..units)
            .map(|unit| [(position + unit) as u8; 16])
            .collect();
        let sealed = Sealed {
            segment: SegmentNo(3),
            position,
            blocks: blocks.into(),
            nonce: NoncePart::NONE,
            tags,
            digests: Vec::new(),
        };
        let with = [Extent::from_sealed(first, &sealed)];
        self.replace(inode.no, index, first, blocks, &with);
    }

    fn punch(&mut self) {
        let (first, blocks) = self.a_range();
        let index = self.random.u64(..CHUNKS);
        if let Some(inode) = self.an_inode() {
            self.replace(inode.no, index, first, blocks, &[]);
        }
    }

    /// Copies a range of one chunk into another by sharing.
    fn copy(&mut self) {
        let (first, blocks) = self.a_range();
        let (from, to) = (self.random.u64(..CHUNKS), self.random.u64(..CHUNKS));
        let (Some(source), Some(target)) = (self.an_inode(), self.an_inode()) else {
            return;
        };
        if (source.no, from) == (target.no, to) {
            return;
        }
        let mut chunk = self.catalog.chunk(source.no, from).unwrap();
        chunk.mark_shared(first, blocks);
        let with = chunk.slice(first, blocks);
        if with.is_empty() {
            return;
        }
        let had = units(&self.catalog.chunk(target.no, to).unwrap());
        let mut changes = vec![Change::put_chunk(source.no, from, &chunk)];
        let new: BTreeSet<_> = with
            .iter()
            .flat_map(Extent::units)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(unit, _)| (unit.segment, unit.position))
            .filter(|unit| !had.contains(unit))
            .collect();
        changes.extend(
            new.into_iter()
                .map(|(segment, position)| Change::share_unit(segment, position, 1)),
        );
        self.catalog.apply(&changes).unwrap();
        self.replace(target.no, to, first, blocks, &with);
    }

    /// What a room does when blocks of a chunk are replaced.
    fn replace(&mut self, inode: InodeNo, index: u64, first: u16, count: u16, with: &[Extent]) {
        let mut live = self.catalog.chunk(inode, index).unwrap();
        let snapshots = self.catalog.snapshots();
        let newest = latest(&snapshots).filter(|newest| inode < newest.next_inode);
        let mut changes = Vec::new();
        let mut kept = KeptChunk::default();
        let released = match newest {
            Some(newest) => {
                let until = newest.no();
                kept = self.catalog.kept_chunk(inode, index, until).unwrap();
                let replaced = kept.replace_in(&mut live, first, count, with);
                changes.extend(
                    replaced
                        .gained
                        .iter()
                        .map(|unit| Change::share_unit(unit.segment, unit.position, 1)),
                );
                let births = self.catalog.births(inode, index, until).unwrap();
                for (since, blocks) in births.count(&replaced.kept) {
                    changes.push(Change::count_space(since, until, blocks.into()));
                }
                replaced.released
            }
            None => live.replace(first, count, with),
        };
        self.release(&released, &mut changes);
        changes.push(Change::put_chunk(inode, index, &live));
        if let Some(newest) = newest {
            changes.push(Change::keep_chunk(inode, index, newest.no(), &kept));
        }
        self.catalog.apply(&changes).unwrap();
        let mut plain = self.plain.chunk(inode, index).unwrap();
        plain.replace(first, count, with);
        self.plain
            .apply(&[Change::put_chunk(inode, index, &plain)])
            .unwrap();
    }

    fn release(&mut self, released: &[Released], changes: &mut Vec<Change<'_>>) {
        for Released { range, shared } in released {
            for position in
                (range.position..range.position + range.blocks).step_by(UNIT_BLOCKS as usize)
            {
                let unit = (range.segment, position);
                let count = self.catalog.shared_references(unit.0, unit.1).unwrap();
                assert!(
                    *shared || count == 0,
                    "{unit:?} is shared and does not say so"
                );
                match count {
                    0 => assert!(self.freed.insert(unit), "{unit:?} is freed twice"),
                    _ => changes.push(Change::share_unit(unit.0, unit.1, -1)),
                }
            }
        }
    }

    fn create_snapshot(&mut self) {
        if self.wholes.len() >= 12 {
            return;
        }
        self.names += 1;
        let name = format!("snapshot {}", self.names);
        let row = self.catalog.new_snapshot(
            &name,
            crate::Timestamp { secs: 5, nanos: 6 },
            self.names.is_multiple_of(2),
        );
        self.catalog.apply(&[Change::CreateSnapshot(&row)]).unwrap();
        assert_eq!(latest(&self.catalog.snapshots()), Some(&row));
        self.wholes.insert(row.no(), Whole::of(&self.catalog));
    }

    fn rename_snapshot(&mut self) {
        let living: Vec<u64> = self.wholes.keys().copied().collect();
        if let Some(no) = self.random.choice(&living).copied() {
            self.names += 1;
            let name = format!("snapshot {}", self.names);
            self.catalog
                .apply(&[Change::RenameSnapshot { no, name: &name }])
                .unwrap();
        }
    }

    fn doom_snapshot(&mut self) {
        let living: Vec<u64> = self.wholes.keys().copied().collect();
        if let Some(no) = self.random.choice(&living).copied() {
            self.catalog.apply(&[Change::DoomSnapshot(no)]).unwrap();
            self.wholes.remove(&no);
            assert!(
                matches!(self.catalog.past_inode(no, InodeNo(1)), Err(CatalogError::NoSnapshot(n)) if n == no)
            );
        }
    }

    /// A step of the deletion of some deleted snapshot.
    fn delete_step(&mut self) {
        let list = self.catalog.snapshots();
        let doomed: Vec<SnapshotRow> = list.iter().filter(|row| row.doomed).cloned().collect();
        let Some(row) = self.random.choice(&doomed).cloned() else {
            return;
        };
        let no = row.no();
        let before = list.iter().rev().find(|row| row.no() < no);
        for row in self.catalog.kept_until(no, None, 3).unwrap() {
            let mut changes = Vec::new();
            let births = self.catalog.births(row.inode, row.index, no).unwrap();
            for (since, blocks) in births.count(row.kept.chunk().extents()) {
                changes.push(Change::count_space(since, no, -i64::from(blocks)));
            }
            let mut older = KeptChunk::default();
            let before = before.filter(|before| row.inode < before.next_inode);
            let released = match before {
                Some(before) => {
                    older = self
                        .catalog
                        .kept_chunk(row.inode, row.index, before.no())
                        .unwrap();
                    let absorbed = older.absorb(&row.kept);
                    for (since, blocks) in births.count(&absorbed.moved) {
                        changes.push(Change::count_space(since, before.no(), blocks.into()));
                    }
                    absorbed.released
                }
                None => row.kept.clone().rewrite(0, CHUNK, &[]),
            };
            if let Some(before) = before {
                changes.push(Change::keep_chunk(
                    row.inode,
                    row.index,
                    before.no(),
                    &older,
                ));
            }
            let none = KeptChunk::default();
            changes.push(Change::keep_chunk(row.inode, row.index, no, &none));
            self.release(&released, &mut changes);
            self.catalog.apply(&changes).unwrap();
        }
        let limit = 1 + self.random.u32(..9);
        self.catalog
            .apply(&[Change::MergePast { no, limit }, Change::DropSnapshot(no)])
            .unwrap();
    }

    /// Goes on with what a crash leaves after a record or a commit.
    fn crash(&mut self) {
        match self.random.u64(..4) {
            0 => drop(self.catalog.commit().unwrap()),
            _ => {
                if self
                    .catalog
                    .sync(Vec::new(), Box::new(|| true))
                    .unwrap()
                    .is_none()
                {
                    self.catalog.commit().unwrap();
                }
            }
        }
        let list = self.catalog.snapshots();
        self.memory = copy_of(&self.memory);
        self.catalog = open_in(&self.memory);
        assert_eq!(self.catalog.snapshots(), list);
        // Numbers handed out and not used may be handed out again.
        self.numbers.clear();
    }
}

#[test]
fn snapshots_see_what_whole_copies_hold() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut rooms = Rooms::new(seed);
        for step in 0..500 {
            rooms.step();
            if step % 50 == 49 {
                rooms.check();
            }
        }
        // Deleting all of them leaves nothing.
        for no in rooms.wholes.keys() {
            rooms.catalog.apply(&[Change::DoomSnapshot(*no)]).unwrap();
        }
        rooms.wholes.clear();
        while !rooms.catalog.snapshots().is_empty() {
            rooms.delete_step();
        }
        rooms.check();
        assert!(rooms.catalog.all_kept_chunks(None, 10).unwrap().is_empty());
        assert!(rooms.catalog.snapshot_space_rows().unwrap().is_empty());
        for table in ["past_inodes", "past_entries", "past_xattrs", "snapshots"] {
            let sql = format!("SELECT count(*) FROM {table}");
            let rows: i64 = rooms
                .catalog
                .lock()
                .conn
                .query_row(&sql, (), |row| row.get(0))
                .unwrap();
            assert_eq!(rows, 0, "{table}");
        }
    }
}
