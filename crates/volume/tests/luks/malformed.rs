//! Headers that are torn, cut short, or say what cannot be: a clear error each, no panic, no memory or time to speak of.

use std::sync::Arc;

use aws_lc_rs::digest;
use device::{Device, MemoryDevice};
use serde_json::{Value, json};
use volume::crypt::CryptOptions;
use volume::luks::{CopyState, KdfOptions, Limits, Luks, LuksError, Result};

use crate::common::*;

const COPY: usize = 0x4000;

/// Little enough that no header here costs time.
const TIGHT: Limits = Limits {
    memory_kib: 64,
    work_kib: 512,
    iterations: 200_000,
    lanes: 8,
};

fn image() -> Vec<u8> {
    all(&*small(&cheap()).0)
}

fn device_of(image: &[u8]) -> Arc<dyn Device> {
    let memory = MemoryDevice::new(image.len());
    memory.write_at(image, 0).unwrap();
    Arc::new(memory)
}

pub(crate) fn try_read(image: &[u8]) -> Result<Luks> {
    Luks::read(device_of(image))
}

/// Puts the right checksum on a copy.
pub(crate) fn sign(copy: &mut [u8]) {
    copy[448..512].fill(0);
    let sum = digest::digest(&digest::SHA256, copy);
    copy[448..480].copy_from_slice(sum.as_ref());
}

fn json_of(image: &[u8]) -> Value {
    let area = &image[4096..COPY];
    let end = area.iter().position(|b| *b == 0).unwrap();
    serde_json::from_slice(&area[..end]).unwrap()
}

/// With other JSON in both copies, and right checksums.
fn with_text(image: &[u8], text: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    for start in [0, COPY] {
        let copy = &mut image[start..start + COPY];
        copy[4096..].fill(0);
        copy[4096..4096 + text.len()].copy_from_slice(text);
        sign(copy);
    }
    image
}

fn with_json(image: &[u8], json: &Value) -> Vec<u8> {
    with_text(image, &serde_json::to_vec(json).unwrap())
}

/// After a change of the JSON.
pub(crate) fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let image = image();
    let mut json = json_of(&image);
    change(&mut json);
    with_json(&image, &json)
}

/// Does with an image whatever can be done with it; the point is that this ends, quickly and without a panic.
fn everything(image: &[u8]) {
    let Ok(mut luks) = try_read(image) else {
        return;
    };
    let text = luks.dump().to_string();
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    serde_json::to_string(&luks.dump()).unwrap();
    let _ = volume::luks::backup_header(luks.device());
    if let Ok((key, slot)) = luks.unlock(PASS, &TIGHT) {
        if let Ok(volume) = luks.open(None, &key, CryptOptions::default()) {
            let mut sector = vec![0; 4096.min(volume.len() as usize)];
            let _ = volume.read_at(&mut sector, 0);
        }
        let _ = luks.add_key(&key, b"new", &PBKDF2, None);
        let _ = luks.remove_key(slot);
    }
}

/// Calls `visit` for each value within.
fn each_path(json: &Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String])) {
    visit(path);
    if let Value::Object(map) = json {
        for (name, value) in map {
            path.push(name.clone());
            each_path(value, path, visit);
            path.pop();
        }
    }
}

fn extremes() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(33),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(""),
        json!("0"),
        json!("1"),
        json!("-1"),
        json!("512"),
        json!("4096"),
        json!("9223372036854775808"),
        json!("18446744073709551104"),
        json!("18446744073709551615"),
        json!("18446744073709551616"),
        json!("\u{1b}[2J\n"),
        json!("A".repeat(5000)),
        json!([]),
        json!(["0", "0"]),
        json!(["31"]),
        json!({}),
        json!({"0": {}}),
        json!({"32": {}}),
        json!({"00": {}}),
    ]
}

