//! Positions granted to clients.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Mutex;

use storage::testing::{Fault, Op, Times};

use super::*;

/// A store that grants positions: its units have keys of their own.
fn granting() -> Bench {
    let bench = Bench::new();
    bench.store.set_keyring(keyring().with_position_keys(1));
    bench
}

/// Seals and writes the blocks of a grant as a client does.
fn borrow(bench: &Bench, range: BlockRange, seed: u8) -> Written {
    let positions = range.position..range.position + range.blocks;
    let keys = bench.store.position_keys(range.segment, &[positions]);
    let keys = keys.unwrap().unwrap();
    let mut cipher = keys.cipher();
    let plain = plain(range.blocks as usize, seed);
    let nonce = seal::nonce_part(bench.store.append_nonces()).unwrap();
    let mut units = plain.clone();
    let tags = (range.position..)
        .step_by(UNIT_BLOCKS as usize)
        .zip(units.chunks_mut(UNIT_LEN))
        .map(|(at, unit)| cipher.seal(nonce, at, unit).unwrap())
        .collect();
    let digests = units.chunks(UNIT_LEN).map(seal::unit_digest).collect();
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
            digests,
        },
        plain,
    }
}

#[test]
fn what_a_borrower_wrote_is_read_and_is_durable_after_the_next_flush() {
    for reported in [true, false] {
        let mut bench = granting();
        let range = bench.store.grant(0, 9).unwrap();
        bench.store.flush().unwrap();
        let written = borrow(&bench, range, 1);
        written.assert_readable(&bench.store);
        assert!(!bench.store.is_dirty());
        if reported {
            bench.store.written(range).unwrap();
            assert!(bench.store.is_dirty());
        }
        bench.store.flush().unwrap();
        bench.memory.power_cut();
        bench.reopen();
        bench.store.set_keyring(keyring().with_position_keys(1));
        assert_eq!(written.read(&bench.store).0.is_ok(), reported);
    }
}

