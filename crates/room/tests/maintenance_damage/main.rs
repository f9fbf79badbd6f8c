//! Damage of every kind, made on purpose: check finds exactly it, and repair fixes it without losing anything readable.
#![allow(missing_docs)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Catalog, Change, Chunk, FileKind, Inode, InodeNo, SegmentAccount, SqlCatalog};
use common::{Place, credential, pattern, secret};
use room::{CheckReport, Error, FileSystem as _, LostRange, Progress, Room};
use storage::{HostStorage, Storage};

const GO: Progress<'static> = &|_, _| true;
const UNIT: u64 = 16384;

fn header(place: &Place) -> (seal::Header, seal::MasterKey) {
    let bytes = std::fs::read(place.room_dir().join("header.json")).unwrap();
    let header = seal::Header::parse(&bytes).unwrap();
    let master = header.unlock(&credential()).unwrap().master;
    (header, master)
}

fn catalog(place: &Place) -> SqlCatalog {
    let (header, master) = header(place);
    let key = header.catalog_key(&master);
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(&place.room_dir()).unwrap());
    SqlCatalog::open(
        &storage,
        "catalog.db",
        &key,
        &catalog::OpenOptions::default(),
    )
    .unwrap()
}

/// Changes the catalog of a closed room behind its back.
fn tamper(place: &Place, change: impl FnOnce(&SqlCatalog)) {
    let catalog = catalog(place);
    change(&catalog);
    catalog.commit().unwrap();
    catalog.checkpoint().unwrap();
}

/// A closed room: `/a` of 2.5 MiB, `/b` a clone of its first MiB, `/d/x`, `/d/e/`, a link `/l`, a hole in `/h`.
fn sample() -> Place {
    let place = Place::new();
    let room = place.create();
    room.write_file("/a", &pattern(1, 2_500_000)).unwrap();
    let (a, b) = (
        no(&room, "/a"),
        room.open_or_make_file("/b").unwrap().inode(),
    );
    room.copy_range(a, 0, b, 0, 1 << 20).unwrap();
    room.make_dir("/d/e", true).unwrap();
    room.write_file("/d/x", &pattern(2, 60_000)).unwrap();
    room.link(no(&room, "/d/x"), InodeNo::ROOT, b"l").unwrap();
    let h = room.open_or_make_file("/h").unwrap().inode();
    room.write(h, 1 << 20, &pattern(3, 5000)).unwrap();
    room.close().unwrap();
    place
}

fn no(room: &Room, path: &str) -> InodeNo {
    room.resolve(path.as_ref(), false).unwrap()
}

fn inode(catalog: &SqlCatalog, path: &str) -> Inode {
    let mut at = catalog.inode(InodeNo::ROOT).unwrap().unwrap();
    for name in path.split('/').filter(|n| !n.is_empty()) {
        at = catalog.lookup(at.no, name.as_bytes()).unwrap().unwrap();
    }
    at
}

fn edit(catalog: &SqlCatalog, path: &str, change: impl FnOnce(&mut Inode)) {
    let mut inode = inode(catalog, path);
    change(&mut inode);
    catalog.apply(&[Change::PutInode(&inode)]).unwrap();
}

fn whole(room: &Room) -> CheckReport {
    let report = room.check(true, false, GO).unwrap();
    assert_eq!(report.findings, [] as [String; 0]);
    assert_eq!(report.lost, []);
    report
}

fn unchanged(room: &Room) {
    assert_eq!(room.read_file("/a").unwrap(), pattern(1, 2_500_000));
    assert_eq!(
        room.read_file("/b").unwrap(),
        pattern(1, 2_500_000)[..1 << 20]
    );
    assert_eq!(room.read_file("/d/x").unwrap(), pattern(2, 60_000));
    assert_eq!(room.read_file("/l").unwrap(), pattern(2, 60_000));
    assert_eq!(room.read_file("/h").unwrap()[1 << 20..], pattern(3, 5000));
}

