//! Append-only and immutable files through the library.

use std::path::Path;

use crate::common::{Place, prepare_restore};
use room::{
    Error, Fallocate, FileFlags, FileKind, FileSystem as _, InodeNo, NewFile, RenameMode, Result,
    Room, SetAttr, SetTime, XattrMode,
};

fn refused<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::NotPermitted(_))), "{result:?}");
}

fn find(room: &Room, path: &str) -> InodeNo {
    room.resolve(Path::new(path), false).unwrap()
}

fn set(room: &Room, path: &str, flags: FileFlags) {
    let after = room
        .set_attributes(find(room, path), &SetAttr::flags(flags))
        .unwrap();
    assert_eq!(after.flags, flags);
}

fn filled() -> (Place, Room) {
    let (place, room) = Place::with_room();
    room.make_dir("/d", false).unwrap();
    room.write_file("/d/g", b"inner").unwrap();
    room.write_file("/f", b"text").unwrap();
    assert!(!room.has_flags());
    (place, room)
}

#[test]
fn flags_are_there_after_closing_and_opening_and_in_a_backup() {
    let (place, room) = filled();
    set(&room, "/f", FileFlags::IMMUTABLE);
    set(&room, "/d", FileFlags::APPEND_ONLY);
    assert!(room.has_flags());
    let room = place.reopen(room);
    assert!(room.has_flags());
    let flags = |room: &Room, path| room.attributes(find(room, path)).unwrap().flags;
    assert_eq!(flags(&room, "/f"), FileFlags::IMMUTABLE);
    assert_eq!(flags(&room, "/d"), FileFlags::APPEND_ONLY);
    assert_eq!(flags(&room, "/d/g"), FileFlags::NONE);
    refused(room.unlink(InodeNo::ROOT, b"f"));
    set(&room, "/f", FileFlags::NONE);
    room.unlink(InodeNo::ROOT, b"f").unwrap();
    room.close().unwrap();
}

#[test]
fn nothing_of_an_immutable_file_changes() {
    let (_place, room) = filled();
    let (root, d, f) = (InodeNo::ROOT, find(&room, "/d"), find(&room, "/f"));
    set(&room, "/f", FileFlags::IMMUTABLE);
    set(&room, "/d", FileFlags::IMMUTABLE);
    let before = room.attributes(f).unwrap();
    refused(room.write(f, 0, b"x"));
    refused(room.write(f, 4, b"x"));
    refused(room.write_file("/f", b"new"));
    refused(room.fallocate(f, Fallocate::Allocate { keep_size: true }, 0, 1 << 20));
    refused(room.fallocate(f, Fallocate::PunchHole, 0, 4096));
    refused(room.copy_range(find(&room, "/d/g"), 0, f, 4, 3));
    refused(room.set_xattr(f, b"user.x", b"", XattrMode::Any, false));
    refused(room.remove_xattr(f, b"user.x"));
    refused(room.link(f, root, b"hard"));
    refused(room.unlink(root, b"f"));
    for mode in [RenameMode::Replace, RenameMode::NoReplace] {
        refused(room.rename(root, b"f", root, b"h", mode));
    }
    room.write_file("/other", b"").unwrap();
    refused(room.rename(root, b"other", root, b"f", RenameMode::Replace));
    refused(room.rename(root, b"other", root, b"f", RenameMode::Exchange));
    refused(room.rename(root, b"other", d, b"new", RenameMode::Replace));
    let new = NewFile::of_kind(FileKind::Regular);
    refused(room.make(d, b"new", &new));
    refused(room.create_tmpfile(d, &new));
    refused(room.unlink(d, b"g"));
    refused(room.rmdir(root, b"d"));
    for set in [
        SetAttr::mode(0),
        SetAttr {
            uid: Some(7),
            ..SetAttr::default()
        },
        SetAttr::size(0),
        SetAttr {
            mtime: Some(SetTime::Now),
            ..SetAttr::default()
        },
    ] {
        refused(room.set_attributes(f, &set));
    }
    assert_eq!(room.attributes(f).unwrap(), before);
    assert_eq!(room.read_file("/f").unwrap(), b"text");
    // A file in an immutable directory is not immutable itself.
    room.write_file("/d/g", b"changed").unwrap();
}

#[test]
fn an_append_only_file_keeps_what_was_stored_in_any_order_of_pages() {
    const PAGE: usize = 4096;
    let (place, room) = filled();
    let f = find(&room, "/f");
    set(&room, "/f", FileFlags::APPEND_ONLY);
    room.write(f, 4, b" and more").unwrap();
    // The kernel passes on whole pages: what is stored may be part of them.
    room.write(f, 0, b"text and more\n").unwrap();
    refused(room.write(f, 0, b"TEXT"));
    // The third page arrives before the second one and the rest of the first.
    let page = |byte| vec![byte; PAGE];
    room.write(f, 2 * PAGE as u64, &page(b'3')).unwrap();
    room.write(f, PAGE as u64, &page(b'2')).unwrap();
    let mut first = b"text and more\n".to_vec();
    first.resize(PAGE, b'1');
    room.write(f, 0, &first).unwrap();
    refused(room.write(f, PAGE as u64, &page(b'x')));
    // What comes behind the end with a refused write stays.
    let mut last = page(b'x');
    last.extend(page(b'4'));
    refused(room.write(f, 2 * PAGE as u64, &last));
    let expected = [first, page(b'2'), page(b'3'), page(b'4')].concat();
    assert_eq!(room.read_file("/f").unwrap(), expected);
    let size = SetAttr::size;
    refused(room.set_attributes(f, &size(0)));
    refused(room.set_attributes(f, &size(1 << 20)));
    refused(room.unlink(InodeNo::ROOT, b"f"));
    let room = place.reopen(room);
    assert_eq!(room.read_file("/f").unwrap(), expected);
    refused(room.write(f, 1, b"\0"));
    room.write(f, expected.len() as u64, b"end").unwrap();
    room.close().unwrap();
}

/// What failed: where what was replaced could not be removed, restored files never got their flags, and a file with another name lost
/// its own.
#[test]
fn a_restore_whose_removal_fails_costs_no_flags() {
    let (_place, room) = filled();
    let root = InodeNo::ROOT;
    set(&room, "/d/g", FileFlags::IMMUTABLE);
    set(&room, "/d", FileFlags::APPEND_ONLY);
    room.create_snapshot("then", room::NewSnapshot::default())
        .unwrap();
    set(&room, "/d", FileFlags::NONE);
    set(&room, "/d/g", FileFlags::NONE);
    let d = find(&room, "/d");
    room.unlink(d, b"g").unwrap();
    room.write_file("/d/linked", b"here").unwrap();
    room.link(find(&room, "/d/linked"), root, b"elsewhere")
        .unwrap();
    set(&room, "/d/linked", FileFlags::IMMUTABLE);
    let prepared = prepare_restore(&room, "/d");
    let failed = prepared
        .swap()
        .unwrap()
        .finish(&|_, _, _| Err(Error::NoSpace));
    assert!(matches!(failed, Err(Error::NoSpace)), "{failed:?}");
    let flags = |path| room.attributes(find(&room, path)).unwrap().flags;
    assert_eq!(flags("/d/g"), FileFlags::IMMUTABLE);
    assert_eq!(flags("/d"), FileFlags::APPEND_ONLY);
    assert_eq!(flags("/elsewhere"), FileFlags::IMMUTABLE);
}
