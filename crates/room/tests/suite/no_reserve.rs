//! The catalog's log gets no more space, at every change of an operation: as for a user at a disk quota, whom the storage still reports
//! much space.

use std::sync::Arc;

use crate::common::stored::{create_on, open_on, options};
use crate::common::{file, no, pattern, snapshot, sound};
use room::restore::Wanted;
use room::{Error, FileSystem as _, InodeNo, Room, SetAttr, Snapshots as _, XattrMode};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};

type Disk = FaultyStorage<MemoryStorage>;

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;
const CHUNK: u64 = 1 << 20;
/// As many small changes as the log takes without space, and one more.
const CHANGES: usize = 6;

fn new_room(disk: &Disk) -> Room {
    create_on(Arc::new(disk.clone()), options())
}

fn again(disk: &Disk) -> Room {
    open_on(Arc::new(disk.clone()), options()).unwrap()
}

fn set_size(room: &Room, no: InodeNo, size: u64) -> room::Result<()> {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    room.set_attributes(no, &set).map(drop)
}

/// Lets the log have no more space after so many changes of a file that no snapshot knows.
fn refuse_behind(disk: &Disk, room: &Room, changes: usize) {
    disk.refuse(Op::Allocate, 1, Fault::NoSpace, Times::Always);
    for n in 0..changes {
        let name = format!("user.{n}");
        let set = room.set_xattr(
            no(room, "/spare"),
            name.as_bytes(),
            b"1",
            XattrMode::Any,
            false,
        );
        assert!(matches!(set, Ok(()) | Err(Error::NoSpace)), "{set:?}");
    }
}

/// Closes the room with the file for that, and opens it again: nothing is reserved for its log then.
fn reopened(disk: &Disk, room: Room) -> Room {
    file(&room, "spare");
    room.close().unwrap();
    again(disk)
}

/// Before a room was closed that found no space, what its catalog had was committed: maps of data that nobody had flushed, and without
/// their segments, which the next opening removed.
#[test]
fn what_finds_no_space_is_not_committed_in_part() {
    const FILES: u64 = 70;
    let disk = Disk::new(MemoryStorage::new());
    let room = new_room(&disk);
    room.write_file("/f", &pattern(1, 100_000)).unwrap();
    for n in 0..FILES {
        file(&room, &n.to_string());
    }
    let room = reopened(&disk, room);
    room.write(no(&room, "/f"), 0, &pattern(2, 100_000))
        .unwrap();
    // The catalog has the map of that; the maps of the others are too many for what is reserved.
    room.prepare().unwrap();
    for n in 0..FILES {
        room.write(no(&room, &format!("/{n}")), 0, b"1").unwrap();
    }
    refuse_behind(&disk, &room, 0);
    let unsaved = room.commit_or_list().unwrap();
    disk.inner().power_cut();
    disk.heal();
    drop(room);
    let room = again(&disk);
    assert!(room.read_file("/f").unwrap() == pattern(1, 100_000));
    assert!(unsaved.changes, "{unsaved:?}");
    sound(&room);
}

