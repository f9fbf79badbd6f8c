use super::*;
use proptest::prelude::*;

const FILE: InodeNo = InodeNo(7);

fn holder(n: u64) -> Holder {
    Holder {
        session: SessionId(n / 4),
        owner: LockOwner(n),
    }
}

fn lock(kind: LockKind, start: u64, end: u64) -> Lock {
    Lock {
        kind,
        start,
        end,
        pid: 1,
    }
}

fn set(locks: &Locks, who: u64, lock: Lock, waits: bool) -> Result<(), Denied> {
    locks.set(
        FILE,
        LockTable::Posix,
        holder(who),
        lock,
        waits,
        Instant::now(),
    )
}

/// What each byte is locked by: the simplest thing that can be right.
#[derive(Default)]
struct Model {
    bytes: Vec<Vec<(u64, bool)>>,
}

impl Model {
    fn may(&self, who: u64, exclusive: bool, start: u64, end: u64) -> bool {
        self.bytes[start as usize..=end as usize]
            .iter()
            .flatten()
            .all(|(other, theirs)| *other == who || (!exclusive && !theirs))
    }

    fn set(&mut self, who: u64, kind: LockKind, start: u64, end: u64) -> bool {
        let exclusive = kind == LockKind::Exclusive;
        if kind != LockKind::Unlock && !self.may(who, exclusive, start, end) {
            return false;
        }
        for byte in &mut self.bytes[start as usize..=end as usize] {
            byte.retain(|(other, _)| *other != who);
            if kind != LockKind::Unlock {
                byte.push((who, exclusive));
            }
        }
        true
    }
}

proptest! {
    #[test]
    fn ranges_are_held_as_a_table_of_bytes_says(
        steps in prop::collection::vec((0u64..6, 0u8..3, 0u64..32, 0u64..32), 1..120)
    ) {
        let locks = Locks::default();
        let mut model = Model { bytes: vec![Vec::new(); 64] };
        for (who, kind, a, b) in steps {
            let kind = [LockKind::Shared, LockKind::Exclusive, LockKind::Unlock][usize::from(kind)];
            let (start, end) = (a.min(b), a.max(b));
            let expected = model.set(who, kind, start, end);
            let got = set(&locks, who, lock(kind, start, end), false).is_ok();
            prop_assert_eq!(expected, got);
            for tester in 0..6 {
                for byte in 0..32 {
                    for kind in [LockKind::Shared, LockKind::Exclusive] {
                        let free = model.may(tester, kind == LockKind::Exclusive, byte, byte);
                        let in_the_way =
                            locks.test(FILE, LockTable::Posix, holder(tester), lock(kind, byte, byte));
                        prop_assert_eq!(free, in_the_way.is_none());
                    }
                }
            }
        }
        for who in 0..6 {
            locks.end(holder(who).session);
        }
        prop_assert!(locks.is_empty());
        prop_assert!(locks.state.lock().counts.is_empty());
    }
}

#[test]
fn neighbours_of_one_kind_become_one_range() {
    let locks = Locks::default();
    for start in [0, 20, 10] {
        set(&locks, 1, lock(LockKind::Shared, start, start + 9), false).unwrap();
    }
    assert_eq!(locks.len(), 1);
    set(&locks, 1, lock(LockKind::Unlock, 5, 5), false).unwrap();
    assert_eq!(locks.len(), 2);
}

#[test]
fn a_range_to_the_end_has_no_end() {
    let locks = Locks::default();
    set(
        &locks,
        1,
        lock(LockKind::Exclusive, 100, i64::MAX as u64),
        false,
    )
    .unwrap();
    let far = lock(LockKind::Shared, u64::MAX - 1, u64::MAX);
    assert_eq!(set(&locks, 2, far, false), Err(Denied::Held));
    set(&locks, 1, lock(LockKind::Unlock, 0, u64::MAX), false).unwrap();
    assert!(locks.is_empty());
}

#[test]
fn the_two_tables_do_not_see_each_other() {
    let locks = Locks::default();
    let all = lock(LockKind::Exclusive, 0, u64::MAX);
    set(&locks, 1, all, false).unwrap();
    let now = Instant::now();
    locks
        .set(FILE, LockTable::Flock, holder(2), all, false, now)
        .unwrap();
    assert_eq!(
        locks.set(FILE, LockTable::Flock, holder(1), all, false, now),
        Err(Denied::Held)
    );
}

