//! Key slots from making to removing, every kind of credential, and the rekey.

use age::secrecy::ExposeSecret;
use seal::{
    Argon2Cost, Credential, Header, MasterKey, NamedRecipient, NewCredential, SealError, Secret,
    SlotKind, Suite, parse_identities, recipient_plugin,
};
use strongroom_seal as seal;

// Key pairs made for these tests alone.
const ED25519: &str = include_str!("../keys/ed25519");
const ED25519_PUB: &str = include_str!("../keys/ed25519.pub");
const RSA: &str = include_str!("../keys/rsa");
const RSA_PUB: &str = include_str!("../keys/rsa.pub");

fn new_passphrase(text: &str) -> NewCredential {
    NewCredential::Passphrase {
        secret: text.into(),
        cost: Argon2Cost::LEAST,
    }
}

fn passphrase(text: &str) -> Credential {
    Credential::Passphrase(text.into())
}

fn room() -> (Header, MasterKey) {
    Header::create(Suite::Aes256Gcm, new_passphrase("first"), "Ann").unwrap()
}

fn recipients(texts: &[&str]) -> NewCredential {
    let parse = |text: &&str| NamedRecipient::parse(text, age::NoCallbacks).unwrap();
    NewCredential::Recipients(texts.iter().map(parse).collect())
}

fn identities(text: &str) -> Credential {
    Credential::Identities(parse_identities(&text.into(), age::NoCallbacks).unwrap())
}

fn same(header: &Header, one: &MasterKey, two: &MasterKey) -> bool {
    let room = header.room_id();
    *one.catalog_key(&room).to_hex() == *two.catalog_key(&room).to_hex()
}

/// Writes the header and reads it again.
fn reread(header: &Header, master: &MasterKey) -> Header {
    Header::parse(&header.encode(master)).unwrap()
}

fn assert_opens(header: &Header, master: &MasterKey, credential: &Credential, slot: u32) {
    let unlocked = reread(header, master).unlock(credential).unwrap();
    assert_eq!(unlocked.slot, slot);
    assert!(same(header, &unlocked.master, master));
}

#[test]
fn every_kind_of_credential_opens_its_own_slot() {
    let (mut header, master) = room();
    let file: Secret = "the content of a file".into();
    let new = NewCredential::KeyFile {
        secret: file.clone(),
        cost: Argon2Cost::LEAST,
    };
    assert_eq!(header.add_slot(&master, new, "usb stick").unwrap(), 1);
    let key = Secret::new(vec![9; 32]);
    assert_eq!(
        header
            .add_slot(&master, NewCredential::RawKey(key.clone()), "")
            .unwrap(),
        2
    );
    let identity = age::x25519::Identity::generate();
    let public = identity.to_public().to_string();
    let new = recipients(&[&public, ED25519_PUB, RSA_PUB]);
    assert_eq!(header.add_slot(&master, new, "team").unwrap(), 3);

    assert_opens(&header, &master, &passphrase("first"), 0);
    assert_opens(&header, &master, &Credential::KeyFile(file.clone()), 1);
    assert_opens(&header, &master, &Credential::RawKey(key), 2);
    assert_opens(
        &header,
        &master,
        &identities(identity.to_string().expose_secret()),
        3,
    );
    assert_opens(&header, &master, &identities(ED25519), 3);
    assert_opens(&header, &master, &identities(RSA), 3);

    let listed = reread(&header, &master).slots();
    assert_eq!(listed[3].kind, SlotKind::Recipients);
    assert_eq!(
        listed[3].recipients,
        [&public, ED25519_PUB.trim(), RSA_PUB.trim()]
    );
    // The same bytes as a passphrase open nothing: each kind has its own derivation.
    let result = header.unlock(&Credential::Passphrase(file));
    assert!(matches!(
        result,
        Err(SealError::WrongCredential {
            kind: SlotKind::Passphrase
        })
    ));
}

