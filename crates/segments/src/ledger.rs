//! What was written and is not known to be durable.
//!
//! 1. An append enters its file after the write and before it returns. So a flush that takes the ledger after an
//!    append returned syncs that append's file after its write.
//! 2. A flush under way counts as dirty until it succeeds: what it took is not durable yet. After one that failed the
//!    ledger is dirty for good.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use storage::StorageFile;

use crate::SegmentNo;

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    due: Due,
    taken: bool,
}

/// What one flush has to make durable.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Files written, through handles that were open at the write: the kernel tells a failed write-back to those.
    pub(crate) files: BTreeMap<SegmentNo, Arc<dyn StorageFile>>,
    /// Whether files were made.
    pub(crate) names: bool,
    /// Blocks appended.
    pub(crate) blocks: u32,
}

impl Due {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.names
    }
}

impl Ledger {
    pub(crate) fn written(&self, no: SegmentNo, file: &Arc<dyn StorageFile>, blocks: u32) {
        let due = &mut self.0.lock().due;
        due.blocks = due.blocks.saturating_add(blocks);
        due.files.entry(no).or_insert_with(|| file.clone());
    }

    pub(crate) fn made(&self, no: SegmentNo, file: &Arc<dyn StorageFile>) {
        let mut state = self.0.lock();
        state.due.names = true;
        state.due.files.entry(no).or_insert_with(|| file.clone());
    }

    /// Everything due, for a flush to make durable; `None` when nothing is. One flush at a time.
    pub(crate) fn take(&self) -> Option<Due> {
        let mut state = self.0.lock();
        if state.due.is_empty() {
            return None;
        }
        state.taken = true;
        Some(std::mem::take(&mut state.due))
    }

    /// What was taken is durable.
    pub(crate) fn settled(&self) {
        self.0.lock().taken = false;
    }

    pub(crate) fn is_dirty(&self) -> bool {
        let state = self.0.lock();
        state.taken || !state.due.is_empty()
    }
}
