//! A new volume.
//!
//! The contents of the device are discarded. First every trace of an older header goes, then the place for key slots is
//! overwritten with noise, then the first slot's material is written, and the header last, each durable before the next:
//! a loss of power leaves no volume, or a whole one.

use std::sync::Arc;

use device::Device;
use serde_json::json;
use zeroize::Zeroizing;

use super::error::{LuksError, Result, io};
use super::hash::Hash;
use super::kdf::{self, DIGEST_ITERATIONS, Kdf, KdfAlgorithm, KdfOptions, SALT_LEN};
use super::material::{self, Holding, STRIPES};
use super::v1;
use super::v2::binary::{self, Binary, SIZES};
use super::v2::edit::{NewSlot, area_size, digest_json, segment_json};
use super::v2::metadata::Area;
use super::{Header, Luks, VolumeKey, v2};
use crate::sector::SectorCipher;

/// Of the two versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// For what cannot read LUKS2: older boot loaders, qemu.
    Luks1,
    /// Everything else.
    Luks2,
}

/// How a new volume shall be.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Version of the format.
    pub version: Version,
    /// As dm-crypt names it.
    pub cipher: String,
    /// Bytes of the volume's key; of the two halves together for XTS.
    pub key_len: usize,
    /// Bytes of a sector, 512 to 4096; `None` for 4096 where the data's length is a multiple of that, 512 elsewhere.
    /// LUKS1 has 512 only.
    pub sector_size: Option<u32>,
    /// For the first key slot; `None` for the version's default.
    pub kdf: Option<KdfOptions>,
    /// Of LUKS1, for all its slots and the splitter. LUKS2 takes SHA-256 for the splitter.
    pub hash: Hash,
    /// At most 47 bytes; LUKS2 only.
    pub label: String,
    /// At most 47 bytes; LUKS2 only.
    pub subsystem: String,
    /// `None` for a random one.
    pub uuid: Option<String>,
    /// Where the data begins on its device, bytes, a multiple of 4096; `None` for 16 MiB with LUKS2, 2 MiB with LUKS1, 0 where the
    /// header is on another device.
    pub data_offset: Option<u64>,
    /// Bytes for the key slots' material (LUKS2), a multiple of 4096; `None` for what the default offset of the data leaves.
    pub keyslots_size: Option<u64>,
    /// A volume key that was kept, to re-create the header of data that is still there; `None` for a random key.
    pub volume_key: Option<Zeroizing<Vec<u8>>>,
}

impl Default for FormatOptions {
    /// LUKS2, aes-xts-plain64 with 512 bits, Argon2id.
    fn default() -> Self {
        Self {
            version: Version::Luks2,
            cipher: "aes-xts-plain64".into(),
            key_len: 64,
            sector_size: None,
            kdf: None,
            hash: Hash::Sha256,
            label: String::new(),
            subsystem: String::new(),
            uuid: None,
            data_offset: None,
            keyslots_size: None,
            volume_key: None,
        }
    }
}

const MIB: u64 = 1 << 20;
/// Of a header made here: cryptsetup's default.
const COPY_SIZE: u64 = SIZES[0];
/// Where the data begins if nobody says otherwise.
const LUKS2_DATA_OFFSET: u64 = 16 * MIB;
const LUKS1_DATA_OFFSET: u64 = 2 * MIB;

/// Makes a volume: its header on `device`, its data on `data`, or behind the header where that is `None`. All that either
/// held is lost. The data's sectors are left as they are; they read as noise until they are written.
///
/// # Errors
/// [`LuksError::Option`] and [`LuksError::TooSmall`] before anything is written.
pub fn format(
    device: Arc<dyn Device>,
    data: Option<&dyn Device>,
    options: &FormatOptions,
    passphrase: &[u8],
) -> Result<Luks> {
    let uuid = match &options.uuid {
        None => uuid::Builder::from_random_bytes(kdf::random()?).into_uuid(),
        Some(text) => {
            uuid::Uuid::try_parse(text).map_err(|e| LuksError::Option(format!("no UUID: {e}")))?
        }
    }
    .to_string();
    let key = match &options.volume_key {
        Some(key) if key.len() == options.key_len => key.clone(),
        Some(key) => {
            return Err(LuksError::Option(format!(
                "the volume's key has {} bytes, and {} are asked for",
                key.len(),
                options.key_len
            )));
        }
        None => {
            let mut key = Zeroizing::new(vec![0; options.key_len]);
            getrandom::fill(&mut key).map_err(|e| LuksError::Derivation(e.to_string()))?;
            key
        }
    };
    let kdf = options
        .kdf
        .clone()
        .unwrap_or_else(|| match options.version {
            Version::Luks1 => KdfOptions::PBKDF2,
            Version::Luks2 => KdfOptions::argon2id(),
        });
    kdf.check()?;
    let new = New {
        detached: data.is_some(),
        data_len: data.map_or(device.len(), Device::len),
        device,
        options,
        key,
        kdf,
        uuid,
        passphrase,
    };
    match options.version {
        Version::Luks2 => new.luks2(),
        Version::Luks1 => new.luks1(),
    }
}

