//! What a server counts.

use std::sync::atomic::{AtomicU64, Ordering};

use streams::Counts;

use crate::proto::Command;

/// Numbers of one moment; all but the last two only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Requests done, by command.
    pub done: Vec<(&'static str, u64)>,
    /// Requests refused or failed.
    pub failed: u64,
    /// Bytes read by clients.
    pub bytes_read: u64,
    /// Bytes written by clients.
    pub bytes_written: u64,
    /// Connections taken.
    pub connections_taken: u64,
    /// Connections closed at once, because there were too many.
    pub connections_refused: u64,
    /// Connections cut off: idle, slow, or in violation of the protocol.
    pub connections_cut: u64,
    /// Connections now.
    pub connections: u64,
    /// Requests that run now.
    pub in_flight: u64,
}

const NAMES: [&str; 8] = [
    "read",
    "write",
    "disconnect",
    "flush",
    "trim",
    "cache",
    "write_zeroes",
    "block_status",
];

#[derive(Debug, Default)]
pub(crate) struct Counters {
    done: [AtomicU64; NAMES.len()],
    pub(crate) failed: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) in_flight: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(crate) fn done(&self, command: Command) {
        let at = match command {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Other(_) => return,
        };
        add(&self.done[at], 1);
    }

    pub(crate) fn snapshot(&self, connections: Counts) -> Metrics {
        Metrics {
            done: NAMES.into_iter().zip(self.done.iter().map(get)).collect(),
            failed: get(&self.failed),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            connections_taken: connections.taken,
            connections_refused: connections.refused,
            connections_cut: connections.cut,
            connections: connections.now,
            in_flight: get(&self.in_flight),
        }
    }
}
