//! What the fuzz targets for LUKS headers try, and what must hold whatever the bytes are.
//!
//! 1. What was read can be shown: the text drives no terminal, and the JSON is some.
//! 2. What was read and is written again reads as the same.
//! 3. Whatever the header says, the places of key slots are bounded by the place for them.
//!
//! A fuzzer cannot guess a checksum: a LUKS2 input is put behind a right one. One that begins with `{` is the JSON of a
//! good header, others are a copy's bytes from its start.

use std::sync::Arc;

use device::{Device, MemoryDevice};
use serde_json::Value;

use super::hash::Hash;
use super::v2::binary::{Binary, LEN, SIZES};
use super::{Header, Luks, v1};

/// Room for two copies of the smallest header, and for key slots.
const IMAGE_LEN: usize = 1 << 16;

fn binary() -> Binary {
    Binary {
        size: SIZES[0],
        seqid: 3,
        label: "label".into(),
        subsystem: String::new(),
        uuid: "11111111-2222-4333-8444-555555555555".into(),
        checksum: Hash::Sha256,
        salt: [7; 64],
    }
}

/// A LUKS2 header: its JSON, or the bytes of its first copy.
pub fn luks2(bytes: &[u8]) {
    let size = SIZES[0] as usize;
    let copy = if bytes.starts_with(b"{") {
        binary().copy(0, &bytes[..bytes.len().min(size - LEN - 1)])
    } else {
        let mut copy = binary().copy(0, b"");
        let len = bytes.len().min(size);
        copy[..len].copy_from_slice(&bytes[..len]);
        if let Ok(head) = Binary::parse(copy[..LEN].try_into().expect("as long"), 0) {
            head.sign(&mut copy);
        }
        copy
    };
    let device = MemoryDevice::new(IMAGE_LEN);
    device.write_at(&copy, 0).expect("it fits");
    let Ok(luks) = Luks::read(Arc::new(device)) else {
        return;
    };
    show(&luks);
    let Header::V2(header) = &luks.header else {
        return;
    };
    let region = header.region();
    for slot in header.metadata.keyslots.values() {
        assert!(slot.area.offset >= 2 * header.binary.size);
        assert!(slot.area.offset + slot.area.size <= region);
    }
    // JSON may take more bytes when it is written again.
    let Ok([first, _]) = header.encode() else {
        return;
    };
    let device = MemoryDevice::new(first.len() + LEN);
    device.write_at(&first, 0).expect("it fits");
    let again = super::v2::Header::read(&device).expect("what was written reads");
    assert_eq!(again.json, header.json);
    assert_eq!(again.binary, header.binary);
}

/// A LUKS1 header, zeros behind what is given.
pub fn luks1(bytes: &[u8]) {
    let mut head = [0; v1::LEN];
    let len = bytes.len().min(v1::LEN);
    head[..len].copy_from_slice(&bytes[..len]);
    let Ok(header) = v1::Header::parse(&head) else {
        return;
    };
    let again = v1::Header::parse(&header.encode()).expect("what was written reads");
    assert_eq!(again, header);
    let mut end = 0;
    for slot in header.slots.iter().filter(|slot| slot.active) {
        end = end.max(header.material(slot).1);
    }
    assert!(end <= header.region() && header.region() <= header.whole_region());
    let luks = Luks {
        device: Arc::new(MemoryDevice::new(0)),
        header: Header::V1(Box::new(header)),
    };
    show(&luks);
}

fn show(luks: &Luks) {
    let dump = luks.dump();
    let text = dump.to_string();
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    let json = serde_json::to_string(&dump).expect("it has text for names only");
    serde_json::from_str::<Value>(&json).expect("it is JSON");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus;
    use crate::luks::{FormatOptions, KdfOptions, Version, format};

    #[test]
    fn every_luks2_header_of_the_corpus_is_refused_or_shown_and_written_again() {
        corpus::each("luks2", luks2);
    }

    #[test]
    fn every_luks1_header_of_the_corpus_is_refused_or_shown_and_written_again() {
        corpus::each("luks1", luks1);
    }

    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/luks1 and fuzz/corpus/luks2"]
    fn make_seeds() {
        let made = |version, cipher: &str, key_len| {
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(3 << 20));
            let options = FormatOptions {
                version,
                cipher: cipher.into(),
                key_len,
                kdf: Some(KdfOptions::Pbkdf2 {
                    hash: Hash::Sha256,
                    iterations: 1000,
                }),
                data_offset: Some(2 << 20),
                ..FormatOptions::default()
            };
            let mut luks = format(Arc::clone(&device), None, &options, b"pass").unwrap();
            let (key, _) = luks
                .unlock(b"pass", &super::super::Limits::default())
                .unwrap();
            luks.add_key(&key, b"second", options.kdf.as_ref().unwrap(), None)
                .unwrap();
            let mut bytes = vec![0; SIZES[0] as usize];
            device.read_at(&mut bytes, 0).unwrap();
            (luks, bytes)
        };
        let (luks, copy) = made(Version::Luks2, "aes-xts-plain64", 64);
        let Header::V2(header) = luks.header else {
            unreachable!()
        };
        let edited = |edit: &dyn Fn(&mut Value)| {
            let mut json = header.json.clone();
            edit(&mut json);
            serde_json::to_vec(&json).unwrap()
        };
        let copy_end = LEN + serde_json::to_vec(&header.json).unwrap().len() + 1;
        corpus::replace_seeds(
            "luks2",
            [
                ("json", edited(&|_| ())),
                ("copy", copy[..copy_end].to_vec()),
                ("half", copy[..512].to_vec()),
                (
                    "argon2-and-tokens",
                    edited(&|j| {
                        j["keyslots"]["0"]["kdf"] = serde_json::json!({
                            "type": "argon2id", "time": 4, "memory": 1048576, "cpus": 4,
                            "salt": "AAAAAAAAAAAAAAAAAAAAAA==",
                        });
                        j["tokens"]["3"] = serde_json::json!({"type": "x", "keyslots": ["1"]});
                    }),
                ),
                (
                    "requirements-and-flags",
                    edited(&|j| {
                        j["config"]["requirements"] =
                            serde_json::json!({"mandatory": ["online-reencrypt-v2"]});
                        j["config"]["flags"] = serde_json::json!(["allow-discards", "other"]);
                    }),
                ),
                (
                    "overlap",
                    edited(&|j| j["keyslots"]["1"] = j["keyslots"]["0"].clone()),
                ),
                (
                    "large-numbers",
                    edited(&|j| {
                        j["segments"]["0"]["size"] = "18446744073709551104".into();
                        j["segments"]["0"]["offset"] = "9223372036854775808".into();
                    }),
                ),
            ],
        );
        let first = |cipher: &str, key_len| made(Version::Luks1, cipher, key_len).1[..592].to_vec();
        let xts = first("aes-xts-plain64", 64);
        let with = |at: usize, word: u32| {
            let mut bytes = xts.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
            bytes
        };
        corpus::replace_seeds(
            "luks1",
            [
                ("xts", xts.clone()),
                ("cbc", first("aes-cbc-essiv:sha256", 32)),
                ("stripes", with(252, u32::MAX)),
                ("material", with(248, 1)),
                ("state", with(208, 7)),
                ("payload", with(104, 8)),
                ("half", xts[..300].to_vec()),
            ],
        );
    }
}
