//! Where work waits for its turn: processors and disks, and a log with group commit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Time;

/// Servers with one queue, first come first served. Visits must be in the order of time.
#[derive(Debug)]
pub struct Station {
    /// When each of the servers is free.
    free: BinaryHeap<Reverse<Time>>,
    busy: Time,
}

impl Station {
    /// With so many servers, 1 at least.
    pub fn new(servers: usize) -> Self {
        Self {
            free: std::iter::repeat_n(Reverse(0), servers).collect(),
            busy: 0,
        }
    }

    /// Work that comes now and takes so long: when it is done.
    pub fn serve(&mut self, now: Time, takes: Time) -> Time {
        let Reverse(free) = self.free.pop().expect("a station has a server");
        let done = free.max(now) + takes;
        self.free.push(Reverse(done));
        self.busy += takes;
        done
    }

    /// Time that its servers worked or will work, of all that came so far.
    pub fn busy(&self) -> Time {
        self.busy
    }

    /// How many servers.
    pub fn servers(&self) -> usize {
        self.free.len()
    }
}

/// A log: one sync at a time, and everybody who comes during one shares the next.
#[derive(Debug, Default)]
pub struct Log {
    /// When the running sync ends, and the one that waits for it.
    ends: Time,
    waiting: Option<Time>,
    syncs: u64,
    busy: Time,
}

impl Log {
    /// A change that comes now: when it is durable. `sync` says how long a sync takes.
    pub fn join(&mut self, now: Time, sync: impl FnOnce() -> Time) -> Time {
        if now >= self.ends
            && let Some(next) = self.waiting.take()
        {
            self.ends = next;
        }
        if let Some(shared) = self.waiting {
            return shared;
        }
        let takes = sync();
        self.syncs += 1;
        self.busy += takes;
        if now >= self.ends {
            self.ends = now + takes;
            return self.ends;
        }
        let next = self.ends + takes;
        self.waiting = Some(next);
        next
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Time that they took.
    pub fn busy(&self) -> Time {
        self.busy
    }
}
