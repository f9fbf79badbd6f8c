//! Bytes of payload in memory, over all connections.
//!
//! 1. Never more than the limit is given out; a waiter waits for a bounded time.
//! 2. No holder takes more while it has a large part of what is left: something is free for others, however slow a holder is. The
//!    more holders there are, the less each can have (the dynamic thresholds of Choudhury and Hahne, 1998).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A number of bytes that is given out and comes back.
#[derive(Debug)]
pub struct Budget {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// What each one has that has something.
    held: HashMap<Holder, usize>,
}

/// Somebody who shares a [`Budget`] with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// All connections from an address: as much as is left for others.
    Address(Option<IpAddr>),
    /// A client's connections from an address: half as much as is left for others.
    Client(u64, Option<IpAddr>),
}

impl Holder {
    /// How many times what it has must be left.
    fn times(self) -> usize {
        match self {
            Self::Address(_) => 1,
            Self::Client(..) => 2,
        }
    }
}

impl State {
    fn allows(&self, bytes: usize, holders: &[Holder]) -> bool {
        let Some(left) = self.free.checked_sub(bytes) else {
            return false;
        };
        // One that has nothing takes what is there.
        holders.iter().all(|holder| {
            let held = self.held.get(holder);
            held.is_none_or(|held| (held + bytes).saturating_mul(holder.times()) <= left)
        })
    }
}

/// Bytes taken from a [`Budget`], released when dropped.
#[derive(Debug)]
pub struct Permit<'b> {
    budget: &'b Budget,
    bytes: usize,
    holders: Vec<Holder>,
}

impl Budget {
    /// With `bytes` to give out.
    pub fn new(bytes: usize) -> Self {
        Self {
            state: Mutex::new(State {
                free: bytes,
                held: HashMap::new(),
            }),
            freed: Condvar::new(),
        }
    }

    /// Takes `bytes` for `holders`, waiting up to `timeout`; `None` where they did not become free in time.
    pub fn take(&self, bytes: usize, holders: &[Holder], timeout: Duration) -> Option<Permit<'_>> {
        let holders = if bytes > 0 { holders } else { &[] };
        if bytes > 0 {
            let mut state = self.state.lock();
            let deadline = Instant::now() + timeout;
            while !state.allows(bytes, holders) {
                let late = self.freed.wait_until(&mut state, deadline).timed_out();
                if late && !state.allows(bytes, holders) {
                    return None;
                }
            }
            state.free -= bytes;
            for holder in holders {
                *state.held.entry(*holder).or_insert(0) += bytes;
            }
        }
        Some(Permit {
            budget: self,
            bytes,
            holders: holders.to_vec(),
        })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.budget.state.lock();
            state.free += self.bytes;
            for holder in &self.holders {
                if let Some(held) = state.held.get_mut(holder) {
                    *held -= self.bytes;
                    if *held == 0 {
                        state.held.remove(holder);
                    }
                }
            }
            drop(state);
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
        let take = |bytes| budget.take(bytes, &[], Duration::from_millis(1));
        let first = take(6).unwrap();
        assert!(take(5).is_none());
        assert!(take(4).is_some());
        drop(first);
        assert!(take(10).is_some());
        assert!(take(11).is_none());
    }

    #[test]
    fn a_holder_leaves_something_for_others() {
        let budget = Budget::new(100);
        let address = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        // All that it gets, ten bytes at a time.
        let all = |client, last| {
            let holders = [
                Holder::Address(address(last)),
                Holder::Client(client, address(last)),
            ];
            let take = || budget.take(10, &holders, Duration::ZERO);
            std::iter::from_fn(take).collect::<Vec<_>>()
        };
        let first = all(1, 1);
        assert_eq!(first.len(), 3);
        let same_address = all(2, 1);
        assert_eq!(same_address.len(), 2);
        assert!(all(3, 1).is_empty());
        let elsewhere = all(1, 2);
        assert_eq!(elsewhere.len(), 1);
        drop((first, same_address, elsewhere));
        // Who is alone may take all at once, and nothing of it stays with him.
        let whole = budget.take(100, &[Holder::Client(1, None)], Duration::ZERO);
        assert!(whole.is_some());
        drop(whole);
        assert!(budget.state.lock().held.is_empty());
    }
}
