//! Each way a header can be wrong, by name, and that a forged one never opens.

use seal::{
    Argon2Cost, Credential, Header, HeaderError, MasterKey, NewCredential, SealError, Secret,
    SlotKind, Suite,
};
use serde_json::{Value, json};
use strongroom_seal as seal;

const KEY: [u8; 32] = [5; 32];

fn header_bytes() -> Vec<u8> {
    let secret = Secret::from("open sesame");
    let first = NewCredential::Passphrase {
        secret,
        cost: Argon2Cost::LEAST,
    };
    let (mut header, master) = Header::create(Suite::Aes256Gcm, first, "Ann").unwrap();
    header
        .add_slot(
            &master,
            NewCredential::RawKey(Secret::from(&KEY[..])),
            "robot",
        )
        .unwrap();
    header.encode(&master)
}

fn raw_key() -> Credential {
    Credential::RawKey(Secret::from(&KEY[..]))
}

/// A header with its body changed and its code left as it was.
fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut file: Value = serde_json::from_slice(&header_bytes()).unwrap();
    change(&mut file["body"]);
    serde_json::to_vec(&file).unwrap()
}

fn refusal(change: impl FnOnce(&mut Value)) -> HeaderError {
    Header::parse(&changed(change)).expect_err("the changed header was read")
}

fn refused_field(change: impl FnOnce(&mut Value)) -> String {
    match refusal(change) {
        HeaderError::BadField { field, .. } => field,
        other => panic!("another refusal: {other}"),
    }
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let bytes = header_bytes();
    let header = Header::parse(&bytes).unwrap();
    let unlocked = header.unlock(&raw_key()).unwrap();
    assert_eq!(unlocked.slot, 1);
    assert!(unlocked.previous.is_none());
    assert_eq!(header.encode(&unlocked.master), bytes);
    assert_eq!(
        (header.suite(), header.revision(), header.epoch()),
        (Suite::Aes256Gcm, 2, 1)
    );
    assert_eq!((header.format(), header.unit_len()), (1, seal::UNIT_LEN));
    assert_eq!(
        header.features(),
        ["catalog-pages", "reservations", "append-nonces"]
    );
    let slots = header.slots();
    let listed: Vec<_> = slots
        .iter()
        .map(|slot| (slot.id, slot.kind, &*slot.label))
        .collect();
    assert_eq!(
        listed,
        [
            (0, SlotKind::Passphrase, "Ann"),
            (1, SlotKind::RawKey, "robot")
        ]
    );
    assert_eq!(slots[0].cost, Some(Argon2Cost::LEAST));
    assert!(slots[0].created_unix_s > 1_700_000_000);
}

#[test]
fn a_header_that_is_too_long_is_refused() {
    let mut bytes = header_bytes();
    bytes.resize(seal::HEADER_LEN_MAX + 1, b' ');
    assert_eq!(
        Header::parse(&bytes).unwrap_err(),
        HeaderError::TooLong(seal::HEADER_LEN_MAX + 1)
    );
}

