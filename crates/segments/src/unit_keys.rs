//! The keys of a segment's units: one for all, or one for each position.

use seal::{NoncePart, PositionCipher, PositionTree, SealError, SegmentKey, Tag};

#[derive(Debug)]
pub(crate) enum UnitKeys {
    /// One key seals all of them.
    Segment(SegmentKey),
    /// Each has its own, in a room that gives keys to clients.
    Positions(PositionTree),
}

impl UnitKeys {
    /// Whether clients get such keys, and so could seal other bytes under the same tag: then units have digests.
    pub(crate) fn are_given(&self) -> bool {
        matches!(self, Self::Positions(_))
    }

    /// What seals and opens units, fastest in the order of their positions.
    pub(crate) fn cipher(&self) -> UnitCipher<'_> {
        match self {
            Self::Segment(key) => UnitCipher::Segment(key),
            Self::Positions(tree) => UnitCipher::Positions(tree.cipher()),
        }
    }
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one on the stack for each read or append: a box would be an allocation for each"
)]
pub(crate) enum UnitCipher<'a> {
    Segment(&'a SegmentKey),
    Positions(PositionCipher<'a>),
}

impl UnitCipher<'_> {
    pub(crate) fn seal(&mut self, nonce: NoncePart, block: u32, unit: &mut [u8]) -> Tag {
        match self {
            Self::Segment(key) => key.seal(nonce, block.into(), unit),
            Self::Positions(cipher) => cipher
                .seal(nonce, block, unit)
                .expect("a tree has the keys of all positions"),
        }
    }

    pub(crate) fn open(
        &mut self,
        nonce: NoncePart,
        block: u32,
        tag: &Tag,
        unit: &mut [u8],
    ) -> Result<(), SealError> {
        match self {
            Self::Segment(key) => key.open(nonce, block.into(), tag, unit),
            Self::Positions(cipher) => cipher.open(nonce, block, tag, unit),
        }
    }
}
