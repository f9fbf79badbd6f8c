//! Backups: what is in them, what they cost, where they may go.

use super::*;

#[test]
fn a_backup_is_a_room_of_its_own_and_later_ones_copy_only_what_is_new() {
    let (place, room) = Place::with_room();
    stir(&room, &mut Rng::with_seed(11), 150);
    let target = place.dir.path().join("copy");
    let first = room.backup(&target, GO).unwrap();
    assert!(
        first.segments_copied > 0 && first.segments_kept == 0,
        "{first:?}"
    );
    let at_first = contents(&room);
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    assert_eq!(contents(&copy), at_first);
    sound(&copy);
    copy.close().unwrap();

    room.write_file("/later", &pattern(12, 300_000)).unwrap();
    let second = room.backup(&target, GO).unwrap();
    assert!(second.segments_kept >= first.segments_copied, "{second:?}");
    assert_eq!(second.segments_copied, 1, "{second:?}");
    let at_second = contents(&room);

    room.compact(100, GO).unwrap();
    room.add_slot(room::NewCredential::RawKey(Secret::from(vec![7; 32])), "")
        .unwrap();
    room.backup(&target, GO).unwrap();
    room.write_file("/much later", b"x").unwrap();
    room.close().unwrap();
    // A lineage of its own: it opens although this machine has seen a newer state of the room.
    let copy = Room::open(
        &target,
        &Credential::RawKey(Secret::from(vec![7; 32])),
        place.options(),
    )
    .unwrap();
    assert_eq!(contents(&copy), at_second);
    sound(&copy);
    let segments = std::fs::read_dir(target.join("segments")).unwrap().count() as u64;
    assert_eq!(segments, copy.info().unwrap().segments);
}

/// What failed: a backup had the room's memory, so a commit in the backup made the room itself look rolled back.
#[test]
fn using_a_backup_does_not_make_the_room_look_old() {
    let (place, room) = Place::with_room();
    room.write_file("/a", b"one").unwrap();
    let target = place.dir.path().join("copy");
    room.backup(&target, GO).unwrap();
    room.close().unwrap();
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    for n in 0..5 {
        copy.write_file(format!("/{n}"), b"in the copy").unwrap();
        copy.sync().unwrap();
    }
    copy.close().unwrap();
    let room = place.open();
    assert_eq!(room.read_file("/a").unwrap(), b"one");
    // The backup has a memory too.
    let newest = target.with_extension("newest");
    copy_tree(&target, &newest);
    room.backup(&place.dir.path().join("other"), GO).unwrap();
    room.close().unwrap();
    std::fs::remove_dir_all(&target).unwrap();
    copy_tree(&place.dir.path().join("other"), &target);
    let older = Room::open(&target, &credential(), place.options());
    assert!(matches!(older, Err(Error::RolledBack { .. })), "{older:?}");
}

/// Otherwise anyone with a backup could put it in the place of the room.
#[test]
fn a_backup_in_the_place_of_its_room_is_a_rollback() {
    let (place, room) = Place::with_room();
    let target = place.dir.path().join("copy");
    room.backup(&target, GO).unwrap();
    for n in 0..5 {
        room.write_file(format!("/{n}"), b"later").unwrap();
        room.sync().unwrap();
    }
    room.close().unwrap();
    std::fs::rename(place.room_dir(), place.dir.path().join("newest")).unwrap();
    copy_tree(&target, &place.room_dir());
    let refused = place.try_open();
    assert!(
        matches!(refused, Err(Error::RolledBack { .. })),
        "{refused:?}"
    );
    let read = OpenOptions {
        read_only: true,
        accept_rollback: true,
        ..place.options()
    };
    // Reading an older state does not make it the newest.
    Room::open(&place.room_dir(), &credential(), read).unwrap();
    assert!(place.try_open().is_err());
    let accept = OpenOptions {
        accept_rollback: true,
        ..place.options()
    };
    Room::open(&place.room_dir(), &credential(), accept)
        .unwrap()
        .close()
        .unwrap();
    place.open().close().unwrap();
    // The room itself, moved, is what it was.
    Room::open(
        &place.dir.path().join("newest"),
        &credential(),
        place.options(),
    )
    .unwrap();
}

