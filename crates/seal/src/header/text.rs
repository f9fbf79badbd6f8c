//! How a header is written: JSON, so that a person with an editor sees what a room is.
//!
//! ```json
//! {"body": { … }, "mac": "64 hexadecimal digits"}
//! ```
//!
//! `mac` is HMAC-SHA-256 under the header key over the bytes of the value of `body` exactly as they are in the file,
//! from its opening brace to its closing one, both included. All binary values are lowercase hexadecimal. A header has
//! at most 256 KiB. The fields of `body`, none of which may be missing unless said so, and no others:
//!
//! | field | value |
//! |---|---|
//! | `format` | 1. A reader that does not know the number says so and reads no further |
//! | `features` | names of what a reader must have: `catalog-pages`, `reservations` and `append-nonces`, fewer in older rooms; `position-keys` in rooms on network disks. An unknown one is refused by name |
//! | `room` | the room's id, 16 bytes |
//! | `suite` | `aes-256-gcm` or `chacha20-poly1305` |
//! | `unit_len` | 16384: the bytes sealed at once |
//! | `created_unix_s` | when the room was created, seconds since 1970 |
//! | `revision` | 1 for a new room, one more with each change of the header |
//! | `epoch` | 1 for a new room, one more with each rekey |
//! | `position_keys_from` | only with the feature `position-keys`: the first epoch in which each position of a segment has its own key, 1 to `epoch` |
//! | `slots` | 1 to 32 key slots |
//! | `previous` | only while a rekey is unfinished: `epoch`, `nonce`, `wrapped` of the master key of before |
//!
//! The fields of a slot:
//!
//! | field | value |
//! |---|---|
//! | `id` | its number, 0 to 31, each once |
//! | `kind` | `passphrase`, `key-file`, `raw-key` or `recipients` |
//! | `label` | at most 128 bytes, no control characters |
//! | `created_unix_s` | when it was made |
//! | `salt` | 32 bytes |
//! | `argon2id` | passphrase and key file only: `memory_kib`, `passes`, `lanes` |
//! | `recipients` | recipients only: 1 to 64 texts, at most 4096 bytes each, no control characters |
//! | `age` | recipients only: an age file (binary, not armored) of 32 bytes, at most 64 KiB |
//! | `nonce`, `wrapped` | 24 bytes; 48 bytes: the master key sealed by XChaCha20-Poly1305, ciphertext then tag |
//!
//! Reading is bounded before anything is derived: no field of an unverified header sets the reader to more
//! work than an [`Argon2Cost`] may.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{FORMAT, Header, KNOWN_FEATURES, POSITION_KEYS, Previous, ReadFrom};
use crate::secret::{array_from_hex, from_hex, to_hex};
use crate::slot::{AGE_FILE_LEN_MAX, KeySlot, RECIPIENTS_MAX, SlotMethod, is_allowed};
use crate::wrap::WrappedKey;
use crate::{
    Argon2Cost, HEADER_LEN_MAX, HeaderError, LABEL_LEN_MAX, MasterKey, RoomId, SLOTS_MAX,
    SealError, SlotKind, UNIT_LEN,
};

/// The room left for everything of a header but its slots.
const BODY_LEN_MAX: usize = 8 * 1024;