/// A truncation that found no space half-way left zeros in a file that kept its length.
#[test]
fn a_file_that_cannot_be_cut_as_far_as_wanted_has_all_of_what_is_left() {
    const SIZE: u64 = CHUNK + 5 * BLOCK + 100;
    let mut refused = 0;
    for changes in 0..CHANGES {
        let disk = Disk::new(MemoryStorage::new());
        let room = new_room(&disk);
        let data = pattern(1, 3_000_000);
        room.write_file("/f", &data).unwrap();
        snapshot(&room, "s");
        let room = reopened(&disk, room);
        refuse_behind(&disk, &room, changes);
        let cut = set_size(&room, no(&room, "/f"), SIZE);
        disk.heal();
        let size = match cut {
            Ok(()) => SIZE..=SIZE,
            Err(e) => {
                assert!(matches!(e, Error::NoSpace), "{e:?}");
                refused += 1;
                SIZE + 1..=data.len() as u64
            }
        };
        let mut room = room;
        for _ in 0..2 {
            let found = room.read_file("/f").unwrap();
            assert!(
                size.contains(&(found.len() as u64)),
                "{changes}: {}",
                found.len()
            );
            assert!(found == data[..found.len()], "{changes}");
            room.sync().unwrap();
            sound(&room);
            room.close().unwrap();
            room = again(&disk);
        }
        let f = no(&room, "/f");
        set_size(&room, f, SIZE).unwrap();
        set_size(&room, f, data.len() as u64).unwrap();
        let found = room.read_file("/f").unwrap();
        let (kept, zeros) = found.split_at(SIZE as usize);
        assert!(kept == &data[..SIZE as usize] && zeros.iter().all(|byte| *byte == 0));
        let view = room.snapshot("s").unwrap();
        let mut then = vec![0; data.len()];
        view.read(f, 0, &mut then).unwrap();
        assert!(then == data);
        sound(&room);
    }
    assert!(refused > 2, "{refused}");
}

/// Space was lost until a repair: a unit was counted once more for a reference that then found no space, and what was sealed for one
/// stayed alive.
#[test]
fn what_finds_no_space_leaves_every_count_right() {
    type Operation = fn(&Room, InodeNo, InodeNo) -> room::Result<()>;
    let operations: [(&str, Operation); 3] = [
        ("write", |room, f, _| {
            room.write(f, 5 * BLOCK, &pattern(7, 4096))?;
            room.sync()
        }),
        ("copy", |room, f, other| {
            room.copy_range(other, 4 * BLOCK, f, 5 * BLOCK, BLOCK)
                .map(drop)
        }),
        ("restore", |room, f, other| {
            room.copy_from_snapshot("s", other, f)
        }),
    ];
    for (name, operation) in operations {
        let mut refused = 0;
        for changes in 0..CHANGES {
            let disk = Disk::new(MemoryStorage::new());
            let room = new_room(&disk);
            room.write_file("/f", &pattern(1, 100_000)).unwrap();
            room.write_file("/other", &pattern(2, 100_000)).unwrap();
            snapshot(&room, "s");
            let room = reopened(&disk, room);
            let (f, other) = (no(&room, "/f"), no(&room, "/other"));
            refuse_behind(&disk, &room, changes);
            let done = operation(&room, f, other);
            disk.heal();
            refused += usize::from(done.is_err());
            room.sync().unwrap();
            println!("{name} behind {changes} changes: {done:?}");
            sound(&room);
            for gone in ["f", "other"] {
                room.unlink(ROOT, gone.as_bytes()).unwrap();
            }
            room.delete_snapshot("s").unwrap();
            room.tend().unwrap();
            assert_eq!(room.space().unwrap().live, 0);
            sound(&room);
        }
        assert!(refused > 0, "{name}");
    }
}

/// A copy over the border of two chunks found no space for its second part: the first was behind the end of the file, and came to
/// light when that grew.
#[test]
fn nothing_is_behind_the_end_of_a_file_after_half_a_copy() {
    let disk = Disk::new(MemoryStorage::new());
    let room = new_room(&disk);
    let data = pattern(1, CHUNK as usize);
    room.write_file("/f", &data).unwrap();
    let copy = file(&room, "copy");
    let room = reopened(&disk, room);
    refuse_behind(&disk, &room, 0);
    let copied = room.copy_range(no(&room, "/f"), 0, copy, CHUNK - BLOCK, CHUNK);
    assert!(matches!(copied, Err(Error::NoSpace)), "{copied:?}");
    disk.heal();
    let size = room.attributes(copy).unwrap().size;
    assert_eq!(size, CHUNK);
    set_size(&room, copy, 2 * CHUNK).unwrap();
    let found = room.read_file("/copy").unwrap();
    let mut expected = vec![0; 2 * CHUNK as usize];
    expected[(CHUNK - BLOCK) as usize..CHUNK as usize].copy_from_slice(&data[..BLOCK as usize]);
    assert!(found == expected);
    room.sync().unwrap();
    sound(&room);
}

