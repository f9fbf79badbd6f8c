//! Snapshots as every language has them: named, read, compared, put back, and what is refused.
#![allow(missing_docs)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embed::{
    Error, FileFlags, FileKind, Key, Kind, OpenMode, OpenOptions, PolicyReport, Session, SetAttr,
    SetTime, SnapshotPolicy, Timestamp, What, XattrMode,
};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> (Self, Session) {
        let place = Self(tempfile::tempdir().unwrap());
        let room = Session::create(place.dir(), Self::key(), None, place.options(false)).unwrap();
        (place, room)
    }

    fn dir(&self) -> std::path::PathBuf {
        self.0.path().join("room")
    }

    fn key() -> Key {
        Key::Raw([7; 32].as_slice().into())
    }

    fn options(&self, read_only: bool) -> OpenOptions {
        OpenOptions {
            read_only,
            state_dir: Some(self.0.path().join("state")),
            ..OpenOptions::default()
        }
    }

    fn open(&self, read_only: bool) -> Session {
        Session::open(self.dir(), Self::key(), self.options(read_only)).unwrap()
    }
}

fn write(room: &Session, path: &str, data: &[u8]) {
    room.open_file(path, OpenMode::WRITE)
        .unwrap()
        .write(data)
        .unwrap();
}

fn read(room: &Session, path: &str) -> Vec<u8> {
    let file = room.open_file(path, OpenMode::READ).unwrap();
    let mut all = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut all).unwrap(), all.len());
    all
}

fn kind<T: std::fmt::Debug>(result: embed::Result<T>) -> Kind {
    result.unwrap_err().kind()
}

fn names(room: &Session) -> Vec<String> {
    let all = room.snapshots().unwrap();
    all.into_iter().map(|info| info.snapshot.name).collect()
}

#[test]
fn a_snapshot_is_read_as_the_room_was_and_refuses_every_change() {
    let (_place, room) = Place::new();
    room.make_dirs("/papers").unwrap();
    write(&room, "/papers/letter", b"first");
    room.symlink(b"papers/letter", "/link").unwrap();
    room.set_xattr("/papers/letter", b"user.a", b"1", XattrMode::Any)
        .unwrap();
    room.create_snapshot("monday").unwrap();
    write(&room, "/papers/letter", b"second, and longer");
    write(&room, "/new", b"");
    room.remove_file("/link").unwrap();

    let past = room.open_snapshot("monday").unwrap();
    assert_eq!(read(&past, "/papers/letter"), b"first");
    assert_eq!(read(&past, "/link"), b"first");
    assert_eq!(past.read_link("/link").unwrap(), b"papers/letter");
    assert_eq!(past.xattr("/papers/letter", b"user.a").unwrap(), b"1");
    assert!(!past.exists("/new").unwrap());
    assert_eq!(past.list("/").unwrap().len(), 2);
    assert_eq!(
        past.stat("/papers/..", true).unwrap().kind,
        FileKind::Directory
    );
    assert!(past.is_read_only().unwrap() && !past.in_transaction().unwrap());
    assert!(!room.is_read_only().unwrap());
    for refused in [
        kind(past.open_file("/new", OpenMode::WRITE)),
        kind(past.make_dir("/d", 0o755)),
        kind(past.make_dirs("/d/e")),
        kind(past.remove_file("/link")),
        kind(past.remove_dir("/papers")),
        kind(past.rename("/link", "/other", embed::RenameMode::Replace)),
        kind(past.link("/link", "/other")),
        kind(past.symlink(b"x", "/other")),
        kind(past.set_attributes("/papers", &SetAttr::default(), true)),
        kind(past.set_xattr("/papers", b"user.a", b"", XattrMode::Any)),
        kind(past.begin()),
        kind(past.remove_key(0)),
        kind(past.create_snapshot("other")),
        kind(past.delete_snapshot("monday")),
        kind(past.restore_snapshot("monday", "/", None)),
    ] {
        assert_eq!(refused, Kind::ReadOnly);
    }
    // It is the moment that is read, whatever its name.
    room.rename_snapshot("monday", "first").unwrap();
    assert_eq!(read(&past, "/papers/letter"), b"first");
}