/// The part of a header that every version can read of every other.
#[derive(Deserialize)]
struct AnyVersion<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Deserialize)]
struct AnyBody {
    format: u32,
    #[serde(default)]
    features: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
    mac: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    format: u32,
    features: Vec<String>,
    room: String,
    suite: String,
    unit_len: u64,
    created_unix_s: u64,
    revision: u64,
    epoch: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position_keys_from: Option<u32>,
    slots: Vec<SlotText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<PreviousText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotText {
    id: u32,
    kind: String,
    label: String,
    created_unix_s: u64,
    salt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    argon2id: Option<Argon2Cost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipients: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    age: Option<String>,
    nonce: String,
    wrapped: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviousText {
    epoch: u32,
    nonce: String,
    wrapped: String,
}

/// The bytes of the header file.
pub(crate) fn write(header: &Header, master: &MasterKey) -> Vec<u8> {
    let body = Body {
        format: FORMAT,
        features: header.features.clone(),
        room: header.room.to_string(),
        suite: header.suite.to_string(),
        unit_len: UNIT_LEN as u64,
        created_unix_s: header.created_unix_s,
        revision: header.revision,
        epoch: header.epoch,
        position_keys_from: header.positions_from,
        slots: header.slots.iter().map(write_slot).collect(),
        previous: header.previous.as_ref().map(|previous| PreviousText {
            epoch: previous.epoch,
            nonce: to_hex(&previous.wrapped.nonce),
            wrapped: to_hex(&previous.wrapped.bytes),
        }),
    };
    let body = to_json(&body);
    let mac = master.header_key(&header.room).mac(body.as_bytes());
    format!("{{\"body\": {body},\n\"mac\": \"{}\"}}\n", to_hex(&mac)).into_bytes()
}

fn write_slot(slot: &KeySlot) -> SlotText {
    let (recipients, age) = match &slot.method {
        SlotMethod::Recipients { texts, age_file } => (Some(texts.clone()), Some(to_hex(age_file))),
        _ => (None, None),
    };
    SlotText {
        id: slot.id,
        kind: slot.method.kind().name().to_owned(),
        label: slot.label.clone(),
        created_unix_s: slot.created_unix_s,
        salt: to_hex(&slot.salt),
        argon2id: slot.method.cost(),
        recipients,
        age,
        nonce: to_hex(&slot.wrapped.nonce),
        wrapped: to_hex(&slot.wrapped.bytes),
    }
}

fn to_json(value: &impl Serialize) -> String {
    // Strings, numbers and lists only: nothing here that JSON could not say.
    serde_json::to_string_pretty(value).expect("a header can be written as JSON")
}

/// Whether a header with these slots stays within the length a reader takes.
pub(crate) fn check_len(slots: &[KeySlot]) -> Result<(), SealError> {
    let slots: Vec<SlotText> = slots.iter().map(write_slot).collect();
    // Inside the body every line is indented by two spaces more.
    let text = to_json(&slots);
    let len = text.len() + 2 * text.lines().count() + BODY_LEN_MAX;
    if len > HEADER_LEN_MAX {
        Err(HeaderError::TooLong(len).into())
    } else {
        Ok(())
    }
}

/// Whether all slots together ask for no more work than is allowed.
pub(crate) fn check_total_work(slots: &[KeySlot]) -> Result<(), SealError> {
    let value = slots
        .iter()
        .filter_map(|slot| slot.method.cost())
        .map(|cost| cost.work())
        .sum();
    if value > Argon2Cost::TOTAL_WORK_MAX {
        return Err(SealError::CostOutOfBounds {
            what: "the work of all slots (memory in KiB times passes)",
            value,
            min: 1,
            max: Argon2Cost::TOTAL_WORK_MAX,
        });
    }
    Ok(())
}

/// Reads a header; nothing in it is verified yet.
pub(crate) fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
    if bytes.len() > HEADER_LEN_MAX {
        return Err(HeaderError::TooLong(bytes.len()));
    }
    let any: AnyVersion = serde_json::from_slice(bytes).map_err(malformed)?;
    let AnyBody { format, features } = serde_json::from_str(any.body.get()).map_err(malformed)?;
    if format > FORMAT {
        return Err(HeaderError::NewerFormat {
            found: format,
            known: FORMAT,
        });
    }
    if format == 0 {
        return Err(bad("format", "is 0"));
    }
    if let Some(unknown) = features
        .into_iter()
        .find(|name| !KNOWN_FEATURES.contains(&&**name))
    {
        return Err(HeaderError::UnknownFeature(shortened(&unknown)));
    }

    let file: File = serde_json::from_slice(bytes).map_err(malformed)?;
    let body: Body = serde_json::from_str(file.body.get()).map_err(malformed)?;
    let mac = array_from_hex(&file.mac).ok_or_else(|| not_hex("mac", 32))?;
    let room = body.room.parse().map_err(|_| not_hex("room", 16))?;
    let suite = body.suite.parse();
    let suite = suite.map_err(|_| HeaderError::UnknownSuite(shortened(&body.suite)))?;
    if body.unit_len != UNIT_LEN as u64 {
        return Err(bad("unit_len", "is not 16384"));
    }
    for (field, value) in [("revision", body.revision), ("epoch", body.epoch.into())] {
        if value == 0 {
            return Err(bad(field, "is 0"));
        }
    }
    let positions_from = body.position_keys_from;
    let has_position_keys = body.features.iter().any(|name| name == POSITION_KEYS);
    if positions_from.is_some() != has_position_keys
        || positions_from.is_some_and(|from| !(1..=body.epoch).contains(&from))
    {
        return Err(bad(
            "position_keys_from",
            "does not go with the features and the epoch",
        ));
    }
    let slots = read_slots(body.slots)?;
    let previous = body.previous.map(read_previous).transpose()?;
    if previous
        .as_ref()
        .is_some_and(|previous| !(1..body.epoch).contains(&previous.epoch))
    {
        return Err(bad("previous.epoch", "is 0, or not before the room's"));
    }
    Ok(Header {
        room,
        suite,
        created_unix_s: body.created_unix_s,
        revision: body.revision,
        epoch: body.epoch,
        features: body.features,
        positions_from,
        slots,
        previous,
        read: Some(ReadFrom {
            body: file.body.get().as_bytes().to_vec(),
            mac,
        }),
        verified: OnceLock::new(),
    })
}

/// Whether bytes that are no header to this version are one of a newer version, which wrote it with this master key.
pub(crate) fn is_newer(bytes: &[u8], room: &RoomId, master: &MasterKey) -> bool {
    let Ok(any) = serde_json::from_slice::<AnyVersion<'_>>(bytes) else {
        return false;
    };
    let Ok(body) = serde_json::from_str::<AnyBody>(any.body.get()) else {
        return false;
    };
    if body.format > FORMAT {
        // How it is authenticated is not known.
        return true;
    }
    let mac = serde_json::from_slice::<File<'_>>(bytes)
        .ok()
        .and_then(|file| array_from_hex(&file.mac));
    let key = master.header_key(room);
    mac.is_some_and(|mac: [u8; 32]| key.verify(any.body.get().as_bytes(), &mac).is_ok())
}