/// Where there was no space for the deletion of a file, it kept its own until the room was opened again, and a closing committed
/// nothing.
#[test]
fn a_file_whose_deletion_finds_no_space_goes_when_there_is_some() {
    const CHUNKS: u64 = 130;
    let disk = Disk::new(MemoryStorage::new());
    let room = new_room(&disk);
    let f = file(&room, "f");
    for n in 0..CHUNKS {
        room.write(f, n * CHUNK, &pattern(n, 4096)).unwrap();
    }
    let room = reopened(&disk, room);
    refuse_behind(&disk, &room, 0);
    room.unlink(ROOT, b"f").unwrap();
    assert!(matches!(room.tend(), Err(Error::NoSpace)));
    disk.heal();
    room.tend().unwrap();
    assert_eq!(room.space().unwrap().live, 0);
    sound(&room);

    let f = file(&room, "f");
    for n in 0..CHUNKS {
        room.write(f, n * CHUNK, &pattern(n, 4096)).unwrap();
    }
    room.close().unwrap();
    let room = again(&disk);
    disk.refuse(Op::Allocate, 1, Fault::NoSpace, Times::Always);
    room.write_file("/new", b"new").unwrap();
    room.unlink(ROOT, b"f").unwrap();
    disk.heal();
    // Both calls for the first round of the deletion, twice.
    for nth in 1..=4 {
        disk.refuse(Op::Allocate, nth, Fault::NoSpace, Times::Once);
    }
    let _ = room.close();
    disk.heal();
    let room = again(&disk);
    assert_eq!(room.read_file("/new").unwrap(), b"new");
    room.tend().unwrap();
    sound(&room);
}

/// A restore that finds no space, wherever that is, leaves all that was there, and succeeds when there is some.
#[test]
fn a_restore_that_finds_no_space_can_be_tried_again() {
    let (then, now) = (pattern(1, 2_500_000), pattern(2, 100_000));
    let check = |room: &Room, f: &[u8], has_g: bool| {
        assert!(room.read_file("/d/f").unwrap() == f);
        assert_eq!(room.read_file("/d/e/g").is_ok(), has_g);
        sound(room);
    };
    let restore = |room: &Room| {
        let wanted = Wanted {
            snapshot: 1,
            path: "/d".as_ref(),
            to: "/d".as_ref(),
            replaces: true,
            follows: true,
        };
        let prepared = room::restore::prepare(room, &wanted, &|_, _| true)?;
        prepared.swap()?.finish(&|_, _, remove| remove())
    };
    let mut refused = 0;
    for nth in 1.. {
        let disk = Disk::new(MemoryStorage::new());
        let room = new_room(&disk);
        room.make_dir("/d/e", true).unwrap();
        room.write_file("/d/f", &then).unwrap();
        room.write_file("/d/e/g", b"g").unwrap();
        snapshot(&room, "s");
        room.write_file("/d/f", &now).unwrap();
        room.unlink(no(&room, "/d/e"), b"g").unwrap();
        let room = reopened(&disk, room);
        disk.refuse_any(nth, Fault::NoSpace, Times::Always);
        let restored = restore(&room).and_then(|_| room.sync());
        let befell = disk.refused() > 0;
        disk.heal();
        disk.inner().power_cut();
        drop(room);
        let room = again(&disk);
        match restored {
            Ok(()) => check(&room, &then, true),
            Err(_) => {
                refused += 1;
                let found = room.read_file("/d/f").unwrap();
                let is_done = found == then;
                check(&room, if is_done { &then } else { &now }, is_done);
                restore(&room).unwrap();
                check(&room, &then, true);
            }
        }
        if !befell {
            break;
        }
    }
    assert!(refused > 5, "{refused}");
}
