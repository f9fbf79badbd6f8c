//! What was removed, found by what snapshots keep of names.

use std::path::Path;

use crate::common::{Place, snapshot};
use room::{FileSystem as _, InodeNo, Removed, RenameMode, Room};

fn remove(room: &Room, path: &str) {
    let (parent, name) = room.resolve_parent(Path::new(path)).unwrap();
    match room.unlink(parent, name) {
        Err(room::Error::IsDirectory) => room.rmdir(parent, name).unwrap(),
        other => other.unwrap(),
    }
}

fn shown(all: &[Removed]) -> Vec<String> {
    let one = |removed: &Removed| {
        let names: Vec<_> = removed.snapshots.iter().map(|s| s.name.as_str()).collect();
        let path = removed.path.display();
        format!(
            "{path} {} {} {}",
            removed.files,
            removed.bytes,
            names.join(",")
        )
    };
    all.iter().map(one).collect()
}

#[test]
fn what_was_removed_is_found_with_the_snapshots_that_have_it() {
    let (_place, room) = Place::with_room();
    assert_eq!(room.removed_since(None).unwrap(), []);
    room.make_dir("/d/e", true).unwrap();
    for (path, data) in [
        ("/a", "1"),
        ("/d/b", "22"),
        ("/d/e/c", "333"),
        ("/moved", "4"),
        ("/replaced", "5"),
    ] {
        room.write_file(path, data.as_bytes()).unwrap();
    }
    snapshot(&room, "one");
    assert_eq!(room.removed_since(None).unwrap(), []);
    room.write_file("/between", b"66").unwrap();
    // Not removed: it has another path; another file has its path; it has another name.
    room.rename(
        InodeNo::ROOT,
        b"moved",
        room.resolve(Path::new("/d"), true).unwrap(),
        b"here",
        RenameMode::Replace,
    )
    .unwrap();
    room.write_file("/new", b"5").unwrap();
    room.rename(
        InodeNo::ROOT,
        b"new",
        InodeNo::ROOT,
        b"replaced",
        RenameMode::Replace,
    )
    .unwrap();
    snapshot(&room, "two");
    for path in ["/a", "/d/e/c", "/d/e"] {
        remove(&room, path);
    }
    assert_eq!(
        shown(&room.removed_since(None).unwrap()),
        ["/a 1 1 two,one", "/d/e 2 3 two,one"]
    );
    snapshot(&room, "three");
    remove(&room, "/between");
    remove(&room, "/d/b");
    remove(&room, "/d/here");
    remove(&room, "/d");
    let all = [
        "/a 1 1 two,one",
        "/between 1 2 three,two",
        "/d 3 3 three,two,one",
        "/d/e 2 3 two,one",
    ];
    assert_eq!(shown(&room.removed_since(None).unwrap()), all);
    assert_eq!(
        shown(&room.removed_since(Some("three")).unwrap()),
        ["/between 1 2 three", "/d 3 3 three"]
    );
    assert!(matches!(
        room.removed_since(Some("none")),
        Err(room::Error::NotFound)
    ));
    // Brought back, or made again: not removed any more.
    room.write_file("/a", b"").unwrap();
    assert_eq!(shown(&room.removed_since(None).unwrap()), all[1..]);
    remove(&room, "/a");
    // What was created and removed since a snapshot is in none.
    assert_eq!(shown(&room.removed_since(None).unwrap()), all);
    // A directory of the same path: what it has again was not removed.
    room.make_dir("/d", false).unwrap();
    room.write_file("/d/b", b"22").unwrap();
    let found = shown(&room.removed_since(Some("three")).unwrap());
    assert_eq!(found, ["/between 1 2 three", "/d/here 1 1 three"]);
    remove(&room, "/d/b");
    remove(&room, "/d");
    // Deleting snapshots, before and after what only they held is merged.
    for (name, left) in [
        (
            "three",
            vec!["/a 1 1 two,one", "/between 1 2 two", "/d 5 6 two,one"],
        ),
        ("two", vec!["/a 1 1 one", "/d 4 5 one", "/moved 1 1 one"]),
        ("one", vec![]),
    ] {
        room.delete_snapshot(name).unwrap();
        assert_eq!(shown(&room.removed_since(None).unwrap()), left);
        room.tend().unwrap();
        assert_eq!(shown(&room.removed_since(None).unwrap()), left);
    }
    room.close().unwrap();
}
