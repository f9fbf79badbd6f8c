//! By which names files were reached. A server that was restarted has seen no name of a file, and a number alone is not enough for it
//! (decision 25): it is shown the name again.
//!
//! 1. The names of the last [`KNOWN`] files that were looked up or created are kept. A file that is open, or has data on its way, keeps
//!    its own.
//! 2. A name that is kept may be another file's by now: what it leads to is looked at.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use model::InodeNo;
use parking_lot::Mutex;

/// Files whose names are kept: a program that opens a file has looked it up just before. About 1 MiB.
const KNOWN: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A directory, and a name in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) parent: InodeNo,
    pub(super) name: Arc<[u8]>,
}

impl Name {
    pub(super) fn new(parent: InodeNo, name: &[u8]) -> Self {
        let name = name.into();
        Self { parent, name }
    }
}

/// The names of files that were reached lately.
#[derive(Debug)]
pub(super) struct Names(Mutex<LruCache<InodeNo, Name>>);

impl Names {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(KNOWN)))
    }

    pub(super) fn get(&self, no: InodeNo) -> Option<Name> {
        self.0.lock().get(&no).cloned()
    }

    pub(super) fn put(&self, no: InodeNo, name: Name) {
        self.0.lock().put(no, name);
    }

    /// The file that was reached by a name. A name that is about to be moved was looked up just before, and is found at once.
    pub(super) fn file(&self, parent: InodeNo, name: &[u8]) -> Option<InodeNo> {
        let names = self.0.lock();
        let mut known = names.iter();
        let found = known.find(|(_, known)| known.parent == parent && *known.name == *name);
        found.map(|(no, _)| *no)
    }
}
