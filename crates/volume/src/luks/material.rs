//! The bytes of a key slot's area: a key, split and encrypted under what a passphrase derives.
//!
//! 1. The area counts sectors of 512 bytes from its own start, whatever the volume's sectors are.
//! 2. An area is durable before a header refers to it: [`write`] flushes.

use device::Device;
use zeroize::Zeroizing;

use super::af;
use super::error::{LuksError, Result, io};
use super::hash::Hash;
use super::kdf::Kdf;
use crate::sector::SectorCipher;

const SECTOR: usize = 512;

/// Stripes of new slots; the only number that cryptsetup makes.
pub(super) const STRIPES: usize = 4000;

/// How a slot holds its key.
pub(super) struct Holding<'s> {
    /// Bytes on the device.
    pub(super) offset: u64,
    pub(super) key_size: usize,
    pub(super) stripes: usize,
    pub(super) af_hash: &'s str,
    pub(super) encryption: &'s str,
    pub(super) area_key_size: usize,
    pub(super) kdf: &'s Kdf,
}

impl Holding<'_> {
    /// Bytes of the area that are used, whole sectors.
    pub(super) fn material_len(&self) -> usize {
        (self.key_size * self.stripes).next_multiple_of(SECTOR)
    }

    fn cipher(&self, passphrase: &[u8]) -> Result<SectorCipher> {
        // Unsupported settings are refused before the slow key derivation.
        SectorCipher::new(self.encryption, &vec![0; self.area_key_size], SECTOR)?;
        let key = self.kdf.derive(passphrase, self.area_key_size)?;
        Ok(SectorCipher::new(self.encryption, &key, SECTOR)?)
    }

    /// What the slot holds under this passphrase: the key if it is the right one, noise else.
    pub(super) fn read(
        &self,
        device: &dyn Device,
        passphrase: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>> {
        let hash = Hash::of_name(self.af_hash)?;
        let len = self.material_len();
        let end = self.offset.saturating_add(len as u64);
        if end > device.len() {
            return Err(LuksError::TooSmall {
                what: "a key slot's material",
                have: device.len(),
                need: end,
            });
        }
        let cipher = self.cipher(passphrase)?;
        let mut material = Zeroizing::new(vec![0; len]);
        device
            .read_at(&mut material, self.offset)
            .map_err(io("reading a key slot"))?;
        cipher.decrypt(&mut material, 0);
        Ok(af::merge(hash, &material, self.key_size, self.stripes))
    }

    /// Puts a key under a passphrase into the area, and makes it durable.
    pub(super) fn write(&self, device: &dyn Device, key: &[u8], passphrase: &[u8]) -> Result<()> {
        let hash = Hash::of_name(self.af_hash)?;
        let cipher = self.cipher(passphrase)?;
        let mut material = af::split(hash, key, self.stripes)?;
        material.resize(self.material_len(), 0);
        cipher.encrypt(&mut material, 0);
        device
            .write_at(&material, self.offset)
            .map_err(io("writing a key slot"))?;
        device.flush().map_err(io("making a key slot durable"))
    }
}

/// Overwrites a range with noise, so that what was in it cannot be read from the device any more, and makes that durable.
/// What a flash disk or a file system keeps of older contents is beyond reach.
pub(super) fn wipe(device: &dyn Device, offset: u64, len: u64) -> Result<()> {
    let mut noise = vec![0; 1 << 16];
    let (mut at, end) = (offset, offset + len);
    while at < end {
        getrandom::fill(&mut noise).map_err(|e| LuksError::Derivation(e.to_string()))?;
        // At most 64 KiB.
        let part = (end - at).min(noise.len() as u64) as usize;
        device
            .write_at(&noise[..part], at)
            .map_err(io("wiping a key slot"))?;
        at += part as u64;
    }
    device.flush().map_err(io("making a wipe durable"))
}