#[test]
fn reading_a_backup_changes_nothing() {
    let (place, room) = Place::with_room();
    room.write_file("/a", &pattern(1, 100_000)).unwrap();
    let target = place.dir.path().join("copy");
    room.backup(&target, GO).unwrap();
    room.close().unwrap();
    let files = || {
        let mut found = Vec::new();
        for dir in [
            place.dir.path().join("state"),
            target.clone(),
            target.join("segments"),
        ] {
            for file in std::fs::read_dir(&dir).unwrap() {
                let path = file.unwrap().path();
                let bytes = std::fs::read(&path).unwrap_or_default();
                found.push((path, bytes));
            }
        }
        found.sort();
        found
    };
    let before = files();
    let copy = Room::open(&target, &credential(), place.options().for_reading()).unwrap();
    assert_eq!(copy.read_file("/a").unwrap(), pattern(1, 100_000));
    copy.close().unwrap();
    let names = |files: &[(std::path::PathBuf, Vec<u8>)]| {
        files.iter().map(|f| f.0.clone()).collect::<Vec<_>>()
    };
    let after = files();
    assert_eq!(names(&before), names(&after));
    assert!(before == after);
}

/// An entry of an older version, which did not note the place, still counts.
#[test]
fn what_an_older_version_remembered_still_counts() {
    let (place, room) = Place::with_room();
    let id = room.info().unwrap().id;
    room.close().unwrap();
    let state = place.dir.path().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join(format!("{id}.generation")), "1000\n").unwrap();
    let refused = place.try_open();
    assert!(
        matches!(refused, Err(Error::RolledBack { seen: 1000, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_backup_taken_while_files_are_written_is_of_one_moment() {
    let (place, room) = Place::with_room();
    let target = place.dir.path().join("copy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let file = room.open_or_make_file("/log").unwrap().inode();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut dice = Rng::with_seed(21);
            for n in 0u64.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                room.write(file, n * 8, &n.to_le_bytes()).unwrap();
                stir(&room, &mut dice, 3);
                if n % 4 == 0 {
                    room.sync().unwrap();
                }
            }
        });
        for _ in 0..4 {
            room.backup(&target, GO).unwrap();
            let other = Place::new();
            let copy = Room::open(&target, &credential(), other.options()).unwrap();
            sound(&copy);
            let log = copy.read_file("/log").unwrap();
            for (n, number) in log.chunks(8).enumerate() {
                assert_eq!(number, (n as u64).to_le_bytes());
            }
            copy.close().unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    sound(&room);
}

#[test]
fn a_backup_stopped_in_the_middle_leaves_the_earlier_one() {
    let (place, room) = Place::with_room();
    room.write_file("/a", &pattern(1, 200_000)).unwrap();
    let target = place.dir.path().join("copy");
    let refused = room.backup(&target, &|_, _| false);
    assert!(matches!(refused, Err(Error::Io(_))), "{refused:?}");
    assert!(Room::open(&target, &credential(), Place::new().options()).is_err());
    room.backup(&target, GO).unwrap();
    room.write_file("/b", &pattern(2, 200_000)).unwrap();
    room.backup(&target, &|_, _| false).unwrap_err();
    let other = Place::new();
    let copy = Room::open(&target, &credential(), other.options()).unwrap();
    assert_eq!(copy.read_file("/a").unwrap(), pattern(1, 200_000));
    assert!(matches!(copy.read_file("/b"), Err(Error::NotFound)));
    sound(&copy);
    copy.close().unwrap();
    room.backup(&target, GO).unwrap();
    let copy = Room::open(&target, &credential(), other.options()).unwrap();
    assert_eq!(contents(&copy), contents(&room));
}

#[test]
fn a_backup_goes_neither_into_the_room_nor_over_anything_else() {
    let (place, room) = Place::with_room();
    let inside = room.backup(&place.room_dir().join("copy"), GO);
    assert!(
        matches!(inside, Err(Error::InvalidArgument(_))),
        "{inside:?}"
    );
    let itself = room.backup(&place.room_dir(), GO);
    assert!(
        matches!(itself, Err(Error::InvalidArgument(_))),
        "{itself:?}"
    );
    let other = Place::new();
    other.create().close().unwrap();
    let over = room.backup(&other.room_dir(), GO);
    assert!(matches!(over, Err(Error::NotEmptyTarget(_))), "{over:?}");
    let full = place.dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("file"), b"mine").unwrap();
    let over = room.backup(&full, GO);
    assert!(matches!(over, Err(Error::NotEmptyTarget(_))), "{over:?}");
}

fn snapshot_of_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for below in ["", "segments"] {
        for entry in std::fs::read_dir(dir.join(below)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            // The lock names the last process that took it.
            if name != "lock" && entry.file_type().unwrap().is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                found.insert(format!("{below}/{name}"), bytes);
            }
        }
    }
    found
}

