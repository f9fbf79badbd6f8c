//! What is new in the map of a chunk: some of its blocks, and the extents that they have now.
//!
//! 1. An edit says what its blocks are, not how they differ. So it may be applied again, and several may, in the same order: each block has
//!    what the last edit of it says.
//! 2. An edit between two maps makes exactly the second of the first, in the stored form too.
//!
//! The stored form: the blocks as a byte with the number of their runs, for each its first block and its number of blocks less one; then
//! the records of the map that are within them ([`code`](super::code)).

use super::code::put_reserved;
use super::reserved::BlockSet;
use super::{Chunk, KeptChunk};

/// New extents for some blocks of a chunk. A block without one is a hole, with or without a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapEdit {
    pub(super) blocks: BlockSet,
    chunk: Chunk,
}

/// The stored form of a map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// All of it.
    pub map: Vec<u8>,
    /// The [`MapEdit`] that makes it of the one before, where there is one and that is shorter.
    pub edit: Option<Vec<u8>>,
}

impl Chunk {
    /// The stored form of a map that follows another one: faster than [`encode`](Self::encode) where they have much in common. Empty: there
    /// is none before.
    pub fn encode_after(&self, old: &[u8]) -> Encoded {
        let after = (!old.is_empty()).then(|| after(self, old, Vec::new(), BlockSet::default()));
        after.flatten().unwrap_or_else(|| Encoded {
            map: self.encode(),
            edit: None,
        })
    }
}

impl KeptChunk {
    /// The same as [`Chunk::encode_after`]. There is no edit to one that covers less.
    pub fn encode_after(&self, old: &[u8]) -> Encoded {
        self.encode_covered_after(old).unwrap_or_else(|| Encoded {
            map: self.encode(),
            edit: None,
        })
    }

    fn encode_covered_after(&self, mut old: &[u8]) -> Option<Encoded> {
        let before = BlockSet::decode(&mut old).ok()?;
        if !before.without(&self.covered).is_empty() {
            return None;
        }
        let mut out = Vec::with_capacity(old.len() + 512);
        self.covered.encode(&mut out);
        after(self.chunk(), old, out, self.covered.without(&before))
    }
}

/// Appends a map to `out`. Its edit is of these blocks and of those that differ.
fn after(chunk: &Chunk, old: &[u8], mut out: Vec<u8>, mut blocks: BlockSet) -> Option<Encoded> {
    out.reserve(old.len() + 256);
    let mut extents = Vec::new();
    // An extent that both maps have shares no block with one that only one has, so that each is all in the edit or not at all.
    chunk.put_after(old, &mut out, &mut blocks, &mut extents)?;
    let mut edit = Vec::with_capacity(extents.len() + 16);
    blocks.encode(&mut edit);
    edit.extend_from_slice(&extents);
    let others = chunk.reserved.without(&blocks);
    put_reserved(&chunk.reserved.without(&others), &mut edit);
    let edit = (edit.len() < out.len()).then_some(edit);
    Some(Encoded { map: out, edit })
}

impl MapEdit {
    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let blocks = BlockSet::decode(&mut bytes)?;
        let chunk = Chunk::decode(bytes)?;
        let extents = chunk
            .extents()
            .iter()
            .map(|extent| (extent.first, extent.end()));
        for (first, end) in extents.chain(chunk.reserved.runs()) {
            if blocks.count_within(first, end) != u32::from(end - first) {
                return Err(format!("block {first} is not all of the edit's"));
            }
        }
        Ok(Self { blocks, chunk })
    }

    /// Whether it reserves blocks: not what is kept for snapshots.
    pub fn reserves(&self) -> bool {
        !self.chunk.reserved.is_empty()
    }

    /// Puts the new extents in the place of those that the blocks have.
    pub fn apply(&self, chunk: &mut Chunk) {
        for (first, end) in self.blocks.runs() {
            chunk.reserved.remove(first, end);
            let lo = chunk.first_ending_after(first);
            let hi = lo + chunk.extents[lo..].partition_point(|extent| extent.first < end);
            // Nothing is joined: where the writer did not, the map would be another.
            chunk.put(lo, hi, first, end, &self.chunk.slice(first, end - first));
        }
        chunk.reserved = chunk.reserved.with(&self.chunk.reserved);
    }
}
