//! What opens a room, and what a new key slot is made for.

use std::fmt;

use crate::{Argon2Cost, NamedIdentity, NamedRecipient, Secret, SlotKind};

/// What someone brings to open a room.
pub enum Credential {
    /// A passphrase, byte for byte as it was set.
    Passphrase(Secret),
    /// The whole content of a key file.
    KeyFile(Secret),
    /// 32 bytes.
    RawKey(Secret),
    /// age or SSH identities; any of them may open any recipients' slot.
    Identities(Vec<NamedIdentity>),
    /// Both, for a slot that needs both.
    PassphraseAndKeyFile {
        /// The passphrase, byte for byte as it was set.
        passphrase: Secret,
        /// The whole content of the key file.
        key_file: Secret,
    },
}

impl Credential {
    /// The kind of slot it can open.
    pub fn kind(&self) -> SlotKind {
        match self {
            Credential::Passphrase(_) => SlotKind::Passphrase,
            Credential::KeyFile(_) => SlotKind::KeyFile,
            Credential::RawKey(_) => SlotKind::RawKey,
            Credential::Identities(_) => SlotKind::Recipients,
            Credential::PassphraseAndKeyFile { .. } => SlotKind::PassphraseAndKeyFile,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({}, ..)", self.kind())
    }
}

/// What a new key slot is made for.
pub enum NewCredential {
    /// A passphrase.
    Passphrase {
        /// The passphrase; not empty.
        secret: Secret,
        /// The work to derive a key from it.
        cost: Argon2Cost,
    },
    /// The content of a key file.
    KeyFile {
        /// The content; not empty.
        secret: Secret,
        /// The work to derive a key from it. [`Argon2Cost::LEAST`] is enough for a file of random bytes.
        cost: Argon2Cost,
    },
    /// 32 bytes, as random as a key.
    RawKey(Secret),
    /// Recipients; each one's identity opens the slot.
    Recipients(Vec<NamedRecipient>),
    /// A passphrase and the content of a key file, which open the slot only together.
    PassphraseAndKeyFile {
        /// The passphrase; not empty.
        passphrase: Secret,
        /// The content; not empty.
        key_file: Secret,
        /// The work to derive a key from them.
        cost: Argon2Cost,
    },
}

impl NewCredential {
    /// The kind of slot it makes.
    pub fn kind(&self) -> SlotKind {
        match self {
            NewCredential::Passphrase { .. } => SlotKind::Passphrase,
            NewCredential::KeyFile { .. } => SlotKind::KeyFile,
            NewCredential::RawKey(_) => SlotKind::RawKey,
            NewCredential::Recipients(_) => SlotKind::Recipients,
            NewCredential::PassphraseAndKeyFile { .. } => SlotKind::PassphraseAndKeyFile,
        }
    }
}

impl fmt::Debug for NewCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewCredential({}, ..)", self.kind())
    }
}
