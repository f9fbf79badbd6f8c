//! Each way in which a room can be broken is refused by its name.

use std::fs;
use std::path::Path;

use room::{Credential, Error, Room, Secret};

use super::*;

#[test]
fn one_damaged_header_gives_way_to_the_other_and_is_repaired() {
    for name in ["header.json", "header.backup.json"] {
        let golden = Copy::new();
        let good = fs::read(golden.file(name)).unwrap();
        golden.flip(name, 40);
        golden.open().unwrap().close().unwrap();
        assert_eq!(
            fs::read(golden.file(name)).unwrap(),
            good,
            "{name} is whole again"
        );
        fs::remove_file(golden.file(name)).unwrap();
        golden.open().unwrap().close().unwrap();
        assert_eq!(fs::read(golden.file(name)).unwrap(), good);
    }
}

#[test]
fn a_damaged_slot_in_the_first_header_is_not_taken_for_a_wrong_passphrase() {
    let golden = Copy::new();
    let good = fs::read_to_string(golden.file("header.json")).unwrap();
    let at = good.find("\"wrapped\": \"").unwrap() + 12;
    let flipped = if good.as_bytes()[at] == b'0' {
        "1"
    } else {
        "0"
    };
    let mut damaged = good.clone();
    damaged.replace_range(at..at + 1, flipped);
    fs::write(golden.file("header.json"), damaged).unwrap();
    golden.open().unwrap().close().unwrap();
    assert_eq!(
        fs::read_to_string(golden.file("header.json")).unwrap(),
        good
    );
}

/// What failed: damage in one copy to a name that only newer versions could know refused the room as theirs, though the other copy was whole.
#[test]
fn an_unknown_name_in_one_header_is_damage_where_nothing_vouches_for_it() {
    for (from, to) in [
        ("\"features\": []", "\"features\": [\"catalog-qages\"]"),
        ("\"suite\": \"aes-256-gcm\"", "\"suite\": \"aes-256-gcl\""),
        ("\"kind\": \"raw-key\"", "\"kind\": \"raw-kex\""),
    ] {
        for name in ["header.json", "header.backup.json"] {
            let golden = Copy::new();
            let good = fs::read_to_string(golden.file(name)).unwrap();
            let damaged = good.replace(from, to);
            assert_ne!(damaged, good);
            fs::write(golden.file(name), damaged).unwrap();
            golden.open().unwrap().close().unwrap();
            assert_eq!(fs::read_to_string(golden.file(name)).unwrap(), good);
        }
    }
    // How a newer format is authenticated is not known.
    let golden = Copy::new();
    let newer = fs::read_to_string(golden.file("header.json")).unwrap();
    let newer = newer.replace("\"format\": 1", "\"format\": 2");
    fs::write(golden.file("header.json"), newer).unwrap();
    assert!(matches!(golden.open().unwrap_err(), Error::Unsupported(_)));
}

#[test]
fn both_headers_damaged_says_what_to_restore() {
    let golden = Copy::new();
    let backup = fs::read(golden.file("header.json")).unwrap();
    golden.flip("header.json", 40);
    golden.flip("header.backup.json", 50);
    let refused = golden.open().unwrap_err();
    assert!(matches!(refused, Error::HeaderDamaged(_)), "{refused:?}");
    assert!(
        refused.to_string().contains("strongroom header restore"),
        "{refused}"
    );
    let credential = Credential::Passphrase(Secret::from(b"golden passphrase".to_vec()));
    Room::header_restore(&golden.0.path().join("room"), &backup, &credential).unwrap();
    golden.open().unwrap();
}

#[test]
fn a_room_of_a_newer_version_is_refused_by_name() {
    for (from, to, named) in [
        ("\"format\": 1", "\"format\": 2", "format 2"),
        (
            "\"features\": []",
            "\"features\": [\"time-travel\"]",
            "time-travel",
        ),
        (
            "\"suite\": \"aes-256-gcm\"",
            "\"suite\": \"aegis-256\"",
            "aegis-256",
        ),
        (
            "\"kind\": \"raw-key\"",
            "\"kind\": \"telepathy\"",
            "telepathy",
        ),
    ] {
        let golden = Copy::new();
        golden.edit_headers(from, to);
        let refused = golden.open().unwrap_err();
        assert!(
            matches!(&refused, Error::Unsupported(why) if why.contains(named)),
            "{refused:?}"
        );
    }
}

