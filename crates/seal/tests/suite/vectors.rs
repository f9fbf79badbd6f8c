//! The derivations, one sealed unit of each suite and a whole header against values worked out in another
//! language, by `vectors/make_vectors.py`.

use seal::{
    Credential, Header, HeaderError, MasterKey, NoncePart, RoomId, Secret, SegmentKey, Suite,
    UNIT_LEN,
};
use serde_json::Value;
use strongroom_seal as seal;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/vectors.json")).unwrap()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {field}"))
}

fn bytes<const N: usize>(value: &Value, field: &str) -> [u8; N] {
    unhex(text(value, field)).try_into().unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn room(vectors: &Value) -> RoomId {
    text(vectors, "room").parse().unwrap()
}

fn master(vectors: &Value) -> MasterKey {
    MasterKey::from_bytes(&bytes(vectors, "master"))
}

fn segment_key(vectors: &Value, suite: Suite) -> SegmentKey {
    master(vectors)
        .data_key(&room(vectors))
        .segment_key(suite, &bytes(vectors, "salt"))
}

#[test]
fn keys_derived_from_the_master_key_are_those_of_the_format() {
    let v = vectors();
    let (master, room) = (master(&v), room(&v));
    assert_eq!(
        hex(&master.header_key(&room).mac(b"a header")),
        text(&v, "header_mac")
    );
    let mac = master.segment_header_key(&room).mac(b"a segment header");
    assert_eq!(hex(&mac), text(&v, "segment_header_mac"));
    let mac = master.page_digest_key(&room).mac(b"a table");
    assert_eq!(hex(&mac), text(&v, "page_digest_mac"));
    assert_eq!(*master.catalog_key(&room).to_hex(), text(&v, "catalog_key"));
}

#[test]
fn a_sealed_unit_is_that_of_the_format_in_each_suite() {
    let v = vectors();
    let plain: Vec<u8> = (0..UNIT_LEN).map(|i| (7 * i + i / 256) as u8).collect();
    let block = v["block"].as_u64().unwrap();
    for vector in v["units"].as_array().unwrap() {
        let suite: Suite = text(vector, "suite").parse().unwrap();
        let key = segment_key(&v, suite);
        let part = NoncePart(bytes(vector, "nonce_part"));
        let mut unit = plain.clone();
        let tag = key.seal(part, block, &mut unit);
        assert_eq!(hex(&tag), text(vector, "tag"), "{suite}");
        assert_eq!(hex(&unit[..64]), text(vector, "sealed_start"), "{suite}");
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &unit);
        assert_eq!(
            hex(digest.as_ref()),
            text(vector, "sealed_sha256"),
            "{suite}"
        );
        key.open(part, block, &tag, &mut unit).unwrap();
        assert!(unit == plain);
    }
}

#[test]
fn keys_of_positions_are_those_of_the_format() {
    let v = vectors();
    let data = master(&v).data_key(&room(&v));
    for vector in v["positions"].as_array().unwrap() {
        let suite: Suite = text(vector, "suite").parse().unwrap();
        let number = |field: &str| u32::try_from(vector[field].as_u64().unwrap()).unwrap();
        let (first, height) = (number("first"), number("height"));
        let tree = data.position_tree(suite, &bytes(&v, "salt"));
        let positions = first..first + (1 << height);
        let keys = tree.keys_of(std::slice::from_ref(&positions));
        let keys = serde_json::to_value(keys).unwrap();
        let [subtree] = keys["subtrees"].as_array().unwrap().as_slice() else {
            panic!("{keys}");
        };
        let key: [u8; 32] = serde_json::from_value(subtree["key"].clone()).unwrap();
        assert_eq!(hex(&key), text(vector, "key"), "{suite}, {first}");
    }
}

#[test]
fn a_header_written_by_another_program_opens_with_each_of_its_credentials() {
    let v = vectors();
    let room = room(&v);
    let credentials = [
        Credential::Passphrase(Secret::from(text(&v, "passphrase"))),
        Credential::KeyFile(Secret::new(unhex(text(&v, "key_file")))),
        Credential::RawKey(Secret::new(unhex(text(&v, "raw_key")))),
    ];
    for (slot, credential) in (0..).zip(&credentials) {
        let header = Header::parse(text(&v, "header").as_bytes()).unwrap();
        let unlocked = header.unlock(credential).unwrap();
        assert_eq!(unlocked.slot, slot);
        assert_eq!(
            *unlocked.master.catalog_key(&room).to_hex(),
            text(&v, "catalog_key")
        );
        let (epoch, previous) = unlocked.previous.unwrap();
        assert_eq!(u64::from(epoch), v["previous_epoch"].as_u64().unwrap());
        let old = MasterKey::from_bytes(&bytes(&v, "old_master"));
        assert_eq!(
            *previous.catalog_key(&room).to_hex(),
            *old.catalog_key(&room).to_hex()
        );
    }
    let header = Header::parse(text(&v, "header").as_bytes()).unwrap();
    assert_eq!(header.room_id(), room);
    assert_eq!(
        (header.format(), header.revision(), header.epoch()),
        (1, 9, 8)
    );
    assert_eq!(header.created_unix_s(), 1_700_000_000);
    assert!(header.rekey_under_way());
}

#[test]
fn each_room_and_each_segment_has_its_own_keys() {
    let v = vectors();
    let other = RoomId::from_bytes([1; 16]);
    let master = master(&v);
    assert_ne!(
        *master.catalog_key(&other).to_hex(),
        text(&v, "catalog_key")
    );
    let mut unit = vec![0; UNIT_LEN];
    let tag = segment_key(&v, Suite::Aes256Gcm).seal(NoncePart::NONE, 0, &mut unit);
    let salts = master
        .data_key(&room(&v))
        .segment_key(Suite::Aes256Gcm, &[9; 32]);
    assert!(
        salts
            .open(NoncePart::NONE, 0, &tag, &mut unit.clone())
            .is_err()
    );
    let rooms = master
        .data_key(&other)
        .segment_key(Suite::Aes256Gcm, &bytes(&v, "salt"));
    assert!(rooms.open(NoncePart::NONE, 0, &tag, &mut unit).is_err());
}

#[test]
fn a_header_cut_short_anywhere_is_refused() {
    let v = vectors();
    let header = text(&v, "header").as_bytes();
    for len in 0..header.len() {
        let result = Header::parse(&header[..len]);
        assert!(
            matches!(result, Err(HeaderError::Malformed(_))),
            "cut to {len} bytes"
        );
    }
}
