//! Damage of every kind, made on purpose: check finds exactly it, and repair fixes it without losing anything readable.
mod data;
mod names;

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Place, credential, no, pattern, secret, snapshot, sound};
use catalog::{Catalog, Change, Chunk, FileKind, Inode, InodeNo, SegmentAccount};
use room::{Error, FileSystem as _, LostRange, Progress, Room, Snapshots as _};
use storage::{HostStorage, Storage};

const GO: Progress<'static> = &|_, _| true;
const UNIT: u64 = 16384;

fn header(place: &Place) -> (seal::Header, seal::MasterKey) {
    let bytes = std::fs::read(place.room_dir().join("header.json")).unwrap();
    let header = seal::Header::parse(&bytes).unwrap();
    let master = header.unlock(&credential()).unwrap().master;
    (header, master)
}

fn catalog(place: &Place) -> Catalog {
    let (header, master) = header(place);
    let key = header.catalog_key(&master);
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(&place.room_dir()).unwrap());
    Catalog::open(
        &storage,
        "catalog.db",
        &key,
        &catalog::OpenOptions::default(),
    )
    .unwrap()
}

/// Changes the catalog of a closed room behind its back.
fn tamper(place: &Place, change: impl FnOnce(&Catalog)) {
    let catalog = catalog(place);
    change(&catalog);
    catalog.commit().unwrap();
    catalog.checkpoint().unwrap();
}

/// A closed room: `/a` of 2.5 MiB, `/b` a clone of its first MiB, `/d/x`, `/d/e/`, a link `/l`, a hole in `/h`.
fn sample() -> Place {
    let (place, room) = Place::with_room();
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

fn inode(catalog: &Catalog, path: &str) -> Inode {
    let mut at = catalog.inode(InodeNo::ROOT).unwrap().unwrap();
    for name in path.split('/').filter(|n| !n.is_empty()) {
        at = catalog.lookup(at.no, name.as_bytes()).unwrap().unwrap();
    }
    at
}

fn edit(catalog: &Catalog, path: &str, change: impl FnOnce(&mut Inode)) {
    let mut inode = inode(catalog, path);
    change(&mut inode);
    catalog.apply(&[Change::PutInode(&inode)]).unwrap();
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
fn fully_repaired(damage: impl FnOnce(&Catalog), expected: &[&str]) -> (Place, Room) {
    let (place, room) = repaired(damage, expected);
    unchanged(&room);
    (place, room)
}

fn repaired(damage: impl FnOnce(&Catalog), expected: &[&str]) -> (Place, Room) {
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
    sound(&room);
    let room = place.reopen(room);
    sound(&room);
    (place, room)
}

#[test]
fn a_whole_room_has_no_findings() {
    let place = sample();
    let room = place.open();
    let report = sound(&room);
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
    let account = |c: &Catalog, by: i32| {
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
    let share = |c: &Catalog, references| {
        let (segment, position, _) = c.all_shared().unwrap()[0];
        c.apply(&[Change::share_unit(segment, position, references)])
            .unwrap();
    };
    fully_repaired(|c| share(c, 1), &["1 more references, 2 are counted"]);
    fully_repaired(|c| share(c, -1), &["1 more references, 0 are counted"]);
    fully_repaired(
        |c| {
            let no = inode(c, "/d/x").no;
            let position = c.chunk(no, 0).unwrap().extents()[0].position;
            let segment = c.chunk(no, 0).unwrap().extents()[0].segment;
            c.apply(&[Change::share_unit(segment, position, 3)])
                .unwrap();
        },
        &["0 more references, 3 are counted"],
    );
}

#[test]
fn shared_data_that_is_not_marked_is_found_and_repaired() {
    let unmark = |c: &Catalog| {
        let no = inode(c, "/b").no;
        let old = c.chunk(no, 0).unwrap();
        let mut new = Chunk::default();
        for extent in old.extents() {
            let mut extent = extent.clone();
            extent.shared = false;
            new.replace(extent.first, extent.blocks, &[extent.clone()]);
        }
        c.apply(&[Change::put_chunk(no, 0, &new)]).unwrap();
    };
    let (_place, room) = fully_repaired(unmark, &["is not marked"]);
    // Without the mark this would take the data away from the other file.
    room.write_file("/b", b"").unwrap();
    room.sync().unwrap();
    assert_eq!(room.read_file("/a").unwrap(), pattern(1, 2_500_000));
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
    let lead_away = |c: &Catalog| {
        let no = inode(c, "/d/x").no;
        let mut extent = c.chunk(no, 0).unwrap().extents()[0].clone();
        extent.segment = catalog::SegmentNo(77);
        let mut chunk = Chunk::default();
        chunk.replace(extent.first, extent.blocks, &[extent.clone()]);
        c.apply(&[Change::put_chunk(no, 0, &chunk)]).unwrap();
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
    sound(&room);
}

#[test]
fn data_of_an_inode_that_is_gone_is_found_and_removed() {
    repaired(
        |c| {
            let chunk = c.chunk(inode(c, "/d/x").no, 0).unwrap();
            c.apply(&[Change::put_chunk(InodeNo(888), 3, &chunk)])
                .unwrap();
        },
        &["data of an inode that is not there"],
    );
}

/// Changes the lengths in the accounts of all segments by one block less.
fn shorten(c: &Catalog) {
    for account in c.segments().unwrap() {
        let length = account.length - 1;
        let shorter = SegmentAccount { length, ..account };
        c.apply(&[Change::PutSegment(shorter)]).unwrap();
    }
}

/// What the account of a segment did not know of became zeros, although it could be read.
#[test]
fn data_behind_the_counted_length_of_a_segment_is_kept() {
    fully_repaired(shorten, &["is longer than is counted"]);
}

/// All of a mebibyte became zeros where the place of one unit in it was wrong.
#[test]
fn of_a_map_that_leads_beyond_a_segment_only_that_unit_becomes_a_hole() {
    const LEN: u64 = 1 << 20;
    for in_snapshot in [false, true] {
        let (place, room) = Place::with_room();
        let data = pattern(1, LEN as usize);
        room.write_file("/f", &data).unwrap();
        let file = no(&room, "/f");
        if in_snapshot {
            snapshot(&room, "s");
            room.unlink(InodeNo::ROOT, b"f").unwrap();
        }
        room.close().unwrap();
        tamper(&place, shorten);
        let length = u64::from(catalog(&place).segments().unwrap()[0].length);
        let segment = std::fs::File::options()
            .write(true)
            .open(place.room_dir().join("segments/00000000000000000001"))
            .unwrap();
        segment.set_len(length * 4096).unwrap();
        let room = place.open();
        let report = room.check(true, true, GO).unwrap();
        assert!(
            report.findings[0].contains("16384 bytes"),
            "{:?}",
            report.findings
        );
        let mut left = vec![0; LEN as usize];
        match in_snapshot {
            true => room.snapshot("s").unwrap().read(file, 0, &mut left),
            false => room.read(file, 0, &mut left),
        }
        .unwrap();
        let (whole, gone) = left.split_at((LEN - UNIT) as usize);
        assert!(*whole == data[..whole.len()]);
        assert!(*gone == [0; UNIT as usize]);
        if !in_snapshot {
            let lost = LostRange {
                path: "/f".into(),
                inode: file.0,
                offset: LEN - UNIT,
                len: UNIT,
            };
            assert_eq!(report.lost, [lost]);
        }
        sound(&room);
    }
}
