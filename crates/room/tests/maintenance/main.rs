//! Compaction, check, backup and rekey of real rooms: whatever they do, every file stays what it was.
#![allow(missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Place, copy_tree, credential, pattern};
use room::{
    CheckReport, Credential, Error, Fallocate, FileKind, FileSystem as _, InodeNo, NewFile,
    OpenOptions, Progress, Room, Secret,
};

const GO: Progress<'static> = &|_, _| true;

/// Every path with its contents or kind.
fn contents(room: &Room) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    walk(room, InodeNo::ROOT, "", &mut all);
    all
}

fn walk(room: &Room, no: InodeNo, path: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for (entry, inode) in room.read_dir(no, 0, usize::MAX >> 1).unwrap() {
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        match inode.kind {
            FileKind::Directory => {
                all.insert(format!("{path}/"), Vec::new());
                walk(room, inode.no, &path, all);
            }
            _ => {
                let data = room.read_file(&path).unwrap();
                all.insert(path, data);
            }
        }
    }
}

fn assert_whole(room: &Room) -> CheckReport {
    let report = room.check(true, false, GO).unwrap();
    assert_eq!(report.findings, [] as [String; 0]);
    assert_eq!(report.lost, []);
    report
}

/// A small generator of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Random changes, full of clones, holes and overwrites.
fn stir(room: &Room, dice: &mut Dice, rounds: usize) {
    let _ = room.make_dir("/d", true);
    for _ in 0..rounds {
        let name = |n: u64| {
            if n < 4 {
                format!("/f{n}")
            } else {
                format!("/d/f{n}")
            }
        };
        let (a, b) = (name(dice.roll(8)), name(dice.roll(8)));
        let open = |path: &str| room.open_or_make_file(path).unwrap().inode();
        match dice.roll(10) {
            0..=2 => {
                let (at, len) = (dice.roll(3 << 20), dice.roll(400_000) + 1);
                room.write(open(&a), at, &pattern(dice.roll(1 << 40), len as usize))
                    .unwrap();
            }
            3 => {
                let (at, len) = (dice.roll(2 << 20), dice.roll(3000) + 1);
                room.write(open(&a), at, &pattern(dice.roll(1 << 40), len as usize))
                    .unwrap();
            }
            4..=6 => {
                let (from, to) = (open(&a), open(&b));
                if from != to {
                    let (at, to_at) = (dice.roll(400) * 4096, dice.roll(400) * 4096);
                    room.copy_range(from, at, to, to_at, dice.roll(300) * 4096)
                        .unwrap();
                }
            }
            7 => {
                let (at, len) = (dice.roll(2 << 20), dice.roll(500_000) + 1);
                room.fallocate(open(&a), Fallocate::PunchHole, at, len)
                    .unwrap();
            }
            8 => {
                let no = open(&a);
                let size = room.attributes(no).unwrap().size;
                let (at, len) = (dice.roll(200) * 4096, (dice.roll(40) + 1) * 4096);
                if at + len < size {
                    let what = if dice.roll(2) == 0 {
                        Fallocate::Collapse
                    } else {
                        Fallocate::Insert
                    };
                    room.fallocate(no, what, at, len).unwrap();
                }
            }
            _ => match dice.roll(3) {
                0 => {
                    let path = Path::new(&a);
                    let (parent, name) = room.resolve_parent(path).unwrap();
                    let _ = room.unlink(parent, name);
                }
                1 => room.sync().unwrap(),
                _ => {
                    let set = room::SetAttr {
                        size: Some(dice.roll(3 << 20)),
                        ..room::SetAttr::default()
                    };
                    room.set_attributes(open(&a), &set).unwrap();
                }
            },
        }
    }
}

#[test]
fn a_room_in_use_is_whole() {
    let place = Place::new();
    let room = place.create();
    assert_whole(&room);
    stir(&room, &mut Dice(1), 300);
    let report = assert_whole(&room);
    assert!(
        report.files > 0 && report.directories == 2 && report.bytes_read > 0,
        "{report:?}"
    );
    room.close().unwrap();
    assert_whole(&place.open());
}

