//! Where the next append goes.
//!
//! 1. A position is handed out once: positions of the open segment only rise.
//! 2. A number is handed out once, is above every number the catalog knows, and is not that of a file found at opening.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::writing::Writing;
use crate::{SEGMENT_BLOCKS, SegmentNo};

#[derive(Debug)]
pub(crate) struct Tail {
    /// The open segment, and the block after its last reserved one.
    open: Option<(Arc<Writing>, u32)>,
    next: u64,
    /// Numbers from `next` on whose files were there at opening: a crash left them before the catalog knew of them.
    found: BTreeSet<u64>,
}

impl Tail {
    /// No open segment; `next` is above every known number, `found` are the numbers that have files.
    pub(crate) fn new(next: u64, found: impl Iterator<Item = u64>) -> Self {
        Self {
            open: None,
            next,
            found: found.filter(|no| *no >= next).collect(),
        }
    }

    /// The first of `blocks` fresh positions of the open segment; `None` when there is none or it would grow too long.
    pub(crate) fn take(&mut self, blocks: u32) -> Option<(Arc<Writing>, u32)> {
        let (writing, end) = self.open.as_mut()?;
        let position = *end;
        (position + blocks <= SEGMENT_BLOCKS).then(|| {
            *end += blocks;
            (writing.clone(), position)
        })
    }

    /// Makes `writing` the open segment. Block 0 is its header.
    pub(crate) fn begin(&mut self, writing: Arc<Writing>) {
        self.open = Some((writing, 1));
    }

    /// The number of the next segment.
    pub(crate) fn number(&mut self) -> SegmentNo {
        while self.found.remove(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        SegmentNo(self.next - 1)
    }

    /// The open segment and the block after its last reserved one.
    pub(crate) fn open(&self) -> Option<(SegmentNo, u32)> {
        self.open
            .as_ref()
            .map(|(writing, end)| (writing.id.no, *end))
    }

    /// Closes the open segment.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Closes the open segment if it is this one.
    pub(crate) fn close_if(&mut self, no: SegmentNo) {
        if self.open().is_some_and(|(open, _)| open == no) {
            self.close();
        }
    }
}