/// A volume to be made, with all that its options left open settled.
struct New<'a> {
    /// Where the header goes.
    device: Arc<dyn Device>,
    /// The data is on another device.
    detached: bool,
    /// Bytes of the device with the data.
    data_len: u64,
    options: &'a FormatOptions,
    /// Of the length that the options ask for.
    key: Zeroizing<Vec<u8>>,
    /// Of the first slot.
    kdf: KdfOptions,
    uuid: String,
    passphrase: &'a [u8],
}

/// The bytes of the data, if there are any.
fn room(offset: u64, len: u64) -> Result<u64> {
    match len.checked_sub(offset) {
        Some(rest) if rest >= v1::SECTOR => Ok(rest),
        _ => Err(LuksError::TooSmall {
            what: "a header and a sector of data",
            have: len,
            need: offset.saturating_add(v1::SECTOR),
        }),
    }
}

fn check_header_room(device: &dyn Device, region: u64, data_offset: Option<u64>) -> Result<()> {
    if data_offset.is_some_and(|offset| offset < region) {
        return Err(LuksError::Option(format!(
            "the data would begin within the header, which takes {region} bytes"
        )));
    }
    if device.len() < region {
        return Err(LuksError::TooSmall {
            what: "the header",
            have: device.len(),
            need: region,
        });
    }
    Ok(())
}

/// Erases everything that could be read as a header: the first block, and each place of a second copy within `region`.
fn erase_older(device: &dyn Device, region: u64) -> Result<()> {
    let zeros = [0; binary::LEN];
    for offset in std::iter::once(0).chain(SIZES) {
        let end = offset + zeros.len() as u64;
        if end <= region {
            device
                .write_at(&zeros, offset)
                .map_err(io("erasing an older header"))?;
        }
    }
    device
        .flush()
        .map_err(io("making the erasure of an older header durable"))
}

pub(super) fn digest_of(hash: Hash, key: &[u8], salt: &[u8], len: usize) -> Result<Vec<u8>> {
    let kdf = Kdf {
        salt: salt.to_vec(),
        algorithm: KdfAlgorithm::Pbkdf2 {
            hash: hash.name().to_owned(),
            iterations: DIGEST_ITERATIONS,
        },
    };
    Ok(kdf.derive(key, len)?.to_vec())
}