#[test]
fn compacting_moves_everything_and_changes_nothing() {
    for seed in [2, 3, 4] {
        let place = Place::new();
        let room = place.create();
        let mut dice = Dice(seed);
        for _ in 0..4 {
            stir(&room, &mut dice, 120);
            let before = contents(&room);
            let report = room.compact(100, GO).unwrap();
            assert_eq!(report.unreadable, [] as [String; 0]);
            assert_eq!(contents(&room), before, "seed {seed}");
            assert_whole(&room);
        }
        let before = contents(&room);
        room.close().unwrap();
        let room = place.open();
        assert_eq!(contents(&room), before, "seed {seed}");
        assert_whole(&room);
    }
}

#[test]
fn compacting_keeps_clones_shared_and_gives_space_back() {
    let place = Place::new();
    let room = place.create();
    let data = pattern(1, 8 << 20);
    room.write_file("/a", &data).unwrap();
    room.write_file("/gone", &pattern(2, 8 << 20)).unwrap();
    let a = room.resolve("/a".as_ref(), true).unwrap();
    for name in ["/b", "/c"] {
        let to = room.open_or_make_file(name).unwrap().inode();
        room.copy_range(a, 0, to, 0, 8 << 20).unwrap();
    }
    room.sync().unwrap();
    room.unlink(InodeNo::ROOT, b"gone").unwrap();
    while room.space().unwrap().live > 8 << 20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let report = room.compact(90, GO).unwrap();
    assert_eq!(report.segments_rewritten, 1);
    assert_eq!(report.bytes_moved, 8 << 20);
    assert!(report.bytes_freed >= 7 << 20, "{report:?}");
    let space = room.space().unwrap();
    assert_eq!(space.live, 8 << 20);
    assert!(space.stored < 9 << 20, "{space:?}");
    for name in ["/a", "/b", "/c"] {
        assert_eq!(room.read_file(name).unwrap(), data);
    }
    assert_whole(&room);
    // Nothing left to do.
    assert_eq!(room.compact(90, GO).unwrap().bytes_moved, 0);
}

#[test]
fn short_segments_of_many_openings_become_one() {
    let place = Place::new();
    place.create().close().unwrap();
    for n in 0..5 {
        let room = place.open();
        room.write_file(format!("/{n}"), &pattern(n, 100_000))
            .unwrap();
        room.close().unwrap();
    }
    let room = place.open();
    assert_eq!(room.info().unwrap().segments, 5);
    room.compact(50, GO).unwrap();
    assert_eq!(room.info().unwrap().segments, 1);
    for n in 0..5 {
        assert_eq!(
            room.read_file(format!("/{n}")).unwrap(),
            pattern(n, 100_000)
        );
    }
    assert_whole(&room);
}