/// Makes one damage, and expects its findings (each contains one of `expected`, in any order) and nothing else; then
/// that repair leaves a whole room with the files as they were.
fn fully_repaired(damage: impl FnOnce(&SqlCatalog), expected: &[&str]) -> (Place, Room) {
    let (place, room) = repaired(damage, expected);
    unchanged(&room);
    (place, room)
}

fn repaired(damage: impl FnOnce(&SqlCatalog), expected: &[&str]) -> (Place, Room) {
    let place = sample();
    tamper(&place, damage);
    let room = place.open();
    let report = room.check(false, false, GO).unwrap();
    assert!(
        !report.findings.is_empty(),
        "nothing found, expected {expected:?}"
    );
    for finding in &report.findings {
        assert!(
            expected.iter().any(|e| finding.contains(e)),
            "unexpected: {finding}"
        );
    }
    for e in expected {
        assert!(
            report.findings.iter().any(|f| f.contains(e)),
            "not found: {e} in {:?}",
            report.findings
        );
    }
    assert_eq!(report.repaired, [] as [String; 0]);
    let report = room.check(false, true, GO).unwrap();
    assert!(!report.repaired.is_empty());
    whole(&room);
    room.close().unwrap();
    let room = place.open();
    whole(&room);
    (place, room)
}

#[test]
fn a_whole_room_has_no_findings() {
    let place = sample();
    let room = place.open();
    let report = whole(&room);
    assert_eq!((report.files, report.directories), (4, 3));
    unchanged(&room);
}

#[test]
fn wrong_link_counts_are_found_and_repaired() {
    fully_repaired(
        |c| edit(c, "/a", |i| i.nlink = 2),
        &["1 names, 2 are counted"],
    );
    fully_repaired(
        |c| edit(c, "/l", |i| i.nlink = 1),
        &["2 names, 1 are counted"],
    );
    fully_repaired(
        |c| edit(c, "/d", |i| i.nlink = 7),
        &["3 links to the directory, 7 are counted"],
    );
    fully_repaired(
        |c| edit(c, "", |i| i.nlink = 2),
        &["3 links to the directory, 2 are counted"],
    );
}

#[test]
fn a_wrong_parent_is_found_and_repaired() {
    let (_place, room) = fully_repaired(
        |c| edit(c, "/d/e", |i| i.parent = InodeNo::ROOT),
        &["is in inode"],
    );
    assert_eq!(
        room.attributes(no(&room, "/d/e")).unwrap().parent,
        no(&room, "/d")
    );
    fully_repaired(
        |c| edit(c, "/a", |i| i.parent = InodeNo(5)),
        &["says that inode 5 is its directory"],
    );
    fully_repaired(
        |c| edit(c, "", |i| i.parent = InodeNo(5)),
        &["the root says"],
    );
}

#[test]
fn wrong_block_counts_are_found_and_repaired() {
    fully_repaired(|c| edit(c, "/a", |i| i.blocks += 3), &["blocks are stored"]);
    fully_repaired(
        |c| edit(c, "/d/e", |i| i.blocks = 3),
        &["nothing is stored, 3 blocks"],
    );
}

#[test]
fn wrong_accounts_are_found_and_repaired() {
    let account = |c: &SqlCatalog, by: i32| {
        let account = c.segments().unwrap()[0];
        let live = account.live.saturating_add_signed(by);
        c.apply(&[Change::PutSegment(SegmentAccount { live, ..account })])
            .unwrap();
    };
    fully_repaired(|c| account(c, -5), &["blocks are live"]);
    // As if everything in it were dead: the next commit would delete it.
    fully_repaired(|c| account(c, -10_000), &["blocks are live"]);
}

