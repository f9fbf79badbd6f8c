//! Promises about the whole catalog: walks, commits, crashes, copies.

use std::sync::Arc;

use storage::testing::MemoryStorage;
use storage::{OpenMode, Storage};

use super::{Maker, account, file, map, put};
use crate::{CachedReply, Change, ClientKey, Inode, InodeNo, SegmentNo};

pub(crate) fn orphans_are_inodes_without_a_name(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    for no in 5..9 {
        catalog
            .apply(&[Change::PutInode(&Inode {
                nlink: (no % 2) as u32,
                ..file(no)
            })])
            .unwrap();
    }
    assert_eq!(catalog.orphans().unwrap(), [InodeNo(6), InodeNo(8)]);
    catalog
        .apply(&[
            Change::PutInode(&file(6)),
            Change::PutInode(&Inode {
                nlink: 0,
                ..file(5)
            }),
        ])
        .unwrap();
    catalog.apply(&[Change::DeleteInode(InodeNo(8))]).unwrap();
    assert_eq!(catalog.orphans().unwrap(), [InodeNo(5)]);
}

pub(crate) fn walks_over_everything_miss_nothing(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let mut inodes = Vec::new();
    for i in 0..20u64 {
        let no = put(&catalog, InodeNo(1 + i % 3), format!("{i}").as_bytes());
        for index in 0..i % 4 {
            catalog
                .apply(&[Change::put_chunk(no, index, &map(1, 1))])
                .unwrap();
        }
        inodes.push(no);
    }
    let mut walked = Vec::new();
    while let Some(last) = catalog
        .all_inodes(*walked.last().unwrap_or(&InodeNo(0)), 3)
        .unwrap()
        .last()
    {
        let after = *walked.last().unwrap_or(&InodeNo(0));
        walked.extend(
            catalog
                .all_inodes(after, 3)
                .unwrap()
                .iter()
                .map(|inode| inode.no),
        );
        assert_eq!(walked.last(), Some(&last.no));
    }
    assert_eq!(walked, inodes);

    let mut chunks = Vec::new();
    loop {
        let some = catalog.all_chunks(chunks.last().copied(), 4).unwrap();
        if some.is_empty() {
            break;
        }
        chunks.extend(some.iter().map(|(inode, index, _)| (*inode, *index)));
    }
    let expected: Vec<_> = inodes
        .iter()
        .zip(0..20u64)
        .flat_map(|(no, i)| (0..i % 4).map(|index| (*no, index)))
        .collect();
    assert_eq!(chunks, expected);

    let mut entries = Vec::new();
    let mut after = (InodeNo(0), 0);
    loop {
        let some = catalog.all_entries(after, 4).unwrap();
        let Some((parent, entry)) = some.last() else {
            break;
        };
        after = (*parent, entry.cookie);
        entries.extend(some);
    }
    assert_eq!(entries.len(), 20);
    assert!(entries.is_sorted_by_key(|(parent, entry)| (*parent, entry.cookie)));
}

pub(crate) fn what_is_applied_is_read_at_once_and_a_crash_forgets_it(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    assert!(!catalog.is_dirty());
    let kept = put(&catalog, InodeNo::ROOT, b"kept");
    assert!(catalog.is_dirty());
    let generation = catalog.commit().unwrap();
    assert!(!catalog.is_dirty());
    let lost = put(&catalog, InodeNo::ROOT, b"lost");
    catalog
        .apply(&[
            Change::DeleteInode(kept),
            Change::remove_entry(InodeNo::ROOT, b"kept"),
        ])
        .unwrap();
    assert!(catalog.inode(lost).unwrap().is_some());
    let after = maker.after_crash();
    drop(catalog);
    assert_eq!(after.generation(), generation);
    assert_eq!(after.inode(lost).unwrap(), None);
    assert_eq!(
        after.lookup(InodeNo::ROOT, b"kept").unwrap().unwrap().no,
        kept
    );
    assert_eq!(after.inode_count().unwrap(), 1);
    assert_eq!(after.verify().unwrap(), [""; 0]);
}

pub(crate) fn what_is_written_ahead_is_the_commits_and_a_crash_forgets_it(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let generation = catalog.commit().unwrap();
    let put_many = |from: u64| {
        for i in from..from + 100 {
            put(&catalog, InodeNo::ROOT, format!("{i}").as_bytes());
        }
    };
    // The same pages again and again, and others.
    for round in 0..5 {
        put_many(round * 100);
        catalog.write_ahead().unwrap();
        assert!(catalog.is_dirty());
    }
    assert_eq!(catalog.inode_count().unwrap(), 500);
    let after = maker.after_crash();
    assert_eq!(after.generation(), generation);
    assert_eq!(after.inode_count().unwrap(), 0);
    put_many(500);
    assert_eq!(catalog.commit().unwrap(), generation + 1);
    let after = maker.after_crash();
    drop(catalog);
    assert_eq!(after.generation(), generation + 1);
    assert_eq!(after.inode_count().unwrap(), 600);
    assert!(after.lookup(InodeNo::ROOT, b"599").unwrap().is_some());
    assert_eq!(after.verify().unwrap(), [""; 0]);
}