#[test]
fn closing_ends_what_was_opened_from_it_and_nothing_above() {
    let (place, room) = Place::new();
    write(&room, "/a", b"a");
    room.create_snapshot("monday").unwrap();
    let (one, other) = (
        room.open_snapshot("monday").unwrap(),
        room.open_snapshot("monday").unwrap(),
    );
    let file = other.open_file("/a", OpenMode::READ).unwrap();
    one.close().unwrap();
    one.close().unwrap();
    assert_eq!(kind(one.stat("/a", true)), Kind::Closed);
    assert_eq!(file.read_at(0, &mut [0; 1]).unwrap(), 1);
    assert_eq!(read(&room, "/a"), b"a");
    room.close().unwrap();
    assert_eq!(kind(file.read_at(0, &mut [0; 1])), Kind::Closed);
    assert_eq!(kind(other.list("/")), Kind::Closed);
    other.close().unwrap();
    // What was read from a snapshot keeps nothing of the room open.
    let again = place.open(false);
    assert_eq!(names(&again), ["monday"]);
    drop((file, other));
}

#[test]
fn a_snapshot_that_is_deleted_while_it_is_read_is_reported_as_that() {
    let (_place, room) = Place::new();
    write(&room, "/a", b"a");
    room.create_snapshot("monday").unwrap();
    let past = room.open_snapshot("monday").unwrap();
    let file = past.open_file("/a", OpenMode::READ).unwrap();
    room.delete_snapshot("monday").unwrap();
    // A new one of the name is another one.
    room.create_snapshot("monday").unwrap();
    let error = file.read_at(0, &mut [0; 1]).unwrap_err();
    assert!(matches!(error, Error::SnapshotDeleted), "{error}");
    assert_eq!((error.kind(), error.errno()), (Kind::NotFound, 116));
    assert_eq!(kind(past.stat("/a", true)), Kind::NotFound);
    assert_eq!(read(&room.open_snapshot("monday").unwrap(), "/a"), b"a");
}

#[test]
fn names_are_checked_and_missing_ones_are_named() {
    let (_place, room) = Place::new();
    assert_eq!(
        (room.snapshots().unwrap(), room.held_by_snapshots().unwrap()),
        (vec![], 0)
    );
    room.create_snapshot("monday").unwrap();
    assert_eq!(kind(room.create_snapshot("monday")), Kind::Exists);
    for bad in ["", "a/b", "a@b", "..", &"x".repeat(256)] {
        assert_eq!(
            kind(room.create_snapshot(bad)),
            Kind::InvalidArgument,
            "{bad}"
        );
    }
    room.create_snapshot("tuesday").unwrap();
    assert_eq!(
        kind(room.rename_snapshot("monday", "tuesday")),
        Kind::Exists
    );
    for missing in [
        room.rename_snapshot("sunday", "x").unwrap_err(),
        room.delete_snapshot("sunday").unwrap_err(),
        room.open_snapshot("sunday").unwrap_err(),
        room.diff_snapshots("sunday", None).unwrap_err(),
        room.diff_snapshots("monday", Some("sunday")).unwrap_err(),
        room.restore_snapshot("sunday", "/", None).unwrap_err(),
    ] {
        assert_eq!(missing.to_string(), "there is no snapshot sunday");
        assert_eq!((missing.kind(), missing.errno()), (Kind::NotFound, 2));
    }
    room.begin().unwrap();
    assert_eq!(kind(room.create_snapshot("x")), Kind::Busy);
    assert_eq!(kind(room.delete_snapshot("monday")), Kind::Busy);
    room.complete().unwrap();
    assert_eq!(names(&room), ["monday", "tuesday"]);
}

#[test]
fn a_room_opened_for_reading_shows_its_snapshots_and_changes_none() {
    let (place, room) = Place::new();
    write(&room, "/a", b"then");
    room.create_snapshot("monday").unwrap();
    write(&room, "/a", b"now");
    room.close().unwrap();
    let room = place.open(true);
    assert_eq!(names(&room), ["monday"]);
    assert_eq!(read(&room.open_snapshot("monday").unwrap(), "/a"), b"then");
    assert_eq!(room.diff_snapshots("monday", None).unwrap().len(), 1);
    assert_eq!(kind(room.create_snapshot("x")), Kind::ReadOnly);
    assert_eq!(kind(room.rename_snapshot("monday", "x")), Kind::ReadOnly);
    assert_eq!(kind(room.delete_snapshot("monday")), Kind::ReadOnly);
    assert_eq!(
        kind(room.restore_snapshot("monday", "/a", None)),
        Kind::ReadOnly
    );
}

