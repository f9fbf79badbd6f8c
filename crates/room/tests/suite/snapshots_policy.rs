//! Policies for snapshots: which automatic ones a room has, and that those made by hand stay.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::stored::{create_on, open_on, options};
use crate::common::{pattern, snapshot};
use room::{
    Error, FileSystem, InodeNo, NewSnapshot, Room, SnapshotPolicy, Snapshots as _, Timestamp,
};
use storage::testing::MemoryStorage;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// Wednesday, 2026-11-25, 00:00:00 UTC.
const BEGIN: i64 = 1_795_564_800;
const MIB: usize = 1 << 20;

const HOURLY: SnapshotPolicy = SnapshotPolicy {
    hourly: 24,
    daily: 0,
    weekly: 0,
    min_free_percent: 0,
};

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn names(room: &Room) -> Vec<String> {
    let all = room.snapshots().unwrap();
    all.into_iter().map(|snapshot| snapshot.name).collect()
}

fn automatic(room: &Room, name: &str) {
    let new = NewSnapshot { automatic: true };
    room.create_snapshot(name, new).unwrap();
}

#[test]
fn the_clock_decides_which_automatic_snapshots_there_are() {
    static NOW: AtomicI64 = AtomicI64::new(BEGIN);
    let room = create_on(Arc::new(MemoryStorage::new()), options());
    room.stamp_by(|| Some(at(NOW.load(Ordering::SeqCst))));
    let policy = SnapshotPolicy {
        hourly: 2,
        daily: 2,
        ..SnapshotPolicy::default()
    };
    room.set_snapshot_policy(Some(&policy)).unwrap();
    for quarter in 0..50 * 4 {
        let now = BEGIN + quarter * HOUR / 4;
        NOW.store(now, Ordering::SeqCst);
        let applied = room.apply_snapshot_policy().unwrap();
        let begins = quarter % 4 == 0;
        assert_eq!(applied.created.is_some(), begins);
        assert!(begins || applied.deleted.is_empty());
        let next = BEGIN + (quarter / 4 + 1) * HOUR;
        assert_eq!(applied.next_due, Some(at(next)));
        if quarter == 14 {
            snapshot(&room, "mine");
            snapshot(&room, "auto-mine");
        }
    }
    fn of<'a>(automatic: &[&'a str]) -> Vec<&'a str> {
        [&["mine", "auto-mine"], automatic].concat()
    }
    // The last two hours, and the last one of the day before.
    let (evening, midnight, one) = (
        "auto-2026-11-26T23.00.00Z",
        "auto-2026-11-27T00.00.00Z",
        "auto-2026-11-27T01.00.00Z",
    );
    assert_eq!(names(&room), of(&[evening, midnight, one]));

    // Nobody opened the room for a month.
    NOW.store(BEGIN + 32 * DAY, Ordering::SeqCst);
    let applied = room.apply_snapshot_policy().unwrap();
    let deleted: Vec<_> = applied.deleted.iter().map(|(s, _)| &s.name).collect();
    assert_eq!(deleted, [evening, midnight]);
    let month = "auto-2026-12-27T00.00.00Z";
    assert_eq!(names(&room), of(&[one, month]));

    // The clock is wrong: what is of the future stays, and the present gets its own.
    NOW.store(BEGIN - 30 * DAY, Ordering::SeqCst);
    for _ in 0..2 {
        assert!(room.apply_snapshot_policy().unwrap().deleted.is_empty());
    }
    let wrong = "auto-2026-10-26T00.00.00Z";
    assert_eq!(names(&room), of(&[one, month, wrong]));
    room.tend().unwrap();
    common::sound(&room);
}

