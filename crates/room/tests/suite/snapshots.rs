//! Snapshots: what each of them sees after every kind of change, and the space that it holds.

use std::sync::Arc;

use crate::common::{Place, no, pattern, sound};
use room::{
    Error, Fallocate, FileSystem, InodeNo, NewSnapshot, RenameMode, Room, SetAttr, Snapshots as _,
    XattrMode,
};

const BLOCK: usize = 4096;
const MIB: usize = 1 << 20;
const ROOT: InodeNo = InodeNo::ROOT;

fn snap(room: &Room, name: &str) -> Arc<dyn FileSystem> {
    room.create_snapshot(name, NewSnapshot::default()).unwrap();
    room.snapshot(name).unwrap()
}

fn contents(fs: &dyn FileSystem, no: InodeNo) -> Vec<u8> {
    let mut data = vec![0; fs.attributes(no).unwrap().size as usize];
    let read = fs.read(no, 0, &mut data).unwrap();
    assert_eq!(read, data.len());
    data
}

fn file(fs: &dyn FileSystem, name: &str) -> Vec<u8> {
    contents(fs, fs.lookup(ROOT, name.as_bytes()).unwrap().no)
}

fn names(fs: &dyn FileSystem, dir: InodeNo) -> Vec<String> {
    let entries = fs.read_dir(dir, 0, 1000).unwrap();
    let mut names: Vec<_> = entries
        .into_iter()
        .map(|(entry, inode)| {
            assert_eq!((entry.inode, entry.kind), (inode.no, inode.kind));
            String::from_utf8(entry.name).unwrap()
        })
        .collect();
    names.sort();
    names
}

fn truncate(room: &Room, path: &str, size: u64) {
    room.set_attributes(no(room, path), &SetAttr::size(size))
        .unwrap();
}

fn live(room: &Room) -> u64 {
    room.space().unwrap().live
}

fn exclusive(room: &Room, name: &str) -> u64 {
    let all = room.snapshot_space().unwrap();
    let found = all.iter().find(|(s, _)| s.name == name);
    found.unwrap().1.exclusive
}

