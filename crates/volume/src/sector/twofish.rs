//! Twofish with the tables of its key made once (Schneier and others, "Twofish: A 128-Bit Block Cipher", 1998, section 7.2, full keying).
//!
//! The block cipher is `lsx`'s; here it gets the traits of the other ciphers, and its keys are wiped.

use std::hint::black_box;

use aes::cipher::consts::{U1, U16, U32};
use aes::cipher::{
    Block, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut, InvalidLength, Key, KeyInit,
    KeySizeUser, ParBlocksSizeUser,
};

/// Takes keys of 16, 24 and 32 bytes.
pub(super) struct Twofish(Box<lsx::twofish::Twofish>);

impl Drop for Twofish {
    fn drop(&mut self) {
        // The library's type has no way to wipe it but to take another key.
        *self.0 = lsx::twofish::Twofish::new128(&[0; 16]);
        black_box(&self.0);
    }
}

impl KeySizeUser for Twofish {
    type KeySize = U32;
}

impl KeyInit for Twofish {
    fn new(key: &Key<Self>) -> Self {
        Self(Box::new(lsx::twofish::Twofish::new256(&key.0)))
    }

    fn new_from_slice(key: &[u8]) -> Result<Self, InvalidLength> {
        let cipher = match key.len() {
            16 => key.try_into().map(lsx::twofish::Twofish::new128),
            24 => key.try_into().map(lsx::twofish::Twofish::new192),
            _ => key.try_into().map(lsx::twofish::Twofish::new256),
        };
        Ok(Self(Box::new(cipher.map_err(|_| InvalidLength)?)))
    }
}

impl BlockSizeUser for Twofish {
    type BlockSize = U16;
}

impl ParBlocksSizeUser for Twofish {
    type ParBlocksSize = U1;
}

impl BlockCipherEncrypt for Twofish {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U16>) {
        f.call(self);
    }
}

impl BlockCipherEncBackend for Twofish {
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let from = block.get_in().0;
        self.0.encrypt(&from, &mut block.get_out().0);
    }
}

impl BlockCipherDecrypt for Twofish {
    fn decrypt_with_backend(&self, f: impl BlockCipherDecClosure<BlockSize = U16>) {
        f.call(self);
    }
}

impl BlockCipherDecBackend for Twofish {
    fn decrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let from = block.get_in().0;
        self.0.decrypt(&from, &mut block.get_out().0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hex;
    use super::*;

    /// By the trait that callers use, whose method's name the backend has too.
    fn encrypted(cipher: &impl BlockCipherEncrypt<BlockSize = U16>, block: [u8; 16]) -> [u8; 16] {
        let mut block = block.into();
        cipher.encrypt_block(&mut block);
        block.0
    }

    /// The authors' known answers for keys of each length, and, for keys and blocks that follow from each other, another implementation's.
    #[test]
    fn blocks_are_those_of_the_standard_and_of_another_implementation() {
        for (key, sealed) in [
            (
                "00000000000000000000000000000000",
                "9f589f5cf6122c32b6bfec2f2ae8c35a",
            ),
            (
                "0123456789abcdeffedcba98765432100011223344556677",
                "cfd1d2e5a9be9cdf501f13b892bd2248",
            ),
            (
                "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff",
                "37527be0052334b89f0cfccae87cfa20",
            ),
        ] {
            let cipher = Twofish::new_from_slice(&hex(key)).unwrap();
            assert_eq!(encrypted(&cipher, [0; 16])[..], hex(sealed));
        }

        let mut key = [7; 32];
        let mut block = [0; 16];
        for round in 0..300 {
            let len = [16, 24, 32][round % 3];
            let ours = Twofish::new_from_slice(&key[..len]).unwrap();
            let other = ::twofish::Twofish::new_from_slice(&key[..len]).unwrap();
            let sealed = encrypted(&ours, block);
            assert_eq!(sealed, encrypted(&other, block));
            let mut opened = sealed.into();
            BlockCipherDecrypt::decrypt_block(&ours, &mut opened);
            assert_eq!(opened.0, block);
            block = sealed;
            key.rotate_left(1);
            for (to, from) in key.iter_mut().zip(block) {
                *to ^= from;
            }
        }
    }

    #[test]
    fn keys_of_other_lengths_are_refused() {
        for len in [0, 8, 17, 33] {
            assert!(Twofish::new_from_slice(&vec![0; len]).is_err());
        }
    }
}
