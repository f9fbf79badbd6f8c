//! Whole rooms on network disks: opening them, and backups.

use super::*;

#[test]
fn notes_are_kept_beside_the_files() {
    let shared = Shared::new();
    assert_eq!(shared.room.note("disks").unwrap(), None);
    shared.room.set_note("disks", b"two").unwrap();
    // The catalog's own names are no notes.
    assert_eq!(shared.room.note("last_segment").unwrap(), None);
    assert!(shared.room.set_note("", b"").is_err());
    assert!(shared.room.note(&"n".repeat(65)).is_err());
    assert!(
        shared
            .room
            .set_note("big", &vec![0; (16 << 20) + 1])
            .is_err()
    );
    let shared = shared.crash(MemoryStorage::power_cut);
    assert_eq!(shared.room.note("disks").unwrap().unwrap(), b"two");
    shared.assert_whole();
}

#[test]
fn a_room_on_network_disks_is_not_opened_without_them() {
    let shared = Shared::new();
    shared.room.write_file("/f", b"f").unwrap();
    shared.room.close().unwrap();
    let alone = |read_only| OpenOptions {
        read_only,
        ..stored::options()
    };
    let storage: Arc<dyn Storage> = Arc::new(shared.memory.clone());
    for read_only in [false, true] {
        assert!(matches!(
            stored::open_on(storage.clone(), alone(read_only)),
            Err(Error::OnNetworkDisks)
        ));
    }
    assert!(matches!(
        Room::examine_on(storage.clone(), &stored::key()),
        Err(Error::OnNetworkDisks)
    ));
    let shared = Shared::open(shared.memory);
    shared.assert_whole();
}

/// A segment that is copied while a borrower has a place in it gets more blocks below those that the copy has.
#[test]
fn a_backup_has_committed_extents_and_the_next_one_later_ones() {
    let shared = Shared::new();
    let (a, b) = (shared.file("/a"), shared.file("/b"));
    let (late, early) = (
        shared.room.grant(0, 64).unwrap(),
        shared.room.grant(0, 64).unwrap(),
    );
    assert_eq!(late.segment, early.segment);
    assert!(late.position < early.position);
    let extents = shared.borrow(&early, 0, 0, &plain(100_000, 1));
    shared.room.place(early.id, b, &[extents]).unwrap();
    shared.room.settle_grant(early.id);
    let target = MemoryStorage::new();
    let backup = || {
        shared
            .room
            .backup_on(Arc::new(target.clone()), &|_, _| true)
            .unwrap()
    };
    let alone =
        || stored::open_on(Arc::new(target.clone()), stored::options().for_reading()).unwrap();
    backup();
    {
        let copy = alone();
        assert!(copy.read_file("/b").unwrap() == plain(100_000, 1));
        assert_eq!(copy.read_file("/a").unwrap(), b"");
    }
    let extents = shared.borrow(&late, 0, 0, &plain(100_000, 2));
    shared.room.place(late.id, a, &[extents]).unwrap();
    shared.room.settle_grant(late.id);
    backup();
    {
        let copy = alone();
        assert!(copy.read_file("/b").unwrap() == plain(100_000, 1));
        assert!(copy.read_file("/a").unwrap() == plain(100_000, 2));
        sound(&copy);
    }
    // Nothing is written there any more.
    let report = backup();
    assert_eq!(report.segments_copied, 0, "{report:?}");
    shared.assert_whole();
}

#[test]
fn a_room_that_holds_data_is_not_taken_for_one_on_network_disks() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let room = stored::create_on(storage.clone(), stored::options());
    assert!(matches!(room.grant(0, 1), Err(Error::NotSupported(_))));
    room.write_file("/f", b"f").unwrap();
    room.close().unwrap();
    assert!(matches!(
        stored::open_on(storage.clone(), options()),
        Err(Error::NotOnNetworkDisks)
    ));
    let room = stored::open_on(storage, stored::options()).unwrap();
    assert_eq!(room.read_file("/f").unwrap(), b"f");
}
