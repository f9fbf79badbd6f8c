//! The LUKS1 header: 592 bytes, big-endian, one copy, eight key slots.
//!
//! LUKS On-Disk Format Specification 1.2.3, chapter 2. A [`Header`] is within its bounds: key material is behind the
//! header, before the data where both are on one device, and no two slots share any.
//!
//! There is one copy only. A change touches one slot's 48 bytes, and never the only slot that opens the volume, so a torn
//! write loses no way in.

use device::Device;

use super::error::{LuksError, Result, io};
use super::kdf::{Kdf, KdfAlgorithm};
use super::v2::binary::{MAGIC, text};

/// Bytes of the header.
pub(super) const LEN: usize = 592;
/// Key slots.
pub(super) const SLOTS: u8 = 8;
/// Offsets on the disk count these.
pub(super) const SECTOR: u64 = 512;
const ENABLED: u32 = 0x00AC_71F3;
const DISABLED: u32 = 0x0000_DEAD;
const SLOTS_AT: usize = 208;
const SLOT_LEN: usize = 48;
/// Most bytes of a key.
const KEY_LEN_MAX: u32 = 512;
/// Most bytes of a slot's material, and of a backup with all slots; far more than any keys need.
const MATERIAL_MAX: u64 = 128 << 20;
/// Where the first slot's material begins in headers made here, and what the others' are aligned to; bytes.
pub(super) const MATERIAL_ALIGN: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cipher_name: String,
    pub(super) cipher_mode: String,
    pub(super) hash: String,
    /// Where the data begins, in sectors of 512 bytes; 0 where it is on another device, mostly.
    pub(super) payload: u32,
    pub(super) key_size: u32,
    pub(super) digest: [u8; 20],
    pub(super) digest_salt: [u8; 32],
    pub(super) digest_iterations: u32,
    pub(super) uuid: String,
    pub(super) slots: [Slot; SLOTS as usize],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) active: bool,
    pub(super) iterations: u32,
    pub(super) salt: [u8; 32],
    /// Where its material begins, in sectors of 512 bytes.
    pub(super) material: u32,
    pub(super) stripes: u32,
}

impl Header {
    /// Reads the header. `NotLuks` without its magic.
    pub(super) fn read(device: &dyn Device) -> Result<Self> {
        let mut bytes = [0; LEN];
        if device.len() < LEN as u64 {
            return Err(LuksError::NotLuks);
        }
        device
            .read_at(&mut bytes, 0)
            .map_err(io("reading the header"))?;
        let header = Self::parse(&bytes)?;
        if header.region() > device.len() {
            return Err(LuksError::TooSmall {
                what: "the key material that the header speaks of",
                have: device.len(),
                need: header.region(),
            });
        }
        Ok(header)
    }

    pub(super) fn parse(bytes: &[u8; LEN]) -> Result<Self> {
        if !bytes.starts_with(&MAGIC) {
            return Err(LuksError::NotLuks);
        }
        let version = u16::from_be_bytes([bytes[6], bytes[7]]);
        if version != 1 {
            return Err(LuksError::Version(version));
        }
        let header = Self {
            cipher_name: text(&bytes[8..40], "cipher's name")?,
            cipher_mode: text(&bytes[40..72], "cipher's mode")?,
            hash: text(&bytes[72..104], "hash's name")?,
            payload: number(bytes, 104),
            key_size: number(bytes, 108),
            digest: array(bytes, 112),
            digest_salt: array(bytes, 132),
            digest_iterations: number(bytes, 164),
            uuid: text(&bytes[168..208], "UUID")?,
            slots: std::array::from_fn(|slot| Slot::parse(bytes, SLOTS_AT + slot * SLOT_LEN)),
        };
        header.check(bytes)?;
        Ok(header)
    }

