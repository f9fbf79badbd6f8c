//! Keys of units by their positions, so that another machine can be given the keys of some units of a segment and no others.
//!
//! The keys are the leaves of a tree over the 2^14 block positions of a segment (Goldreich, Goldwasser and Micali, "How to
//! construct random functions", Journal of the ACM 33(4), 1986). The root comes from the data key and the segment's salt by
//! HKDF, with a purpose of its own. A node's children are
//!
//! `child(key, bit) = BLAKE3 keyed_hash(key, "strongroom v1 position" ‖ 0x00 ‖ bit)`, 0 on the left and 1 on the right.
//!
//! The bits of a position, the highest first, lead from the root to its leaf. A unit is sealed under the leaf of its first
//! block. The key of a node yields the leaves below it and nothing about any other (a constrained pseudorandom function: Boneh and
//! Waters, "Constrained pseudorandom functions and their applications", ASIACRYPT 2013, section 3).
//!
//! 1. All leaves are at depth 14, so the key of a unit is never a node with children, nor the other way round.
//! 2. The root stays in [`PositionTree`]. No [`SubtreeKey`] covers position 0, where no unit begins: so none is the root.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{KEY_LEN, NoncePart, SealError, SegmentKey, Suite, Tag};

/// Positions of a segment, in blocks.
pub const POSITIONS: u32 = 1 << DEPTH;

const DEPTH: u8 = 14;
const LABEL: &[u8; 23] = b"strongroom v1 position\0";

/// The keys of all units of a segment. They never leave the process as a whole.
pub struct PositionTree(PositionKeys);

impl PositionTree {
    pub(crate) fn new(suite: Suite, root: [u8; KEY_LEN]) -> PositionTree {
        let root = SubtreeKey {
            first: 0,
            height: DEPTH,
            key: root,
        };
        PositionTree(PositionKeys {
            suite,
            subtrees: vec![root],
        })
    }

    /// The fewest keys that yield exactly the leaves of these positions.
    ///
    /// # Panics
    /// When a range leaves the segment or has position 0, where the segment's header is.
    pub fn keys_of(&self, positions: &[Range<u32>]) -> PositionKeys {
        let mut tree = self.0.cipher();
        let mut subtrees = Vec::new();
        for mut range in joined(positions) {
            assert!(
                range.start > 0 && range.end <= POSITIONS,
                "units are at positions 1 to {}",
                POSITIONS - 1
            );
            while !range.is_empty() {
                // The largest aligned subtree that begins here and ends within the range.
                let height = range.start.trailing_zeros().min(range.len().ilog2()) as u8;
                let key = tree
                    .node(range.start, height)
                    .expect("a tree has every position");
                subtrees.push(SubtreeKey {
                    first: range.start,
                    height,
                    key: *key,
                });
                range.start += 1 << height;
            }
        }
        PositionKeys {
            suite: self.0.suite,
            subtrees,
        }
    }

    /// What seals and opens its units.
    pub fn cipher(&self) -> PositionCipher<'_> {
        self.0.cipher()
    }
}

impl fmt::Debug for PositionTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PositionTree({}, ..)", self.0.suite)
    }
}

/// Ranges in order, those that touch or overlap as one.
fn joined(ranges: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|r| !r.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u32>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The key of 2^height positions from `first` on, a multiple of that.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
struct SubtreeKey {
    first: u32,
    height: u8,
    key: [u8; KEY_LEN],
}

impl SubtreeKey {
    fn end(&self) -> u32 {
        self.first + (1 << self.height)
    }

    /// Whether somebody else's word for it can be used.
    fn is_sound(&self) -> bool {
        self.first > 0
            && self.height < DEPTH
            && self.first.is_multiple_of(1 << self.height)
            && self.first < POSITIONS
    }
}

/// The keys of some units of a segment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Received")]
pub struct PositionKeys {
    suite: Suite,
    /// By position, none within another.
    subtrees: Vec<SubtreeKey>,
}

/// The same as it arrives.
#[derive(Deserialize)]
struct Received {
    suite: Suite,
    subtrees: Vec<SubtreeKey>,
}

impl TryFrom<Received> for PositionKeys {
    type Error = &'static str;

    fn try_from(received: Received) -> Result<Self, Self::Error> {
        let Received { suite, subtrees } = received;
        // In this order: the end of one that is not sound may not be a number.
        if !subtrees.iter().all(SubtreeKey::is_sound)
            || !subtrees.is_sorted_by(|one, next| one.end() <= next.first)
        {
            return Err("not keys of positions");
        }
        Ok(PositionKeys { suite, subtrees })
    }
}

impl PositionKeys {
    /// None at all.
    pub fn none(suite: Suite) -> PositionKeys {
        PositionKeys {
            suite,
            subtrees: Vec::new(),
        }
    }

    /// The positions whose units they open, in order; ranges may touch.
    pub fn positions(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.subtrees
            .iter()
            .map(|subtree| subtree.first..subtree.end())
    }

    /// What seals and opens units.
    pub fn cipher(&self) -> PositionCipher<'_> {
        PositionCipher {
            keys: self,
            path: Zeroizing::new([[0; KEY_LEN]; DEPTH as usize + 1]),
            last: None,
        }
    }
}

