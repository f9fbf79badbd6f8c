//! Open directories: where each listing ends.
//!
//! 1. A listing gets its end when it begins: the position of the next new name. It shows only names below that, so it ends even
//!    while names are created or moved.
//! 2. It begins with a read from the start (`opendir`, `rewinddir`), or with the first read through a handle. That may continue a
//!    listing of another handle (NFS, `seekdir`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The listings under way, by handle.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    handles: AtomicU64,
    /// The position at which each ends.
    ends: Mutex<HashMap<u64, u64>>,
}

impl Listings {
    /// A handle for a directory that is being opened.
    pub(crate) fn open(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the listing through `handle` ends, which is read from `offset` on; `next` is the position of the next new name.
    pub(crate) fn end(&self, handle: u64, offset: u64, next: impl FnOnce() -> u64) -> u64 {
        if offset > 0
            && let Some(end) = self.ends.lock().get(&handle)
        {
            return *end;
        }
        let end = next();
        self.ends.lock().insert(handle, end);
        end
    }

    /// The directory is closed.
    pub(crate) fn close(&self, handle: u64) {
        self.ends.lock().remove(&handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_ends_where_it_did_when_it_began() {
        let listings = Listings::default();
        let (one, other) = (listings.open(), listings.open());
        assert_ne!(one, other);
        assert_eq!(listings.end(one, 0, || 20), 20);
        assert_eq!(listings.end(one, 19, || 30), 20);
        assert_eq!(
            listings.end(other, 19, || 30),
            30,
            "goes on where another stopped"
        );
        assert_eq!(listings.end(one, 0, || 40), 40, "from the start again");
        assert_eq!(listings.end(one, 1, || 50), 40);
        listings.close(one);
        listings.close(other);
        assert!(listings.ends.lock().is_empty());
    }
}
