//! Long work on rooms with snapshots: compaction, rekey, backup, check and repair, and rooms opened for reading.

use std::fs;

use crate::common::{Place, credential, no, pattern, snapshot, sound};
use room::{
    CheckReport, Error, FileSystem, InodeNo, NewSnapshot, OpenOptions, Room, Snapshots as _,
};

const MIB: usize = 1 << 20;
const ROOT: InodeNo = InodeNo::ROOT;

fn file(room: &Room, snapshot: &str, name: &str) -> room::Result<Vec<u8>> {
    let view = room.snapshot(snapshot)?;
    let inode = view.lookup(ROOT, name.as_bytes())?;
    let mut data = vec![0; inode.size as usize];
    view.read(inode.no, 0, &mut data)?;
    Ok(data)
}

fn check(room: &Room, repair: bool) -> CheckReport {
    room.check(true, repair, &|_, _| true).unwrap()
}

/// The contents of `/f` at the snapshots `0` to `5` of a room whose segments all have holes.
struct Ragged(Vec<Vec<u8>>);

impl Ragged {
    fn fill(place: &Place) -> (Room, Self) {
        let mut room = place.create();
        let mut data = pattern(100, 3 * MIB);
        room.write_file("/f", &data).unwrap();
        room.write_file("/gone", &data).unwrap();
        let mut past = Vec::new();
        for n in 0..6 {
            snapshot(&room, &n.to_string());
            past.push(data.clone());
            for part in 0..40 {
                let at = (n * 7919 + part * 104_729) as usize % (3 * MIB - 20_000);
                let new = pattern(1000 + n * 100 + part, 1 + at % 20_000);
                room.write(no(&room, "/f"), at as u64, &new).unwrap();
                data[at..at + new.len()].copy_from_slice(&new);
            }
            room.write_file(format!("/passing{n}"), &pattern(n, 300_000))
                .unwrap();
            if n > 0 {
                room.unlink(ROOT, format!("passing{}", n - 1).as_bytes())
                    .unwrap();
            }
            // Another segment.
            room.close().unwrap();
            room = place.open();
        }
        room.unlink(ROOT, b"gone").unwrap();
        past.push(data);
        room.tend().unwrap();
        (room, Self(past))
    }

    fn compare(&self, room: &Room, deleted: &[usize]) {
        let (now, past) = self.0.split_last().unwrap();
        assert!(room.read_file("/f").unwrap() == *now);
        for (n, data) in past.iter().enumerate() {
            match deleted.contains(&n) {
                true => assert!(room.snapshot(&n.to_string()).is_err()),
                false => assert!(file(room, &n.to_string(), "f").unwrap() == *data, "{n}"),
            }
        }
    }

    /// Deletes all snapshots: each frees what it held alone.
    fn delete_all(&self, room: &Room) {
        for n in [3, 0, 5, 4, 1, 2] {
            let name = n.to_string();
            let Ok(all) = room.snapshot_space() else {
                unreachable!()
            };
            let Some((_, own)) = all.iter().find(|(s, _)| s.name == name) else {
                continue;
            };
            let before = room.space().unwrap().live;
            room.delete_snapshot(&name).unwrap();
            room.tend().unwrap();
            assert_eq!(before - room.space().unwrap().live, own.exclusive, "{name}");
            sound(room);
        }
        assert_eq!(room.held_by_snapshots().unwrap(), 0);
    }
}

#[test]
fn compaction_moves_what_snapshots_see_and_keeps_apart_what_they_hold() {
    let place = Place::new();
    let (room, ragged) = Ragged::fill(&place);
    sound(&room);
    let held = room.held_by_snapshots().unwrap();
    let view = room.snapshot("2").unwrap();
    let gone = view.lookup(ROOT, b"gone").unwrap().no;
    let segments = room.info().unwrap().segments;
    let report = room.compact(100, &|_, _| true).unwrap();
    assert!(report.bytes_moved > 0 && report.unreadable.is_empty());
    assert!(room.info().unwrap().segments < segments);
    ragged.compare(&room, &[]);
    sound(&room);
    assert!(room.held_by_snapshots().unwrap() <= held);
    let mut data = vec![0; 3 * MIB];
    view.read(gone, 0, &mut data).unwrap();
    assert!(data == pattern(100, 3 * MIB));
    room.delete_snapshot("1").unwrap();
    room.compact(100, &|_, _| true).unwrap();
    room.tend().unwrap();
    ragged.compare(&room, &[1]);
    sound(&room);
    ragged.delete_all(&room);
}