#[test]
fn wrong_counts_of_shared_units_are_found_and_repaired() {
    let share = |c: &SqlCatalog, references| {
        let (segment, position, _) = c.all_shared().unwrap()[0];
        c.apply(&[Change::ShareUnit {
            segment,
            position,
            references,
        }])
        .unwrap();
    };
    fully_repaired(|c| share(c, 1), &["1 more references, 2 are counted"]);
    fully_repaired(|c| share(c, -1), &["1 more references, 0 are counted"]);
    fully_repaired(
        |c| {
            let no = inode(c, "/d/x").no;
            let position = c.chunk(no, 0).unwrap().extents()[0].position;
            let segment = c.chunk(no, 0).unwrap().extents()[0].segment;
            c.apply(&[Change::ShareUnit {
                segment,
                position,
                references: 3,
            }])
            .unwrap();
        },
        &["0 more references, 3 are counted"],
    );
}

#[test]
fn shared_data_that_is_not_marked_is_found_and_repaired() {
    let unmark = |c: &SqlCatalog| {
        let no = inode(c, "/b").no;
        let old = c.chunk(no, 0).unwrap();
        let mut new = Chunk::default();
        for extent in old.extents() {
            let mut extent = extent.clone();
            extent.shared = false;
            new.replace(extent.first, extent.blocks, &[extent.clone()]);
        }
        c.apply(&[Change::PutChunk {
            inode: no,
            index: 0,
            chunk: &new,
        }])
        .unwrap();
    };
    let (_place, room) = fully_repaired(unmark, &["is not marked"]);
    // Without the mark this would take the data away from the other file.
    room.write_file("/b", b"").unwrap();
    room.sync().unwrap();
    assert_eq!(room.read_file("/a").unwrap(), pattern(1, 2_500_000));
}

#[test]
fn a_name_of_an_inode_that_is_gone_is_found_and_removed() {
    let (_place, room) = repaired(
        |c| {
            let entry = Change::PutEntry {
                parent: InodeNo::ROOT,
                name: b"ghost",
                inode: InodeNo(999),
                kind: FileKind::Regular,
            };
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
            let entry = Change::PutEntry {
                parent: InodeNo::ROOT,
                name: b"a",
                inode: no,
                kind: FileKind::Symlink,
            };
            c.apply(&[entry]).unwrap();
        },
        &["says symbolic link, but leads to a file"],
    );
}

#[test]
fn a_file_without_a_name_is_found_and_gets_one() {
    let (_place, room) = repaired(
        |c| {
            c.apply(&[Change::RemoveEntry {
                parent: InodeNo::ROOT,
                name: b"a",
            }])
            .unwrap()
        },
        &["a file without a name"],
    );
    let (entry, _) = room
        .read_dir(no(&room, "/lost+found-1"), 0, 10)
        .unwrap()
        .remove(0);
    let path = format!("/lost+found-1/{}", String::from_utf8(entry.name).unwrap());
    assert_eq!(room.read_file(path).unwrap(), pattern(1, 2_500_000));
}

#[test]
fn a_directory_without_a_name_is_found_with_all_that_is_in_it() {
    let (_place, room) = repaired(
        |c| {
            c.apply(&[Change::RemoveEntry {
                parent: InodeNo::ROOT,
                name: b"d",
            }])
            .unwrap()
        },
        &[
            "a directory without a name",
            "2 links to the directory, 3 are counted",
        ],
    );
    let (entry, inode) = room
        .read_dir(no(&room, "/lost+found-1"), 0, 10)
        .unwrap()
        .remove(0);
    let path = format!("/lost+found-1/{}", String::from_utf8(entry.name).unwrap());
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
                Change::RemoveEntry {
                    parent: InodeNo::ROOT,
                    name: b"d",
                },
                Change::PutEntry {
                    parent: e,
                    name: b"d",
                    inode: d,
                    kind: FileKind::Directory,
                },
            ])
            .unwrap();
        },
        &[
            "is inside itself",
            "links to the directory",
            "but says inode 1",
        ],
    );
    let found = room.read_dir(no(&room, "/lost+found-1"), 0, 10).unwrap();
    assert_eq!(found.len(), 1);
    let below = format!(
        "/lost+found-1/{}",
        String::from_utf8_lossy(&found[0].0.name)
    );
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
            let entry = Change::PutEntry {
                parent: InodeNo::ROOT,
                name: b"zz",
                inode: e,
                kind: FileKind::Directory,
            };
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
                Change::RemoveEntry {
                    parent: InodeNo::ROOT,
                    name: b"a",
                },
                Change::PutEntry {
                    parent: InodeNo(999),
                    name: b"a",
                    inode: a,
                    kind: FileKind::Regular,
                },
            ])
            .unwrap();
        },
        &["there is no such directory"],
    );
    let (entry, _) = room
        .read_dir(no(&room, "/lost+found-1"), 0, 10)
        .unwrap()
        .remove(0);
    let path = format!("/lost+found-1/{}", String::from_utf8(entry.name).unwrap());
    assert_eq!(room.read_file(path).unwrap(), pattern(1, 2_500_000));
}

