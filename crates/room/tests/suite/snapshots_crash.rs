//! Snapshots on a storage that fails or loses its power at every operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::stored::{create_on, open_on, options};
use crate::common::{no, pattern, prepare_restore, sound};
use room::{
    Error, FileFlags, FileSystem, InodeNo, NewSnapshot, Room, SetAttr, SnapshotPolicy,
    Snapshots as _,
};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};

type Disk = FaultyStorage<MemoryStorage>;

const MIB: usize = 1 << 20;
const ROOT: InodeNo = InodeNo::ROOT;

fn again(disk: &Disk) -> Room {
    open_on(Arc::new(disk.clone()), options()).unwrap()
}

fn snap(room: &Room, name: &str) -> room::Result<()> {
    room.create_snapshot(name, NewSnapshot::default()).map(drop)
}

fn file(fs: &dyn FileSystem, name: &str) -> Vec<u8> {
    let inode = fs.lookup(ROOT, name.as_bytes()).unwrap();
    let mut data = vec![0; inode.size as usize];
    fs.read(inode.no, 0, &mut data).unwrap();
    data
}

fn names(room: &Room) -> Vec<String> {
    let all = room.snapshots().unwrap();
    all.into_iter().map(|s| s.name).collect()
}

/// What `/f` holds at a step of its story.
fn f(step: u64) -> Vec<u8> {
    let mut data = pattern(1, 2 * MIB);
    for n in 1..=step {
        let at = n as usize * 100_001;
        data[at..at + 150_000].copy_from_slice(&pattern(n + 1, 150_000));
    }
    data
}

fn go_on(room: &Room, step: u64) -> room::Result<()> {
    room.write(no(room, "/f"), step * 100_001, &pattern(step + 1, 150_000))
}

/// A room with three snapshots of a story, and one step behind them.
fn prepared(disk: &Disk, snapshots: u64) -> Room {
    let room = create_on(Arc::new(disk.clone()), options());
    room.write_file("/f", &f(0)).unwrap();
    room.write_file("/gone", &pattern(50, 300_000)).unwrap();
    for n in 0..snapshots {
        snap(&room, &n.to_string()).unwrap();
        go_on(&room, n + 1).unwrap();
    }
    room.sync().unwrap();
    room
}

/// Does something with a storage of which the operation `nth` and all later ones fail, cuts the power, and opens the room. False
/// where it needed fewer operations.
fn cut_at(
    nth: u64,
    snapshots: u64,
    story: &dyn Fn(&Room) -> room::Result<()>,
    then: &dyn Fn(&Room, bool),
) -> bool {
    let disk = FaultyStorage::new(MemoryStorage::new());
    let room = prepared(&disk, snapshots);
    disk.refuse_any(nth, Fault::Io, Times::Always);
    let done = story(&room);
    let befell = disk.refused() > 0;
    match nth % 3 {
        0 => disk.inner().power_cut(),
        _ => disk.inner().power_cut_keeping_some(nth),
    }
    disk.heal();
    drop(room);
    let room = again(&disk);
    then(&room, done.is_ok());
    sound(&room);
    room.tend().unwrap();
    then(&room, done.is_ok());
    sound(&room);
    befell
}

/// Does so at the operation `first`, and every `step` further on.
fn at_operations(
    (first, step): (u64, usize),
    snapshots: u64,
    story: &dyn Fn(&Room) -> room::Result<()>,
    then: &dyn Fn(&Room, bool),
) {
    let cuts = (first..)
        .step_by(step)
        .take_while(|nth| cut_at(*nth, snapshots, story, then));
    let cuts = cuts.count();
    assert!(cuts > 0, "nothing was cut");
}

/// All of these snapshots see what they saw.
fn see(room: &Room, all: &[u64]) {
    for n in all {
        let view = room.snapshot(&n.to_string()).unwrap();
        assert!(file(&*view, "f") == f(*n), "snapshot {n}");
        assert!(file(&*view, "gone") == pattern(50, 300_000));
    }
}

#[test]
fn a_snapshot_is_there_whole_or_not_at_all_wherever_its_creation_is_cut() {
    for before in [0, 2] {
        at_operations(
            (1, 1),
            before,
            &|room| {
                // In memory only.
                go_on(room, before + 1)?;
                snap(room, "new")?;
                go_on(room, before + 2)?;
                room.unlink(ROOT, b"gone")?;
                room.sync()
            },
            &|room, done| {
                see(room, &(0..before).collect::<Vec<_>>());
                match room.snapshot("new") {
                    Ok(view) => {
                        assert!(file(&*view, "f") == f(before + 1));
                        assert!(file(&*view, "gone") == pattern(50, 300_000));
                    }
                    Err(e) => assert!(!done && matches!(e, Error::NotFound), "{e}"),
                }
            },
        );
    }
}