#[test]
fn what_snapshots_hold_and_what_changed_is_reported() {
    let (_place, room) = Place::new();
    write(&room, "/big", &[1; 1 << 20]);
    write(&room, "/kept", b"k");
    room.create_snapshot("monday").unwrap();
    room.remove_file("/big").unwrap();
    room.rename("/kept", "/renamed", embed::RenameMode::Replace)
        .unwrap();
    room.create_snapshot("tuesday").unwrap();
    write(&room, "/new", b"new");
    let all = room.snapshots().unwrap();
    assert_eq!((all[0].exclusive, all[1].exclusive), (1 << 20, 0));
    assert_eq!(room.held_by_snapshots().unwrap(), 1 << 20);
    let changes = room.diff_snapshots("monday", Some("tuesday")).unwrap();
    let shown: Vec<_> = changes
        .iter()
        .map(|c| (c.path.to_str().unwrap(), &c.what, c.before))
        .collect();
    assert_eq!(
        shown,
        [
            ("/big", &What::Removed, Some(1 << 20)),
            (
                "/renamed",
                &What::Renamed {
                    from: "/kept".into()
                },
                Some(1)
            ),
        ]
    );
    assert_eq!(room.diff_snapshots("monday", None).unwrap().len(), 3);
    assert_eq!(room.diff_snapshots("tuesday", None).unwrap().len(), 1);
}

#[test]
fn a_restored_tree_is_what_it_was_and_takes_no_space() {
    let (_place, room) = Place::new();
    let at = |secs| Some(SetTime::At(Timestamp { secs, nanos: 5 }));
    room.make_dirs("/papers/old").unwrap();
    write(&room, "/papers/letter", &[3; 3 << 20]);
    room.link("/papers/letter", "/papers/old/same").unwrap();
    room.symlink(b"letter", "/papers/link").unwrap();
    room.set_xattr("/papers/letter", b"user.a", b"1", XattrMode::Any)
        .unwrap();
    let set = SetAttr {
        mode: Some(0o640),
        uid: Some(12),
        mtime: at(1000),
        ..SetAttr::default()
    };
    room.set_attributes("/papers/letter", &set, true).unwrap();
    let set = SetAttr {
        mode: Some(0o750),
        mtime: at(2000),
        ..SetAttr::default()
    };
    room.set_attributes("/papers", &set, true).unwrap();
    room.create_snapshot("monday").unwrap();

    write(&room, "/papers/letter", b"spoiled");
    room.remove_file("/papers/old/same").unwrap();
    write(&room, "/papers/later", b"");
    let stored = room.info().unwrap().space.live;
    let done = room.restore_snapshot("monday", "/papers", None).unwrap();
    assert_eq!((done.files, done.bytes), (5, 3 << 20));
    assert!(
        room.info().unwrap().space.live < stored + (1 << 20),
        "data is shared"
    );
    assert_eq!(read(&room, "/papers/old/same"), [3; 3 << 20]);
    let letter = room.stat("/papers/letter", true).unwrap();
    assert_eq!((letter.mode, letter.uid, letter.nlink), (0o640, 12, 2));
    assert_eq!(letter.mtime, Timestamp::new(1000, 5));
    assert_eq!(room.xattr("/papers/letter", b"user.a").unwrap(), b"1");
    assert_eq!(room.stat("/papers", true).unwrap().mtime.secs, 2000);
    assert!(!room.exists("/papers/later").unwrap());
    // Nothing differs but what a copy cannot have: the number of the file.
    let left = room.diff_snapshots("monday", None).unwrap();
    assert!(
        left.iter()
            .all(|c| !matches!(c.what, What::Contents | What::Added | What::Removed)),
        "{left:?}"
    );
    let root: Vec<_> = room
        .list("/")
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(root, [b"papers".to_vec()], "nothing is left beside it");

    // Elsewhere, one file, below directories that are gone.
    room.restore_snapshot("monday", "/papers/letter", Some(Path::new("/first")))
        .unwrap();
    assert_eq!(room.stat("/first", true).unwrap().size, 3 << 20);
    room.rename("/papers", "/elsewhere", embed::RenameMode::Replace)
        .unwrap();
    room.restore_snapshot("monday", "/papers/old/same", None)
        .unwrap();
    let papers = room.stat("/papers", true).unwrap();
    assert_eq!((papers.mode, papers.mtime.secs), (0o750, 2000));
    assert_eq!(room.stat("/papers/old/same", true).unwrap().size, 3 << 20);
    assert_eq!(
        kind(room.restore_snapshot("monday", "/none", None)),
        Kind::NotFound
    );
    assert_eq!(
        kind(room.restore_snapshot("monday", "/papers/letter", Some(Path::new("/")))),
        Kind::NotDirectory
    );
}

