//! Sealing and opening the units of file data.
//!
//! Invariants:
//! 1. A segment's key seals each position once; the caller never writes a position twice.
//! 2. Two copies of one memory (a virtual machine resumed twice) know the same key and next position: each draws its own
//!    [`NoncePart`] for each append.
//! 3. Nothing that does not verify is handed out: a buffer whose opening failed holds zeros.

use std::fmt;

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::{
    BLOCK_LEN, Digest, KEY_LEN, NONCE_PART_LEN, NoncePart, Proofs, SealError, Suite, Tag, UNIT_LEN,
};

/// The part of the nonces of the next append: drawn from the operating system where `append_nonces` says that the room has
/// them, else [`NoncePart::NONE`]. Drawing some ahead would defeat their purpose: a copy of the memory would have the same.
///
/// # Errors
/// The system has no random numbers.
pub fn nonce_part(append_nonces: bool) -> std::io::Result<NoncePart> {
    let mut part = NoncePart::NONE;
    if append_nonces {
        getrandom::fill(&mut part.0).map_err(std::io::Error::other)?;
    }
    Ok(part)
}

/// BLAKE3 of a unit's sealed bytes. It is collision resistant, which the tags of both suites are not for a holder of the key.
pub fn unit_digest(sealed: &[u8]) -> Digest {
    *blake3::hash(sealed).as_bytes()
}

/// Checks that the sealed bytes of the unit at this index are those that were committed, and no others under the same tag.
///
/// # Errors
/// [`SealError::MacMismatch`] where they are not; where there is no digest but one is `needed`.
pub fn check_digest(
    proofs: Proofs<'_>,
    unit: usize,
    sealed: &[u8],
    needed: bool,
) -> Result<(), SealError> {
    let holds = match proofs.digests.get(unit) {
        Some(digest) => unit_digest(sealed) == *digest,
        None => !needed,
    };
    match holds {
        true => Ok(()),
        false => Err(SealError::MacMismatch),
    }
}

/// The key of one segment, or of one of its units. Sharing it between threads needs no lock.
pub struct SegmentKey {
    suite: Suite,
    key: LessSafeKey,
}

impl SegmentKey {
    pub(crate) fn from_bytes(suite: Suite, key: &[u8; KEY_LEN]) -> SegmentKey {
        // Both suites have 32-byte keys, the only thing that could be refused.
        let key = UnboundKey::new(suite.algorithm(), key).expect("both suites take 32-byte keys");
        SegmentKey {
            suite,
            key: LessSafeKey::new(key),
        }
    }

    /// The suite it seals with.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The nonce of a unit, 12 bytes (RFC 5116, section 3.2; NIST SP 800-38D, section 8.2.1): the append's part of it, 4
    /// bytes, then the index of the unit's first 4 KiB block in the segment file, 8 bytes, most significant first.
    ///
    /// The key is fresh for each segment and a position is written once, so no nonce is used twice by one writer. A copy of
    /// the writer's memory writes other data to the same positions: there the part differs. Units
    /// of different lengths need no mark of it: they start at different blocks, and the tag covers the
    /// length. There is no associated data: the room, the suite and the segment are in the key.
    fn nonce(part: NoncePart, block: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..NONCE_PART_LEN].copy_from_slice(&part.0);
        nonce[NONCE_PART_LEN..].copy_from_slice(&block.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals a unit in place: `unit` becomes its ciphertext, of the same length.
    ///
    /// `part` is the append's. `block` is the index of the unit's first 4 KiB block in the segment file. `unit` has a multiple of
    /// [`BLOCK_LEN`] bytes, from one block to [`UNIT_LEN`]; another length is a bug of the caller and
    /// panics.
    ///
    /// The caller never seals the same block twice with a key.
    pub fn seal(&self, part: NoncePart, block: u64, unit: &mut [u8]) -> Tag {
        assert_unit_len(unit.len());
        let tag = self
            .key
            .seal_in_place_separate_tag(Self::nonce(part, block), Aad::empty(), unit);
        // The ciphers refuse only inputs of many gigabytes.
        let tag = tag.expect("a unit is within the cipher's bounds");
        tag.as_ref()
            .try_into()
            .expect("both suites have 16-byte tags")
    }

    /// Opens a unit in place. When it fails, `unit` holds zeros. Lengths as for [`SegmentKey::seal`].
    ///
    /// # Errors
    /// [`SealError::Corrupt`] when the bytes are not what was sealed here: restore them from a copy.
    pub fn open(
        &self,
        part: NoncePart,
        block: u64,
        tag: &Tag,
        unit: &mut [u8],
    ) -> Result<(), SealError> {
        assert_unit_len(unit.len());
        match self
            .key
            .open_in_place_separate_tag(Self::nonce(part, block), Aad::empty(), tag, unit)
        {
            Ok(_) => Ok(()),
            Err(_) => {
                unit.fill(0);
                Err(SealError::Corrupt { block })
            }
        }
    }
}

impl fmt::Debug for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentKey({}, ..)", self.suite)
    }
}

fn assert_unit_len(len: usize) {
    assert!(
        len != 0 && len <= UNIT_LEN && len.is_multiple_of(BLOCK_LEN),
        "a unit of {len} bytes: it has whole blocks of {BLOCK_LEN}, at most {UNIT_LEN} bytes"
    );
}
