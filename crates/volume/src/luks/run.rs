//! The progress of a reencryption, and how a LUKS2 header records it (specification, chapter 5).
//!
//! The segments in use are, in order: what is done, under the new key; what is being written ("in-reencryption"), of both;
//! the rest, under the old key. Behind them are copies of the segment as it was and as it will be ("backup-previous",
//! "backup-final"), which never change. A digest over these copies, the journal's place and both keys vouches that nobody
//! made them up. While the old key is wiped at the end, the slot of the reencryption has a mark of our own.

use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::error::{LuksError, Result};
use super::hash::Hash;
use super::kdf::{Kdf, KdfAlgorithm, Limits};
use super::v2::edit::{segment_json, size_json};
use super::v2::metadata::{Area, Crypt, Segment};
use super::{VolumeKey, v2};

/// What a volume requires of who opens it while this goes on. The version of the digest is its end.
pub(super) const REQUIREMENT: &str = "online-reencrypt-v2";

/// Bytes of the largest sector: what a journal must hold at least.
const SECTOR_MAX: u64 = 4096;
/// Most bytes of a block with one checksum.
const BLOCK_MAX: u64 = 1 << 16;

const HOT: &str = "in-reencryption";
const PREVIOUS: &str = "backup-previous";
const FINAL: &str = "backup-final";
/// A member of the reencryption's key slot, of our own: nothing is left but wiping the old key.
const ENDED: &str = "strongroom-ended";

#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The key slot of the kind `reencrypt`.
    pub(super) slot: u8,
    /// The journal.
    pub(super) area: Area,
    /// First byte, length, and how it was encrypted.
    pub(super) old: (u64, Option<u64>, Crypt),
    pub(super) new: Crypt,
    pub(super) old_digest: u8,
    pub(super) new_digest: u8,
    /// Bytes under the new key.
    pub(super) done: u64,
    /// Bytes behind those that are being written.
    pub(super) hot: Option<u64>,
    /// Bytes in all, once they are known.
    pub(super) total: u64,
    pub(super) safety: Safety,
    /// The header says that nothing is left but wiping the old key.
    pub(super) ended: bool,
}

/// How an interrupted write can be recognized or repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safety {
    /// The old ciphertext is in the area.
    Journal,
    /// The hash of each block's old ciphertext is in the area, one behind the other; cryptsetup's default.
    Checksums {
        hash: Hash,
        /// Bytes.
        block: u64,
    },
    /// Nothing is kept.
    None,
}

impl Safety {
    fn of(area: &Value) -> Result<Option<Self>> {
        Ok(match area["type"].as_str() {
            Some("journal") => Some(Self::Journal),
            Some("none") => Some(Self::None),
            Some("checksum") => {
                let block = area["sector_size"].as_u64().unwrap_or(0);
                if !block.is_power_of_two() || !(512..=BLOCK_MAX).contains(&block) {
                    return Err(LuksError::Malformed(format!(
                        "checksums of {block} bytes each"
                    )));
                }
                let hash = Hash::of_name(area["hash"].as_str().unwrap_or(""))?;
                Some(Self::Checksums { hash, block })
            }
            _ => None,
        })
    }
}

