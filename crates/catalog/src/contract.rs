//! What every catalog must do, with and without tags of its pages: [`contract_tests!`] makes tests of it. They panic where the promise
//! is broken.

use crate::{
    CHUNK_BLOCKS, Catalog, Change, Chunk, Extent, FileKind, Inode, InodeNo, SegmentAccount,
    SegmentId, SegmentNo, Timestamp,
};
use segments::{NoncePart, Sealed, Tags};

mod past;
mod whole;

pub(crate) use past::*;
pub(crate) use whole::*;

/// Makes the catalogs that the contract is tried on.
pub(crate) trait Maker {
    /// An empty catalog, just made.
    fn fresh(&mut self) -> Catalog;
    /// What a crash at this moment would leave of the latest catalog, opened again.
    fn after_crash(&mut self) -> Catalog;
}

/// Declares one test for each promise, on the [`Maker`] that the expression makes.
macro_rules! contract_tests {
    ($maker:expr) => {
        contract_tests!(@each $maker;
            inodes_come_back_as_they_were_put,
            inode_numbers_are_never_given_twice,
            names_lead_to_inodes,
            a_name_keeps_its_cookie_when_it_is_pointed_elsewhere,
            a_name_keeps_its_cookie_when_it_becomes_another,
            listings_go_on_where_they_stopped,
            attributes_are_kept_by_inode_and_name,
            chunks_are_found_in_order_committed_or_not,
            deleting_an_inode_takes_all_that_is_its_own,
            segments_are_accounted,
            shared_units_are_counted_and_never_below_nothing,
            orphans_are_inodes_without_a_name,
            walks_over_everything_miss_nothing,
            what_is_applied_is_read_at_once_and_a_crash_forgets_it,
            what_is_written_ahead_is_the_commits_and_a_crash_forgets_it,
            a_commit_survives_a_crash_and_raises_the_generation,
            named_values_are_part_of_the_commit,
            answers_are_kept_by_client_and_slot_with_what_they_answer,
            inodes_are_counted,
            a_copy_holds_the_last_commit,
            a_sound_catalog_has_no_findings,
            snapshots_are_listed_and_their_numbers_never_used_again,
            what_changed_since_a_snapshot_is_found_by_it,
            a_snapshot_sees_inodes_and_names_as_they_were,
            a_snapshot_sees_attributes_as_they_were,
            a_snapshot_sees_chunks_as_they_were,
            a_deleted_snapshot_leaves_what_the_others_see,
            blocks_are_counted_by_the_snapshots_that_hold_them,
            changes_that_do_not_fit_the_snapshots_are_refused_whole,
            without_a_snapshot_nothing_is_kept,
        );
    };
    (@each $maker:expr; $($name:ident,)*) => {
        $(#[test]
        fn $name() {
            crate::contract::$name(&mut $maker);
        })*
    };
}
pub(crate) use contract_tests;

/// A regular file as [`Inode`] number `no`, every field with a value of its own.
pub(crate) fn file(no: u64) -> Inode {
    let time = |n: i64| Timestamp::new(n - 5_000_000_000, 999_999_999 - no as u32 % 1000);
    Inode {
        no: InodeNo(no),
        kind: FileKind::Regular,
        mode: 0o4755,
        flags: crate::FileFlags::NONE,
        uid: u32::MAX,
        gid: 1000,
        nlink: 1,
        size: i64::MAX as u64,
        blocks: 77,
        rdev: 0,
        atime: time(1),
        mtime: time(20_000_000_000),
        ctime: time(3),
        btime: time(4),
        parent: InodeNo(0),
        has_xattrs: false,
        target: Vec::new(),
    }
}