#[test]
fn a_snapshot_sees_what_was_there_after_every_kind_of_change() {
    let (place, room) = Place::with_room();
    let data = pattern(1, 3 * MIB + 5000);
    for name in [
        "same", "over", "cut", "punched", "gone", "renamed", "replaced", "grown",
    ] {
        room.write_file(format!("/{name}"), &data).unwrap();
    }
    room.write_file("/short", b"some bytes").unwrap();
    room.make_dir("/dir", false).unwrap();
    room.write_file("/dir/inside", b"inside").unwrap();
    room.set_xattr(no(&room, "/same"), b"user.a", b"1", XattrMode::Any, false)
        .unwrap();
    room.sync().unwrap();
    let before = names(&room, ROOT);
    let numbers: Vec<_> = before.iter().map(|n| no(&room, &format!("/{n}"))).collect();
    let attributes: Vec<_> = numbers
        .iter()
        .map(|n| room.attributes(*n).unwrap())
        .collect();
    let s = snap(&room, "monday");

    room.write(no(&room, "/over"), 1_000_000, &pattern(2, 200_000))
        .unwrap();
    room.write(no(&room, "/over"), 5, b"x").unwrap();
    room.write(no(&room, "/short"), 3, b"other").unwrap();
    truncate(&room, "/cut", 10_000);
    truncate(&room, "/cut", 2_000_000);
    let punched = no(&room, "/punched");
    room.fallocate(punched, Fallocate::PunchHole, 100_000, 1_500_000)
        .unwrap();
    room.unlink(ROOT, b"gone").unwrap();
    room.rename(ROOT, b"renamed", ROOT, b"other", RenameMode::Replace)
        .unwrap();
    room.write_file("/new", b"new").unwrap();
    room.rename(ROOT, b"new", ROOT, b"replaced", RenameMode::Replace)
        .unwrap();
    room.write(no(&room, "/grown"), data.len() as u64, &pattern(3, MIB))
        .unwrap();
    room.set_xattr(no(&room, "/same"), b"user.a", b"2", XattrMode::Any, false)
        .unwrap();
    room.set_xattr(no(&room, "/same"), b"user.b", b"3", XattrMode::Any, false)
        .unwrap();
    room.unlink(no(&room, "/dir"), b"inside").unwrap();
    room.rmdir(ROOT, b"dir").unwrap();

    let check = |s: &dyn FileSystem| {
        assert_eq!(names(s, ROOT), before);
        for (no, was) in numbers.iter().zip(&attributes) {
            assert_eq!(s.attributes(*no).unwrap(), *was);
        }
        for name in [
            "same", "over", "cut", "punched", "gone", "renamed", "replaced", "grown",
        ] {
            assert!(file(s, name) == data, "{name}");
        }
        assert_eq!(file(s, "short"), b"some bytes");
        let dir = s.lookup(ROOT, b"dir").unwrap().no;
        assert_eq!(names(s, dir), ["inside"]);
        assert_eq!(contents(s, s.lookup(dir, b"inside").unwrap().no), b"inside");
        let same = s.lookup(ROOT, b"same").unwrap().no;
        assert_eq!(s.xattr(same, b"user.a").unwrap(), b"1");
        assert_eq!(s.xattr_names(same).unwrap(), [b"user.a".to_vec()]);
        assert!(matches!(s.lookup(ROOT, b"other"), Err(Error::NotFound)));
        assert!(matches!(s.lookup(ROOT, b"new"), Err(Error::NotFound)));
        assert!(matches!(s.lookup(same, b"x"), Err(Error::NotDirectory)));
        assert!(matches!(s.write(same, 0, b"x"), Err(Error::ReadOnly)));
    };
    check(&*s);
    sound(&room);
    check(&*s);
    room.tend().unwrap();
    check(&*s);
    drop(s);
    let room = place.reopen(room);
    check(&*room.snapshot("monday").unwrap());
    sound(&room);
    room.delete_snapshot("monday").unwrap();
    room.tend().unwrap();
    sound(&room);
    assert!(room.snapshot_space().unwrap().is_empty());
    assert_eq!(room.held_by_snapshots().unwrap(), 0);
}

#[test]
fn deleting_snapshots_in_any_order_frees_what_they_hold_alone() {
    for order in [
        [0, 1, 2],
        [2, 1, 0],
        [1, 0, 2],
        [1, 2, 0],
        [0, 2, 1],
        [2, 0, 1],
    ] {
        let (_place, room) = Place::with_room();
        let write = |seed| room.write_file("/f", &pattern(seed, 2 * MIB)).unwrap();
        let part = |seed, at: usize, len: usize| {
            room.write(no(&room, "/f"), at as u64, &pattern(seed, len))
                .unwrap();
        };
        write(1);
        room.write_file("/stays", &pattern(9, MIB)).unwrap();
        snap(&room, "0");
        part(2, 0, MIB / 2);
        part(3, MIB + 4 * BLOCK, 3 * BLOCK);
        snap(&room, "1");
        part(4, MIB / 4, MIB / 2);
        part(5, MIB + 5 * BLOCK, 6 * BLOCK + 100);
        room.unlink(ROOT, b"stays").unwrap();
        snap(&room, "2");
        part(6, 0, MIB);
        truncate(&room, "/f", 12_345);
        room.tend().unwrap();
        sound(&room);
        for n in order {
            let name = n.to_string();
            let (held, before) = (exclusive(&room, &name), live(&room));
            room.delete_snapshot(&name).unwrap();
            room.tend().unwrap();
            assert_eq!(before - live(&room), held, "{order:?} {name}");
            sound(&room);
        }
        room.tend().unwrap();
        assert_eq!(room.held_by_snapshots().unwrap(), 0);
        room.unlink(ROOT, b"f").unwrap();
        room.tend().unwrap();
        assert_eq!(live(&room), 0);
    }
}
