//! What a LUKS2 header's JSON means (specification, chapter 3), checked: who holds a [`Metadata`] need not look at
//! bounds again.
//!
//! 1. Areas of key slots are within the key-slot area and do not overlap; a key fits its area.
//! 2. Every reference from a digest leads to something.
//! 3. Segments that are in use follow each other from 0, and do not overlap on the device.
//! 4. Unknown kinds of things (key slots, tokens, requirements, flags) are kept by name, to be refused or left alone.

use std::collections::BTreeMap;

use serde_json::Value;

use super::node::Node;
use crate::luks::error::{LuksError, Result};
use crate::luks::kdf::{Kdf, KdfAlgorithm};

/// Most bytes of a key; what cryptsetup allows.
const KEY_LEN_MAX: u32 = 512;
/// Most bytes of the key-slot area; what cryptsetup allows.
const KEYSLOTS_LEN_MAX: u64 = 128 << 20;

#[derive(Debug, Clone)]
pub(in crate::luks) struct Metadata {
    pub(in crate::luks) keyslots: BTreeMap<u8, Keyslot>,
    pub(in crate::luks) segments: BTreeMap<u8, Segment>,
    pub(in crate::luks) digests: BTreeMap<u8, Digest>,
    pub(in crate::luks) tokens: BTreeMap<u8, Token>,
    pub(in crate::luks) flags: Vec<String>,
    pub(in crate::luks) requirements: Vec<String>,
    /// Bytes for all areas of key slots, behind the two copies of the header.
    pub(in crate::luks) keyslots_size: u64,
}

/// In which order slots are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::luks) enum Priority {
    /// Only when it is named.
    Ignore,
    Normal,
    Prefer,
}

#[derive(Debug, Clone)]
pub(in crate::luks) struct Keyslot {
    pub(in crate::luks) kind: String,
    pub(in crate::luks) key_size: usize,
    pub(in crate::luks) priority: Priority,
    pub(in crate::luks) area: Area,
    /// `None` for a kind other than `luks2`.
    pub(in crate::luks) luks2: Option<Opening>,
}

/// Bytes on the header's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::luks) struct Area {
    pub(in crate::luks) offset: u64,
    pub(in crate::luks) size: u64,
}

/// How a slot of the kind `luks2` yields its key.
#[derive(Debug, Clone)]
pub(in crate::luks) struct Opening {
    pub(in crate::luks) encryption: String,
    pub(in crate::luks) area_key_size: usize,
    pub(in crate::luks) kdf: Kdf,
    pub(in crate::luks) af_hash: String,
    pub(in crate::luks) stripes: usize,
}

#[derive(Debug, Clone)]
pub(in crate::luks) struct Segment {
    pub(in crate::luks) kind: String,
    /// On the device of the data, bytes.
    pub(in crate::luks) offset: u64,
    /// Bytes; `None` for all there is.
    pub(in crate::luks) size: Option<u64>,
    pub(in crate::luks) flags: Vec<String>,
    /// `None` for a kind other than `crypt`.
    pub(in crate::luks) crypt: Option<Crypt>,
}

#[derive(Debug, Clone)]
pub(in crate::luks) struct Crypt {
    pub(in crate::luks) encryption: String,
    /// In units of 512 bytes.
    pub(in crate::luks) iv_tweak: u64,
    /// Bytes: 512, 1024, 2048 or 4096.
    pub(in crate::luks) sector_size: u32,
    /// The kind of integrity protection, where there is one.
    pub(in crate::luks) integrity: Option<String>,
}

#[derive(Debug, Clone)]
pub(in crate::luks) struct Digest {
    pub(in crate::luks) kind: String,
    pub(in crate::luks) keyslots: Vec<u8>,
    pub(in crate::luks) segments: Vec<u8>,
    pub(in crate::luks) salt: Vec<u8>,
    pub(in crate::luks) digest: Vec<u8>,
    pub(in crate::luks) hash: String,
    pub(in crate::luks) iterations: u32,
}

#[derive(Debug, Clone)]
pub(in crate::luks) struct Token {
    pub(in crate::luks) kind: String,
    pub(in crate::luks) keyslots: Vec<u8>,
}