/// A map of one extent of `blocks` blocks at `position`.
pub(crate) fn map(position: u32, blocks: u32) -> Chunk {
    let units = blocks.div_ceil(segments::UNIT_BLOCKS) as usize;
    let tags = Tags::from_elem([position as u8; 16], units);
    // Of every other one, as in a room that was rekeyed.
    let digests = match position % 2 {
        0 => Vec::new(),
        _ => vec![[position as u8; 32]; tags.len()],
    };
    let sealed = Sealed {
        segment: SegmentNo(3),
        position,
        blocks,
        nonce: NoncePart::NONE,
        tags,
        digests,
    };
    let mut chunk = Chunk::default();
    chunk.replace(0, CHUNK_BLOCKS as u16, &[Extent::from_sealed(0, &sealed)]);
    chunk
}

fn account(no: u64, live: u32) -> SegmentAccount {
    let id = SegmentId {
        no: SegmentNo(no),
        key_epoch: u32::MAX,
        salt: [no as u8; 32],
    };
    SegmentAccount {
        id,
        length: 16384,
        live,
    }
}

pub(crate) fn put(catalog: &Catalog, parent: InodeNo, name: &[u8]) -> InodeNo {
    let inode = file(catalog.new_inode().0);
    let entry = Change::put_entry(parent, name, inode.no, inode.kind);
    catalog.apply(&[Change::PutInode(&inode), entry]).unwrap();
    inode.no
}

pub(crate) fn inodes_come_back_as_they_were_put(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::CharDevice,
        FileKind::BlockDevice,
    ];
    for (no, kind) in (1..).zip(kinds) {
        let inode = Inode {
            kind,
            rdev: u64::MAX,
            target: vec![0xff; 4095],
            parent: InodeNo(9),
            ..file(no)
        };
        assert_eq!(catalog.inode(inode.no).unwrap(), None);
        catalog.apply(&[Change::PutInode(&inode)]).unwrap();
        assert_eq!(catalog.inode(inode.no).unwrap(), Some(inode.clone()));
        let other = Inode {
            size: 0,
            nlink: 0,
            has_xattrs: true,
            target: Vec::new(),
            ..inode
        };
        catalog.apply(&[Change::PutInode(&other)]).unwrap();
        assert_eq!(catalog.inode(other.no).unwrap(), Some(other));
    }
    assert_eq!(catalog.inode(InodeNo(u64::MAX)).unwrap(), None);
}

pub(crate) fn inode_numbers_are_never_given_twice(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let first = put(&catalog, InodeNo::ROOT, b"a");
    assert!(first > InodeNo::ROOT);
    let second = catalog.new_inode();
    assert!(second > first);
    catalog.commit().unwrap();
    catalog.apply(&[Change::DeleteInode(first)]).unwrap();
    catalog.commit().unwrap();
    drop(catalog);
    assert!(maker.after_crash().new_inode() > second);
}

pub(crate) fn names_lead_to_inodes(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let (here, there) = (InodeNo(1), InodeNo(2));
    assert!(catalog.is_empty(here).unwrap());
    let names: [&[u8]; 5] = [b"a", b"A", &[0xff; 255], "ä".as_bytes(), b" \n"];
    for name in names {
        let no = put(&catalog, here, name);
        assert_eq!(catalog.lookup(here, name).unwrap().unwrap().no, no);
        assert_eq!(catalog.lookup(there, name).unwrap(), None);
    }
    assert_eq!(catalog.lookup(here, b"b").unwrap(), None);
    assert!(!catalog.is_empty(here).unwrap());
    for name in names {
        catalog.apply(&[Change::remove_entry(here, name)]).unwrap();
        assert_eq!(catalog.lookup(here, name).unwrap(), None);
    }
    assert!(catalog.is_empty(here).unwrap());
    // Removing what is not there changes nothing.
    catalog.apply(&[Change::remove_entry(here, b"a")]).unwrap();
}