#[test]
fn a_slot_of_two_factors_opens_with_both_and_with_neither_alone() {
    let (mut header, master) = room();
    let both = |passphrase: &str, file: &str| Credential::PassphraseAndKeyFile {
        passphrase: passphrase.into(),
        key_file: file.into(),
    };
    let new = |passphrase: &str, file: &str| NewCredential::PassphraseAndKeyFile {
        passphrase: passphrase.into(),
        key_file: file.into(),
        cost: Argon2Cost::LEAST,
    };
    for (passphrase, file) in [("", "file"), ("second", "")] {
        let refused = header.add_slot(&master, new(passphrase, file), "");
        assert!(matches!(refused, Err(SealError::EmptySecret(_))));
    }
    let added = header.add_slot(&master, new("second", "file"), "stick");
    assert_eq!(added.unwrap(), 1);
    assert_opens(&header, &master, &both("second", "file"), 1);
    assert_eq!(reread(&header, &master).slots()[1].kind.id(), 5);
    for wrong in [
        passphrase("second"),
        Credential::KeyFile("file".into()),
        both("second", "elif"),
        both("second", ""),
        both("", "file"),
        both("file", "second"),
        both("secondf", "ile"),
        // The other slot's passphrase needs no file, and opens nothing with one.
        both("first", "file"),
    ] {
        assert!(header.unlock(&wrong).is_err(), "{wrong:?}");
    }
    // A rekey keeps it, given both.
    let new_master = MasterKey::random();
    header
        .begin_rekey(&master, &new_master, &[(1, &both("second", "file"))])
        .unwrap();
    assert_opens(&header, &new_master, &both("second", "file"), 1);
}

#[test]
fn a_wrong_credential_is_refused_by_its_kind() {
    let (mut header, master) = room();
    let wrong = header.unlock(&passphrase("frist")).unwrap_err();
    assert!(matches!(
        wrong,
        SealError::WrongCredential {
            kind: SlotKind::Passphrase
        }
    ));
    assert_eq!(wrong.to_string(), "the passphrase does not open this room");
    let none = header.unlock(&Credential::RawKey(Secret::new(vec![0; 32])));
    assert!(matches!(
        none,
        Err(SealError::NoSuchKind {
            kind: SlotKind::RawKey
        })
    ));
    let public = age::x25519::Identity::generate().to_public().to_string();
    header
        .add_slot(&master, recipients(&[&public]), "")
        .unwrap();
    let stranger = age::x25519::Identity::generate();
    let wrong = header.unlock(&identities(stranger.to_string().expose_secret()));
    assert!(matches!(
        wrong,
        Err(SealError::WrongCredential {
            kind: SlotKind::Recipients
        })
    ));
}

#[test]
fn an_empty_passphrase_is_as_wrong_as_another() {
    let (header, _) = room();
    let result = header.unlock(&passphrase(""));
    assert!(matches!(
        result,
        Err(SealError::WrongCredential {
            kind: SlotKind::Passphrase
        })
    ));
}

#[test]
fn a_slot_put_in_for_a_known_recipient_by_a_stranger_is_refused() {
    // Anyone can encrypt to a public key, so a stranger can make a slot of his own master key that Ann's
    // identity opens.
    let identity = age::x25519::Identity::generate();
    let public = identity.to_public().to_string();
    let (header, master) = Header::create(Suite::Aes256Gcm, recipients(&[&public]), "Ann").unwrap();
    let mut file: serde_json::Value = serde_json::from_slice(&header.encode(&master)).unwrap();
    let (strange, key) = Header::create(Suite::Aes256Gcm, recipients(&[&public]), "Ann").unwrap();
    let other: serde_json::Value = serde_json::from_slice(&strange.encode(&key)).unwrap();
    file["body"]["room"] = other["body"]["room"].clone();
    file["body"]["slots"] = other["body"]["slots"].clone();
    let header = Header::parse(&serde_json::to_vec(&file).unwrap()).unwrap();
    let result = header.unlock(&identities(identity.to_string().expose_secret()));
    assert!(matches!(result, Err(SealError::HeaderForged)));
}

#[test]
fn a_second_passphrase_opens_too_and_the_first_still_does() {
    let (mut header, master) = room();
    header
        .add_slot(&master, new_passphrase("second"), "Ben")
        .unwrap();
    assert_opens(&header, &master, &passphrase("first"), 0);
    assert_opens(&header, &master, &passphrase("second"), 1);
}

