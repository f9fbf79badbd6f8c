//! What happens next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds, since the simulation began or as a length.
pub type Time = u64;

/// Events in the order of time; those of one time in the order in which they were scheduled.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<(Time, u64, E)>>,
    scheduled: u64,
}

impl<E: Ord> Default for Events<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            scheduled: 0,
        }
    }
}

impl<E: Ord> Events<E> {
    /// Schedules an event.
    pub fn at(&mut self, time: Time, event: E) {
        self.scheduled += 1;
        self.heap.push(Reverse((time, self.scheduled, event)));
    }

    /// Takes the next event.
    pub fn take(&mut self) -> Option<(Time, E)> {
        let Reverse((time, _, event)) = self.heap.pop()?;
        Some((time, event))
    }
}