impl New<'_> {
    fn luks2(self) -> Result<Luks> {
        let Self {
            device,
            detached,
            data_len,
            options,
            key,
            kdf,
            uuid,
            passphrase,
        } = self;
        binary::check_text("label", &options.label, 48)?;
        binary::check_text("subsystem", &options.subsystem, 48)?;
        let default_offset = if detached { 0 } else { LUKS2_DATA_OFFSET };
        let offset = options.data_offset.unwrap_or(default_offset);
        if !offset.is_multiple_of(4096) {
            return Err(LuksError::Option(format!(
                "the data must begin at a multiple of 4096 bytes, not at {offset}"
            )));
        }
        let keyslots_size = options.keyslots_size.unwrap_or_else(|| {
            let until = if detached { LUKS2_DATA_OFFSET } else { offset };
            until.min(LUKS2_DATA_OFFSET).saturating_sub(2 * COPY_SIZE)
        });
        let region = 2 * COPY_SIZE + keyslots_size;
        let rest = room(offset, data_len)?;
        let sector_size = options
            .sector_size
            .unwrap_or(if rest % 4096 == 0 { 4096 } else { 512 });
        if rest < u64::from(sector_size) {
            room(offset + u64::from(sector_size) - v1::SECTOR, data_len)?;
        }
        check_header_room(&*device, region, (!detached).then_some(offset))?;
        // Whether the cipher takes this key and these sectors shows here, before anything is written.
        SectorCipher::new(&options.cipher, &key, sector_size as usize)?;

        let slot_kdf = kdf.with_salt()?;
        let digest_salt = kdf::random::<SALT_LEN>()?;
        let digest = digest_of(Hash::Sha256, &key, &digest_salt, 32)?;
        let mut holding = Holding {
            offset: 2 * COPY_SIZE,
            key_size: key.len(),
            stripes: STRIPES,
            af_hash: "sha256",
            encryption: &options.cipher,
            area_key_size: key.len(),
            kdf: &slot_kdf,
        };
        let area = Area {
            offset: holding.offset,
            size: area_size(holding.material_len()),
        };
        holding.offset = area.offset;
        if area.size > keyslots_size {
            let until = area.offset + area.size;
            return Err(LuksError::Option(format!(
                "a key slot takes {} bytes, and there are {keyslots_size} before the data, which must begin at byte {until} or later",
                area.size
            )));
        }
        let slot = NewSlot {
            key_size: key.len(),
            encryption: holding.encryption,
            area_key_size: key.len(),
            area,
            kdf: &slot_kdf,
            af_hash: holding.af_hash,
            stripes: STRIPES,
        };
        let json = json!({
            "keyslots": { "0": slot.to_json() },
            "tokens": {},
            "segments": { "0": segment_json(offset, None, &options.cipher, sector_size) },
            "digests": { "0": digest_json(&[0], &[0], &digest_salt, &digest, DIGEST_ITERATIONS) },
            "config": {
                "json_size": (COPY_SIZE - binary::LEN as u64).to_string(),
                "keyslots_size": keyslots_size.to_string(),
            },
        });
        let binary = Binary {
            size: COPY_SIZE,
            seqid: 0,
            label: options.label.clone(),
            subsystem: options.subsystem.clone(),
            uuid,
            checksum: Hash::Sha256,
            salt: kdf::random()?,
        };
        // Parsed, so that options that make no sense together (a place too small for a slot) show before anything is written.
        let mut header = v2::Header::new(binary, json.clone())?;
        header.encode()?;

        erase_older(&*device, region)?;
        material::wipe(&*device, 2 * COPY_SIZE, keyslots_size)?;
        holding.write(&*device, &key, passphrase)?;
        header.write(&*device, json)?;
        Ok(Luks {
            device,
            header: Header::V2(Box::new(header)),
        })
    }

    fn luks1(self) -> Result<Luks> {
        let Self {
            device,
            detached,
            data_len,
            options,
            key,
            kdf,
            uuid,
            passphrase,
        } = self;
        let refuse = |text: &str| Err(LuksError::Option(text.into()));
        if options
            .sector_size
            .is_some_and(|size| u64::from(size) != v1::SECTOR)
        {
            return refuse("LUKS1 has sectors of 512 bytes only");
        }
        if !options.label.is_empty() || !options.subsystem.is_empty() {
            return refuse("LUKS1 has no label");
        }
        let Some((name, mode)) = options.cipher.split_once('-') else {
            return refuse("a cipher is named as dm-crypt does, like aes-xts-plain64");
        };
        binary::check_text("cipher's name", name, 32)?;
        binary::check_text("cipher's mode", mode, 32)?;
        let default_offset = if detached { 0 } else { LUKS1_DATA_OFFSET };
        let offset = options.data_offset.unwrap_or(default_offset);
        let payload = u32::try_from(offset / v1::SECTOR);
        let (Ok(payload), 0) = (payload, offset % 4096) else {
            return refuse("the data must begin at a multiple of 4096 bytes below 2 TiB");
        };
        room(offset, data_len)?;
        SectorCipher::new(&options.cipher, &key, 512)?;

        let step = ((key.len() * STRIPES) as u64).next_multiple_of(v1::MATERIAL_ALIGN);
        let digest_salt = kdf::random()?;
        let digest = digest_of(options.hash, &key, &digest_salt, 20)?;
        let mut header = v1::Header {
            cipher_name: name.to_owned(),
            cipher_mode: mode.to_owned(),
            hash: options.hash.name().to_owned(),
            payload,
            key_size: options.key_len as u32,
            digest: std::array::from_fn(|at| digest[at]),
            digest_salt,
            digest_iterations: DIGEST_ITERATIONS,
            uuid,
            slots: std::array::from_fn(|slot| v1::Slot {
                active: false,
                iterations: 0,
                salt: [0; 32],
                // Below 8 times 2 MiB.
                material: ((v1::MATERIAL_ALIGN + slot as u64 * step) / v1::SECTOR) as u32,
                stripes: STRIPES as u32,
            }),
        };
        let region = header.whole_region().next_multiple_of(4096);
        check_header_room(&*device, region, (!detached).then_some(offset))?;
        let key = VolumeKey { bytes: key, digest };
        if !matches!(kdf, KdfOptions::Pbkdf2 { .. }) {
            return refuse("LUKS1 knows PBKDF2 only");
        }

        erase_older(&*device, region)?;
        material::wipe(&*device, v1::MATERIAL_ALIGN, region - v1::MATERIAL_ALIGN)?;
        let mut next = header.clone();
        next.fill_slot(&*device, 0, &key, passphrase, &kdf)?;
        header.write(&*device, next)?;
        Ok(Luks {
            device,
            header: Header::V1(Box::new(header)),
        })
    }
}