#[test]
fn positions_are_granted_or_appended_to_once_by_many_threads() {
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
                    let blocks = 1 + (step * 131 + thread as u32 * 17) % GRANT_BLOCKS_MAX;
                    // Two threads a lane, and a lane by two of its numbers.
                    let lane = thread % 2 + if step % 2 == 0 { LANES } else { 0 };
                    let range = bench.store.grant(lane, blocks).unwrap();
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
fn a_segment_is_in_use_while_it_is_open_or_granted() {
    let bench = Bench::new();
    let own = append(&bench.store, 1, 1).sealed.segment;
    let (first, second) = (
        bench.store.grant(0, 4).unwrap(),
        bench.store.grant(0, 4).unwrap(),
    );
    let other = bench.store.grant(1, 4).unwrap();
    assert_eq!(first.segment, second.segment);
    let used = || Vec::from_iter(bench.store.in_use());
    assert_eq!(used(), [own, first.segment, other.segment]);
    bench.store.release_grant(other.segment);
    assert_eq!(used().len(), 3, "it is still open");
    bench.store.rotate().unwrap();
    assert_eq!(used(), [first.segment]);
    bench.store.release_grant(first.segment);
    assert_eq!(used(), [first.segment]);
    bench.store.written(second).unwrap();
    bench.store.release_grant(first.segment);
    assert!(used().is_empty());
    assert!(matches!(
        bench.store.written(second),
        Err(SegmentError::Missing { .. })
    ));
    bench.store.release_grant(first.segment);
    assert!(bench.store.grant(0, 1).unwrap().segment > other.segment);
}

#[test]
fn zeros_written_ahead_never_meet_granted_blocks() {
    let mut bench = Bench::new();
    let granted = bench.store.grant(0, 64).unwrap();
    let path = file_name(granted.segment);
    bench.faults.observe(move |call| {
        assert!(call.op != Op::Write || call.path != path, "into a grant");
    });
    for seed in 0..20 {
        bench.append(1, seed);
        bench.store.flush().unwrap();
    }
    let few = BlockRange {
        blocks: 1,
        ..granted
    };
    for _ in 0..20 {
        bench.store.written(few).unwrap();
        bench.store.flush().unwrap();
    }
}

#[test]
fn a_grant_whose_file_cannot_be_created_is_none() {
    for (op, fault) in [(Op::Create, Fault::NoSpace), (Op::Write, Fault::Io)] {
        let bench = Bench::new();
        bench.faults.refuse(op, 1, fault, Times::Once);
        assert!(bench.store.grant(0, 8).is_err(), "{op:?}");
        assert!(bench.store.in_use().is_empty());
        assert!(bench.store.take_new().is_empty());
        assert_eq!(bench.store.grant(0, 8).unwrap().segment, SegmentNo(2));
    }
}

#[test]
fn after_a_failed_flush_nothing_is_granted_and_nothing_accepted() {
    let bench = Bench::new();
    let range = bench.store.grant(0, 8).unwrap();
    bench.faults.refuse(Op::Sync, 1, Fault::Io, Times::Once);
    assert!(bench.store.flush().is_err());
    assert!(matches!(
        bench.store.grant(0, 8),
        Err(SegmentError::Poisoned)
    ));
    assert!(matches!(
        bench.store.written(range),
        Err(SegmentError::Poisoned)
    ));
}

#[test]
fn another_keyring_closes_the_lanes_and_keeps_the_grants() {
    let mut bench = granting();
    let range = bench.store.grant(0, 8).unwrap();
    bench.store.set_keyring(rekeyed().with_position_keys(1));
    let written = borrow(&bench, range, 1);
    bench.store.written(range).unwrap();
    written.assert_readable(&bench.store);
    assert_ne!(bench.store.grant(0, 8).unwrap().segment, range.segment);
    bench.known.extend(bench.store.take_new());
    assert_eq!(
        bench
            .known
            .iter()
            .map(|id| id.key_epoch)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    let unknown = bench.store.position_keys(SegmentNo(9), &[]);
    assert!(unknown.unwrap().is_none());
}

#[test]
fn keys_are_given_for_positions_and_never_of_a_segment_with_one_key() {
    let mut bench = granting();
    let (first, second) = (bench.append(5, 1), bench.append(3, 2));
    let given = |written: &Written, positions: &[Range<u32>]| {
        let keys = bench.store.position_keys(written.sealed.segment, positions);
        keys.unwrap().unwrap()
    };
    let of = |written: &Written| {
        let position = written.sealed.position;
        position..position + written.sealed.blocks
    };
    let opens = |keys: &seal::PositionKeys, written: &Written| {
        let mut unit = bench.bytes(
            written.sealed.segment,
            u64::from(written.sealed.position) * BLOCK_LEN as u64,
            written.plain.len().min(UNIT_LEN),
        );
        let Sealed {
            nonce,
            position,
            ref tags,
            ..
        } = written.sealed;
        let opened = keys.cipher().open(nonce, position, &tags[0], &mut unit);
        let opened = opened.is_ok();
        assert_eq!(opened, unit == written.plain[..unit.len()]);
        opened
    };
    let keys = given(&first, &[of(&first)]);
    assert!(opens(&keys, &first) && !opens(&keys, &second));
    let both = given(&first, &[of(&first), of(&second)]);
    assert!(opens(&both, &first) && opens(&both, &second));

    // Sealed before the room had keys of positions, and read with the keys of its epoch.
    let mut bench = Bench::new();
    let old = bench.append(5, 1);
    bench.store.set_keyring(rekeyed().with_position_keys(2));
    old.assert_readable(&bench.store);
    let some = 1..6;
    let keys = bench
        .store
        .position_keys(old.sealed.segment, std::slice::from_ref(&some));
    assert_eq!(keys.unwrap().unwrap().positions().count(), 0);
    let new = bench.append(5, 1);
    let keys = bench.store.position_keys(new.sealed.segment, &[some]);
    assert_eq!(keys.unwrap().unwrap().positions().count(), 3);
}

#[test]
fn a_unit_that_clients_could_seal_is_read_only_with_its_digest() {
    let mut bench = granting();
    let written = bench.append(5, 1);
    assert_eq!(written.sealed.digests.len(), 2);
    written.assert_readable(&bench.store);
    let refused = |change: &dyn Fn(&mut Sealed)| {
        let mut other = written.clone();
        change(&mut other.sealed);
        let (result, out) = other.read(&bench.store);
        assert!(matches!(
            result,
            Err(SegmentError::Corrupt { position: 1, .. })
        ));
        assert!(out.iter().all(|byte| *byte == 0));
    };
    refused(&|sealed| sealed.digests[0][31] ^= 1);
    refused(&|sealed| sealed.digests.swap(0, 1));
    refused(&|sealed| sealed.digests.clear());

    // Other rooms have none.
    let mut bench = Bench::new();
    assert!(bench.append(5, 1).sealed.digests.is_empty());
}
