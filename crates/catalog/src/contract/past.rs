//! Promises about snapshots.

use super::{Maker, file, map, put};
use crate::{
    Catalog, CatalogError, Change, Chunk, DirEntry, FileKind, Inode, InodeNo, KeptChunk,
    SnapshotRow, SpaceRow, Timestamp,
};

const ROOT: InodeNo = InodeNo::ROOT;
const THEN: Timestamp = Timestamp::new(-7, 999_999_999);

fn snapshot(catalog: &Catalog, name: &str) -> u64 {
    let row = catalog.new_snapshot(name, THEN, false);
    catalog.apply(&[Change::CreateSnapshot(&row)]).unwrap();
    row.no()
}

/// Deletes what is kept for a deleted snapshot, but chunks.
fn merge(catalog: &Catalog, no: u64) {
    let steps = (0..100).find(|_| {
        let step = [Change::MergePast { no, limit: 1 }, Change::DropSnapshot(no)];
        catalog.apply(&step).unwrap();
        catalog.snapshots().iter().all(|row| row.no() != no)
    });
    assert!(steps.is_some(), "a deletion comes to its end");
}

fn names(entries: &[DirEntry]) -> Vec<&[u8]> {
    entries.iter().map(|entry| &entry.name[..]).collect()
}

pub(crate) fn snapshots_are_listed_and_their_numbers_never_used_again(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    assert!(catalog.snapshots().is_empty());
    let first = catalog.new_snapshot("monday", THEN, true);
    assert_eq!(first.no(), 1);
    catalog.apply(&[Change::CreateSnapshot(&first)]).unwrap();
    assert_eq!(snapshot(&catalog, "tuesday"), 2);
    catalog.commit().unwrap();
    assert_eq!(snapshot(&catalog, "forgotten"), 3);
    let after = maker.after_crash();
    let of = |catalog: &Catalog| -> Vec<(u64, String, bool)> {
        let rows = catalog.snapshots();
        let of = |row: &SnapshotRow| (row.no(), row.snapshot.name.clone(), row.doomed);
        rows.iter().map(of).collect()
    };
    assert_eq!(
        of(&after),
        [(1, "monday".into(), false), (2, "tuesday".into(), false)]
    );
    assert_eq!(after.snapshots()[0], first);
    drop(after);
    catalog
        .apply(&[
            Change::DoomSnapshot(2),
            Change::RenameSnapshot {
                no: 1,
                name: "tuesday",
            },
        ])
        .unwrap();
    assert_eq!(
        of(&catalog),
        [
            (1, "tuesday".into(), false),
            (2, "tuesday".into(), true),
            (3, "forgotten".into(), false)
        ]
    );
    for no in [3, 1] {
        catalog.apply(&[Change::DoomSnapshot(no)]).unwrap();
    }
    for no in [2, 3, 1] {
        merge(&catalog, no);
    }
    assert!(catalog.snapshots().is_empty());
    catalog.commit().unwrap();
    assert_eq!(catalog.new_snapshot("next", THEN, false).no(), 4);
    assert_eq!(
        maker.after_crash().new_snapshot("next", THEN, false).no(),
        4
    );
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

pub(crate) fn a_snapshot_sees_inodes_and_names_as_they_were(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let [a, b, c] = [b"a", b"b", b"c"].map(|name| put(&catalog, ROOT, name));
    let late = catalog.new_inode();
    let at = snapshot(&catalog, "then");
    let before = (
        catalog.entries_plus(ROOT, 0, 10).unwrap(),
        catalog.past_entries_plus(at, ROOT, 0, 10).unwrap(),
    );
    assert_eq!(before.0, before.1);
    let d = put(&catalog, ROOT, b"d");
    catalog
        .apply(&[
            // A number that was handed out before, and is used only now.
            Change::PutInode(&file(late.0)),
            Change::PutInode(&Inode {
                size: 1,
                ..file(a.0)
            }),
            Change::put_entry(ROOT, b"c", d, FileKind::Fifo),
            Change::rename_entry(ROOT, b"a", b"z"),
            Change::remove_entry(ROOT, b"b"),
            Change::DeleteInode(b),
        ])
        .unwrap();
    // The old name, for another file.
    put(&catalog, ROOT, b"b");
    put(&catalog, ROOT, b"a");
    catalog
        .apply(&[Change::rename_entry(ROOT, b"z", b"y")])
        .unwrap();
    for no in [a, b, c] {
        assert_eq!(catalog.past_inode(at, no).unwrap(), Some(file(no.0)));
    }
    for no in [d, late, InodeNo(99)] {
        assert_eq!(catalog.past_inode(at, no).unwrap(), None);
    }
    assert_eq!(
        catalog.past_entries_plus(at, ROOT, 0, 10).unwrap(),
        before.0
    );
    for (name, inode) in [(b"a", Some(a)), (b"b", Some(b)), (b"c", Some(c))] {
        let found = catalog.past_lookup(at, ROOT, name).unwrap();
        assert_eq!(found.map(|inode| inode.no), inode);
    }
    for name in [b"d", b"y", b"z"] {
        assert_eq!(catalog.past_lookup(at, ROOT, name).unwrap(), None);
    }
    let mut seen = Vec::new();
    let mut after = 0;
    while let Some(entry) = catalog.past_entries(at, ROOT, after, 1).unwrap().pop() {
        after = entry.cookie;
        seen.push(entry);
    }
    assert_eq!(names(&seen), [b"a", b"b", b"c"]);
    let live = catalog.entries(ROOT, 0, 10).unwrap();
    assert_eq!(
        names(&live),
        [&b"y"[..], b"c", b"d", b"b", b"a"],
        "the live names are as without a snapshot"
    );
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

pub(crate) fn a_snapshot_sees_attributes_as_they_were(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let no = put(&catalog, ROOT, b"a");
    let set = |inode, name: &[u8], value: &[u8]| {
        catalog
            .apply(&[Change::put_xattr(inode, name, value)])
            .unwrap();
    };
    let big = vec![1; 65536];
    set(no, b"user.a", &big);
    set(no, b"user.b", b"b");
    let first = snapshot(&catalog, "first");
    set(no, b"user.a", b"");
    set(no, b"user.c", b"c");
    let second = snapshot(&catalog, "second");
    let young = put(&catalog, ROOT, b"b");
    set(young, b"user.a", b"y");
    set(no, b"user.c", b"cc");
    catalog
        .apply(&[Change::remove_xattr(no, b"user.b")])
        .unwrap();
    catalog.apply(&[Change::DeleteInode(no)]).unwrap();
    let get = |at, name: &[u8]| catalog.past_xattr(at, no, name).unwrap();
    assert_eq!(get(first, b"user.a"), Some(big));
    assert_eq!(get(first, b"user.b").unwrap(), b"b");
    assert_eq!(get(first, b"user.c"), None);
    assert_eq!(get(second, b"user.a").unwrap(), b"");
    assert_eq!(get(second, b"user.b").unwrap(), b"b");
    assert_eq!(get(second, b"user.c").unwrap(), b"c");
    let names = |at, no| catalog.past_xattr_names(at, no).unwrap();
    assert_eq!(names(first, no), [b"user.a", b"user.b"]);
    assert_eq!(names(second, no), [b"user.a", b"user.b", b"user.c"]);
    assert!(names(second, young).is_empty());
    assert_eq!(catalog.past_xattr(second, young, b"user.a").unwrap(), None);
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

/// What a room does: puts `with` in the place of the whole chunk, and keeps what it was for snapshot `until`.
fn replace(catalog: &Catalog, inode: InodeNo, index: u64, until: u64, with: &Chunk) {
    let mut live = catalog.chunk(inode, index).unwrap();
    let mut kept = catalog.kept_chunk(inode, index, until).unwrap();
    kept.replace_in(&mut live, 0, 256, with.extents());
    let put = Change::put_chunk(inode, index, with);
    let keep = Change::keep_chunk(inode, index, until, &kept);
    catalog.apply(&[put, keep]).unwrap();
}

pub(crate) fn a_snapshot_sees_chunks_as_they_were(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let no = put(&catalog, ROOT, b"a");
    // Chunk 3 was behind the end of the file.
    let inode = Inode {
        size: 3 << 20,
        ..file(no.0)
    };
    catalog.apply(&[Change::PutInode(&inode)]).unwrap();
    for (index, position) in [(0, 1), (1, 301)] {
        catalog
            .apply(&[Change::put_chunk(no, index, &map(position, 9))])
            .unwrap();
    }
    let first = snapshot(&catalog, "first");
    replace(&catalog, no, 0, first, &map(601, 20));
    replace(&catalog, no, 2, first, &map(701, 30));
    replace(&catalog, no, 3, first, &map(801, 40));
    let second = snapshot(&catalog, "second");
    catalog
        .apply(&[Change::PutInode(&Inode {
            size: 4 << 20,
            ..file(no.0)
        })])
        .unwrap();
    let third = snapshot(&catalog, "third");
    for index in 0..4 {
        replace(&catalog, no, index, third, &Chunk::default());
    }
    let chunk = |at, index| catalog.past_chunk(at, no, index).unwrap();
    let from = |at, first, limit| {
        let chunks = catalog.past_chunks_from(at, no, first, limit).unwrap();
        let index = |(index, chunk): (u64, Chunk)| {
            assert!(!chunk.is_empty());
            index
        };
        chunks.into_iter().map(index).collect::<Vec<_>>()
    };
    assert_eq!((chunk(first, 0), chunk(first, 1)), (map(1, 9), map(301, 9)));
    assert!(chunk(first, 2).is_empty());
    assert_eq!(
        (chunk(second, 0), chunk(second, 1)),
        (map(601, 20), map(301, 9))
    );
    assert_eq!(from(first, 0, 10), [0, 1]);
    assert_eq!(from(second, 0, 10), [0, 1, 2]);
    assert_eq!(from(second, 1, 1), [1]);
    assert_eq!(from(third, 0, 10), [0, 1, 2, 3]);
    let keys = |after, limit| {
        let rows = catalog.all_kept_chunks(after, limit).unwrap();
        let key = |row: &crate::KeptRow| (row.inode, row.index, row.until);
        rows.iter().map(key).collect::<Vec<_>>()
    };
    let all = [
        (0, first),
        (0, third),
        (1, third),
        (2, first),
        (2, third),
        (3, first),
        (3, third),
    ];
    let all = all.map(|(index, until)| (no, index, until));
    assert_eq!(keys(None, 10), all);
    assert_eq!(keys(Some(all[1]), 2), all[2..4]);
    let until = |until, after, limit| {
        let rows = catalog.kept_until(until, after, limit).unwrap();
        rows.iter().map(|row| row.index).collect::<Vec<_>>()
    };
    assert_eq!(until(first, None, 10), [0, 2, 3]);
    assert_eq!(until(third, Some((no, 0)), 2), [1, 2]);
    assert!(until(second, None, 10).is_empty());
    let births = catalog.births(no, 2, third).unwrap();
    assert_eq!(births.since(5), first);
    assert_eq!(catalog.births(no, 1, third).unwrap().since(5), 0);
    assert_eq!(
        catalog
            .births(InodeNo(no.0 + 1), 1, third)
            .unwrap()
            .since(5),
        second,
        "a file is younger than the snapshots without it"
    );
    // A kept chunk that covers nothing is none.
    catalog
        .apply(&[Change::keep_chunk(no, 1, third, &KeptChunk::default())])
        .unwrap();
    assert_eq!(until(third, None, 10), [0, 2, 3]);
    assert!(catalog.kept_chunk(no, 1, third).unwrap().is_empty());
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

pub(crate) fn a_deleted_snapshot_leaves_what_the_others_see(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let old = put(&catalog, ROOT, b"old");
    let first = snapshot(&catalog, "first");
    let young = put(&catalog, ROOT, b"young");
    let xattr = |inode, value| Change::put_xattr(inode, b"user.a", value);
    catalog
        .apply(&[xattr(old, b"1"), xattr(young, b"1")])
        .unwrap();
    let second = snapshot(&catalog, "second");
    for (no, name) in [(old, &b"old"[..]), (young, b"young")] {
        let remove = Change::remove_entry(ROOT, name);
        catalog.apply(&[remove, Change::DeleteInode(no)]).unwrap();
    }
    let third = snapshot(&catalog, "third");
    catalog.apply(&[Change::DoomSnapshot(second)]).unwrap();
    let error = catalog.past_inode(second, old).unwrap_err();
    assert!(matches!(error, CatalogError::NoSnapshot(2)), "{error}");
    merge(&catalog, second);
    let listed: Vec<u64> = catalog.snapshots().iter().map(SnapshotRow::no).collect();
    assert_eq!(listed, [first, third]);
    assert_eq!(
        names(&catalog.past_entries(first, ROOT, 0, 9).unwrap()),
        [b"old"]
    );
    assert_eq!(catalog.past_inode(first, old).unwrap(), Some(file(old.0)));
    assert_eq!(catalog.past_inode(first, young).unwrap(), None);
    assert_eq!(catalog.past_xattr(first, old, b"user.a").unwrap(), None);
    assert!(catalog.past_entries(third, ROOT, 0, 9).unwrap().is_empty());
    assert_eq!(catalog.past_inode(third, old).unwrap(), None);
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

pub(crate) fn blocks_are_counted_by_the_snapshots_that_hold_them(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let count = |since, until, blocks| {
        catalog
            .apply(&[Change::count_space(since, until, blocks)])
            .unwrap();
    };
    assert!(catalog.snapshot_space_rows().unwrap().is_empty());
    for name in ["1", "2", "3", "4"] {
        snapshot(&catalog, name);
    }
    count(0, 1, 5);
    count(1, 3, 7);
    count(2, 3, 11);
    count(2, 4, 13);
    count(0, 1, -5);
    let rows = |rows: &[(u64, u64, i64)]| -> Vec<SpaceRow> {
        let row = |(since, until, blocks): &(u64, u64, i64)| SpaceRow {
            since: *since,
            until: *until,
            blocks: *blocks,
        };
        rows.iter().map(row).collect()
    };
    let found = || catalog.snapshot_space_rows().unwrap();
    assert_eq!(found(), rows(&[(1, 3, 7), (2, 3, 11), (2, 4, 13)]));
    catalog.apply(&[Change::DoomSnapshot(2)]).unwrap();
    assert_eq!(found(), rows(&[(1, 3, 18), (1, 4, 13)]));
    count(2, 4, 2);
    assert_eq!(found(), rows(&[(1, 3, 18), (1, 4, 15)]));
    merge(&catalog, 2);
    catalog.apply(&[Change::DoomSnapshot(1)]).unwrap();
    assert_eq!(found(), rows(&[(0, 3, 18), (0, 4, 15)]));
    catalog.commit().unwrap();
    assert_eq!(maker.after_crash().snapshot_space_rows().unwrap(), found());
}

pub(crate) fn what_changed_since_a_snapshot_is_found_by_it(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let (a, b) = (put(&catalog, ROOT, b"a"), put(&catalog, ROOT, b"b"));
    let cookie = catalog.entries(ROOT, 0, 10).unwrap()[0].cookie;
    let first = snapshot(&catalog, "first");
    let xattr = |name: &'static [u8]| Change::put_xattr(b, name, b"v");
    catalog
        .apply(&[
            Change::remove_entry(ROOT, b"a"),
            Change::DeleteInode(a),
            xattr(b"user.x"),
            xattr(b"user.y"),
        ])
        .unwrap();
    let second = snapshot(&catalog, "second");
    let c = put(&catalog, ROOT, b"c");

    let inodes = catalog.inodes_until(first, InodeNo(0), 10).unwrap();
    assert!(inodes.contains(&a) && !inodes.contains(&c), "{inodes:?}");
    assert!(!catalog.inodes_until(first, a, 10).unwrap().contains(&a));
    let names = |after| catalog.entries_until(first, after, 10).unwrap();
    assert_eq!(names((InodeNo(0), 0)), [(ROOT, cookie)]);
    assert!(names((ROOT, cookie)).is_empty());
    let all = catalog.xattrs_until(first, &(InodeNo(0), Vec::new()), 10);
    let expected = [(b, b"user.x".to_vec()), (b, b"user.y".to_vec())];
    assert_eq!(all.unwrap(), expected);
    let rest = catalog.xattrs_until(first, &expected[0], 10).unwrap();
    assert_eq!(rest, expected[1..]);

    let name_in = |at| catalog.past_entry(at, ROOT, cookie).unwrap();
    assert_eq!(
        name_in(first).map(|e| (e.name, e.inode)),
        Some((b"a".to_vec(), a))
    );
    assert_eq!(name_in(second), None);
    let numbers = catalog.past_numbers(second, a, 10).unwrap();
    assert_eq!(numbers, [a, b]);
    assert_eq!(catalog.past_numbers(second, b, 1).unwrap(), [b]);
    assert!(catalog.past_numbers(9, a, 1).is_err());

    catalog.skip_inodes(InodeNo(1000));
    assert_eq!(catalog.new_inode(), InodeNo(1000));
    catalog.skip_inodes(InodeNo(5));
    assert_eq!(catalog.new_inode(), InodeNo(1001));
    // Numbers of snapshots only rise, and may leave some out.
    let mut later = catalog.new_snapshot("later", THEN, false);
    later.snapshot.number = 7;
    catalog.apply(&[Change::CreateSnapshot(&later)]).unwrap();
    let mut again = catalog.new_snapshot("again", THEN, false);
    assert_eq!(again.no(), 8);
    again.snapshot.number = 7;
    assert!(catalog.apply(&[Change::CreateSnapshot(&again)]).is_err());
}

pub(crate) fn changes_that_do_not_fit_the_snapshots_are_refused_whole(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let no = put(&catalog, ROOT, b"a");
    let outdated = catalog.new_snapshot("outdated", THEN, false);
    put(&catalog, ROOT, b"b");
    let at = snapshot(&catalog, "then");
    let (taken, nameless) = (
        catalog.new_snapshot("then", THEN, false),
        catalog.new_snapshot("", THEN, false),
    );
    let mut kept = KeptChunk::default();
    kept.keep(0, 1, &[]);
    let inode = file(99);
    for change in [
        Change::CreateSnapshot(&outdated),
        Change::CreateSnapshot(&taken),
        Change::CreateSnapshot(&nameless),
        Change::RenameSnapshot {
            no: at,
            name: "a/b",
        },
        Change::RenameSnapshot { no: 7, name: "b" },
        Change::DoomSnapshot(7),
        Change::DropSnapshot(at),
        Change::DropSnapshot(7),
        Change::MergePast { no: at, limit: 1 },
        Change::keep_chunk(no, 0, 7, &kept),
        Change::count_space(0, 7, 1),
    ] {
        let operation = [Change::PutInode(&inode), change];
        assert!(catalog.apply(&operation).is_err(), "{operation:?}");
        assert!(catalog.apply(&operation[1..]).is_err(), "{operation:?}");
        assert_eq!(catalog.inode(inode.no).unwrap(), None);
    }
    assert_eq!(catalog.snapshots().len(), 1);
    // What is still kept for a deleted snapshot keeps its row.
    catalog
        .apply(&[
            Change::DeleteInode(no),
            Change::DoomSnapshot(at),
            Change::DropSnapshot(at),
        ])
        .unwrap();
    assert_eq!(catalog.snapshots().len(), 1);
    assert!(catalog.apply(&[Change::DoomSnapshot(at)]).is_err());
    merge(&catalog, at);
    assert!(catalog.past_entries(at, ROOT, 0, 9).is_err());
    catalog.commit().unwrap();
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

pub(crate) fn without_a_snapshot_nothing_is_kept(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let no = put(&catalog, ROOT, b"a");
    assert!(matches!(
        catalog.past_inode(1, no),
        Err(CatalogError::NoSnapshot(1))
    ));
    assert!(catalog.kept_chunk(no, 0, 1).unwrap().is_empty());
    assert!(catalog.all_kept_chunks(None, 9).unwrap().is_empty());
    assert!(catalog.kept_until(1, None, 9).unwrap().is_empty());
    assert_eq!(catalog.births(no, 0, 1).unwrap().since(0), 0);
}
