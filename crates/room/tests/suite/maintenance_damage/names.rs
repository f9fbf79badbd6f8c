//! Damage of names and directories.

use super::*;

/// What the repair put into `/lost+found-1`: paths and attributes.
fn rescued(room: &Room) -> Vec<(String, Inode)> {
    let found = room.read_dir(no(room, "/lost+found-1"), 0, 10).unwrap();
    let with_path = found.into_iter().map(|(entry, inode)| {
        let name = String::from_utf8(entry.name).unwrap();
        (format!("/lost+found-1/{name}"), inode)
    });
    with_path.collect()
}

#[test]
fn a_name_of_an_inode_that_is_gone_is_found_and_removed() {
    let (_place, room) = repaired(
        |c| {
            let entry = Change::put_entry(InodeNo::ROOT, b"ghost", InodeNo(999), FileKind::Regular);
            c.apply(&[entry]).unwrap();
        },
        &["leads to inode 999, which is not there"],
    );
    assert!(matches!(
        room.lookup(InodeNo::ROOT, b"ghost"),
        Err(Error::NotFound)
    ));
    unchanged(&room);
}

#[test]
fn a_name_of_the_wrong_kind_is_found_and_repaired() {
    fully_repaired(
        |c| {
            let no = inode(c, "/a").no;
            let entry = Change::put_entry(InodeNo::ROOT, b"a", no, FileKind::Symlink);
            c.apply(&[entry]).unwrap();
        },
        &["says symbolic link, but leads to a file"],
    );
}

#[test]
fn a_file_without_a_name_is_found_and_gets_one() {
    let (_place, room) = repaired(
        |c| {
            c.apply(&[Change::remove_entry(InodeNo::ROOT, b"a")])
                .unwrap()
        },
        &["a file without a name"],
    );
    let (path, _) = rescued(&room).remove(0);
    assert_eq!(room.read_file(path).unwrap(), pattern(1, 2_500_000));
}

#[test]
fn a_directory_without_a_name_is_found_with_all_that_is_in_it() {
    let (_place, room) = repaired(
        |c| {
            c.apply(&[Change::remove_entry(InodeNo::ROOT, b"d")])
                .unwrap()
        },
        &[
            "a directory without a name",
            "2 links to the directory, 3 are counted",
        ],
    );
    let (path, inode) = rescued(&room).remove(0);
    assert_eq!(inode.nlink, 3);
    assert_eq!(
        room.read_file(format!("{path}/x")).unwrap(),
        pattern(2, 60_000)
    );
    assert_eq!(room.read_dir(inode.no, 0, 10).unwrap().len(), 2);
}

#[test]
fn a_directory_within_itself_is_found_and_taken_out() {
    let (_place, room) = repaired(
        |c| {
            let (d, e) = (inode(c, "/d").no, inode(c, "/d/e").no);
            c.apply(&[
                Change::remove_entry(InodeNo::ROOT, b"d"),
                Change::put_entry(e, b"d", d, FileKind::Directory),
            ])
            .unwrap();
        },
        &[
            "is inside itself",
            "links to the directory",
            "but says inode 1",
        ],
    );
    let found = rescued(&room);
    assert_eq!(found.len(), 1);
    let below = &found[0].0;
    assert_eq!(
        room.read_file(format!("{below}/x")).unwrap(),
        pattern(2, 60_000)
    );
}

#[test]
fn a_second_name_of_a_directory_is_found_and_removed() {
    let (_place, room) = fully_repaired(
        |c| {
            let e = inode(c, "/d/e").no;
            let entry = Change::put_entry(InodeNo::ROOT, b"zz", e, FileKind::Directory);
            c.apply(&[entry]).unwrap();
        },
        &["is a second one of directory", "links to the directory"],
    );
    assert_eq!(
        room.read_dir(InodeNo::ROOT, 0, 100).unwrap().len()
            + room.read_dir(no(&room, "/d"), 0, 9).unwrap().len(),
        7
    );
}

#[test]
fn a_name_in_a_directory_that_is_gone_is_found_and_its_file_kept() {
    let (_place, room) = repaired(
        |c| {
            let a = inode(c, "/a").no;
            c.apply(&[
                Change::remove_entry(InodeNo::ROOT, b"a"),
                Change::put_entry(InodeNo(999), b"a", a, FileKind::Regular),
            ])
            .unwrap();
        },
        &["there is no such directory"],
    );
    let (path, _) = rescued(&room).remove(0);
    assert_eq!(room.read_file(path).unwrap(), pattern(1, 2_500_000));
}
