//! The connections that are there: how many there may be, and what is counted of them.
//!
//! 1. There are never more than allowed.
//! 2. Each is known by a handle of its socket, so that all can be ended.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Socket;

/// The connections of a server.
#[derive(Debug)]
pub struct Seats {
    name: &'static str,
    stack: usize,
    max: usize,
    stopping: AtomicBool,
    places: Mutex<Places>,
    left: Condvar,
    taken: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
}

#[derive(Debug, Default)]
struct Places {
    last: u64,
    taken: HashMap<u64, Socket>,
}

/// What was counted of a server's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections now.
    pub now: u64,
    /// Taken since the start.
    pub taken: u64,
    /// Closed at once, because there were too many.
    pub refused: u64,
    /// Cut off, says who serves them.
    pub cut: u64,
}

/// A connection's place among those allowed; free when dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    number: u64,
}

impl Seats {
    /// `max` seats. The threads of a connection are named `name-NUMBER`, and have `stack` bytes.
    pub fn new(name: &'static str, stack: usize, max: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            stack,
            max,
            stopping: AtomicBool::new(false),
            places: Mutex::default(),
            left: Condvar::new(),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        })
    }

    /// Whether nothing new is to be begun any more.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Counts a connection that is cut off.
    pub fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted, now.
    pub fn counts(&self) -> Counts {
        Counts {
            now: self.places.lock().taken.len() as u64,
            taken: self.taken.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            cut: self.cut.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// A seat for a connection; `None` where there is none left.
    pub(crate) fn take(self: &Arc<Self>, socket: &Socket) -> Option<Seat> {
        let refused = || {
            self.refused.fetch_add(1, Ordering::Relaxed);
            None
        };
        let Ok(handle) = socket.try_clone() else {
            return refused();
        };
        let number = {
            let mut places = self.places.lock();
            if places.taken.len() >= self.max {
                return refused();
            }
            places.last += 1;
            let number = places.last;
            places.taken.insert(number, handle);
            number
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Seat {
            seats: self.clone(),
            number,
        })
    }

    /// A thread for the connection of this number. Where there can be none, what `work` holds is dropped.
    pub(crate) fn spawn(&self, number: u64, work: impl FnOnce() + Send + 'static) {
        let started = std::thread::Builder::new()
            .name(format!("{}-{number}", self.name))
            .stack_size(self.stack)
            .spawn(work);
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for a connection");
        }
    }

    pub(crate) fn begin_to_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Lets connections answer what they received, and cuts those that are left after `patience`.
    pub(crate) fn end(&self, patience: Duration) {
        let mut places = self.places.lock();
        for socket in places.taken.values() {
            socket.shutdown(Shutdown::Read);
        }
        let deadline = Instant::now() + patience;
        while !places.taken.is_empty() {
            if self.left.wait_until(&mut places, deadline).timed_out() {
                break;
            }
        }
        for socket in places.taken.values() {
            socket.shutdown(Shutdown::Both);
        }
    }
}

impl Seat {
    /// A further thread for the connection, if there can be one.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        self.seats.spawn(self.number, work);
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.places.lock().taken.remove(&self.number);
        self.seats.left.notify_all();
    }
}
