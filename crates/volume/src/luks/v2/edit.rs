//! Changes of a LUKS2 header's JSON. They give new JSON and leave the header as it is; writing it is the caller's.
//!
//! Whatever they do is checked when the result is parsed; own mistakes show as `Malformed` before anything is written.

use serde_json::{Map, Value, json};

use super::metadata::Area;
use super::node::base64;
use super::{Header, SLOTS};
use crate::luks::error::{LuksError, Result};
use crate::luks::kdf::{Kdf, KdfAlgorithm};

/// Areas of key slots begin and end at multiples of this.
const AREA_ALIGN: u64 = 4096;

/// What a new key slot says of itself.
pub(in crate::luks) struct NewSlot<'s> {
    pub(in crate::luks) key_size: usize,
    pub(in crate::luks) encryption: &'s str,
    pub(in crate::luks) area_key_size: usize,
    pub(in crate::luks) area: Area,
    pub(in crate::luks) kdf: &'s Kdf,
    pub(in crate::luks) af_hash: &'s str,
    pub(in crate::luks) stripes: usize,
}

impl NewSlot<'_> {
    pub(in crate::luks) fn to_json(&self) -> Value {
        json!({
            "type": "luks2",
            "key_size": self.key_size,
            "af": { "type": "luks1", "stripes": self.stripes, "hash": self.af_hash },
            "area": {
                "type": "raw",
                "offset": self.area.offset.to_string(),
                "size": self.area.size.to_string(),
                "encryption": self.encryption,
                "key_size": self.area_key_size,
            },
            "kdf": kdf_json(self.kdf),
        })
    }
}

fn kdf_json(kdf: &Kdf) -> Value {
    let salt = base64(&kdf.salt);
    match &kdf.algorithm {
        KdfAlgorithm::Pbkdf2 { hash, iterations } => {
            json!({ "type": "pbkdf2", "hash": hash, "iterations": iterations, "salt": salt })
        }
        KdfAlgorithm::Argon2 {
            i,
            memory_kib,
            passes,
            lanes,
        } => json!({
            "type": if *i { "argon2i" } else { "argon2id" },
            "time": passes, "memory": memory_kib, "cpus": lanes, "salt": salt,
        }),
    }
}

/// A digest by PBKDF2 with SHA-256.
pub(in crate::luks) fn digest_json(
    keyslots: &[u8],
    segments: &[u8],
    salt: &[u8],
    digest: &[u8],
    iterations: u32,
) -> Value {
    json!({
        "type": "pbkdf2",
        "keyslots": names(keyslots),
        "segments": names(segments),
        "salt": base64(salt),
        "digest": base64(digest),
        "hash": "sha256",
        "iterations": iterations,
    })
}

/// A segment that is encrypted.
pub(in crate::luks) fn segment_json(
    offset: u64,
    size: Option<u64>,
    encryption: &str,
    sector_size: u32,
) -> Value {
    json!({
        "type": "crypt",
        "offset": offset.to_string(),
        "size": size_json(size),
        "iv_tweak": "0",
        "encryption": encryption,
        "sector_size": sector_size,
    })
}

pub(in crate::luks) fn size_json(size: Option<u64>) -> Value {
    Value::String(size.map_or_else(|| "dynamic".to_owned(), |size| size.to_string()))
}

fn names(numbers: &[u8]) -> Vec<String> {
    numbers.iter().map(u8::to_string).collect()
}

/// Bytes that a slot's area takes for this much key material.
pub(in crate::luks) fn area_size(material: usize) -> u64 {
    (material as u64).next_multiple_of(AREA_ALIGN)
}

/// An object that the metadata was parsed from, so it is there.
fn object<'j>(json: &'j mut Value, name: &str) -> Result<&'j mut Map<String, Value>> {
    json.get_mut(name)
        .and_then(Value::as_object_mut)
        .ok_or_else(|| LuksError::Malformed(format!("the JSON has no {name:?}")))
}

impl Header {
    /// The lowest free slot, or the one that is wanted, if it is free.
    pub(in crate::luks) fn free_slot(&self, wanted: Option<u8>) -> Result<u8> {
        let taken = |slot: &u8| self.metadata.keyslots.contains_key(slot);
        match wanted {
            Some(slot) if slot >= SLOTS => Err(LuksError::Option(format!(
                "key slots are numbered from 0 to {}",
                SLOTS - 1
            ))),
            Some(slot) if taken(&slot) => Err(LuksError::SlotTaken(slot)),
            Some(slot) => Ok(slot),
            None => (0..SLOTS)
                .find(|slot| !taken(slot))
                .ok_or_else(|| LuksError::NoRoom("all 32 are in use".into())),
        }
    }

