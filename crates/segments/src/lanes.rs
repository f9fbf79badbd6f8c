//! Which positions of which segments are granted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::tail::Closed;
use crate::writing::Writing;
use crate::{APPEND_BLOCKS_MAX, BlockRange, SegmentNo};

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// The open segment of each lane, and the block after its last granted one.
    pub(crate) open: BTreeMap<usize, (Arc<Writing>, u32)>,
    /// Segments with granted positions, and the number of grants of each.
    pub(crate) granted: HashMap<SegmentNo, (Arc<Writing>, u32)>,
}

impl Lanes {
    /// Closes every lane's open segment.
    pub(crate) fn close(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.open).into_values().collect()
    }

    /// Closes this segment if a lane has it open.
    pub(crate) fn close_if(&mut self, no: SegmentNo) -> Option<Closed> {
        let of = |(writing, _): &Closed| writing.id.no == no;
        let lane = *self.open.iter().find(|(_, open)| of(open))?.0;
        self.open.remove(&lane)
    }

    /// Takes positions of the lane's open segment: `blocks`, or what is left where that is as long as an append.
    pub(crate) fn take(&mut self, lane: usize, blocks: u32) -> Option<(Arc<Writing>, BlockRange)> {
        let (writing, end) = self.open.get_mut(&lane)?;
        let left = writing.capacity().saturating_sub(*end);
        if left < blocks.min(APPEND_BLOCKS_MAX) {
            return None;
        }
        let range = BlockRange {
            segment: writing.id.no,
            position: *end,
            blocks: blocks.min(left),
        };
        *end += range.blocks;
        self.granted
            .entry(range.segment)
            .or_insert_with(|| (writing.clone(), 0))
            .1 += 1;
        Some((writing.clone(), range))
    }

    /// The same of any lane.
    pub(crate) fn take_any(&mut self, blocks: u32) -> Option<(Arc<Writing>, BlockRange)> {
        let lanes: Vec<usize> = self.open.keys().copied().collect();
        lanes.into_iter().find_map(|lane| self.take(lane, blocks))
    }

    pub(crate) fn release_grant(&mut self, segment: SegmentNo) {
        if let Some((_, grants)) = self.granted.get_mut(&segment) {
            *grants -= 1;
            if *grants == 0 {
                self.granted.remove(&segment);
            }
        }
    }
}
