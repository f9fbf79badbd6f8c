//! Turns at ranges: readers of a range together, a writer alone.
//!
//! 1. A request waits for those that came before it and are in its way, never for one that came later: nobody waits for ever.
//! 2. A thread holds one turn at a time, so two never wait for each other.

use std::sync::{Condvar, Mutex, PoisonError};

/// Who else may be at a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Others that share it.
    Shared,
    /// Nobody.
    Alone,
}

#[derive(Debug)]
struct Turn {
    number: u64,
    first: u64,
    end: u64,
    share: Share,
}

impl Turn {
    fn in_the_way_of(&self, other: &Self) -> bool {
        self.first < other.end
            && other.first < self.end
            && (self.share == Share::Alone || other.share == Share::Alone)
    }
}

#[derive(Debug, Default)]
struct Turns {
    /// In the order they came; those that wait among those that have their turn.
    all: Vec<Turn>,
    next: u64,
    waiting: usize,
}

impl Turns {
    /// Whether one that came before this is in its way.
    fn blocks(&self, number: u64) -> bool {
        let Some(at) = self.all.iter().position(|turn| turn.number == number) else {
            return false;
        };
        let (before, from) = self.all.split_at(at);
        before.iter().any(|turn| turn.in_the_way_of(&from[0]))
    }
}

#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    turns: Mutex<Turns>,
    ended: Condvar,
}

impl RangeLocks {
    /// Waits for a turn at `first..end`.
    pub(super) fn take(&self, first: u64, end: u64, share: Share) -> RangeGuard<'_> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let number = turns.next;
        turns.next += 1;
        turns.all.push(Turn {
            number,
            first,
            end,
            share,
        });
        while turns.blocks(number) {
            turns.waiting += 1;
            turns = self
                .ended
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
            turns.waiting -= 1;
        }
        RangeGuard { of: self, number }
    }
}

/// Holds a range locked until it is dropped.
pub(super) struct RangeGuard<'a> {
    of: &'a RangeLocks,
    number: u64,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut turns = self.of.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.all.retain(|turn| turn.number != self.number);
        if turns.waiting > 0 {
            self.of.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn those_who_share_do_not_wait_for_each_other() {
        let locks = RangeLocks::default();
        let _one = locks.take(0, 10, Share::Shared);
        let _two = locks.take(5, 15, Share::Shared);
        let _apart = locks.take(15, 20, Share::Alone);
    }

    #[test]
    fn one_who_is_alone_meets_nobody() {
        let locks = RangeLocks::default();
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..4_u64 {
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    for i in 0..2000 {
                        let from = (worker + i) % 3;
                        if worker == 0 {
                            let _turn = locks.take(from, from + 4, Share::Shared);
                            assert_eq!(inside.load(Ordering::SeqCst), 0);
                        } else {
                            // All of them share the range 3..4.
                            let _turn = locks.take(from, from + 4, Share::Alone);
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
    }
}