    /// A place for an area of `size` bytes that no slot uses.
    pub(in crate::luks) fn free_area(&self, size: u64) -> Result<Area> {
        let mut areas: Vec<Area> = self.metadata.keyslots.values().map(|k| k.area).collect();
        areas.sort_by_key(|area| area.offset);
        let end = self.region();
        let mut at = 2 * self.binary.size;
        for area in areas {
            if area.offset.saturating_sub(at) >= size {
                break;
            }
            at = at.max((area.offset + area.size).next_multiple_of(AREA_ALIGN));
        }
        if at.saturating_add(size) > end {
            return Err(LuksError::NoRoom(format!(
                "its key material takes {size} bytes, and the place for it is full"
            )));
        }
        Ok(Area { offset: at, size })
    }

    /// The largest place that no slot uses, of whole multiples of `align` bytes.
    pub(in crate::luks) fn largest_gap(&self, align: u64) -> Result<Area> {
        let mut areas: Vec<Area> = self.metadata.keyslots.values().map(|k| k.area).collect();
        areas.push(Area {
            offset: self.region(),
            size: 0,
        });
        areas.sort_by_key(|area| area.offset);
        let mut at = 2 * self.binary.size;
        let mut largest = Area {
            offset: at,
            size: 0,
        };
        for area in areas {
            let size = area.offset.saturating_sub(at) / align * align;
            if size > largest.size {
                largest = Area { offset: at, size };
            }
            at = at.max((area.offset + area.size).next_multiple_of(AREA_ALIGN));
        }
        if largest.size == 0 {
            return Err(LuksError::NoRoom("the place for key slots is full".into()));
        }
        Ok(largest)
    }

    /// With a key slot that opens what `digest` is the digest of.
    pub(in crate::luks) fn with_slot(&self, slot: u8, json: Value, digest: u8) -> Result<Value> {
        let mut all = self.json.clone();
        object(&mut all, "keyslots")?.insert(slot.to_string(), json);
        let digest = object(&mut all, "digests")?.get_mut(&digest.to_string());
        match digest.and_then(|d| d["keyslots"].as_array_mut()) {
            Some(slots) => slots.push(Value::String(slot.to_string())),
            None => return Err(LuksError::Malformed("a digest is gone".into())),
        }
        Ok(all)
    }

    /// Without a key slot.
    pub(in crate::luks) fn without_slot(&self, slot: u8) -> Result<Value> {
        let mut all = self.json.clone();
        object(&mut all, "keyslots")?.remove(&slot.to_string());
        rename(&mut all, slot, None)?;
        Ok(all)
    }

    /// With the key slot `from` under the number `to`, whose own slot goes.
    pub(in crate::luks) fn with_slot_renumbered(&self, from: u8, to: u8) -> Result<Value> {
        let priority = self.json["keyslots"][to.to_string()]
            .get("priority")
            .cloned();
        let mut all = self.without_slot(to)?;
        // Tokens that were for the old slot are for what takes its place.
        all["tokens"] = self.json["tokens"].clone();
        let slots = object(&mut all, "keyslots")?;
        let mut moved = slots
            .remove(&from.to_string())
            .ok_or(LuksError::NoSuchSlot(from))?;
        if let (Some(priority), Some(moved)) = (priority, moved.as_object_mut()) {
            moved.insert("priority".into(), priority);
        }
        slots.insert(to.to_string(), moved);
        rename(&mut all, from, Some(to))?;
        Ok(all)
    }
}

/// Renames a slot where digests and tokens list it, or strikes it out.
fn rename(all: &mut Value, slot: u8, to: Option<u8>) -> Result<()> {
    let name = slot.to_string();
    for kind in ["digests", "tokens"] {
        for entry in object(all, kind)?.values_mut() {
            let Some(slots) = entry.get_mut("keyslots").and_then(Value::as_array_mut) else {
                continue;
            };
            match to {
                None => slots.retain(|s| s.as_str() != Some(&name)),
                Some(to) => {
                    for listed in slots.iter_mut().filter(|s| s.as_str() == Some(&name)) {
                        *listed = Value::String(to.to_string());
                    }
                }
            }
        }
    }
    Ok(())
}
