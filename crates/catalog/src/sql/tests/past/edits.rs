//! Entries of the log that say only what is new in a map.

use super::*;
use crate::Extent;
use crate::log::{self, Link, Replayed, file};
use segments::{NoncePart, Sealed, Tags};

/// A catalog in memory with a log, and the commit that its records follow.
struct Logged {
    memory: MemoryStorage,
    catalog: Catalog,
    commit: (u64, Link),
    no: InodeNo,
}

impl Logged {
    fn new() -> Self {
        let memory = MemoryStorage::new();
        let catalog = create_in(&memory);
        let no = put(&catalog, InodeNo::ROOT, b"a");
        let mut new = Self {
            memory,
            catalog,
            commit: Default::default(),
            no,
        };
        // The first one creates the log, of which a commit has to know.
        assert!(!new.sync());
        new.commit();
        new
    }

    fn sync(&self) -> bool {
        let synced = self.catalog.sync(Vec::new(), Box::new(|| true));
        synced.unwrap().is_some()
    }

    fn commit(&mut self) {
        let generation = self.catalog.commit().unwrap();
        self.commit = (generation, self.catalog.lock().anchor);
    }

    /// What the records say of maps, in order, each with the bytes of its entry.
    fn entries(&self) -> Vec<(&'static str, usize)> {
        let key = log_key();
        let (generation, anchor) = self.commit;
        let found = file::read(&self.memory, NAME, key.log().unwrap(), generation, anchor).unwrap();
        let mut entries = Vec::new();
        for record in &found.records {
            let mut add = |changes: &[Change<'_>]| {
                entries.extend(changes.iter().filter_map(|change| match change {
                    Change::PutChunk { chunk, .. } => Some(("whole", chunk.encode().len())),
                    Change::EditChunk { .. } => Some(("edit", record.changes().len())),
                    Change::KeepChunk { kept, .. } => Some(("whole kept", kept.encode().len())),
                    Change::EditKept { .. } => Some(("edit kept", record.changes().len())),
                    _ => None,
                }));
            };
            log::changes(record.changes(), damaged_test, |operation| {
                if let Replayed::Changes(changes) = operation {
                    add(changes);
                }
                Ok(())
            })
            .unwrap();
        }
        entries
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.entries().iter().map(|(kind, _)| *kind).collect()
    }

    fn put_chunk(&self, chunk: &Chunk) {
        self.catalog
            .apply(&[Change::put_chunk(self.no, 0, chunk)])
            .unwrap();
    }

    fn keep(&self, until: u64, kept: &KeptChunk) {
        self.catalog
            .apply(&[Change::keep_chunk(self.no, 0, until, kept)])
            .unwrap();
    }

    /// What a crash leaves has these maps, replayed once and twice.
    fn assert_replayed(&self, chunk: &Chunk, kept: &[(u64, KeptChunk)]) {
        let once = copy_of(&self.memory);
        for _ in 0..2 {
            let again = open_in(&copy_of(&once));
            assert_eq!(again.chunk(self.no, 0).unwrap(), *chunk);
            let found = again.kept_chunks(self.no, 0).unwrap();
            let found: Vec<_> = found.into_iter().rev().collect();
            assert_eq!(found, kept);
            assert_eq!(again.verify().unwrap(), [""; 0]);
            again.leave_log();
        }
        let again = open_in(&once);
        again.commit().unwrap();
        assert_eq!(open_in(&copy_of(&once)).chunk(self.no, 0).unwrap(), *chunk);
    }
}

fn damaged_test(what: &'static str) -> CatalogError {
    CatalogError::Damaged(what.into())
}

/// A map of extents of one block each, of which every one is another append.
fn scattered(blocks: u16) -> Chunk {
    let mut chunk = Chunk::default();
    for first in 0..blocks {
        write(&mut chunk, first, first.into());
    }
    chunk
}

fn write(chunk: &mut Chunk, first: u16, position: u32) -> Vec<Extent> {
    let sealed = Sealed {
        segment: SegmentNo(3),
        position: 1 + position * 8,
        blocks: 1,
        nonce: NoncePart::NONE,
        tags: Tags::from([[position as u8; 16]]),
        digests: Vec::new(),
    };
    let old = chunk.slice(first, 1);
    chunk.replace(first, 1, &[Extent::from_sealed(first, &sealed)]);
    old
}

