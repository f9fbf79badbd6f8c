//! A room from end to end through the library: what is put in is there after closing and opening.

use crate::common;
use crate::common::stored::{create_on, open_on, options};
use crate::common::{Place, copy_tree, pattern};
use room::{
    Error, Fallocate, FileKind, FileSystem as _, InodeNo, NewFile, RenameMode, SeekTo, SetAttr,
    XattrMode,
};

fn file() -> NewFile {
    NewFile::of_kind(FileKind::Regular)
}

#[test]
fn what_was_written_is_there_after_closing_and_opening() {
    let (place, room) = Place::with_room();
    let big = pattern(1, 3_500_001);
    room.write_file("/big", &big).unwrap();
    room.write_file("/small", b"hello").unwrap();
    room.make_dir("/a/b/c", true).unwrap();
    room.write_file("/a/b/c/deep", &pattern(2, 70_000)).unwrap();
    assert_eq!(room.read_file("/big").unwrap(), big);
    let room = place.reopen(room);
    assert_eq!(room.read_file("/big").unwrap(), big);
    assert_eq!(room.read_file("/small").unwrap(), b"hello");
    assert_eq!(room.read_file("/a/b/c/deep").unwrap(), pattern(2, 70_000));
    let root = room.attributes(InodeNo::ROOT).unwrap();
    assert_eq!(root.nlink, 3);
}

#[test]
fn missing_directories_are_made_however_deep_and_never_over_something_else() {
    let (_place, room) = Place::with_room();
    let deep = "/d".repeat(2000);
    room.make_dir(&deep, true).unwrap();
    room.make_dir(&deep, true).unwrap();
    assert!(matches!(room.make_dir(&deep, false), Err(Error::Exists)));
    room.write_file("/f", b"a file").unwrap();
    assert!(matches!(room.make_dir("/f", true), Err(Error::Exists)));
    let through = room.make_dir("/f/g", true);
    assert!(matches!(through, Err(Error::NotDirectory)), "{through:?}");
}

/// Several find the directory empty. One makes the room; the others, which cannot, leave it as it is.
#[test]
fn of_creations_at_once_one_makes_the_room_and_the_others_leave_it_whole() {
    for _ in 0..5 {
        let place = Place::new();
        std::fs::create_dir(place.room_dir()).unwrap();
        let create = || {
            let room = place.try_create()?;
            room.write_file("/f", b"made")?;
            room.close()
        };
        let made = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.filter(Result::is_ok).count()
        });
        assert_eq!(made, 1);
        assert_eq!(place.open().read_file("/f").unwrap(), b"made");
    }
}

#[test]
fn a_wrong_passphrase_is_refused() {
    let place = Place::new();
    place.create().close().unwrap();
    let wrong = room::Credential::Passphrase(room::Secret::from(b"wrong".to_vec()));
    let refused = room::Room::open(&place.room_dir(), &wrong, place.options());
    assert!(
        matches!(refused, Err(Error::WrongCredential(_))),
        "{refused:?}"
    );
}