#[test]
fn data_beyond_the_end_is_found_and_cut() {
    let (_place, room) = repaired(
        |c| edit(c, "/a", |i| i.size = 1_500_000),
        &["beyond the end of the file"],
    );
    assert_eq!(
        room.read_file("/a").unwrap(),
        pattern(1, 2_500_000)[..1_500_000]
    );
    assert_eq!(
        room.read_file("/b").unwrap(),
        pattern(1, 2_500_000)[..1 << 20]
    );
}

#[test]
fn maps_that_lead_nowhere_are_found_and_become_holes() {
    let lead_away = |c: &SqlCatalog| {
        let no = inode(c, "/d/x").no;
        let mut extent = c.chunk(no, 0).unwrap().extents()[0].clone();
        extent.segment = catalog::SegmentNo(77);
        let mut chunk = Chunk::default();
        chunk.replace(extent.first, extent.blocks, &[extent.clone()]);
        c.apply(&[Change::PutChunk {
            inode: no,
            index: 0,
            chunk: &chunk,
        }])
        .unwrap();
    };
    let place = sample();
    tamper(&place, lead_away);
    let room = place.open();
    let report = room.check(false, true, GO).unwrap();
    assert!(
        report
            .findings
            .iter()
            .any(|f| f.contains("leads to a segment that is not known")),
        "{report:?}"
    );
    let lost = |path: &str| LostRange {
        path: path.into(),
        inode: no(&room, "/d/x").0,
        offset: 0,
        len: 60_000,
    };
    assert!(
        report.lost == [lost("/d/x")] || report.lost == [lost("/l")],
        "{report:?}"
    );
    assert_eq!(room.read_file("/d/x").unwrap(), vec![0; 60_000]);
    assert_eq!(room.read_file("/a").unwrap(), pattern(1, 2_500_000));
    whole(&room);
}

#[test]
fn data_of_an_inode_that_is_gone_is_found_and_removed() {
    repaired(
        |c| {
            let chunk = c.chunk(inode(c, "/d/x").no, 0).unwrap();
            c.apply(&[Change::PutChunk {
                inode: InodeNo(888),
                index: 3,
                chunk: &chunk,
            }])
            .unwrap();
        },
        &["data of an inode that is not there"],
    );
}

/// Where a file's chunk is on disk: segment file and byte offset.
fn place_of(place: &Place, path: &str, index: u64) -> (PathBuf, u64) {
    let catalog = catalog(place);
    let chunk = catalog.chunk(inode(&catalog, path).no, index).unwrap();
    let extent = &chunk.extents()[0];
    let file = place
        .room_dir()
        .join("segments")
        .join(format!("{:020}", extent.segment.0));
    (file, u64::from(extent.position) * 4096)
}

