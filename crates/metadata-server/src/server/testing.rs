//! Failures at chosen moments of a change, for tests.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A moment of a change.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Before it is done.
    Received,
    /// It is done, and not durable.
    Applied,
    /// It is durable, and its answer not remembered by this process.
    Committed,
    /// Its answer is remembered, and not sent.
    Answered,
    /// Not of a change: a session is over, its rights are revoked, and the room still lists it as a holder of locks.
    Ending,
}

/// The failure that is to come, if any.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    point: Mutex<Option<Point>>,
    /// Incarnations take no number of which they have seen no name, from their beginning on.
    late: AtomicBool,
}

impl Fault {
    pub(super) fn set(&self, point: Point) {
        *self.point.lock() = Some(point);
    }

    pub(super) fn is_set(&self) -> bool {
        self.point.lock().is_some()
    }

    /// Whether the failure comes now: once.
    pub(super) fn comes(&self, point: Point) -> bool {
        self.point.lock().take_if(|set| *set == point).is_some()
    }

    pub(super) fn set_late(&self) {
        self.late.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_late(&self) -> bool {
        self.late.load(Ordering::SeqCst)
    }
}
