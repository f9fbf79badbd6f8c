//! Rekeys, whole, interrupted and refused.

use super::*;

#[test]
fn a_rekey_reencrypts_everything_and_the_old_header_opens_nothing() {
    let (place, room) = Place::with_room();
    room.add_slot(
        room::NewCredential::RawKey(Secret::from(vec![7; 32])),
        "other",
    )
    .unwrap();
    stir(&room, &mut Rng::with_seed(31), 200);
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
    sound(&room);
    stir(&room, &mut Rng::with_seed(32), 50);
    let before = contents(&room);
    let room = place.reopen(room);
    assert_eq!(contents(&room), before);
    sound(&room);
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
    let (place, room) = Place::with_room();
    stir(&room, &mut Rng::with_seed(41), 150);
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
    sound(&room);
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    assert_eq!(contents(&room), before);
    sound(&room);
    let room = crashed.open();
    assert_eq!(contents(&room), before);
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    assert!(!room.info().unwrap().rekeying);
    sound(&room);
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
    let (place, room) = Place::with_room();
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
