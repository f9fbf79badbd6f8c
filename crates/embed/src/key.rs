//! What opens a room, in the forms that every language has.

use room::{Argon2Cost, Credential, NewCredential, Secret};

use crate::{Error, Result};

/// A passphrase or a key.
#[derive(Debug)]
pub enum Key {
    /// A passphrase: at least one byte, taken byte for byte.
    Passphrase(Secret),
    /// The whole content of a key file.
    File(Secret),
    /// 32 random bytes.
    Raw(Secret),
    /// A passphrase and the content of a key file, for a slot that needs both.
    PassphraseAndFile {
        /// The passphrase: at least one byte.
        passphrase: Secret,
        /// The whole content of the key file.
        file: Secret,
    },
}

impl Key {
    /// The one that exactly one of the three gives, or a passphrase and a file together.
    pub fn one_of(
        passphrase: Option<Secret>,
        file: Option<Secret>,
        raw: Option<Secret>,
    ) -> Result<Self> {
        match (passphrase, file, raw) {
            (Some(secret), None, None) => Ok(Self::Passphrase(secret)),
            (None, Some(secret), None) => Ok(Self::File(secret)),
            (None, None, Some(secret)) => Ok(Self::Raw(secret)),
            (Some(passphrase), Some(file), None) => {
                Ok(Self::PassphraseAndFile { passphrase, file })
            }
            _ => Err(Error::Argument(
                "give a passphrase, the content of a key file, both of them, or a raw key".into(),
            )),
        }
    }

    /// For opening.
    pub fn credential(self) -> Credential {
        match self {
            Self::Passphrase(secret) => Credential::Passphrase(secret),
            Self::File(secret) => Credential::KeyFile(secret),
            Self::Raw(secret) => Credential::RawKey(secret),
            Self::PassphraseAndFile { passphrase, file } => Credential::PassphraseAndKeyFile {
                passphrase,
                key_file: file,
            },
        }
    }

    /// For a new slot. `cost` is of the key derivation of a passphrase or a key file, whose content may be a passphrase; `None`:
    /// measured to about a second.
    pub fn new_credential(self, cost: Option<Argon2Cost>) -> NewCredential {
        let cost =
            || cost.unwrap_or_else(|| Argon2Cost::measured(std::time::Duration::from_secs(1)));
        match self {
            Self::Passphrase(secret) => NewCredential::Passphrase {
                secret,
                cost: cost(),
            },
            Self::File(secret) => NewCredential::KeyFile {
                secret,
                cost: cost(),
            },
            Self::Raw(secret) => NewCredential::RawKey(secret),
            Self::PassphraseAndFile { passphrase, file } => NewCredential::PassphraseAndKeyFile {
                passphrase,
                key_file: file,
                cost: cost(),
            },
        }
    }
}
