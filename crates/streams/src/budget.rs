//! Bytes of payload in memory, over all connections.
//!
//! 1. Never more than the limit is given out; a waiter waits for a bounded time.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A number of bytes that is given out and comes back.
#[derive(Debug)]
pub struct Budget {
    free: Mutex<usize>,
    freed: Condvar,
}

/// Bytes taken from a [`Budget`], released when dropped.
#[derive(Debug)]
pub struct Permit<'b> {
    budget: &'b Budget,
    bytes: usize,
}

impl Budget {
    /// With `bytes` to give out.
    pub fn new(bytes: usize) -> Self {
        Self {
            free: Mutex::new(bytes),
            freed: Condvar::new(),
        }
    }

    /// Takes `bytes`, waiting up to `timeout`; `None` where they did not become free in time.
    pub fn take(&self, bytes: usize, timeout: Duration) -> Option<Permit<'_>> {
        if bytes > 0 {
            let mut free = self.free.lock();
            if *free < bytes {
                let deadline = Instant::now() + timeout;
                while *free < bytes {
                    if self.freed.wait_until(&mut free, deadline).timed_out() && *free < bytes {
                        return None;
                    }
                }
            }
            *free -= bytes;
        }
        Some(Permit {
            budget: self,
            bytes,
        })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.free.lock() += self.bytes;
            self.budget.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_given_out() {
        let budget = Budget::new(10);
        let first = budget.take(6, Duration::ZERO).unwrap();
        assert!(budget.take(5, Duration::from_millis(1)).is_none());
        assert!(budget.take(4, Duration::ZERO).is_some());
        drop(first);
        assert!(budget.take(10, Duration::ZERO).is_some());
        assert!(budget.take(11, Duration::ZERO).is_none());
    }
}
