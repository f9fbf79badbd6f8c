//! Each kind of damage touches exactly the units it hit.

use super::*;

const SEGMENT: SegmentNo = SegmentNo(1);

fn at(block: u32) -> u64 {
    u64::from(block) * BLOCK_LEN as u64
}

#[test]
fn a_flipped_bit_spoils_its_unit_alone() {
    let mut bench = Bench::new();
    let w = bench.append(11, 1);
    let flipped = at(w.sealed.position + 5) + 17;
    let byte = bench.bytes(SEGMENT, flipped, 1)[0];
    bench.patch(SEGMENT, flipped, &[byte ^ 4]);

    let (result, out) = w.read(&bench.store);
    let position = w.sealed.position + 4;
    assert!(
        matches!(result, Err(SegmentError::Corrupt { segment: SEGMENT, position: p }) if p == position)
    );
    assert_eq!(
        out[..UNIT_LEN],
        w.plain[..UNIT_LEN],
        "what precedes it is handed out"
    );
    assert!(out[UNIT_LEN..].iter().all(|b| *b == 0));
    assert_eq!(w.units_that_open(&bench.store), [true, false, true]);
}

#[test]
fn every_single_bit_of_a_tag_counts() {
    let mut bench = Bench::new();
    let w = bench.append(1, 1);
    for bit in 0..128 {
        let mut forged = w.clone();
        forged.sealed.tags[0][bit / 8] ^= 1 << (bit % 8);
        assert_eq!(forged.units_that_open(&bench.store), [false]);
    }
}

#[test]
fn swapped_units_do_not_open() {
    let mut bench = Bench::new();
    let w = bench.append(12, 1);
    let (a, b) = (at(w.sealed.position), at(w.sealed.position + 8));
    let (first, third) = (
        bench.bytes(SEGMENT, a, UNIT_LEN),
        bench.bytes(SEGMENT, b, UNIT_LEN),
    );
    bench.patch(SEGMENT, a, &third);
    bench.patch(SEGMENT, b, &first);
    assert_eq!(w.units_that_open(&bench.store), [false, true, false]);
    // Neither do they when the tags are swapped as well.
    let mut swapped = w.clone();
    swapped.sealed.tags.swap(0, 2);
    assert_eq!(swapped.units_that_open(&bench.store), [false, true, false]);
}

#[test]
fn a_unit_of_another_segment_fails_authentication() {
    let mut bench = Bench::new();
    let here = bench.append(4, 1);
    bench.store.rotate().unwrap();
    let there = bench.append(4, 1);
    assert_eq!(here.sealed.position, there.sealed.position);
    let foreign = bench.bytes(there.sealed.segment, at(1), UNIT_LEN);
    bench.patch(here.sealed.segment, at(1), &foreign);
    let mut forged = here.clone();
    forged.sealed.tags.clone_from(&there.sealed.tags);
    assert_eq!(here.units_that_open(&bench.store), [false]);
    assert_eq!(forged.units_that_open(&bench.store), [false]);
    assert_eq!(there.units_that_open(&bench.store), [true]);
}

#[test]
fn a_segment_cut_short_is_readable_up_to_the_cut() {
    let mut bench = Bench::new();
    let w = bench.append(12, 1);
    let file = bench
        .memory
        .open(&file_name(SEGMENT), OpenMode::ReadWrite)
        .unwrap();
    // One byte short of the second unit's end.
    file.set_len(at(w.sealed.position + 8) - 1).unwrap();
    let (result, out) = w.read(&bench.store);
    let position = w.sealed.position + 4;
    assert!(
        matches!(result, Err(SegmentError::Missing { segment: SEGMENT, position: p }) if p == position)
    );
    assert_eq!(out[..UNIT_LEN], w.plain[..UNIT_LEN]);
    assert!(out[UNIT_LEN..].iter().all(|b| *b == 0));
    assert_eq!(w.units_that_open(&bench.store), [true, false, false]);
}

#[test]
fn damage_before_a_cut_is_reported_first() {
    let mut bench = Bench::new();
    let w = bench.append(12, 1);
    bench.patch(SEGMENT, at(w.sealed.position), &[0; 8]);
    bench
        .memory
        .open(&file_name(SEGMENT), OpenMode::ReadWrite)
        .unwrap()
        .set_len(at(w.sealed.position + 8))
        .unwrap();
    assert!(matches!(
        w.read(&bench.store).0,
        Err(SegmentError::Corrupt { position: 1, .. })
    ));
}