pub(crate) fn a_name_keeps_its_cookie_when_it_is_pointed_elsewhere(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    put(&catalog, InodeNo::ROOT, b"a");
    put(&catalog, InodeNo::ROOT, b"b");
    let before = catalog.entries(InodeNo::ROOT, 0, 10).unwrap();
    let other = put(&catalog, InodeNo::ROOT, b"a");
    let after = catalog.entries(InodeNo::ROOT, 0, 10).unwrap();
    assert_eq!(after.len(), 2);
    assert_eq!(after[0].cookie, before[0].cookie);
    assert_eq!(after[0].inode, other);
    assert_eq!(after[1], before[1]);
}

pub(crate) fn a_name_keeps_its_cookie_when_it_becomes_another(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let here = InodeNo::ROOT;
    let first = put(&catalog, here, b"a");
    put(&catalog, here, b"b");
    put(&catalog, InodeNo(2), b"a");
    let before = catalog.entries(here, 0, 10).unwrap();
    let next = catalog.next_cookie();
    assert!(before.iter().all(|entry| entry.cookie < next));
    for (name, new_name) in [(&b"a"[..], &b"longer"[..]), (b"longer", b"c")] {
        catalog
            .apply(&[Change::rename_entry(here, name, new_name)])
            .unwrap();
        assert_eq!(catalog.lookup(here, name).unwrap(), None);
        assert_eq!(catalog.lookup(here, new_name).unwrap().unwrap().no, first);
    }
    let after = catalog.entries(here, 0, 10).unwrap();
    assert_eq!(after.len(), 2);
    assert_eq!(after[0].cookie, before[0].cookie);
    assert_eq!(after[0].name, b"c");
    assert_eq!(after[1], before[1]);
    assert_eq!(catalog.next_cookie(), next);
    assert!(
        catalog.lookup(InodeNo(2), b"a").unwrap().is_some(),
        "the same name in another directory stays"
    );
    put(&catalog, here, b"a");
    assert_eq!(catalog.entries(here, 0, 10).unwrap()[2].cookie, next);
}

pub(crate) fn listings_go_on_where_they_stopped(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let names: Vec<Vec<u8>> = (0..100).map(|i| format!("name {i}").into_bytes()).collect();
    for name in &names {
        put(&catalog, InodeNo::ROOT, name);
        put(&catalog, InodeNo(2), b"elsewhere");
    }
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let some = catalog.entries(InodeNo::ROOT, after, 7).unwrap();
        let Some(last) = some.last() else { break };
        assert!(some.iter().all(|entry| entry.cookie >= 16));
        // What goes and comes meanwhile does not move the rest.
        catalog
            .apply(&[Change::remove_entry(InodeNo::ROOT, &last.name)])
            .unwrap();
        put(&catalog, InodeNo::ROOT, &last.name);
        let plus = catalog.entries_plus(InodeNo::ROOT, after, 7).unwrap();
        assert_eq!(plus.len(), 7.min(plus.len()));
        for (entry, inode) in plus {
            assert_eq!((entry.inode, entry.kind), (inode.no, inode.kind));
        }
        after = last.cookie;
        seen.extend(some.into_iter().map(|entry| entry.name));
        if seen.len() >= 2 * names.len() {
            break;
        }
    }
    assert_eq!(seen[..names.len()], names[..], "in the order of creation");
}

pub(crate) fn attributes_are_kept_by_inode_and_name(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let (one, two) = (InodeNo(5), InodeNo(6));
    let big = vec![7; 65536];
    let put = |inode, name: &[u8], value: &[u8]| {
        catalog
            .apply(&[Change::put_xattr(inode, name, value)])
            .unwrap()
    };
    put(one, b"user.b", b"1");
    put(one, b"user.a", &big);
    put(one, b"user.\xff", b"");
    put(two, b"user.b", b"other");
    put(one, b"user.b", b"2");
    assert_eq!(catalog.xattr(one, b"user.b").unwrap().unwrap(), b"2");
    assert_eq!(catalog.xattr(one, b"user.a").unwrap().unwrap(), big);
    assert_eq!(catalog.xattr(one, b"user.\xff").unwrap().unwrap(), b"");
    assert_eq!(catalog.xattr(one, b"user.c").unwrap(), None);
    assert_eq!(
        catalog.xattr_names(one).unwrap(),
        [&b"user.a"[..], b"user.b", b"user.\xff"]
    );
    catalog
        .apply(&[Change::remove_xattr(one, b"user.b")])
        .unwrap();
    assert_eq!(catalog.xattr(one, b"user.b").unwrap(), None);
    assert_eq!(catalog.xattr(two, b"user.b").unwrap().unwrap(), b"other");
    assert!(catalog.xattr_names(InodeNo(7)).unwrap().is_empty());
}

