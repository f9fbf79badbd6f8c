//! Keys, key slots, the header, and the sealing of file data: pure functions over bytes.
//!
//! To begin with, copy `examples/seal_and_open.rs`.
//!
//! Invariants:
//! 1. A key has a type for its purpose, is wiped when dropped, and is never printed.
//! 2. A nonce is used once with a key: by structure for data ([`SegmentKey`], [`PositionTree`]), where a [`NoncePart`] keeps
//!    copies of one memory apart, at random from 192 bits for key slots.
//! 3. Nothing that does not verify is handed out.
//!
//! It deliberately does not know files, directories or time limits: it reads no file and asks nobody
//! anything. (An age plugin recipient or identity starts its plugin's program when used, inside the age
//! library.)

#![deny(unsafe_code)]

mod cost;
mod credential;
mod derive;
mod error;
mod fastest;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod keys;
#[allow(
    unsafe_code,
    reason = "locked pages for keys; every use is argued there"
)]
mod memory;
mod plugin;
mod positions;
mod recipients;
mod record;
mod rekey;
mod room_id;
mod secret;
mod segment;
mod slot;
mod slot_kind;
mod suite;
mod wrap;

pub use cost::Argon2Cost;
pub use credential::{Credential, NewCredential};
pub use derive::SALT_LEN;
pub use error::{HeaderError, SealError};
pub use header::{FORMAT, Header, Unlocked};
pub use keys::{
    CatalogKey, DataKey, HeaderKey, MasterKey, MomentKey, PageDigestKey, SegmentHeaderKey,
};
pub use memory::{ProcessMark, protect_process};
pub use model::{
    BLOCK_LEN, DIGEST_LEN, Digest, NONCE_PART_LEN, NoncePart, Proofs, TAG_LEN, Tag, UNIT_LEN,
};
pub use plugin::UNATTENDED as UNATTENDED_PLUGIN;
pub use positions::{POSITIONS, PositionCipher, PositionKeys, PositionTree};
pub use recipients::{NamedIdentity, NamedRecipient, parse_identities, recipient_plugin};
pub use record::{ChangesKey, LogKey};
pub use room_id::RoomId;
pub use secret::Secret;
pub use segment::{SegmentKey, check_digest, nonce_part, unit_digest};
pub use slot::SlotInfo;
pub use slot_kind::SlotKind;
pub use suite::Suite;
pub use wrap::WrappedKey;

pub use age;

/// Bytes in every key.
pub const KEY_LEN: usize = 32;
/// Bytes in a message authentication code.
pub const MAC_LEN: usize = 32;
/// The most key slots a header holds; they are numbered from 0.
pub const SLOTS_MAX: usize = 32;
/// The most bytes a header has.
pub const HEADER_LEN_MAX: usize = 256 * 1024;
/// The most bytes in a slot's label.
pub const LABEL_LEN_MAX: usize = 128;