/// A backup to `target` is refused, and the target keeps every byte.
#[track_caller]
fn refuses(source: &Room, target: &Path) {
    let before = snapshot_of_files(target);
    let refused = source.backup(target, GO);
    assert!(
        matches!(refused, Err(Error::NotEmptyTarget(_))),
        "{refused:?}"
    );
    assert!(snapshot_of_files(target) == before);
}

/// What failed: `backup COPY ROOM`, typed to restore, replaced the room by its backup and removed everything written since.
#[test]
fn a_backup_never_takes_the_place_of_its_original() {
    let (place, room) = Place::with_room();
    let target = place.dir.path().join("copy");
    room.write_file("/a", &pattern(1, 200_000)).unwrap();
    room.backup(&target, GO).unwrap();
    room.write_file("/b", &pattern(2, 200_000)).unwrap();
    room.close().unwrap();
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    refuses(&copy, &place.room_dir());
    let room = place.open();
    assert_eq!(room.read_file("/b").unwrap(), pattern(2, 200_000));
    // A rekey gives the original keys that its backup never had.
    room.rekey(&credential(), GO).unwrap();
    room.close().unwrap();
    refuses(&copy, &place.room_dir());
}

#[test]
fn a_backup_never_takes_the_place_of_a_copy_that_was_worked_in() {
    let (place, room) = Place::with_room();
    let target = place.dir.path().join("copy");
    room.write_file("/a", &pattern(1, 200_000)).unwrap();
    room.backup(&target, GO).unwrap();
    let again = place.dir.path().join("again");
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    copy.backup(&again, GO).unwrap();
    copy.close().unwrap();
    // As it was written: a newer backup takes its place.
    room.backup(&again, GO).unwrap();
    let restored = Room::open(&again, &credential(), place.options()).unwrap();
    restored.make_dir("/d", false).unwrap();
    restored.close().unwrap();
    refuses(&room, &again);
    // Nor where no key of the room opens the copy any more.
    room.rekey(&credential(), GO).unwrap();
    refuses(&room, &again);
    // One that was restored and not worked in yet.
    let other = place.dir.path().join("other");
    room.backup(&other, GO).unwrap();
    room::detach_backup(&other).unwrap();
    refuses(&room, &other);
    room.backup(&target, GO).unwrap();
}

/// A process that was killed leaves its changes in the logs beside the catalog.
#[test]
fn a_backup_never_takes_the_place_of_a_copy_whose_changes_are_in_its_logs() {
    let (place, room) = Place::with_room();
    let target = place.dir.path().join("copy");
    room.backup(&target, GO).unwrap();
    let killed = place.dir.path().join("killed");
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    copy.write_file("/a", b"in the copy").unwrap();
    copy.sync().unwrap();
    copy_tree(&target, &killed);
    refuses(&room, &killed);
}

/// Versions up to November 2026 left no mark in a backup.
#[test]
fn a_backup_of_an_older_version_is_brought_up_to_date() {
    let unmarked = |dir: &Path| std::fs::remove_file(dir.join("backup.catalog")).unwrap();
    let (place, room) = Place::with_room();
    room.write_file("/a", &pattern(1, 200_000)).unwrap();
    let (used, target) = (place.dir.path().join("used"), place.dir.path().join("copy"));
    room.backup(&used, GO).unwrap();
    unmarked(&used);
    room.backup(&target, GO).unwrap();
    unmarked(&target);
    room.backup(&target, GO).unwrap();
    unmarked(&target);
    room.rekey(&credential(), GO).unwrap();
    let report = room.backup(&target, GO).unwrap();
    let copy = Room::open(&target, &credential(), Place::new().options()).unwrap();
    assert_eq!(contents(&copy), contents(&room));
    assert!(report.segments_copied > 0, "{report:?}");
    copy.close().unwrap();
    // One that this machine had open for writing may be a room that was restored.
    let copy = Room::open(&used, &credential(), place.options()).unwrap();
    copy.write_file("/mine", b"mine").unwrap();
    copy.close().unwrap();
    refuses(&room, &used);
}