#[test]
fn every_slot_has_a_fresh_salt() {
    let (mut header, master) = room();
    header
        .add_slot(&master, new_passphrase("first"), "")
        .unwrap();
    let file: serde_json::Value = serde_json::from_slice(&header.encode(&master)).unwrap();
    let slots = &file["body"]["slots"];
    assert_ne!(slots[0]["salt"], slots[1]["salt"]);
    assert_ne!(slots[0]["nonce"], slots[1]["nonce"]);
    header
        .replace_slot(&master, 1, new_passphrase("first"), None)
        .unwrap();
    let later: serde_json::Value = serde_json::from_slice(&header.encode(&master)).unwrap();
    assert_ne!(slots[1]["salt"], later["body"]["slots"][1]["salt"]);
}

#[test]
fn a_removed_slot_opens_nothing_and_its_number_is_used_again() {
    let (mut header, master) = room();
    header
        .add_slot(&master, new_passphrase("second"), "")
        .unwrap();
    header.remove_slot(0).unwrap();
    let result = reread(&header, &master).unlock(&passphrase("first"));
    assert!(matches!(result, Err(SealError::WrongCredential { .. })));
    assert_opens(&header, &master, &passphrase("second"), 1);
    assert!(matches!(
        header.remove_slot(0),
        Err(SealError::NoSuchSlot(0))
    ));
    assert!(matches!(header.remove_slot(1), Err(SealError::LastSlot(1))));
    assert_eq!(
        header
            .add_slot(&master, new_passphrase("third"), "")
            .unwrap(),
        0
    );
    assert_opens(&header, &master, &passphrase("third"), 0);
}

#[test]
fn a_changed_slot_opens_with_the_new_credential_only() {
    let (mut header, master) = room();
    header
        .replace_slot(&master, 0, new_passphrase("better"), None)
        .unwrap();
    assert_eq!(header.slots()[0].label, "Ann");
    assert_opens(&header, &master, &passphrase("better"), 0);
    assert!(header.unlock(&passphrase("first")).is_err());
    let missing = header.replace_slot(&master, 5, new_passphrase("x"), Some("y"));
    assert!(matches!(missing, Err(SealError::NoSuchSlot(5))));
}

#[test]
fn the_thirty_third_slot_is_refused() {
    let (mut header, master) = room();
    let new = || NewCredential::RawKey(Secret::new(vec![1; 32]));
    for id in 1..32 {
        assert_eq!(header.add_slot(&master, new(), "").unwrap(), id);
    }
    assert!(matches!(
        header.add_slot(&master, new(), ""),
        Err(SealError::SlotsFull)
    ));
    assert_eq!(reread(&header, &master).slots().len(), 32);
}

#[test]
fn every_change_raises_the_revision() {
    let (mut header, master) = room();
    assert_eq!(header.revision(), 1);
    header
        .add_slot(&master, new_passphrase("second"), "")
        .unwrap();
    assert_eq!(header.revision(), 2);
    header
        .replace_slot(&master, 1, new_passphrase("x"), Some("Ben"))
        .unwrap();
    assert_eq!(header.revision(), 3);
    header.remove_slot(1).unwrap();
    assert_eq!(reread(&header, &master).revision(), 4);
}

#[test]
fn what_cannot_be_a_credential_is_refused() {
    let (mut header, master) = room();
    let mut refusal = |new, label: &str| header.add_slot(&master, new, label).unwrap_err();
    assert!(matches!(
        refusal(new_passphrase(""), ""),
        SealError::EmptySecret(SlotKind::Passphrase)
    ));
    let short = NewCredential::RawKey(Secret::new(vec![1; 31]));
    assert!(matches!(refusal(short, ""), SealError::RawKeyLength(31)));
    assert!(matches!(
        refusal(new_passphrase("x"), "a\nb"),
        SealError::BadLabel
    ));
    assert!(matches!(
        refusal(new_passphrase("x"), &"x".repeat(129)),
        SealError::BadLabel
    ));
    let cost = Argon2Cost {
        memory_kib: 2 << 20,
        passes: 1,
        lanes: 1,
    };
    let dear = NewCredential::Passphrase {
        secret: "x".into(),
        cost,
    };
    assert!(matches!(
        refusal(dear, ""),
        SealError::CostOutOfBounds { .. }
    ));
    assert!(matches!(
        refusal(NewCredential::Recipients(Vec::new()), ""),
        SealError::Age(_)
    ));
    let driving = format!("{} \u{1b}[2J", ED25519_PUB.trim());
    assert!(matches!(
        refusal(recipients(&[&driving]), ""),
        SealError::BadRecipient(_)
    ));
    assert_eq!(header.revision(), 1);
}