impl Metadata {
    /// `size` is that of a copy of the header, in bytes.
    pub(in crate::luks) fn parse(json: &Value, size: u64) -> Result<Self> {
        let root = Node::root(json);
        let config = root.get("config")?;
        let json_size = config.get("json_size")?;
        if json_size.u64()? != size - super::binary::LEN as u64 {
            return Err(json_size.bad("is not the length of the JSON area"));
        }
        let keyslots_size = config.get("keyslots_size")?;
        let len = keyslots_size.u64()?;
        if len > KEYSLOTS_LEN_MAX || len % 4096 != 0 {
            return Err(keyslots_size.bad("is above 128 MiB or not a multiple of 4096"));
        }
        let names = |node: Option<Node<'_>>| -> Result<Vec<String>> {
            match node {
                None => Ok(Vec::new()),
                Some(node) => Ok(node.strings()?.into_iter().map(printable).collect()),
            }
        };
        let requirements = match config.maybe("requirements")? {
            None => Vec::new(),
            Some(node) => names(node.maybe("mandatory")?)?,
        };
        let metadata = Self {
            keyslots: each(&root.get("keyslots")?, keyslot)?,
            segments: each(&root.get("segments")?, segment)?,
            digests: each(&root.get("digests")?, digest)?,
            tokens: each(&root.get("tokens")?, token)?,
            flags: names(config.maybe("flags")?)?,
            requirements,
            keyslots_size: len,
        };
        metadata.check_areas(size)?;
        metadata.check_references()?;
        metadata.check_segments()?;
        Ok(metadata)
    }

    fn check_areas(&self, size: u64) -> Result<()> {
        let start = 2 * size;
        let end = start + self.keyslots_size;
        let mut areas: Vec<(u8, Area)> = self.keyslots.iter().map(|(n, k)| (*n, k.area)).collect();
        areas.sort_by_key(|(_, area)| area.offset);
        let mut before: Option<(u8, u64)> = None;
        for (slot, Area { offset, size }) in areas {
            let after = offset.checked_add(size).filter(|after| *after <= end);
            let Some(after) = after.filter(|_| offset >= start) else {
                return malformed(format!(
                    "key slot {slot} has its area outside of the place for these ({start} to {end})"
                ));
            };
            if let Some((other, until)) = before
                && offset < until
            {
                return malformed(format!("the areas of key slots {other} and {slot} overlap"));
            }
            before = Some((slot, after));
        }
        Ok(())
    }

    fn check_references(&self) -> Result<()> {
        for (number, digest) in &self.digests {
            for slot in &digest.keyslots {
                if !self.keyslots.contains_key(slot) {
                    return malformed(format!(
                        "digest {number} is for key slot {slot}, which is not there"
                    ));
                }
            }
            for segment in &digest.segments {
                if !self.segments.contains_key(segment) {
                    return malformed(format!(
                        "digest {number} is for segment {segment}, which is not there"
                    ));
                }
            }
        }
        for (number, token) in &self.tokens {
            if let Some(slot) = token
                .keyslots
                .iter()
                .find(|s| !self.keyslots.contains_key(s))
            {
                return malformed(format!(
                    "token {number} is for key slot {slot}, which is not there"
                ));
            }
        }
        Ok(())
    }

    fn check_segments(&self) -> Result<()> {
        let in_use: Vec<(&u8, &Segment)> = self
            .segments
            .iter()
            .filter(|(_, s)| !s.is_backup())
            .collect();
        for (place, (number, segment)) in in_use.iter().enumerate() {
            if usize::from(**number) != place {
                return malformed(format!("there is a segment {number} and none before it"));
            }
            let last = place + 1 == in_use.len();
            if segment.size.is_none() && !last {
                return malformed(format!(
                    "segment {number} is as long as the device, and another follows"
                ));
            }
        }
        let mut ranges: Vec<(u64, u64, u8)> = Vec::new();
        for (number, segment) in &in_use {
            let end = match segment.size {
                None => u64::MAX,
                Some(size) => segment.offset.checked_add(size).ok_or_else(|| {
                    LuksError::Malformed(format!("segment {number} ends behind all numbers"))
                })?,
            };
            if let Some((.., other)) = ranges
                .iter()
                .find(|(start, until, _)| segment.offset < *until && *start < end)
            {
                return malformed(format!("segments {other} and {number} overlap"));
            }
            ranges.push((segment.offset, end, **number));
        }
        Ok(())
    }
}

impl Segment {
    /// Kept only for a reencryption that was not finished.
    pub(in crate::luks) fn is_backup(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("backup-"))
    }
}

fn malformed<T>(what: String) -> Result<T> {
    Err(LuksError::Malformed(what))
}

/// A stranger's name, short and without what drives a terminal.
fn printable(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}

fn each<'v, T>(node: &Node<'v>, parse: impl Fn(&Node<'v>) -> Result<T>) -> Result<BTreeMap<u8, T>> {
    let entries = node.numbered()?;
    entries
        .into_iter()
        .map(|(number, node)| Ok((number, parse(&node)?)))
        .collect()
}

fn keyslot(node: &Node<'_>) -> Result<Keyslot> {
    let kind = printable(node.get("type")?.str()?);
    let key_size = node.get("key_size")?.within(1..=KEY_LEN_MAX)? as usize;
    let priority = match node.maybe("priority")? {
        None => Priority::Normal,
        Some(priority) => match priority.u32()? {
            0 => Priority::Ignore,
            1 => Priority::Normal,
            2 => Priority::Prefer,
            _ => return Err(priority.bad("is not 0, 1 or 2")),
        },
    };
    let place = node.get("area")?;
    let area = Area {
        offset: place.get("offset")?.u64()?,
        size: place.get("size")?.u64()?,
    };
    let luks2 = if kind == "luks2" {
        Some(opening(node, &place, key_size, area)?)
    } else {
        None
    };
    Ok(Keyslot {
        kind,
        key_size,
        priority,
        area,
        luks2,
    })
}

