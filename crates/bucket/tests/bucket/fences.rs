//! Two writers never both acknowledge under one number.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use storage::{OpenMode, Storage, WriterState};
use strongroom_bucket::Options;

use crate::made::{
    arc, create, discard, noise, open, options, polite, quick, read, short, two_machines, write,
};
use crate::store::{Fate, Store};

#[test]
fn a_writer_that_was_overtaken_acknowledges_nothing_more() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let first = create(&store, here.path(), options()).unwrap();
    write(&first, "f", b"of the first").unwrap();
    let second = open(&store, there.path(), options()).unwrap();
    assert_eq!(read(&second, "f").unwrap(), b"of the first");
    let file = first.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"lost", 0).unwrap();
    let refused = file.sync().unwrap_err().to_string();
    assert!(
        refused.contains("another writer has taken over"),
        "{refused}"
    );
    assert!(file.sync().is_err() && first.sync_dir("").is_err());
    assert!(file.write_at(b"x", 0).is_err() && first.remove("f").is_err());
    // What it acknowledged can still be read there.
    assert_eq!(&read(&first, "f").unwrap()[4..], b"he first");
    write(&second, "g", b"of the second").unwrap();
    drop(first);
    drop(second);
    let third = open(&store, here.path(), options()).unwrap();
    assert_eq!(read(&third, "f").unwrap(), b"of the first");
    assert_eq!(read(&third, "g").unwrap(), b"of the second");
}

#[test]
fn a_writer_that_asks_learns_that_it_was_overtaken_before_it_writes() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let first = create(&store, here.path(), options()).unwrap();
    write(&first, "f", b"of the first").unwrap();
    assert_eq!(first.writer_state().unwrap(), WriterState::Current);
    // Its own commits are no fence, whenever it asks.
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            for n in 0..20 {
                write(&first, &format!("{n}"), b"x").unwrap();
            }
        });
        while !writes.is_finished() {
            assert_eq!(first.writer_state().unwrap(), WriterState::Current);
        }
    });
    let second = open(&store, there.path(), options()).unwrap();
    let WriterState::Overtaken(why) = first.writer_state().unwrap() else {
        panic!("it is still the writer");
    };
    assert!(why.contains("another writer has taken over"), "{why}");
    let file = first.open("f", OpenMode::ReadWrite).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert_eq!(second.writer_state().unwrap(), WriterState::Current);
    second.die();
    assert!(matches!(
        second.writer_state().unwrap(),
        WriterState::Failed(_)
    ));
}

/// The number that a sleeping writer would take next was used long ago, and everything around it was removed.
#[test]
fn a_writer_that_slept_through_checkpoints_and_removals_is_fenced_all_the_same() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let sleeping = create(&store, here.path(), options()).unwrap();
    write(&sleeping, "f", b"x").unwrap();
    let mut quick = options();
    quick.checkpoint_commits = 2;
    quick.grace = Duration::ZERO;
    for opening in 0..3 {
        let awake = open(&store, there.path(), quick.clone()).unwrap();
        for n in 0..20 {
            write(&awake, &format!("{opening}-{n}"), b"y").unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        write(&awake, &format!("{opening}-last"), b"y").unwrap();
    }
    let file = sleeping.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"z", 0).unwrap();
    assert!(file.sync().is_err());
    drop(sleeping);
    let awake = open(&store, there.path(), quick).unwrap();
    assert_eq!(read(&awake, "f").unwrap(), b"x");
    assert_eq!(awake.list("").unwrap().len(), 3 * 21 + 1);
}

/// Two writers take the room from each other. The one that is overtaken has a commit on its way, which arrives after the other's begin and
/// first commits. Longer with `STRONGROOM_FIGHT_ROUNDS`.
#[test]
fn a_commit_that_arrives_after_the_fence_is_never_acknowledged() {
    let rounds = std::env::var("STRONGROOM_FIGHT_ROUNDS").map_or(10, |n| n.parse().unwrap());
    let (store, dirs) = (Store::new(), two_machines());
    let quick = quick();
    let mut writer = create(&store, dirs[0].path(), quick.clone()).unwrap();
    let mut acknowledged = Vec::new();
    for round in 1..=rounds {
        let name = format!("{round}-before");
        write(&writer, &name, name.as_bytes()).unwrap();
        acknowledged.push(name);
        let sleeping = writer;
        store.hold_next();
        writer = std::thread::scope(|scope| {
            let late = scope.spawn(|| write(&sleeping, &format!("{round}-late"), b"late"));
            while !store.is_holding() {
                std::thread::yield_now();
            }
            let next = open(&store, dirs[round % 2].path(), quick.clone()).unwrap();
            for n in 0..round % 7 {
                let name = format!("{round}-{n}");
                write(&next, &name, name.as_bytes()).unwrap();
                acknowledged.push(name);
            }
            store.let_go();
            late.join().unwrap().unwrap_err();
            next
        });
        write(&sleeping, &format!("{round}-awake"), b"late").unwrap_err();
    }
    drop(writer);
    let storage = open(&store, dirs[0].path(), quick).unwrap();
    let mut there = storage.list("").unwrap();
    there.sort();
    acknowledged.sort();
    assert_eq!(there, acknowledged);
}

