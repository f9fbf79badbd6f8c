//! A device whose contents are those of another, decrypted.

use std::sync::Arc;

use device::Device;

use crate::sector::SectorCipher;

/// Where the encrypted contents lie in the device below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes, whole sectors.
    pub len: u64,
    /// Number that the first sector has for the cipher, in units of 512 bytes.
    pub iv_offset: u64,
}

/// The decrypted contents of a device.
#[allow(dead_code)] // Filled in next.
pub struct CryptDevice {
    below: Arc<dyn Device>,
    cipher: SectorCipher,
    at: Extent,
}

impl CryptDevice {
    /// The part `at` of `below`, decrypted by `cipher`.
    pub fn new(below: Arc<dyn Device>, cipher: SectorCipher, at: Extent) -> Self {
        Self { below, cipher, at }
    }
}
