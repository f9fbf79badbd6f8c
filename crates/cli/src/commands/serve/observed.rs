//! What a server of block devices reports about itself to monitoring.

use std::sync::{Arc, RwLock};

use nbd::Server;
use service::{Measures, Observed};

/// A server that is watched while it serves.
pub(super) struct Watched(pub(super) Arc<RwLock<Server>>);

impl Observed for Watched {
    fn ready(&self) -> Result<(), String> {
        self.0.read().map(drop).map_err(|_| "failed".to_owned())
    }

    fn measure(&self, to: &mut Measures) {
        let Ok(server) = self.0.read() else {
            return;
        };
        let now = server.metrics();
        drop(server);
        to.counters(
            "strongroom_nbd_requests_total",
            "Requests done.",
            "command",
            now.done,
        );
        for (name, help, value) in [
            (
                "strongroom_nbd_failed_total",
                "Requests refused or failed.",
                now.failed,
            ),
            (
                "strongroom_nbd_read_bytes_total",
                "Bytes read by clients.",
                now.bytes_read,
            ),
            (
                "strongroom_nbd_written_bytes_total",
                "Bytes written by clients.",
                now.bytes_written,
            ),
            (
                "strongroom_nbd_connections_taken_total",
                "Connections taken.",
                now.connections_taken,
            ),
            (
                "strongroom_nbd_connections_refused_total",
                "Connections closed at once, because there were too many.",
                now.connections_refused,
            ),
            (
                "strongroom_nbd_connections_cut_total",
                "Connections cut off: idle, slow, or what came was not the protocol.",
                now.connections_cut,
            ),
        ] {
            to.counter(name, help, value);
        }
        to.gauge(
            "strongroom_nbd_connections",
            "Connections.",
            now.connections as f64,
        );
        to.gauge(
            "strongroom_nbd_requests_running",
            "Requests that run.",
            now.in_flight as f64,
        );
    }
}
