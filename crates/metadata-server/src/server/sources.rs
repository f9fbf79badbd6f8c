//! Files that are being copied from: nothing is committed to them meanwhile.
//!
//! A copy shares sealed units. A client that may still write there could change the copy. So the grants that hold blocks of the file end first,
//! and no other may come to hold some before the copy is done.

use std::collections::HashMap;

use parking_lot::Mutex;
use room::InodeNo;

/// Longest copy in one call, in bytes: a thread is bound for as long.
pub(super) const COPY_MAX: u64 = 1 << 30;

/// The sources of copies under way.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<HashMap<InodeNo, usize>>);

/// A copy under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Source<'a> {
    all: &'a Sources,
    no: InodeNo,
}

impl Sources {
    /// A copy from this file begins.
    pub(super) fn begin(&self, no: InodeNo) -> Source<'_> {
        *self.0.lock().entry(no).or_insert(0) += 1;
        Source { all: self, no }
    }

    /// Does what notes that a grant holds blocks of a file; `None`, and nothing is done, while the file is copied from.
    pub(super) fn unless_copied<T>(&self, no: InodeNo, note: impl FnOnce() -> T) -> Option<T> {
        let sources = self.0.lock();
        (!sources.contains_key(&no)).then(note)
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        let mut sources = self.all.0.lock();
        if let Some(copies) = sources.get_mut(&self.no) {
            *copies -= 1;
            if *copies == 0 {
                sources.remove(&self.no);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_noted_until_the_last_copy_is_done() {
        let sources = Sources::default();
        let (first, second) = (sources.begin(InodeNo(5)), sources.begin(InodeNo(5)));
        assert_eq!(sources.unless_copied(InodeNo(5), || 1), None);
        assert_eq!(sources.unless_copied(InodeNo(6), || 1), Some(1));
        drop(first);
        assert_eq!(sources.unless_copied(InodeNo(5), || 1), None);
        drop(second);
        assert_eq!(sources.unless_copied(InodeNo(5), || 1), Some(1));
        assert!(sources.0.lock().is_empty());
    }
}
