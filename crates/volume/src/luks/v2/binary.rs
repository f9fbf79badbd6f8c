//! The binary part of a LUKS2 header: 4096 bytes, big-endian, followed by the JSON area; a checksum covers both.
//!
//! LUKS2 On-Disk Format Specification 1.1.4, section 2.1.

use aws_lc_rs::digest;
use subtle::ConstantTimeEq;

use crate::luks::error::{LuksError, Result};
use crate::luks::hash::Hash;

/// Bytes of the binary part.
pub(in crate::luks) const LEN: usize = 4096;
/// Possible offsets of the second copy, which are also the possible lengths of a copy; bytes.
pub(in crate::luks) const SIZES: [u64; 9] = [
    0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000,
];
/// At the start of the first copy, and of a LUKS1 header.
pub(in crate::luks) const MAGIC: [u8; 6] = *b"LUKS\xba\xbe";
const MAGIC_SECOND: [u8; 6] = *b"SKUL\xba\xbe";
const CHECKSUM: std::ops::Range<usize> = 448..512;

/// What the binary part says, but for its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::luks) struct Binary {
    /// Bytes of a copy, one of [`SIZES`].
    pub(in crate::luks) size: u64,
    /// Raised by each change.
    pub(in crate::luks) seqid: u64,
    pub(in crate::luks) label: String,
    pub(in crate::luks) subsystem: String,
    pub(in crate::luks) uuid: String,
    pub(in crate::luks) checksum: Hash,
    /// Random, so that no two copies have the same checksum.
    pub(in crate::luks) salt: [u8; 64],
}

/// Whether a block starts as a copy of a header does; at the start of a device or behind.
pub(in crate::luks) fn has_magic(block: &[u8], first: bool) -> bool {
    block.starts_with(if first { &MAGIC } else { &MAGIC_SECOND })
}

impl Binary {
    /// Takes apart the copy at `offset`. The caller has seen the magic. `Damaged` for all that a torn write may leave.
    pub(in crate::luks) fn parse(block: &[u8; LEN], offset: u64) -> Result<Self> {
        let version = u16::from_be_bytes([block[6], block[7]]);
        if version != 2 {
            return Err(LuksError::Version(version));
        }
        let size = number(block, 8);
        if !SIZES.contains(&size) {
            return Err(damaged(format!("its length is {size}")));
        }
        let recorded_offset = number(block, 256);
        if recorded_offset != offset || (offset != 0 && offset != size) {
            return Err(damaged(format!(
                "it records its own offset as {recorded_offset} and its length as {size}"
            )));
        }
        let mut salt = [0; 64];
        salt.copy_from_slice(&block[104..168]);
        Ok(Self {
            size,
            seqid: number(block, 16),
            label: text(&block[24..72], "label")?,
            checksum: Hash::of_name(&text(&block[72..104], "checksum's name")?)
                .map_err(|e| damaged(e.to_string()))?,
            salt,
            uuid: text(&block[168..208], "UUID")?,
            subsystem: text(&block[208..256], "subsystem")?,
        })
    }

    /// Whether the checksum of a whole copy holds.
    pub(in crate::luks) fn checksum_holds(&self, copy: &[u8]) -> bool {
        let sum = self.checksum_of(copy);
        sum.ct_eq(&copy[CHECKSUM]).into()
    }

    fn checksum_of(&self, copy: &[u8]) -> [u8; 64] {
        let mut context = digest::Context::new(self.checksum.digest());
        context.update(&copy[..CHECKSUM.start]);
        context.update(&[0; 64]);
        context.update(&copy[CHECKSUM.end..]);
        let hashed = context.finish();
        let mut sum = [0; 64];
        sum[..hashed.as_ref().len()].copy_from_slice(hashed.as_ref());
        sum
    }

    /// A whole copy for `offset`, with its checksum. The caller saw that the JSON fits with a zero behind it.
    pub(in crate::luks) fn copy(&self, offset: u64, json: &[u8]) -> Vec<u8> {
        let size = usize::try_from(self.size).expect("at most 4 MiB");
        assert!(json.len() < size - LEN, "the caller checked the length");
        let mut copy = vec![0; size];
        let magic = if offset == 0 { MAGIC } else { MAGIC_SECOND };
        copy[..6].copy_from_slice(&magic);
        copy[6..8].copy_from_slice(&2u16.to_be_bytes());
        copy[8..16].copy_from_slice(&self.size.to_be_bytes());
        copy[16..24].copy_from_slice(&self.seqid.to_be_bytes());
        let mut put = |at: usize, text: &str| {
            copy[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(24, &self.label);
        put(72, self.checksum.name());
        put(168, &self.uuid);
        put(208, &self.subsystem);
        copy[104..168].copy_from_slice(&self.salt);
        copy[256..264].copy_from_slice(&offset.to_be_bytes());
        copy[LEN..LEN + json.len()].copy_from_slice(json);
        self.sign(&mut copy);
        copy
    }

    /// Puts the right checksum on a copy.
    pub(in crate::luks) fn sign(&self, copy: &mut [u8]) {
        let sum = self.checksum_of(copy);
        copy[CHECKSUM].copy_from_slice(&sum);
    }
}

/// Why a text does not fit into a field of `len` bytes, which ends with a zero.
pub(in crate::luks) fn check_text(what: &str, text: &str, len: usize) -> Result<()> {
    if text.len() >= len || text.chars().any(char::is_control) {
        return Err(LuksError::Option(format!(
            "a {what} has at most {} bytes, and no control characters",
            len - 1
        )));
    }
    Ok(())
}

fn number(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_be_bytes(bytes)
}

/// Text that ends with a zero. Control characters could drive the terminal of who looks at it.
pub(in crate::luks) fn text(field: &[u8], what: &str) -> Result<String> {
    let end = field
        .iter()
        .position(|b| *b == 0)
        .ok_or_else(|| damaged(format!("its {what} has no end")))?;
    match std::str::from_utf8(&field[..end]) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err(damaged(format!("its {what} is no text"))),
    }
}

fn damaged(what: String) -> LuksError {
    LuksError::Damaged(what)
}