#[test]
fn a_deletion_that_is_cut_anywhere_is_continued_and_touches_no_other_snapshot() {
    for gone in [0, 1, 2] {
        let left: Vec<u64> = (0..3).filter(|n| *n != gone).collect();
        at_operations(
            (1 + gone, 3),
            3,
            &|room| {
                room.delete_snapshot(&gone.to_string())?;
                room.tend()?;
                room.unlink(ROOT, b"gone")?;
                room.tend()
            },
            &|room, done| {
                see(room, &left);
                let there = names(room).contains(&gone.to_string());
                assert!(!(done && there));
                if there {
                    see(room, &[gone]);
                }
            },
        );
    }
}

#[test]
fn whatever_is_cut_while_data_is_kept_or_moved_snapshots_see_the_same() {
    at_operations(
        (1, 2),
        2,
        &|room| {
            go_on(room, 5)?;
            room.sync()?;
            room.set_attributes(no(room, "/f"), &SetAttr::size(700_000))?;
            room.tend()?;
            room.unlink(ROOT, b"gone")?;
            room.tend()?;
            room.compact(100, &|_, _| true).map(drop)
        },
        &|room, _| see(room, &[0, 1]),
    );
}

#[test]
fn a_rename_is_done_or_not() {
    at_operations(
        (1, 1),
        2,
        &|room| room.rename_snapshot("1", "one"),
        &|room, done| {
            see(room, &[0]);
            let names = names(room);
            assert!(
                names == ["0", "one"] || (!done && names == ["0", "1"]),
                "{names:?}"
            );
        },
    );
}

#[test]
fn a_policy_that_is_cut_anywhere_spares_what_was_made_by_hand_and_is_applied_the_next_time() {
    let policy = SnapshotPolicy {
        weekly: 1,
        ..SnapshotPolicy::default()
    };
    let new = NewSnapshot { automatic: true };
    let automatic = |room: &Room| {
        let all = room.snapshots().unwrap();
        all.iter().filter(|snapshot| snapshot.automatic).count()
    };
    at_operations(
        (1, 1),
        2,
        &|room| {
            room.create_snapshot("old", new)?;
            go_on(room, 3)?;
            room.set_snapshot_policy(Some(&policy))?;
            room.create_snapshot("young", new)?;
            room.unlink(ROOT, b"gone")?;
            room.apply_snapshot_policy()?;
            room.tend()
        },
        &|room, done| {
            see(room, &[0, 1]);
            assert!(!done || automatic(room) == 1);
            match room.snapshot_policy().unwrap() {
                Some(stored) => assert_eq!(stored, policy),
                None => return assert!(!done),
            }
            room.apply_snapshot_policy().unwrap();
            assert_eq!(automatic(room), 1);
            see(room, &[0, 1]);
        },
    );
}

/// Without space nothing is done, or all of it, and the room can be used afterwards. Where the catalog's log had been promised the
/// space, the room is to be opened again.
#[test]
fn what_finds_no_space_leaves_the_room_and_its_snapshots_whole() {
    let mut went_on = 0;
    for nth in 1.. {
        let disk = FaultyStorage::new(MemoryStorage::new());
        let mut room = prepared(&disk, 2);
        disk.refuse(Op::Write, nth, Fault::NoSpace, Times::Once);
        let created = snap(&room, "new");
        let wrote = go_on(&room, 7);
        let synced = room.sync();
        let deleted = room.delete_snapshot("0").and_then(|()| room.tend());
        let befell = disk.refused() > 0;
        disk.heal();
        let outcomes = [&created, &wrote, &synced, &deleted];
        if outcomes.iter().any(|o| matches!(o, Err(Error::Poisoned))) {
            drop(room);
            room = again(&disk);
            assert!(created.is_err() || names(&room).contains(&"new".to_owned()));
        } else {
            went_on += 1;
            for outcome in outcomes {
                assert!(
                    matches!(outcome, Ok(()) | Err(Error::NoSpace)),
                    "{outcome:?}"
                );
            }
            let there = names(&room).contains(&"new".to_owned());
            assert_eq!(created.is_ok(), there, "{created:?}");
        }
        let before = names(&room);
        room.tend().unwrap();
        see(&room, &[1]);
        sound(&room);
        drop(room);
        let room = again(&disk);
        see(&room, &[1]);
        assert_eq!(names(&room), before);
        room.tend().unwrap();
        sound(&room);
        if !befell {
            assert!(went_on > 3);
            break;
        }
    }
}

