//! Names found lately: for callers that walk paths without a kernel's own cache in front.
//!
//! Only names that exist are kept. A name that is removed or changed is forgotten after the catalog has the change,
//! and what was looked up before that is not put in afterwards: see [`NameCache::seen`].

use std::num::NonZeroUsize;

use catalog::InodeNo;
use lru::LruCache;
use parking_lot::Mutex;

/// Names kept.
const NAMES_MAX: usize = 8192;

#[derive(Debug)]
pub(crate) struct NameCache(Mutex<Names>);

#[derive(Debug)]
struct Names {
    found: LruCache<(InodeNo, Box<[u8]>), InodeNo>,
    /// Rises whenever a name is forgotten.
    forgotten: u64,
}

impl NameCache {
    pub(crate) fn new() -> Self {
        let size = NonZeroUsize::new(NAMES_MAX).unwrap_or(NonZeroUsize::MIN);
        Self(Mutex::new(Names {
            found: LruCache::new(size),
            forgotten: 0,
        }))
    }

    pub(crate) fn get(&self, parent: InodeNo, name: &[u8]) -> Option<InodeNo> {
        self.0.lock().found.get(&(parent, name.into())).copied()
    }

    /// The count to take before a name is looked up and to give to [`put`](Self::put).
    pub(crate) fn seen(&self) -> u64 {
        self.0.lock().forgotten
    }

    /// Keeps a name that was found, unless some name was forgotten since `seen`: it might be this one.
    pub(crate) fn put(&self, parent: InodeNo, name: &[u8], inode: InodeNo, seen: u64) {
        self.put_all(parent, std::iter::once((name, inode)), seen);
    }

    /// The same for names of one directory.
    pub(crate) fn put_all<'a>(
        &self,
        parent: InodeNo,
        found: impl Iterator<Item = (&'a [u8], InodeNo)>,
        seen: u64,
    ) {
        let mut names = self.0.lock();
        if names.forgotten == seen {
            for (name, inode) in found {
                names.found.put((parent, name.into()), inode);
            }
        }
    }

    /// Forgets a name, once the catalog has it gone or changed.
    pub(crate) fn forget(&self, parent: InodeNo, name: &[u8]) {
        let mut names = self.0.lock();
        names.forgotten += 1;
        names.found.pop(&(parent, name.into()));
    }

    /// Forgets all, once the catalog was changed in any way.
    pub(crate) fn clear(&self) {
        let mut names = self.0.lock();
        names.forgotten += 1;
        names.found.clear();
    }
}
