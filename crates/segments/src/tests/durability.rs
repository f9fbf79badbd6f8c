//! What a flush promises, and what failures leave behind.

use storage::testing::{Fault, Op, Times};

use super::*;
use crate::SealedUnits;

#[test]
fn what_was_flushed_survives_a_power_cut() {
    let mut bench = Bench::new();
    let mut durable = Vec::new();
    for round in 0..6 {
        durable.push(bench.append(round + 1, round as u8));
        bench.store.rotate().unwrap();
        durable.push(bench.append(round + 1, 100 + round as u8));
        assert!(bench.store.is_dirty());
        bench.store.flush().unwrap();
        assert!(!bench.store.is_dirty());
        bench.append(4, 200);
        bench.memory.power_cut();
        bench.reopen();
        for w in &durable {
            w.assert_readable(&bench.store);
            bench.store.check_header(w.sealed.segment).unwrap();
        }
    }
}

#[test]
fn after_any_partial_power_cut_what_was_flushed_is_there() {
    for seed in 0..64 {
        let mut bench = Bench::new();
        let first = bench.append(9, 1);
        bench.store.flush().unwrap();
        let second = bench.append(9, 2);
        bench.store.rotate().unwrap();
        let third = bench.append(9, 3);
        bench.memory.power_cut_keeping_some(seed);
        bench.reopen();
        first.assert_readable(&bench.store);
        for w in [&second, &third] {
            // Whole or reported as damaged, and never other bytes: that is asserted inside.
            w.units_that_open(&bench.store);
        }
        let after = bench.append(9, 4);
        assert!(after.sealed.segment > first.sealed.segment);
        after.assert_readable(&bench.store);
    }
}

#[test]
fn a_clean_flush_touches_no_disk() {
    let mut bench = Bench::new();
    bench.store.flush().unwrap();
    bench.append(1, 1);
    bench.store.flush().unwrap();
    let before = (
        bench.faults.count(Op::Sync),
        bench.faults.count(Op::SyncDir),
    );
    bench.store.flush().unwrap();
    assert_eq!(
        (
            bench.faults.count(Op::Sync),
            bench.faults.count(Op::SyncDir)
        ),
        before
    );
    // The directory is synced only when a segment was begun.
    bench.append(1, 2);
    bench.store.flush().unwrap();
    assert_eq!(
        (
            bench.faults.count(Op::Sync),
            bench.faults.count(Op::SyncDir)
        ),
        (before.0 + 1, before.1)
    );
}

#[test]
fn a_failed_flush_refuses_appends_and_flushes_until_reopened() {
    for op in [Op::Sync, Op::SyncDir] {
        let mut bench = Bench::new();
        let w = bench.append(4, 1);
        bench.faults.refuse(op, 1, Fault::Io, Times::Once);
        assert!(matches!(bench.store.flush(), Err(SegmentError::Io(_))));
        assert!(matches!(bench.store.flush(), Err(SegmentError::Poisoned)));
        assert!(matches!(
            bench.store.append(&plain(1, 1)),
            Err(SegmentError::Poisoned)
        ));
        assert!(matches!(bench.store.rotate(), Err(SegmentError::Poisoned)));
        assert!(
            bench.store.is_dirty(),
            "what was not made durable stays to be reported"
        );
        w.assert_readable(&bench.store);
        bench.reopen();
        bench.append(1, 2).assert_readable(&bench.store);
        bench.store.flush().unwrap();
    }
}

#[test]
fn a_full_disk_refuses_the_append_and_burns_its_place() {
    let mut bench = Bench::new();
    let first = bench.append(4, 1);
    bench
        .faults
        .refuse(Op::Write, 1, Fault::NoSpace, Times::Once);
    assert!(matches!(
        bench.store.append(&plain(4, 2)),
        Err(SegmentError::NoSpace)
    ));
    let next = bench.append(4, 3);
    assert_eq!(
        (next.sealed.segment, next.sealed.position),
        (first.sealed.segment, 9),
        "5 to 8 are used up"
    );
    next.assert_readable(&bench.store);
    bench.store.flush().unwrap();
}

#[test]
fn a_torn_write_burns_its_place() {
    let mut bench = Bench::new();
    bench.append(4, 1);
    bench.faults.refuse(Op::Write, 1, Fault::Torn, Times::Once);
    assert!(matches!(
        bench.store.append(&plain(4, 2)),
        Err(SegmentError::Io(_))
    ));
    let next = bench.append(4, 3);
    assert_eq!(next.sealed.position, 9);
    next.assert_readable(&bench.store);
}

