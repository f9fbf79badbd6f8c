//! What was measured, and what is assumed. Nanoseconds.

use crate::{Latency, Time};

/// One microsecond.
pub const US: Time = 1_000;
/// One millisecond.
pub const MS: Time = 1_000_000;
/// One second.
pub const SECOND: Time = 1_000_000_000;

/// Processor time of the metadata server for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// In all.
    pub all: Time,
    /// Of that, in the threads that serve connections.
    pub network: Time,
}

const fn us(all: Time, network: Time) -> Cost {
    Cost {
        all: all * US,
        network: network * US,
    }
}

// Measured with `server_costs DIRECTORY 6 6000 20` and `… 1 6000 1000`, the least of three to five; the threads' part with
// `… 6 12000 20` in two slower runs. docs/scale.md has the table, and says which numbers are assumed.

/// A name in a directory.
pub const LOOKUP: Cost = us(42, 28);
/// Opening a file, and closing it among 64.
pub const OPEN: Cost = us(54, 26);
/// A map with its capabilities.
pub const MAP: Cost = us(59, 40);
/// A page of 512 names with attributes.
pub const LIST: Cost = us(1_500, 500);
/// A change of a name or attributes, durable.
pub const CHANGE: Cost = us(125, 46);
/// Data committed to a file.
pub const PLACE: Cost = us(82, 30);
/// Data committed to a file, durable.
pub const PLACE_SYNC: Cost = us(158, 60);
/// A heartbeat.
pub const HEARTBEAT: Cost = us(69, 30);
/// A connection with its TLS handshake, and a session.
pub const CONNECT: Cost = us(600, 500);

/// Of a change, what is done while all other changes of the room wait. Measured, an upper bound: all processor time of `room`'s example `scale`
/// for each of a million files.
pub const IN_TURN: Time = 24 * US;
/// Threads of a metadata server that serve connections, by the processors of its machine: `threads` in `server/listen.rs`.
pub fn network_threads(processors: usize) -> usize {
    (processors / 4).clamp(1, 4)
}
/// Calls of a room that run at the same time, where all are one user's: `RUNNING_PER_USER` of the metadata server.
pub const CALLS_MAX: usize = 256;
/// Connections that have not shown a key yet, at most; the oldest gives way to the newest: `waiting_max` of the metadata server.
pub const HANDSHAKES_MAX: usize = 256;
/// Longest time between two attempts of a client to connect: `PAUSE_MAX` of `link.rs`.
pub const RETRY: Time = 2 * SECOND;
/// Between two heartbeats of a client.
pub const HEARTBEAT_PAUSE: Time = SECOND;

/// Assumed: a request and its answer between two machines of one building.
pub const ROUND_TRIP: Time = 200 * US;

/// A sync of a local disk with a cache that survives power cuts, or a fast one. Measured: 0.15 to 0.4 ms for a sync of the log here.
pub const LOCAL_DISK: Latency = Latency::LogNormal {
    median: 250 * US,
    p99: 2 * MS,
};
/// A transaction of PostgreSQL on the same machine: docs/bucket.md.
pub const POSTGRESQL: Latency = Latency::LogNormal {
    median: 300 * US,
    p99: 600 * US,
};
/// Assumed: a PUT of a few kilobytes to S3 in the same region.
pub const S3: Latency = Latency::LogNormal {
    median: 20 * MS,
    p99: 100 * MS,
};
