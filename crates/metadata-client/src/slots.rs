//! Slots: which changes of this client are under way, and their numbers; opens and closes have slots of their own.
//!
//! 1. A slot has one change at a time. The next one has a higher number, by which the server knows that the answer to the one
//!    before is not needed any more.
//! 2. The lowest free slot is taken, so that the server remembers as many answers as changes were under way at once.
//!
//! It deliberately does not know what a change is.

use std::collections::BTreeSet;
use std::time::Instant;

use metadata_proto::rpc::{Once, SLOTS_MAX};
use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
struct State {
    free: BTreeSet<u32>,
    /// The number used last, by slot.
    last: Vec<u64>,
}

/// All slots of a client.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

/// A slot for one change, until dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    pub(super) number: u32,
    pub(super) sequence: u64,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                free: (0..SLOTS_MAX).collect(),
                last: vec![0; SLOTS_MAX as usize],
            }),
            freed: Condvar::new(),
        }
    }

    /// A slot with its next number; `None` where none gets free in time.
    pub(super) fn take(&self, deadline: Instant) -> Option<Slot<'_>> {
        let mut state = self.state.lock();
        loop {
            if let Some(number) = state.free.pop_first() {
                let last = &mut state.last[number as usize];
                *last += 1;
                return Some(Slot {
                    slots: self,
                    number,
                    sequence: *last,
                });
            }
            if self.freed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
    }
}

impl Slot<'_> {
    /// For a call that counts once in its session.
    pub(super) fn once(&self) -> Once {
        Once {
            slot: self.number,
            sequence: self.sequence,
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.slots.state.lock().free.insert(self.number);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_change_at_a_time_and_rising_numbers() {
        let slots = Slots::new();
        let now = Instant::now();
        let first = slots.take(now).unwrap();
        let second = slots.take(now).unwrap();
        assert_eq!((first.number, first.sequence), (0, 1));
        assert_eq!((second.number, second.sequence), (1, 1));
        drop(first);
        let again = slots.take(now).unwrap();
        assert_eq!((again.number, again.sequence), (0, 2));
        let others: Vec<_> = (2..SLOTS_MAX).map(|_| slots.take(now).unwrap()).collect();
        assert!(slots.take(now).is_none());
        drop(others);
        assert!(slots.take(now).is_some());
    }
}
