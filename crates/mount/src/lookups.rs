//! The number of lookups of each inode by the kernel: the lifetime of an inode beyond its last name.
//!
//! 1. Every reply that carries an entry counts one, before it is sent; every FORGET takes its number off.
//! 2. The room holds an inode when its count rises from zero, and releases it when the count is back there.
//!    Files are opened without asking us, so this count is also what keeps an unlinked open file alive: the kernel
//!    forgets no inode that is open.
//! 3. The root is never forgotten, so it is not counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::InodeNo;
use parking_lot::Mutex;

const SHARDS: usize = 64;

/// The counts, in shards so that threads seldom meet.
#[derive(Debug)]
pub(crate) struct Lookups {
    shards: Vec<Mutex<HashMap<u64, u64>>>,
}

impl Lookups {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    fn shard(&self, no: InodeNo) -> &Mutex<HashMap<u64, u64>> {
        // Inode numbers are handed out in sequence: the low bits spread well.
        &self.shards[no.0 as usize % SHARDS]
    }

    /// Counts one more; `true` when it is the first, and the caller is to hold the inode.
    #[must_use]
    pub(crate) fn add(&self, no: InodeNo) -> bool {
        if no == InodeNo::ROOT {
            return false;
        }
        let mut shard = self.shard(no).lock();
        let count = shard.entry(no.0).or_insert(0);
        *count += 1;
        *count == 1
    }

    /// Takes `count` off; `true` when none is left, and the caller is to release the inode.
    #[must_use]
    pub(crate) fn forget(&self, no: InodeNo, count: u64) -> bool {
        if no == InodeNo::ROOT {
            return false;
        }
        match self.shard(no).lock().entry(no.0) {
            Entry::Occupied(mut entry) => {
                let left = entry.get().saturating_sub(count);
                if left == 0 {
                    entry.remove();
                    true
                } else {
                    *entry.get_mut() = left;
                    false
                }
            }
            Entry::Vacant(_) => {
                tracing::warn!(
                    inode = no.0,
                    count,
                    "the kernel forgot an inode that it never looked up"
                );
                false
            }
        }
    }

    /// The inodes that are counted.
    pub(crate) fn known(&self) -> Vec<InodeNo> {
        let numbers = |shard: &Mutex<HashMap<u64, u64>>| -> Vec<u64> {
            shard.lock().keys().copied().collect()
        };
        self.shards.iter().flat_map(numbers).map(InodeNo).collect()
    }

    /// Empties the counts; each number returned is to be released once.
    pub(crate) fn drain(&self) -> Vec<InodeNo> {
        self.shards
            .iter()
            .flat_map(|shard| std::mem::take(&mut *shard.lock()).into_keys().map(InodeNo))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_held_once_and_released_once_whatever_the_number_of_lookups() {
        let lookups = Lookups::new();
        let no = InodeNo(70);
        assert!(lookups.add(no));
        assert!(!lookups.add(no));
        assert!(!lookups.add(no));
        assert!(!lookups.forget(no, 2));
        assert!(lookups.forget(no, 1));
        assert!(lookups.add(no), "a count that went to zero starts again");
        assert_eq!(lookups.drain(), [no]);
        assert!(!lookups.forget(no, 1), "an unknown inode is not released");
    }

    #[test]
    fn the_root_is_not_counted() {
        let lookups = Lookups::new();
        assert!(!lookups.add(InodeNo::ROOT));
        assert!(!lookups.forget(InodeNo::ROOT, 1));
        assert!(lookups.drain().is_empty());
    }
}