impl Run {
    /// The progress of the reencryption.
    pub(super) fn of(header: &v2::Header) -> Result<Self> {
        let metadata = &header.metadata;
        let refuse = |what: &str| {
            Err(LuksError::Unsupported(format!(
                "{what}; finish it with `cryptsetup reencrypt --resume-only`"
            )))
        };
        match &metadata.requirements[..] {
            [] => {
                return Err(LuksError::Unsupported(
                    "going on with a reencryption where none was begun".into(),
                ));
            }
            [only] if only == REQUIREMENT => {}
            [other, ..] => return Err(LuksError::Requirement(other.clone())),
        }
        let mut slots = metadata
            .keyslots
            .iter()
            .filter(|(_, s)| s.kind == "reencrypt");
        let (Some((slot, keyslot)), None) = (slots.next(), slots.next()) else {
            return Err(LuksError::Malformed(
                "not one slot for a reencryption".into(),
            ));
        };
        let json = &header.json["keyslots"][slot.to_string()];
        if json["mode"] != "reencrypt" || json["direction"] != "forward" {
            return refuse("a reencryption that encrypts, decrypts or goes backwards");
        }
        let (old_segment, old_digest) = backup(header, PREVIOUS)?;
        let (new_segment, new_digest) = backup(header, FINAL)?;
        if old_digest == new_digest {
            // Its key slots are wiped at the end as the old key's.
            return refuse("a reencryption that keeps the key");
        }
        let (Some(old), Some(new)) = (&old_segment.crypt, &new_segment.crypt) else {
            return refuse("a reencryption from or to plain data");
        };
        if old.integrity.is_some() || new.integrity.is_some() {
            return refuse("a reencryption with integrity protection");
        }
        let place = |s: &Segment| (s.offset, s.size);
        if place(old_segment) != place(new_segment) || old.iv_tweak != new.iv_tweak {
            return refuse("a reencryption that moves the data");
        }
        let Some(safety) = Safety::of(&json["area"])? else {
            return refuse("a reencryption that moves the data");
        };
        let sector = u64::from(old.sector_size.max(new.sector_size));
        if keyslot.area.size < SECTOR_MAX
            || matches!(safety, Safety::Checksums { block, .. } if block < sector)
        {
            return Err(LuksError::Malformed(format!(
                "a reencryption of sectors of {sector} bytes keeps less than one of them"
            )));
        }
        let mut run = Self {
            slot: *slot,
            area: keyslot.area,
            old: (old_segment.offset, old_segment.size, old.clone()),
            new: new.clone(),
            old_digest,
            new_digest,
            done: 0,
            hot: None,
            total: u64::MAX,
            safety,
            ended: false,
        };
        let behind = run.find_place(header)?;
        // cryptsetup ends with the new key's segment alone.
        let alone = run.done == u64::MAX;
        run.ended = alone || run.hot.is_some() && !behind && json[ENDED] == true;
        let Some(hot) = run.hot else {
            return Ok(run);
        };
        let kept = match safety {
            Safety::Journal => Some(hot),
            Safety::Checksums { hash, block } if hot.is_multiple_of(block) => {
                (hot / block).checked_mul(hash.digest().output_len() as u64)
            }
            Safety::Checksums { .. } => None,
            Safety::None => {
                return refuse(
                    "a reencryption that was cut off within a part and keeps nothing of it",
                );
            }
        };
        if kept.is_none_or(|kept| kept > run.area.size) {
            return Err(LuksError::Malformed(
                "more is being written than what is kept of it".into(),
            ));
        }
        Ok(run)
    }

    /// What the segments in use say; they must say it as they would be written here. Whether a part under the old key is
    /// left behind the one that is being written.
    fn find_place(&mut self, header: &v2::Header) -> Result<bool> {
        let in_use: Vec<(u8, &Segment)> = header
            .metadata
            .segments
            .iter()
            .filter(|(_, s)| !s.is_backup())
            .map(|(n, s)| (*n, s))
            .collect();
        let new = &header.metadata.digests[&self.new_digest].segments;
        let mut rest = &in_use[..];
        let hot = |s: &Segment| s.flags.iter().any(|flag| flag == HOT);
        if let [(number, segment), behind @ ..] = rest
            && !hot(segment)
            && new.contains(number)
        {
            // Of no length of its own when it is the last: all is done.
            self.done = segment
                .size
                .filter(|_| !behind.is_empty())
                .unwrap_or(u64::MAX);
            rest = behind;
        }
        if let [(_, segment), behind @ ..] = rest
            && hot(segment)
        {
            self.hot = Some(segment.size.ok_or_else(|| {
                LuksError::Malformed("a part without length is being written".into())
            })?);
            rest = behind;
        }
        if rest.len() > 1 {
            return Err(LuksError::Malformed(
                "a reencryption has more parts than there are kinds of".into(),
            ));
        }
        let sector = u64::from(self.old.2.sector_size.max(self.new.sector_size));
        let is_whole = |bytes: u64| bytes == u64::MAX || bytes.is_multiple_of(sector);
        if !is_whole(self.done) || !is_whole(self.hot.unwrap_or(0)) {
            return Err(LuksError::Malformed(
                "a part of a reencryption is no whole sectors".into(),
            ));
        }
        let expected = self.segments();
        for (number, _) in &in_use {
            let name = number.to_string();
            for field in [
                "type",
                "offset",
                "size",
                "iv_tweak",
                "encryption",
                "sector_size",
            ] {
                let (is, must) = (
                    &header.json["segments"][&name][field],
                    &expected[&name][field],
                );
                // cryptsetup leaves a rest of a set length at what it was.
                if is != must && field != "size" {
                    return Err(LuksError::Malformed(format!(
                        "segment {name} of a reencryption has {field} {is}, not {must}"
                    )));
                }
            }
        }
        Ok(!rest.is_empty())
    }

