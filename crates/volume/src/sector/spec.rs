//! Names of ciphers: what they mean, and the keys they take.
//!
//! The forms are those of dm-crypt's tables (the kernel's `Documentation/admin-guide/device-mapper/dm-crypt.rst`):
//! `cipher-mode-iv[:options]`.

use aes::{Aes128, Aes192, Aes256};
use aria::{Aria128, Aria192, Aria256};
use camellia::{Camellia128, Camellia192, Camellia256};
use cast6::Cast6;
use serpent::Serpent;
use sm4::Sm4;

use super::adiantum::{Adiantum, Rounds};
use super::aes256_xts::Aes256Xts;
use super::cbc::Cbc;
use super::iv::{Block16, Iv};
use super::twofish::Twofish;
use super::xts::Xts;
use super::{CipherError, Sectors};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Aes,
    Serpent,
    Twofish,
    Camellia,
    Aria,
    Cast6,
    Sm4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Xts(Block),
    Cbc(Block),
    Adiantum(Rounds),
}

/// How a sector's number becomes an IV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// Its low 32 bits, little-endian.
    Plain,
    /// All 64 bits, little-endian.
    Plain64,
    /// All 64 bits, encrypted under the SHA-256 of the key.
    Essiv,
}

/// A cipher's name, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spec {
    mode: Mode,
    numbering: Numbering,
}

impl Spec {
    pub(super) fn parse(name: &str) -> Result<Self, CipherError> {
        Self::known(name).ok_or_else(|| CipherError::Unknown(name.to_owned()))
    }

    fn known(name: &str) -> Option<Self> {
        let (cipher, rest) = name.split_once('-')?;
        let (mode, iv) = rest.split_once('-')?;
        let numbering = match iv {
            "plain" => Numbering::Plain,
            "plain64" => Numbering::Plain64,
            "essiv:sha256" => Numbering::Essiv,
            _ => return None,
        };
        let block = match cipher {
            "aes" => Some(Block::Aes),
            "serpent" => Some(Block::Serpent),
            "twofish" => Some(Block::Twofish),
            "camellia" => Some(Block::Camellia),
            "aria" => Some(Block::Aria),
            "cast6" => Some(Block::Cast6),
            "sm4" => Some(Block::Sm4),
            _ => None,
        };
        let mode = match (mode, cipher) {
            // The kernel takes no other IV than a number here either: the tweak is encrypted as it is.
            ("xts", _) if numbering != Numbering::Essiv => Mode::Xts(block?),
            // ESSIV takes a key of 32 bytes.
            ("cbc", "sm4") if numbering == Numbering::Essiv => return None,
            ("cbc", _) => Mode::Cbc(block?),
            ("adiantum", "xchacha12,aes") if numbering != Numbering::Essiv => {
                Mode::Adiantum(Rounds::Twelve)
            }
            ("adiantum", "xchacha20,aes") if numbering != Numbering::Essiv => {
                Mode::Adiantum(Rounds::Twenty)
            }
            _ => return None,
        };
        Some(Self { mode, numbering })
    }

