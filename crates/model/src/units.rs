//! How file data is cut into units and where a unit is: blocks, units, segments by number.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// Bytes in a block of a segment file, the grain of positions.
pub const BLOCK_LEN: usize = 4096;
/// The most bytes sealed at once, and the length of every unit but a file's last. A multiple of [`BLOCK_LEN`].
pub const UNIT_LEN: usize = 16384;
/// Bytes in a [`Tag`].
pub const TAG_LEN: usize = 16;
/// Bytes in a [`Digest`].
pub const DIGEST_LEN: usize = 32;
/// Blocks of 4 KiB in one sealed unit (the last unit of an append may be shorter).
pub const UNIT_BLOCKS: u32 = (UNIT_LEN / BLOCK_LEN) as u32;

/// What proves a sealed unit genuine. It lives in the catalog, beside the extent it belongs to.
pub type Tag = [u8; TAG_LEN];

/// The tags of a range's units. One alone takes no allocation: files that are written here and there have many such units.
pub type Tags = SmallVec<[Tag; 1]>;

/// Bytes of a [`NoncePart`].
pub const NONCE_PART_LEN: usize = 4;

/// The part of a unit's nonce that is not its position: random for each append, zeros in rooms without the feature
/// `append-nonces`. It is no secret. It is in the catalog, beside the extent it belongs to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NoncePart(pub [u8; NONCE_PART_LEN]);

impl NoncePart {
    /// What rooms without the feature `append-nonces` have.
    pub const NONE: NoncePart = NoncePart([0; NONCE_PART_LEN]);
}

/// What binds a sealed unit to one content, also for a holder of its key. It is in the catalog, beside the tag.
pub type Digest = [u8; DIGEST_LEN];

/// What it takes to open the units of a range of one append, and what they are checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proofs<'a> {
    /// The random part of their nonces.
    pub nonce: NoncePart,
    /// One for each unit.
    pub tags: &'a [Tag],
    /// One for each unit of a segment that clients write to; none otherwise.
    pub digests: &'a [Digest],
}

impl<'a> From<&'a [Tag]> for Proofs<'a> {
    fn from(tags: &'a [Tag]) -> Self {
        Self {
            nonce: NoncePart::NONE,
            tags,
            digests: &[],
        }
    }
}

impl Proofs<'_> {
    /// Those of the units from index `from` to before index `to`.
    #[must_use]
    pub fn slice(self, from: usize, to: usize) -> Self {
        let digests = match self.digests {
            [] => &[],
            all => &all[from..to],
        };
        Self {
            nonce: self.nonce,
            tags: &self.tags[from..to],
            digests,
        }
    }

    /// Whether there is one of each kind for so many units.
    pub fn fit(&self, units: usize) -> bool {
        self.tags.len() == units && (self.digests.is_empty() || self.digests.len() == units)
    }
}

/// Number of a segment, from 1, never used again. Its file name is the number in 20 decimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentNo(pub u64);

/// Where an append was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The segment.
    pub segment: SegmentNo,
    /// Index of the first 4 KiB block in the segment file; block 0 is the segment's header.
    pub position: u32,
    /// Blocks written.
    pub blocks: u32,
    /// The random part of the nonces of all its units.
    pub nonce: NoncePart,
    /// One tag for each unit of [`UNIT_BLOCKS`] blocks, the last unit possibly shorter.
    #[serde(serialize_with = "put_tags", deserialize_with = "take_tags")]
    pub tags: Tags,
    /// One digest for each unit where clients write to segments; otherwise none.
    pub digests: Vec<Digest>,
}

impl Sealed {
    /// What its units are checked against.
    pub fn proofs(&self) -> Proofs<'_> {
        Proofs {
            nonce: self.nonce,
            tags: &self.tags,
            digests: &self.digests,
        }
    }

    /// The blocks written.
    pub fn range(&self) -> BlockRange {
        BlockRange {
            segment: self.segment,
            position: self.position,
            blocks: self.blocks,
        }
    }
}

/// Tags as a sequence.
pub(crate) fn put_tags<S: Serializer>(tags: &[Tag], serializer: S) -> Result<S::Ok, S::Error> {
    tags.serialize(serializer)
}

/// Reads as many as there are: `SmallVec` would reserve what their number says.
pub(crate) fn take_tags<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tags, D::Error> {
    Ok(Tags::from_slice(&Vec::<Tag>::deserialize(deserializer)?))
}

/// A range of blocks in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockRange {
    /// The segment.
    pub segment: SegmentNo,
    /// Index of the first block.
    pub position: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl BlockRange {
    /// Whether a unit is in the range, which is of whole units.
    pub(crate) fn has(&self, unit: &Self) -> bool {
        self.segment == unit.segment && unit.position.wrapping_sub(self.position) < self.blocks
    }
}