#[test]
fn the_second_to_open_a_room_learns_which_process_has_it() {
    let place = Place::new();
    let _first = place.create();
    match place.try_open() {
        Err(Error::InUse { pid }) => assert_eq!(pid, std::process::id()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn synced_data_survives_when_the_process_dies_and_the_rest_is_of_one_moment() {
    let (place, room) = Place::with_room();
    room.write_file("/kept", &pattern(3, 100_000)).unwrap();
    room.sync().unwrap();
    room.write_file("/lost", &pattern(4, 100_000)).unwrap();
    let crashed = Place::new();
    copy_tree(&place.room_dir(), &crashed.room_dir());
    let again = crashed.open();
    assert_eq!(again.read_file("/kept").unwrap(), pattern(3, 100_000));
    assert!(matches!(again.read_file("/lost"), Err(Error::NotFound)));
    again.write_file("/new", &pattern(5, 10_000)).unwrap();
    again.close().unwrap();
    assert_eq!(
        crashed.open().read_file("/new").unwrap(),
        pattern(5, 10_000)
    );
}

#[test]
fn an_older_copy_of_the_room_is_refused_until_that_is_wanted() {
    let place = Place::new();
    place.create().close().unwrap();
    let old = Place::new();
    copy_tree(&place.room_dir(), &old.room_dir());
    let room = place.open();
    room.write_file("/new", b"x").unwrap();
    room.close().unwrap();
    std::fs::remove_dir_all(place.room_dir()).unwrap();
    copy_tree(&old.room_dir(), &place.room_dir());
    assert!(matches!(place.try_open(), Err(Error::RolledBack { .. })));
    let mut options = place.options();
    options.accept_rollback = true;
    room::Room::open(&place.room_dir(), &common::credential(), options)
        .unwrap()
        .close()
        .unwrap();
    place.open().close().unwrap();
}

#[test]
fn a_flipped_bit_costs_only_the_unit_it_is_in() {
    let (place, room) = Place::with_room();
    room.write_file("/f", &pattern(6, 1 << 20)).unwrap();
    room.write_file("/g", &pattern(7, 50_000)).unwrap();
    room.close().unwrap();
    let segment = std::fs::read_dir(place.room_dir().join("segments"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4096 + 5 * 16384 + 77] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let room = place.open();
    let no = room.resolve("/f".as_ref(), true).unwrap();
    let mut buf = vec![0; 16384];
    for unit in 0..64 {
        let read = room.read(no, unit * 16384, &mut buf);
        match (unit, read) {
            (5, Err(Error::Corrupt { inode, offset, .. })) => {
                assert_eq!((inode, offset), (no, 5 * 16384))
            }
            (5, other) => panic!("{other:?}"),
            (_, read) => {
                assert_eq!(read.unwrap(), 16384);
                assert_eq!(buf, pattern(6, 1 << 20)[unit as usize * 16384..][..16384]);
            }
        }
    }
    assert_eq!(room.read_file("/g").unwrap(), pattern(7, 50_000));
}

#[test]
fn renaming_replaces_refuses_and_exchanges_as_asked() {
    let (_place, room) = Place::with_room();
    let root = InodeNo::ROOT;
    room.write_file("/a", b"a").unwrap();
    room.write_file("/b", b"b").unwrap();
    room.make_dir("/d/e", true).unwrap();
    let no_replace = room.rename(root, b"a", root, b"b", RenameMode::NoReplace);
    assert!(matches!(no_replace, Err(Error::Exists)));
    room.rename(root, b"a", root, b"b", RenameMode::Exchange)
        .unwrap();
    assert_eq!(room.read_file("/a").unwrap(), b"b");
    room.rename(root, b"a", root, b"b", RenameMode::Replace)
        .unwrap();
    assert_eq!(room.read_file("/b").unwrap(), b"b");
    assert!(matches!(room.read_file("/a"), Err(Error::NotFound)));
    let e = room.resolve("/d/e".as_ref(), true).unwrap();
    let loops = room.rename(root, b"d", e, b"x", RenameMode::Replace);
    assert!(matches!(loops, Err(Error::InvalidArgument(_))));
    assert!(matches!(
        room.rename(root, b"b", root, b"d", RenameMode::Replace),
        Err(Error::IsDirectory)
    ));
    assert!(matches!(
        room.rename(root, b"d", root, b"b", RenameMode::Replace),
        Err(Error::NotDirectory)
    ));
    room.rename(e, b"..", root, b"y", RenameMode::Replace)
        .unwrap_err();
    room.rename(
        room.resolve("/d".as_ref(), true).unwrap(),
        b"e",
        root,
        b"e",
        RenameMode::Replace,
    )
    .unwrap();
    assert_eq!(room.attributes(root).unwrap().nlink, 4);
    assert_eq!(
        room.attributes(room.resolve("/d".as_ref(), true).unwrap())
            .unwrap()
            .nlink,
        2
    );
}

#[test]
fn an_unlinked_file_lives_while_held_and_its_space_comes_back_after() {
    let (place, room) = Place::with_room();
    room.write_file("/f", &pattern(8, 5 << 20)).unwrap();
    room.sync().unwrap();
    let no = room.resolve("/f".as_ref(), true).unwrap();
    room.hold(no);
    room.unlink(InodeNo::ROOT, b"f").unwrap();
    room.sync().unwrap();
    let mut buf = [0; 100];
    assert_eq!(room.read(no, 1000, &mut buf).unwrap(), 100);
    assert_eq!(buf, pattern(8, 5 << 20)[1000..1100]);
    room.release(no, 1);
    let room = place.reopen(room);
    assert_eq!(room.space().unwrap().live, 0);
    assert!(matches!(room.attributes(no), Err(Error::NotFound)));
}

#[test]
fn a_file_held_after_its_last_name_went_is_whole_or_not_there_at_all() {
    let place = Place::new();
    place.create().close().unwrap();
    let room = place.open_without_thread();
    // Two threads race: one found the file and holds it only after the other removed it.
    room.write_file("/f", &pattern(8, 5 << 20)).unwrap();
    let no = room.resolve("/f".as_ref(), true).unwrap();
    room.unlink(InodeNo::ROOT, b"f").unwrap();
    room.hold(no);
    room.attributes(no).unwrap();
    room.tend().unwrap();
    let mut buf = [0; 100];
    assert_eq!(room.read(no, 1000, &mut buf).unwrap(), 100);
    assert_eq!(buf, pattern(8, 5 << 20)[1000..1100]);
    room.write(no, 0, b"x").unwrap();
    room.release(no, 1);
    room.tend().unwrap();
    room.hold(no);
    assert!(matches!(room.attributes(no), Err(Error::NotFound)));
    room.release(no, 1);
    room.close().unwrap();
    assert_eq!(place.open().space().unwrap().live, 0);
}

#[test]
fn the_space_of_removed_files_is_free_as_soon_as_it_is_asked_for() {
    let place = Place::new();
    place.create().close().unwrap();
    // The thread would delete them a moment later.
    let room = place.open_without_thread();
    for name in ["a", "b"] {
        room.write_file(format!("/{name}"), &pattern(8, 5 << 20))
            .unwrap();
    }
    room.sync().unwrap();
    room.unlink(InodeNo::ROOT, b"a").unwrap();
    assert_eq!(room.space().unwrap().live, 5 << 20);
    let before = room.available().unwrap().new;
    room.unlink(InodeNo::ROOT, b"b").unwrap();
    // No commit freed them yet, but a writer gets the space.
    assert!(room.available().unwrap().new > before);
    assert_eq!(room.info().unwrap().space.live, 0);
}

#[test]
fn names_of_a_listing_are_forgotten_with_the_files_they_led_to() {
    let (place, room) = Place::with_room();
    for name in ["removed", "replaced", "moved"] {
        room.write_file(format!("/{name}"), name.as_bytes())
            .unwrap();
    }
    let room = place.reopen(room);
    assert_eq!(room.read_dir(InodeNo::ROOT, 0, 100).unwrap().len(), 3);
    room.unlink(InodeNo::ROOT, b"removed").unwrap();
    let rename = |to: &[u8]| {
        let (root, mode) = (InodeNo::ROOT, RenameMode::Replace);
        room.rename(root, b"moved", root, to, mode)
    };
    rename(b"replaced").unwrap();
    assert_eq!(room.read_file("/replaced").unwrap(), b"moved");
    for gone in ["removed", "moved"] {
        let found = room.lookup(InodeNo::ROOT, gone.as_bytes());
        assert!(matches!(found, Err(Error::NotFound)), "{gone}");
        room.write_file(format!("/{gone}"), b"new").unwrap();
        assert_eq!(room.read_file(format!("/{gone}")).unwrap(), b"new");
    }
}

#[test]
fn holes_are_found_and_cost_nothing() {
    let (_place, room) = Place::with_room();
    let no = room.make(InodeNo::ROOT, b"s", &file()).unwrap().no;
    room.write(no, 10 << 20, &pattern(9, 8192)).unwrap();
    room.set_attributes(no, &SetAttr::size(1 << 40)).unwrap();
    assert_eq!(room.seek(no, 0, SeekTo::Data).unwrap(), 10 << 20);
    assert_eq!(
        room.seek(no, 10 << 20, SeekTo::Hole).unwrap(),
        (10 << 20) + 8192
    );
    assert_eq!(room.seek(no, 0, SeekTo::Hole).unwrap(), 0);
    assert!(matches!(
        room.seek(no, 11 << 20, SeekTo::Data),
        Err(Error::NoMoreData)
    ));
    assert_eq!(room.attributes(no).unwrap().blocks, 2);
    room.fallocate(no, Fallocate::PunchHole, (10 << 20) + 100, 5000)
        .unwrap();
    let mut buf = vec![1; 8192];
    room.read(no, 10 << 20, &mut buf).unwrap();
    let mut expected = pattern(9, 8192);
    expected[100..5100].fill(0);
    assert_eq!(buf, expected);
    room.set_attributes(no, &SetAttr::size((10 << 20) + 50))
        .unwrap();
    room.set_attributes(no, &SetAttr::size((10 << 20) + 200))
        .unwrap();
    room.read(no, 10 << 20, &mut buf[..200]).unwrap();
    assert!(buf[50..200].iter().all(|b| *b == 0));
}

#[test]
fn a_copy_shares_its_blocks_and_each_side_can_change() {
    let (place, room) = Place::with_room();
    room.write_file("/a", &pattern(10, 3_000_001)).unwrap();
    room.sync().unwrap();
    let before = room.space().unwrap().live;
    let a = room.resolve("/a".as_ref(), true).unwrap();
    let b = room.make(InodeNo::ROOT, b"b", &file()).unwrap().no;
    assert_eq!(
        room.copy_range(a, 0, b, 0, u64::MAX >> 2).unwrap(),
        3_000_001
    );
    room.sync().unwrap();
    assert_eq!(room.space().unwrap().live, before);
    assert_eq!(room.read_file("/b").unwrap(), pattern(10, 3_000_001));
    room.write(b, 1_000_000, b"changed").unwrap();
    room.unlink(InodeNo::ROOT, b"a").unwrap();
    let room = place.reopen(room);
    let mut expected = pattern(10, 3_000_001);
    expected[1_000_000..1_000_007].copy_from_slice(b"changed");
    assert_eq!(room.read_file("/b").unwrap(), expected);
    room.unlink(InodeNo::ROOT, b"b").unwrap();
    room.close().unwrap();
    assert_eq!(place.open().space().unwrap().live, 0);
}

#[test]
fn extended_attributes_are_kept_and_access_lists_follow_the_mode() {
    let (place, room) = Place::with_room();
    let no = room.make(InodeNo::ROOT, b"f", &file()).unwrap().no;
    room.set_xattr(no, b"user.a", b"1", XattrMode::Create, false)
        .unwrap();
    assert!(matches!(
        room.set_xattr(no, b"user.a", b"2", XattrMode::Create, false),
        Err(Error::Exists)
    ));
    assert!(matches!(
        room.set_xattr(no, b"user.b", b"2", XattrMode::Replace, false),
        Err(Error::NoXattr)
    ));
    let room = place.reopen(room);
    assert_eq!(room.xattr(no, b"user.a").unwrap(), b"1");
    assert_eq!(room.xattr_names(no).unwrap(), [b"user.a".to_vec()]);
    room.remove_xattr(no, b"user.a").unwrap();
    assert!(matches!(room.xattr(no, b"user.a"), Err(Error::NoXattr)));
}

#[test]
fn a_room_lives_in_any_storage_and_keeps_there_what_was_synced() {
    let memory = storage::testing::MemoryStorage::new();
    let room = create_on(std::sync::Arc::new(memory.clone()), options());
    room.write_file("/kept", b"synced").unwrap();
    room.sync().unwrap();
    room.write_file("/lost", b"not synced").unwrap();
    memory.power_cut();
    drop(room);
    let open = || open_on(std::sync::Arc::new(memory.clone()), options());
    let room = open().unwrap();
    assert!(matches!(open(), Err(Error::InUse { .. })));
    assert_eq!(room.read_file("/kept").unwrap(), b"synced");
    assert!(matches!(room.read_file("/lost"), Err(Error::NotFound)));
    room.tend().unwrap();
    room.close().unwrap();
}

/// The entry of a place's state directory.
fn remembered(place: &Place) -> std::path::PathBuf {
    let files = std::fs::read_dir(place.dir.path().join("state")).unwrap();
    let mut entries = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "generation"));
    let entry = entries.next().unwrap();
    assert_eq!(entries.next(), None);
    entry
}

/// What this machine remembered and could not be read was taken for nothing, and a rollback went unnoticed.
#[test]
fn what_is_remembered_and_cannot_be_used_refuses_the_room_by_name() {
    let place = Place::new();
    place.create().close().unwrap();
    let entry = remembered(&place);
    let good = std::fs::read(&entry).unwrap();
    let cut = &good[..good.len() - 9];
    let end = [cut, b"\n"].concat();
    for bad in [
        &b""[..],
        b"\0\0\0\0\n",
        b"7\n",
        b"many\noriginal\n",
        cut,
        &end,
    ] {
        std::fs::write(&entry, bad).unwrap();
        for read_only in [false, true] {
            let mut options = place.options();
            options.read_only = read_only;
            let opened = room::Room::open(&place.room_dir(), &common::credential(), options);
            let refusal = opened.unwrap_err();
            assert!(matches!(refusal, Error::UnusableMemory { .. }), "{refusal}");
            let words = refusal.to_string();
            assert!(
                words.contains(entry.to_str().unwrap()) && words.contains("--accept-rollback"),
                "{words}"
            );
        }
    }
    // Not a file, which root cannot read either.
    std::fs::remove_file(&entry).unwrap();
    std::fs::create_dir(&entry).unwrap();
    assert!(matches!(
        place.try_open(),
        Err(Error::UnusableMemory { .. })
    ));
    std::fs::remove_dir(&entry).unwrap();
    // The way out: once, and what is remembered then is good again.
    std::fs::write(&entry, b"").unwrap();
    let mut options = place.options();
    options.accept_rollback = true;
    room::Room::open(&place.room_dir(), &common::credential(), options)
        .unwrap()
        .close()
        .unwrap();
    place.open().close().unwrap();
    assert_eq!(remembered(&place), entry);
}

#[test]
fn at_a_new_place_too_an_entry_that_cannot_be_used_refuses_the_room() {
    let place = Place::new();
    place.create().close().unwrap();
    std::fs::write(remembered(&place), b"garbled").unwrap();
    let moved = place.dir.path().join("moved");
    std::fs::rename(place.room_dir(), &moved).unwrap();
    let open = |accept_rollback| {
        let mut options = place.options();
        options.accept_rollback = accept_rollback;
        room::Room::open(&moved, &common::credential(), options)
    };
    assert!(matches!(open(false), Err(Error::UnusableMemory { .. })));
    open(true).unwrap().close().unwrap();
    open(false).unwrap().close().unwrap();
}

/// The room's own thread writes down what is remembered while the room is open, and nothing is left beside the entry.
#[test]
fn what_is_remembered_follows_the_commits_of_an_open_room() {
    let (place, room) = Place::with_room();
    assert!(room.notices_rollbacks());
    let entry = remembered(&place);
    let began = std::time::Instant::now();
    let generation = || -> u64 {
        let text = std::fs::read_to_string(&entry).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    };
    let first = generation();
    while generation() < first + 3 {
        room.write_file("/f", &pattern(1, 100)).unwrap();
        room.sync().unwrap();
        assert!(began.elapsed().as_secs() < 300, "it is never written down");
    }
    let newest = room.info().unwrap().generation;
    room.close().unwrap();
    assert!(generation() >= newest);
    let mut names: Vec<_> = std::fs::read_dir(place.dir.path().join("state"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    names.retain(|name| name != "lock");
    assert_eq!(names, [entry.file_name().unwrap()]);
}
