//! When work is done ahead of a commit, and how early a commit begins: so that it holds changes up for a moment only.
//!
//! Changes wait while a commit writes pages. There are few of them where rows are beside each other, as those of new files are, and one or two
//! for each row where they are spread all over a large catalog. How many inodes to a page the next ones will be is judged by the last ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Pages after which a commit is begun: it goes through them once, and then they are moved, in some 20 µs each.
const COMMIT: u64 = 800;
/// Pages that pending inodes will be, after which they are handed to the catalog.
const DRAIN: u64 = 600;
/// Pages that are written at once, while readers wait: in some 20 µs each.
const WRITE: u64 = 256;
/// A page and a row of it are counted in this many parts.
const PARTS: u64 = 1024;
/// Of an inode whose row and map have each a page of its own.
const MOST: u64 = 2 * PARTS;
/// At least this is expected until pages are written: who made files in order may change old ones next.
const GUESS: u64 = PARTS / 2;

/// What the next commit will have to write.
#[derive(Debug)]
pub(super) struct Pace {
    /// Pages that are written already.
    pages: AtomicU64,
    /// Inodes handed to the catalog since then.
    drained: AtomicU64,
    /// Parts of a page for each inode, by the last write.
    spread: AtomicU64,
    /// Whether the room's thread is asked to do something about it.
    asked: AtomicBool,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            pages: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            spread: AtomicU64::new(GUESS),
            asked: AtomicBool::new(false),
        }
    }

    /// So many inodes were handed to the catalog.
    pub(super) fn drained(&self, inodes: usize) {
        self.drained.fetch_add(inodes as u64, Ordering::Relaxed);
    }

    /// Pages were written: the commit will have so many.
    pub(super) fn written(&self, pages: u64) {
        let before = self.pages.swap(pages, Ordering::Relaxed);
        let inodes = self.drained.swap(0, Ordering::Relaxed);
        let new = pages.saturating_sub(before);
        if let Some(spread) = (new * PARTS).checked_div(inodes) {
            // New names take pages too, and are not counted.
            self.spread.store(spread.min(MOST), Ordering::Relaxed);
        }
    }

    /// Counts from zero: after a commit, or where there was no space.
    pub(super) fn restart(&self) {
        self.pages.store(0, Ordering::Relaxed);
        self.drained.store(0, Ordering::Relaxed);
        self.spread.fetch_max(GUESS, Ordering::Relaxed);
    }

    /// Pages that so many inodes will be.
    fn expected(&self, inodes: u64) -> u64 {
        inodes.saturating_mul(self.spread.load(Ordering::Relaxed)) / PARTS
    }

    fn unwritten(&self) -> u64 {
        self.expected(self.drained.load(Ordering::Relaxed))
    }

    /// Whether so many pending inodes should be handed to the catalog.
    pub(super) fn are_many(&self, inodes: usize) -> bool {
        self.expected(inodes as u64) >= DRAIN
    }

    /// Whether pages should be written.
    pub(super) fn has_unwritten(&self) -> bool {
        self.unwritten() >= WRITE
    }

    /// Whether a commit should begin.
    pub(super) fn is_due(&self) -> bool {
        self.pages.load(Ordering::Relaxed) + self.unwritten() >= COMMIT
    }

    /// Whether to ask the room's thread, which is asked once.
    pub(super) fn ask(&self) -> bool {
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed)
    }

    /// The thread has done what it was asked for.
    pub(super) fn answered(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_many_where_each_has_a_page_of_its_own() {
        let pace = Pace::new();
        assert!(!pace.are_many(1199) && pace.are_many(1200), "as guessed");
        pace.drained(64);
        pace.written(4);
        assert!(!pace.are_many(8192), "sixteen share a page");
        pace.restart();
        assert!(pace.are_many(1200), "that may have changed");
        pace.drained(64);
        pace.written(128);
        assert!(!pace.are_many(299) && pace.are_many(300));
        pace.drained(64);
        pace.written(128 + 640);
        assert!(!pace.are_many(299), "the more are of something else");
    }

    #[test]
    fn pages_are_written_and_a_commit_is_due_by_what_there_is_and_what_is_expected() {
        let pace = Pace::new();
        pace.drained(511);
        assert!(!pace.has_unwritten());
        pace.drained(1);
        assert!(pace.has_unwritten() && !pace.is_due());
        pace.written(COMMIT - 100);
        assert!(!pace.has_unwritten() && !pace.is_due());
        pace.drained(80);
        assert!(pace.is_due());
        pace.restart();
        assert!(!pace.is_due());
    }

    #[test]
    fn pages_that_change_again_are_not_counted_again() {
        let pace = Pace::new();
        for _ in 0..100 {
            pace.drained(1000);
            pace.written(700);
        }
        assert!(!pace.is_due() && !pace.has_unwritten() && !pace.are_many(8192));
    }

    #[test]
    fn the_thread_is_asked_once() {
        let pace = Pace::new();
        assert!(pace.ask() && !pace.ask());
        pace.answered();
        assert!(pace.ask());
    }
}
