//! The placement over disks in memory that lose power, restart, and go away.

mod double;
mod real;
mod rooms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use netdisk::BLOCK_LEN;
use segments::SEGMENT_BLOCKS;
use storage::testing::Op;

use super::*;
use double::{Asked, Bench, UNANSWERED};

/// Blocks of a whole segment.
const SLOT_BLOCKS: u64 = SEGMENT_BLOCKS as u64;
const SLOT_LEN: u64 = SLOT_BLOCKS * BLOCK_LEN as u64;

fn path(no: u64) -> String {
    format!("{SEGMENTS_DIR}/{no:020}")
}

fn create(storage: &NetStorage, no: u64) -> io::Result<Arc<dyn StorageFile>> {
    storage.open(&path(no), OpenMode::CreateNew)
}

fn slot(disk: DiskId, slot: u64) -> Vec<BlockExtent> {
    let _ = disk;
    vec![BlockExtent {
        start: slot * SLOT_BLOCKS,
        blocks: SLOT_BLOCKS,
    }]
}

const BLOCKS: [u8; 3 * BLOCK_LEN] = [7; 3 * BLOCK_LEN];

#[test]
fn a_segment_reads_as_it_was_written_and_keeps_its_slot() {
    let bench = Bench::new(2, 4);
    let storage = bench.attached();
    for no in 1..=8 {
        let file = create(&storage, no).unwrap();
        file.write_at(&[no as u8; BLOCK_LEN], 0).unwrap();
        file.write_at(&BLOCKS, SLOT_LEN - BLOCKS.len() as u64)
            .unwrap();
        assert!(file.write_at(&BLOCKS, SLOT_LEN - BLOCK_LEN as u64).is_err());
        assert!(file.write_at(&BLOCKS, 1).is_err());
    }
    assert_eq!(
        create(&storage, 9).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    assert_eq!(
        create(&storage, 8).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
    let places: BTreeSet<_> = (1..=8).map(|no| storage.locate(SegmentNo(no))).collect();
    assert_eq!(places.len(), 8);
    assert_eq!(storage.space().unwrap().total, 8 * SLOT_LEN);
    assert_eq!(storage.space().unwrap().available, 0);
    let again = bench.attached();
    for no in 1..=8 {
        assert_eq!(storage.locate(SegmentNo(no)), again.locate(SegmentNo(no)));
        let file = again.open(&path(no), OpenMode::Read).unwrap();
        assert_eq!(file.len().unwrap(), SLOT_LEN);
        let mut block = [0; BLOCK_LEN];
        file.read_at(&mut block, 0).unwrap();
        assert_eq!(block, [no as u8; BLOCK_LEN]);
        assert!(file.write_at(&block, 0).is_err(), "opened for reading");
        assert_eq!(
            file.read_at(&mut block, SLOT_LEN).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
    assert_eq!(again.list(SEGMENTS_DIR).unwrap().len(), 8);
}

#[test]
fn new_segments_go_to_disks_in_turn_and_to_none_that_is_closed_or_away_where_others_are() {
    let bench = Bench::new(3, 10);
    let storage = bench.attached();
    let ids = |range: std::ops::RangeInclusive<u64>| -> BTreeMap<DiskId, usize> {
        let mut counts = BTreeMap::new();
        for no in range {
            let _ = create(&storage, no).unwrap();
            let (id, _) = storage.locate(SegmentNo(no)).unwrap();
            *counts.entry(id).or_default() += 1;
        }
        counts
    };
    assert!(ids(1..=6).values().all(|n| *n == 2));
    storage.set_draining(bench.disks[0].id, true).unwrap();
    assert_eq!(bench.open().draining(), [bench.disks[0].id]);
    assert_eq!(ids(7..=12).get(&bench.disks[0].id), None);
    let there = storage.segments_on(bench.disks[1].id)[0];
    bench.disks[1].state.lock().away = 1;
    let file = storage.open(&path(there.0), OpenMode::Read).unwrap();
    let error = file.read_at(&mut [0; BLOCK_LEN], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::HostUnreachable);
    assert_eq!(DiskFailed::within(&error).unwrap().disk, bench.disks[1].id);
    assert_eq!(ids(13..=15).get(&bench.disks[2].id), Some(&3));
    file.read_at(&mut [0; BLOCK_LEN], 0).unwrap();
    assert!(ids(16..=19).contains_key(&bench.disks[1].id));
}

#[test]
fn a_slot_is_anothers_only_after_capabilities_are_revoked_and_its_blocks_discarded() {
    let bench = Bench::new(1, 1);
    let (storage, id) = (bench.attached(), bench.disks[0].id);
    let old = create(&storage, 1).unwrap();
    old.write_at(&BLOCKS, 0).unwrap();
    bench.log.revoking_fails.store(true, Ordering::SeqCst);
    storage.remove(&path(1)).unwrap();
    assert_eq!(storage.release(), 1);
    assert_eq!(bench.asked(), [Asked::Revoke(id, slot(id, 0))]);
    assert_eq!(storage.space().unwrap().free, 0);
    assert!(
        old.write_at(&BLOCKS, 0).is_err() && old.read_at(&mut [0; BLOCK_LEN], 0).is_err(),
        "a file that is gone leads nowhere"
    );
    // Also after an opening: nothing was freed yet.
    let storage = bench.attached();
    assert_eq!(storage.release(), 1);
    assert!(storage.locate(SegmentNo(1)).is_none());
    bench.asked();
    bench.log.revoking_fails.store(false, Ordering::SeqCst);
    bench.disks[0].state.lock().away = 1;
    assert_eq!(storage.release(), 1, "the disk is away");
    assert_eq!(storage.release(), 0);
    assert_eq!(
        bench.asked(),
        [
            Asked::Revoke(id, slot(id, 0)),
            Asked::Revoke(id, slot(id, 0)),
            Asked::Discard(id, slot(id, 0)),
        ]
    );
    let _ = create(&storage, 2).unwrap();
    assert_eq!(storage.locate(SegmentNo(2)), Some((id, 0)));
}

/// Somebody may have kept it, and let it go when the slot is another segment's.
#[test]
fn a_slot_is_free_after_an_unanswered_write_only_when_its_ticket_is_worthless() {
    let bench = Bench::new(1, 1);
    let (storage, id) = (bench.attached(), bench.disks[0].id);
    let freed = [
        Asked::Revoke(id, slot(id, 0)),
        Asked::Discard(id, slot(id, 0)),
    ];
    let write_and_remove = |no, first| {
        let file = create(&storage, no).unwrap();
        file.write_at(&[first; BLOCK_LEN], 0).unwrap();
        storage.remove(&path(no)).unwrap();
        // What the write asked for.
        bench.asked();
    };
    write_and_remove(1, UNANSWERED);
    bench.disks[0].state.lock().away = 1;
    assert_eq!(storage.release(), 1, "the ticket may still be good");
    assert_eq!(bench.asked(), [Asked::Renew(id)]);
    assert_eq!(storage.release(), 0);
    let asked = bench.asked();
    assert_eq!((&asked[0], &asked[1..]), (&Asked::Renew(id), &freed[..]));
    write_and_remove(2, 1);
    assert_eq!(storage.release(), 0);
    assert_eq!(bench.asked(), freed, "the ticket stays good");
}

#[test]
fn a_new_segment_waits_for_a_slot_that_is_leaving() {
    let bench = Bench::new(1, 1);
    let storage = bench.attached();
    let _ = create(&storage, 1).unwrap();
    storage.remove(&path(1)).unwrap();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| create(&storage, 2).map(drop));
        // Whenever it comes, it is in time.
        assert_eq!(storage.release(), 0);
        made.join().unwrap().unwrap();
    });
}

#[test]
fn holes_are_freed_while_their_segment_exists_and_not_after_it() {
    let bench = Bench::new(1, 2);
    let (storage, id) = (bench.attached(), bench.disks[0].id);
    for no in [1, 2] {
        let file = create(&storage, no).unwrap();
        file.write_at(&BLOCKS, 0).unwrap();
        file.punch(BLOCK_LEN as u64, BLOCK_LEN as u64).unwrap();
        assert!(file.punch(1, 1).is_err());
    }
    let start = storage.locate(SegmentNo(2)).unwrap().1;
    let hole = vec![BlockExtent {
        start: start + 1,
        blocks: 1,
    }];
    storage.remove(&path(1)).unwrap();
    assert_eq!(storage.release(), 0);
    let asked = bench.asked();
    assert_eq!(
        asked[..2],
        [Asked::Revoke(id, hole.clone()), Asked::Discard(id, hole)]
    );
    assert_eq!(asked.len(), 4, "the other's hole went with its slot");
}

#[test]
fn a_flush_covers_what_was_written_and_each_disk_once() {
    let bench = Bench::new(2, 4);
    let storage = bench.attached();
    let files: Vec<_> = (1..=4).map(|no| create(&storage, no).unwrap()).collect();
    files.iter().for_each(|f| f.write_at(&BLOCKS, 0).unwrap());
    files.iter().for_each(|f| f.sync().unwrap());
    for disk in &bench.disks {
        assert_eq!(disk.state.lock().flushes, 1);
        disk.lose_power();
    }
    let mut found = [0; 3 * BLOCK_LEN];
    for file in &files {
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(found, BLOCKS);
    }
    assert_eq!(bench.asked().len(), 2, "each knew no group, once");
}

#[test]
fn a_flush_after_a_disk_lost_power_fails_for_good() {
    for borrowed in [false, true] {
        let bench = Bench::new(1, 4);
        let storage = bench.attached();
        let file = create(&storage, 1).unwrap();
        let disk = &bench.disks[0];
        file.write_at(&BLOCKS, 0).unwrap();
        file.sync().unwrap();
        if borrowed {
            let boot = disk.write_as_borrower(9, &BLOCKS);
            storage.wrote(SegmentNo(1), boot).unwrap();
        } else {
            file.write_at(&BLOCKS, 0).unwrap();
        }
        disk.lose_power();
        assert!(file.sync().is_err());
        assert!(file.sync().is_err(), "a second try fails too");
        // Nor where something was written since.
        let _ = file.write_at(&BLOCKS, 0);
        assert!(file.sync().is_err());
    }
}

#[test]
fn a_flush_after_a_disk_was_only_restarted_goes_through() {
    let bench = Bench::new(1, 4);
    let storage = bench.attached();
    let file = create(&storage, 1).unwrap();
    file.write_at(&BLOCKS, 0).unwrap();
    bench.disks[0].restart();
    file.sync().unwrap();
}

#[test]
fn writes_of_an_earlier_incarnation_of_the_disk_are_refused_and_later_ones_accepted() {
    let bench = Bench::new(1, 4);
    let storage = bench.attached();
    let file = create(&storage, 1).unwrap();
    let disk = &bench.disks[0];
    let early = disk.write_as_borrower(5, &BLOCKS);
    disk.lose_power();
    assert!(matches!(
        storage.wrote(SegmentNo(1), early),
        Err(DurabilityError::Lost)
    ));
    let late = disk.boot_now();
    storage.wrote(SegmentNo(1), late).unwrap();
    assert!(matches!(
        storage.wrote(SegmentNo(1), early),
        Err(DurabilityError::Lost)
    ));
    file.sync().unwrap();
    // Only the client has written to it since its next incarnation began, not the server.
    disk.lose_power();
    storage.wrote(SegmentNo(1), disk.boot_now()).unwrap();
    file.sync().unwrap();
    // Unflushed data of the incarnation before is lost.
    disk.write_as_borrower(5, &BLOCKS);
    storage.wrote(SegmentNo(1), disk.boot_now()).unwrap();
    disk.lose_power();
    storage.wrote(SegmentNo(1), disk.boot_now()).unwrap();
    assert!(file.sync().is_err());
    disk.state.lock().away = 1;
    assert!(matches!(
        storage.wrote(SegmentNo(1), early),
        Err(DurabilityError::Disk(_))
    ));
    assert!(matches!(
        storage.wrote(SegmentNo(77), early),
        Err(DurabilityError::Disk(_))
    ));
}

#[test]
fn a_flush_waits_for_a_disk_that_is_away_and_not_without_end() {
    let bench = Bench::new(1, 4);
    let storage = bench.attached();
    let file = create(&storage, 1).unwrap();
    file.write_at(&BLOCKS, 0).unwrap();
    bench.disks[0].state.lock().away = 1;
    file.sync().unwrap();
    file.write_at(&BLOCKS, 0).unwrap();
    bench.disks[0].state.lock().away = u64::MAX;
    assert!(file.sync().is_err());
    bench.disks[0].state.lock().away = 0;
    assert!(file.sync().is_err(), "what it acknowledged may be lost");
    let other = bench.attached();
    other.hurry();
    let file = other.open(&path(1), OpenMode::ReadWrite).unwrap();
    file.write_at(&BLOCKS, 0).unwrap();
    bench.disks[0].state.lock().away = u64::MAX;
    assert!(file.sync().is_err());
    let attempts = u64::MAX - bench.disks[0].state.lock().away;
    assert_eq!(attempts, 1, "a storage that ends does not wait");
}

#[test]
fn the_table_is_whole_after_a_crash_at_every_operation() {
    let mut cuts = 0;
    for seed in 0..6 {
        for nth in 1.. {
            let bench = Bench::new(2, 20);
            let storage = bench.attached();
            let _ = create(&storage, 1).unwrap();
            let _ = create(&storage, 2).unwrap();
            // Once cut, every handle and call of before is refused.
            let memory = bench.host.inner().clone();
            let left = AtomicU64::new(nth);
            let cut = Arc::new(AtomicBool::new(false));
            let reported = cut.clone();
            bench.host.observe(move |_| {
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    reported.store(true, Ordering::SeqCst);
                    match seed {
                        0 => memory.power_cut(),
                        _ => memory.power_cut_keeping_some(seed),
                    }
                }
            });
            let mut known: BTreeMap<u64, Option<(DiskId, u64)>> = BTreeMap::new();
            for no in 1..=2 {
                known.insert(no, storage.locate(SegmentNo(no)));
            }
            let mut doubtful = 0;
            for no in 3..=5 {
                doubtful = no;
                if create(&storage, no).is_err() || cut.load(Ordering::SeqCst) {
                    break;
                }
                known.insert(no, storage.locate(SegmentNo(no)));
                doubtful = no - 2;
                if storage.remove(&path(no - 2)).is_err() || cut.load(Ordering::SeqCst) {
                    break;
                }
                known.insert(no - 2, None);
                doubtful = 0;
            }
            let over = !cut.load(Ordering::SeqCst);
            cuts += 1;
            bench.host.observe(|_| {});
            let found = bench.open();
            for (no, place) in &known {
                let now = found.locate(SegmentNo(*no));
                assert!(
                    *no == doubtful || now == *place,
                    "cut {nth}, seed {seed}: segment {no} was in {place:?}, is in {now:?}"
                );
            }
            if over {
                break;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn what_a_closed_segment_did_not_use_is_anothers_after_its_capabilities_are_revoked() {
    let bench = Bench::new(1, 1);
    let (storage, id) = (bench.attached(), bench.disks[0].id);
    let file = create(&storage, 1).unwrap();
    file.write_at(&BLOCKS, 0).unwrap();
    assert_eq!(file.capacity().unwrap(), Some(SLOT_LEN));
    file.set_len(BLOCKS.len() as u64).unwrap();
    assert_eq!(file.len().unwrap(), UNIT_LEN);
    assert!(file.set_len(SLOT_LEN).is_err(), "it is another's soon");
    assert!(file.write_at(&BLOCKS, UNIT_LEN).is_err());
    assert_eq!(storage.space().unwrap().available, 0);
    bench.asked();
    assert_eq!(storage.release(), 0);
    let rest = vec![BlockExtent {
        start: UNIT_BLOCKS,
        blocks: SLOT_BLOCKS - UNIT_BLOCKS,
    }];
    assert_eq!(
        bench.asked(),
        [Asked::Revoke(id, rest.clone()), Asked::Discard(id, rest)]
    );
    // Not in the file yet: an opening before the next segment has it whole.
    assert_eq!(
        bench
            .attached()
            .open(&path(1), OpenMode::Read)
            .unwrap()
            .len()
            .unwrap(),
        SLOT_LEN
    );
    let second = create(&storage, 2).unwrap();
    assert_eq!(storage.locate(SegmentNo(2)), Some((id, UNIT_BLOCKS)));
    // Half of what is left, so that there is something for the next one.
    assert_eq!(
        second.len().unwrap() / UNIT_LEN,
        (SLOT_LEN / UNIT_LEN - 1) / 2
    );
    let third = create(&storage, 3).unwrap();
    third.write_at(&BLOCKS, 0).unwrap();
    let mut found = [0; BLOCKS.len()];
    file.read_at(&mut found, 0).unwrap();
    assert_eq!(found, BLOCKS);
    assert_eq!(
        bench
            .attached()
            .open(&path(1), OpenMode::Read)
            .unwrap()
            .len()
            .unwrap(),
        UNIT_LEN
    );
}

#[test]
fn a_table_that_is_gone_damaged_or_older_is_made_good_by_its_copy() {
    let bench = Bench::new(2, 4);
    let storage = bench.attached();
    let _ = create(&storage, 1).unwrap();
    let older = storage::read_limited(&bench.host, table::PLACEMENT, 1 << 20).unwrap();
    let _ = create(&storage, 2).unwrap();
    let whole = |left: &str| {
        let found = bench.open();
        for no in 1..=2 {
            let no = SegmentNo(no);
            assert_eq!(found.locate(no), storage.locate(no), "with {left}");
        }
    };
    for (lost, left) in [
        (table::PLACEMENT, table::COPY),
        (table::COPY, table::PLACEMENT),
    ] {
        let bytes = storage::read_limited(&bench.host, lost, 1 << 20).unwrap();
        bench.host.remove(lost).unwrap();
        whole(left);
        for other in [&older[..], b"damaged"] {
            storage::replace(&bench.host, lost, other).unwrap();
            whole(left);
        }
        storage::replace(&bench.host, lost, &bytes).unwrap();
    }
}

#[test]
fn a_damaged_table_is_refused_in_words() {
    let bench = Bench::new(1, 4);
    let _ = create(&bench.attached(), 1).unwrap();
    for name in [table::PLACEMENT, table::COPY] {
        let file = bench.host.open(name, OpenMode::ReadWrite).unwrap();
        file.write_at(b"x", 100).unwrap();
    }
    let host = Arc::new(bench.host.clone());
    let error = NetStorage::open(host, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("put a copy of it back"));
}

#[test]
fn other_files_stay_in_the_rooms_directory() {
    let bench = Bench::new(1, 1);
    let storage = bench.attached();
    storage.open("f", OpenMode::CreateNew).unwrap();
    assert_eq!(bench.host.list("").unwrap(), ["f"]);
    assert!(storage.rename("f", &path(1)).is_err());
    let no_segments = ["segments/1", "segments/00000000000000000000", "segments2"];
    for name in no_segments {
        assert_eq!(segment_of(name), None, "{name}");
    }
    assert!(bench.host.count(Op::Open) > 0);
}
