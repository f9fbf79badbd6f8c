//! The first block of a store: whose disk it is, and what is remembered of it.
//!
//! 1. It carries its hash: one that is damaged is refused.
//! 2. What changes in it is there twice, in its first and in its last sector. So where the power goes while it is written, and some sectors are of
//!    before, it still says whose disk this is.
//!
//! `docs/netdisk.md` has the bytes.

use crate::bytes::{array_at, u64_at};
use crate::frame::ROOM_LEN;
use crate::{BLOCK_LEN, DiskId};

pub(crate) const MAGIC: [u8; 8] = *b"SRNETDSK";
pub(crate) const VERSION: u32 = 1;
/// Bytes of the first block that its hash covers.
pub(crate) const HASHED: usize = BLOCK_LEN - 32;
/// Where [`Changing`] is in the first block, and where its copy is, in the sector of the hash.
pub(crate) const CHANGING: usize = 40;
pub(crate) const COPY: usize = HASHED - 8 - ROOM_LEN;
/// In the place of a room's id where no room has the disk.
pub(crate) const NO_ROOM: [u8; ROOM_LEN] = [0; ROOM_LEN];

/// What changes in the first block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changing {
    /// Openings in which a flush failed.
    pub(crate) failures: u64,
    /// The room that has the disk, or [`NO_ROOM`].
    pub(crate) room: [u8; ROOM_LEN],
}

impl Changing {
    fn at(block: &[u8], at: usize) -> Self {
        Self {
            failures: u64_at(block, at),
            room: array_at(block, at + 8),
        }
    }

    fn put(self, block: &mut [u8], at: usize) {
        block[at..at + 8].copy_from_slice(&self.failures.to_le_bytes());
        block[at + 8..at + 8 + ROOM_LEN].copy_from_slice(&self.room);
    }

    /// Of a first block as it is, or of which the first sector and the last one are of two writes that followed each other. `None` where it is
    /// damaged in another way.
    pub(crate) fn of(block: &[u8]) -> Option<Self> {
        let holds = |block: &[u8]| {
            blake3::hash(&block[..HASHED]) == blake3::Hash::from_bytes(array_at(block, HASHED))
        };
        let here = Self::at(block, CHANGING);
        if holds(block) {
            return Some(here);
        }
        // The last sector's; and where that is of a version that had no copy there, what this version may have changed.
        let (room, failures) = (NO_ROOM, here.failures.wrapping_sub(1));
        let could_be = [
            Self::at(block, COPY),
            Self { room, ..here },
            Self { failures, ..here },
        ];
        let found = could_be.into_iter().find(|other| {
            let mut whole = block.to_vec();
            other.put(&mut whole, CHANGING);
            other.failures.abs_diff(here.failures) <= 1 && holds(&whole)
        })?;
        tracing::warn!(
            "the power went while the store's first block was written; it is used as it was meant"
        );
        Some(Self {
            // A failure that may have been reported counts.
            failures: found.failures.max(here.failures),
            ..found
        })
    }
}

/// The first block.
pub(crate) fn head(
    id: DiskId,
    blocks: u64,
    failures: u64,
    room: [u8; ROOM_LEN],
) -> [u8; BLOCK_LEN] {
    let mut out = [0; BLOCK_LEN];
    out[0..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&(BLOCK_LEN as u32).to_le_bytes());
    out[16..32].copy_from_slice(&id.0);
    out[32..40].copy_from_slice(&blocks.to_le_bytes());
    Changing { failures, room }.put(&mut out, CHANGING);
    Changing { failures, room }.put(&mut out, COPY);
    let hash = blake3::hash(&out[..HASHED]);
    out[HASHED..].copy_from_slice(hash.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that lost power while it recorded a failed flush was refused for good: its first block did not hold, and nothing repairs that.
    #[test]
    fn a_first_block_of_two_writes_is_of_the_same_disk() {
        let room = [7; ROOM_LEN];
        let old_form = |failures: u64| {
            let mut block = head(DiskId([3; 16]), 255, failures, NO_ROOM);
            block[COPY..HASHED].fill(0);
            let hash = blake3::hash(&block[..HASHED]);
            block[HASHED..].copy_from_slice(hash.as_bytes());
            block
        };
        let new_form = |failures, room| head(DiskId([3; 16]), 255, failures, room);
        for (before, after) in [
            (new_form(2, NO_ROOM), new_form(3, NO_ROOM)),
            (new_form(2, NO_ROOM), new_form(2, room)),
            (new_form(2, room), new_form(2, NO_ROOM)),
            (new_form(2, room), new_form(3, room)),
            (old_form(2), new_form(3, NO_ROOM)),
            (old_form(2), new_form(2, room)),
            (old_form(0), new_form(1, NO_ROOM)),
        ] {
            for sector in 0..=8 {
                for (one, two) in [(&before, &after), (&after, &before)] {
                    let mut block = vec![0; BLOCK_LEN];
                    block[..sector * 512].copy_from_slice(&one[..sector * 512]);
                    block[sector * 512..].copy_from_slice(&two[sector * 512..]);
                    let found = Changing::of(&block).unwrap();
                    let [least, most] = [&before, &after].map(|block| u64_at(block, CHANGING));
                    assert!((least..=most).contains(&found.failures));
                    // With a part of a record there may have been an answer.
                    let recorded = sector > 0 && sector < 8;
                    assert!(!recorded || found.failures == most);
                    assert!([NO_ROOM, room].contains(&found.room));
                }
            }
        }
    }
}
