//! LUKS volumes, versions 1 and 2 (on-disk format specifications 1.2.3 and 1.1.4): read, unlock, open.
//!
//! 1. Every field of a header is checked before use; costs of key derivation are bounded by [`Limits`].
//! 2. A [`VolumeKey`] exists only after a volume's digest has confirmed it, and serves that volume only.
//! 3. A header may be on another device than the data ("detached").
//! 4. Whatever changes a header leaves, when the power is lost between any two writes, the old state or the new one; see
//!    `v2` for the header, `keys` for key slots.
//!
//! It deliberately does not know device-mapper, tokens (they are kept and shown), integrity protection and hardware
//! encryption (refused by name).

mod af;
mod backup;
mod dump;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod kdf;
mod keys;
mod material;
mod reencrypt;
mod run;
mod settings;
mod v1;
mod v2;

use std::fmt;
use std::sync::Arc;

use device::Device;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use backup::{RestoreRefusal, backup_header, read_backup, restore_header};
pub use dump::{Dump, DumpArea, DumpDigest, DumpSegment, DumpSlot, DumpToken};
use error::io;
pub use error::{LuksError, Result};
pub use format::{FormatOptions, Version, format};
pub use hash::Hash;
pub use kdf::{KdfOptions, Limits};
pub use reencrypt::{Progress, ReencryptOptions};
pub use v2::CopyState;

use crate::crypt::{CryptDevice, CryptOptions, Extent};
use crate::sector::SectorCipher;
use hash::Hash as KnownHash;
use kdf::{Kdf, KdfAlgorithm};
use material::Holding;
use v2::metadata::{Crypt, Digest, Priority, Segment};

/// The header of a LUKS volume, on its device.
#[derive(Debug)]
pub struct Luks {
    device: Arc<dyn Device>,
    header: Header,
}

#[derive(Debug, Clone)]
enum Header {
    V1(Box<v1::Header>),
    V2(Box<v2::Header>),
}

/// The key of a volume's data, confirmed by the volume's digest.
#[derive(Clone)]
pub struct VolumeKey {
    bytes: Zeroizing<Vec<u8>>,
    /// What confirmed it.
    digest: Vec<u8>,
}

impl VolumeKey {
    /// The key itself: anyone with it can read the volume, even after the passphrases change.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VolumeKey(..)")
    }
}

/// What confirms a volume's key.
struct Confirmation {
    hash: KnownHash,
    iterations: u32,
    salt: Vec<u8>,
    digest: Vec<u8>,
}

impl Confirmation {
    fn of(key: &Digest) -> Result<Self> {
        Ok(Self {
            hash: KnownHash::of_name(&key.hash)?,
            iterations: key.iterations,
            salt: key.salt.clone(),
            digest: key.digest.clone(),
        })
    }

    fn confirm(&self, key: Zeroizing<Vec<u8>>) -> Result<Option<VolumeKey>> {
        let kdf = Kdf {
            salt: self.salt.clone(),
            algorithm: KdfAlgorithm::Pbkdf2 {
                hash: self.hash.name().to_owned(),
                iterations: self.iterations,
            },
        };
        let found = kdf.derive(&key, self.digest.len())?;
        Ok(bool::from(found.ct_eq(&self.digest)).then(|| VolumeKey {
            bytes: key,
            digest: self.digest.clone(),
        }))
    }

    fn within(&self, limits: &Limits) -> Result<()> {
        if self.iterations > limits.iterations {
            return Err(LuksError::Malformed(format!(
                "the volume key's digest wants {} iterations, above the limit of {}",
                self.iterations, limits.iterations
            )));
        }
        Ok(())
    }
}