fn flip(file: &PathBuf, at: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn flipped_bits_are_named_by_file_and_range_and_cost_nothing_else() {
    let place = sample();
    let (file, at) = place_of(&place, "/a", 0);
    // Two neighbouring units of what /a and /b share.
    flip(&file, at + 3 * UNIT + 77);
    flip(&file, at + 4 * UNIT);
    let room = place.open();
    let (a, b) = (no(&room, "/a"), no(&room, "/b"));
    let report = room.check(false, false, GO).unwrap();
    assert_eq!(report.findings, [] as [String; 0]);
    let report = room.check(true, false, GO).unwrap();
    let expected = [
        LostRange {
            path: "/a".into(),
            inode: a.0,
            offset: 3 * UNIT,
            len: 2 * UNIT,
        },
        LostRange {
            path: "/b".into(),
            inode: b.0,
            offset: 3 * UNIT,
            len: 2 * UNIT,
        },
    ];
    assert_eq!(report.lost, expected);
    assert_eq!(report.repaired, [] as [String; 0]);
    // Compaction moves everything but that, and never gives it a good tag.
    let compacted = room.compact(100, GO).unwrap();
    assert_eq!(
        compacted.unreadable,
        [] as [String; 0],
        "one full segment is not thin: nothing to move"
    );
    let rekeyed = room.rekey(&credential(), GO).unwrap();
    assert!(
        !rekeyed.finished && rekeyed.unreadable.len() >= 2,
        "{rekeyed:?}"
    );
    assert!(room.info().unwrap().rekeying);
    assert_eq!(room.check(true, false, GO).unwrap().lost, expected);
    assert_eq!(room.read_file("/d/x").unwrap(), pattern(2, 60_000));
    let mut rest = vec![0; 100_000];
    room.read(a, 5 * UNIT, &mut rest).unwrap();
    assert_eq!(rest, pattern(1, 2_500_000)[5 * UNIT as usize..][..100_000]);
    // Repair lists what it discards, and only that reads as zeros.
    let report = room.check(true, true, GO).unwrap();
    assert_eq!(report.lost, expected);
    assert_eq!(report.repaired.len(), 2);
    whole(&room);
    let mut zeroed = pattern(1, 2_500_000);
    zeroed[3 * UNIT as usize..5 * UNIT as usize].fill(0);
    assert_eq!(room.read_file("/a").unwrap(), zeroed);
    assert_eq!(room.read_file("/b").unwrap(), zeroed[..1 << 20]);
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    whole(&room);
}

#[test]
fn damaged_last_units_are_lost_up_to_the_end_of_the_file_only() {
    let place = sample();
    let (file, at) = place_of(&place, "/d/x", 0);
    flip(&file, at + 3 * UNIT);
    let room = place.open();
    let report = room.check(true, false, GO).unwrap();
    assert_eq!(report.lost.len(), 1);
    assert_eq!(
        (report.lost[0].offset, report.lost[0].len),
        (3 * UNIT, 60_000 - 3 * UNIT)
    );
}

#[test]
fn a_missing_segment_and_one_cut_short_cost_exactly_what_lay_in_them() {
    for cut in [None, Some(100 * 4096 + 5)] {
        let place = sample();
        let room = place.open();
        room.write_file("/new", &pattern(9, 1_000_000)).unwrap();
        room.close().unwrap();
        let (file, at) = place_of(&place, "/new", 0);
        match cut {
            None => std::fs::remove_file(&file).unwrap(),
            Some(len) => std::fs::OpenOptions::new()
                .write(true)
                .open(&file)
                .unwrap()
                .set_len(len)
                .unwrap(),
        }
        let room = place.open();
        let report = room.check(true, false, GO).unwrap();
        let first = cut.map_or(0, |len| (len - at) / UNIT * UNIT);
        let new = no(&room, "/new").0;
        let lost = LostRange {
            path: "/new".into(),
            inode: new,
            offset: first,
            len: 1_000_000 - first,
        };
        assert_eq!(report.lost, [lost]);
        assert!(
            report.findings.iter().any(|f| f.contains("its file")),
            "{report:?}"
        );
        unchanged(&room);
        let report = room.check(true, true, GO).unwrap();
        assert_eq!(report.lost.len(), 1);
        assert_eq!(room.read_file("/new").unwrap().len(), 1_000_000);
        unchanged(&room);
        room.sync().unwrap();
        room.close().unwrap();
        let room = place.open();
        if cut.is_none() {
            whole(&room);
        }
    }
}

#[test]
fn a_damaged_segment_header_is_found_and_its_data_moved() {
    let place = sample();
    let (file, _) = place_of(&place, "/a", 0);
    flip(&file, 100);
    let room = place.open();
    let report = room.check(true, false, GO).unwrap();
    assert_eq!(report.lost, []);
    assert_eq!(report.findings.len(), 1, "{report:?}");
    unchanged(&room);
    let report = room.check(false, true, GO).unwrap();
    assert_eq!(report.repaired.len(), 1, "{report:?}");
    whole(&room);
    unchanged(&room);
}

#[test]
fn a_room_whose_catalog_fails_authentication_is_examined() {
    let place = sample();
    assert_eq!(
        Room::examine(&place.room_dir(), &credential())
            .unwrap()
            .findings,
        [] as [String; 0]
    );
    flip(&place.room_dir().join("header.json"), 200);
    let findings = Room::examine(&place.room_dir(), &credential())
        .unwrap()
        .findings;
    assert!(
        findings.len() == 1 && findings[0].contains("header.json"),
        "{findings:?}"
    );
    flip(&place.room_dir().join("header.json"), 200);
    flip(&place.room_dir().join("catalog.db"), 9000);
    let findings = Room::examine(&place.room_dir(), &credential())
        .unwrap()
        .findings;
    assert!(!findings.is_empty());
    flip(&place.room_dir().join("catalog.db"), 100);
    let findings = Room::examine(&place.room_dir(), &credential())
        .unwrap()
        .findings;
    assert!(
        findings.iter().any(|f| f.starts_with("catalog: ")),
        "{findings:?}"
    );
    let wrong = room::Credential::RawKey(secret());
    assert!(Room::examine(&place.room_dir(), &wrong).is_err());
}

#[test]
fn a_backup_of_a_room_that_lacks_a_segment_says_so_and_keeps_the_good_copy_it_has() {
    let place = sample();
    let room = place.open();
    let target = place.dir.path().join("copy");
    assert_eq!(
        room.backup(&target, GO).unwrap().problems,
        [] as [String; 0]
    );
    room.write_file("/new", &pattern(9, 100_000)).unwrap();
    room.close().unwrap();
    for path in ["/a", "/new"] {
        std::fs::remove_file(place_of(&place, path, 0).0).unwrap();
    }
    let room = place.open();
    let report = room.backup(&target, GO).unwrap();
    assert_eq!(report.problems.len(), 2, "{report:?}");
    room.close().unwrap();
    let copy = Room::open(&target, &credential(), place.options()).unwrap();
    unchanged(&copy);
    assert!(matches!(copy.read_file("/new"), Err(Error::Corrupt { .. })));
}

#[test]
fn nothing_is_repaired_while_pages_of_the_catalog_are_damaged() {
    let place = sample();
    tamper(&place, |c| edit(c, "/a", |i| i.nlink = 2));
    let room = place.open();
    room.close().unwrap();
    // A page in the middle that opening does not read.
    let path = place.room_dir().join("catalog.db");
    let len = std::fs::metadata(&path).unwrap().len();
    let mut refused = 0;
    for page in (len / 4096 / 2)..len / 4096 {
        flip(&path, page * 4096 + 50);
        if let Ok(room) = place.try_open() {
            match room.check(true, true, GO) {
                Ok(report) => {
                    assert!(!report.findings.is_empty(), "page {page}");
                    assert_eq!(report.repaired, [] as [String; 0]);
                }
                Err(e) => assert!(matches!(e, Error::Catalog(_)), "page {page}: {e}"),
            }
            drop(room);
        }
        refused += 1;
        flip(&path, page * 4096 + 50);
    }
    assert!(refused > 0);
    let room = place.open();
    assert_eq!(room.check(true, false, GO).unwrap().findings.len(), 1);
    unchanged(&room);
}
