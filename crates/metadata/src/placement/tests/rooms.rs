//! Rooms over the placement.

use room::{Credential, NewCredential, NewRoom, OpenOptions, Room, Secret};

use super::*;

fn options() -> OpenOptions {
    OpenOptions {
        commit_interval_ms: 0,
        background: false,
        placed: true,
        ..OpenOptions::default()
    }
}

fn key() -> Secret {
    Secret::from(vec![7; 32])
}

pub(super) fn made(storage: &NetStorage) -> Room {
    let mut new = NewRoom::with_credential(NewCredential::RawKey(key()));
    new.open = options();
    Room::create_on(Arc::new(storage.clone()), new).unwrap()
}

pub(super) fn opened(storage: &NetStorage) -> Room {
    let key = Credential::RawKey(key());
    Room::open_on(Arc::new(storage.clone()), &key, options()).unwrap()
}

pub(super) fn content(seed: u8) -> Vec<u8> {
    (0..3_000_001_usize)
        .map(|i| (i / BLOCK_LEN) as u8 ^ seed ^ (i % 251) as u8)
        .collect()
}

#[track_caller]
pub(super) fn assert_whole(room: &Room) {
    let report = room.check(true, false, &|_, _| true).unwrap();
    assert!(
        report.findings.is_empty() && report.lost.is_empty(),
        "{report:?}"
    );
}

#[test]
fn a_room_lives_on_disks() {
    let bench = Bench::new(2, 8);
    let storage = bench.attached();
    let room = made(&storage);
    for n in 0..20 {
        room.write_file(format!("/{n}"), &content(n)).unwrap();
    }
    room.sync().unwrap();
    assert_eq!(
        bench
            .disks
            .iter()
            .filter(|d| !d.state.lock().durable.is_empty())
            .count(),
        1
    );
    let loan = room.lend(0, 8).unwrap();
    assert_ne!(
        bench.disk_of(&storage, loan.segment.0).id,
        bench.disk_of(&storage, 1).id
    );
    room.settle_loan(loan.id);
    for n in 0..19 {
        room.unlink(room::InodeNo::ROOT, n.to_string().as_bytes())
            .unwrap();
    }
    room.close().unwrap();
    // Without its disks it opens, and says what is missing.
    let alone = bench.open();
    let room = opened(&alone);
    let missing = room.read_file("/19").unwrap_err();
    assert!(
        matches!(&missing, room::Error::Io(e) if e.kind() == io::ErrorKind::NotConnected),
        "{missing}"
    );
    bench.attach(&alone);
    assert!(room.read_file("/19").unwrap() == content(19));
    assert_whole(&room);
    room.compact(90, &|_, _| true).unwrap();
    room.tend().unwrap();
    assert_whole(&room);
    assert_eq!(alone.release(), 0);
    assert_eq!(alone.list(SEGMENTS_DIR).unwrap().len(), 1);
    room.close().unwrap();
    let storage = bench.attached();
    let room = opened(&storage);
    assert!(room.read_file("/19").unwrap() == content(19));
    assert!(
        !bench
            .host
            .list("")
            .unwrap()
            .contains(&"placement.new".into())
    );
    assert!(bench.host.list(SEGMENTS_DIR).unwrap().is_empty());
}

#[test]
fn a_disk_that_loses_power_costs_nothing_that_was_acknowledged() {
    let bench = Bench::new(2, 8);
    let storage = bench.attached();
    let room = made(&storage);
    room.write_file("/kept", &content(1)).unwrap();
    room.sync().unwrap();
    room.write_file("/lost", &content(2)).unwrap();
    bench.disk_of(&storage, 1).lose_power();
    assert!(room.sync().is_err());
    assert!(matches!(room.sync(), Err(room::Error::Poisoned)));
    drop(room);
    let storage = bench.attached();
    let room = opened(&storage);
    assert!(room.read_file("/kept").unwrap() == content(1));
    assert!(room.read_file("/lost").is_err());
    assert_whole(&room);
    room.write_file("/again", &content(3)).unwrap();
    room.sync().unwrap();
    bench.disks.iter().for_each(|disk| disk.lose_power());
    assert!(room.read_file("/again").unwrap() == content(3));
}

#[test]
fn a_full_disk_is_no_space_and_deleting_makes_some() {
    let bench = Bench::new(1, 2);
    let storage = bench.attached();
    let room = made(&storage);
    let mut n = 0;
    let full = loop {
        match room.write_file(format!("/{n}"), &content(n)) {
            Ok(()) => n += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(full, room::Error::NoSpace), "{full}");
    for n in 0..=n {
        let _ = room.unlink(room::InodeNo::ROOT, n.to_string().as_bytes());
    }
    room.tend().unwrap();
    storage.release();
    room.write_file("/again", &content(1)).unwrap();
    room.sync().unwrap();
    assert_whole(&room);
}
