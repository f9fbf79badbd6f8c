//! What a header says, for people ([`Display`](std::fmt::Display), in the spirit of `cryptsetup luksDump`) and for
//! programs (serialized). No secrets: salts and digests are there, material and keys are not.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::kdf::KdfAlgorithm;
use super::v2::metadata::Priority;
use super::{Header, Luks};

/// What a header says.
#[derive(Debug, Clone, Serialize)]
pub struct Dump {
    /// 1 or 2.
    pub version: u16,
    /// As recorded in the header.
    pub uuid: String,
    /// LUKS2; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// LUKS2; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subsystem: String,
    /// Of the newer copy (LUKS2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
    /// Bytes of a copy of the header with its JSON (LUKS2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_size: Option<u64>,
    /// Bytes for all key slots' material (LUKS2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyslots_size: Option<u64>,
    /// How the two copies were found: `good`, or what is wrong (LUKS2).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// For activation.
    pub flags: Vec<String>,
    /// Without which the volume cannot be used.
    pub requirements: Vec<String>,
    /// Where the data is.
    pub segments: Vec<DumpSegment>,
    /// In use.
    pub keyslots: Vec<DumpSlot>,
    /// Left alone here.
    pub tokens: Vec<DumpToken>,
    /// By which keys are confirmed.
    pub digests: Vec<DumpDigest>,
}

