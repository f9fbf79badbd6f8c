//! The kinds of key slot.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of key slot. Their numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotKind {
    /// A passphrase a person types. Number 1.
    Passphrase,
    /// The content of a file. Number 2.
    KeyFile,
    /// 32 random bytes, for programs. Number 3.
    RawKey,
    /// One or more age or SSH recipients. Number 4.
    Recipients,
    /// A passphrase and the content of a file, both needed. Number 5.
    PassphraseAndKeyFile,
}

impl SlotKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [SlotKind; 5] = [
        SlotKind::Passphrase,
        SlotKind::KeyFile,
        SlotKind::RawKey,
        SlotKind::Recipients,
        SlotKind::PassphraseAndKeyFile,
    ];

    /// The number in binary structures: 1 to 5.
    pub fn id(self) -> u8 {
        match self {
            SlotKind::Passphrase => 1,
            SlotKind::KeyFile => 2,
            SlotKind::RawKey => 3,
            SlotKind::Recipients => 4,
            SlotKind::PassphraseAndKeyFile => 5,
        }
    }

    /// The name in the header: `passphrase`, `key-file`, `raw-key`, `recipients`, `passphrase-and-key-file`.
    pub fn name(self) -> &'static str {
        match self {
            SlotKind::Passphrase => "passphrase",
            SlotKind::KeyFile => "key-file",
            SlotKind::RawKey => "raw-key",
            SlotKind::Recipients => "recipients",
            SlotKind::PassphraseAndKeyFile => "passphrase-and-key-file",
        }
    }

    /// The purpose in the derivation of the slot's wrapping key.
    pub(crate) fn purpose(self) -> &'static str {
        match self {
            SlotKind::Passphrase => "slot passphrase",
            SlotKind::KeyFile => "slot key file",
            SlotKind::RawKey => "slot raw key",
            SlotKind::Recipients => "slot recipients",
            SlotKind::PassphraseAndKeyFile => "slot passphrase and key file",
        }
    }
}

impl fmt::Display for SlotKind {
    /// Words for a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SlotKind::Passphrase => "passphrase",
            SlotKind::KeyFile => "key file",
            SlotKind::RawKey => "raw key",
            SlotKind::Recipients => "age identity",
            SlotKind::PassphraseAndKeyFile => "passphrase with key file",
        })
    }
}
