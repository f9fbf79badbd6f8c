//! Maps as snapshots see them, as they were put together last: a map may be made of what is kept for a thousand snapshots, and a file is read
//! in pieces much smaller than a chunk.
//!
//! 1. Remembered is what the catalog holds: a map goes with each change of what it was made of. A deleted snapshot is not asked for, and no
//!    other has its number.

use std::collections::VecDeque;

use crate::{Chunk, InodeNo};

/// Maps remembered at most, of up to 256 extents each.
const REMEMBERED: usize = 16;

/// A snapshot, and a chunk by inode and index.
type Key = (u64, (InodeNo, u64));

/// The maps, the oldest first.
#[derive(Debug, Default)]
pub(super) struct SeenMaps(VecDeque<(Key, Chunk)>);

impl SeenMaps {
    pub(super) fn get(&self, key: Key) -> Option<&Chunk> {
        let found = self.0.iter().find(|(known, _)| *known == key);
        found.map(|(_, chunk)| chunk)
    }

    /// Remembers a map that is not here yet.
    pub(super) fn put(&mut self, key: Key, chunk: Chunk) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((key, chunk));
    }

    /// The map of a chunk, or what is kept of it, is another now.
    pub(super) fn changes(&mut self, chunk: (InodeNo, u64)) {
        self.0.retain(|((_, known), _)| *known != chunk);
    }

    /// A file loses all its maps.
    pub(super) fn lost(&mut self, inode: InodeNo) {
        self.0.retain(|((_, (known, _)), _)| *known != inode);
    }
}
