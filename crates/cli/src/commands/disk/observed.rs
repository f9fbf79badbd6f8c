//! What a disk reports about itself to monitoring.

use std::sync::{Arc, RwLock};

use netdisk::server::Server;
use service::{Measures, Observed};

/// A disk server that is watched while it serves.
pub(super) struct Watched(pub(super) Arc<RwLock<Server>>);

impl Observed for Watched {
    fn ready(&self) -> Result<(), String> {
        // It does its work as long as it listens; without a valid group it waits for its metadata server.
        let metrics = self.0.read().map_err(|_| "failed".to_owned())?.metrics();
        match metrics.groups {
            0 => Err("waiting for the metadata server: no capability is valid yet".into()),
            _ => Ok(()),
        }
    }

    fn measure(&self, to: &mut Measures) {
        let Ok(server) = self.0.read() else {
            return;
        };
        let now = server.metrics();
        drop(server);
        to.counters(
            "strongroom_disk_requests_total",
            "Requests done.",
            "operation",
            now.done,
        );
        to.counters(
            "strongroom_disk_refused_total",
            "Requests refused.",
            "reason",
            now.refused,
        );
        to.counter(
            "strongroom_disk_read_bytes_total",
            "Bytes read by clients.",
            now.bytes_read,
        );
        to.counter(
            "strongroom_disk_written_bytes_total",
            "Bytes written by clients.",
            now.bytes_written,
        );
        to.gauge(
            "strongroom_disk_requests_running",
            "Requests that run.",
            now.in_flight as f64,
        );
        to.gauge(
            "strongroom_disk_connections",
            "Connections.",
            now.connections as f64,
        );
        to.counter(
            "strongroom_disk_connections_taken_total",
            "Connections taken.",
            now.connections_taken,
        );
        to.counter(
            "strongroom_disk_connections_refused_total",
            "Connections closed at once, because there were too many.",
            now.connections_refused,
        );
        to.counter(
            "strongroom_disk_connections_cut_total",
            "Connections cut off: idle, slow, or what came was no message.",
            now.connections_cut,
        );
        to.gauge(
            "strongroom_disk_replay_epoch",
            "Number of the replay filter's epoch.",
            now.epoch as f64,
        );
        to.gauge(
            "strongroom_disk_replay_taken",
            "Requests in the replay filter's epoch.",
            now.epoch_taken as f64,
        );
        to.gauge(
            "strongroom_disk_replay_taken_max",
            "Requests that end an epoch.",
            now.epoch_max as f64,
        );
        to.gauge(
            "strongroom_disk_replay_bytes",
            "Memory of the replay filter, in bytes.",
            now.filter_bytes as f64,
        );
        to.gauge(
            "strongroom_disk_groups",
            "Valid capability groups.",
            now.groups as f64,
        );
        to.gauge(
            "strongroom_disk_size_bytes",
            "Size of the disk, in bytes.",
            now.blocks as f64 * netdisk::BLOCK_LEN as f64,
        );
    }
}