impl Luks {
    /// Reads the header at the start of a device, of either version. Nothing is written, and no secret is needed.
    ///
    /// # Errors
    /// [`LuksError::NotLuks`] where there is no trace of one; the others where there is, and it cannot be used.
    pub fn read(device: Arc<dyn Device>) -> Result<Self> {
        let header = match v1::Header::read(&*device) {
            Ok(header) => Header::V1(Box::new(header)),
            Err(LuksError::NotLuks | LuksError::Version(2)) => {
                Header::V2(Box::new(v2::Header::read(&*device)?))
            }
            // A torn LUKS2 header may say anything here, or not be readable; where there is no second copy, it is what the first
            // says.
            Err(error @ (LuksError::Version(_) | LuksError::Io { .. })) => {
                match v2::Header::read(&*device) {
                    Ok(header) => Header::V2(Box::new(header)),
                    Err(_) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        Ok(Self { device, header })
    }

    /// 1 or 2.
    pub fn version(&self) -> u16 {
        match self.header {
            Header::V1(_) => 1,
            Header::V2(_) => 2,
        }
    }

    /// As the header has it, which need not be well-formed.
    pub fn uuid(&self) -> &str {
        match &self.header {
            Header::V1(header) => &header.uuid,
            Header::V2(header) => &header.binary.uuid,
        }
    }

    /// How both copies of a LUKS2 header were found; `None` for LUKS1, which has one.
    pub fn copies(&self) -> Option<&[CopyState; 2]> {
        match &self.header {
            Header::V1(_) => None,
            Header::V2(header) => Some(&header.copies),
        }
    }

    /// What the header says, for people and programs; no secrets.
    pub fn dump(&self) -> Dump {
        dump::of(self)
    }

    /// The device of the header.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether something is required that is not known here.
    fn check_requirements(&self) -> Result<()> {
        match &self.header {
            Header::V2(header) => match header.metadata.requirements.first() {
                Some(name) if name.starts_with("online-reencrypt") => Err(LuksError::Reencrypting),
                Some(name) => Err(LuksError::Requirement(name.clone())),
                None => Ok(()),
            },
            Header::V1(_) => Ok(()),
        }
    }

    /// The volume's key, from whichever slot this passphrase opens, and the slot's number. Slots marked to be ignored are
    /// left alone.
    ///
    /// # Errors
    /// [`LuksError::WrongPassphrase`] when all slots were tried; what kept a slot from being tried otherwise.
    pub fn unlock(&self, passphrase: &[u8], limits: &Limits) -> Result<(VolumeKey, u8)> {
        self.check_requirements()?;
        let confirmation = self.confirmation()?;
        confirmation.within(limits)?;
        let mut hindrance = None;
        for slot in self.slots_to_try()? {
            match self.try_slot(slot, &confirmation, passphrase, limits) {
                Ok(Some(key)) => return Ok((key, slot)),
                Ok(None) => {}
                // A sector that cannot be read included: it belongs to this slot alone.
                Err(error) => hindrance = hindrance.or(Some(error)),
            }
        }
        Err(hindrance.unwrap_or(LuksError::WrongPassphrase))
    }

    /// The volume's key from this slot.
    ///
    /// # Errors
    /// [`LuksError::NoSuchSlot`]; [`LuksError::WrongPassphrase`].
    pub fn unlock_slot(&self, slot: u8, passphrase: &[u8], limits: &Limits) -> Result<VolumeKey> {
        self.check_requirements()?;
        let confirmation = self.confirmation()?;
        confirmation.within(limits)?;
        self.try_slot(slot, &confirmation, passphrase, limits)?
            .ok_or(LuksError::WrongPassphrase)
    }

    /// A key that somebody kept, if it is this volume's.
    ///
    /// # Errors
    /// [`LuksError::WrongKey`].
    pub fn check_key(&self, key: &[u8]) -> Result<VolumeKey> {
        self.check_requirements()?;
        let key = Zeroizing::new(key.to_vec());
        let confirmation = self.confirmation()?;
        confirmation.within(&Limits::default())?;
        confirmation.confirm(key)?.ok_or(LuksError::WrongKey)
    }

    fn confirmation(&self) -> Result<Confirmation> {
        match &self.header {
            Header::V1(header) => Ok(Confirmation {
                hash: KnownHash::of_name(&header.hash)?,
                iterations: header.digest_iterations,
                salt: header.digest_salt.to_vec(),
                digest: header.digest.to_vec(),
            }),
            Header::V2(header) => Confirmation::of(header.data_digest()?.1),
        }
    }

    /// Slots for the volume's key, in the order to try them.
    fn slots_to_try(&self) -> Result<Vec<u8>> {
        match &self.header {
            Header::V1(header) => Ok((0..v1::SLOTS).filter(|s| header.slot(*s).is_ok()).collect()),
            Header::V2(header) => {
                let slots = header.metadata.keyslots.iter();
                let digest = header.data_digest()?.1;
                let mut slots: Vec<(Priority, u8)> = slots
                    .filter(|(number, slot)| {
                        slot.luks2.is_some()
                            && slot.priority != Priority::Ignore
                            && digest.keyslots.contains(number)
                    })
                    .map(|(number, slot)| (slot.priority, *number))
                    .collect();
                slots.sort_unstable_by_key(|(priority, number)| {
                    (std::cmp::Reverse(*priority), *number)
                });
                Ok(slots.into_iter().map(|(_, number)| number).collect())
            }
        }
    }

    fn try_slot(
        &self,
        number: u8,
        confirmation: &Confirmation,
        passphrase: &[u8],
        limits: &Limits,
    ) -> Result<Option<VolumeKey>> {
        let key = match &self.header {
            Header::V1(header) => {
                let slot = header.slot(number)?;
                let kdf = header.kdf(slot);
                kdf.within(limits, number)?;
                header
                    .holding(slot, &kdf, &header.cipher())
                    .read(&*self.device, passphrase)?
            }
            Header::V2(header) => {
                let slot = header.metadata.keyslots.get(&number);
                let slot = slot.ok_or(LuksError::NoSuchSlot(number))?;
                let Some(opening) = &slot.luks2 else {
                    return Err(LuksError::Unsupported(format!(
                        "key slot {number} of the kind {:?}",
                        slot.kind
                    )));
                };
                opening.kdf.within(limits, number)?;
                Holding {
                    offset: slot.area.offset,
                    key_size: slot.key_size,
                    stripes: opening.stripes,
                    af_hash: &opening.af_hash,
                    encryption: &opening.encryption,
                    area_key_size: opening.area_key_size,
                    kdf: &opening.kdf,
                }
                .read(&*self.device, passphrase)?
            }
        };
        confirmation.confirm(key)
    }

    /// The decrypted data. `data` is the device they are on where that is another than the header's. Discards go through
    /// also where the header says so.
    ///
    /// # Errors
    /// [`LuksError::DataElsewhere`] when the header has no data behind it and no other device is named.
    pub fn open(
        &self,
        data: Option<Arc<dyn Device>>,
        key: &VolumeKey,
        mut options: CryptOptions,
    ) -> Result<CryptDevice> {
        self.check_requirements()?;
        self.check_own(key)?;
        let own = data.is_none();
        let data = data.unwrap_or_else(|| Arc::clone(&self.device));
        let (encryption, sector_size, iv_offset, offset, size, region) = match &self.header {
            Header::V1(header) => (
                header.cipher(),
                v1::SECTOR,
                0,
                header.payload_bytes(),
                None,
                header.region(),
            ),
            Header::V2(header) => {
                let (segment, crypt) = header.data_segment()?;
                let flags = &header.metadata.flags;
                options.allow_discards |= flags.iter().any(|flag| flag == "allow-discards");
                (
                    crypt.encryption.clone(),
                    crypt.sector_size.into(),
                    crypt.iv_tweak,
                    segment.offset,
                    segment.size,
                    header.region(),
                )
            }
        };
        if own && offset < region {
            return Err(LuksError::DataElsewhere);
        }
        let rest = data.len().checked_sub(offset);
        let len = match (size, rest) {
            (None, Some(rest)) => rest - rest % sector_size,
            (Some(size), Some(rest)) if size <= rest => size,
            (size, _) => {
                return Err(LuksError::TooSmall {
                    what: "the data",
                    have: data.len(),
                    need: offset.saturating_add(size.unwrap_or(0)),
                });
            }
        };
        // 512 to 4096.
        let cipher = SectorCipher::new(&encryption, key.expose(), sector_size as usize)?;
        let at = Extent {
            offset,
            len,
            iv_offset,
        };
        CryptDevice::new(data, cipher, at, options).map_err(io("opening the data"))
    }

    /// Whether a key was confirmed by this volume, not by another.
    fn check_own(&self, key: &VolumeKey) -> Result<()> {
        let own = match &self.header {
            Header::V1(header) => &header.digest[..],
            Header::V2(header) => &header.data_digest()?.1.digest,
        };
        if key.digest == own {
            Ok(())
        } else {
            Err(LuksError::WrongKey)
        }
    }
}

impl v1::Header {
    fn holding<'s>(&'s self, slot: &v1::Slot, kdf: &'s Kdf, cipher: &'s str) -> Holding<'s> {
        Holding {
            offset: self.material(slot).0,
            // At most 512, and what fits a disk's area.
            key_size: self.key_size as usize,
            stripes: slot.stripes as usize,
            af_hash: &self.hash,
            encryption: cipher,
            area_key_size: self.key_size as usize,
            kdf,
        }
    }
}

impl v2::Header {
    /// The one segment that holds the data.
    fn data_segment(&self) -> Result<(&Segment, &Crypt)> {
        let mut in_use = self.metadata.segments.values().filter(|s| !s.is_backup());
        let (Some(segment), None) = (in_use.next(), in_use.next()) else {
            return Err(LuksError::Unsupported(
                "a volume of several segments or none".into(),
            ));
        };
        let Some(crypt) = &segment.crypt else {
            return Err(LuksError::Unsupported(format!(
                "a segment of the kind {:?}",
                segment.kind
            )));
        };
        if let Some(integrity) = &crypt.integrity {
            return Err(LuksError::Unsupported(format!(
                "a segment with integrity protection ({integrity})"
            )));
        }
        Ok((segment, crypt))
    }

    /// Number and contents of the digest of the data's key.
    fn data_digest(&self) -> Result<(u8, &Digest)> {
        let mut segments = self.metadata.segments.iter();
        let first = segments.find(|(_, s)| !s.is_backup()).map(|(n, _)| *n);
        let digest = self
            .metadata
            .digests
            .iter()
            .find(|(_, digest)| first.is_some_and(|first| digest.segments.contains(&first)));
        let (number, digest) =
            digest.ok_or_else(|| LuksError::Malformed("no digest is for the data".into()))?;
        Ok((*number, digest))
    }
}