#[test]
fn a_segment_that_cannot_be_made_leaves_nothing_and_the_next_one_can() {
    for (op, fault) in [
        (Op::Create, Fault::NoSpace),
        (Op::Write, Fault::NoSpace),
        (Op::Write, Fault::Torn),
    ] {
        let mut bench = Bench::new();
        bench.append(1, 1);
        bench.store.rotate().unwrap();
        bench.faults.refuse(op, 1, fault, Times::Once);
        let refused = bench.store.append(&plain(1, 1)).unwrap_err();
        assert!(matches!(
            refused,
            SegmentError::NoSpace | SegmentError::Io(_)
        ));
        assert!(bench.store.take_new().is_empty());
        assert_eq!(
            bench.store.list().unwrap().len(),
            1,
            "{op:?}: a file is left behind"
        );
        let w = bench.append(1, 2);
        assert_eq!(w.sealed.segment, SegmentNo(3), "its number is used up");
        w.assert_readable(&bench.store);
        assert_eq!(bench.known.last().unwrap().no, SegmentNo(3));
    }
}

#[test]
fn segments_of_before_are_never_appended_to() {
    let mut bench = Bench::new();
    let old = bench.append(1, 1);
    bench.store.flush().unwrap();
    bench.reopen();
    let new = bench.append(1, 2);
    assert!(new.sealed.segment > old.sealed.segment);
    assert_eq!(
        bench.bytes(old.sealed.segment, 0, 2 * BLOCK_LEN).len(),
        2 * BLOCK_LEN
    );
    bench
        .store
        .list()
        .unwrap()
        .into_iter()
        .for_each(|file| assert_eq!(file.len, 2 * BLOCK_LEN as u64));
}

#[test]
fn a_segment_that_the_catalog_never_learned_of_is_passed_over() {
    let bench = Bench::new();
    append(&bench.store, 1, 1);
    bench.store.flush().unwrap();
    // Opened with what the catalog knows: nothing.
    let again = open(&bench.faults, Vec::new());
    let w = append(&again, 1, 2);
    assert_eq!(w.sealed.segment, SegmentNo(2));
    w.assert_readable(&again);
}

#[test]
fn numbers_go_on_above_known_segments_whose_files_are_gone() {
    let known = vec![SegmentId {
        no: SegmentNo(41),
        key_epoch: 1,
        salt: [0; 32],
    }];
    let storage = FaultyStorage::new(MemoryStorage::new());
    let store = open(&storage, known);
    assert_eq!(append(&store, 1, 1).sealed.segment, SegmentNo(42));
}

#[test]
fn small_flushes_in_a_row_find_their_place_written() {
    let mut bench = Bench::new();
    let lengthened = Arc::new(std::sync::Mutex::new((0_u64, 0)));
    let seen = lengthened.clone();
    bench.faults.observe(move |call| {
        let mut seen = seen.lock().unwrap();
        if call.op == Op::Write && call.offset + call.len > seen.0 {
            *seen = (call.offset + call.len, seen.1 + 1);
        }
    });
    let written: Vec<_> = (0..130)
        .map(|seed| {
            let w = bench.append(1, seed);
            bench.store.flush().unwrap();
            w
        })
        .collect();
    let times = lengthened.lock().unwrap().1;
    assert!(times <= 8, "the file was lengthened {times} times");
    bench.memory.power_cut();
    bench.reopen();
    written.iter().for_each(|w| w.assert_readable(&bench.store));
}

#[test]
fn zeros_that_find_no_space_stop_nothing() {
    let mut bench = Bench::new();
    bench.append(1, 1);
    bench.store.flush().unwrap();
    bench.append(1, 2);
    bench
        .faults
        .refuse(Op::Write, 1, Fault::NoSpace, Times::Once);
    bench.store.flush().unwrap();
    bench.append(1, 3).assert_readable(&bench.store);
    bench.store.flush().unwrap();
}

/// The copies were not made durable elsewhere: what is written after them is not all that a record has to carry.
#[test]
fn what_was_taken_and_put_back_is_made_durable_by_a_flush_only() {
    let mut bench = Bench::new();
    bench.append(1, 1);
    bench.store.flush().unwrap();
    let of = |units: Option<Vec<SealedUnits>>| units.map(|units| units.len());
    bench.append(1, 2);
    assert_eq!(of(bench.store.take_unflushed()), Some(1));
    bench.append(1, 3);
    assert_eq!(
        of(bench.store.take_unflushed()),
        Some(1),
        "less what was taken"
    );
    bench.store.put_unflushed_back();
    bench.append(1, 4);
    assert_eq!(of(bench.store.take_unflushed()), None);
    bench.store.flush().unwrap();
    bench.append(1, 5);
    assert_eq!(of(bench.store.take_unflushed()), Some(1));
}
