//! How long grants, their segments and their blocks last.

use super::*;

#[test]
fn grants_overlap_neither_each_other_nor_what_the_room_writes() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let mut granted = std::collections::HashSet::new();
    for round in 0..200_u32 {
        let grant = shared
            .room
            .grant(round as usize % 3, 1 + round * 37 % 1024)
            .unwrap();
        assert!(grant.position > 0 && grant.position + grant.blocks <= 16384);
        for block in grant.position..grant.position + grant.blocks {
            assert!(granted.insert((grant.segment, block)), "granted twice");
        }
        shared
            .room
            .write(
                no,
                u64::from(round) * CHUNK_LEN,
                &plain(70_000, round as u8),
            )
            .unwrap();
    }
    for (_, chunk) in shared.room.maps(no, 0, 300).unwrap() {
        for extent in chunk.extents() {
            let mut blocks = extent.position..extent.position + u32::from(extent.stored);
            assert!(!blocks.any(|block| granted.contains(&(extent.segment, block))));
        }
    }
    shared.room.sync().unwrap();
    shared.assert_whole();
}

#[test]
fn blocks_discarded_in_a_grant_are_released_when_the_grant_is_over() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let (grant, other) = (
        shared.room.grant(0, 16).unwrap(),
        shared.room.grant(0, 16).unwrap(),
    );
    let extents = shared.borrow(&grant, 0, 0, &plain(8 * BLOCK, 1));
    shared.room.place(grant.id, no, &[extents]).unwrap();
    let kept = shared.borrow(&other, 0, CHUNK_LEN, &plain(4 * BLOCK, 2));
    shared.room.place(other.id, no, &[kept]).unwrap();
    shared.room.sync().unwrap();
    let punched = shared.punched();
    let again = shared.borrow(&other, 4, 0, &plain(8 * BLOCK, 3));
    shared.room.place(other.id, no, &[again]).unwrap();
    shared.room.tend().unwrap();
    assert_eq!(*punched.lock().unwrap(), 0, "its borrower may write there");
    shared.room.settle_grant(grant.id);
    shared.room.tend().unwrap();
    assert_eq!(*punched.lock().unwrap(), 8);
    assert!(shared.room.read_file("/f").unwrap()[..8 * BLOCK] == plain(8 * BLOCK, 3));
    shared.assert_whole();
}

#[test]
fn a_segment_exists_as_long_as_a_grant_of_it_and_no_longer_without_data() {
    let shared = Shared::new();
    let no = shared.file("/f");
    shared.room.sync().unwrap();
    let (empty, used) = (
        shared.room.grant(0, 8).unwrap(),
        shared.room.grant(1, 8).unwrap(),
    );
    let nothing = |_, _| true;
    // Closes the lanes' segments; the grants go on.
    shared.room.compact(100, &nothing).unwrap();
    shared.room.sync().unwrap();
    assert_eq!(shared.segments().len(), 2);
    let extents = shared.borrow(&used, 0, 0, &plain(8 * BLOCK, 1));
    shared.room.place(used.id, no, &[extents]).unwrap();
    shared.room.compact(100, &nothing).unwrap();
    shared.room.settle_grant(empty.id);
    shared.room.settle_grant(used.id);
    shared.room.settle_grant(used.id);
    shared.room.tend().unwrap();
    assert_eq!(shared.segments(), [format!("{:020}", used.segment.0)]);
    assert!(shared.room.read_file("/f").unwrap() == plain(8 * BLOCK, 1));
    shared.assert_whole();
    let next = shared.room.grant(0, 8).unwrap();
    assert!(next.segment > used.segment);
}

#[test]
fn grants_end_with_the_room_and_their_blocks_are_freed_by_the_next_commit() {
    for crash in [false, true] {
        let shared = Shared::new();
        let no = shared.file("/f");
        let grant = shared.room.grant(0, 8).unwrap();
        let extents = shared.borrow(&grant, 0, 0, &plain(BLOCK, 1));
        shared.room.sync().unwrap();
        let shared = if crash {
            shared.crash(MemoryStorage::power_cut)
        } else {
            shared.reopen()
        };
        assert!(matches!(
            shared.room.place(grant.id, no, &[extents]),
            Err(Error::NotFound)
        ));
        let again = shared.room.grant(0, 8).unwrap();
        assert!(
            again.segment > grant.segment,
            "its positions were granted once"
        );
        shared.room.write_file("/g", b"g").unwrap();
        shared.room.tend().unwrap();
        let names = shared.segments();
        assert!(!names.contains(&format!("{:020}", grant.segment.0)));
        shared.assert_whole();
    }
}

#[test]
fn a_rekey_is_finished_only_when_nothing_under_the_old_key_is_granted() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let grant = shared.room.grant(0, 8).unwrap();
    let extents = shared.borrow(&grant, 0, 0, &plain(BLOCK, 1));
    let rekey = || {
        let key = stored::key();
        shared.room.rekey(&key, &|_, _| true).unwrap().finished
    };
    assert!(!rekey());
    shared.room.place(grant.id, no, &[extents]).unwrap();
    let fresh = shared.room.grant(0, 8).unwrap();
    assert_ne!(fresh.segment, grant.segment);
    shared.room.settle_grant(grant.id);
    assert!(rekey());
    let unknown = shared.room.position_keys(grant.segment, &[]);
    assert!(unknown.unwrap().is_none());
    assert!(shared.room.read_file("/f").unwrap() == plain(BLOCK, 1));
    shared.assert_whole();
}

#[test]
fn chosen_segments_are_emptied_but_for_those_with_grants() {
    let shared = Shared::new();
    let no = shared.file("/f");
    let (grant, other) = (
        shared.room.grant(0, 8).unwrap(),
        shared.room.grant(1, 8).unwrap(),
    );
    for (grant, at) in [(&grant, 0), (&other, CHUNK_LEN)] {
        let extents = shared.borrow(grant, 0, at, &plain(8 * BLOCK, 1));
        shared.room.place(grant.id, no, &[extents]).unwrap();
    }
    shared.room.settle_grant(grant.id);
    let both = [grant.segment, other.segment];
    let empty = || {
        let report = shared.room.empty_segments(&both, &|_, _| true).unwrap();
        shared.room.tend().unwrap();
        report.bytes_moved
    };
    let file = |segment: SegmentNo| format!("{:020}", segment.0);
    assert_eq!(empty(), 16 * BLOCK as u64);
    assert!(!shared.segments().contains(&file(grant.segment)));
    assert!(shared.segments().contains(&file(other.segment)));
    shared.room.settle_grant(other.id);
    assert_eq!(empty(), 0);
    assert!(!shared.segments().contains(&file(other.segment)));
    assert!(shared.room.read_file("/f").unwrap()[..8 * BLOCK] == plain(8 * BLOCK, 1));
    shared.assert_whole();
}
