//! Transactions: whole or not at all. What every crash within one leaves is the explorer's to see (`together`).

use crate::common;
use crate::common::{Place, copy_tree, pattern, sound};
use room::{Error, FileSystem as _, Room};

/// The room as a crash at this moment would leave it.
struct Crashed {
    room: Room,
    /// Removed after the room is closed, which writes there.
    _place: Place,
}

fn crashed(place: &Place) -> Crashed {
    let copy = Place::new();
    copy_tree(&place.room_dir(), &copy.room_dir());
    Crashed {
        room: copy.open(),
        _place: copy,
    }
}

#[test]
fn what_is_done_within_one_is_there_after_its_completion_and_what_came_before_at_once() {
    let (place, room) = Place::with_room();
    room.write_file("/before", b"1").unwrap();
    room.begin().unwrap();
    room.write_file("/within", b"2").unwrap();
    room.sync().unwrap();
    room.open_file("/within").unwrap().sync().unwrap();
    let found = crashed(&place);
    assert_eq!(found.room.read_file("/before").unwrap(), b"1");
    assert!(matches!(
        found.room.read_file("/within"),
        Err(Error::NotFound)
    ));
    assert_eq!(room.read_file("/within").unwrap(), b"2");
    room.complete().unwrap();
    let found = crashed(&place);
    assert_eq!(found.room.read_file("/within").unwrap(), b"2");
    room.close().unwrap();
}

#[test]
fn of_one_in_another_the_outer_counts() {
    let (place, room) = Place::with_room();
    room.begin().unwrap();
    room.begin().unwrap();
    room.write_file("/a", b"1").unwrap();
    room.complete().unwrap();
    assert!(room.in_transaction());
    assert!(matches!(
        crashed(&place).room.read_file("/a"),
        Err(Error::NotFound)
    ));
    room.complete().unwrap();
    assert!(!room.in_transaction());
    assert_eq!(crashed(&place).room.read_file("/a").unwrap(), b"1");
    assert!(matches!(room.complete(), Err(Error::InvalidArgument(_))));
    room.close().unwrap();
}

#[test]
fn a_room_that_is_closed_within_one_has_nothing_of_it() {
    let (place, room) = Place::with_room();
    room.write_file("/a", b"old").unwrap();
    room.begin().unwrap();
    room.write_file("/a", b"new").unwrap();
    room.write_file("/b", &pattern(1, 300_000)).unwrap();
    assert!(matches!(room.close(), Err(Error::InTransaction)));
    let room = place.open();
    assert_eq!(room.read_file("/a").unwrap(), b"old");
    assert!(matches!(room.read_file("/b"), Err(Error::NotFound)));
    sound(&room);
    room.close().unwrap();
}

/// More inodes than memory should hold go to the catalog meanwhile, and still none is there before the end.
#[test]
fn one_with_very_many_files_is_as_whole_as_a_small_one() {
    const FILES: usize = 20_000;
    let (place, room) = Place::with_room();
    room.begin().unwrap();
    for i in 0..FILES {
        room.write_file(format!("/{i}"), &[i as u8]).unwrap();
    }
    assert_eq!(crashed(&place).room.info().unwrap().space.inodes, 1);
    room.complete().unwrap();
    let found = crashed(&place);
    assert_eq!(found.room.info().unwrap().space.inodes, FILES as u64 + 1);
    assert_eq!(found.room.read_file("/777").unwrap(), [777_usize as u8]);
    room.close().unwrap();
}

#[test]
fn keys_backup_check_and_compaction_wait_for_its_end() {
    let (place, room) = Place::with_room();
    room.begin().unwrap();
    room.write_file("/a", b"1").unwrap();
    let target = place.dir.path().join("backup");
    let refused = [
        room.add_slot(room::NewCredential::RawKey([7; 32].as_slice().into()), "")
            .map(drop),
        room.backup(&target, &|_, _| true).map(drop),
        room.check(true, true, &|_, _| true).map(drop),
        room.compact(100, &|_, _| true).map(drop),
        room.rekey(&common::credential(), &|_, _| true).map(drop),
        room.tend(),
    ];
    for (i, answer) in refused.iter().enumerate() {
        assert!(
            matches!(answer, Err(Error::InTransaction)),
            "{i}: {answer:?}"
        );
    }
    room.complete().unwrap();
    assert_eq!(room.slots().len(), 1);
    room.backup(&target, &|_, _| true).unwrap();
    room.close().unwrap();
    assert_eq!(place.open().read_file("/a").unwrap(), b"1");
}

#[test]
fn a_room_opened_for_reading_only_begins_none() {
    let place = Place::new();
    place.create().close().unwrap();
    let room = Room::open(
        &place.room_dir(),
        &common::credential(),
        place.options().for_reading(),
    )
    .unwrap();
    assert!(matches!(room.begin(), Err(Error::ReadOnly)));
}
