//! What the fuzz target for headers tries, and what must hold whatever the bytes are.
//!
//! 1. A header that is read keeps the bounds of the format, and asks for no more work than allowed.
//! 2. A header that opens is one that was sealed: with another key it never does.
//! 3. Writing what was read yields bytes that read the same, and are written the same.
//! 4. No message and no listed text carries control characters to a terminal.
//!
//! A fuzzer cannot guess a message authentication code. So every header that can be read is signed here, as a holder
//! of the key would, and reaches the code behind the check too.
//!
//! The backup of a header is a header: `header restore` reads it with the same function.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::header::Header;
use crate::secret::to_hex;
use crate::{
    Argon2Cost, Credential, HEADER_LEN_MAX, LABEL_LEN_MAX, MasterKey, SLOTS_MAX, SealError, Secret,
};

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

/// Opens the raw-key slots of the seeds.
const RAW_KEY: [u8; 32] = [5; 32];
/// Opens the recipients' slots of the seeds.
const IDENTITIES: [&str; 2] = [
    include_str!("../tests/keys/age"),
    include_str!("../tests/keys/ed25519"),
];

struct Keys {
    master: MasterKey,
    right: [Credential; 3],
    wrong: Credential,
}

thread_local! {
    static KEYS: Keys = Keys {
        master: MasterKey::from_bytes(&[1; 32]),
        right: [
            Credential::RawKey(Secret::from(&RAW_KEY[..])),
            identities(IDENTITIES[0]),
            identities(IDENTITIES[1]),
        ],
        wrong: Credential::RawKey(Secret::from(&[6; 32][..])),
    };
}

fn identities(text: &str) -> Credential {
    let read = crate::parse_identities(&Secret::from(text), age::NoCallbacks);
    Credential::Identities(read.expect("the identities of the tests can be read"))
}

/// A header file, header backup included.
pub fn header(bytes: &[u8]) {
    let header = match Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => {
            assert_printable(&error);
            return;
        }
    };
    assert_bounds(&header, bytes);
    let removed = header.clone().remove_slot(header.slots[0].id);
    assert!(matches!(removed, Err(SealError::NotVerified)));
    KEYS.with(|keys| {
        match header.unlock(&keys.wrong) {
            Err(SealError::WrongCredential { .. } | SealError::NoSuchKind { .. }) => {}
            other => panic!("a wrong key opens it: {other:?}"),
        }
        for right in &keys.right {
            match header.unlock(right) {
                Ok(unlocked) => assert_written_again(&header, &unlocked.master),
                Err(error) => assert_printable(&error),
            }
        }
        behind_the_code(&header, &keys.master);
    });
}

/// The same body with the right code.
fn behind_the_code(header: &Header, master: &MasterKey) {
    let read = header.read.as_ref().expect("it was read");
    let mac = to_hex(&master.header_key(&header.room).mac(&read.body));
    let file = [
        b"{\"body\":".as_slice(),
        &read.body,
        b",\"mac\":\"",
        mac.as_bytes(),
        b"\"}",
    ]
    .concat();
    // The white space around the body may have been shorter than what is here.
    if file.len() > HEADER_LEN_MAX {
        return;
    }
    let signed = Header::parse(&file).expect("only its code was changed");
    assert_same(&signed, header);
    assert!(signed.verify(master).is_ok());
    assert_written_again(&signed, master);
}

fn assert_written_again(header: &Header, master: &MasterKey) {
    let written = header.encode(master);
    let again = Header::parse(&written).expect("what is written can be read");
    assert!(again.verify(master).is_ok());
    assert_same(&again, header);
    assert!(again.encode(master) == written, "one header, two writings");
}

fn assert_bounds(header: &Header, bytes: &[u8]) {
    assert!(bytes.len() <= HEADER_LEN_MAX);
    assert!(header.features.is_empty() && header.revision > 0 && header.epoch > 0);
    let earlier = header.previous.as_ref().map_or(1, |earlier| earlier.epoch);
    assert!(earlier > 0 && (header.previous.is_none() || earlier < header.epoch));

    let slots = header.slots();
    assert!((1..=SLOTS_MAX).contains(&slots.len()));
    let numbers: BTreeSet<u32> = slots.iter().map(|slot| slot.id).collect();
    assert_eq!(numbers.len(), slots.len());
    assert!(numbers.iter().all(|id| (*id as usize) < SLOTS_MAX));
    let mut work = 0;
    for slot in &slots {
        assert!(slot.label.len() <= LABEL_LEN_MAX);
        assert_printable(&slot.label);
        slot.recipients.iter().for_each(assert_printable);
        if let Some(cost) = slot.cost {
            assert!(cost.check().is_ok());
            work += Argon2Cost::work(&cost);
        }
    }
    assert!(work <= Argon2Cost::TOTAL_WORK_MAX);
}

