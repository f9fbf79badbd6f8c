use model::FileKind;

use super::*;

fn block(byte: u8) -> Arc<Block> {
    Arc::new([byte; BLOCK as usize])
}

fn blocks(of: &[(u64, u8)]) -> Blocks {
    of.iter().map(|(at, byte)| (*at, block(*byte))).collect()
}

fn bytes(blocks: &Blocks) -> Vec<(u64, u8)> {
    blocks.iter().map(|(at, block)| (*at, block[0])).collect()
}

/// A modification time.
fn moment(at: u64) -> Timestamp {
    Timestamp::new(at as i64, 0)
}

/// Stamped when the file was changed from the moment before to this one.
fn logged(stamp: u64, of: &[(u64, u8)]) -> Logged {
    Logged {
        stamp,
        end: of.last().map_or(0, |(at, _)| (at + 1) * BLOCK),
        blocks: blocks(of),
        moments: vec![moment(stamp - 1), moment(stamp)],
        unsure: false,
    }
}

#[test]
fn what_the_server_lost_comes_back_but_never_over_what_is_newer() {
    let mut state = State {
        dirty: blocks(&[(1, 9)]),
        flight: blocks(&[(2, 8)]),
        ..State::default()
    };
    state
        .log
        .push_back(logged(1, &[(0, 1), (1, 1), (2, 1), (3, 1)]));
    state.log.push_back(logged(2, &[(3, 2), (4, 2)]));
    assert_eq!(state.replay(), 3, "blocks 1, 2 and the older 3");
    assert_eq!(bytes(&state.returned.blocks), [(0, 1), (3, 2), (4, 2)]);
    let all = [(0, 1), (1, 9), (2, 8), (3, 2), (4, 2)];
    assert_eq!(bytes(&state.overlay(0, 9)), all);
    assert_eq!(state.size(), 5 * BLOCK);
    assert!(state.log.is_empty() && state.dirty_since.is_some());
    state.flight.clear();
    state.take_off();
    assert_eq!(bytes(&state.flight), [(0, 1), (1, 9), (3, 2), (4, 2)]);
    assert_eq!((state.size(), state.is_dirty()), (5 * BLOCK, false));
}

/// The end of the file was taken to be where it was before the commit. A write behind it, in the same block, wrote zeros over what was committed.
#[test]
fn attributes_from_before_a_commit_or_a_lock_are_not_relied_on() {
    let inode = |size| Inode {
        size,
        ..Inode::new(InodeNo(7), FileKind::Regular, moment(1))
    };
    let mut state = State::default();
    assert!(state.is_unknown());
    state.learn(&inode(100), state.placings);
    let asked = state.placings;
    state.placings += 1;
    state.set_inode(&inode(200));
    state.learn(&inode(100), asked);
    assert!(state.is_unknown() && state.size() == 200);
    state.set_inode(&inode(200));
    let asked = state.placings;
    // A lock.
    state.outdate_all();
    assert!(state.is_unknown());
    state.learn(&inode(100), asked);
    assert!(state.is_unknown() && state.size() == 200);
}

#[test]
fn data_is_owed_also_where_all_that_was_lost_is_dirty_again() {
    let mut state = State {
        dirty: blocks(&[(0, 9)]),
        ..State::default()
    };
    assert_eq!((state.replay(), state.owed), (0, false));
    state.log.push_back(logged(1, &[(0, 1)]));
    assert_eq!((state.replay(), state.owed), (1, true));
    state.drop_unplaced();
    assert!(!state.owed);
}

#[test]
fn what_a_change_of_the_whole_file_undid_does_not_come_back() {
    let mut state = State {
        dirty: blocks(&[(1, 9)]),
        end: 2 * BLOCK,
        ..State::default()
    };
    state.log.push_back(logged(1, &[(0, 1), (1, 1), (2, 1)]));
    assert_eq!(state.replay(), 1);
    assert_eq!(state.settle_all(), 2);
    // Only what was written after the change.
    assert_eq!(bytes(&state.overlay(0, 9)), [(1, 9)]);
    assert_eq!(state.size(), 2 * BLOCK);
}