pub(crate) fn a_commit_survives_a_crash_and_raises_the_generation(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let first = catalog.generation();
    assert_eq!(catalog.commit().unwrap(), first, "nothing to do");
    for i in 1..=20 {
        put(&catalog, InodeNo::ROOT, format!("{i}").as_bytes());
        assert_eq!(catalog.commit().unwrap(), first + i);
        assert_eq!(catalog.generation(), first + i);
        if i % 5 == 0 {
            catalog.checkpoint().unwrap();
        }
        let after = maker.after_crash();
        assert_eq!(after.generation(), first + i);
        assert_eq!(
            after.entries(InodeNo::ROOT, 0, 100).unwrap().len() as u64,
            i
        );
    }
}

pub(crate) fn answers_are_kept_by_client_and_slot_with_what_they_answer(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    let (one, two) = (ClientKey([1; 32]), ClientKey([2; 32]));
    let reply = |slot, sequence, bytes: &[u8]| CachedReply {
        slot,
        sequence,
        answer: bytes.to_vec(),
    };
    assert!(catalog.replies(one).unwrap().is_empty());
    assert!(catalog.reply_clients().unwrap().is_empty());
    catalog.apply(&[Change::DropReplies(one)]).unwrap();
    let put = |client, reply: &CachedReply| {
        catalog.apply(&[Change::put_reply(client, reply)]).unwrap();
    };
    put(one, &reply(0, 1, b"first"));
    put(one, &reply(7, 1, b"other slot"));
    put(two, &reply(0, u64::MAX >> 1, b"other client"));
    let no = catalog.new_inode();
    let second = reply(0, 2, b"second");
    let client = one;
    let with_operation = [
        Change::PutInode(&file(no.0)),
        Change::put_reply(client, &second),
    ];
    catalog.commit().unwrap();
    catalog.apply(&with_operation).unwrap();
    let newest = [second.clone(), reply(7, 1, b"other slot")];
    assert_eq!(catalog.replies(one).unwrap(), newest);
    let after = maker.after_crash();
    assert_eq!(after.inode(no).unwrap(), None);
    let before = [reply(0, 1, b"first"), reply(7, 1, b"other slot")];
    assert_eq!(after.replies(one).unwrap(), before);
    assert_eq!(after.reply_clients().unwrap(), [one, two]);
    drop(after);
    catalog.apply(&[Change::DropReplies(two)]).unwrap();
    catalog.commit().unwrap();
    let after = maker.after_crash();
    drop(catalog);
    assert_eq!(after.inode(no).unwrap(), Some(file(no.0)));
    assert_eq!(after.replies(one).unwrap(), newest);
    assert_eq!(after.reply_clients().unwrap(), [one]);
    assert_eq!(after.verify().unwrap(), [""; 0]);
}

pub(crate) fn named_values_are_part_of_the_commit(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    assert_eq!(catalog.meta("room.x").unwrap(), None);
    catalog.set_meta("room.x", b"1").unwrap();
    assert!(catalog.is_dirty());
    catalog.commit().unwrap();
    catalog.set_meta("room.x", b"").unwrap();
    assert_eq!(catalog.meta("room.x").unwrap().unwrap(), b"");
    assert_eq!(maker.after_crash().meta("room.x").unwrap().unwrap(), b"1");
}

pub(crate) fn inodes_are_counted(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    assert_eq!(catalog.inode_count().unwrap(), 0);
    for no in 5..10 {
        catalog
            .apply(&[Change::PutInode(&file(no)), Change::PutInode(&file(no))])
            .unwrap();
    }
    catalog
        .apply(&[
            Change::DeleteInode(InodeNo(5)),
            Change::DeleteInode(InodeNo(5)),
        ])
        .unwrap();
    assert_eq!(catalog.inode_count().unwrap(), 4);
}

pub(crate) fn a_copy_holds_the_last_commit(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    put(&catalog, InodeNo::ROOT, b"a");
    let elsewhere: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let key = seal::MasterKey::from_bytes(&[1; 32]).catalog_key(&seal::RoomId::from_bytes([2; 16]));
    let generation = catalog.generation();
    catalog.copy_to(&elsewhere, "copy", &key).unwrap();
    assert!(!catalog.is_dirty(), "pending changes are committed first");
    assert_eq!(catalog.generation(), generation + 1);
    let copy = elsewhere.open("copy", OpenMode::Read).unwrap();
    assert!(!copy.is_empty().unwrap());
    assert!(
        catalog.copy_to(&elsewhere, "copy", &key).is_err(),
        "nothing is overwritten"
    );
    put(&catalog, InodeNo::ROOT, b"b");
    catalog.commit().unwrap();
}

pub(crate) fn a_sound_catalog_has_no_findings(maker: &mut dyn Maker) {
    let catalog = maker.fresh();
    for i in 0..200 {
        let no = put(&catalog, InodeNo(1 + i % 5), format!("{i}").as_bytes());
        catalog
            .apply(&[
                Change::put_xattr(no, b"user.a", &[1; 300]),
                Change::put_chunk(no, 0, &map(1, 256)),
                Change::share_unit(SegmentNo(3), 1, 1),
                Change::PutSegment(account(i + 1, 5)),
            ])
            .unwrap();
    }
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
    catalog.commit().unwrap();
    catalog.checkpoint().unwrap();
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}