#[test]
fn compacting_while_files_are_written_loses_nothing() {
    let place = Place::new();
    let room = place.create();
    stir(&room, &mut Dice(7), 100);
    room.sync().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut dice = Dice(8);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                stir(&room, &mut dice, 10);
            }
        });
        for _ in 0..6 {
            room.compact(100, GO).unwrap();
            let report = room.check(false, false, GO).unwrap();
            assert_eq!(report.findings, [] as [String; 0]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_whole(&room);
    let before = contents(&room);
    room.close().unwrap();
    assert_eq!(contents(&place.open()), before);
}

#[test]
fn a_segment_left_empty_at_closing_goes_with_the_next_compaction() {
    let place = Place::new();
    let room = place.create();
    room.write_file("/a", &pattern(1, 100_000)).unwrap();
    room.sync().unwrap();
    room.write_file("/a", b"").unwrap();
    room.close().unwrap();
    let room = place.open();
    room.compact(50, GO).unwrap();
    assert_eq!(room.info().unwrap().segments, 0);
    assert_eq!(
        std::fs::read_dir(place.room_dir().join("segments"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_backup_is_a_room_of_its_own_and_later_ones_copy_only_what_is_new() {
    let place = Place::new();
    let room = place.create();
    stir(&room, &mut Dice(11), 150);
    let target = place.dir.path().join("copy");
    let first = room.backup(&target, GO).unwrap();
    assert!(
        first.segments_copied > 0 && first.segments_kept == 0,
        "{first:?}"
    );
    let at_first = contents(&room);
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    assert_eq!(contents(&copy), at_first);
    assert_whole(&copy);
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
    assert_whole(&copy);
    let segments = std::fs::read_dir(target.join("segments")).unwrap().count() as u64;
    assert_eq!(segments, copy.info().unwrap().segments);
}

/// What failed: a backup had the room's memory, so a commit in the backup made the room itself look rolled back.
#[test]
fn using_a_backup_does_not_make_the_room_look_old() {
    let place = Place::new();
    let room = place.create();
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
    let place = Place::new();
    let room = place.create();
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
    let place = Place::new();
    let room = place.create();
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
    let read = OpenOptions {
        read_only: true,
        ..place.options()
    };
    let copy = Room::open(&target, &credential(), read).unwrap();
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
    let place = Place::new();
    let room = place.create();
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
    let place = Place::new();
    let room = place.create();
    let target = place.dir.path().join("copy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let file = room.open_or_make_file("/log").unwrap().inode();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut dice = Dice(21);
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
            assert_whole(&copy);
            let log = copy.read_file("/log").unwrap();
            for (n, number) in log.chunks(8).enumerate() {
                assert_eq!(number, (n as u64).to_le_bytes());
            }
            copy.close().unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_whole(&room);
}

#[test]
fn a_backup_stopped_in_the_middle_leaves_the_earlier_one() {
    let place = Place::new();
    let room = place.create();
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
    assert_whole(&copy);
    copy.close().unwrap();
    room.backup(&target, GO).unwrap();
    let copy = Room::open(&target, &credential(), other.options()).unwrap();
    assert_eq!(contents(&copy), contents(&room));
}

#[test]
fn a_backup_goes_neither_into_the_room_nor_over_anything_else() {
    let place = Place::new();
    let room = place.create();
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

#[test]
fn a_rekey_reencrypts_everything_and_the_old_header_opens_nothing() {
    let place = Place::new();
    let room = place.create();
    room.add_slot(
        room::NewCredential::RawKey(Secret::from(vec![7; 32])),
        "other",
    )
    .unwrap();
    stir(&room, &mut Dice(31), 200);
    let before = contents(&room);
    let old_header = room.header_backup();
    let report = room.rekey(&credential(), GO).unwrap();
    assert!(
        report.finished && report.unreadable.is_empty(),
        "{report:?}"
    );
    assert_eq!(report.dropped_slots.len(), 1);
    assert!(report.segments_resealed > 0);
    let info = room.info().unwrap();
    assert_eq!((info.key_epoch, info.rekeying), (2, false));
    assert_eq!(contents(&room), before);
    assert_whole(&room);
    stir(&room, &mut Dice(32), 50);
    let before = contents(&room);
    room.close().unwrap();
    let room = place.open();
    assert_eq!(contents(&room), before);
    assert_whole(&room);
    room.close().unwrap();
    let raw = Credential::RawKey(Secret::from(vec![7; 32]));
    assert!(matches!(
        Room::open(&place.room_dir(), &raw, place.options()),
        Err(Error::WrongCredential(_))
    ));
    let restored = Room::header_restore(&place.room_dir(), &old_header, &credential());
    assert!(restored.is_err(), "the old key opened the catalog");
}

#[test]
fn a_rekey_stopped_or_killed_goes_on_where_it_was() {
    let place = Place::new();
    let room = place.create();
    stir(&room, &mut Dice(41), 150);
    room.write_file("/long", &pattern(42, 20 << 20)).unwrap();
    let before = contents(&room);
    let report = room.rekey(&credential(), &|_, _| false).unwrap();
    assert!(
        !report.finished && room.info().unwrap().rekeying,
        "{report:?}"
    );
    let crashed = Place::new();
    copy_tree(&place.room_dir(), &crashed.room_dir());
    assert_eq!(contents(&room), before);
    assert_whole(&room);
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    assert_eq!(contents(&room), before);
    assert_whole(&room);
    let room = crashed.open();
    assert_eq!(contents(&room), before);
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    assert!(!room.info().unwrap().rekeying);
    assert_whole(&room);
    let raw = room::NewCredential::RawKey(Secret::from(vec![9; 32]));
    room.add_slot(raw, "new").unwrap();
    let second = room.rekey(&credential(), GO).unwrap();
    assert!(
        second.finished && room.info().unwrap().key_epoch == 3,
        "{second:?}"
    );
    assert_eq!(contents(&room), before);
}

#[test]
fn a_wrong_credential_begins_no_rekey() {
    let place = Place::new();
    let room = place.create();
    let wrong = Credential::Passphrase(Secret::from(b"wrong".to_vec()));
    assert!(matches!(
        room.rekey(&wrong, GO),
        Err(Error::WrongCredential(_))
    ));
    assert_eq!(room.info().unwrap().key_epoch, 1);
    room.write_file("/a", b"x").unwrap();
    room.close().unwrap();
    place.open();
}

#[test]
fn maintenance_that_changes_is_refused_in_a_room_opened_for_reading() {
    let place = Place::new();
    let room = place.create();
    room.make(InodeNo::ROOT, b"a", &NewFile::of_kind(FileKind::Regular))
        .unwrap();
    room.write_file("/a", &pattern(1, 50_000)).unwrap();
    room.close().unwrap();
    let options = OpenOptions {
        read_only: true,
        ..place.options()
    };
    let room = Room::open(&place.room_dir(), &credential(), options).unwrap();
    assert!(matches!(room.compact(50, GO), Err(Error::ReadOnly)));
    assert!(matches!(
        room.rekey(&credential(), GO),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(room.check(true, true, GO), Err(Error::ReadOnly)));
    assert_whole(&room);
    let target = place.dir.path().join("copy");
    room.backup(&target, GO).unwrap();
    assert_eq!(
        contents(&Room::open(&target, &credential(), place.options()).unwrap()),
        contents(&room)
    );
}

#[test]
fn everything_at_once_loses_nothing() {
    let place = Place::new();
    let room = place.create();
    let steady = pattern(51, 6 << 20);
    room.write_file("/steady", &steady).unwrap();
    stir(&room, &mut Dice(52), 60);
    let target = place.dir.path().join("copy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let going = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        others.push(scope.spawn(|| {
            let mut dice = Dice(53);
            while going() {
                stir(&room, &mut dice, 10);
            }
        }));
        others.push(scope.spawn(|| {
            while going() {
                assert_eq!(room.read_file("/steady").unwrap(), steady);
            }
        }));
        others.push(scope.spawn(|| {
            while going() {
                let report = room.check(true, false, GO).unwrap();
                assert!(
                    report.findings.is_empty() && report.lost.is_empty(),
                    "{report:?}"
                );
            }
        }));
        others.push(scope.spawn(|| {
            while going() {
                room.backup(&target, GO).unwrap();
            }
        }));
        others.push(scope.spawn(|| {
            while going() {
                room.compact(80, GO).unwrap();
            }
        }));
        for _ in 0..3 {
            let report = room.rekey(&credential(), GO).unwrap();
            assert!(report.finished, "{report:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for other in others {
            other.join().unwrap();
        }
    });
    assert_eq!(room.info().unwrap().key_epoch, 4);
    assert_whole(&room);
    let before = contents(&room);
    room.backup(&target, GO).unwrap();
    room.close().unwrap();
    assert_eq!(contents(&place.open()), before);
    let copy = Room::open(&target, &credential(), Place::new().options()).unwrap();
    assert_whole(&copy);
    assert_eq!(contents(&copy), before);
}

#[test]
fn compaction_killed_at_any_step_leaves_a_whole_room() {
    let place = Place::new();
    let room = place.create();
    stir(&room, &mut Dice(61), 100);
    let no = room.open_or_make_file("/long").unwrap().inode();
    for n in 0..24 {
        room.write(no, n << 20, &pattern(n, 1 << 20)).unwrap();
        room.write_file("/gone", &pattern(n, 500_000)).unwrap();
        room.sync().unwrap();
    }
    let clone = room.open_or_make_file("/clone").unwrap().inode();
    room.copy_range(no, 0, clone, 8192, 20 << 20).unwrap();
    stir(&room, &mut Dice(62), 100);
    let before = contents(&room);
    room.sync().unwrap();
    let copies = std::sync::Mutex::new(Vec::new());
    let crash = |_, _| {
        let crashed = Place::new();
        copy_tree(&place.room_dir(), &crashed.room_dir());
        copies.lock().unwrap().push(crashed);
        true
    };
    room.compact(100, &crash).unwrap();
    let copies = copies.into_inner().unwrap();
    assert!(copies.len() > 4, "{}", copies.len());
    for crashed in copies {
        let room = crashed.open();
        assert_eq!(contents(&room), before);
        assert_whole(&room);
    }
}
