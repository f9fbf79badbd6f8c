//! Where the next append goes.
//!
//! 1. A position is handed out once: positions of the open segment only rise.
//! 2. Zeros are written ahead only of the last position handed out, and count as nothing: the positions stay fresh.
//! 3. A number is handed out once, is above every number the catalog knows, and is not that of a file found at opening.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::SegmentNo;
use crate::ledger::Due;
use crate::writing::Writing;

/// Most blocks appended between two flushes that count as a small one: 64 KiB.
const SMALL_FLUSH: u32 = 16;
/// Blocks of zeros written ahead at once: 256 KiB.
const AHEAD: u32 = 64;

/// A segment that was closed, and the block after its last reserved one.
pub(crate) type Closed = (Arc<Writing>, u32);

#[derive(Debug)]
pub(crate) struct Tail {
    /// The open segment, and the block after its last reserved one.
    open: Option<(Arc<Writing>, u32)>,
    /// Block up to which the open segment's file is written, with data or zeros.
    ahead: u32,
    /// Small flushes of the open segment in a row.
    small_flushes: u32,
    next: u64,
    /// Numbers from `next` on whose files were there at opening: a crash left them before the catalog knew of them.
    found: BTreeSet<u64>,
}

impl Tail {
    /// No open segment; `next` is above every known number, `found` are the numbers that have files.
    pub(crate) fn new(next: u64, found: impl Iterator<Item = u64>) -> Self {
        Self {
            open: None,
            ahead: 0,
            small_flushes: 0,
            next,
            found: found.filter(|no| *no >= next).collect(),
        }
    }

    /// The first of `blocks` fresh positions of the open segment; `None` when there is none or it would grow too long.
    pub(crate) fn take(&mut self, blocks: u32) -> Option<(Arc<Writing>, u32)> {
        let (writing, end) = self.open.as_mut()?;
        let position = *end;
        (position + blocks <= writing.capacity()).then(|| {
            *end += blocks;
            (writing.clone(), position)
        })
    }

    /// Makes `writing` the open segment. Block 0 is its header. Returns the one that is closed.
    pub(crate) fn begin(&mut self, writing: Arc<Writing>) -> Option<Closed> {
        (self.ahead, self.small_flushes) = (0, 0);
        self.open.replace((writing, 1))
    }

    /// The number of the next segment.
    pub(crate) fn number(&mut self) -> SegmentNo {
        while self.found.remove(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        SegmentNo(self.next - 1)
    }

    /// The highest number handed out, or passed over; 0 when there is none.
    pub(crate) fn last_number(&self) -> u64 {
        self.next - 1
    }

    /// Where a flush of `due` shall write zeros ahead in the open segment: the first block and how many. They must be
    /// written before the tail's lock is released.
    ///
    /// Data that lengthens a file costs a journal commit of the file system at each flush; data that replaces zeros does
    /// not, which makes a row of small flushes some three times as fast. So it is done from the second on.
    pub(crate) fn write_ahead(&mut self, due: &Due) -> Option<(Arc<Writing>, u32, u32)> {
        let (writing, end) = self.open.as_ref()?;
        if due.blocks > SMALL_FLUSH
            || due.files.len() != 1
            || !due.files.contains_key(&writing.id.no)
        {
            self.small_flushes = 0;
            return None;
        }
        self.small_flushes += 1;
        let from = self.ahead.max(*end);
        let to = (*end + AHEAD).min(writing.capacity());
        if self.small_flushes < 2 || *end + due.blocks <= self.ahead || to <= from {
            return None;
        }
        self.ahead = to;
        Some((writing.clone(), from, to - from))
    }

    /// The open segment as it is.
    pub(crate) fn current(&self) -> Option<&Closed> {
        self.open.as_ref()
    }

    /// The open segment and the block after its last reserved one.
    pub(crate) fn open(&self) -> Option<(SegmentNo, u32)> {
        self.open
            .as_ref()
            .map(|(writing, end)| (writing.id.no, *end))
    }

    /// Closes the open segment.
    pub(crate) fn close(&mut self) -> Option<Closed> {
        self.open.take()
    }

    /// Closes the open segment if it is this one.
    pub(crate) fn close_if(&mut self, no: SegmentNo) -> Option<Closed> {
        self.open.take_if(|(writing, _)| writing.id.no == no)
    }
}
