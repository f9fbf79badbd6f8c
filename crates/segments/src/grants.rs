//! Positions that a client outside this store seals and writes.
//!
//! 1. A position is granted or appended to, never both, and only once: lanes have segments of their own, and their
//!    positions only rise.
//! 2. A segment with granted positions stays [in use](DirStore::in_use), whether or not it is still its lane's open one.
//! 3. What was written there counts as appended from [`DirStore::written`] on: the next flush syncs its file.
//!
//! It deliberately does not know the clients, the lifetime of a grant, or which positions were written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use seal::PositionKeys;

use crate::extent::offset;
use crate::unit_keys::UnitKeys;
use crate::writing::Writing;
use crate::{APPEND_BLOCKS_MAX, BlockRange, DirStore, SEGMENT_BLOCKS, SegmentError, SegmentNo};

/// Open segments for grants, at most.
pub const LANES: usize = 64;
/// Most blocks of one grant: 4 MiB.
pub const GRANT_BLOCKS_MAX: u32 = 1024;

impl DirStore {
    /// Grants `blocks` fresh positions (1 to [`GRANT_BLOCKS_MAX`]) of the open segment of a lane, whose file is there when
    /// this returns. Fewer where the segment ends, but at least [`APPEND_BLOCKS_MAX`] or what was asked for. There are
    /// [`LANES`] lanes, fewer in a small storage; a higher number is mapped to one of them. Where there is no space for another
    /// segment any open one will do.
    pub fn grant(&self, lane: usize, blocks: u32) -> Result<BlockRange, SegmentError> {
        assert!(
            (1..=GRANT_BLOCKS_MAX).contains(&blocks),
            "a grant of {blocks} blocks: it has 1 to {GRANT_BLOCKS_MAX}"
        );
        self.usable()?;
        // Once more where a segment just begun turns out to be short: the first grant always fits.
        loop {
            let (writing, mut range) = self.take_or_begin(lane, blocks)?;
            match self.file_of(&writing) {
                Ok(_) => {}
                Err(SegmentError::NoSpace) => {
                    self.release_grant(range.segment);
                    break;
                }
                Err(e) => {
                    self.release_grant(range.segment);
                    return Err(e);
                }
            }
            let left = writing.capacity().saturating_sub(range.position);
            if left >= blocks.min(APPEND_BLOCKS_MAX) {
                range.blocks = range.blocks.min(left);
                return Ok(range);
            }
            self.release_grant(range.segment);
            self.close_if_open(range.segment);
        }
        let taken = self.lanes.lock().take_any(blocks);
        let (writing, range) = taken.ok_or(SegmentError::NoSpace)?;
        self.file_of(&writing)
            .map(|_| range)
            .inspect_err(|_| self.release_grant(range.segment))
    }

    fn take_or_begin(
        &self,
        lane: usize,
        blocks: u32,
    ) -> Result<(Arc<Writing>, BlockRange), SegmentError> {
        let mut lanes = self.lanes.lock();
        if let Some(taken) = lanes.take(lane % LANES, blocks) {
            return Ok(taken);
        }
        // An open segment takes its whole length from a storage of slots: all lanes together an eighth of it, if it has that.
        let of_all = self.storage.space()?.total / (8 * offset(SEGMENT_BLOCKS));
        let lane = lane % usize::try_from(of_all).unwrap_or(LANES).clamp(2, LANES);
        if let Some(taken) = lanes.take(lane, blocks) {
            return Ok(taken);
        }
        let begun = self.begin(&mut self.tail.lock())?;
        // Block 0 is its header.
        let closed = lanes.open.insert(lane, (begun, 1));
        let taken = lanes
            .take(lane, blocks)
            .expect("a grant fits in an empty segment");
        drop(lanes);
        self.cut(closed);
        Ok(taken)
    }

    /// Blocks left in open segments: those that need no other.
    pub fn left_open(&self) -> u64 {
        let lanes = self.lanes.lock();
        let tail = self.tail.lock();
        lanes
            .open
            .values()
            .chain(tail.current())
            .map(|(writing, end)| u64::from(writing.capacity().saturating_sub(*end)))
            .sum()
    }

    /// Notes that granted positions were written: the next flush makes them durable. `Missing` where nothing of the
    /// segment is granted.
    pub fn written(&self, range: BlockRange) -> Result<(), SegmentError> {
        self.usable()?;
        let lanes = self.lanes.lock();
        let file = lanes
            .granted
            .get(&range.segment)
            .and_then(|(writing, _)| writing.made())
            .ok_or(SegmentError::Missing {
                segment: range.segment,
                position: range.position,
            })?;
        self.ledger
            .written_elsewhere(range.segment, file, range.blocks);
        Ok(())
    }

    /// One grant of a segment is over.
    pub fn release_grant(&self, segment: SegmentNo) {
        self.lanes.lock().release_grant(segment);
    }

    /// Segments that are, or may still be, written to: they are neither dead nor to be compacted, whatever lives in them.
    pub fn in_use(&self) -> BTreeSet<SegmentNo> {
        let lanes = self.lanes.lock();
        let open = lanes.open.values().map(|(writing, _)| writing.id.no);
        open.chain(lanes.granted.keys().copied())
            .chain(self.open_segment().map(|(no, _)| no))
            .collect()
    }

    /// The highest number of a segment ever begun here; 0 when there was none.
    pub fn last_number(&self) -> SegmentNo {
        SegmentNo(self.tail.lock().last_number())
    }

    /// Whether a writer draws a part of the nonces for each append.
    pub fn append_nonces(&self) -> bool {
        self.keyring.read().append_nonces()
    }

    /// The keys of the units at these positions of a segment, and no others; `None` where the segment is not known. None at all
    /// of a segment whose units share one key: that is given to nobody.
    pub fn position_keys(
        &self,
        segment: SegmentNo,
        positions: &[Range<u32>],
    ) -> Result<Option<PositionKeys>, SegmentError> {
        let Some(id) = self.known.read().get(&segment).copied() else {
            return Ok(None);
        };
        let keyring = self.keyring.read().clone();
        match keyring.unit_keys(&id) {
            Some(UnitKeys::Positions(tree)) => Ok(Some(tree.keys_of(positions))),
            Some(UnitKeys::Segment(_)) => Ok(Some(PositionKeys::none(keyring.suite()))),
            None => Err(SegmentError::UnknownEpoch {
                segment,
                key_epoch: id.key_epoch,
            }),
        }
    }
}
