//! What is gathered for the commit, and remembered.

use super::*;

fn keep_of(catalog: &Catalog, (inode, index, until): (InodeNo, u64, u64), kept: &KeptChunk) {
    catalog
        .apply(&[Change::keep_chunk(inode, index, until, kept)])
        .unwrap();
}

#[test]
fn gathered_counts_are_written_when_they_are_many_or_somebody_looks_and_are_in_the_log() {
    let memory = MemoryStorage::new();
    let catalog = create_in(&memory);
    let at = snapshot(&catalog, "then");
    let sync = || catalog.sync(Vec::new(), Box::new(|| true)).unwrap();
    // The first one creates the log, of which a commit has to know.
    assert_eq!(sync(), None);
    catalog.commit().unwrap();
    let rows = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        let state = catalog.lock();
        state.conn.query_row(&sql, (), |row| row.get(0)).unwrap()
    };
    let share = |position, references| Change::share_unit(SegmentNo(1), position, references);
    let space = |blocks| Change::count_space(0, at, blocks);
    catalog.apply(&[share(0, 1), space(7)]).unwrap();
    assert!(sync().is_some());
    catalog.apply(&[space(-2)]).unwrap();
    assert_eq!((rows("shared"), rows("snapshot_space")), (0, 0));
    let held = |catalog: &Catalog| catalog.snapshot_space_rows().unwrap()[0].blocks;
    assert_eq!(
        (held(&catalog), catalog.all_shared().unwrap().len()),
        (5, 1)
    );
    // A crash loses what no record has.
    let crashed = open_in(&copy_of(&memory));
    assert_eq!(
        (held(&crashed), crashed.all_shared().unwrap().len()),
        (7, 1)
    );
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
    assert_eq!((rows("shared"), rows("snapshot_space")), (1, 1));

    let many: Vec<_> = (1..=20_000).map(|n| share(n, 1)).collect();
    many.chunks(1000)
        .for_each(|some| catalog.apply(some).unwrap());
    let written = rows("shared");
    assert!((10_000..20_000).contains(&written), "{written}");
    assert_eq!(catalog.all_shared().unwrap().len(), 20_001);
    catalog.commit().unwrap();
    assert_eq!(rows("shared"), 20_001);
    assert_eq!(held(&catalog), 5);
}

#[test]
fn kept_chunks_are_written_when_they_are_many_or_somebody_looks_and_are_in_the_log() {
    let memory = MemoryStorage::new();
    let catalog = create_in(&memory);
    let no = put(&catalog, InodeNo::ROOT, b"a");
    let one = snapshot(&catalog, "one");
    let sync = || catalog.sync(Vec::new(), Box::new(|| true)).unwrap();
    // The first one creates the log, of which a commit has to know.
    assert_eq!(sync(), None);
    catalog.commit().unwrap();
    let rows = || -> i64 {
        let sql = "SELECT count(*) FROM past_chunks";
        let state = catalog.lock();
        state.conn.query_row(sql, (), |row| row.get(0)).unwrap()
    };
    let keep = |index: u64, until: u64, covered: u16| {
        let mut kept = KeptChunk::default();
        if covered > 0 {
            kept.keep(0, covered, map(1, covered.into()).extents());
        }
        keep_of(&catalog, (no, index, until), &kept);
    };
    // By snapshot, how much is kept of the first chunk.
    let kept = |catalog: &Catalog| -> Vec<(u64, usize)> {
        let all = catalog.kept_chunks(no, 0).unwrap();
        for (until, kept) in &all {
            assert_eq!(catalog.kept_chunk(no, 0, *until).unwrap(), *kept);
        }
        let blocks = |kept: &KeptChunk| kept.chunk().blocks() as usize;
        all.iter().map(|(no, kept)| (*no, blocks(kept))).collect()
    };
    let seen = |catalog: &Catalog, at| catalog.past_chunk(at, no, 0).unwrap().blocks();
    keep(0, one, 3);
    assert!(sync().is_some());
    keep(0, one, 5);
    assert_eq!((rows(), kept(&catalog)), (0, vec![(one, 5)]));
    assert_eq!(seen(&catalog, one), 5);
    // A crash loses what no record has.
    let crashed = open_in(&copy_of(&memory));
    assert_eq!((kept(&crashed), seen(&crashed, one)), (vec![(one, 3)], 3));
    let two = snapshot(&catalog, "two");
    assert_eq!(catalog.births(no, 0, two).unwrap().since(4), one);
    assert_eq!(catalog.kept_chunk(no, 0, two).unwrap().chunk().blocks(), 0);
    keep(0, two, 2);
    assert_eq!(rows(), 0);
    assert_eq!(kept(&catalog), [(two, 2), (one, 5)]);
    assert_eq!(catalog.kept_until(one, None, 9).unwrap().len(), 1);
    assert_eq!((rows(), kept(&catalog)), (2, vec![(two, 2), (one, 5)]));
    // Over rows: one that has changed, and one of which nothing is left.
    keep(0, two, 7);
    keep(0, one, 0);
    assert_eq!((rows(), kept(&catalog)), (2, vec![(two, 7)]));
    assert_eq!((seen(&catalog, one), seen(&catalog, two)), (7, 7));
    assert_eq!(catalog.births(no, 0, two).unwrap().since(4), 0);
    catalog.commit().unwrap();
    assert_eq!((rows(), kept(&catalog)), (1, vec![(two, 7)]));
    catalog.apply(&[Change::DoomSnapshot(one)]).unwrap();
    keep(1, one, 1);
    catalog.apply(&[Change::DropSnapshot(one)]).unwrap();
    assert_eq!(catalog.snapshots().len(), 2, "something is kept for it");
    keep(1, one, 0);

    (2..5000).for_each(|index| keep(index, two, 1));
    let written = rows();
    assert!((2000..4999).contains(&written), "{written}");
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
    assert_eq!(rows(), 4999);
}