#[test]
fn a_rekey_leaves_nothing_of_a_snapshot_under_the_old_key() {
    let place = Place::new();
    let (room, ragged) = Ragged::fill(&place);
    room.delete_snapshot("4").unwrap();
    let report = room.rekey(&credential(), &|_, _| true).unwrap();
    assert!(report.finished && report.unreadable.is_empty());
    ragged.compare(&room, &[4]);
    let room = place.reopen(room);
    assert!(!room.info().unwrap().rekeying);
    room.tend().unwrap();
    ragged.compare(&room, &[4]);
    sound(&room);
    ragged.delete_all(&room);
}

#[test]
fn a_backup_has_the_snapshots_of_its_moment() {
    let place = Place::new();
    let (room, ragged) = Ragged::fill(&place);
    let target = place.dir.path().join("copy");
    room.backup(&target, &|_, _| true).unwrap();
    // Deleted while the next backup is there: it follows, and copies only what is new.
    room.delete_snapshot("2").unwrap();
    room.write_file("/later", b"later").unwrap();
    let open = || {
        let options = OpenOptions {
            state_dir: Some(place.dir.path().join("state of the copy")),
            ..place.options()
        };
        Room::open(&target, &credential(), options).unwrap()
    };
    let copy = open();
    ragged.compare(&copy, &[]);
    sound(&copy);
    copy.close().unwrap();
    room.backup(&target, &|_, _| true).unwrap();
    let copy = open();
    copy.tend().unwrap();
    ragged.compare(&copy, &[2]);
    sound(&copy);
    ragged.delete_all(&copy);
    ragged.compare(&room, &[2]);
    sound(&room);
}

#[test]
fn damage_in_what_only_a_snapshot_sees_is_found_and_repaired_there() {
    let (place, room) = Place::with_room();
    room.write_file("/f", &pattern(1, MIB)).unwrap();
    room.write_file("/same", &pattern(2, MIB)).unwrap();
    let room = place.reopen(room);
    snapshot(&room, "s");
    room.write_file("/f", &pattern(3, MIB)).unwrap();
    room.close().unwrap();
    let first = place.room_dir().join("segments/00000000000000000001");
    let mut bytes = fs::read(&first).unwrap();
    bytes[10 * 4096..11 * 4096].fill(0x5a);
    fs::write(&first, bytes).unwrap();
    let room = place.open();
    assert!(matches!(file(&room, "s", "f"), Err(Error::Corrupt { .. })));
    let report = check(&room, false);
    assert_eq!(report.findings.len(), 2, "{report:?}");
    assert!(report.lost.is_empty());
    let report = check(&room, true);
    assert_eq!(report.repaired.len(), 1, "{report:?}");
    sound(&room);
    let seen = file(&room, "s", "f").unwrap();
    let differ = seen.iter().zip(pattern(1, MIB)).filter(|(a, b)| **a != *b);
    assert!((16_000..=16_384).contains(&differ.count()));
    assert!(room.read_file("/f").unwrap() == pattern(3, MIB));
    assert!(file(&room, "s", "same").unwrap() == pattern(2, MIB));
    room.delete_snapshot("s").unwrap();
    room.tend().unwrap();
    sound(&room);
}

#[test]
fn a_room_opened_for_reading_shows_its_snapshots() {
    let place = Place::new();
    let (room, ragged) = Ragged::fill(&place);
    room.delete_snapshot("0").unwrap();
    room.close().unwrap();
    let room = Room::open(
        &place.room_dir(),
        &credential(),
        place.options().for_reading(),
    )
    .unwrap();
    ragged.compare(&room, &[0]);
    sound(&room);
    assert_eq!(room.snapshots().unwrap().len(), 5);
    assert!(room.held_by_snapshots().unwrap() > 0);
    let refused = room.create_snapshot("x", NewSnapshot::default());
    assert!(matches!(refused, Err(Error::ReadOnly)));
    assert!(matches!(room.delete_snapshot("1"), Err(Error::ReadOnly)));
    assert!(matches!(
        room.rename_snapshot("1", "x"),
        Err(Error::ReadOnly)
    ));
}
