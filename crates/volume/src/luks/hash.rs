//! The hashes by the names that headers give them; PBKDF2 over them.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, pbkdf2};

use super::error::{LuksError, Result};

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// SHA-1: LUKS1's old default; its known weakness, collisions, does not matter to PBKDF2 and the splitter.
    Sha1,
    /// SHA-256, the default of both versions.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// The hash of this name, in small or capital letters.
    ///
    /// # Errors
    /// [`LuksError::Unsupported`], with the name.
    pub fn of_name(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "sha1" => Ok(Self::Sha1),
            "sha256" => Ok(Self::Sha256),
            "sha384" => Ok(Self::Sha384),
            "sha512" => Ok(Self::Sha512),
            _ => Err(LuksError::Unsupported(format!(
                "the hash {name:?}; known are sha1, sha256, sha384 and sha512"
            ))),
        }
    }

    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    pub(super) fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }

    /// PBKDF2 (RFC 8018, section 5.2) with HMAC of this hash.
    pub(super) fn pbkdf2(self, iterations: NonZeroU32, salt: &[u8], secret: &[u8], out: &mut [u8]) {
        let algorithm = match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        pbkdf2::derive(algorithm, iterations, salt, secret, out);
    }
}