#[test]
fn every_field_of_the_json_at_its_extremes_ends_in_an_answer() {
    let image = image();
    let json = json_of(&image);
    let mut paths = Vec::new();
    each_path(&json, &mut Vec::new(), &mut |path| {
        if !path.is_empty() {
            paths.push(format!("/{}", path.join("/")));
        }
    });
    assert!(paths.len() > 35, "{paths:?}");
    let values = extremes();
    for path in &paths {
        for value in &values {
            let mut other = json.clone();
            *other.pointer_mut(path).unwrap() = value.clone();
            everything(&with_json(&image, &other));
        }
        let (parent, name) = path.rsplit_once('/').unwrap();
        let mut other = json.clone();
        let parent = other.pointer_mut(parent).unwrap();
        parent.as_object_mut().unwrap().remove(name);
        everything(&with_json(&image, &other));
    }
}

#[test]
fn every_field_of_a_reencryption_at_its_extremes_ends_in_an_answer() {
    // Where a step was begun: the header says that a part is being written.
    let whole = crate::reencrypt::cut_off_within_a_part();
    let json = json_of(&whole);
    let mut paths = Vec::new();
    for part in ["segments", "keyslots/2", "digests/1", "digests/2"] {
        let value = json.pointer(&format!("/{part}")).expect("it is there");
        let mut path = part.split('/').map(Into::into).collect();
        each_path(value, &mut path, &mut |path| {
            paths.push(format!("/{}", path.join("/")));
        });
    }
    assert!(paths.len() > 50, "{paths:?}");
    for path in &paths {
        for value in &extremes() {
            let mut other = json.clone();
            *other.pointer_mut(path).unwrap() = value.clone();
            if let Ok(mut luks) = try_read(&with_json(&whole, &other)) {
                let mut once = |_| std::ops::ControlFlow::Break(());
                let _ = luks.reencrypt(None, PASS, &TIGHT, &mut once);
            }
        }
    }
}

#[test]
fn every_byte_of_the_binary_header_may_be_anything_behind_a_right_checksum() {
    let image = image();
    for at in (0..448).chain(512..520) {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut other = image.clone();
            for start in [0, COPY] {
                other[start + at] = byte;
                sign(&mut other[start..start + COPY]);
            }
            if let Ok(luks) = try_read(&other) {
                let text = luks.dump().to_string();
                assert!(
                    !text.chars().any(|c| c.is_control() && c != '\n'),
                    "{text:?}"
                );
            }
        }
    }
}

#[test]
fn a_header_of_luks1_may_say_anything() {
    let image = all(&*small(&cheap_luks1()).0);
    for at in (0..592).step_by(4) {
        for word in [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x00AC_71F3u32] {
            let mut other = image.clone();
            other[at..at + 4].copy_from_slice(&word.to_be_bytes());
            everything(&other);
        }
    }
}

#[test]
fn images_cut_short_anywhere_are_refused_or_read() {
    for image in [image(), all(&*small(&cheap_luks1()).0)] {
        for len in [
            0,
            1,
            6,
            8,
            511,
            591,
            592,
            4095,
            4096,
            4097,
            COPY,
            COPY + 4096,
            2 * COPY,
            2 * COPY + 1,
            1 << 20,
        ] {
            everything(&image[..len]);
        }
        for len in [0, 5, 300] {
            assert!(
                matches!(try_read(&image[..len]), Err(LuksError::NotLuks)),
                "{len}"
            );
        }
    }
}

#[test]
fn a_damaged_copy_is_tolerated_named_and_repaired_by_the_next_change() {
    for (place, at) in [
        (0, 10),
        (0, 450),
        (0, 5000),
        (1, COPY + 10),
        (1, COPY + 450),
        (1, COPY + 5000),
    ] {
        let mut image = image();
        image[at] ^= 0x40;
        let mut luks = try_read(&image).unwrap();
        assert!(
            matches!(luks.copies().unwrap()[place], CopyState::Damaged(_)),
            "{at}"
        );
        assert_eq!(luks.copies().unwrap()[1 - place], CopyState::Good);
        assert!(luks.dump().to_string().contains("damaged"));
        assert!(luks.unlock(PASS, &TIGHT).is_ok());
        luks.set_label("repaired", "").unwrap();
        let again = Luks::read(Arc::clone(luks.device())).unwrap();
        assert_eq!(again.copies().unwrap(), &[CopyState::Good, CopyState::Good]);
        assert_eq!(again.dump().label, "repaired");
    }
    let mut image = image();
    image[5000] ^= 1;
    image[COPY + 5000] ^= 1;
    let error = try_read(&image).unwrap_err();
    assert!(matches!(error, LuksError::Damaged(_)));
    assert!(error.to_string().contains("backup"), "{error}");
}