#[test]
fn what_is_not_json_is_refused() {
    for bytes in [
        b"".as_slice(),
        b"{",
        b"[]",
        b"\xff\xfe",
        b"{\"body\": 1, \"mac\": \"\"}",
    ] {
        assert!(
            matches!(Header::parse(bytes), Err(HeaderError::Malformed(_))),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_newer_format_is_refused_by_number_whatever_else_it_holds() {
    let error = refusal(|body| *body = json!({"format": 2, "shape": "round"}));
    assert_eq!(error, HeaderError::NewerFormat { found: 2, known: 1 });
    assert!(error.to_string().contains("newer version"));
}

#[test]
fn format_zero_is_refused() {
    assert_eq!(refused_field(|body| body["format"] = 0.into()), "format");
}

#[test]
fn an_unknown_feature_is_refused_by_name() {
    let error = refusal(|body| body["features"] = json!(["time travel"]));
    assert_eq!(error, HeaderError::UnknownFeature("time travel".into()));
}

#[test]
fn keys_of_positions_are_a_feature_with_the_epoch_from_which_they_are_used() {
    let mut header = Header::parse(&header_bytes()).unwrap();
    let master = header.unlock(&raw_key()).unwrap().master;
    assert_eq!(header.position_keys_from(), None);
    let new = MasterKey::random();
    let credential = raw_key();
    header
        .begin_rekey(&master, &new, &[(1, &credential)])
        .unwrap();
    let revision = header.revision();
    header.require_position_keys();
    header.require_position_keys();
    assert_eq!(header.revision(), revision + 1);
    let read = Header::parse(&header.encode(&new)).unwrap();
    read.unlock(&raw_key()).unwrap();
    assert_eq!(read.position_keys_from(), Some(2));
    assert!(read.features().iter().any(|name| name == "position-keys"));

    let field = "position_keys_from";
    let feature = json!(["position-keys"]);
    assert_eq!(refused_field(|body| body[field] = 1.into()), field);
    assert_eq!(
        refused_field(|body| body["features"] = feature.clone()),
        field
    );
    for epoch in [0, 2] {
        let refused = refused_field(|body| {
            body["features"] = feature.clone();
            body[field] = epoch.into();
        });
        assert_eq!(refused, field);
    }
}

#[test]
fn an_unknown_suite_is_refused_by_name() {
    let error = refusal(|body| body["suite"] = "rot13".into());
    assert_eq!(error, HeaderError::UnknownSuite("rot13".into()));
}

#[test]
fn an_unknown_slot_kind_is_refused_by_name() {
    let error = refusal(|body| body["slots"][1]["kind"] = "retina".into());
    assert_eq!(
        error,
        HeaderError::UnknownKind {
            slot: 1,
            kind: "retina".into()
        }
    );
}

#[test]
fn an_unknown_or_missing_field_is_refused() {
    for change in [
        (|body: &mut Value| body["extra"] = 1.into()) as fn(&mut Value),
        |body| body["slots"][0]["extra"] = 1.into(),
        |body| body["slots"][0]["argon2id"]["extra"] = 1.into(),
        |body| drop(body.as_object_mut().unwrap().remove("revision")),
        |body| drop(body["slots"][0].as_object_mut().unwrap().remove("salt")),
        |body| body["revision"] = "two".into(),
        |body| body["revision"] = (-1).into(),
    ] {
        assert!(matches!(refusal(change), HeaderError::Malformed(_)));
    }
    let mut file: Value = serde_json::from_slice(&header_bytes()).unwrap();
    file["extra"] = 1.into();
    let bytes = serde_json::to_vec(&file).unwrap();
    assert!(matches!(
        Header::parse(&bytes),
        Err(HeaderError::Malformed(_))
    ));
}

#[test]
fn a_field_given_twice_is_refused() {
    let text = String::from_utf8(header_bytes()).unwrap();
    let twice = text.replacen("\"revision\": 2", "\"revision\": 2, \"revision\": 3", 1);
    assert_ne!(text, twice);
    assert!(matches!(
        Header::parse(twice.as_bytes()),
        Err(HeaderError::Malformed(_))
    ));
}

#[test]
fn too_many_slots_are_refused() {
    let error = refusal(|body| {
        let slot = body["slots"][1].clone();
        body["slots"] = (0..33)
            .map(|id| {
                let mut s = slot.clone();
                s["id"] = id.into();
                s
            })
            .collect();
    });
    assert_eq!(error, HeaderError::TooManySlots(33));
}

#[test]
fn no_slots_are_refused() {
    assert_eq!(refused_field(|body| body["slots"] = json!([])), "slots");
}

#[test]
fn a_slot_number_given_twice_or_too_high_is_refused() {
    assert_eq!(
        refusal(|body| body["slots"][1]["id"] = 0.into()),
        HeaderError::DuplicateSlot(0)
    );
    assert_eq!(
        refused_field(|body| body["slots"][1]["id"] = 32.into()),
        "slots.id"
    );
}

#[test]
fn costs_out_of_bounds_are_refused_before_they_are_run() {
    for (field, value) in [
        ("memory_kib", (8 << 10) - 1),
        ("memory_kib", (1 << 20) + 1),
        ("memory_kib", u32::MAX),
        ("passes", 0),
        ("passes", 65),
        ("lanes", 0),
        ("lanes", 17),
    ] {
        let error = refusal(|body| body["slots"][0]["argon2id"][field] = value.into());
        assert!(
            matches!(error, HeaderError::Cost { slot: 0, .. }),
            "{field} {value}: {error}"
        );
    }
}

#[test]
fn much_memory_times_many_passes_is_refused_though_each_is_in_bounds() {
    let cost = json!({"memory_kib": 1 << 20, "passes": 17, "lanes": 1});
    let error = refusal(|body| body["slots"][0]["argon2id"] = cost);
    assert!(
        matches!(error, HeaderError::Cost { slot: 0, .. }),
        "{error}"
    );
}

#[test]
fn many_slots_that_are_too_much_together_are_refused() {
    let error = refusal(|body| {
        let mut slot = body["slots"][0].clone();
        slot["argon2id"] = json!({"memory_kib": 1 << 20, "passes": 16, "lanes": 1});
        body["slots"] = (0..5)
            .map(|id| {
                let mut s = slot.clone();
                s["id"] = id.into();
                s
            })
            .collect();
    });
    assert!(
        matches!(error, HeaderError::Cost { slot: 4, .. }),
        "{error}"
    );
}

#[test]
fn hexadecimal_of_the_wrong_length_or_case_is_refused() {
    assert_eq!(refused_field(|body| body["room"] = "00".into()), "room");
    let case = refused_field(|body| body["slots"][0]["salt"] = "AB".repeat(32).into());
    assert_eq!(case, "slot 0: salt");
    assert_eq!(
        refused_field(|body| body["slots"][1]["nonce"] = "0".repeat(47).into()),
        "slot 1: nonce"
    );
    assert_eq!(
        refused_field(|body| body["slots"][1]["wrapped"] = "zz".into()),
        "slot 1: wrapped"
    );
    let mut file: Value = serde_json::from_slice(&header_bytes()).unwrap();
    file["mac"] = "12".into();
    let error = Header::parse(&serde_json::to_vec(&file).unwrap()).unwrap_err();
    assert!(matches!(error, HeaderError::BadField { field, .. } if field == "mac"));
}

#[test]
fn fields_of_another_kind_are_refused() {
    assert_eq!(
        refused_field(|body| body["slots"][1]["kind"] = "passphrase".into()),
        "slot 1: kind"
    );
    assert_eq!(
        refused_field(|body| body["slots"][1]["age"] = "00".into()),
        "slot 1: kind"
    );
}

#[test]
fn recipients_out_of_bounds_are_refused() {
    let with = |recipients: Value, age: String| {
        refused_field(|body| {
            body["slots"][1]["kind"] = "recipients".into();
            body["slots"][1]["recipients"] = recipients;
            body["slots"][1]["age"] = age.into();
        })
    };
    assert_eq!(with(json!([]), "00".into()), "slot 1: recipients");
    assert_eq!(
        with(json!(vec!["age1"; 65]), "00".into()),
        "slot 1: recipients"
    );
    assert_eq!(
        with(json!(["x".repeat(4097)]), "00".into()),
        "slot 1: recipients"
    );
    // `key list` shows them to people before anything is verified: an escape sequence would drive the terminal.
    assert_eq!(
        with(json!(["age1\u{1b}]0;owned\u{7}"]), "00".into()),
        "slot 1: recipients"
    );
    assert_eq!(with(json!(["age1"]), "0".into()), "slot 1: age");
    assert_eq!(with(json!(["age1"]), "00".repeat(65537)), "slot 1: age");
}

#[test]
fn a_label_too_long_or_with_control_characters_is_refused() {
    assert_eq!(
        refused_field(|body| body["slots"][0]["label"] = "x".repeat(129).into()),
        "slot 0: label"
    );
    assert_eq!(
        refused_field(|body| body["slots"][0]["label"] = "a\u{1b}[2J".into()),
        "slot 0: label"
    );
}

#[test]
fn impossible_numbers_are_refused() {
    assert_eq!(
        refused_field(|body| body["unit_len"] = 4096.into()),
        "unit_len"
    );
    assert_eq!(
        refused_field(|body| body["revision"] = 0.into()),
        "revision"
    );
    assert_eq!(refused_field(|body| body["epoch"] = 0.into()), "epoch");
    // Of an epoch that is no earlier than the room's, and of one that never was.
    for epoch in [0, 1] {
        let previous =
            json!({"epoch": epoch, "nonce": "00".repeat(24), "wrapped": "00".repeat(48)});
        assert_eq!(
            refused_field(|body| body["previous"] = previous),
            "previous.epoch"
        );
    }
}

#[test]
fn a_message_shows_no_control_characters_of_a_damaged_header() {
    let error = refusal(|body| body["suite"] = "\u{1b}]0;owned\u{7}".into());
    assert!(!error.to_string().chars().any(char::is_control));
}

/// The age library answers a file it does not know with two lines.
#[test]
fn a_damaged_age_file_is_reported_on_one_line() {
    let bytes = changed(|body| {
        body["slots"][1]["kind"] = "recipients".into();
        body["slots"][1]["recipients"] = json!(["age1"]);
        body["slots"][1]["age"] = "00".into();
    });
    let identity = seal::age::x25519::Identity::generate();
    let header = Header::parse(&bytes).unwrap();
    let error = header.unlock(&Credential::Identities(vec![identity.into()]));
    let error = error.unwrap_err();
    assert!(matches!(error, SealError::Age(_)));
    assert!(!error.to_string().chars().any(char::is_control), "{error}");
}

#[test]
fn any_change_of_the_body_is_found_when_the_header_opens() {
    for (what, change) in [
        (
            "suite",
            (|body| body["suite"] = "chacha20-poly1305".into()) as fn(&mut Value),
        ),
        ("revision", |body| body["revision"] = 3.into()),
        ("creation time", |body| body["created_unix_s"] = 0.into()),
        ("epoch", |body| body["epoch"] = 2.into()),
        ("label", |body| body["slots"][0]["label"] = "Eve".into()),
        ("a slot removed", |body| {
            drop(body["slots"].as_array_mut().unwrap().remove(0))
        }),
        ("a weaker cost", |body| {
            body["slots"][0]["argon2id"]["lanes"] = 2.into()
        }),
        ("another salt", |body| {
            body["slots"][0]["salt"] = "00".repeat(32).into()
        }),
        ("white space alone", |_| {}),
    ] {
        let header = Header::parse(&changed(change)).unwrap();
        let result = header.unlock(&raw_key());
        assert!(matches!(result, Err(SealError::HeaderForged)), "{what}");
    }
}

#[test]
fn a_changed_code_is_refused() {
    let mut file: Value = serde_json::from_slice(&header_bytes()).unwrap();
    file["mac"] = "00".repeat(32).into();
    let header = Header::parse(&serde_json::to_vec(&file).unwrap()).unwrap();
    assert!(matches!(
        header.unlock(&raw_key()),
        Err(SealError::HeaderForged)
    ));
}

#[test]
fn a_slot_moved_to_another_number_or_room_is_refused() {
    let moved = changed(|body| body["slots"][1]["id"] = 2.into());
    let result = Header::parse(&moved).unwrap().unlock(&raw_key());
    assert!(matches!(
        result,
        Err(SealError::WrongCredential {
            kind: SlotKind::RawKey
        })
    ));
    let moved = changed(|body| body["room"] = "00".repeat(16).into());
    assert!(Header::parse(&moved).unwrap().unlock(&raw_key()).is_err());
}

#[test]
fn a_header_put_together_from_two_rooms_is_refused() {
    // Both rooms have a slot for the same raw key; the other room's header with this room's slot must not open.
    let other: Value = serde_json::from_slice(&header_bytes()).unwrap();
    let mixed = changed(|body| body["slots"] = other["body"]["slots"].clone());
    assert!(Header::parse(&mixed).unwrap().unlock(&raw_key()).is_err());
}

#[test]
#[should_panic(expected = "verified")]
fn a_header_nobody_verified_is_never_signed() {
    let header = Header::parse(&header_bytes()).unwrap();
    header.encode(&seal::MasterKey::random());
}

#[test]
fn a_header_nobody_verified_is_never_changed() {
    let mut header = Header::parse(&header_bytes()).unwrap();
    assert!(matches!(header.remove_slot(0), Err(SealError::NotVerified)));
    let new = || NewCredential::RawKey(Secret::from(&KEY[..]));
    let added = header.add_slot(&seal::MasterKey::random(), new(), "");
    assert!(matches!(added, Err(SealError::HeaderForged)));
    assert_eq!(header.slots().len(), 2);
}
