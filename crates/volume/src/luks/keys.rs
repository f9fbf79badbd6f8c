//! Changes of key slots.
//!
//! In which order things become durable, and what a loss of power between them leaves:
//!
//! 1. *Add*: the material, in a place no slot uses; then the header. Before the header: the old state.
//! 2. *Remove*: the material is wiped; then the header. In between, the slot is listed and opens nothing, the others do,
//!    and removing it again ends it. The other way round, material that a known passphrase opens could stay on the disk
//!    with no sign of it. The last slot goes only on request.
//! 3. *Change*: add under a free number, then remove the old, then (LUKS2, in the same write) renumber. The new passphrase
//!    opens from the first header on, the old one up to the wipe.
//!
//! Before each, both copies of a LUKS2 header are made whole: an old copy must not refer to an area that is rewritten.

use zeroize::Zeroizing;

use super::error::{LuksError, Result};
use super::kdf::{Kdf, KdfAlgorithm, KdfOptions, Limits};
use super::material::{self, Holding, STRIPES};
use super::v2::edit::{NewSlot, area_size};
use super::{Header, Luks, VolumeKey, v1, v2};

impl Luks {
    /// Adds a passphrase, in the lowest free slot or the one named, whose number is returned. LUKS1 takes the hash of its
    /// header for all slots, whatever the options say, and PBKDF2 only.
    pub fn add_key(
        &mut self,
        key: &VolumeKey,
        passphrase: &[u8],
        kdf: &KdfOptions,
        slot: Option<u8>,
    ) -> Result<u8> {
        kdf.check()?;
        self.check_requirements()?;
        self.check_own(key)?;
        self.repair_copies()?;
        let device = &*self.device;
        match &mut self.header {
            Header::V2(header) => {
                let slot = header.free_slot(slot)?;
                let encryption = header.data_segment()?.1.encryption.clone();
                let json = header.new_slot(device, key, &encryption, passphrase, kdf)?;
                let digest = header.data_digest()?.0;
                let json = header.with_slot(slot, json, digest)?;
                header.write(device, json)?;
                Ok(slot)
            }
            Header::V1(header) => {
                let number = header.free_slot(slot)?;
                let mut next = (**header).clone();
                next.fill_slot(device, number, key, passphrase, kdf)?;
                header.write(device, next)?;
                Ok(number)
            }
        }
    }

    /// Removes a key slot and wipes what it held.
    ///
    /// # Errors
    /// [`LuksError::LastSlot`] if no other opens the volume; see [`Luks::remove_last_key`].
    pub fn remove_key(&mut self, slot: u8) -> Result<()> {
        self.remove(slot, false)
    }

    /// Removes a key slot even if no other opens the volume. Without a copy of the volume's key or a backup of the header
    /// the data is then lost.
    pub fn remove_last_key(&mut self, slot: u8) -> Result<()> {
        self.remove(slot, true)
    }

    fn remove(&mut self, slot: u8, even_the_last: bool) -> Result<()> {
        self.check_requirements()?;
        // Also a slot that is none of the volume's own keys can go: it is never the last.
        let slots = self.slots_that_open()?;
        // A header may list a slot twice.
        if !even_the_last && slots.contains(&slot) && slots.iter().all(|s| *s == slot) {
            return Err(LuksError::LastSlot(slot));
        }
        self.place_of(slot)?;
        self.repair_copies()?;
        self.wipe_slot(slot)?;
        let device = &*self.device;
        match &mut self.header {
            Header::V2(header) => {
                let json = header.without_slot(slot)?;
                header.write(device, json)
            }
            Header::V1(header) => {
                let mut next = (**header).clone();
                next.empty_slot(slot);
                header.write(device, next)
            }
        }
    }

    /// Puts another passphrase in the place of a slot's. LUKS2 keeps the slot's number; with LUKS1 it is a new one. It is
    /// returned. Needs a free slot, and room for its material, until it is done.
    ///
    /// # Errors
    /// [`LuksError::HalfChanged`] where both slots are there when the device fails.
    pub fn change_key(
        &mut self,
        key: &VolumeKey,
        slot: u8,
        passphrase: &[u8],
        kdf: &KdfOptions,
    ) -> Result<u8> {
        self.place_of(slot)?;
        if !self.slots_that_open()?.contains(&slot) {
            return Err(LuksError::Unsupported(format!(
                "changing key slot {slot}, which is not for the data's key"
            )));
        }
        let before = self.slots_that_open()?;
        self.replace_key(key, slot, passphrase, kdf)
            .map_err(|source| {
                let Ok(now) = Self::read(self.device.clone()).and_then(|now| now.slots_that_open())
                else {
                    return source;
                };
                let mut added = now.iter().filter(|s| !before.contains(s));
                match added.next() {
                    Some(new) if now.contains(&slot) => LuksError::HalfChanged {
                        old: slot,
                        new: *new,
                        source: Box::new(source),
                    },
                    _ => source,
                }
            })
    }