#[test]
fn of_two_copies_the_higher_sequence_number_counts_and_the_old_one_is_named() {
    let image = image();
    for (place, start) in [(0, 0), (1, COPY)] {
        let mut other = image.clone();
        let copy = &mut other[start..start + COPY];
        copy[16..24].copy_from_slice(&9u64.to_be_bytes());
        copy[24..29].copy_from_slice(b"newer");
        sign(copy);
        let luks = try_read(&other).unwrap();
        assert_eq!(luks.dump().label, "newer");
        assert_eq!(luks.dump().sequence_number, Some(9));
        assert_eq!(luks.copies().unwrap()[1 - place], CopyState::Old(1));
    }
    // Two copies with one number that are of two volumes: which is the right one nobody knows.
    let mut other = image.clone();
    other[168] = if other[168] == b'0' { b'1' } else { b'0' };
    sign(&mut other[..COPY]);
    let error = try_read(&other).unwrap_err().to_string();
    assert!(error.contains("of two volumes"), "{error}");
    // The last possible number: no later change could be distinguished from it.
    let mut other = image.clone();
    for start in [0, COPY] {
        let copy = &mut other[start..start + COPY];
        copy[16..24].copy_from_slice(&u64::MAX.to_be_bytes());
        sign(copy);
    }
    let mut luks = try_read(&other).unwrap();
    assert!(matches!(
        luks.set_label("x", ""),
        Err(LuksError::Malformed(_))
    ));
}

#[test]
fn the_second_copy_is_found_at_each_of_its_nine_places_when_the_first_is_lost() {
    let image = image();
    let text = serde_json::to_vec(&json_of(&image)).unwrap();
    for power in 0..9 {
        let size = COPY << power;
        let mut other = vec![0; 2 * size + (2 << 20)];
        let mut json: Value = serde_json::from_slice(&text).unwrap();
        json["config"]["json_size"] = json!((size - 4096).to_string());
        json["keyslots"]["0"]["area"]["offset"] = json!((2 * size).to_string());
        json["segments"]["0"]["offset"] = json!((2 * size + (1 << 20)).to_string());
        json["config"]["keyslots_size"] = json!((1 << 20).to_string());
        other[2 * size..2 * size + 131_072].copy_from_slice(&image[2 * COPY..2 * COPY + 131_072]);
        let copy = &mut other[size..2 * size];
        copy[..4096].copy_from_slice(&image[COPY..COPY + 4096]);
        copy[8..16].copy_from_slice(&(size as u64).to_be_bytes());
        copy[256..264].copy_from_slice(&(size as u64).to_be_bytes());
        let text = serde_json::to_vec(&json).unwrap();
        copy[4096..4096 + text.len()].copy_from_slice(&text);
        sign(copy);
        let luks = try_read(&other).unwrap();
        assert_eq!(luks.copies().unwrap()[0], CopyState::Absent);
        luks.unlock(PASS, &TIGHT).unwrap();
    }
}