/// Writers take the room from each other all the time. What one acknowledged is there for ever after.
#[test]
fn writers_that_fight_never_lose_what_one_acknowledged() {
    const ROUNDS: u64 = 25;
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    drop(create(&store, dir.path(), options()).unwrap());
    let quick = quick();
    store.weather(Some(5));
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let threads = (0..3).map(|who| {
            let (store, quick) = (&store, &quick);
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                let mut random = fastrand::Rng::with_seed(who);
                let mut acknowledged = Vec::new();
                for round in 0..ROUNDS {
                    // Overtaken again and again, or disturbed in the middle.
                    let Ok(storage) = open(store, dir.path(), quick.clone()) else {
                        continue;
                    };
                    for n in 0..random.u8(1..6) {
                        let name = format!("{who}-{round}-{n}");
                        match write(&storage, &name, name.as_bytes()) {
                            Ok(()) => acknowledged.push(name),
                            Err(_) => break,
                        }
                    }
                }
                acknowledged
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    store.weather(None);
    let storage = open(&store, dir.path(), quick).unwrap();
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    for name in acknowledged {
        assert_eq!(read(&storage, &name).unwrap(), name.as_bytes(), "{name}");
    }
}

#[test]
fn a_room_that_is_open_elsewhere_is_taken_over_only_when_asked_for() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let polite = polite();
    let first = create(&store, here.path(), polite.clone()).unwrap();
    let refused = open(&store, there.path(), polite.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("--take-over"), "{refused}");
    // The same directory: the process that has it open is named.
    let refused = open(&store, here.path(), polite.clone()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&std::process::id().to_string()),
        "{refused}"
    );
    write(&first, "f", b"x").unwrap();
    // It died here: nobody else can have it open.
    first.die();
    drop(first);
    drop(open(&store, here.path(), polite.clone()).unwrap());
    // It was closed: anybody may go on.
    drop(open(&store, there.path(), polite).unwrap());
}

#[test]
fn a_store_that_does_not_fence_is_refused_and_nothing_is_left_there() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    store.ignore_conditions();
    if store.has_log() {
        create(&store, dir.path(), options()).unwrap();
        return;
    }
    let refused = create(&store, dir.path(), options()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("overwrites"), "{refused}");
    assert!(crate::store::list(&store, "rooms").is_empty());
}

#[test]
fn a_place_that_has_a_room_gets_no_other() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let first = create(&store, here.path(), options()).unwrap();
    assert_eq!(
        create(&store, there.path(), polite()).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    write(&first, "f", b"x").unwrap();
    let created = first.id();
    drop(first);
    discard(&store, here.path(), created).unwrap();
    assert!(crate::store::list(&store, "rooms").is_empty());
    create(&store, there.path(), options()).unwrap();
    let mut options = options();
    options.log = store.log();
    let elsewhere =
        strongroom_bucket::BucketStorage::open(arc(&store), "rooms/b", here.path(), options);
    assert_eq!(elsewhere.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A creation slept; meanwhile its remains were removed, and another machine created a room there. When the first one woke and failed, it
/// took that room over and removed it.
#[test]
fn a_creation_that_failed_removes_nothing_of_another_room() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let sleeping = create(&store, here.path(), options()).unwrap();
    let created = sleeping.id();
    crate::store::clear(&store);
    let other = create(&store, there.path(), options()).unwrap();
    write(&other, "f", b"of the other").unwrap();
    let refused = write(&sleeping, "f", b"x").unwrap_err().to_string();
    assert!(refused.contains("taken over"), "{refused}");
    drop(sleeping);
    let refused = discard(&store, here.path(), created).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    assert_eq!(read(&other, "f").unwrap(), b"of the other");
    write(&other, "g", b"of the other").unwrap();
    drop(other);
    let storage = open(&store, here.path(), options()).unwrap();
    for name in ["f", "g"] {
        assert_eq!(read(&storage, name).unwrap(), b"of the other");
    }
}

/// The same where the other machine went on from what the first one had closed without a name.
#[test]
fn a_creation_that_failed_leaves_a_room_that_went_on_from_it() {
    let (store, [here, there]) = (Store::new(), two_machines());
    let first = create(&store, here.path(), polite()).unwrap();
    let created = first.id();
    drop(first);
    let other = create(&store, there.path(), polite()).unwrap();
    let refused = discard(&store, here.path(), created).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    write(&other, "f", b"of the other").unwrap();
    drop(other);
    let storage = open(&store, here.path(), polite()).unwrap();
    assert_eq!(read(&storage, "f").unwrap(), b"of the other");
}

/// A cache that belongs to a room that was at this place before is not taken for this one's.
#[test]
fn a_new_room_at_an_old_place_has_a_new_cache() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..2 {
        let store = Store::new();
        let storage = create(&store, dir.path(), options()).unwrap();
        let bytes = noise(seed, 3 << 20);
        write(&storage, "f", &bytes).unwrap();
        drop(storage);
        let storage = open(&store, dir.path(), options()).unwrap();
        assert!(read(&storage, "f").unwrap() == bytes);
    }
}