#[test]
fn a_header_changed_without_the_key_is_refused() {
    for (from, to) in [
        (
            "\"suite\": \"aes-256-gcm\"",
            "\"suite\": \"chacha20-poly1305\"",
        ),
        ("\"label\": \"raw\"", "\"label\": \"war\""),
        ("\"epoch\": 1", "\"epoch\": 2"),
    ] {
        let golden = Copy::new();
        golden.edit_headers(from, to);
        let refused = golden.open().unwrap_err();
        assert!(
            matches!(refused, Error::HeaderDamaged(_)),
            "{from}: {refused:?}"
        );
    }
}

#[test]
fn key_derivation_that_would_eat_the_machine_is_refused_before_it_runs() {
    let golden = Copy::new();
    golden.edit_headers("\"passes\": 1", "\"passes\": 60000");
    assert!(matches!(
        golden.open().unwrap_err(),
        Error::HeaderDamaged(_)
    ));
    let golden = Copy::new();
    golden.edit_headers("\"memory_kib\": 8192", "\"memory_kib\": 4000000000");
    assert!(matches!(
        golden.open().unwrap_err(),
        Error::HeaderDamaged(_)
    ));
}

#[test]
fn a_catalog_that_is_damaged_cut_or_another_rooms_is_refused_and_names_check() {
    type Damage<'a> = &'a dyn Fn(&Path);
    let damage: [(&str, Damage<'_>); 4] = [
        ("first page", &|p| {
            let mut bytes = fs::read(p).unwrap();
            bytes[100] ^= 1;
            fs::write(p, bytes).unwrap();
        }),
        ("salt", &|p| {
            let mut bytes = fs::read(p).unwrap();
            bytes[3] ^= 1;
            fs::write(p, bytes).unwrap();
        }),
        ("emptied", &|p| fs::write(p, b"").unwrap()),
        ("missing", &|p| fs::remove_file(p).unwrap()),
    ];
    for (what, damage) in damage {
        let golden = Copy::new();
        damage(&golden.file("catalog.db"));
        let refused = golden.open().unwrap_err();
        assert!(
            matches!(refused, Error::Catalog(_) | Error::Damaged(_)),
            "{what}: {refused:?}"
        );
        assert!(refused.to_string().contains("check"), "{what}: {refused}");
    }
}

#[test]
fn an_older_header_put_back_is_noticed() {
    let golden = Copy::new();
    let old = fs::read(golden.file("header.json")).unwrap();
    let room = golden.open().unwrap();
    room.remove_slot(1).unwrap();
    room.close().unwrap();
    fs::write(golden.file("header.json"), &old).unwrap();
    fs::write(golden.file("header.backup.json"), &old).unwrap();
    assert!(matches!(
        golden.open().unwrap_err(),
        Error::OldHeader { .. }
    ));
}

#[test]
fn a_missing_or_cut_segment_costs_only_the_data_that_was_in_it() {
    for cut in [false, true] {
        let golden = Copy::new();
        let room = golden.open().unwrap();
        room.write_file("/elsewhere", b"in a segment of its own")
            .unwrap();
        room.close().unwrap();
        let first = golden.file("segments/00000000000000000001");
        if cut {
            fs::OpenOptions::new()
                .write(true)
                .open(&first)
                .unwrap()
                .set_len(4096 + 16384)
                .unwrap();
        } else {
            fs::remove_file(&first).unwrap();
        }
        let room = golden.open().unwrap();
        assert_eq!(
            room.read_file("/elsewhere").unwrap(),
            b"in a segment of its own"
        );
        assert!(matches!(
            room.read_file("/numbers"),
            Err(Error::Corrupt { .. })
        ));
        let report = room.check(true, false, &|_, _| true).unwrap();
        assert!(!report.lost.is_empty());
    }
}