#[test]
fn an_empty_path_is_not_the_root() {
    let (_place, room) = Place::new();
    write(&room, "/a", b"then");
    room.create_snapshot("monday").unwrap();
    write(&room, "/a", b"now");
    write(&room, "/new", b"new");
    for (path, to) in [("", None), ("/", Some("")), ("", Some("/b"))] {
        let restored = room.restore_snapshot("monday", path, to.map(Path::new));
        assert_eq!(kind(restored), Kind::NotFound, "{path:?} to {to:?}");
    }
    assert_eq!(
        (read(&room, "/a"), read(&room, "/new")),
        (b"now".to_vec(), b"new".to_vec())
    );
    assert!(!room.exists("/b").unwrap());
}

#[test]
fn a_whole_room_is_put_back() {
    let (place, room) = Place::new();
    room.make_dirs("/a/b").unwrap();
    write(&room, "/a/b/file", b"then");
    room.create_snapshot("monday").unwrap();
    write(&room, "/a/b/file", b"now");
    write(&room, "/new", b"");
    let open = room.open_file("/a/b/file", OpenMode::READ).unwrap();
    room.restore_snapshot("monday", "/", None).unwrap();
    let mut now = [0; 3];
    open.read_at(0, &mut now).unwrap();
    assert_eq!(&now, b"now", "an open file keeps the replaced version");
    room.close().unwrap();
    let room = place.open(false);
    assert_eq!(read(&room, "/a/b/file"), b"then");
    assert_eq!(room.list("/").unwrap().len(), 1);
}

#[test]
fn a_place_that_takes_no_copy_keeps_what_it_has() {
    let (_place, room) = Place::new();
    room.make_dirs("/d").unwrap();
    write(&room, "/d/a", b"then");
    room.create_snapshot("monday").unwrap();
    write(&room, "/d/a", b"now");
    room.set_attributes("/d/a", &SetAttr::flags(FileFlags::IMMUTABLE), true)
        .unwrap();
    assert_eq!(
        kind(room.restore_snapshot("monday", "/d/a", None)),
        Kind::NotPermitted
    );
    assert_eq!(read(&room, "/d/a"), b"now");
    assert_eq!(room.list("/d").unwrap().len(), 1, "no copy is left");
    // The name is refused when the copy is complete.
    let to = format!("/x/y/{}", "n".repeat(256));
    let restored = room.restore_snapshot("monday", "/d", Some(Path::new(&to)));
    assert_eq!(kind(restored), Kind::InvalidArgument);
    assert!(!room.exists("/x").unwrap(), "no directory is left");
}

#[test]
fn what_is_replaced_keeps_its_flags_under_its_other_names() {
    let (_place, room) = Place::new();
    room.make_dirs("/d").unwrap();
    write(&room, "/d/a", b"then");
    room.create_snapshot("monday").unwrap();
    room.link("/d/a", "/kept").unwrap();
    room.set_attributes("/kept", &SetAttr::flags(FileFlags::IMMUTABLE), true)
        .unwrap();
    room.restore_snapshot("monday", "/d", None).unwrap();
    let (kept, restored) = (
        room.stat("/kept", true).unwrap(),
        room.stat("/d/a", true).unwrap(),
    );
    assert_eq!((kept.flags, kept.nlink), (FileFlags::IMMUTABLE, 1));
    assert_eq!(restored.flags, FileFlags::default());
    assert_ne!(kept.no, restored.no);
}