#[test]
fn what_was_made_over_the_first_copy_is_not_overwritten() {
    let mut image = image();
    image[..4096].fill(0x55);
    let mut luks = try_read(&image).unwrap();
    assert_eq!(luks.copies().unwrap()[0], CopyState::Absent);
    assert!(luks.unlock(PASS, &TIGHT).is_ok());
    let error = luks.set_label("x", "").unwrap_err();
    assert!(error.to_string().contains("something else"), "{error}");
    assert_eq!(all(&**luks.device()), image);
    // Nothing but zeros there is a first copy that was wiped.
    image[..4096].fill(0);
    try_read(&image).unwrap().set_label("x", "").unwrap();
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Value), expected: &str) {
    let image = changed(change);
    let result = try_read(&image).and_then(|luks| {
        let (key, _) = luks.unlock(PASS, &TIGHT)?;
        luks.open(None, &key, CryptOptions::default()).map(drop)
    });
    let error = result.expect_err("it cannot be opened").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn each_false_field_of_a_header_is_reported_by_name() {
    refused(
        |j| j["config"]["requirements"] = json!({"mandatory": ["quantum-tunnel"]}),
        "\"quantum-tunnel\"",
    );
    refused(
        |j| {
            let slot = j["keyslots"]["0"].clone();
            j["keyslots"]["1"] = slot;
        },
        "key slots 0 and 1 overlap",
    );
    refused(
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("16384"),
        "outside of the place",
    );
    refused(
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("18446744073709551615"),
        "outside of the place",
    );
    refused(
        |j| j["keyslots"]["0"]["af"]["stripes"] = json!(4_000_000_000u32),
        "more than the slot's area holds",
    );
    refused(
        |j| {
            j["segments"]["0"]["size"] = json!("8192");
            let segment = j["segments"]["0"].clone();
            j["segments"]["1"] = segment;
        },
        "segments 0 and 1 overlap",
    );
    refused(
        |j| {
            let segment = j["segments"]["0"].clone();
            j["segments"]["1"] = segment;
        },
        "as long as the device",
    );
    refused(
        |j| j["segments"]["0"]["size"] = json!("1073741824"),
        "are needed for the data",
    );
    refused(
        |j| j["segments"]["0"]["offset"] = json!("1073741824"),
        "are needed for the data",
    );
    refused(
        |j| j["segments"]["0"]["offset"] = json!("0"),
        "name the device with the data",
    );
    refused(
        |j| j["segments"]["0"]["sector_size"] = json!(8192),
        "segments.0.sector_size is not 512",
    );
    refused(
        |j| j["segments"]["0"]["integrity"] = json!({"type": "hmac(sha256)"}),
        "integrity protection (hmac(sha256))",
    );
    refused(
        |j| j["segments"]["0"]["encryption"] = json!("rot13-ecb"),
        "rot13-ecb",
    );
    refused(
        |j| j["digests"]["0"]["digest"] = json!(""),
        "digests.0.digest has not 20 to 512 bytes",
    );
    refused(
        |j| j["digests"]["0"]["keyslots"] = json!(["7"]),
        "key slot 7, which is not there",
    );
    refused(
        |j| j["digests"]["0"]["hash"] = json!("whirlpool"),
        "whirlpool",
    );
    refused(|j| j["config"]["json_size"] = json!("4096"), "json_size");
    refused(
        |j| j["config"]["keyslots_size"] = json!("1099511627776"),
        "above 128 MiB",
    );
}

#[test]
fn costs_that_would_eat_the_machine_are_refused_and_the_message_says_how_to_allow_them() {
    let costs = [
        (
            json!({"type": "argon2id", "time": 4, "memory": 4_000_000, "cpus": 4}),
            "memory",
        ),
        (
            json!({"type": "argon2id", "time": 4_000_000, "memory": 1 << 20, "cpus": 4}),
            "work",
        ),
        (
            json!({"type": "argon2i", "time": 4, "memory": 1 << 20, "cpus": 5000}),
            "lanes",
        ),
        (
            json!({"type": "pbkdf2", "hash": "sha256", "iterations": u32::MAX}),
            "iterations",
        ),
    ];
    for (mut kdf, what) in costs {
        let image = changed(|j| {
            kdf["salt"] = j["keyslots"]["0"]["kdf"]["salt"].clone();
            j["keyslots"]["0"]["kdf"] = kdf;
        });
        let luks = try_read(&image).unwrap();
        let error = luks.unlock(PASS, &Limits::default()).unwrap_err();
        assert!(
            matches!(error, LuksError::TooCostly { slot: 0, .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains(what) && text.contains("raise the limit"),
            "{text}"
        );
    }
    // What cryptsetup makes at most by itself passes.
    let Limits {
        memory_kib,
        work_kib,
        ..
    } = Limits::default();
    assert!(memory_kib >= 1 << 20 && work_kib >= 10 << 20);
}

#[test]
fn a_slot_that_cannot_be_tried_keeps_no_other_from_opening() {
    let (device, mut luks) = small(&cheap());
    let (key, _) = luks.unlock(PASS, &TIGHT).unwrap();
    luks.add_key(&key, b"second", &PBKDF2, None).unwrap();
    let image = all(&*device);
    let mut json = json_of(&image);
    json["keyslots"]["0"]["kdf"]["iterations"] = json!(u32::MAX);
    let luks = try_read(&with_json(&image, &json)).unwrap();
    assert_eq!(luks.unlock(b"second", &TIGHT).unwrap().1, 1);
    assert!(matches!(
        luks.unlock(b"wrong", &TIGHT),
        Err(LuksError::TooCostly { slot: 0, .. })
    ));
    json["keyslots"]["0"]["kdf"] =
        json!({"type": "pbkdf2", "hash": "whirlpool", "iterations": 1000, "salt": "AAAA"});
    let luks = try_read(&with_json(&image, &json)).unwrap();
    assert_eq!(luks.unlock(b"second", &TIGHT).unwrap().1, 1);
}

#[test]
fn json_without_end_depth_or_sense_is_refused() {
    let image = image();
    let deep = [b"[".repeat(6000), b"]".repeat(6000)].concat();
    for text in [
        &b""[..],
        b"{",
        b"[]",
        b"{}",
        b"nonsense",
        &deep,
        &b"x".repeat(COPY - 4096),
    ] {
        let error = try_read(&with_text(&image, text)).unwrap_err();
        assert!(matches!(error, LuksError::Malformed(_)), "{error}");
    }
}

#[test]
fn keys_of_other_volumes_last_slots_and_taken_slots_are_refused() {
    let (_, mut luks) = small(&cheap());
    let (_, other) = small(&cheap());
    let (key, _) = luks.unlock(PASS, &TIGHT).unwrap();
    let (foreign, _) = other.unlock(PASS, &TIGHT).unwrap();
    assert!(matches!(
        luks.add_key(&foreign, b"x", &PBKDF2, None),
        Err(LuksError::WrongKey)
    ));
    assert!(matches!(
        luks.open(None, &foreign, CryptOptions::default()),
        Err(LuksError::WrongKey)
    ));
    assert!(matches!(
        luks.check_key(foreign.expose()),
        Err(LuksError::WrongKey)
    ));
    assert_eq!(luks.check_key(key.expose()).unwrap().expose(), key.expose());
    assert!(matches!(luks.remove_key(0), Err(LuksError::LastSlot(0))));
    assert!(matches!(luks.remove_key(3), Err(LuksError::NoSuchSlot(3))));
    assert!(matches!(
        luks.add_key(&key, b"x", &PBKDF2, Some(0)),
        Err(LuksError::SlotTaken(0))
    ));
    assert!(matches!(
        luks.add_key(&key, b"x", &PBKDF2, Some(32)),
        Err(LuksError::Option(_))
    ));
    let costs = KdfOptions::Argon2 {
        i: false,
        memory_kib: 1,
        passes: 4,
        lanes: 1,
    };
    assert!(matches!(
        luks.add_key(&key, b"x", &costs, None),
        Err(LuksError::Option(_))
    ));
    // Until there is no room left.
    let mut added = 0;
    let full = loop {
        match luks.add_key(&key, b"x", &PBKDF2, None) {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, LuksError::NoRoom(_)), "{full}");
    assert_eq!(added, 6);
    luks.remove_last_key(0).unwrap();
    assert!(luks.unlock(PASS, &TIGHT).is_err());
}

#[test]
fn a_backup_of_another_volume_or_cut_short_is_not_put_back() {
    let (device, _) = small(&cheap());
    let (other, _) = small(&cheap());
    let before = all(&*device);
    let foreign = volume::luks::backup_header(&other).unwrap();
    let own = volume::luks::backup_header(&device).unwrap();
    let text = |backup: &[u8]| {
        let error = volume::luks::restore_header(&device, backup, false).unwrap_err();
        error.to_string()
    };
    assert!(text(&foreign).contains("is of the volume"));
    assert!(text(&own[..own.len() - 1]).contains("cut short"));
    assert!(text(&own[..100]).contains("no LUKS volume"));
    let mut damaged = own.to_vec();
    damaged[5000] ^= 1;
    damaged[COPY + 5000] ^= 1;
    assert!(text(&damaged).contains("damaged"));
    assert_eq!(all(&*device), before);
    let luks = volume::luks::restore_header(&device, &foreign, true).unwrap();
    assert!(luks.unlock(PASS, &TIGHT).is_ok());
    // Where there is none, only by force.
    let empty = memory(3 << 20);
    let error = volume::luks::restore_header(&empty, &own, false).unwrap_err();
    assert!(error.to_string().contains("no LUKS header"), "{error}");
    volume::luks::restore_header(&empty, &own, true).unwrap();
}

/// Nobody looked at the places of slots that are not in use, and a backup took them in.
#[test]
fn places_of_unused_slots_of_luks1_decide_neither_what_is_kept_nor_what_is_overwritten() {
    let (device, _) = small(&cheap_luks1());
    let own = all(&*device);
    let with = |payload: u32, material: u32| {
        let mut image = own.clone();
        image[104..108].copy_from_slice(&payload.to_be_bytes());
        image[208 + 7 * 48 + 40..][..4].copy_from_slice(&material.to_be_bytes());
        image
    };
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, LuksError::Malformed(_)), "{error}");
        assert!(error.to_string().contains("key slot 7"), "{error}");
    };
    // Within the data, which begins at sector 2048.
    let within = device_of(&with(2048, 2100));
    assert!(read(&within).unlock(PASS, &TIGHT).is_ok());
    refused(volume::luks::backup_header(&within).map(drop));
    refused(volume::luks::restore_header(&device, &with(2048, 2100), false).map(drop));
    refused(volume::luks::restore_header(&device, &with(2048, 2100), true).map(drop));
    assert!(all(&*device) == own);
    // Farther than any header reaches, also where the data is elsewhere.
    let dir = Dir::new();
    let file = dir.file("img", &with(0, 280_000));
    let long = std::fs::File::options().write(true).open(file).unwrap();
    long.set_len(150 << 20).unwrap();
    refused(volume::luks::backup_header(&dir.open("img")).map(drop));
}