fn read_previous(text: PreviousText) -> Result<Previous, HeaderError> {
    let wrapped = read_wrapped("previous", &text.nonce, &text.wrapped)?;
    Ok(Previous {
        epoch: text.epoch,
        wrapped,
    })
}

fn read_slots(texts: Vec<SlotText>) -> Result<Vec<KeySlot>, HeaderError> {
    if texts.len() > SLOTS_MAX {
        return Err(HeaderError::TooManySlots(texts.len()));
    }
    if texts.is_empty() {
        return Err(bad("slots", "is empty"));
    }
    let mut slots: Vec<KeySlot> = Vec::with_capacity(texts.len());
    let mut work = 0;
    for text in texts {
        let slot = read_slot(text)?;
        if slots.iter().any(|other| other.id == slot.id) {
            return Err(HeaderError::DuplicateSlot(slot.id));
        }
        work += slot.method.cost().map_or(0, |cost| cost.work());
        if work > Argon2Cost::TOTAL_WORK_MAX {
            let problem = "together with the slots before it, more than all slots may".to_owned();
            return Err(HeaderError::Cost {
                slot: slot.id,
                problem,
            });
        }
        slots.push(slot);
    }
    slots.sort_unstable_by_key(|slot| slot.id);
    Ok(slots)
}