    /// Finds out how many bytes the data has in all.
    pub(super) fn measure(&mut self, device_len: u64) -> Result<()> {
        let rest = device_len.saturating_sub(self.old.0);
        let sector = u64::from(self.old.2.sector_size.max(self.new.sector_size));
        let total = self.old.1.unwrap_or(rest - rest % sector);
        let hot = self.hot.unwrap_or(0);
        let reached = if self.done == u64::MAX {
            0
        } else {
            self.done.saturating_add(hot)
        };
        if total > rest || reached > total || !total.is_multiple_of(sector) {
            return Err(LuksError::TooSmall {
                what: "the data",
                have: device_len,
                need: self.old.0.saturating_add(total.max(reached)),
            });
        }
        if self.done == total {
            // There was more when the header was written.
            return Err(LuksError::TooSmall {
                what: "the data",
                have: device_len,
                need: self.old.0.saturating_add(total).saturating_add(sector),
            });
        }
        self.total = total;
        self.done = self.done.min(total);
        Ok(())
    }

    /// The JSON at this place of the run.
    pub(super) fn at(&self, header: &v2::Header) -> Value {
        let mut json = header.json.clone();
        self.place(&mut json);
        json
    }

    /// Puts the segments in, and into the digests of both keys.
    pub(super) fn place(&self, json: &mut Value) {
        let segments = self.segments();
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for (name, segment) in segments.as_object().into_iter().flatten() {
            match segment["flags"][0].as_str() {
                Some(FINAL) => new.push(name.clone()),
                Some(PREVIOUS) => old.push(name.clone()),
                Some(_) => {
                    old.push(name.clone());
                    new.push(name.clone());
                }
                None if name == "0" && self.done > 0 => new.push(name.clone()),
                None => old.push(name.clone()),
            }
        }
        json["segments"] = segments;
        json["digests"][self.old_digest.to_string()]["segments"] = json!(old);
        json["digests"][self.new_digest.to_string()]["segments"] = json!(new);
    }

    /// All segments at this place of the run.
    fn segments(&self) -> Value {
        let (start, size, old) = &self.old;
        let part = |from: u64, len: Option<u64>, crypt: &Crypt, flag: Option<&str>| {
            let mut segment = segment_json(
                start.saturating_add(from),
                len,
                &crypt.encryption,
                crypt.sector_size,
            );
            segment["iv_tweak"] = json!((crypt.iv_tweak.wrapping_add(from / 512)).to_string());
            if let Some(flag) = flag {
                segment["flags"] = json!([flag]);
            }
            segment
        };
        let hot = self.hot.unwrap_or(0);
        let mut all = Vec::new();
        if self.done > 0 {
            all.push(part(0, Some(self.done), &self.new, None));
        }
        if hot > 0 {
            all.push(part(self.done, Some(hot), &self.new, Some(HOT)));
        }
        let from = self.done.saturating_add(hot);
        if from < size.unwrap_or(self.total) {
            all.push(part(from, size.map(|size| size - from), old, None));
        }
        all.push(part(0, *size, old, Some(PREVIOUS)));
        all.push(part(0, *size, &self.new, Some(FINAL)));
        let numbered = all.into_iter().enumerate();
        Value::Object(
            numbered
                .map(|(n, segment)| (n.to_string(), segment))
                .collect(),
        )
    }

    /// The JSON when the last part is durable under the new key, and the old key is not wiped yet. cryptsetup does not know
    /// the mark: it takes the last part from the journal again as long as the old key is there, and refuses to go on
    /// afterwards. A single segment under the new key, without the mark, it would take for the beginning.
    pub(super) fn ending(&self, header: &v2::Header) -> Value {
        let mut json = header.json.clone();
        json["keyslots"][self.slot.to_string()][ENDED] = json!(true);
        json
    }

    /// What is not needed any more when all is done: the old key's slots, and then the journal, which is of use as long as
    /// they are there.
    pub(super) fn gone(&self, header: &v2::Header) -> Vec<Area> {
        let old = &header.metadata.digests[&self.old_digest].keyslots;
        let slots = header.metadata.keyslots.iter();
        let old = slots.filter(|(number, _)| old.contains(number));
        let areas = old.map(|(_, slot)| slot.area);
        areas.chain([self.area]).collect()
    }

