//! How a room is served.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::authority::Timing;
use crate::fence::{InDirectory, RoomFiles};
use crate::{audit, enrol};

/// How a room is served.
#[derive(Debug, Clone)]
pub struct Config {
    /// The room's directory, or the one that represents it on this machine.
    pub room: PathBuf,
    /// Where the room's files are, but for the segments.
    pub files: Arc<dyn RoomFiles>,
    /// Whether the server starts although another one has the room, and opens it later.
    pub waits: bool,
    /// How it is opened; `extent` is set here.
    pub open: room::OpenOptions,
    /// Where to listen; port 0 chooses one.
    pub listen: SocketAddr,
    /// A session ends this long after its last heartbeat.
    pub lease: Duration,
    /// How long capabilities are good, and revocations are waited for.
    pub timing: Timing,
    /// How long a flush of a disk that cannot be reached is tried before the room is closed and opened again.
    pub flush_timeout: Duration,
    /// Most connections of users; more are closed.
    pub connections_max: usize,
    /// Of these, most from one address; an IPv6 network of 64 bits counts as one.
    pub connections_per_address: usize,
    /// Of these, most of one user.
    pub connections_per_user: usize,
    /// Most connections that have not shown a key of a user yet; a further one takes the place of the oldest. A quarter of them
    /// may be from one address.
    pub waiting_max: usize,
    /// Most calls of one connection that run at the same time; more wait.
    pub calls_max: usize,
    /// What protects the messages of all disks, instead of what each was added with.
    pub protection: Option<netdisk::Protection>,
    /// Disks to add before the room is served; those known by the same name and id get a new address.
    pub disks: Vec<enrol::Disk>,
    /// Where the audit log is written; `None`: nowhere.
    pub audit: Option<audit::Settings>,
}

impl Config {
    /// A room with the usual settings, on loopback.
    pub fn new(room: PathBuf) -> Self {
        Self {
            room,
            files: Arc::new(InDirectory),
            waits: false,
            open: room::OpenOptions::default(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            lease: Duration::from_secs(20),
            timing: Timing::default(),
            flush_timeout: Duration::from_secs(60),
            connections_max: 1024,
            connections_per_address: 512,
            connections_per_user: 256,
            waiting_max: 256,
            calls_max: 64,
            protection: None,
            disks: Vec::new(),
            audit: None,
        }
    }

    pub(super) fn as_served(&self, mut disk: enrol::Disk) -> enrol::Disk {
        if let Some(protection) = self.protection {
            disk.address.protection = protection;
        }
        disk
    }
}
