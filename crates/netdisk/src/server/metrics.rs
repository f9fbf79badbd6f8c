//! What a disk server counts, for its operator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use streams::Counts;

use crate::Reason;
use crate::frame::Op;

/// A refusal of one kind is written to the log at most this often; the count is always exact.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A moment's state of a disk server. Counters count from its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Requests done, by operation.
    pub done: Vec<(&'static str, u64)>,
    /// Requests refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Bytes of blocks read by clients.
    pub bytes_read: u64,
    /// Bytes of blocks written by clients.
    pub bytes_written: u64,
    /// Requests that run now.
    pub in_flight: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections taken since the start.
    pub connections_taken: u64,
    /// Connections that were not taken because there were too many.
    pub connections_refused: u64,
    /// Connections cut off because the peer was idle or slow, or what it sent was no message.
    pub connections_cut: u64,
    /// The replay filter's epoch.
    pub epoch: u64,
    /// Nonces taken in this epoch.
    pub epoch_taken: u64,
    /// Nonces that end an epoch.
    pub epoch_max: u64,
    /// Bytes of the replay filter.
    pub filter_bytes: u64,
    /// Valid capability groups.
    pub groups: u64,
    /// Blocks of the disk.
    pub blocks: u64,
}

#[derive(Debug)]
pub(crate) struct Counters {
    done: [AtomicU64; Op::ALL.len()],
    refused: [AtomicU64; Reason::ALL.len()],
    said: Mutex<[Option<Instant>; Reason::ALL.len()]>,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) in_flight: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            done: Default::default(),
            refused: Default::default(),
            said: Mutex::new([None; Reason::ALL.len()]),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        }
    }

    pub(crate) fn done(&self, op: Op) {
        if let Some(at) = Op::ALL.iter().position(|other| *other == op) {
            add(&self.done[at], 1);
        }
    }

    pub(crate) fn refused(&self, reason: Reason, peer: &str) {
        let at = usize::from(reason.code()) - 1;
        let count = self.refused[at].fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let mut said = self.said.lock();
        if said[at].is_none_or(|last| now.saturating_duration_since(last) >= LOG_EVERY) {
            said[at] = Some(now);
            drop(said);
            // A client that comes back with an old boot or epoch is no news.
            if matches!(reason, Reason::StaleBoot | Reason::StaleEpoch) {
                tracing::debug!(reason = reason.name(), count, peer, "refused a request");
            } else {
                tracing::warn!(reason = reason.name(), count, peer, "refused a request");
            }
        }
    }

    pub(crate) fn snapshot(&self, connections: Counts) -> Metrics {
        Metrics {
            done: Op::ALL
                .iter()
                .zip(&self.done)
                .map(|(op, count)| (op.name(), get(count)))
                .collect(),
            refused: Reason::ALL
                .iter()
                .zip(&self.refused)
                .map(|(reason, count)| (reason.name(), get(count)))
                .collect(),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            in_flight: get(&self.in_flight),
            connections: connections.now,
            connections_taken: connections.taken,
            connections_refused: connections.refused,
            connections_cut: connections.cut,
            ..Metrics::default()
        }
    }
}

impl Metrics {
    /// How many requests were refused for `reason`.
    pub fn refused_for(&self, reason: Reason) -> u64 {
        self.refused
            .iter()
            .find(|(name, _)| *name == reason.name())
            .map_or(0, |(_, count)| *count)
    }
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