#[test]
fn births_are_remembered_only_while_what_they_were_read_from_stays() {
    let mut files = Files::new();
    let catalog = files.create();
    let no = put(&catalog, InodeNo::ROOT, b"a");
    let keep = |until: u64, first: u16| {
        let mut kept = KeptChunk::default();
        kept.keep(first, 1, &[]);
        keep_of(&catalog, (no, 0, until), &kept);
    };
    let since = |until: u64, block: u16| catalog.births(no, 0, until).unwrap().since(block);
    let one = snapshot(&catalog, "one");
    keep(one, 5);
    let two = snapshot(&catalog, "two");
    assert_eq!((since(two, 5), since(two, 6)), (one, 0));
    // What is kept for the newest one is none of its own births, but of the next one's.
    keep(two, 6);
    assert_eq!((since(two, 5), since(two, 6)), (one, 0));
    let three = snapshot(&catalog, "three");
    assert_eq!((since(three, 5), since(three, 6)), (one, two));
    assert_eq!((since(two, 5), since(two, 6)), (one, 0));
    assert_eq!((since(three, 5), since(three, 6)), (one, two));
    keep(one, 7);
    assert_eq!(since(three, 7), one);
    catalog.apply(&[Change::DoomSnapshot(two)]).unwrap();
    assert_eq!(since(three, 6), one);
}

#[test]
fn what_a_snapshot_sees_is_remembered_only_while_what_it_was_made_of_stays() {
    let mut files = Files::new();
    let catalog = files.create();
    let no = put(&catalog, InodeNo::ROOT, b"a");
    let live = |position: u32| {
        let chunk = map(position, 8);
        catalog.apply(&[Change::put_chunk(no, 0, &chunk)]).unwrap();
    };
    let keep = |until: u64, position: u32| {
        let mut kept = KeptChunk::default();
        kept.keep(0, 8, map(position, 8).extents());
        keep_of(&catalog, (no, 0, until), &kept);
    };
    let seen = |at: u64| blocks(&catalog.past_chunk(at, no, 0).unwrap());
    live(100);
    let one = snapshot(&catalog, "one");
    let two = snapshot(&catalog, "two");
    // Each is remembered from here on, and for each snapshot by itself.
    assert_eq!(
        (seen(one), seen(two)),
        (blocks(&map(100, 8)), blocks(&map(100, 8)))
    );
    live(200);
    assert_eq!(seen(one), blocks(&map(200, 8)));
    keep(one, 300);
    assert_eq!(
        (seen(one), seen(two)),
        (blocks(&map(300, 8)), blocks(&map(200, 8)))
    );
    keep(two, 400);
    assert_eq!(
        (seen(one), seen(two)),
        (blocks(&map(300, 8)), blocks(&map(400, 8)))
    );
    catalog.apply(&[Change::DoomSnapshot(two)]).unwrap();
    assert_eq!(seen(one), blocks(&map(300, 8)));
    assert!(catalog.past_chunk(two, no, 0).is_err());

    let other = put(&catalog, InodeNo::ROOT, b"b");
    let three = snapshot(&catalog, "three");
    assert_eq!(catalog.past_chunk(three, other, 0).unwrap().blocks(), 0);
    assert_eq!(seen(three), blocks(&map(200, 8)));
    catalog.apply(&[Change::DeleteInode(no)]).unwrap();
    assert_eq!(catalog.past_chunk(three, no, 0).unwrap().blocks(), 0);
    // More chunks than are remembered.
    for index in (0..40).chain(0..40) {
        assert_eq!(catalog.past_chunk(three, no, index).unwrap().blocks(), 0);
    }
}