#[test]
fn a_lost_answer_of_an_opening_does_not_lock_its_writer_out() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    drop(create(&store, dir.path(), options()).unwrap());
    store.fates([Fate::AnswerLost, Fate::AnswerLost]);
    let storage = open(&store, dir.path(), options()).unwrap();
    write(&storage, "f", b"x").unwrap();
}

/// A command was killed between its begin and the note of it on its machine. The next one there was refused as another machine's, so that a
/// timer ran in vain until somebody said `--take-over`.
#[test]
fn a_writer_that_ends_when_it_has_just_begun_is_known_on_its_machine() {
    let (store, [here, there]) = (Store::new(), two_machines());
    drop(create(&store, here.path(), options()).unwrap());
    let polite = polite();
    let mut short_of_time = polite.clone();
    short_of_time.timeout = short(&store, 200);
    store.end_after(0, true);
    open(&store, here.path(), short_of_time.clone()).unwrap_err();
    store.heal();
    let refused = open(&store, there.path(), polite.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    // The next one ends before its begin is there.
    std::thread::scope(|scope| {
        store.fates([Fate::Refused]);
        store.hold_next();
        let killed = scope.spawn(|| open(&store, here.path(), short_of_time).unwrap_err());
        while !store.is_holding() {
            std::thread::yield_now();
        }
        store.end_after(0, false);
        store.let_go();
        killed.join().unwrap();
    });
    store.heal();
    open(&store, here.path(), polite).unwrap();
}

/// Whether a machine that dies after so many changes of the store has created a room until then.
fn is_created_within(changes: u64, store: &Store, dir: &Path) -> bool {
    let mut short_of_time = polite();
    short_of_time.timeout = short(store, 100);
    store.end_after(changes, true);
    let created = create(store, dir, short_of_time);
    store.heal();
    created.is_ok()
}

/// A creation was killed right after its first commit. What came next on its machine, as another replication to that place, was refused as
/// another machine's.
#[test]
fn a_creation_that_ends_when_it_has_just_begun_is_known_on_its_machine() {
    if Store::new().has_log() {
        // Each creation that fails takes as long as a lost engine.
        return;
    }
    let mut opened = 0;
    for changes in 0.. {
        let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
        if is_created_within(changes, &store, dir.path()) {
            break;
        }
        match open(&store, dir.path(), polite()) {
            Ok(_) => opened += 1,
            Err(e) => assert_ne!(e.kind(), ErrorKind::ResourceBusy, "{changes}: {e}"),
        }
    }
    assert!(opened > 0);
}

/// A creation was killed, and the next one on its machine was refused: somebody had to remove objects by hand.
#[test]
fn a_creation_that_was_killed_can_be_begun_again_on_its_machine() {
    if Store::new().has_log() {
        // Each creation that fails takes as long as a lost engine.
        return;
    }
    let mut refused = 0;
    for changes in 0.. {
        let (store, [here, there]) = (Store::new(), two_machines());
        if is_created_within(changes, &store, here.path()) {
            break;
        }
        // Elsewhere nobody knows whether that one is still at work.
        if crate::store::list(&store, "rooms/a/commits").len() == 1 {
            let elsewhere = create(&store, there.path(), polite()).unwrap_err();
            assert_eq!(elsewhere.kind(), ErrorKind::AlreadyExists, "{elsewhere}");
            refused += 1;
        }
        let again = create(&store, here.path(), polite()).unwrap();
        write(&again, "f", b"x").unwrap();
        drop(again);
        let third = create(&store, here.path(), polite()).unwrap_err();
        assert_eq!(third.kind(), ErrorKind::AlreadyExists, "{third}");
        let storage = open(&store, here.path(), polite()).unwrap();
        assert_eq!(read(&storage, "f").unwrap(), b"x");
    }
    assert!(refused > 0);
}

/// Options of a creation whose names before its end begin with `half`.
fn halves() -> Options {
    let mut options = polite();
    options.remains = |name| name.starts_with("half");
    options
}

/// A creation was killed when it had synced names of files. Somebody had to remove the objects by hand, and commits in the log.
#[test]
fn what_a_killed_creation_synced_gives_way_to_the_next_one() {
    for is_elsewhere in [false, true] {
        let (store, [here, there]) = (Store::new(), two_machines());
        let killed = create(&store, here.path(), halves()).unwrap();
        write(&killed, "half", &noise(1, 2 << 20)).unwrap();
        killed.checkpoint().unwrap();
        write(&killed, "half.2", b"x").unwrap();
        killed.die();
        let killed_id = killed.id();
        drop(killed);
        // Another program's files, or those of a whole room, are nobody's to remove.
        let refused = create(&store, here.path(), polite()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        let refused = create(&store, there.path(), halves()).unwrap_err();
        assert!(refused.to_string().contains("--take-over"), "{refused}");
        let (dir, mut again) = (if is_elsewhere { &there } else { &here }, halves());
        again.take_over = is_elsewhere;
        let storage = create(&store, dir.path(), again.clone()).unwrap();
        assert!(storage.id() != killed_id);
        assert_eq!(storage.list("").unwrap(), Vec::<String>::new());
        assert!(crate::store::list(&store, "rooms/a/data").is_empty());
        write(&storage, "f", b"whole").unwrap();
        drop(storage);
        let refused = create(&store, dir.path(), again).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        let storage = open(&store, dir.path(), polite()).unwrap();
        assert_eq!(read(&storage, "f").unwrap(), b"whole");
    }
}

/// The same where the next one is killed in the middle of the removal, wherever that is.
#[test]
fn a_removal_of_a_killed_creation_can_be_killed_too() {
    if Store::new().has_log() {
        // Each creation that fails takes as long as a lost engine.
        return;
    }
    for changes in 0.. {
        let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
        let killed = create(&store, dir.path(), halves()).unwrap();
        write(&killed, "half", &noise(1, 2 << 20)).unwrap();
        killed.checkpoint().unwrap();
        killed.die();
        drop(killed);
        let mut short_of_time = halves();
        short_of_time.timeout = short(&store, 100);
        store.end_after(changes, true);
        let is_created = create(&store, dir.path(), short_of_time).is_ok();
        store.heal();
        if is_created {
            assert!(changes > 4, "{changes}");
            break;
        }
        let storage = create(&store, dir.path(), halves()).unwrap();
        write(&storage, "f", b"whole").unwrap();
    }
}

/// The first commit was in the log elsewhere, and the object that says so never came to the bucket. Every later creation was refused.
#[test]
fn a_creation_that_ends_before_its_log_is_noted_can_be_begun_again_on_its_machine() {
    let (store, [here, there]) = (Store::new(), two_machines());
    if !store.has_log() {
        return;
    }
    store.unwritable("rooms/a/log");
    create(&store, here.path(), polite()).unwrap_err();
    store.heal();
    let elsewhere = create(&store, there.path(), polite()).unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::AlreadyExists, "{elsewhere}");
    let again = create(&store, here.path(), polite()).unwrap();
    write(&again, "f", b"x").unwrap();
    drop(again);
    let third = create(&store, here.path(), polite()).unwrap_err();
    assert_eq!(third.kind(), ErrorKind::AlreadyExists, "{third}");
    let storage = open(&store, there.path(), polite()).unwrap();
    assert_eq!(read(&storage, "f").unwrap(), b"x");
}

/// Two machines began at once: what one of them had noted before does not make the other's commit of that number its own.
#[test]
fn a_begin_that_another_machine_won_is_not_known_as_ours() {
    let (store, [here, there]) = (Store::new(), two_machines());
    drop(create(&store, here.path(), options()).unwrap());
    let polite = polite();
    let open_here = || open(&store, here.path(), polite.clone()).unwrap_err();
    let other = std::thread::scope(|scope| {
        store.hold_next();
        let slow = scope.spawn(open_here);
        while !store.is_holding() {
            std::thread::yield_now();
        }
        let other = open(&store, there.path(), polite.clone()).unwrap();
        store.let_go();
        assert_eq!(slow.join().unwrap().kind(), ErrorKind::ResourceBusy);
        other
    });
    let refused = open_here();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    write(&other, "f", b"x").unwrap();
}