impl fmt::Debug for PositionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let positions: Vec<_> = self.positions().collect();
        write!(f, "PositionKeys({}, {positions:?})", self.suite)
    }
}

/// Seals and opens units under the keys of their positions. It keeps the way to the last one, so that its neighbours take a few
/// steps only.
pub struct PositionCipher<'a> {
    keys: &'a PositionKeys,
    /// The keys on the way to the last node, by height.
    path: Zeroizing<[[u8; KEY_LEN]; DEPTH as usize + 1]>,
    /// The first position and the height of the last node, and the height of the subtree it is in.
    last: Option<(u32, u8, u8)>,
}

impl PositionCipher<'_> {
    /// Seals a unit as [`SegmentKey::seal`] does; `None`, and nothing is sealed, without the key of its first block.
    ///
    /// The caller never seals the same block twice with a segment's keys.
    pub fn seal(&mut self, nonce: NoncePart, block: u32, unit: &mut [u8]) -> Option<Tag> {
        Some(self.unit_key(block)?.seal(nonce, block.into(), unit))
    }

    /// Opens a unit as [`SegmentKey::open`] does.
    ///
    /// # Errors
    /// [`SealError::Corrupt`] as there, also without the key of its first block.
    pub fn open(
        &mut self,
        nonce: NoncePart,
        block: u32,
        tag: &Tag,
        unit: &mut [u8],
    ) -> Result<(), SealError> {
        match self.unit_key(block) {
            Some(key) => key.open(nonce, block.into(), tag, unit),
            None => {
                unit.fill(0);
                Err(SealError::Corrupt {
                    block: block.into(),
                })
            }
        }
    }

    fn unit_key(&mut self, block: u32) -> Option<SegmentKey> {
        let suite = self.keys.suite;
        let key = self.node(block, 0)?;
        Some(SegmentKey::from_bytes(suite, key))
    }

    /// The key of the node above the positions from `first` on; `None` where the keys at hand do not yield it.
    fn node(&mut self, first: u32, height: u8) -> Option<&[u8; KEY_LEN]> {
        let mut at = self.known_above(first, height)?;
        while at > height {
            at -= 1;
            let bit = (first >> at & 1) as u8;
            self.path[usize::from(at)] = child(&self.path[usize::from(at) + 1], bit);
        }
        let (_, _, top) = self.last?;
        self.last = Some((first, height, top));
        Some(&self.path[usize::from(height)])
    }

    /// Height of the lowest node on the way that is known already.
    fn known_above(&mut self, first: u32, height: u8) -> Option<u8> {
        if let Some((last, reached, top)) = self.last {
            let common = (u32::BITS - (last ^ first).leading_zeros()) as u8;
            if common <= top {
                return Some(common.max(reached).max(height));
            }
        }
        let subtrees = &self.keys.subtrees;
        let after = subtrees.partition_point(|subtree| subtree.first <= first);
        let subtree = subtrees.get(after.checked_sub(1)?)?;
        if first >= subtree.end() || height > subtree.height {
            return None;
        }
        let top = subtree.height;
        self.path[usize::from(top)] = subtree.key;
        self.last = Some((first, top, top));
        Some(top)
    }
}

impl fmt::Debug for PositionCipher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PositionCipher({:?})", self.keys)
    }
}

fn child(key: &[u8; KEY_LEN], bit: u8) -> [u8; KEY_LEN] {
    let mut input = [0; LABEL.len() + 1];
    input[..LABEL.len()].copy_from_slice(LABEL);
    input[LABEL.len()] = bit;
    *blake3::keyed_hash(key, &input).as_bytes()
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "one range of positions")]
mod tests {
    use super::*;
    use crate::{BLOCK_LEN, MasterKey, RoomId};

    fn tree(suite: Suite, salt: u8) -> PositionTree {
        let data = MasterKey::from_bytes(&[7; 32]).data_key(&RoomId::from_bytes([1; 16]));
        data.position_tree(suite, &[salt; 32])
    }

    /// The key of a unit, by the definition: all steps from the root.
    fn by_definition(tree: &PositionTree, block: u32) -> [u8; KEY_LEN] {
        let mut key = tree.0.subtrees[0].key;
        for height in (0..DEPTH).rev() {
            key = child(&key, (block >> height & 1) as u8);
        }
        key
    }