#[test]
fn a_period_gets_one_snapshot_however_many_threads_apply_the_policy() {
    let room = create_on(Arc::new(MemoryStorage::new()), options());
    room.stamp_by(|| Some(at(BEGIN)));
    room.set_snapshot_policy(Some(&HOURLY)).unwrap();
    let created: usize = std::thread::scope(|threads| {
        let apply = || usize::from(room.apply_snapshot_policy().unwrap().created.is_some());
        let started: Vec<_> = (0..8).map(|_| threads.spawn(apply)).collect();
        started.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(created, 1);
    assert_eq!(names(&room), ["auto-2026-11-25T00.00.00Z"]);
    // A name that is taken is no reason for none.
    room.delete_snapshot("auto-2026-11-25T00.00.00Z").unwrap();
    snapshot(&room, "auto-2026-11-25T00.00.00Z");
    let applied = room.apply_snapshot_policy().unwrap();
    assert_eq!(applied.created.unwrap().name, "auto-2026-11-25T00.00.00Z-2");
}

#[test]
fn a_policy_stays_with_the_room_until_it_is_cleared() {
    let storage = MemoryStorage::new();
    let room = create_on(Arc::new(storage.clone()), options());
    assert_eq!(room.snapshot_policy().unwrap(), None);
    assert_eq!(room.apply_snapshot_policy().unwrap(), Default::default());
    for malformed in [
        SnapshotPolicy::default(),
        SnapshotPolicy {
            min_free_percent: 100,
            ..HOURLY
        },
    ] {
        let refused = room.set_snapshot_policy(Some(&malformed));
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        let refused = room.prune_snapshots(&malformed, true);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    assert_eq!(room.snapshot_policy().unwrap(), None);
    room.set_snapshot_policy(Some(&HOURLY)).unwrap();
    room.begin().unwrap();
    assert!(matches!(
        room.apply_snapshot_policy(),
        Err(Error::InTransaction)
    ));
    room.complete().unwrap();
    automatic(&room, "old");
    room.close().unwrap();

    let room = open_on(Arc::new(storage.clone()), options().for_reading()).unwrap();
    assert_eq!(room.snapshot_policy().unwrap(), Some(HOURLY));
    assert!(room.prune_snapshots(&HOURLY, true).unwrap().is_empty());
    for refused in [
        room.set_snapshot_policy(None),
        room.apply_snapshot_policy().map(drop),
        room.prune_snapshots(&HOURLY, false).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly)));
    }
    room.close().unwrap();

    let room = open_on(Arc::new(storage), options()).unwrap();
    room.set_snapshot_policy(None).unwrap();
    assert_eq!(room.snapshot_policy().unwrap(), None);
    assert_eq!(room.apply_snapshot_policy().unwrap(), Default::default());
    // One that a later version set is not guessed at.
    let later = br#"{"hourly":1,"daily":0,"weekly":0,"yearly":9}"#;
    room.set_note("snapshot-policy", later).unwrap();
    assert!(matches!(
        room.apply_snapshot_policy(),
        Err(Error::NotSupported(_))
    ));
    assert_eq!(names(&room), ["old"]);
}

#[test]
fn with_too_little_space_the_oldest_go_and_none_is_created() {
    static NOW: AtomicI64 = AtomicI64::new(BEGIN);
    // Half of this storage is free.
    let room = create_on(Arc::new(MemoryStorage::new()), options());
    room.stamp_by(|| Some(at(NOW.load(Ordering::SeqCst))));
    let set = |min_free_percent| {
        let policy = SnapshotPolicy {
            min_free_percent,
            ..HOURLY
        };
        room.set_snapshot_policy(Some(&policy)).unwrap();
        policy
    };
    let held_by = |created: &dyn Fn(&Room)| {
        room.write_file("/f", &pattern(1, MIB)).unwrap();
        created(&room);
        room.unlink(InodeNo::ROOT, b"f").unwrap();
        room.tend().unwrap();
    };
    snapshot(&room, "mine");
    held_by(&|room| automatic(room, "old"));
    set(40);
    assert!(room.apply_snapshot_policy().unwrap().deleted.is_empty());

    let policy = set(60);
    let would_go = room.prune_snapshots(&policy, true).unwrap();
    assert_eq!(names(&room), ["mine", "old"]);
    let applied = room.apply_snapshot_policy().unwrap();
    assert_eq!(applied.deleted, would_go);
    let [(old, space)] = &applied.deleted[..] else {
        panic!("{applied:?}");
    };
    assert_eq!((&*old.name, space.exclusive), ("old", MIB as u64));
    assert_eq!(names(&room), ["mine"]);
    NOW.fetch_add(HOUR, Ordering::SeqCst);
    let applied = room.apply_snapshot_policy().unwrap();
    assert_eq!(applied.created, None);
    assert_eq!(applied.next_due, Some(at(BEGIN + 2 * HOUR)));

    // What those made by hand hold is no reason to delete others.
    set(40);
    assert!(room.apply_snapshot_policy().unwrap().created.is_some());
    held_by(&|room| snapshot(room, "mine too"));
    set(60);
    let before = names(&room);
    assert!(room.apply_snapshot_policy().unwrap().deleted.is_empty());
    assert_eq!(names(&room), before);
    assert_eq!(before.len(), 3);
}