/// A program that does not know such entries must find the version before it finds one.
#[test]
fn the_commit_after_the_second_map_of_a_chunk_raises_the_version_and_edits_follow() {
    let mut logged = Logged::new();
    let mut chunk = scattered(100);
    logged.put_chunk(&chunk);
    assert!(logged.sync());
    logged.commit();
    assert_eq!(
        version(&logged.catalog),
        3,
        "nothing would have been shorter"
    );
    for position in [1000, 1001] {
        write(&mut chunk, 50, position);
        logged.put_chunk(&chunk);
        assert!(logged.sync());
    }
    assert_eq!(logged.kinds(), ["whole", "whole"]);
    assert_eq!(version(&logged.catalog), 3);
    logged.assert_replayed(&chunk, &[]);
    logged.commit();
    assert_eq!(version(&logged.catalog), 5);
    // Also the first after the commit: its map is remembered.
    for position in 1002..1005 {
        write(&mut chunk, 50, position);
        logged.put_chunk(&chunk);
        assert!(logged.sync());
    }
    let entries = logged.entries();
    assert_eq!(entries.len(), 3);
    for (kind, len) in entries {
        assert!(kind == "edit" && len < 60, "{kind} of {len} bytes");
    }
    logged.assert_replayed(&chunk, &[]);
    // Who opens it knows the version, and goes on behind the records.
    logged.memory = copy_of(&logged.memory);
    logged.catalog = open_in(&logged.memory);
    write(&mut chunk, 7, 1005);
    logged.put_chunk(&chunk);
    assert!(logged.sync());
    assert_eq!(logged.kinds(), ["edit"; 4]);
    logged.assert_replayed(&chunk, &[]);
}

/// With a commit that has raised the version.
fn edited() -> Logged {
    let mut logged = Logged::new();
    let chunk = scattered(100);
    logged.put_chunk(&chunk);
    logged.put_chunk(&chunk);
    logged.commit();
    assert_eq!(version(&logged.catalog), 5);
    logged
}

#[test]
fn maps_that_come_from_nothing_or_go_to_nothing_are_whole() {
    let logged = edited();
    let mut chunk = scattered(100);
    chunk.replace(0, 99, &[]);
    logged.put_chunk(&chunk);
    assert!(logged.sync());
    logged.put_chunk(&Chunk::default());
    logged.put_chunk(&chunk);
    assert!(logged.sync());
    logged.assert_replayed(&chunk, &[]);
    assert_eq!(logged.kinds(), ["edit", "whole", "whole"]);
    // A map is not relative to one that was deleted with its inode.
    logged
        .catalog
        .apply(&[Change::DeleteInode(logged.no)])
        .unwrap();
    let [entry, inode] = [
        Change::put_entry(InodeNo::ROOT, b"a", logged.no, FileKind::Regular),
        Change::PutInode(&file(logged.no.0)),
    ];
    logged.catalog.apply(&[inode, entry]).unwrap();
    let chunk = scattered(100);
    logged.put_chunk(&chunk);
    assert!(logged.sync());
    logged.assert_replayed(&chunk, &[]);
    assert_eq!(logged.kinds()[3..], ["whole"]);
}

#[test]
fn kept_chunks_and_reserved_holes_are_edited_and_written_in_between() {
    let mut logged = edited();
    let one = snapshot(&logged.catalog, "one");
    logged.commit();
    let mut chunk = scattered(100);
    let mut kept = KeptChunk::default();
    for (first, position) in (0..100).zip(2000..) {
        let old = write(&mut chunk, first, position);
        kept.keep(first, 1, &old);
        chunk.reserve(100 + first, 1);
        logged.put_chunk(&chunk);
        logged.keep(one, &kept);
        match first % 10 {
            // Somebody looks at the tables.
            3 => assert_eq!(logged.catalog.kept_until(one, None, 9).unwrap().len(), 1),
            9 => assert!(logged.sync()),
            _ => {}
        }
    }
    // All blocks of the first maps, and most of the next, are new: they are whole.
    let kinds = logged.kinds();
    let count = |kind| kinds.iter().filter(|one| **one == kind).count();
    assert!(count("edit") >= 99 && count("edit kept") >= 95, "{kinds:?}");
    logged.assert_replayed(&chunk, &[(one, kept.clone())]);
    let two = snapshot(&logged.catalog, "two");
    let mut next = KeptChunk::default();
    next.keep(3, 2, &chunk.slice(3, 2));
    logged.keep(two, &next);
    // Compaction puts other copies there.
    let other = chunk.slice(7, 1);
    kept.rewrite(7, 1, &other);
    logged.keep(one, &kept);
    assert!(logged.sync());
    logged.assert_replayed(&chunk, &[(one, kept), (two, next)]);
}

#[test]
fn few_maps_stay_in_memory_when_they_are_written_and_many_do_not() {
    let mut logged = edited();
    let chunk = scattered(2);
    let put = |logged: &Logged, index| {
        logged
            .catalog
            .apply(&[Change::put_chunk(logged.no, index, &chunk)])
            .unwrap();
    };
    let known = |logged: &Logged| {
        let mut state = logged.catalog.lock();
        let chunks = &state.gathered.get_mut().chunks;
        let known = (0..10_000).filter(|index| chunks.get((logged.no, *index)).is_some());
        (known.count(), chunks.new_in(..).count())
    };
    (1..1000).for_each(|index| put(&logged, index));
    assert_eq!(known(&logged), (1000, 999));
    logged.commit();
    assert_eq!(known(&logged), (1000, 0));
    (1000..3500).for_each(|index| put(&logged, index));
    let (all, new) = known(&logged);
    assert!(all == new && all < 2048, "{all} {new}");
    assert_eq!(
        logged
            .catalog
            .chunks_from(logged.no, 0, 9999)
            .unwrap()
            .len(),
        3500
    );
    logged.commit();
    assert_eq!(logged.catalog.verify().unwrap(), [""; 0]);
}