    #[test]
    fn given_keys_open_exactly_the_positions_they_were_given_for() {
        let tree = tree(Suite::Aes256Gcm, 1);
        let mut seed = 88_172_645_463_325_252_u64;
        let mut random = |below: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 33) as u32 % below
        };
        let mut cases = vec![
            vec![1..POSITIONS],
            vec![1..2],
            vec![POSITIONS - 1..POSITIONS],
            vec![],
        ];
        for _ in 0..6 {
            let ranges = (0..random(6)).map(|_| {
                let start = 1 + random(POSITIONS - 1);
                start..(start + random(300)).min(POSITIONS)
            });
            cases.push(ranges.collect());
        }
        for ranges in cases {
            let keys = tree.keys_of(&ranges);
            let mut cipher = keys.cipher();
            for block in 0..POSITIONS {
                let given = ranges.iter().any(|range| range.contains(&block));
                let found = cipher.node(block, 0).copied();
                let expected = given.then(|| by_definition(&tree, block));
                assert_eq!(found, expected, "block {block} of {ranges:?}");
            }
            // In any order too.
            for _ in 0..300 {
                let block = random(POSITIONS);
                let given = ranges.iter().any(|range| range.contains(&block));
                let expected = given.then(|| by_definition(&tree, block));
                assert_eq!(cipher.node(block, 0).copied(), expected);
            }
        }
    }

    #[test]
    fn the_fewest_keys_are_given_and_never_the_root() {
        let tree = tree(Suite::Aes256Gcm, 1);
        let of = |ranges: &[Range<u32>]| -> Vec<Range<u32>> {
            tree.keys_of(ranges).positions().collect()
        };
        assert_eq!(of(&[1024..2048]), [1024..2048]);
        assert_eq!(of(&[12..16, 8..12, 9..10]), [8..16]);
        assert_eq!(of(&[1..8]), [1..2, 2..4, 4..8]);
        // All units of a segment: half of it, a quarter, and so on.
        let all = of(&[1..POSITIONS]);
        assert_eq!(all.len(), 14);
        assert_eq!(all.last(), Some(&(8192..POSITIONS)));
    }

    #[test]
    fn a_unit_opens_only_under_its_position_suite_and_segment() {
        let part = NoncePart([0, 0, 0, 9]);
        for suite in Suite::ALL {
            let (tree, other) = (tree(suite, 1), tree(suite, 2));
            let mut unit = vec![0x5a; BLOCK_LEN];
            let tag = tree.cipher().seal(part, 77, &mut unit).unwrap();
            let open = |keys: &PositionKeys, block: u32| {
                let mut bytes = unit.clone();
                let opened = keys.cipher().open(part, block, &tag, &mut bytes).is_ok();
                assert_eq!(opened, bytes == vec![0x5a; BLOCK_LEN]);
                opened
            };
            assert!(open(&tree.keys_of(&[77..78]), 77));
            assert!(open(&tree.keys_of(&[64..80]), 77));
            assert!(!open(&tree.keys_of(&[64..80]), 76));
            assert!(!open(&tree.keys_of(&[64..77, 78..100]), 77));
            assert!(!open(&other.keys_of(&[64..80]), 77));
            assert!(
                tree.keys_of(&[1..77])
                    .cipher()
                    .seal(part, 77, &mut unit)
                    .is_none()
            );
        }
    }

    #[test]
    fn what_arrives_is_sorted_disjoint_aligned_and_without_position_0() {
        let subtree = |first, height| serde_json::json!({"first": first, "height": height, "key": vec![9; 32]});
        let read = |subtrees: Vec<serde_json::Value>| {
            let text =
                serde_json::json!({"suite": "aes-256-gcm", "subtrees": subtrees}).to_string();
            serde_json::from_str::<PositionKeys>(&text).is_ok()
        };
        assert!(read(vec![]));
        assert!(read(vec![subtree(1, 0), subtree(2, 1), subtree(8192, 13)]));
        // The whole segment, its first half, beyond it, not aligned, one within the other, not in order.
        assert!(!read(vec![subtree(0, 14)]));
        assert!(!read(vec![subtree(0, 13)]));
        assert!(!read(vec![subtree(16_384, 0)]));
        assert!(!read(vec![subtree(16_384, 14)]));
        assert!(!read(vec![subtree(3, 1)]));
        assert!(!read(vec![subtree(4, 2), subtree(5, 0)]));
        assert!(!read(vec![subtree(8, 0), subtree(4, 0)]));
        assert!(!read(vec![subtree(4, 200)]));
    }
}