#[test]
fn a_missing_segment_takes_only_its_own_data() {
    let mut bench = Bench::new();
    let gone = bench.append(3, 1);
    bench.store.rotate().unwrap();
    let stays = bench.append(3, 2);
    bench
        .memory
        .remove(&file_name(gone.sealed.segment))
        .unwrap();
    bench.reopen();
    let (result, out) = gone.read(&bench.store);
    assert!(matches!(
        result,
        Err(SegmentError::Missing {
            segment: SEGMENT,
            position: 1
        })
    ));
    assert!(out.iter().all(|b| *b == 0));
    assert!(matches!(
        bench.store.check_header(SEGMENT),
        Err(SegmentError::Missing {
            segment: SEGMENT,
            position: 0
        })
    ));
    stays.assert_readable(&bench.store);
}

#[test]
fn an_unknown_segment_is_missing() {
    let bench = Bench::new();
    let range = BlockRange {
        segment: SegmentNo(9),
        position: 1,
        blocks: 1,
    };
    let mut out = [1; BLOCK_LEN];
    let result = bench.store.read(range, [[0; TAG_LEN]][..].into(), &mut out);
    assert!(matches!(
        result,
        Err(SegmentError::Missing {
            segment: SegmentNo(9),
            position: 1
        })
    ));
    assert_eq!(out, [0; BLOCK_LEN]);
    bench.store.prefetch(range);
}

#[test]
fn an_older_copy_of_a_segment_lacks_what_came_later_and_nothing_else() {
    let mut bench = Bench::new();
    let early = bench.append(4, 1);
    let older = bench.bytes(SEGMENT, 0, at(5) as usize);
    let late = bench.append(4, 2);
    let file = bench
        .memory
        .open(&file_name(SEGMENT), OpenMode::ReadWrite)
        .unwrap();
    file.set_len(0).unwrap();
    file.write_at(&older, 0).unwrap();
    bench.reopen();
    early.assert_readable(&bench.store);
    assert!(matches!(
        late.read(&bench.store).0,
        Err(SegmentError::Missing { position: 5, .. })
    ));
    // As long as the newer one was, but with the hole that an unfinished write leaves.
    file.set_len(at(9)).unwrap();
    assert!(matches!(
        late.read(&bench.store).0,
        Err(SegmentError::Corrupt { position: 5, .. })
    ));
    bench.store.check_header(SEGMENT).unwrap();
}

#[test]
fn a_damaged_header_is_reported_and_loses_no_data() {
    let mut bench = Bench::new();
    let w = bench.append(4, 1);
    bench.patch(SEGMENT, 0, &[0xff; BLOCK_LEN]);
    bench.reopen();
    w.assert_readable(&bench.store);
    assert!(matches!(
        bench.store.check_header(SEGMENT),
        Err(SegmentError::Header {
            segment: SEGMENT,
            problem: HeaderProblem::NotASegment
        })
    ));
}

#[test]
fn another_rooms_segment_is_known_for_what_it_is() {
    let mut bench = Bench::new();
    let w = bench.append(4, 1);
    let other_room = crate::testkeys::keyring_of([9; 16]);
    let other = DirStore::open(
        Arc::new(MemoryStorage::new()),
        other_room,
        bench.known.clone(),
        SegmentNo(1),
    )
    .unwrap();
    let storage = MemoryStorage::new();
    let theirs = DirStore::open(
        Arc::new(storage.clone()),
        crate::testkeys::keyring_of([9; 16]),
        vec![],
        SegmentNo(1),
    );
    theirs.unwrap().append(&w.plain).unwrap();
    let file = storage.open(&file_name(SEGMENT), OpenMode::Read).unwrap();
    let mut bytes = vec![0; at(5) as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bench.patch(SEGMENT, 0, &bytes);

    assert_eq!(w.units_that_open(&bench.store), [false]);
    match bench.store.check_header(SEGMENT) {
        Err(SegmentError::Header {
            problem: HeaderProblem::OtherRoom(room),
            ..
        }) => {
            assert_eq!(room.as_bytes(), &[9; 16]);
        }
        other => panic!("{other:?}"),
    }
    // And the keys of another room open nothing of this one.
    assert!(matches!(
        w.read(&other).0,
        Err(SegmentError::Missing { .. })
    ));
}

#[test]
fn a_failing_disk_hands_out_nothing() {
    use storage::testing::{Fault, Op, Times};
    let mut bench = Bench::new();
    let w = bench.append(4, 1);
    bench.faults.refuse(Op::Read, 1, Fault::Io, Times::Once);
    let (result, out) = w.read(&bench.store);
    assert!(matches!(result, Err(SegmentError::Io(_))));
    assert!(out.iter().all(|b| *b == 0));
    w.assert_readable(&bench.store);
}