/// Only added slots were measured: a room could be made with recipients whose texts filled more than a header may
/// have, and then not be opened.
#[test]
fn a_room_whose_header_could_not_be_read_is_not_made() {
    let long = format!("{} {}", RSA_PUB.trim(), "x".repeat(3600));
    let first = recipients(&[&*long; 64]);
    let made = Header::create(Suite::Aes256Gcm, first, "");
    assert!(matches!(
        made,
        Err(SealError::Header(seal::HeaderError::TooLong(_)))
    ));
}

#[test]
fn recipients_whose_header_could_not_be_read_again_are_refused() {
    let (mut header, master) = room();
    let texts = vec![RSA_PUB; 64];
    let mut refused = None;
    for _ in 0..31 {
        if let Err(error) = header.add_slot(&master, recipients(&texts), "") {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(
        refused,
        Some(SealError::Header(seal::HeaderError::TooLong(_)))
    ));
    reread(&header, &master)
        .unlock(&passphrase("first"))
        .unwrap();
}

#[test]
fn texts_that_are_no_recipient_or_identity_are_refused() {
    for text in [
        "",
        "hello",
        "age1",
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3M=",
    ] {
        let result = NamedRecipient::parse(text, age::NoCallbacks);
        assert!(matches!(result, Err(SealError::BadRecipient(_))), "{text}");
    }
    for text in [
        "",
        "# nothing but a comment\n",
        "hello",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    ] {
        let result = parse_identities(&text.into(), age::NoCallbacks);
        assert!(matches!(result, Err(SealError::BadIdentity(_))), "{text}");
    }
}

/// The first is the example of the age library's own tests; the second is bech32 of a few bytes.
#[test]
fn only_recipients_of_plugins_name_a_program() {
    let tagged = "age1tag1qt8lw0ual6avlwmwatk888yqnmdamm7xfd0wak53ut6elz5c4swx2yqdj4e";
    assert!(NamedRecipient::parse(tagged, age::NoCallbacks).is_ok());
    let x25519 = age::x25519::Identity::generate().to_public().to_string();
    for text in [tagged, &x25519, ED25519_PUB, RSA_PUB, "age1", "hello"] {
        assert_eq!(recipient_plugin(text), None, "{text}");
    }
    let of_plugin = "age1toy1w3hhjgrtv4us8wu4c0";
    assert_eq!(
        recipient_plugin(of_plugin).as_deref(),
        Some("age-plugin-toy")
    );
    let error = NamedRecipient::parse(of_plugin, age::NoCallbacks).unwrap_err();
    assert!(
        error.to_string().contains("age-plugin-toy is not in PATH"),
        "{error}"
    );
}

#[test]
fn an_identity_that_needs_a_plugin_says_which() {
    let refused = |text: &str| {
        parse_identities(&text.into(), age::NoCallbacks)
            .unwrap_err()
            .to_string()
    };
    let error = refused("AGE-PLUGIN-TOY-1W3HHJGRTV4USZV09ER\n");
    assert!(error.contains("age-plugin-toy is not in PATH"), "{error}");
    let error = refused("# created\nAGE-SECRET-KEY-PQ-1XYZ\n");
    assert!(error.contains("age-plugin-pq"), "{error}");
    let error = refused("AGE-SECRET-KEY-1HUSH\n");
    assert!(
        error.contains("line 1") && !error.contains("HUSH"),
        "{error}"
    );
}

#[test]
fn a_rekey_keeps_the_slots_it_can_and_names_the_others() {
    let (mut header, old) = room();
    header
        .add_slot(&old, new_passphrase("second"), "Ben")
        .unwrap();
    header
        .add_slot(&old, recipients(&[ED25519_PUB]), "laptop")
        .unwrap();
    let new = MasterKey::random();
    let gone = header
        .begin_rekey(&old, &new, &[(0, &passphrase("first"))])
        .unwrap();
    assert_eq!(
        gone.iter().map(|slot| &*slot.label).collect::<Vec<_>>(),
        ["Ben"]
    );
    assert_eq!((header.epoch(), header.rekey_under_way()), (2, true));

    let header = reread(&header, &new);
    for credential in [passphrase("first"), identities(ED25519)] {
        let unlocked = header.unlock(&credential).unwrap();
        assert!(same(&header, &unlocked.master, &new));
        let (epoch, previous) = unlocked.previous.unwrap();
        assert_eq!(epoch, 1);
        assert!(same(&header, &previous, &old));
    }
    assert!(header.unlock(&passphrase("second")).is_err());
}

#[test]
fn a_rekey_names_recipients_it_can_no_longer_wrap_for() {
    let (mut header, old) = room();
    let mut named = NamedRecipient::parse(ED25519_PUB, age::NoCallbacks).unwrap();
    named.text = "age1unplugged1of2a3plugin4that5is6gone".into();
    header
        .add_slot(&old, NewCredential::Recipients(vec![named]), "token")
        .unwrap();
    let new = MasterKey::random();
    let gone = header
        .begin_rekey(&old, &new, &[(0, &passphrase("first"))])
        .unwrap();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].label, "token");
    assert_eq!(reread(&header, &new).slots().len(), 1);
}