pub(crate) fn chunks_are_found_in_order_committed_or_not(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let inode = InodeNo(5);
    let last = (1 << 43) - 1;
    for (index, position) in [(0, 1), (4, 5), (last, 9)] {
        catalog
            .apply(&[Change::put_chunk(inode, index, &map(position, 6))])
            .unwrap();
    }
    catalog
        .apply(&[Change::put_chunk(InodeNo(6), 2, &map(20, 1))])
        .unwrap();
    assert_eq!(catalog.chunk(inode, 4).unwrap(), map(5, 6));
    assert!(catalog.chunk(inode, 2).unwrap().is_empty());
    let numbers = |chunks: Vec<(u64, Chunk)>| -> Vec<u64> {
        chunks.into_iter().map(|(index, _)| index).collect()
    };
    let indexes = |first, limit| numbers(catalog.chunks_from(inode, first, limit).unwrap());
    let last_indexes = |first, limit| numbers(catalog.last_chunks(inode, first, limit).unwrap());
    assert_eq!(indexes(0, 10), [0, 4, last]);
    assert_eq!(indexes(1, 1), [4]);
    assert!(indexes(u64::MAX, 1).is_empty());
    assert_eq!(last_indexes(0, 2), [4, last]);
    assert_eq!(last_indexes(5, 2), [last]);
    assert!(last_indexes(u64::MAX, 1).is_empty());
    catalog
        .apply(&[Change::put_chunk(inode, 4, &map(30, 256))])
        .unwrap();
    assert_eq!(catalog.chunk(inode, 4).unwrap(), map(30, 256));
    catalog
        .apply(&[Change::put_chunk(inode, 4, &Chunk::default())])
        .unwrap();
    assert_eq!(indexes(0, 10), [0, last]);
    catalog.commit().unwrap();
    // Of what is committed now, some goes, some is replaced, and there is more between.
    for (index, chunk) in [
        (0, Chunk::default()),
        (3, map(40, 2)),
        (7, map(50, 2)),
        (last, map(60, 3)),
    ] {
        catalog
            .apply(&[Change::put_chunk(inode, index, &chunk)])
            .unwrap();
    }
    assert_eq!(indexes(0, 10), [3, 7, last]);
    assert_eq!(indexes(0, 1), [3]);
    assert_eq!(indexes(4, 2), [7, last]);
    assert_eq!(last_indexes(0, 2), [7, last]);
    assert_eq!(last_indexes(0, 9), [3, 7, last]);
    assert_eq!(catalog.chunk(inode, last).unwrap(), map(60, 3));
    let all = catalog.all_chunks(None, 10).unwrap();
    let keys: Vec<_> = all.iter().map(|(no, index, _)| (no.0, *index)).collect();
    assert_eq!(keys, [(5, 3), (5, 7), (5, last), (6, 2)]);
    let chunk = &map(70, 1);
    let index = 1;
    catalog
        .apply(&[
            Change::put_chunk(inode, index, chunk),
            Change::DeleteInode(inode),
        ])
        .unwrap();
    assert!(indexes(0, 10).is_empty());
    assert_eq!(catalog.all_chunks(None, 10).unwrap().len(), 1);
}