fn opening(node: &Node<'_>, place: &Node<'_>, key_size: usize, area: Area) -> Result<Opening> {
    if place.get("type")?.str()? != "raw" {
        return Err(place.bad("is of no known type"));
    }
    let af = node.get("af")?;
    if af.get("type")?.str()? != "luks1" {
        return Err(af.bad("is of no known type"));
    }
    let stripes = af.get("stripes")?;
    let count = stripes.within(1..=u32::MAX)?;
    // Both below 2^32.
    if (key_size as u64 * u64::from(count)).next_multiple_of(512) > area.size {
        return Err(stripes.bad("are more than the slot's area holds"));
    }
    let kdf = node.get("kdf")?;
    let salt = kdf.get("salt")?.base64()?;
    let kind = kdf.get("type")?.str()?;
    let algorithm = match kind {
        "pbkdf2" => KdfAlgorithm::Pbkdf2 {
            hash: printable(kdf.get("hash")?.str()?),
            iterations: kdf.get("iterations")?.within(1..=u32::MAX)?,
        },
        "argon2i" | "argon2id" => KdfAlgorithm::Argon2 {
            i: kind == "argon2i",
            memory_kib: kdf.get("memory")?.within(1..=u32::MAX)?,
            passes: kdf.get("time")?.within(1..=u32::MAX)?,
            lanes: kdf.get("cpus")?.within(1..=(1 << 24) - 1)?,
        },
        _ => return Err(kdf.bad("is of no known type")),
    };
    Ok(Opening {
        encryption: printable(place.get("encryption")?.str()?),
        area_key_size: place.get("key_size")?.within(1..=KEY_LEN_MAX)? as usize,
        kdf: Kdf { salt, algorithm },
        af_hash: printable(af.get("hash")?.str()?),
        stripes: count as usize,
    })
}

fn segment(node: &Node<'_>) -> Result<Segment> {
    let kind = printable(node.get("type")?.str()?);
    let offset = node.get("offset")?;
    let size = node.get("size")?;
    let parsed = match size.str()? {
        "dynamic" => None,
        _ => Some(size.u64()?),
    };
    let flags = match node.maybe("flags")? {
        None => Vec::new(),
        Some(flags) => flags.strings()?.into_iter().map(printable).collect(),
    };
    let crypt = if kind == "crypt" {
        Some(crypt(node)?)
    } else {
        None
    };
    let sector: u64 = crypt.as_ref().map_or(512, |c| c.sector_size).into();
    if offset.u64()? % 512 != 0 {
        return Err(offset.bad("is not a multiple of 512"));
    }
    if parsed.is_some_and(|size: u64| !size.is_multiple_of(sector) || size == 0) {
        return Err(size.bad("is not a multiple of the sector size, or nothing"));
    }
    Ok(Segment {
        kind,
        offset: offset.u64()?,
        size: parsed,
        flags,
        crypt,
    })
}

fn crypt(node: &Node<'_>) -> Result<Crypt> {
    let sector_size = node.get("sector_size")?;
    let size = sector_size.u32()?;
    if ![512, 1024, 2048, 4096].contains(&size) {
        return Err(sector_size.bad("is not 512, 1024, 2048 or 4096"));
    }
    let integrity = match node.maybe("integrity")? {
        None => None,
        Some(integrity) => Some(printable(integrity.get("type")?.str()?)),
    };
    Ok(Crypt {
        encryption: printable(node.get("encryption")?.str()?),
        iv_tweak: node.get("iv_tweak")?.u64()?,
        sector_size: size,
        integrity,
    })
}

fn digest(node: &Node<'_>) -> Result<Digest> {
    let kind = printable(node.get("type")?.str()?);
    if kind != "pbkdf2" {
        return Err(node.bad("is of no known type"));
    }
    let digest = node.get("digest")?;
    let bytes = digest.base64()?;
    // The shortest is LUKS1's; one of no length would be the digest of every key.
    if !(20..=512).contains(&bytes.len()) {
        return Err(digest.bad("has not 20 to 512 bytes"));
    }
    Ok(Digest {
        kind,
        keyslots: node.get("keyslots")?.numbers()?,
        segments: node.get("segments")?.numbers()?,
        salt: node.get("salt")?.base64()?,
        digest: bytes,
        hash: printable(node.get("hash")?.str()?),
        iterations: node.get("iterations")?.within(1..=u32::MAX)?,
    })
}

fn token(node: &Node<'_>) -> Result<Token> {
    Ok(Token {
        kind: printable(node.get("type")?.str()?),
        keyslots: node.get("keyslots")?.numbers()?,
    })
}
