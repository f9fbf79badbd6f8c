//! Write grants: what other machines may write, each position once.
//!
//! 1. A grant is like an append under way: its positions are its client's alone, and its segment stays for as long as the
//!    grant does.
//! 2. Blocks committed under a grant and discarded again are released to the storage only when the grant is over: until
//!    then the client may write there.
//!
//! It deliberately does not know how the other machine reaches the segments, or whether it may.

use std::collections::{BTreeMap, HashMap};

use catalog::{BlockRange, SegmentNo};
use model::{WriteGrantId, WrittenExtent};
use seal::RoomId;
use segments::{GRANT_BLOCKS_MAX, NoncePart};

use crate::{Error, Result};

/// Blocks of a segment that one client alone may write, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteGrant {
    /// Its number.
    pub id: WriteGrantId,
    /// The segment.
    pub segment: SegmentNo,
    /// The first block.
    pub position: u32,
    /// How many.
    pub blocks: u32,
    /// Whether the borrower draws a part of the nonces for each append: see [`nonce_part`](Self::nonce_part).
    pub append_nonces: bool,
}

impl WriteGrant {
    /// The random part of the nonces of one append by the borrower.
    pub fn nonce_part(&self) -> std::io::Result<NoncePart> {
        seal::nonce_part(self.append_nonces)
    }
}

/// The grants of a room.
#[derive(Debug)]
pub(crate) struct Grants {
    /// Begins at random: a client that commits to a grant of an earlier opening must not meet another one by its number.
    last: u64,
    live: HashMap<WriteGrantId, Granted>,
    /// Where each begins: grants do not overlap.
    by_position: BTreeMap<(SegmentNo, u32), WriteGrantId>,
    /// Discarded ranges, to be released when the grants that contain them are over.
    held: Vec<BlockRange>,
}

#[derive(Debug)]
struct Granted {
    range: BlockRange,
    /// A bit for each block: whether it was committed.
    written: [u64; GRANT_BLOCKS_MAX as usize / 64],
}

impl Granted {
    /// Notes that a range is committed; false, and no change, where it is not within the grant or was committed before.
    fn note(&mut self, range: BlockRange) -> bool {
        let Some(first) = range.position.checked_sub(self.range.position) else {
            return false;
        };
        if range.segment != self.range.segment
            || first >= self.range.blocks
            || range.blocks > self.range.blocks - first
        {
            return false;
        }
        let bits = first as usize..(first + range.blocks) as usize;
        if bits
            .clone()
            .any(|at| self.written[at / 64] >> (at % 64) & 1 == 1)
        {
            return false;
        }
        bits.for_each(|at| self.written[at / 64] |= 1 << (at % 64));
        true
    }
}

impl Default for Grants {
    fn default() -> Self {
        let [first, second, third, fourth, ..] = *RoomId::random().as_bytes();
        Self {
            last: u64::from(u32::from_le_bytes([first, second, third, fourth])) << 32,
            live: HashMap::new(),
            by_position: BTreeMap::new(),
            held: Vec::new(),
        }
    }
}

impl Grants {
    pub(crate) fn begin(&mut self, range: BlockRange) -> WriteGrantId {
        self.last += 1;
        let id = WriteGrantId(self.last);
        let written = [0; GRANT_BLOCKS_MAX as usize / 64];
        self.live.insert(id, Granted { range, written });
        self.by_position.insert((range.segment, range.position), id);
        id
    }

    /// Notes that all of these are committed, or nothing.
    pub(crate) fn note(&mut self, grant: WriteGrantId, extents: &[WrittenExtent]) -> Result<()> {
        let granted = self.live.get_mut(&grant).ok_or(Error::NotFound)?;
        let before = granted.written;
        if extents.iter().all(|p| granted.note(p.sealed.range())) {
            return Ok(());
        }
        granted.written = before;
        Err(Error::InvalidArgument(
            "an extent is within its grant, and committed once",
        ))
    }

    /// The segment of a grant that is over, and what may be released now.
    pub(crate) fn end(&mut self, grant: WriteGrantId) -> Option<(SegmentNo, Vec<BlockRange>)> {
        let granted = self.live.remove(&grant)?;
        let segment = granted.range.segment;
        self.by_position.remove(&(segment, granted.range.position));
        let held = std::mem::take(&mut self.held);
        Some((segment, self.hold_back(held)))
    }

    /// Keeps ranges within grants that are not over, and returns what may be released.
    pub(crate) fn hold_back(&mut self, mut released: Vec<BlockRange>) -> Vec<BlockRange> {
        let held = released.extract_if(.., |range| {
            let until = (range.segment, range.position.saturating_add(range.blocks));
            let before = self.by_position.range(..until).next_back();
            before.is_some_and(|((segment, position), id)| {
                *segment == range.segment
                    && self
                        .live
                        .get(id)
                        .is_some_and(|granted| position + granted.range.blocks > range.position)
            })
        });
        self.held.extend(held);
        released
    }
}