#[test]
fn only_what_the_server_lost_is_committed_again_and_never_over_what_another_wrote() {
    let returned = |unsure| {
        let mut state = State {
            dirty: blocks(&[(5, 9)]),
            unsure,
            ..State::default()
        };
        // Another client's change is between the second and the third.
        for (stamp, of) in [
            (1, [(0, 1), (1, 1)]),
            (2, [(1, 2), (2, 2)]),
            (4, [(2, 4), (3, 4)]),
        ] {
            state.log.push_back(logged(stamp, &of));
        }
        assert_eq!(state.replay(), 2);
        assert!(state.is_unjudged());
        state
    };
    let all = vec![(0, 1), (1, 2), (2, 4), (3, 4)];
    for (found, left) in [
        (0, all.clone()),
        (1, all[1..].to_vec()),
        (2, all[2..].to_vec()),
        (3, all[2..].to_vec()),
        (4, Vec::new()),
    ] {
        let mut state = returned(false);
        assert_eq!(state.judge(moment(found)), Ok(4 - left.len()), "{found}");
        assert_eq!(bytes(&state.returned.blocks), left, "{found}");
        assert!(!state.is_unjudged());
        let end = if left.is_empty() { 0 } else { 4 * BLOCK };
        assert_eq!(state.size(), end);
        let onto = (!left.is_empty()).then_some((moment(found), end));
        assert_eq!(state.take_off_returned(), onto);
        assert_eq!(bytes(&state.flight), left);
        // A block that was written meanwhile is newer.
        state.dirty.insert(3, block(7));
        assert_eq!(state.land_returned(), usize::from(!left.is_empty()));
        assert_eq!(bytes(&state.dirty), [(3, 7), (5, 9)]);
        // Another restart.
        state.replay();
        assert_eq!(state.is_unjudged(), !left.is_empty());
    }
    let mut state = returned(false);
    assert_eq!(state.judge(moment(7)), Err(4));
    assert_eq!(bytes(&state.overlay(0, 9)), [(5, 9)]);
    // An answer was lost: it may be this client's.
    let mut state = returned(true);
    assert_eq!(state.judge(moment(7)), Ok(0));
    assert_eq!(state.take_off_returned(), Some((moment(7), 4 * BLOCK)));
}

#[test]
fn uncommitted_data_stays_but_never_over_newer_data() {
    let mut state = State {
        dirty: blocks(&[(1, 9)]),
        flight: blocks(&[(1, 1), (2, 1)]),
        ..State::default()
    };
    assert_eq!(bytes(&state.overlay(0, 9)), [(1, 9), (2, 1)]);
    assert_eq!(state.land(), 1);
    assert_eq!(bytes(&state.dirty), [(1, 9), (2, 1)]);
}

#[test]
fn a_file_that_was_forgotten_does_not_find_its_old_maps_again() {
    let files = Files::default();
    let no = InodeNo(7);
    let before = files.get_or_new(no).state.lock().version;
    files.tidy(no);
    assert_ne!(files.get_or_new(no).state.lock().version, before);
}

#[test]
fn only_what_is_settled_is_forgotten() {
    let mut state = State::default();
    state.log.push_back(logged(3, &[(0, 1)]));
    state.log.push_back(logged(5, &[(1, 1), (2, 1)]));
    assert_eq!(state.settle(4), 1);
    assert_eq!(state.settle(4), 0);
    assert_eq!(state.settle(5), 2);
}

#[test]
fn the_budget_makes_writers_wait_and_lets_one_through_when_nothing_is_in_use() {
    let budget = Budget::new(10 * BLOCK as usize);
    assert!(budget.take(100, Duration::ZERO), "larger than all of it");
    assert!(!budget.take(1, Duration::ZERO));
    budget.release(95);
    assert!(budget.take(5, Duration::ZERO));
    assert!(!budget.take(1, Duration::from_millis(1)));
    assert_eq!(budget.percent(), 100);
}