/// Names of the root change places in one commit, whenever others ask for one.
#[test]
fn a_whole_room_is_put_back_in_one_step_wherever_that_is_cut() {
    const NAMES: usize = 300;
    let write = |room: &Room, beginning: &str| {
        (0..NAMES).try_for_each(|n| room.write_file(format!("/{beginning}{n}"), b"some"))
    };
    let starting = |room: &Room, beginning: u8| {
        let listed = room.read_dir(ROOT, 0, 1000).unwrap().into_iter();
        listed
            .filter(|(entry, _)| entry.name[0] == beginning)
            .count()
    };
    let mut cuts = 0;
    for nth in 1.. {
        let disk = FaultyStorage::new(MemoryStorage::new());
        let room = create_on(Arc::new(disk.clone()), options());
        write(&room, "then").unwrap();
        snap(&room, "then").unwrap();
        for n in 0..NAMES {
            room.unlink(ROOT, format!("then{n}").as_bytes()).unwrap();
        }
        write(&room, "now").unwrap();
        room.sync().unwrap();
        let prepared = prepare_restore(&room, "/");
        let swapping = AtomicBool::new(true);
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                while swapping.load(Ordering::SeqCst) {
                    let _ = room.sync();
                }
            });
            disk.refuse_any(nth, Fault::Io, Times::Always);
            let swapped = prepared.swap().and_then(|swapped| {
                room.sync()?;
                Ok(swapped)
            });
            swapping.store(false, Ordering::SeqCst);
            swapped.is_ok()
        });
        let befell = disk.refused() > 0;
        disk.inner().power_cut_keeping_some(nth);
        disk.heal();
        drop(room);
        let room = again(&disk);
        let found = (starting(&room, b't'), starting(&room, b'n'));
        match done {
            true => assert_eq!(found, (NAMES, 0), "cut at {nth}"),
            false => assert!(
                [(NAMES, 0), (0, NAMES)].contains(&found),
                "cut at {nth}: {found:?}"
            ),
        }
        sound(&room);
        cuts += u32::from(befell);
        if !befell {
            break;
        }
    }
    assert!(cuts > 0, "nothing was cut");
}

/// Going back from a swap that failed ended at the first name that could not go back. What had changed places with the copy was then
/// removed with it.
#[test]
fn what_a_failed_restore_had_moved_is_not_removed_whatever_others_do_to_the_copy() {
    const NAMES: usize = 300;
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        let disk = FaultyStorage::new(MemoryStorage::new());
        let room = create_on(Arc::new(disk), options());
        let write = |what: &str| {
            for n in 0..NAMES {
                let content = format!("{what} {n}");
                room.write_file(format!("/{n:03}"), content.as_bytes())
                    .unwrap();
            }
        };
        write("then");
        room.write_file("/last", b"then").unwrap();
        snap(&room, "then").unwrap();
        write("now");
        // The last name cannot move.
        let immutable = SetAttr {
            flags: Some(FileFlags::IMMUTABLE),
            ..SetAttr::default()
        };
        room.set_attributes(no(&room, "/last"), &immutable).unwrap();
        let prepared = prepare_restore(&room, "/");
        let swapping = AtomicBool::new(true);
        let removed = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while swapping.load(Ordering::SeqCst) {
                    if room.read_file("/000").is_ok_and(|found| found == b"then 0") {
                        return room.unlink(ROOT, b"000").is_ok();
                    }
                }
                false
            });
            let refused = prepared.swap().unwrap_err();
            assert!(matches!(refused, Error::NotPermitted(_)), "{refused:?}");
            swapping.store(false, Ordering::SeqCst);
            other.join().unwrap()
        });
        // It may have removed the file itself: just back in its place.
        for n in usize::from(removed)..NAMES {
            let found = room.read_file(format!("/{n:03}")).unwrap();
            assert_eq!(found, format!("now {n}").as_bytes());
        }
        assert!(room.lookup(ROOT, b".strongroom-restore-0").is_err());
        room.sync().unwrap();
        sound(&room);
        if removed {
            break;
        }
    }
}
