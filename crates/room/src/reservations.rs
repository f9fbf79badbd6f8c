//! How many blocks are reserved for holes of files, and how many are about to be.

use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that are about to be reserved. Those that are not when this is dropped are not promised any more.
#[must_use]
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    reservations: &'a Reservations,
    blocks: u64,
}

impl Promise<'_> {
    /// Blocks are reserved, of those promised as far as there are any left.
    pub(crate) fn keep(&mut self, blocks: u64) {
        let kept = blocks.min(self.blocks);
        self.blocks -= kept;
        self.reservations.promised.fetch_sub(kept, Ordering::SeqCst);
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.keep(self.blocks);
    }
}

#[derive(Debug)]
pub(crate) struct Reservations {
    /// As the extent maps have them.
    reserved: AtomicU64,
    /// About to be reserved.
    promised: AtomicU64,
    /// `reserved` as the catalog has it.
    stored: AtomicU64,
}

impl Reservations {
    pub(crate) fn new(reserved: u64) -> Self {
        Self {
            reserved: AtomicU64::new(reserved),
            promised: AtomicU64::new(0),
            stored: AtomicU64::new(reserved),
        }
    }

    /// Blocks reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::SeqCst)
    }

    /// Blocks reserved, and about to be.
    pub(crate) fn promised(&self) -> u64 {
        let promised = self.promised.load(Ordering::SeqCst);
        self.reserved().saturating_add(promised)
    }

    /// Sets the number of blocks reserved to what was counted.
    pub(crate) fn correct(&self, blocks: u64) {
        self.reserved.store(blocks, Ordering::SeqCst);
    }

    /// Promises blocks that are about to be reserved.
    pub(crate) fn promise(&self, blocks: u64) -> Promise<'_> {
        self.promised.fetch_add(blocks, Ordering::SeqCst);
        Promise {
            reservations: self,
            blocks,
        }
    }

    /// Blocks are reserved. The caller holds a change.
    pub(crate) fn add(&self, blocks: u64) {
        self.reserved.fetch_add(blocks, Ordering::SeqCst);
    }

    /// Blocks are not reserved any more. The caller holds a change.
    pub(crate) fn end(&self, blocks: u64) {
        if blocks > 0 {
            let less = |now: u64| Some(now.saturating_sub(blocks));
            // Always `Ok`: the closure never refuses.
            let _ = self
                .reserved
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }

    /// The number of blocks to be stored, if the catalog has another.
    pub(crate) fn unstored(&self) -> Option<u64> {
        let now = self.reserved();
        (self.stored.load(Ordering::SeqCst) != now).then_some(now)
    }

    /// The catalog has this number.
    pub(crate) fn stored(&self, blocks: u64) {
        self.stored.store(blocks, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_to_be_stored_until_the_catalog_has_it() {
        let reservations = Reservations::new(5);
        assert_eq!(reservations.unstored(), None);
        reservations.add(2);
        for _ in 0..2 {
            assert_eq!(reservations.unstored(), Some(7), "the catalog refused it");
        }
        reservations.stored(7);
        assert_eq!(reservations.unstored(), None);
    }
}
