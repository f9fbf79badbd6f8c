//! Where file data is, as the server reported it: maps of chunks, each with the keys and capabilities to read it.
//!
//! 1. A map is kept under the version of its file: when the file may have changed, what was kept is not found any more.
//! 2. Nothing of a map is used before it was checked: it comes from the network.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use metadata_proto::rpc::Map;
use model::{Chunk, InodeNo, SegmentNo};
use netdisk::{DiskId, Ticket};
use parking_lot::Mutex;
use seal::PositionKeys;

use super::files::Version;

/// Maps of chunks kept: 16 GiB of file data, about 10 MiB.
const KEPT: NonZeroUsize = NonZeroUsize::new(16384).unwrap();

/// Where a segment is, and what opens the units of it that the maps name.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) keys: PositionKeys,
    pub(super) disk: DiskId,
    pub(super) start: u64,
}

/// What one answer of the server brought beside the maps.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) segments: HashMap<SegmentNo, Segment>,
    pub(super) tickets: Vec<Ticket>,
}

/// The map of a chunk.
#[derive(Debug)]
pub(super) struct ChunkMap {
    pub(super) chunk: Chunk,
    pub(super) source: Arc<Source>,
}

type Key = (InodeNo, Version, u64);

/// Maps by file, version and index.
#[derive(Debug)]
pub(super) struct Maps(Mutex<LruCache<Key, Arc<ChunkMap>>>);

impl Maps {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(KEPT)))
    }

    /// All of them may be old.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    pub(super) fn get(&self, no: InodeNo, version: Version, index: u64) -> Option<Arc<ChunkMap>> {
        self.0.lock().get(&(no, version, index)).cloned()
    }

    /// Takes in the maps of the chunks from `first` on.
    pub(super) fn put(
        &self,
        no: InodeNo,
        version: Version,
        first: u64,
        chunks: impl IntoIterator<Item = Arc<ChunkMap>>,
    ) {
        let mut maps = self.0.lock();
        for (index, chunk) in (first..).zip(chunks) {
            maps.put((no, version, index), chunk);
        }
    }
}

/// The chunks of an answer, holes included; `None` where it is not well formed.
pub(super) fn take(map: Map, index: u64, count: u32) -> Option<Vec<Arc<ChunkMap>>> {
    let mut segments = HashMap::new();
    for place in map.segments {
        let segment = Segment {
            keys: place.keys,
            disk: place.disk,
            start: place.start,
        };
        segments.insert(place.segment, segment);
    }
    let mut chunks: Vec<Chunk> = (0..count).map(|_| Chunk::default()).collect();
    for (at, extents) in &map.chunks {
        let chunk = chunks.get_mut(usize::try_from(at.checked_sub(index)?).ok()?)?;
        if !extents.iter().all(|e| segments.contains_key(&e.segment)) {
            return None;
        }
        *chunk = Chunk::from_extents(extents.clone()).ok()?;
    }
    let source = Arc::new(Source {
        segments,
        tickets: map.tickets,
    });
    let whole = |chunk| {
        Arc::new(ChunkMap {
            chunk,
            source: source.clone(),
        })
    };
    Some(chunks.into_iter().map(whole).collect())
}

/// How many maps to fetch at once for a read that begins at `offset`, of a file with this size, when the one before ended at `read_end`.
pub(super) fn ahead(read_end: u64, size: u64, offset: u64) -> u32 {
    /// Chunks whose maps are fetched before they are needed.
    const AHEAD: u64 = 16;
    if offset != 0 && offset != read_end {
        return 1;
    }
    let left = size.saturating_sub(offset).div_ceil(model::CHUNK_LEN);
    left.clamp(1, AHEAD) as u32
}