    fn replace_key(
        &mut self,
        key: &VolumeKey,
        slot: u8,
        passphrase: &[u8],
        kdf: &KdfOptions,
    ) -> Result<u8> {
        let new = self.add_key(key, passphrase, kdf, None)?;
        self.wipe_slot(slot)?;
        let device = &*self.device;
        match &mut self.header {
            Header::V2(header) => {
                let json = header.with_slot_renumbered(new, slot)?;
                header.write(device, json)?;
                Ok(slot)
            }
            Header::V1(header) => {
                let mut next = (**header).clone();
                next.empty_slot(slot);
                header.write(device, next)?;
                Ok(new)
            }
        }
    }

    /// Derives a slot's key in another way from now on, from the same passphrase; the slot's number is returned, as by
    /// [`Luks::change_key`].
    pub fn convert_kdf(
        &mut self,
        slot: u8,
        passphrase: &[u8],
        kdf: &KdfOptions,
        limits: &Limits,
    ) -> Result<u8> {
        let key = self.unlock_slot(slot, passphrase, limits)?;
        self.change_key(&key, slot, passphrase, kdf)
    }

    /// What new slots derive their keys by if nobody says otherwise.
    pub fn default_kdf(&self) -> KdfOptions {
        match self.header {
            Header::V1(_) => KdfOptions::PBKDF2,
            Header::V2(_) => KdfOptions::argon2id(),
        }
    }

    /// Makes both copies of a LUKS2 header whole and equal, where they are not. Every change does so first.
    pub fn repair_copies(&mut self) -> Result<()> {
        self.check_requirements()?;
        match &mut self.header {
            Header::V1(_) => Ok(()),
            Header::V2(header) => header.repair_copies(&*self.device),
        }
    }

    /// Slots for the data's key, those to be ignored included.
    pub(super) fn slots_that_open(&self) -> Result<Vec<u8>> {
        match &self.header {
            Header::V1(_) => self.slots_to_try(),
            Header::V2(header) => {
                let digest = header.data_digest()?.1;
                let opens = |slot: &u8| header.metadata.keyslots[slot].luks2.is_some();
                Ok(digest.keyslots.iter().copied().filter(opens).collect())
            }
        }
    }

    /// First byte and length of a slot's material.
    fn place_of(&self, slot: u8) -> Result<(u64, u64)> {
        match &self.header {
            Header::V1(header) => {
                let (start, end) = header.material(header.slot(slot)?);
                Ok((start, end - start))
            }
            Header::V2(header) => {
                let slot = header
                    .metadata
                    .keyslots
                    .get(&slot)
                    .ok_or(LuksError::NoSuchSlot(slot))?;
                Ok((slot.area.offset, slot.area.size))
            }
        }
    }

    fn wipe_slot(&self, slot: u8) -> Result<()> {
        let (offset, len) = self.place_of(slot)?;
        material::wipe(&*self.device, offset, len)
    }
}

impl v2::Header {
    /// Writes a key's material to a free place; the JSON of the slot for it.
    pub(super) fn new_slot(
        &self,
        device: &dyn device::Device,
        key: &VolumeKey,
        encryption: &str,
        passphrase: &[u8],
        kdf: &KdfOptions,
    ) -> Result<serde_json::Value> {
        let kdf = kdf.with_salt()?;
        let key_size = key.expose().len();
        let mut holding = Holding {
            offset: 0,
            key_size,
            stripes: STRIPES,
            af_hash: "sha256",
            encryption,
            area_key_size: key_size,
            kdf: &kdf,
        };
        let area = self.free_area(area_size(holding.material_len()))?;
        holding.offset = area.offset;
        holding.write(device, key.expose(), passphrase)?;
        Ok(NewSlot {
            key_size,
            encryption: holding.encryption,
            area_key_size: key_size,
            area,
            kdf: &kdf,
            af_hash: holding.af_hash,
            stripes: STRIPES,
        }
        .to_json())
    }
}

impl v1::Header {
    /// Writes a key's material to a slot's place; the slot is in use in this header afterwards, which is not written.
    pub(super) fn fill_slot(
        &mut self,
        device: &dyn device::Device,
        number: u8,
        key: &VolumeKey,
        passphrase: &[u8],
        kdf: &KdfOptions,
    ) -> Result<()> {
        let KdfAlgorithm::Pbkdf2 { iterations, .. } = kdf.with_salt()?.algorithm else {
            return Err(LuksError::Option(
                "LUKS1 knows PBKDF2 only; convert the volume to LUKS2 for Argon2".into(),
            ));
        };
        let slot = &mut self.slots[usize::from(number)];
        slot.active = true;
        slot.iterations = iterations;
        slot.salt = super::kdf::random()?;
        slot.stripes = STRIPES as u32;
        // That its place is its own shows when the header is parsed, and must show before it is written to.
        let checked = Self::parse(&self.encode())?;
        let slot = checked.slot(number)?;
        let kdf: Kdf = checked.kdf(slot);
        let cipher = checked.cipher();
        let secret = Zeroizing::new(key.expose().to_vec());
        checked
            .holding(slot, &kdf, &cipher)
            .write(device, &secret, passphrase)
    }

    fn empty_slot(&mut self, number: u8) {
        let slot = &mut self.slots[usize::from(number)];
        slot.active = false;
        slot.iterations = 0;
        slot.salt = [0; 32];
    }
}
