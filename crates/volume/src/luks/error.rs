//! What can go wrong with a LUKS volume, said so that a person knows what to do next.

use std::io;

use super::backup::RestoreRefusal;
use crate::sector::CipherError;

/// The result of an operation on a LUKS volume.
pub type Result<T> = std::result::Result<T, LuksError>;

/// Why something on a LUKS volume could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LuksError {
    /// There is no LUKS header in any of the places for one.
    #[error(
        "this is no LUKS volume: no header at the start, nor a second one behind it; if the header is detached, name its file"
    )]
    NotLuks,
    /// A LUKS version other than 1 and 2.
    #[error("LUKS version {0} is not known; only 1 and 2 are")]
    Version(u16),
    /// A header is there, and no copy of it is whole.
    #[error("the LUKS header is damaged: {0}; restore it from a backup of the header")]
    Damaged(String),
    /// A header whose checksum holds says what cannot be.
    #[error("the LUKS header says what cannot be: {0}")]
    Malformed(String),
    /// The volume needs something of its reader that is not known here.
    #[error(
        "the volume requires {0:?}, which is not supported; use a version of cryptsetup that knows it"
    )]
    Requirement(String),
    /// Nothing but going on can be done with a volume in between.
    #[error(
        "a reencryption of the volume was begun and has not ended; finish it, then open the volume"
    )]
    Reencrypting,
    /// The volume uses something that is known, and not supported here.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The sector cipher cannot be had.
    #[error(transparent)]
    Cipher(#[from] CipherError),
    /// No key slot that was tried opens with this passphrase.
    #[error("no key slot opens with this passphrase")]
    WrongPassphrase,
    /// The key given is not this volume's.
    #[error("this is not the volume's key")]
    WrongKey,
    /// Deriving the key would cost more than the limits allow.
    #[error(
        "key slot {slot} wants {what} of {wanted}, above the limit of {limit}: an untrusted header could stop the machine so; raise the limit if you trust this one"
    )]
    TooCostly {
        /// The slot.
        slot: u8,
        /// What is wanted.
        what: &'static str,
        /// How much of it.
        wanted: u64,
        /// How much is allowed.
        limit: u64,
    },
    /// The key cannot be derived.
    #[error("deriving the key failed: {0}")]
    Derivation(String),
    /// There is no such key slot, or it is not in use.
    #[error("key slot {0} is not in use")]
    NoSuchSlot(u8),
    /// The slot named for a new key is taken.
    #[error("key slot {0} is in use already; name another or none")]
    SlotTaken(u8),
    /// All slots are in use, or there is no room for another one's key material.
    #[error("there is no room for another key slot: {0}; remove a key first")]
    NoRoom(String),
    /// The last key slot would go.
    #[error(
        "key slot {0} is the last that opens this volume: without it only a copy of the volume key would"
    )]
    LastSlot(u8),
    /// The header holds no place for data on its own device.
    #[error("this header is detached from its data: name the device with the data too")]
    DataElsewhere,
    /// A device is too small.
    #[error("the device has {have} bytes, and {need} are needed for {what}")]
    TooSmall {
        /// What needs the room.
        what: &'static str,
        /// Bytes there are.
        have: u64,
        /// Bytes needed.
        need: u64,
    },
    /// An option of the caller cannot be met.
    #[error("{0}")]
    Option(String),
    /// A header backup cannot be put back.
    #[error(transparent)]
    Restore(#[from] RestoreRefusal),
    /// The device failed in the middle of a change of a key.
    #[error(
        "{source}; key slot {new} opens with the new passphrase, and slot {old} of the old one is still there: remove that one"
    )]
    HalfChanged {
        /// The slot that was to be replaced.
        old: u8,
        /// The one that replaces it.
        new: u8,
        /// What failed.
        source: Box<LuksError>,
    },
    /// The device below failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the device said.
        source: io::Error,
    },
}

/// For `map_err` on calls of a device.
pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> LuksError {
    move |source| LuksError::Io { what, source }
}
