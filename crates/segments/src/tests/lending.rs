//! Positions lent to others.

use std::collections::HashSet;
use std::sync::Mutex;

use storage::testing::{Fault, Op, Times};

use super::*;

/// Seals and writes a loan's blocks as a borrower does.
fn borrow(bench: &Bench, range: BlockRange, seed: u8) -> Written {
    let (suite, key) = bench.store.access(range.segment).unwrap().unwrap();
    let key = seal::SegmentKey::from_bytes(suite, &key);
    let plain = plain(range.blocks as usize, seed);
    let nonce = seal::nonce_part(bench.store.append_nonces()).unwrap();
    let mut units = plain.clone();
    let tags = (u64::from(range.position)..)
        .step_by(UNIT_BLOCKS as usize)
        .zip(units.chunks_mut(UNIT_LEN))
        .map(|(at, unit)| key.seal(nonce, at, unit))
        .collect();
    bench.patch(
        range.segment,
        u64::from(range.position) * BLOCK_LEN as u64,
        &units,
    );
    Written {
        sealed: Sealed {
            segment: range.segment,
            position: range.position,
            blocks: range.blocks,
            nonce,
            tags,
        },
        plain,
    }
}

#[test]
fn what_a_borrower_wrote_is_read_and_is_durable_after_the_next_flush() {
    for told in [true, false] {
        let mut bench = Bench::new();
        let range = bench.store.lend(0, 9).unwrap();
        bench.store.flush().unwrap();
        let written = borrow(&bench, range, 1);
        written.assert_readable(&bench.store);
        assert!(!bench.store.is_dirty());
        if told {
            bench.store.written(range).unwrap();
            assert!(bench.store.is_dirty());
        }
        bench.store.flush().unwrap();
        bench.memory.power_cut();
        bench.reopen();
        assert_eq!(written.read(&bench.store).0.is_ok(), told);
    }
}

#[test]
fn positions_are_lent_or_appended_to_once_by_many_threads() {
    let bench = Bench::new();
    let taken = Mutex::new(HashSet::new());
    let take = |segment: SegmentNo, position: u32, blocks: u32| {
        assert!(position > 0 && position + blocks <= SEGMENT_BLOCKS);
        let mut taken = taken.lock().unwrap();
        for block in position..position + blocks {
            assert!(taken.insert((segment, block)), "{segment:?} {block} again");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (bench, take) = (&bench, &take);
            scope.spawn(move || {
                for step in 0..60 {
                    let blocks = 1 + (step * 131 + thread as u32 * 17) % LEND_BLOCKS_MAX;
                    // Two threads a lane, and a lane by two of its numbers.
                    let lane = thread % 2 + if step % 2 == 0 { LANES } else { 0 };
                    let range = bench.store.lend(lane, blocks).unwrap();
                    assert!(range.blocks <= blocks);
                    assert!(range.blocks >= blocks.min(APPEND_BLOCKS_MAX));
                    take(range.segment, range.position, range.blocks);
                    let sealed = append(&bench.store, 1 + step as usize % 9, 1).sealed;
                    take(sealed.segment, sealed.position, sealed.blocks);
                    if step % 7 == 0 {
                        bench.store.rotate().unwrap();
                        bench.store.flush().unwrap();
                    }
                }
            });
        }
    });
    let mut begun: Vec<u64> = bench.store.take_new().iter().map(|id| id.no.0).collect();
    begun.sort_unstable();
    begun.dedup();
    let segments: HashSet<u64> = taken.lock().unwrap().iter().map(|(no, _)| no.0).collect();
    assert_eq!(begun.len(), segments.len());
    assert_eq!(bench.store.last_number().0, *begun.last().unwrap());
}

#[test]
fn a_segment_is_in_use_while_it_is_open_or_lent() {
    let bench = Bench::new();
    let own = append(&bench.store, 1, 1).sealed.segment;
    let (first, second) = (
        bench.store.lend(0, 4).unwrap(),
        bench.store.lend(0, 4).unwrap(),
    );
    let other = bench.store.lend(1, 4).unwrap();
    assert_eq!(first.segment, second.segment);
    let used = || Vec::from_iter(bench.store.in_use());
    assert_eq!(used(), [own, first.segment, other.segment]);
    bench.store.give_back(other.segment);
    assert_eq!(used().len(), 3, "it is still open");
    bench.store.rotate().unwrap();
    assert_eq!(used(), [first.segment]);
    bench.store.give_back(first.segment);
    assert_eq!(used(), [first.segment]);
    bench.store.written(second).unwrap();
    bench.store.give_back(first.segment);
    assert!(used().is_empty());
    assert!(matches!(
        bench.store.written(second),
        Err(SegmentError::Missing { .. })
    ));
    bench.store.give_back(first.segment);
    assert!(bench.store.lend(0, 1).unwrap().segment > other.segment);
}

#[test]
fn zeros_written_ahead_never_meet_what_is_lent() {
    let mut bench = Bench::new();
    let lent = bench.store.lend(0, 64).unwrap();
    let path = file_name(lent.segment);
    bench.faults.observe(move |call| {
        assert!(call.op != Op::Write || call.path != path, "into a loan");
    });
    for seed in 0..20 {
        bench.append(1, seed);
        bench.store.flush().unwrap();
    }
    let few = BlockRange { blocks: 1, ..lent };
    for _ in 0..20 {
        bench.store.written(few).unwrap();
        bench.store.flush().unwrap();
    }
}

#[test]
fn a_loan_whose_file_cannot_be_made_is_none() {
    for (op, fault) in [(Op::Create, Fault::NoSpace), (Op::Write, Fault::Io)] {
        let bench = Bench::new();
        bench.faults.refuse(op, 1, fault, Times::Once);
        assert!(bench.store.lend(0, 8).is_err(), "{op:?}");
        assert!(bench.store.in_use().is_empty());
        assert!(bench.store.take_new().is_empty());
        assert_eq!(bench.store.lend(0, 8).unwrap().segment, SegmentNo(2));
    }
}

#[test]
fn after_a_failed_flush_nothing_is_lent_and_nothing_taken() {
    let bench = Bench::new();
    let range = bench.store.lend(0, 8).unwrap();
    bench.faults.refuse(Op::Sync, 1, Fault::Io, Times::Once);
    assert!(bench.store.flush().is_err());
    assert!(matches!(
        bench.store.lend(0, 8),
        Err(SegmentError::Poisoned)
    ));
    assert!(matches!(
        bench.store.written(range),
        Err(SegmentError::Poisoned)
    ));
}

#[test]
fn another_keyring_closes_the_lanes_and_keeps_the_loans() {
    let mut bench = Bench::new();
    let range = bench.store.lend(0, 8).unwrap();
    bench.store.set_keyring(rekeyed());
    let written = borrow(&bench, range, 1);
    bench.store.written(range).unwrap();
    written.assert_readable(&bench.store);
    assert_ne!(bench.store.lend(0, 8).unwrap().segment, range.segment);
    bench.known.extend(bench.store.take_new());
    assert_eq!(
        bench
            .known
            .iter()
            .map(|id| id.key_epoch)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(bench.store.access(SegmentNo(9)).unwrap().is_none());
}
