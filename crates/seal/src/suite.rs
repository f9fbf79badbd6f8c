//! The two cipher suites a room's data can be sealed with.
//!
//! Invariant: a suite's number and name are part of the format and never change meaning. A room records its
//! suite at creation and never negotiates another.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::aead;
use serde::{Deserialize, Serialize};

use crate::SealError;

/// An authenticated cipher for file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Suite {
    /// AES-256-GCM (NIST SP 800-38D); the faster one where the processor has AES instructions. Number 1.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439); the faster one elsewhere. Number 2.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl Suite {
    /// Every suite, in the order of their numbers.
    pub const ALL: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    /// The suite's number in binary structures: 1 or 2.
    pub fn id(self) -> u8 {
        match self {
            Suite::Aes256Gcm => 1,
            Suite::ChaCha20Poly1305 => 2,
        }
    }

    /// The suite's name, as the header and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Aes256Gcm => "aes-256-gcm",
            Suite::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    pub(crate) fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Suite {
    type Err = SealError;

    fn from_str(name: &str) -> Result<Suite, SealError> {
        Suite::ALL
            .into_iter()
            .find(|suite| suite.name() == name)
            .ok_or_else(|| SealError::UnknownSuite(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_suite_again() {
        for suite in Suite::ALL {
            assert_eq!(suite.to_string().parse::<Suite>().unwrap(), suite);
            let json = serde_json::to_string(&suite).unwrap();
            assert_eq!(json, format!("\"{suite}\""));
            assert_eq!(serde_json::from_str::<Suite>(&json).unwrap(), suite);
        }
    }

    #[test]
    fn an_unknown_suite_is_refused_by_name() {
        let error = "rot13".parse::<Suite>().unwrap_err();
        assert!(error.to_string().contains("rot13"));
    }
}
