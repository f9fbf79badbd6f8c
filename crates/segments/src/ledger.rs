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

use crate::{SealedUnits, SegmentNo};

/// Bytes of which copies are kept.
const COPIES_MAX: usize = 128 << 10;

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    due: Due,
    taken: bool,
    copies: Copies,
}

/// What was written since the last flush, as long as it is little: something else may make it durable.
#[derive(Debug, Default)]
struct Copies {
    units: Vec<SealedUnits>,
    bytes: usize,
    /// Not everything that is due is here, or was.
    incomplete: bool,
}

impl Copies {
    fn add(&mut self, segment: SegmentNo, position: u32, sealed: &[u8]) {
        if self.incomplete {
            return;
        }
        self.bytes += sealed.len();
        if self.bytes > COPIES_MAX {
            self.discard();
            return;
        }
        self.units.push(SealedUnits {
            segment,
            position,
            bytes: sealed.to_vec(),
        });
    }

    fn discard(&mut self) {
        *self = Self {
            incomplete: true,
            ..Self::default()
        };
    }
}

/// What one flush has to make durable.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Files written, through handles that were open at the write: the kernel reports a failed write-back to those.
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
    pub(crate) fn written(
        &self,
        no: SegmentNo,
        file: &Arc<dyn StorageFile>,
        position: u32,
        sealed: &[u8],
    ) {
        let mut state = self.0.lock();
        let State { due, copies, .. } = &mut *state;
        due.blocks = due
            .blocks
            .saturating_add((sealed.len() / crate::BLOCK_LEN) as u32);
        due.files.entry(no).or_insert_with(|| file.clone());
        copies.add(no, position, sealed);
    }

    /// Notes blocks that somebody else writes.
    pub(crate) fn written_elsewhere(
        &self,
        no: SegmentNo,
        file: &Arc<dyn StorageFile>,
        blocks: u32,
    ) {
        let mut state = self.0.lock();
        state.copies.discard();
        let due = &mut state.due;
        due.blocks = due.blocks.saturating_add(blocks);
        due.files.entry(no).or_insert_with(|| file.clone());
    }

    /// Takes copies of everything that was written since the last flush, less what was taken this way before; `None` where
    /// only a flush makes it durable.
    pub(crate) fn take_copies(&self) -> Option<Vec<SealedUnits>> {
        let mut state = self.0.lock();
        if state.taken || state.copies.incomplete {
            return None;
        }
        Some(std::mem::take(&mut state.copies).units)
    }

    /// What was taken as copies was not made durable: only a flush does that.
    pub(crate) fn not_made_durable(&self) {
        self.0.lock().copies.discard();
    }

    pub(crate) fn made(&self, no: SegmentNo, file: &Arc<dyn StorageFile>) {
        let mut state = self.0.lock();
        // A file's name is made durable only by a flush.
        state.copies.discard();
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
        state.copies = Copies::default();
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
