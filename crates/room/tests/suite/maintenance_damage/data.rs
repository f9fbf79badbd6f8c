//! Damage of file data and of files of the room.

use super::*;

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
    sound(&room);
    let mut zeroed = pattern(1, 2_500_000);
    zeroed[3 * UNIT as usize..5 * UNIT as usize].fill(0);
    assert_eq!(room.read_file("/a").unwrap(), zeroed);
    assert_eq!(room.read_file("/b").unwrap(), zeroed[..1 << 20]);
    assert!(room.rekey(&credential(), GO).unwrap().finished);
    sound(&room);
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
        let room = place.reopen(room);
        if cut.is_none() {
            sound(&room);
        }
    }
}

/// Check called a segment short when a power cut had taken an end of it that nothing refers to.
#[test]
fn only_what_files_refer_to_must_be_in_a_segment() {
    let place = sample();
    let room = place.open();
    room.write_file("/kept", &pattern(9, 1_000_000)).unwrap();
    room.sync().unwrap();
    room.write_file("/removed", &pattern(8, 500_000)).unwrap();
    room.sync().unwrap();
    room.unlink(InodeNo::ROOT, b"removed").unwrap();
    room.close().unwrap();
    let (file, _) = place_of(&place, "/kept", 0);
    let end = {
        let catalog = catalog(&place);
        let chunk = catalog.chunk(inode(&catalog, "/kept").no, 0).unwrap();
        let ends = chunk
            .extents()
            .iter()
            .map(|e| e.position + u32::from(e.blocks));
        u64::from(ends.max().unwrap()) * 4096
    };
    let cut = |len| {
        let file = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        assert!(file.metadata().unwrap().len() >= len);
        file.set_len(len).unwrap();
    };
    let examined = || Room::examine(&place.room_dir(), &credential()).unwrap();
    cut(end);
    assert_eq!(examined().findings, [] as [String; 0]);
    sound(&place.open());
    cut(end - 1);
    let room = place.open();
    let report = room.check(true, false, GO).unwrap();
    room.close().unwrap();
    let last = 1_000_000 % UNIT;
    assert_eq!(
        (report.lost[0].offset, report.lost[0].len),
        (1_000_000 - last, last)
    );
    for findings in [report.findings, examined().findings] {
        assert!(findings[0].contains("its file has"), "{findings:?}");
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
    sound(&room);
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

/// A wrong map that led into another file's data, and came first, cost that file what it had there: the repair took it for the wrong one.
#[test]
fn of_units_that_overlap_the_one_that_opens_stays() {
    let place = sample();
    tamper(&place, |catalog| {
        let (a, x) = (inode(catalog, "/a").no, inode(catalog, "/d/x").no);
        let of_x = catalog.chunk(x, 0).unwrap();
        // From the second block of one unit to the first of the next.
        let mut wrong = of_x.extents()[0].trim(4, 8);
        (wrong.first, wrong.position) = (20, wrong.position + 1);
        let mut chunk = catalog.chunk(a, 2).unwrap();
        chunk.replace(20, 4, &[wrong]);
        let change = Change::put_chunk(a, 2, &chunk);
        catalog.apply(&[change]).unwrap();
    });
    let room = place.open();
    let offset = (2 << 20) + 20 * 4096;
    let lost = [LostRange {
        path: "/a".into(),
        inode: no(&room, "/a").0,
        offset,
        len: UNIT,
    }];
    for repair in [false, true] {
        let report = room.check(false, repair, GO).unwrap();
        assert_eq!(report.lost, lost);
        let found = report.findings.iter();
        assert_eq!(found.filter(|f| f.contains("overlaps")).count(), 1);
    }
    sound(&room);
    let mut left = pattern(1, 2_500_000);
    left[offset as usize..][..UNIT as usize].fill(0);
    assert!(room.read_file("/a").unwrap() == left);
    assert!(room.read_file("/d/x").unwrap() == pattern(2, 60_000));
    assert!(room.read_file("/b").unwrap() == left[..1 << 20]);
    let room = place.reopen(room);
    sound(&room);
}