/// A part of the data.
#[derive(Debug, Clone, Serialize)]
pub struct DumpSegment {
    /// Number.
    pub id: u8,
    /// Mostly `crypt`.
    #[serde(rename = "type")]
    pub kind: String,
    /// First byte on the data's device.
    pub offset: u64,
    /// Bytes; `None` for all there is.
    pub size: Option<u64>,
    /// Sector cipher.
    pub cipher: Option<String>,
    /// Bytes.
    pub sector_size: Option<u32>,
    /// Number of the first sector for the cipher, in units of 512 bytes.
    pub iv_tweak: Option<u64>,
    /// Of an unfinished reencryption.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

/// Bytes on the header's device.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DumpArea {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A key slot.
#[derive(Debug, Clone, Serialize)]
pub struct DumpSlot {
    /// Number.
    pub id: u8,
    /// Mostly `luks2`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bits of the key in it.
    pub key_bits: usize,
    /// `ignored`, `normal` or `preferred`.
    pub priority: &'static str,
    /// Of its material.
    pub cipher: Option<String>,
    /// `argon2id`, `argon2i` or `pbkdf2`.
    pub kdf: Option<String>,
    /// Of PBKDF2.
    pub hash: Option<String>,
    /// Of PBKDF2; Argon2's passes.
    pub iterations: Option<u32>,
    /// Of Argon2, KiB.
    pub memory_kib: Option<u32>,
    /// Of Argon2.
    pub lanes: Option<u32>,
    /// Hexadecimal.
    pub salt: Option<String>,
    /// Of the anti-forensic splitter.
    pub stripes: Option<usize>,
    /// Of the anti-forensic splitter.
    pub af_hash: Option<String>,
    /// Its material.
    pub area: DumpArea,
    /// Of the key in it.
    pub digest: Option<u8>,
}

/// A token.
#[derive(Debug, Clone, Serialize)]
pub struct DumpToken {
    /// Number.
    pub id: u8,
    /// Who it is for.
    #[serde(rename = "type")]
    pub kind: String,
    /// It says how to open these.
    pub keyslots: Vec<u8>,
}

/// By what a key is confirmed.
#[derive(Debug, Clone, Serialize)]
pub struct DumpDigest {
    /// Number.
    pub id: u8,
    /// `pbkdf2`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of PBKDF2.
    pub hash: String,
    /// Of PBKDF2.
    pub iterations: u32,
    /// Hexadecimal.
    pub salt: String,
    /// Hexadecimal.
    pub digest: String,
    /// That hold the key.
    pub keyslots: Vec<u8>,
    /// That it is the key of.
    pub segments: Vec<u8>,
}

pub(super) fn of(luks: &Luks) -> Dump {
    match &luks.header {
        Header::V1(header) => luks1(header),
        Header::V2(header) => luks2(header),
    }
}

fn luks1(header: &super::v1::Header) -> Dump {
    let slots = header.slots.iter().zip(0..).filter(|(slot, _)| slot.active);
    let keyslots: Vec<DumpSlot> = slots
        .map(|(slot, id)| {
            let (start, end) = header.material(slot);
            DumpSlot {
                id,
                kind: "luks1".into(),
                key_bits: header.key_size as usize * 8,
                priority: "normal",
                cipher: Some(header.cipher()),
                kdf: Some("pbkdf2".into()),
                hash: Some(header.hash.clone()),
                iterations: Some(slot.iterations),
                memory_kib: None,
                lanes: None,
                salt: Some(hex(&slot.salt)),
                stripes: Some(slot.stripes as usize),
                af_hash: Some(header.hash.clone()),
                area: DumpArea {
                    offset: start,
                    size: end - start,
                },
                digest: Some(0),
            }
        })
        .collect();
    Dump {
        version: 1,
        uuid: header.uuid.clone(),
        label: String::new(),
        subsystem: String::new(),
        sequence_number: None,
        metadata_size: None,
        keyslots_size: None,
        copies: Vec::new(),
        flags: Vec::new(),
        requirements: Vec::new(),
        segments: vec![DumpSegment {
            id: 0,
            kind: "crypt".into(),
            offset: header.payload_bytes(),
            size: None,
            cipher: Some(header.cipher()),
            sector_size: Some(512),
            iv_tweak: Some(0),
            flags: Vec::new(),
        }],
        digests: vec![DumpDigest {
            id: 0,
            kind: "pbkdf2".into(),
            hash: header.hash.clone(),
            iterations: header.digest_iterations,
            salt: hex(&header.digest_salt),
            digest: hex(&header.digest),
            keyslots: keyslots.iter().map(|slot| slot.id).collect(),
            segments: vec![0],
        }],
        keyslots,
        tokens: Vec::new(),
    }
}

fn luks2(header: &super::v2::Header) -> Dump {
    let (binary, metadata) = (&header.binary, &header.metadata);
    Dump {
        version: 2,
        uuid: binary.uuid.clone(),
        label: binary.label.clone(),
        subsystem: binary.subsystem.clone(),
        sequence_number: Some(binary.seqid),
        metadata_size: Some(binary.size),
        keyslots_size: Some(metadata.keyslots_size),
        copies: header.copies.iter().map(ToString::to_string).collect(),
        flags: metadata.flags.clone(),
        requirements: metadata.requirements.clone(),
        segments: metadata
            .segments
            .iter()
            .map(|(id, segment)| DumpSegment {
                id: *id,
                kind: segment.kind.clone(),
                offset: segment.offset,
                size: segment.size,
                cipher: segment.crypt.as_ref().map(|c| c.encryption.clone()),
                sector_size: segment.crypt.as_ref().map(|c| c.sector_size),
                iv_tweak: segment.crypt.as_ref().map(|c| c.iv_tweak),
                flags: segment.flags.clone(),
            })
            .collect(),
        keyslots: metadata
            .keyslots
            .iter()
            .map(|(id, slot)| luks2_slot(metadata, *id, slot))
            .collect(),
        tokens: metadata
            .tokens
            .iter()
            .map(|(id, token)| DumpToken {
                id: *id,
                kind: token.kind.clone(),
                keyslots: token.keyslots.clone(),
            })
            .collect(),
        digests: metadata
            .digests
            .iter()
            .map(|(id, digest)| DumpDigest {
                id: *id,
                kind: digest.kind.clone(),
                hash: digest.hash.clone(),
                iterations: digest.iterations,
                salt: hex(&digest.salt),
                digest: hex(&digest.digest),
                keyslots: digest.keyslots.clone(),
                segments: digest.segments.clone(),
            })
            .collect(),
    }
}

fn luks2_slot(
    metadata: &super::v2::metadata::Metadata,
    id: u8,
    slot: &super::v2::metadata::Keyslot,
) -> DumpSlot {
    let opening = slot.luks2.as_ref();
    let (mut kdf, mut hash, mut count, mut memory, mut threads) = (None, None, None, None, None);
    match opening.map(|opening| &opening.kdf.algorithm) {
        None => {}
        Some(KdfAlgorithm::Pbkdf2 {
            hash: name,
            iterations,
        }) => {
            (kdf, hash, count) = (Some("pbkdf2".into()), Some(name.clone()), Some(*iterations));
        }
        Some(KdfAlgorithm::Argon2 {
            i,
            memory_kib,
            passes,
            lanes,
        }) => {
            kdf = Some(if *i { "argon2i" } else { "argon2id" }.into());
            (count, memory, threads) = (Some(*passes), Some(*memory_kib), Some(*lanes));
        }
    }
    let mut digests = metadata.digests.iter();
    DumpSlot {
        id,
        kind: slot.kind.clone(),
        key_bits: slot.key_size * 8,
        priority: match slot.priority {
            Priority::Ignore => "ignored",
            Priority::Normal => "normal",
            Priority::Prefer => "preferred",
        },
        cipher: opening.map(|o| o.encryption.clone()),
        kdf,
        hash,
        iterations: count,
        memory_kib: memory,
        lanes: threads,
        salt: opening.map(|o| hex(&o.kdf.salt)),
        stripes: opening.map(|o| o.stripes),
        af_hash: opening.map(|o| o.af_hash.clone()),
        area: DumpArea {
            offset: slot.area.offset,
            size: slot.area.size,
        },
        digest: digests
            .find(|(_, d)| d.keyslots.contains(&id))
            .map(|(n, _)| *n),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "LUKS{} volume {}", self.version, self.uuid)?;
        let line = |f: &mut fmt::Formatter<'_>, what: &str, value: &str| {
            if value.is_empty() {
                Ok(())
            } else {
                writeln!(f, "  {what:<14}{value}")
            }
        };
        line(f, "label", &self.label)?;
        line(f, "subsystem", &self.subsystem)?;
        if let Some(number) = self.sequence_number {
            line(f, "sequence", &number.to_string())?;
        }
        if let (Some(metadata), Some(keyslots)) = (self.metadata_size, self.keyslots_size) {
            line(
                f,
                "header",
                &format!("2 copies of {metadata} bytes, {keyslots} bytes for key slots"),
            )?;
        }
        if self.copies.iter().any(|copy| copy != "good") {
            for (place, copy) in ["first copy", "second copy"].iter().zip(&self.copies) {
                line(f, place, copy)?;
            }
        }
        line(f, "flags", &self.flags.join(", "))?;
        line(f, "requires", &self.requirements.join(", "))?;
        writeln!(f, "data")?;
        for segment in &self.segments {
            let size = match segment.size {
                None => "to the end of the device".into(),
                Some(size) => format!("{size} bytes"),
            };
            write!(
                f,
                "  {}: {} from byte {}, {size}",
                segment.id, segment.kind, segment.offset
            )?;
            if let (Some(cipher), Some(sector)) = (&segment.cipher, segment.sector_size) {
                write!(f, ", {cipher}, sectors of {sector} bytes")?;
            }
            if let Some(tweak) = segment.iv_tweak.filter(|tweak| *tweak != 0) {
                write!(f, ", numbered from {tweak}")?;
            }
            if !segment.flags.is_empty() {
                write!(f, " ({})", segment.flags.join(", "))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "key slots")?;
        for slot in &self.keyslots {
            slot.line(f)?;
        }
        if !self.tokens.is_empty() {
            writeln!(f, "tokens")?;
        }
        for token in &self.tokens {
            writeln!(
                f,
                "  {}: {} for key slots {:?}",
                token.id, token.kind, token.keyslots
            )?;
        }
        writeln!(f, "digests")?;
        for digest in &self.digests {
            writeln!(
                f,
                "  {}: {} with {}, {} iterations, of key slots {:?} and segments {:?}",
                digest.id,
                digest.kind,
                digest.hash,
                digest.iterations,
                digest.keyslots,
                digest.segments
            )?;
        }
        Ok(())
    }
}

impl DumpSlot {
    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {}: {}, key of {} bits",
            self.id, self.kind, self.key_bits
        )?;
        if self.priority != "normal" {
            write!(f, ", {}", self.priority)?;
        }
        if let (Some(kdf), Some(count)) = (&self.kdf, self.iterations) {
            match (&self.hash, self.memory_kib, self.lanes) {
                (_, Some(memory), Some(lanes)) => {
                    write!(
                        f,
                        ", {kdf} with {memory} KiB, {count} passes, {lanes} lanes"
                    )?;
                }
                (Some(hash), ..) => write!(f, ", {kdf} with {hash}, {count} iterations")?,
                _ => {}
            }
        }
        if let Some(cipher) = &self.cipher {
            write!(f, ", {cipher}")?;
        }
        if self.digest.is_none() {
            write!(f, ", of no digest")?;
        }
        writeln!(
            f,
            ", at byte {} ({} bytes)",
            self.area.offset, self.area.size
        )
    }
}