    pub(super) fn key_lens(self) -> &'static [usize] {
        match self.mode {
            Mode::Xts(Block::Sm4) => &[32],
            Mode::Cbc(Block::Sm4) => &[16],
            Mode::Xts(_) => &[64, 32, 48],
            Mode::Cbc(_) => &[32, 16, 24],
            Mode::Adiantum(_) => &[32],
        }
    }

    /// `None` where the key's length is none of [`Spec::key_lens`].
    pub(super) fn build(self, key: &[u8], sector_size: usize) -> Option<Box<dyn Sectors>> {
        if !self.key_lens().contains(&key.len()) {
            return None;
        }
        match self.mode {
            Mode::Xts(block) => {
                let each = key.len() / 2;
                match (block, each) {
                    (Block::Aes, 16) => self.xts::<Aes128>(key, sector_size),
                    (Block::Aes, 24) => self.xts::<Aes192>(key, sector_size),
                    (Block::Aes, _) => match self.fast(key, sector_size) {
                        Some(fast) => Some(Box::new(fast)),
                        None => self.xts::<Aes256>(key, sector_size),
                    },
                    (Block::Serpent, _) => self.xts::<Serpent>(key, sector_size),
                    (Block::Twofish, _) => self.xts::<Twofish>(key, sector_size),
                    (Block::Camellia, 16) => self.xts::<Camellia128>(key, sector_size),
                    (Block::Camellia, 24) => self.xts::<Camellia192>(key, sector_size),
                    (Block::Camellia, _) => self.xts::<Camellia256>(key, sector_size),
                    (Block::Aria, 16) => self.xts::<Aria128>(key, sector_size),
                    (Block::Aria, 24) => self.xts::<Aria192>(key, sector_size),
                    (Block::Aria, _) => self.xts::<Aria256>(key, sector_size),
                    (Block::Cast6, _) => self.xts::<Cast6>(key, sector_size),
                    (Block::Sm4, _) => self.xts::<Sm4>(key, sector_size),
                }
            }
            Mode::Cbc(block) => match (block, key.len()) {
                (Block::Aes, 16) => self.cbc::<Aes128, Aes256>(key, sector_size),
                (Block::Aes, 24) => self.cbc::<Aes192, Aes256>(key, sector_size),
                (Block::Aes, _) => self.cbc::<Aes256, Aes256>(key, sector_size),
                (Block::Serpent, _) => self.cbc::<Serpent, Serpent>(key, sector_size),
                (Block::Twofish, _) => self.cbc::<Twofish, Twofish>(key, sector_size),
                (Block::Camellia, 16) => self.cbc::<Camellia128, Camellia256>(key, sector_size),
                (Block::Camellia, 24) => self.cbc::<Camellia192, Camellia256>(key, sector_size),
                (Block::Camellia, _) => self.cbc::<Camellia256, Camellia256>(key, sector_size),
                (Block::Aria, 16) => self.cbc::<Aria128, Aria256>(key, sector_size),
                (Block::Aria, 24) => self.cbc::<Aria192, Aria256>(key, sector_size),
                (Block::Aria, _) => self.cbc::<Aria256, Aria256>(key, sector_size),
                (Block::Cast6, _) => self.cbc::<Cast6, Cast6>(key, sector_size),
                (Block::Sm4, _) => self.cbc::<Sm4, Sm4>(key, sector_size),
            },
            Mode::Adiantum(rounds) => Some(Box::new(Adiantum::new(
                rounds,
                key.try_into().ok()?,
                self.number(),
                sector_size,
            ))),
        }
    }

    /// Not in a build that measures AES without the processor's instructions.
    fn fast(self, key: &[u8], sector_size: usize) -> Option<Aes256Xts> {
        if super::in_software() {
            return None;
        }
        Aes256Xts::new(key, self.number(), sector_size)
    }

    fn xts<C: Block16>(self, key: &[u8], sector_size: usize) -> Option<Box<dyn Sectors>> {
        let (data, tweak) = key.split_at(key.len() / 2);
        Some(Box::new(Xts::<C>::new(
            data,
            tweak,
            self.number(),
            sector_size,
        )?))
    }

    fn cbc<C: Block16, E: Block16>(
        self,
        key: &[u8],
        sector_size: usize,
    ) -> Option<Box<dyn Sectors>> {
        let iv = match self.numbering {
            Numbering::Essiv => Iv::<E>::essiv(key)?,
            Numbering::Plain | Numbering::Plain64 => Iv::Number(self.number()),
        };
        Some(Box::new(Cbc::<C, E>::new(key, iv, sector_size)?))
    }

    /// What a sector's number is cut to.
    fn number(self) -> Number {
        match self.numbering {
            Numbering::Plain => Number(u64::from(u32::MAX)),
            Numbering::Plain64 | Numbering::Essiv => Number::ALL,
        }
    }
}

/// A sector's number as an IV, under a mask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(u64);

impl Number {
    /// No mask.
    pub(super) const ALL: Self = Self(u64::MAX);

    /// Little-endian in the first 8 bytes, zeros behind them.
    pub(super) fn block(self, sector: u64) -> [u8; 16] {
        u128::from(sector & self.0).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_known_are_refused() {
        for name in [
            "",
            "aes",
            "aes-xts",
            "aes-xts-plain64-",
            "aes-xts-plain64:sha256",
            "aes-xts-essiv:sha256",
            "aes-cbc-essiv:sha1",
            "aes-ecb-plain64",
            "sm4-cbc-essiv:sha256",
            "cipher_null-ecb-null",
            "aes-adiantum-plain64",
            "xchacha8,aes-adiantum-plain64",
            "xchacha12,aes-adiantum-essiv:sha256",
            "xchacha12,aes-xts-plain64",
            "AES-xts-plain64",
        ] {
            assert!(Spec::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn each_cipher_takes_just_the_keys_it_names() {
        for name in [
            "aes-xts-plain64",
            "serpent-xts-plain",
            "twofish-xts-plain64",
            "aes-cbc-essiv:sha256",
            "serpent-cbc-plain",
            "twofish-cbc-essiv:sha256",
            "camellia-xts-plain64",
            "camellia-cbc-essiv:sha256",
            "aria-xts-plain64",
            "aria-cbc-essiv:sha256",
            "cast6-xts-plain64",
            "cast6-cbc-essiv:sha256",
            "sm4-xts-plain64",
            "sm4-cbc-plain64",
            "xchacha12,aes-adiantum-plain64",
        ] {
            let spec = Spec::parse(name).unwrap();
            for len in 0..80 {
                assert_eq!(
                    spec.build(&vec![7; len], 512).is_some(),
                    spec.key_lens().contains(&len),
                    "{name} {len}"
                );
            }
        }
    }

    #[test]
    fn plain_wraps_at_32_bits_and_plain64_does_not() {
        let number = |name| Spec::parse(name).unwrap().number();
        let beyond = 0x0001_0000_0002;
        assert_eq!(
            number("aes-cbc-plain").block(beyond)[..8],
            [2, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            number("aes-cbc-plain64").block(beyond)[..8],
            [2, 0, 0, 0, 1, 0, 0, 0]
        );
    }
}