#[test]
fn a_circle_of_waiters_is_refused_where_it_closes() {
    let locks = Locks::default();
    for who in 0..3 {
        set(&locks, who, lock(LockKind::Exclusive, who, who), false).unwrap();
    }
    assert_eq!(
        set(&locks, 0, lock(LockKind::Exclusive, 1, 1), true),
        Err(Denied::Held)
    );
    assert_eq!(
        set(&locks, 1, lock(LockKind::Shared, 2, 2), true),
        Err(Denied::Held)
    );
    assert_eq!(
        set(&locks, 2, lock(LockKind::Exclusive, 0, 0), true),
        Err(Denied::Deadlock)
    );
    // The refused one gives way, and the others go on.
    set(&locks, 2, lock(LockKind::Unlock, 2, 2), false).unwrap();
    set(&locks, 1, lock(LockKind::Shared, 2, 2), true).unwrap();
}

/// It was taken to wait for three seconds more, and another one's wait for what it held was refused as a deadlock.
#[test]
fn a_wait_that_was_taken_back_closes_no_circle() {
    let locks = Locks::default();
    for who in 0..2 {
        set(&locks, who, lock(LockKind::Exclusive, who, who), false).unwrap();
    }
    let others = |who: u64| lock(LockKind::Exclusive, 1 - who, 1 - who);
    assert_eq!(set(&locks, 0, others(0), true), Err(Denied::Held));
    // Of another thread: the first one waits still.
    let elsewhere = lock(LockKind::Shared, 1, 2);
    assert_eq!(set(&locks, 0, elsewhere, false), Err(Denied::Held));
    assert_eq!(set(&locks, 1, others(1), true), Err(Denied::Deadlock));
    assert_eq!(set(&locks, 0, others(0), false), Err(Denied::Held));
    assert_eq!(set(&locks, 1, others(1), true), Err(Denied::Held));
}

/// Each waited for the other's shared lock, for ever. The kernel releases the shared one first, also where it does not wait.
#[test]
fn two_that_share_a_file_and_want_it_alone_get_it_one_after_the_other() {
    let locks = Locks::default();
    let set = |who: u64, kind, waits| {
        let (table, lock) = (LockTable::Flock, lock(kind, 0, u64::MAX));
        locks.set(FILE, table, holder(who), lock, waits, Instant::now())
    };
    let (shared, exclusive) = (LockKind::Shared, LockKind::Exclusive);
    set(1, shared, false).unwrap();
    set(4, shared, false).unwrap();
    assert_eq!(set(1, exclusive, true), Err(Denied::Held));
    set(4, exclusive, true).unwrap();
    assert_eq!(set(1, exclusive, true), Err(Denied::Held));
    // The other way it stays: nobody is in its way.
    set(4, shared, false).unwrap();
    assert_eq!(set(1, exclusive, false), Err(Denied::Held));
    set(1, shared, false).unwrap();
    assert_eq!(set(1, exclusive, false), Err(Denied::Held));
    set(4, exclusive, false).unwrap();
    assert_eq!(locks.len(), 1);
}

#[test]
fn a_writer_who_waits_is_not_starved_by_readers_who_come_later() {
    let locks = Locks::default();
    let (shared, exclusive) = (
        lock(LockKind::Shared, 0, 9),
        lock(LockKind::Exclusive, 0, 9),
    );
    set(&locks, 1, shared, true).unwrap();
    assert_eq!(set(&locks, 2, exclusive, true), Err(Denied::Held));
    assert_eq!(set(&locks, 3, shared, true), Err(Denied::Held));
    // A caller that does not wait gets the true answer: there is no conflicting holder.
    set(&locks, 4, shared, false).unwrap();
    set(&locks, 4, lock(LockKind::Unlock, 0, 9), false).unwrap();
    // Who holds something already is not kept back: others may wait for it.
    set(&locks, 1, lock(LockKind::Shared, 5, 20), true).unwrap();
    set(&locks, 1, lock(LockKind::Unlock, 0, 20), false).unwrap();
    assert_eq!(set(&locks, 3, shared, true), Err(Denied::Held));
    set(&locks, 2, exclusive, true).unwrap();
    set(&locks, 2, lock(LockKind::Unlock, 0, 9), false).unwrap();
    set(&locks, 3, shared, true).unwrap();
}