#[test]
fn a_program_sets_a_policy_and_says_when_it_is_applied() {
    let (place, room) = Place::new();
    let policy = SnapshotPolicy {
        daily: 7,
        weekly: 5,
        ..SnapshotPolicy::default()
    };
    assert_eq!(room.snapshot_policy().unwrap(), None);
    assert_eq!(
        room.apply_snapshot_policy().unwrap(),
        PolicyReport::default()
    );
    assert_eq!(kind(room.prune_snapshots(true)), Kind::NotFound);
    let nothing = SnapshotPolicy::default();
    assert_eq!(
        kind(room.set_snapshot_policy(&nothing)),
        Kind::InvalidArgument
    );
    room.create_snapshot("mine").unwrap();
    room.set_snapshot_policy(&policy).unwrap();
    assert_eq!(names(&room), ["mine"]);
    room.begin().unwrap();
    assert_eq!(kind(room.apply_snapshot_policy()), Kind::Busy);
    assert_eq!(kind(room.prune_snapshots(false)), Kind::Busy);
    room.complete().unwrap();

    let report = room.apply_snapshot_policy().unwrap();
    let created = report.created.unwrap().snapshot;
    assert!(created.automatic && created.name.starts_with("auto-"));
    assert!(report.next_due.unwrap() > created.created);
    assert_eq!(names(&room), ["mine", &*created.name]);
    // The policy of the room, not of the snapshot's moment.
    let past = room.open_snapshot("mine").unwrap();
    assert_eq!(past.snapshot_policy().unwrap(), Some(policy));
    for refused in [
        kind(past.set_snapshot_policy(&policy)),
        kind(past.clear_snapshot_policy()),
        kind(past.apply_snapshot_policy()),
        kind(past.prune_snapshots(false)),
    ] {
        assert_eq!(refused, Kind::ReadOnly);
    }
    room.close().unwrap();

    let room = place.open(true);
    assert_eq!(room.snapshot_policy().unwrap(), Some(policy));
    assert_eq!(room.prune_snapshots(true).unwrap(), []);
    for refused in [
        kind(room.set_snapshot_policy(&policy)),
        kind(room.clear_snapshot_policy()),
        kind(room.apply_snapshot_policy()),
        kind(room.prune_snapshots(false)),
    ] {
        assert_eq!(refused, Kind::ReadOnly);
    }
    room.close().unwrap();

    let room = place.open(false);
    room.clear_snapshot_policy().unwrap();
    assert_eq!(room.snapshot_policy().unwrap(), None);
    assert_eq!(names(&room), ["mine", &*created.name]);
}

#[test]
fn threads_write_while_snapshots_are_created_read_and_deleted() {
    let (_place, room) = Place::new();
    write(&room, "/a", &[0; 100_000]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (1..=255).cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mode = OpenMode {
                    truncate: false,
                    ..OpenMode::WRITE
                };
                room.open_file("/a", mode)
                    .unwrap()
                    .write_at(0, &[byte; 100_000])
                    .unwrap();
                // As fast as it can, it replaces a gigabyte a second, and each snapshot waits until that is freed.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for number in 0..20 {
            let name = format!("s{number}");
            room.create_snapshot(&name).unwrap();
            let past = room.open_snapshot(&name).unwrap();
            let (first, again) = (read(&past, "/a"), read(&past, "/a"));
            assert_eq!(first, again);
            assert!(
                first.iter().all(|byte| *byte == first[0]),
                "a write is there whole"
            );
            room.diff_snapshots(&name, None).unwrap();
            if number % 2 == 0 {
                room.delete_snapshot(&name).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(&room).len(), 10);
}

#[test]
fn within_a_transaction_no_policy_changes_and_nothing_is_put_back() {
    let (_place, room) = Place::new();
    write(&room, "/f", b"then");
    room.create_snapshot("monday").unwrap();
    write(&room, "/f", b"now");
    let kept = SnapshotPolicy {
        hourly: 24,
        daily: 7,
        ..SnapshotPolicy::default()
    };
    room.set_snapshot_policy(&kept).unwrap();

    room.begin().unwrap();
    let less = SnapshotPolicy { daily: 0, ..kept };
    assert_eq!(kind(room.set_snapshot_policy(&less)), Kind::Busy);
    assert_eq!(kind(room.clear_snapshot_policy()), Kind::Busy);
    let restored = room.restore_snapshot("monday", "/f", None);
    assert_eq!(kind(restored), Kind::Busy);
    room.complete().unwrap();
    assert_eq!(room.snapshot_policy().unwrap(), Some(kept));
    assert_eq!(read(&room, "/f"), b"now");
}