/// A backup has whole pages, and was put back with the zeros at its end.
#[test]
fn data_in_the_page_in_which_the_slots_of_luks1_end_stays() {
    let (device, _) = small(&cheap_luks1());
    let mut image = all(&*device);
    // Its last slot ends there.
    image[104..108].copy_from_slice(&1029_u32.to_be_bytes());
    let data = noise(3, 4096);
    image[1029 * 512..][..4096].copy_from_slice(&data);
    let device = device_of(&image);
    let backup = volume::luks::backup_header(&device).unwrap();
    assert_eq!(backup.len() % 4096, 0);
    volume::luks::restore_header(&device, &backup, false).unwrap();
    assert!(all(&*device) == image);
}

/// It would be put back over the data.
#[test]
fn a_backup_with_more_place_for_key_slots_than_the_volume_has_is_not_put_back() {
    let image = image();
    let device = device_of(&image);
    let mut json = json_of(&image);
    let size = json["config"]["keyslots_size"]
        .as_str()
        .unwrap()
        .parse::<u64>();
    json["config"]["keyslots_size"] = json!((size.unwrap() + 65_536).to_string());
    let longer = with_json(&image, &json);
    let error = volume::luks::restore_header(&device, &longer, false).unwrap_err();
    assert!(error.to_string().contains("by force"), "{error}");
    assert!(all(&*device) == image);
}