    fn check(&self, bytes: &[u8; LEN]) -> Result<()> {
        let malformed = |what: String| Err(LuksError::Malformed(what));
        if !(1..=KEY_LEN_MAX).contains(&self.key_size) {
            return malformed(format!("a key of {} bytes", self.key_size));
        }
        if self.digest_iterations == 0 {
            return malformed("a digest with no iterations".into());
        }
        for (number, slot) in self.slots.iter().enumerate() {
            let state = self::number(bytes, SLOTS_AT + number * SLOT_LEN);
            if ![ENABLED, DISABLED].contains(&state) {
                return malformed(format!("key slot {number} is in the state {state:#x}"));
            }
            if slot.active && (slot.iterations == 0 || slot.stripes == 0) {
                return malformed(format!(
                    "key slot {number} has {} iterations and {} stripes",
                    slot.iterations, slot.stripes
                ));
            }
        }
        let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            // A slot that is not in use has its place set aside, which counts only when it is used.
            if !slot.active {
                continue;
            }
            let (start, end) = self.material(slot);
            if end - start > MATERIAL_MAX {
                return malformed(format!(
                    "key slot {number} has {} bytes of material",
                    end - start
                ));
            }
            if start < (LEN as u64).next_multiple_of(SECTOR) {
                return malformed(format!("key slot {number} is inside the header"));
            }
            if self.payload != 0 && end > self.payload_bytes() {
                return malformed(format!("key slot {number} is inside the data"));
            }
            if let Some((.., other)) = ranges.iter().find(|(s, e, _)| start < *e && *s < end) {
                return malformed(format!("key slots {other} and {number} overlap"));
            }
            ranges.push((start, end, number));
        }
        Ok(())
    }

    /// That the places of slots that are not in use, too, end before the data and within 128 MiB: backups keep all of
    /// [`Header::whole_region`].
    pub(super) fn check_all_places(&self) -> Result<()> {
        for (number, slot) in self.slots.iter().enumerate() {
            let (_, end) = self.material(slot);
            if end > MATERIAL_MAX || self.payload != 0 && end > self.payload_bytes() {
                return Err(LuksError::Malformed(format!(
                    "the place of key slot {number} ends at byte {end}, behind where the data begins or 128 MiB"
                )));
            }
        }
        Ok(())
    }

    /// First byte of a slot's material, and the first behind it.
    pub(super) fn material(&self, slot: &Slot) -> (u64, u64) {
        let start = u64::from(slot.material) * SECTOR;
        // Below 2^9 times 2^32.
        let len = (u64::from(self.key_size) * u64::from(slot.stripes)).next_multiple_of(SECTOR);
        (start, start + len)
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        u64::from(self.payload) * SECTOR
    }

    /// Bytes from the start of the device that the header takes with the slots that are in use.
    pub(super) fn region(&self) -> u64 {
        let ends = self.slots.iter().filter(|s| s.active);
        ends.map(|slot| self.material(slot).1)
            .max()
            .unwrap_or(0)
            .max(LEN as u64)
    }

    /// Bytes from the start of the device that all slots could take.
    pub(super) fn whole_region(&self) -> u64 {
        let ends = self.slots.iter().map(|slot| self.material(slot).1);
        ends.max().unwrap_or(0).max(self.region())
    }

    /// Name of the sector cipher.
    pub(super) fn cipher(&self) -> String {
        format!("{}-{}", self.cipher_name, self.cipher_mode)
    }

    pub(super) fn kdf(&self, slot: &Slot) -> Kdf {
        Kdf {
            salt: slot.salt.to_vec(),
            algorithm: KdfAlgorithm::Pbkdf2 {
                hash: self.hash.clone(),
                iterations: slot.iterations,
            },
        }
    }

    /// The slot of this number, if it is in use.
    pub(super) fn slot(&self, number: u8) -> Result<&Slot> {
        let slot = self.slots.get(usize::from(number)).filter(|s| s.active);
        slot.ok_or(LuksError::NoSuchSlot(number))
    }

    /// The lowest free slot, or the one that is wanted, if it is free.
    pub(super) fn free_slot(&self, wanted: Option<u8>) -> Result<u8> {
        match wanted {
            Some(slot) if slot >= SLOTS => Err(LuksError::Option(
                "key slots of LUKS1 are numbered from 0 to 7".into(),
            )),
            Some(slot) if self.slots[usize::from(slot)].active => Err(LuksError::SlotTaken(slot)),
            Some(slot) => Ok(slot),
            None => (0..SLOTS)
                .find(|slot| !self.slots[usize::from(*slot)].active)
                .ok_or_else(|| LuksError::NoRoom("all 8 are in use".into())),
        }
    }

    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..6].copy_from_slice(&MAGIC);
        bytes[6..8].copy_from_slice(&1u16.to_be_bytes());
        for (at, text) in [
            (8, &self.cipher_name),
            (40, &self.cipher_mode),
            (72, &self.hash),
            (168, &self.uuid),
        ] {
            bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        for (at, number) in [
            (104, self.payload),
            (108, self.key_size),
            (164, self.digest_iterations),
        ] {
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        bytes[112..132].copy_from_slice(&self.digest);
        bytes[132..164].copy_from_slice(&self.digest_salt);
        for (number, slot) in self.slots.iter().enumerate() {
            slot.encode(&mut bytes[SLOTS_AT + number * SLOT_LEN..][..SLOT_LEN]);
        }
        bytes
    }

    /// Writes the header, and makes it durable. After an error it is to be read again.
    pub(super) fn write(&mut self, device: &dyn Device, next: Self) -> Result<()> {
        let bytes = next.encode();
        let next = Self::parse(&bytes)?;
        device
            .write_at(&bytes, 0)
            .map_err(io("writing the header"))?;
        device.flush().map_err(io("making the header durable"))?;
        *self = next;
        Ok(())
    }
}

impl Slot {
    fn parse(bytes: &[u8; LEN], at: usize) -> Self {
        Self {
            active: number(bytes, at) == ENABLED,
            iterations: number(bytes, at + 4),
            salt: array(bytes, at + 8),
            material: number(bytes, at + 40),
            stripes: number(bytes, at + 44),
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        let state = if self.active { ENABLED } else { DISABLED };
        bytes[..4].copy_from_slice(&state.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.iterations.to_be_bytes());
        bytes[8..40].copy_from_slice(&self.salt);
        bytes[40..44].copy_from_slice(&self.material.to_be_bytes());
        bytes[44..48].copy_from_slice(&self.stripes.to_be_bytes());
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
