//! The first 512 bytes of a CoreStorage physical volume; little-endian.

use device::Device;
use zeroize::Zeroizing;

use crate::common::{VolumeError, io_error};

/// Bytes of it.
pub(crate) const LEN: usize = 512;
/// The offset of "CS" in the `LEN` bytes.
const SIGNATURE: std::ops::Range<usize> = 88..90;

/// The header, parsed.
#[derive(Debug)]
pub(crate) struct Header {
    /// Bytes of a block, a power of two from 512 to 65536.
    pub(super) block_size: u64,
    /// Blocks that hold copies of the first metadata.
    pub(super) metadata_at: [u64; 4],
    /// Both halves of the key of the encrypted metadata.
    pub(super) key: Zeroizing<[u8; 32]>,
}

impl Header {
    /// The header of a device; `None` where there is no trace of one.
    pub(crate) fn read(device: &dyn Device) -> Result<Option<Self>, VolumeError> {
        if device.len() < LEN as u64 {
            return Ok(None);
        }
        let mut bytes = [0; LEN];
        device
            .read_at(&mut bytes, 0)
            .map_err(io_error("reading the header"))?;
        if !Self::shows(&bytes) {
            return Ok(None);
        }
        Self::parse(&bytes).map(Some)
    }

    /// Whether the signature is there.
    pub(crate) fn shows(bytes: &[u8]) -> bool {
        bytes.get(SIGNATURE) == Some(b"CS") && bytes.get(8..12) == Some(&[1, 0, 0x10, 0])
    }

    /// Checks and takes apart.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Result<Self, VolumeError> {
        if !Self::shows(bytes) {
            return Err(VolumeError::NotAVolume);
        }
        if !checksum_holds(bytes) {
            return Err(VolumeError::Damaged(
                "the checksum of the CoreStorage header is wrong".to_owned(),
            ));
        }
        let cipher = u32_at(bytes, 172);
        if cipher != 2 {
            return Err(VolumeError::Unsupported(format!(
                "CoreStorage with cipher {cipher}; 2 (AES-XTS-128) is known"
            )));
        }
        let block_size = u32_at(bytes, 96);
        if !block_size.is_power_of_two() || !(512..=65536).contains(&block_size) {
            return Err(VolumeError::Damaged(format!(
                "blocks of {block_size} bytes in the CoreStorage header"
            )));
        }
        let mut key = Zeroizing::new([0; 32]);
        key[..16].copy_from_slice(&bytes[176..192]);
        key[16..].copy_from_slice(&bytes[304..320]);
        Ok(Self {
            block_size: block_size.into(),
            metadata_at: [104, 112, 120, 128].map(|at| u64_at(bytes, at)),
            key,
        })
    }
}

/// Whether a block's CRC-32C is right: the sum, the value it begins with, then what it is over.
pub(super) fn checksum_holds(block: &[u8]) -> bool {
    block.len() >= 8 && checksum(block) == u32_at(block, 0)
}

/// There must be 8 bytes.
fn checksum(block: &[u8]) -> u32 {
    const CRC32C: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    // The library turns the bits of its first value, and the result over.
    let mut sum = CRC32C.digest_with_initial(u32_at(block, 4).reverse_bits());
    sum.update(&block[8..]);
    !sum.finalize()
}

/// The same block with the right sum: for what a fuzzer gives.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn with_checksum<const N: usize>(mut block: [u8; N]) -> [u8; N] {
    let sum = checksum(&block);
    block[..4].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The bytes must be there.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The bytes must be there.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// The bytes must be there.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