fn assert_same(one: &Header, other: &Header) {
    let facts = |h: &Header| (h.room, h.suite, h.created_unix_s, h.revision, h.epoch);
    assert_eq!(facts(one), facts(other));
    assert_eq!(one.features, other.features);
    assert_eq!(one.slots, other.slots);
    assert_eq!(one.previous, other.previous);
}

fn assert_printable(text: &impl Display) {
    let text = text.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NamedRecipient, NewCredential, Suite};

    #[test]
    fn every_header_of_the_corpus_keeps_the_promises() {
        corpus::each("header", header);
    }

    #[test]
    fn each_credential_opens_some_header_of_the_corpus() {
        for which in 0..3 {
            let opened = std::cell::Cell::new(0);
            corpus::each("header", |bytes| {
                if let Ok(header) = Header::parse(bytes) {
                    let unlocked = KEYS.with(|keys| header.unlock(&keys.right[which]));
                    opened.set(opened.get() + u32::from(unlocked.is_ok()));
                }
            });
            assert!(opened.get() > 0, "credential {which} opens nothing");
        }
    }

    fn raw() -> NewCredential {
        NewCredential::RawKey(Secret::from(&RAW_KEY[..]))
    }

    fn recipient(text: &str) -> NewCredential {
        let named = NamedRecipient::parse(text, age::NoCallbacks).unwrap();
        NewCredential::Recipients(vec![named])
    }

    fn age_recipient() -> NewCredential {
        let key: age::x25519::Identity = IDENTITIES[0].trim().parse().unwrap();
        recipient(&key.to_public().to_string())
    }

    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/header"]
    fn make_seeds() {
        let cost = Argon2Cost::LEAST;
        let secret = || Secret::from("open sesame");
        let (mut header, master) = Header::create(Suite::Aes256Gcm, raw(), "robot").unwrap();
        let small = header.encode(&master);
        let passphrase = NewCredential::Passphrase {
            secret: secret(),
            cost,
        };
        let key_file = NewCredential::KeyFile {
            secret: secret(),
            cost,
        };
        let ssh = recipient(include_str!("../tests/keys/ed25519.pub"));
        for (new, label) in [
            (passphrase, "Ann"),
            (key_file, ""),
            (age_recipient(), "Zo\u{eb} \u{2713} \"quoted\""),
            (ssh, "laptop"),
        ] {
            header.add_slot(&master, new, label).unwrap();
        }
        let kinds = header.encode(&master);

        let suite = Suite::ChaCha20Poly1305;
        let (mut many, many_master) = Header::create(suite, age_recipient(), "").unwrap();
        for number in 1..SLOTS_MAX {
            let label = format!("robot {number}");
            many.add_slot(&many_master, raw(), &label).unwrap();
        }
        many.remove_slot(7).unwrap();

        let new = MasterKey::random();
        let keep = KEYS.with(|keys| header.begin_rekey(&master, &new, &[(0, &keys.right[0])]));
        assert_eq!(keep.unwrap().len(), 2);

        let text = String::from_utf8(kinds.clone()).unwrap();
        let changed = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1).into_bytes()
        };
        let dear = format!("\"memory_kib\": {}", 2 << 20);
        corpus::replace_seeds(
            "header",
            [
                ("small", small),
                ("every-kind", kinds.clone()),
                ("full", many.encode(&many_master)),
                ("rekeying", header.encode(&new)),
                ("newer-format", changed("\"format\": 1", "\"format\": 2")),
                (
                    "unknown-feature",
                    changed("\"features\": []", "\"features\": [\"x\"]"),
                ),
                ("dear", changed("\"memory_kib\": 8192", &dear)),
                (
                    "without-white-space",
                    text.split_whitespace().collect::<String>().into_bytes(),
                ),
            ],
        );
    }
}
