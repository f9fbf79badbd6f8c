//! What a room without space could not make durable, for the person who unmounts it.
//!
//! 1. Only what `NoSpace` refused is here; other failures of the storage leave it open what is durable.
//! 2. Data that a cache accepted and the room then refused is remembered within bounds: it is nowhere else.

use catalog::InodeNo;
use parking_lot::Mutex;

use super::Contents;
use crate::reports::{LostExtent, LostRange};

/// The most ranges of refused data that are remembered.
const REFUSED_MAX: usize = 1000;

/// What is not durable for lack of space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unsaved {
    /// File data: what was refused earlier to a cache that had accepted it, and what waits for space still.
    pub ranges: Vec<LostRange>,
    /// Whether the changes of names and attributes since the last commit are not durable either.
    pub changes: bool,
}

/// Ranges that a cache had accepted and that found no space.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<Vec<LostExtent>>);

impl Refused {
    pub(super) fn note(&self, no: InodeNo, offset: u64, len: u64) {
        let mut ranges = self.0.lock();
        match ranges.last_mut() {
            Some(last) if last.no == no && last.offset + last.len == offset => last.len += len,
            _ => ranges.push(LostExtent { no, offset, len }),
        }
        ranges.truncate(REFUSED_MAX);
    }
}

impl Contents {
    pub(crate) fn unsaved(&self) -> Vec<LostExtent> {
        // What a file lost does not matter when its last name is gone.
        let has_name = |no| {
            self.data.cell(no).is_ok_and(|cell| {
                let state = cell.state.read();
                !state.is_gone() && state.inode.nlink > 0
            })
        };
        let mut ranges = self.refused.0.lock().clone();
        ranges.retain(|range| has_name(range.no));
        for cell in self.data.inodes().dirty() {
            let state = cell.state.read();
            if state.is_gone() || state.inode.nlink == 0 {
                continue;
            }
            if let Some(buffer) = &state.buffer {
                ranges.push(LostExtent {
                    no: cell.no,
                    offset: buffer.offset,
                    len: buffer.data.len() as u64,
                });
            }
        }
        ranges.sort_by_key(|range| (range.no, range.offset));
        ranges
    }
}