    /// The JSON when all is done.
    pub(super) fn finished(&self, header: &v2::Header) -> Result<Value> {
        let old = &header.metadata.digests[&self.old_digest].keyslots;
        let mut next = header.clone();
        for slot in old.iter().chain([&self.slot]) {
            next.json = next.without_slot(*slot)?;
        }
        let mut json = next.json;
        let mut segment =
            segment_json(self.old.0, None, &self.new.encryption, self.new.sector_size);
        segment["iv_tweak"] = json!(self.new.iv_tweak.to_string());
        segment["size"] = size_json(self.old.1);
        json["segments"] = json!({ "0": segment });
        let digests = json["digests"].as_object_mut();
        let digests =
            digests.ok_or_else(|| LuksError::Malformed("the JSON has no digests".into()))?;
        digests.retain(|name, digest| {
            *name != self.old_digest.to_string()
                && (digest["keyslots"] != json!([]) || digest["segments"] != json!([]))
        });
        json["digests"][self.new_digest.to_string()]["segments"] = json!(["0"]);
        if let Some(config) = json["config"].as_object_mut() {
            config.remove("requirements");
        }
        Ok(json)
    }

    /// Whether both keys vouch for what the header says of the reencryption.
    pub(super) fn verify(
        &self,
        header: &v2::Header,
        old: &VolumeKey,
        new: &VolumeKey,
        limits: &Limits,
    ) -> Result<()> {
        let mut digests = header.metadata.digests.values();
        let digest = digests
            .find(|digest| digest.keyslots.contains(&self.slot))
            .ok_or_else(|| LuksError::Malformed("nothing vouches for the reencryption".into()))?;
        let data = Self::statement(&header.json, self.slot, old, new)?;
        let kdf = Kdf {
            salt: digest.salt.clone(),
            algorithm: KdfAlgorithm::Pbkdf2 {
                hash: Hash::of_name(&digest.hash)?.name().to_owned(),
                iterations: digest.iterations,
            },
        };
        kdf.within(limits, self.slot)?;
        let found = kdf.derive(&data, digest.digest.len())?;
        if bool::from(found.ct_eq(&digest.digest)) {
            Ok(())
        } else {
            Err(LuksError::Malformed(
                "the record of its reencryption was not written by a holder of its keys".into(),
            ))
        }
    }

    /// What the digest is of: version, keys, how it goes, and the copies of the segments; numbers big-endian.
    pub(super) fn statement(
        json: &Value,
        slot: u8,
        old: &VolumeKey,
        new: &VolumeKey,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let mut data = Zeroizing::new(b"v2".to_vec());
        data.extend_from_slice(old.expose());
        data.extend_from_slice(new.expose());
        let slot = &json["keyslots"][slot.to_string()];
        let area = &slot["area"];
        let mut fields = vec![&slot["mode"], &slot["direction"], &area["type"]];
        fields.extend([&area["offset"], &area["size"]]);
        if area["type"] == "checksum" {
            fields.extend([&area["hash"], &area["sector_size"]]);
        }
        for flag in [PREVIOUS, FINAL] {
            let mut segments = json["segments"]
                .as_object()
                .into_iter()
                .flat_map(|s| s.values());
            let segment = segments
                .find(|segment| segment["flags"][0] == flag)
                .ok_or_else(|| LuksError::Malformed(format!("no segment is {flag}")))?;
            for name in [
                "type",
                "offset",
                "size",
                "iv_tweak",
                "encryption",
                "sector_size",
            ] {
                fields.push(&segment[name]);
            }
        }
        for field in fields {
            match field {
                Value::String(text) => match text.parse::<u64>() {
                    Ok(number) => data.extend_from_slice(&number.to_be_bytes()),
                    Err(_) => data.extend_from_slice(text.as_bytes()),
                },
                // Sector sizes, below 2^32.
                other => {
                    let number = other.as_u64().unwrap_or(0) as u32;
                    data.extend_from_slice(&number.to_be_bytes());
                }
            }
        }
        Ok(data)
    }
}

/// The copy of a segment with this flag, and the digest of its key.
fn backup<'h>(header: &'h v2::Header, flag: &str) -> Result<(&'h Segment, u8)> {
    let mut segments = header.metadata.segments.iter();
    let found = segments.find(|(_, s)| s.flags.iter().any(|f| f == flag));
    let (number, segment) =
        found.ok_or_else(|| LuksError::Malformed(format!("no segment is {flag}")))?;
    let mut digests = header.metadata.digests.iter();
    let digest = digests.find(|(_, digest)| digest.segments.contains(number));
    let (digest, _) = digest
        .ok_or_else(|| LuksError::Unsupported("a reencryption from or to plain data".into()))?;
    Ok((segment, *digest))
}
