//! What the server counts.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::Shared;
use crate::authority::{DiskState, Totals};

/// How often a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCount {
    /// Calls answered.
    pub done: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Time they took together, in nanoseconds.
    pub ns: u64,
}

/// A moment's counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Calls by name.
    pub calls: BTreeMap<&'static str, CallCount>,
    /// Connections now.
    pub connections: u64,
    /// Connections since the start.
    pub connections_total: u64,
    /// Connections that were not let in: no place, no certificate of a user, no handshake in time.
    pub connections_refused: u64,
    /// Sessions now.
    pub sessions: u64,
    /// Files open in them.
    pub opens: u64,
    /// Write grants.
    pub grants: u64,
    /// Ranges locked.
    pub locks: u64,
    /// Capabilities.
    pub capabilities: Totals,
    /// Disks.
    pub disks: Vec<DiskState>,
    /// How often the room was opened again after a failure of its storage.
    pub reopened: u64,
    /// Whether the room is open.
    pub serving: bool,
}

#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<&'static str, CallCount>,
    connections: u64,
    connections_total: u64,
    connections_refused: u64,
    reopened: u64,
}

impl Counters {
    pub(super) fn call(&self, name: &'static str, refused: bool, took: Duration) {
        let mut counts = self.0.lock();
        let call = counts.calls.entry(name).or_default();
        call.done += 1;
        call.refused += u64::from(refused);
        call.ns += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    }

    pub(super) fn came(&self) {
        let mut counts = self.0.lock();
        counts.connections += 1;
        counts.connections_total += 1;
    }

    pub(super) fn left(&self) {
        self.0.lock().connections -= 1;
    }

    pub(super) fn turned_away(&self) {
        self.0.lock().connections_refused += 1;
    }

    pub(super) fn reopened(&self) {
        self.0.lock().reopened += 1;
    }
}

impl Metrics {
    pub(super) fn of(shared: &Shared) -> Self {
        let mut metrics = {
            let counts = shared.counters.0.lock();
            Self {
                calls: counts.calls.clone(),
                connections: counts.connections,
                connections_total: counts.connections_total,
                connections_refused: counts.connections_refused,
                reopened: counts.reopened,
                ..Self::default()
            }
        };
        if let Some(incarnation) = shared.incarnation() {
            for session in incarnation.sessions.alive() {
                let (opens, grants) = session.counts();
                metrics.sessions += 1;
                metrics.opens += opens as u64;
                metrics.grants += grants as u64;
            }
            metrics.locks = incarnation.locks.len() as u64;
            metrics.capabilities = incarnation.authority.totals();
            metrics.disks = super::drain::states(&incarnation);
            metrics.serving = !incarnation.has_failed();
        }
        metrics
    }
}