fn read_slot(text: SlotText) -> Result<KeySlot, HeaderError> {
    let id = text.id;
    let field = |name: &str| format!("slot {id}: {name}");
    if id as usize >= SLOTS_MAX {
        return Err(bad("slots.id", "is above 31"));
    }
    if text.label.len() > LABEL_LEN_MAX || text.label.chars().any(char::is_control) {
        return Err(bad(
            &field("label"),
            "is too long or has control characters",
        ));
    }
    let kind = SlotKind::ALL
        .into_iter()
        .find(|kind| kind.name() == text.kind);
    let kind = kind.ok_or_else(|| HeaderError::UnknownKind {
        slot: id,
        kind: shortened(&text.kind),
    })?;
    let method = match (kind, text.argon2id, text.recipients, text.age) {
        (SlotKind::Passphrase, Some(cost), None, None) => SlotMethod::Passphrase(cost),
        (SlotKind::KeyFile, Some(cost), None, None) => SlotMethod::KeyFile(cost),
        (SlotKind::PassphraseAndKeyFile, Some(cost), None, None) => {
            SlotMethod::PassphraseAndKeyFile(cost)
        }
        (SlotKind::RawKey, None, None, None) => SlotMethod::RawKey,
        (SlotKind::Recipients, None, Some(texts), Some(age)) => {
            if texts.is_empty() || texts.len() > RECIPIENTS_MAX || !texts.iter().all(is_allowed) {
                return Err(bad(
                    &field("recipients"),
                    "has none, too many, or some that are too long or have control characters",
                ));
            }
            let age_file = from_hex(&age).filter(|file| file.len() <= AGE_FILE_LEN_MAX);
            let age_file = age_file
                .ok_or_else(|| bad(&field("age"), "is not lowercase hexadecimal, or too long"))?;
            SlotMethod::Recipients { texts, age_file }
        }
        _ => return Err(bad(&field("kind"), "does not go with the fields beside it")),
    };
    if let Some(cost) = method.cost() {
        let checked = cost.check();
        checked.map_err(|error| HeaderError::Cost {
            slot: id,
            problem: error.to_string(),
        })?;
    }
    let salt = array_from_hex(&text.salt).ok_or_else(|| not_hex(&field("salt"), 32))?;
    let wrapped = read_wrapped(&format!("slot {id}"), &text.nonce, &text.wrapped)?;
    Ok(KeySlot {
        id,
        label: text.label,
        created_unix_s: text.created_unix_s,
        salt,
        method,
        wrapped,
    })
}

fn read_wrapped(place: &str, nonce: &str, wrapped: &str) -> Result<WrappedKey, HeaderError> {
    Ok(WrappedKey {
        nonce: array_from_hex(nonce).ok_or_else(|| not_hex(&format!("{place}: nonce"), 24))?,
        bytes: array_from_hex(wrapped).ok_or_else(|| not_hex(&format!("{place}: wrapped"), 48))?,
    })
}

fn malformed(error: serde_json::Error) -> HeaderError {
    HeaderError::Malformed(shortened(&error.to_string()))
}

fn bad(field: &str, problem: &str) -> HeaderError {
    HeaderError::BadField {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

fn not_hex(field: &str, len: usize) -> HeaderError {
    bad(
        field,
        &format!("is not {} lowercase hexadecimal digits", 2 * len),
    )
}

/// Text from an unverified header in a form for messages: short, without control characters.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewCredential, Secret};

    #[test]
    fn a_copy_of_a_newer_version_is_one_that_the_key_vouches_for() {
        let key = NewCredential::RawKey(Secret::from(vec![1; 32]));
        let suite = crate::Suite::Aes256Gcm;
        let (mut header, master) = Header::create(suite, key, "").unwrap();
        header.features.push("time travel".into());
        let newer = String::from_utf8(write(&header, &master)).unwrap();
        let is_newer = |text: &str| header.is_newer_copy(text.as_bytes(), &master);
        assert!(Header::parse(newer.as_bytes()).is_err() && is_newer(&newer));
        let damaged = newer.replace("time travel", "time gravel");
        assert!(Header::parse(damaged.as_bytes()).is_err() && !is_newer(&damaged));
        assert!(!is_newer("") && !is_newer("{\"body\": {}}"));
        let other_format = damaged.replace("\"format\": 1", "\"format\": 2");
        assert!(is_newer(&other_format));
        assert!(!header.is_newer_copy(newer.as_bytes(), &MasterKey::random()));
    }
}
