//! Open directories: where each listing ends.
//!
//! 1. A listing gets its end when it begins: the position of the next new name. It shows only names below that, so it ends even
//!    while names are created or moved.
//! 2. Once its last name was read, that name is its end: the kernel's next request, which finds nothing, reads nothing.
//! 3. It begins with a read from the start (`opendir`, `rewinddir`), or with the first read through a handle. That may continue a
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

    /// Where the listing through `handle` ends, which is read from `offset` on; `None` if it begins there.
    pub(crate) fn end(&self, handle: u64, offset: u64) -> Option<u64> {
        let ends = self.ends.lock();
        ends.get(&handle).copied().filter(|_| offset > 0)
    }

    /// A listing through `handle` begins, and ends at `next`, the position of the next new name.
    pub(crate) fn begin(&self, handle: u64, next: u64) {
        self.ends.lock().insert(handle, next);
    }

    /// The listing through `handle` is complete: no name that it shows is behind `last`.
    pub(crate) fn complete(&self, handle: u64, last: u64) {
        if let Some(end) = self.ends.lock().get_mut(&handle) {
            *end = last.saturating_add(1).min(*end);
        }
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
        assert_eq!(listings.end(one, 0), None);
        listings.begin(one, 20);
        assert_eq!(listings.end(one, 19), Some(20));
        assert_eq!(
            listings.end(other, 19),
            None,
            "goes on where another stopped"
        );
        listings.begin(other, 30);
        assert_eq!(listings.end(other, 20), Some(30));
        assert_eq!(listings.end(one, 0), None, "from the start again");
        listings.begin(one, 40);
        assert_eq!(listings.end(one, 1), Some(40));
        listings.complete(one, 35);
        assert_eq!(listings.end(one, 35), Some(36));
        listings.complete(one, 50);
        assert_eq!(listings.end(one, 35), Some(36), "it never grows");
        listings.close(one);
        listings.close(other);
        listings.complete(one, 1);
        assert!(listings.ends.lock().is_empty());
    }
}
