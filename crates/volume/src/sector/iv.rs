//! A sector's IV: its number, or its number encrypted (ESSIV, Fruhwirth, "New Methods in Hard Disk Encryption", 2005).

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::spec::Number;

/// One block.
pub(super) type Block = Array<u8, U16>;

/// A block cipher of 16-byte blocks.
pub(super) trait Block16:
    BlockCipherEncrypt
    + BlockCipherDecrypt
    + BlockSizeUser<BlockSize = U16>
    + KeyInit
    + Send
    + Sync
    + 'static
{
}

impl<C> Block16 for C where
    C: BlockCipherEncrypt
        + BlockCipherDecrypt
        + BlockSizeUser<BlockSize = U16>
        + KeyInit
        + Send
        + Sync
        + 'static
{
}

/// How a sector's IV is made.
pub(super) enum Iv<E> {
    /// It is the number.
    Number(Number),
    /// It is the number, encrypted under the hash of the key.
    Encrypted(Number, Box<E>),
}

impl<E: Block16> Iv<E> {
    /// ESSIV with SHA-256 over the key of the data; the cipher takes the hash's 32 bytes as its key.
    pub(super) fn essiv(key: &[u8]) -> Option<Self> {
        let hash = Zeroizing::new(<[u8; 32]>::from(Sha256::digest(key)));
        let cipher = E::new_from_slice(&hash[..]).ok()?;
        Some(Self::Encrypted(Number::ALL, Box::new(cipher)))
    }

    /// Puts the IVs of `ivs.len()` sectors from `first` on, `units` apart.
    pub(super) fn fill(&self, ivs: &mut [Block], first: u64, units: u64) {
        let number = match self {
            Self::Number(number) | Self::Encrypted(number, _) => *number,
        };
        let mut sector = first;
        for iv in ivs.iter_mut() {
            *iv = number.block(sector).into();
            sector = sector.wrapping_add(units);
        }
        if let Self::Encrypted(_, cipher) = self {
            cipher.encrypt_blocks(ivs);
        }
    }
}
