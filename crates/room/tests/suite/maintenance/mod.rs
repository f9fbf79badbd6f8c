//! Compaction, check, backup and rekey of real rooms: whatever they do, every file stays what it was.
mod backup;
mod rekey;

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Place, copy_tree, credential, pattern, sound};
use fastrand::Rng;
use room::{
    Credential, Error, Fallocate, FileKind, FileSystem as _, InodeNo, NewFile, OpenOptions,
    Progress, Room, Secret,
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

/// Random changes, full of clones, holes and overwrites.
fn stir(room: &Room, dice: &mut Rng, rounds: usize) {
    let _ = room.make_dir("/d", true);
    for _ in 0..rounds {
        let name = |n: u64| {
            if n < 4 {
                format!("/f{n}")
            } else {
                format!("/d/f{n}")
            }
        };
        let (a, b) = (name(dice.u64(..8)), name(dice.u64(..8)));
        let open = |path: &str| room.open_or_make_file(path).unwrap().inode();
        match dice.u64(..10) {
            0..=2 => {
                let (at, len) = (dice.u64(..3 << 20), dice.u64(..400_000) + 1);
                room.write(open(&a), at, &pattern(dice.u64(..1 << 40), len as usize))
                    .unwrap();
            }
            3 => {
                let (at, len) = (dice.u64(..2 << 20), dice.u64(..3000) + 1);
                room.write(open(&a), at, &pattern(dice.u64(..1 << 40), len as usize))
                    .unwrap();
            }
            4..=6 => {
                let (from, to) = (open(&a), open(&b));
                if from != to {
                    let (at, to_at) = (dice.u64(..400) * 4096, dice.u64(..400) * 4096);
                    room.copy_range(from, at, to, to_at, dice.u64(..300) * 4096)
                        .unwrap();
                }
            }
            7 => {
                let (at, len) = (dice.u64(..2 << 20), dice.u64(..500_000) + 1);
                room.fallocate(open(&a), Fallocate::PunchHole, at, len)
                    .unwrap();
            }
            8 => {
                let no = open(&a);
                let size = room.attributes(no).unwrap().size;
                let (at, len) = (dice.u64(..200) * 4096, (dice.u64(..40) + 1) * 4096);
                if at + len < size {
                    let what = if dice.bool() {
                        Fallocate::Collapse
                    } else {
                        Fallocate::Insert
                    };
                    room.fallocate(no, what, at, len).unwrap();
                }
            }
            _ => match dice.u64(..3) {
                0 => {
                    let path = Path::new(&a);
                    let (parent, name) = room.resolve_parent(path).unwrap();
                    let _ = room.unlink(parent, name);
                }
                1 => room.sync().unwrap(),
                _ => {
                    let set = room::SetAttr {
                        size: Some(dice.u64(..3 << 20)),
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
    let (place, room) = Place::with_room();
    sound(&room);
    stir(&room, &mut Rng::with_seed(1), 300);
    let report = sound(&room);
    assert!(
        report.files > 0 && report.directories == 2 && report.bytes_read > 0,
        "{report:?}"
    );
    room.close().unwrap();
    sound(&place.open());
}

#[test]
fn compacting_moves_everything_and_changes_nothing() {
    for seed in [2, 3, 4] {
        let (place, room) = Place::with_room();
        let mut dice = Rng::with_seed(seed);
        for _ in 0..4 {
            stir(&room, &mut dice, 120);
            let before = contents(&room);
            let report = room.compact(100, GO).unwrap();
            assert_eq!(report.unreadable, [] as [String; 0]);
            assert_eq!(contents(&room), before, "seed {seed}");
            sound(&room);
        }
        let before = contents(&room);
        let room = place.reopen(room);
        assert_eq!(contents(&room), before, "seed {seed}");
        sound(&room);
    }
}

#[test]
fn compacting_keeps_clones_shared_and_gives_space_back() {
    let (_place, room) = Place::with_room();
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
    sound(&room);
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
    sound(&room);
}

#[test]
fn compacting_while_files_are_written_loses_nothing() {
    let (place, room) = Place::with_room();
    stir(&room, &mut Rng::with_seed(7), 100);
    room.sync().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut dice = Rng::with_seed(8);
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
    sound(&room);
    let before = contents(&room);
    room.close().unwrap();
    assert_eq!(contents(&place.open()), before);
}

#[test]
fn a_segment_left_empty_at_closing_goes_with_the_next_compaction() {
    let (place, room) = Place::with_room();
    room.write_file("/a", &pattern(1, 100_000)).unwrap();
    room.sync().unwrap();
    room.write_file("/a", b"").unwrap();
    let room = place.reopen(room);
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
fn maintenance_that_changes_is_refused_in_a_room_opened_for_reading() {
    let (place, room) = Place::with_room();
    room.make(InodeNo::ROOT, b"a", &NewFile::of_kind(FileKind::Regular))
        .unwrap();
    room.write_file("/a", &pattern(1, 50_000)).unwrap();
    room.close().unwrap();
    let room = Room::open(
        &place.room_dir(),
        &credential(),
        place.options().for_reading(),
    )
    .unwrap();
    assert!(matches!(room.compact(50, GO), Err(Error::ReadOnly)));
    assert!(matches!(
        room.rekey(&credential(), GO),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(room.check(true, true, GO), Err(Error::ReadOnly)));
    sound(&room);
    let target = place.dir.path().join("copy");
    room.backup(&target, GO).unwrap();
    assert_eq!(
        contents(&Room::open(&target, &credential(), place.options()).unwrap()),
        contents(&room)
    );
}

#[test]
fn everything_at_once_loses_nothing() {
    let (place, room) = Place::with_room();
    let steady = pattern(51, 6 << 20);
    room.write_file("/steady", &steady).unwrap();
    stir(&room, &mut Rng::with_seed(52), 60);
    let target = place.dir.path().join("copy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let going = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        others.push(scope.spawn(|| {
            let mut dice = Rng::with_seed(53);
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
                sound(&room);
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
    sound(&room);
    let before = contents(&room);
    room.backup(&target, GO).unwrap();
    room.close().unwrap();
    assert_eq!(contents(&place.open()), before);
    let copy = Room::open(&target, &credential(), Place::new().options()).unwrap();
    sound(&copy);
    assert_eq!(contents(&copy), before);
}

#[test]
fn compaction_killed_at_any_step_leaves_a_whole_room() {
    let (place, room) = Place::with_room();
    stir(&room, &mut Rng::with_seed(61), 100);
    let no = room.open_or_make_file("/long").unwrap().inode();
    for n in 0..24 {
        room.write(no, n << 20, &pattern(n, 1 << 20)).unwrap();
        room.write_file("/gone", &pattern(n, 500_000)).unwrap();
        room.sync().unwrap();
    }
    let clone = room.open_or_make_file("/clone").unwrap().inode();
    room.copy_range(no, 0, clone, 8192, 20 << 20).unwrap();
    stir(&room, &mut Rng::with_seed(62), 100);
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
        sound(&room);
    }
}
