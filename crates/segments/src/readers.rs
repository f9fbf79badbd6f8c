//! Open files and keys of the segments read lately.
//!
//! 1. At most [`READERS_MAX`] files are kept open, whatever the size of the room: a tebibyte has 16,384 segments, and
//!    a process may often have no more than 1,024 files. Opening one and deriving its key again costs some ten
//!    microseconds, against a hundred for the disk read that usually follows.
//! 2. A reader may outlive its place in the cache, and its segment's removal: the file stays readable to who holds it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use storage::StorageFile;

use crate::SegmentNo;
use crate::unit_keys::UnitKeys;

/// Files kept open for reading.
const READERS_MAX: NonZeroUsize = NonZeroUsize::new(128).unwrap();

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) keys: Arc<UnitKeys>,
}

#[derive(Debug)]
pub(crate) struct Readers(Mutex<Cache>);

type Cache = LruCache<SegmentNo, Arc<Reader>>;

impl Default for Readers {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(READERS_MAX)))
    }
}

impl Readers {
    pub(crate) fn get(&self, no: SegmentNo) -> Option<Arc<Reader>> {
        self.0.lock().get(&no).cloned()
    }

    pub(crate) fn put(&self, no: SegmentNo, reader: Arc<Reader>) {
        // The file that falls out is closed after the lock is gone.
        let _closed_later = self.0.lock().push(no, reader);
    }

    pub(crate) fn clear(&self) {
        let _closed_later = std::mem::replace(&mut *self.0.lock(), Cache::new(READERS_MAX));
    }

    pub(crate) fn forget(&self, no: SegmentNo) {
        let _closed_later = self.0.lock().pop(&no);
    }
}
