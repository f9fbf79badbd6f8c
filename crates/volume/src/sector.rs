//! Sector ciphers, by the names dm-crypt gives them: `aes-xts-plain64`, `aes-cbc-essiv:sha256`, `xchacha12,aes-adiantum-plain64`.
//!
//! 1. IVs count units of 512 bytes, whatever the sector size is (dm-crypt without `iv_large_sectors`).
//! 2. Nothing is authenticated: a changed sector decrypts to something else, undetected.
//!
//! It deliberately does not know where sectors are stored, nor where keys come from.

mod adiantum;
mod aes256_xts;
mod cbc;
mod iv;
mod nh;
mod spec;
mod twofish;
mod xts;

use std::fmt;

use spec::Spec;

/// Units in which IVs count, in bytes.
pub const IV_UNIT: usize = 512;

/// Whether this build has AES in software, to measure what a processor without instructions for it would do: built with
/// `RUSTFLAGS='--cfg aes_backend="soft"'`. Keys and results are the same.
pub const fn in_software() -> bool {
    cfg!(aes_backend = "soft")
}

/// Why a cipher cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CipherError {
    /// The name is none that is known here.
    #[error("the cipher {0} is not supported")]
    Unknown(String),
    /// The cipher takes keys of other lengths.
    #[error("the cipher {cipher} takes no key of {len} bytes")]
    KeyLen {
        /// Name of the cipher.
        cipher: String,
        /// Bytes given.
        len: usize,
    },
    /// A sector size that is not a power of two from 512 to 4096.
    #[error("a sector of {0} bytes: it must be 512, 1024, 2048 or 4096")]
    SectorSize(usize),
}

/// What each construction does: whole sectors, in place. `first` is the number of the first sector in units of 512 bytes.
trait Sectors: Send + Sync {
    fn encrypt(&self, sectors: &mut [u8], first: u64);
    fn decrypt(&self, sectors: &mut [u8], first: u64);
}

/// A cipher with its key, for sectors of one size. The expanded keys are wiped when it is dropped.
pub struct SectorCipher {
    name: String,
    sector_size: usize,
    sectors: Box<dyn Sectors>,
}

impl SectorCipher {
    /// The cipher of this name. `sector_size` is in bytes, a power of two from 512 to 4096.
    pub fn new(spec: &str, key: &[u8], sector_size: usize) -> Result<Self, CipherError> {
        if !sector_size.is_power_of_two() || !(512..=4096).contains(&sector_size) {
            return Err(CipherError::SectorSize(sector_size));
        }
        let parsed = Spec::parse(spec)?;
        let sectors = parsed
            .build(key, sector_size)
            .ok_or_else(|| CipherError::KeyLen {
                cipher: spec.to_owned(),
                len: key.len(),
            })?;
        Ok(Self {
            name: spec.to_owned(),
            sector_size,
            sectors,
        })
    }

    /// Lengths of key that the cipher of this name takes, in bytes, the usual one first.
    pub fn key_lens(spec: &str) -> Result<&'static [usize], CipherError> {
        Ok(Spec::parse(spec)?.key_lens())
    }

    /// The name it was made by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of a sector.
    pub fn sector_size(&self) -> usize {
        self.sector_size
    }

    /// Encrypts whole sectors in place; `iv` is the number of the first, in units of 512 bytes.
    pub fn encrypt(&self, sectors: &mut [u8], iv: u64) {
        self.whole(sectors);
        self.sectors.encrypt(sectors, iv);
    }

    /// Decrypts whole sectors in place; `iv` is the number of the first, in units of 512 bytes.
    pub fn decrypt(&self, sectors: &mut [u8], iv: u64) {
        self.whole(sectors);
        self.sectors.decrypt(sectors, iv);
    }

    fn whole(&self, sectors: &[u8]) {
        // Ours to keep: every caller cuts its ranges to sectors before it comes here.
        assert!(
            sectors.len().is_multiple_of(self.sector_size),
            "{} bytes are not whole sectors of {}",
            sectors.len(),
            self.sector_size
        );
    }
}

/// Decrypts one unit of any whole number of blocks under AES-128-XTS, as CoreStorage's metadata has them: the tweak is the unit's
/// number, whatever its length.
pub(crate) fn decrypt_unit(key: &[u8; 32], unit: &mut [u8], number: u64) {
    let (data, tweak) = key.split_at(16);
    // AES-128 takes keys of 16 bytes.
    if let Some(xts) = xts::Xts::<aes::Aes128>::new(data, tweak, spec::Number::ALL, unit.len()) {
        xts.decrypt(unit, number);
    }
}

/// The other way, for images made in tests.
#[cfg(test)]
pub(crate) fn encrypt_unit(key: &[u8; 32], unit: &mut [u8], number: u64) {
    let (data, tweak) = key.split_at(16);
    xts::Xts::<aes::Aes128>::new(data, tweak, spec::Number::ALL, unit.len())
        .unwrap()
        .encrypt(unit, number);
}

impl fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectorCipher")
            .field("name", &self.name)
            .field("sector_size", &self.sector_size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
