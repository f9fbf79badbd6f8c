//! Encrypted volumes: an encrypted image is a [`Device`](device::Device).
//!
//! To begin with, copy `examples/luks_volume.rs`.
//!
//! 1. [`sector`]: the sector ciphers, by the names dm-crypt gives them.
//! 2. [`crypt`]: a device whose contents are those of another, decrypted.
//! 3. One module a format, each of which finds the key of a [`crypt::CryptDevice`].
//! 4. [`open()`]: whichever format it is.

#![deny(unsafe_code)]

pub mod android;
mod common;
#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;
pub mod crypt;
pub mod filevault;
pub mod luks;
mod open;
pub mod sector;
mod signs;

pub use common::{Certainty, Credential, OpenOptions, VolumeError};
pub use open::{Format, Opened, open, open_as_recognised, recognise};
pub use signs::holds;