pub(crate) fn deleting_an_inode_takes_all_that_is_its_own(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    for no in [5, 6] {
        let inode = InodeNo(no);
        catalog
            .apply(&[
                Change::PutInode(&file(no)),
                Change::put_xattr(inode, b"user.a", b"1"),
                Change::put_chunk(inode, 0, &map(1, 1)),
                Change::put_chunk(inode, 9, &map(2, 1)),
            ])
            .unwrap();
    }
    catalog.apply(&[Change::DeleteInode(InodeNo(5))]).unwrap();
    assert_eq!(catalog.inode(InodeNo(5)).unwrap(), None);
    assert!(catalog.xattr_names(InodeNo(5)).unwrap().is_empty());
    assert!(catalog.chunks_from(InodeNo(5), 0, 10).unwrap().is_empty());
    assert_eq!(catalog.xattr_names(InodeNo(6)).unwrap().len(), 1);
    assert_eq!(catalog.chunks_from(InodeNo(6), 0, 10).unwrap().len(), 2);
}

pub(crate) fn segments_are_accounted(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    for no in [2, 1, 3] {
        catalog
            .apply(&[Change::PutSegment(account(no, 5))])
            .unwrap();
    }
    catalog
        .apply(&[
            Change::PutSegment(account(2, 16384)),
            Change::DropSegment(SegmentNo(3)),
        ])
        .unwrap();
    assert_eq!(
        catalog.segments().unwrap(),
        [account(1, 5), account(2, 16384)]
    );
}

pub(crate) fn shared_units_are_counted_and_never_below_nothing(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let unit = |position, references| Change::share_unit(SegmentNo(3), position, references);
    assert_eq!(catalog.shared_references(SegmentNo(3), 1).unwrap(), 0);
    catalog
        .apply(&[unit(1, 1), unit(1, 1), unit(5, 7)])
        .unwrap();
    assert_eq!(catalog.shared_references(SegmentNo(3), 1).unwrap(), 2);
    catalog
        .apply(&[unit(1, -3), unit(1, 2), unit(5, -7)])
        .unwrap();
    assert_eq!(catalog.all_shared().unwrap(), [(SegmentNo(3), 1, 1)]);
    // The whole operation is refused, and nothing else is disturbed.
    let inode = file(9);
    assert!(
        catalog
            .apply(&[Change::PutInode(&inode), unit(1, -2)])
            .is_err()
    );
    assert_eq!(catalog.inode(inode.no).unwrap(), None);
    catalog.apply(&[unit(1, -1)]).unwrap();
    assert!(catalog.all_shared().unwrap().is_empty());
    catalog.commit().unwrap();

    // What was committed and what is pending add up, whether it was asked for in between or not.
    let count =
        |catalog: &Catalog, position| catalog.shared_references(SegmentNo(3), position).unwrap();
    for asked in [true, false] {
        catalog.apply(&[unit(2, 2), unit(8, 1)]).unwrap();
        catalog.commit().unwrap();
        catalog.apply(&[unit(2, -1)]).unwrap();
        assert!(!asked || count(&catalog, 2) == 1);
        catalog.apply(&[unit(2, 3), unit(8, 4)]).unwrap();
        assert!(!asked || (count(&catalog, 2), count(&catalog, 8)) == (4, 5));
        catalog.commit().unwrap();
        let stored = [(SegmentNo(3), 2, 4), (SegmentNo(3), 8, 5)];
        assert_eq!(catalog.all_shared().unwrap(), stored);
        assert_eq!(maker.after_crash().all_shared().unwrap(), stored);
        catalog.apply(&[unit(2, -4), unit(8, -5)]).unwrap();
        assert!(!asked || (count(&catalog, 2), count(&catalog, 8)) == (0, 0));
        assert_eq!(catalog.all_shared().unwrap(), []);
        assert!(catalog.apply(&[unit(2, -1)]).is_err());
        catalog.commit().unwrap();
        assert_eq!(maker.after_crash().all_shared().unwrap(), []);
    }
}