#[test]
fn a_waiter_who_never_asks_again_keeps_nobody_back() {
    let locks = Locks::default();
    let table = LockTable::Posix;
    let start = Instant::now();
    let (shared, exclusive) = (
        lock(LockKind::Shared, 0, 9),
        lock(LockKind::Exclusive, 0, 9),
    );
    set(&locks, 1, shared, true).unwrap();
    assert_eq!(
        locks.set(FILE, table, holder(2), exclusive, true, start),
        Err(Denied::Held)
    );
    assert_eq!(
        locks.set(FILE, table, holder(3), shared, true, start),
        Err(Denied::Held)
    );
    locks
        .set(FILE, table, holder(3), shared, true, start + WAITS_FOR)
        .unwrap();
}

#[test]
fn closing_a_file_frees_what_that_client_locked_of_it() {
    let locks = Locks::default();
    let all = lock(LockKind::Exclusive, 0, 9);
    set(&locks, 1, all, false).unwrap();
    locks.closed(holder(4).session, FILE);
    assert_eq!(set(&locks, 4, all, false), Err(Denied::Held));
    locks.closed(holder(1).session, FILE);
    set(&locks, 4, all, false).unwrap();
}

#[tokio::test]
async fn a_wait_ends_when_the_lock_is_free_or_after_the_timeout() {
    let locks = std::sync::Arc::new(Locks::default());
    let all = lock(LockKind::Exclusive, 0, 9);
    set(&locks, 1, all, false).unwrap();
    let short = Duration::from_millis(10);
    let table = LockTable::Posix;
    assert_eq!(
        locks.set_within(FILE, table, holder(4), all, short).await,
        Err(Denied::Held)
    );
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move {
            let long = Duration::from_secs(60);
            locks.set_within(FILE, table, holder(4), all, long).await
        })
    };
    tokio::task::yield_now().await;
    set(&locks, 1, lock(LockKind::Unlock, 0, 9), false).unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(()));
}

/// What an unlock split was not counted against the bound, and a lock in the middle of another one added two beyond it.
#[test]
fn a_session_holds_no_more_ranges_than_it_may_however_they_came_to_be() {
    let locks = Locks::default();
    let set = |file: u64, kind, start, end| {
        let (no, table, lock) = (InodeNo(file), LockTable::Posix, lock(kind, start, end));
        locks.set(no, table, holder(1), lock, false, Instant::now())
    };
    let (shared, exclusive, unlock) = (LockKind::Shared, LockKind::Exclusive, LockKind::Unlock);
    // 64 files, all ranges of which but the last file's last two come of unlocks.
    let (files, each) = (64, LOCKS_MAX as u64 / 64);
    for file in 0..files {
        set(file, shared, 0, u64::MAX).unwrap();
        let left = each - 1 - 2 * u64::from(file == files - 1);
        for at in 0..left {
            set(file, unlock, 2 * at + 1, 2 * at + 1).unwrap();
        }
    }
    let last = files - 1;
    let far = 1 << 40;
    assert_eq!(locks.len(), LOCKS_MAX - 2);
    set(last, exclusive, far, far).unwrap();
    assert_eq!(locks.len(), LOCKS_MAX);
    // One more range, by each way.
    assert_eq!(set(files, shared, 0, 0), Err(Denied::TooMany));
    assert_eq!(set(last, unlock, far + 2, far + 2), Err(Denied::TooMany));
    assert_eq!(set(last, exclusive, far + 2, far + 2), Err(Denied::TooMany));
    assert_eq!(locks.len(), LOCKS_MAX);
    let has = |kind| {
        let wanted = lock(kind, far + 1, far + 5);
        locks.has(InodeNo(last), LockTable::Posix, holder(1), wanted)
    };
    assert!(has(shared), "what was refused changed nothing");
    // What adds none is done, and another session has its own.
    set(last, exclusive, far, far).unwrap();
    set(last, unlock, far, u64::MAX).unwrap();
    let (no, table, one) = (InodeNo(0), LockTable::Flock, lock(shared, 0, 0));
    locks
        .set(no, table, holder(4), one, false, Instant::now())
        .unwrap();
    for file in 0..files {
        set(file, unlock, 0, u64::MAX).unwrap();
    }
    assert_eq!(locks.len(), 1);
}