#[test]
fn a_finished_rekey_forgets_the_old_key() {
    let (mut header, old) = room();
    let new = MasterKey::random();
    header
        .begin_rekey(&old, &new, &[(0, &passphrase("first"))])
        .unwrap();
    let again = header.begin_rekey(&new, &MasterKey::random(), &[(0, &passphrase("first"))]);
    assert!(matches!(again, Err(SealError::RekeyUnderWay)));
    header.finish_rekey();
    assert_eq!(header.revision(), 3);
    let header = reread(&header, &new);
    assert!(
        header
            .unlock(&passphrase("first"))
            .unwrap()
            .previous
            .is_none()
    );
    assert!(matches!(header.verify(&old), Err(SealError::HeaderForged)));
}

#[test]
fn a_rekey_that_would_shut_everyone_out_changes_nothing() {
    let (mut header, old) = room();
    let new = MasterKey::random();
    let refused = header.begin_rekey(&old, &new, &[]);
    assert!(matches!(refused, Err(SealError::NothingKept)));
    let mistyped = header.begin_rekey(&old, &new, &[(0, &passphrase("frist"))]);
    assert!(matches!(mistyped, Err(SealError::WrongCredential { .. })));
    let absent = header.begin_rekey(&old, &new, &[(7, &passphrase("first"))]);
    assert!(matches!(absent, Err(SealError::NoSuchSlot(7))));
    let other_kind = header.begin_rekey(&old, &new, &[(0, &Credential::KeyFile("first".into()))]);
    assert!(matches!(
        other_kind,
        Err(SealError::KindMismatch { slot: 0, .. })
    ));
    let stranger = header.begin_rekey(&new, &new, &[(0, &passphrase("first"))]);
    assert!(matches!(stranger, Err(SealError::HeaderForged)));
    assert_eq!((header.epoch(), header.revision()), (1, 1));
    assert_opens(&header, &old, &passphrase("first"), 0);
}

#[test]
fn a_measured_cost_is_within_bounds() {
    for target in [0, 1, 50] {
        let cost = Argon2Cost::measured(std::time::Duration::from_millis(target));
        cost.check().unwrap();
    }
    let cost = Argon2Cost::measured(std::time::Duration::from_secs(3600));
    cost.check().unwrap();
    assert!(cost.memory_kib <= 128 << 10);
}
