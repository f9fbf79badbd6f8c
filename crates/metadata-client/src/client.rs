//! What a client consists of: its options, and the state that its threads share. The modules above say what is done with it.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metadata_proto::identity::Identity;
use metadata_proto::rpc::SessionId;
use model::{Error, InodeNo, Result};
use parking_lot::{Condvar, Mutex};

use super::closed::Closed;
use super::directories::Directories;
use super::disks::Disks;
use super::files::{Budget, Files, Unnamed};
use super::grants::Grants;
use super::link::Link;
use super::maps::Maps;
use super::names::Names;
use super::slots::Slots;
use super::transport::Tls;

/// Pauses before a disk is asked again, at first and at most; the first time there is none: a revoked right, or a new grant, is
/// requested at once.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How a client reaches its server.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Host and port of the metadata server; of several that take each other's place, all of them with commas between.
    pub address: String,
    /// How long a call waits for a server or disk that does not answer.
    pub timeout: Duration,
    /// How long one request to a disk may take; then it is sent again, or written elsewhere.
    pub disk_timeout: Duration,
    /// Bytes of written data kept until they are durable.
    pub log_bytes: usize,
}

impl ClientOptions {
    /// The usual: a minute's cut heals by itself, 64 MiB are kept.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            timeout: Duration::from_secs(90),
            disk_timeout: Duration::from_secs(10),
            log_bytes: 64 << 20,
        }
    }
}

/// What the server may know of this client.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// The server's incarnation.
    pub(super) boot: Option<u64>,
    /// The adopted session, and later ones in which locks were claimed: one of them has them.
    pub(super) sessions: Vec<SessionId>,
}

/// Everything of a client, shared by its threads.
#[derive(Debug)]
pub(super) struct ClientCore {
    pub(super) options: ClientOptions,
    pub(super) link: Link,
    pub(super) slots: Slots,
    /// Opens and closes under way.
    pub(super) opening: Slots,
    /// Generation of the newest adopted session, and of the newest that found another incarnation of the server.
    pub(super) adopted: AtomicU64,
    pub(super) reboot: AtomicU64,
    /// Where this client's sessions are with the server; held while a session is adopted.
    pub(super) standing: Mutex<Standing>,
    pub(super) disks: Disks,
    pub(super) grants: Grants,
    pub(super) maps: Maps,
    pub(super) names: Names,
    pub(super) directories: Directories,
    pub(super) files: Files,
    /// Files that may have data which the server lost, to be committed again.
    pub(super) owed: Mutex<BTreeSet<InodeNo>>,
    pub(super) closed: Closed,
    pub(super) budget: Budget,
    pub(super) unnamed: Unnamed,
    /// Rises when data was committed, and with each lock: attributes fetched before may be old.
    pub(super) placings: AtomicU64,
    pub(super) stop: Mutex<bool>,
    pub(super) wake: Condvar,
}

impl ClientCore {
    /// Without a connection yet.
    pub(super) fn new(options: ClientOptions, identity: &Identity) -> Result<Self> {
        let tls = Tls::new(identity).map_err(|e| Error::Io(io::Error::other(e)))?;
        Ok(Self {
            link: Link::new(options.address.clone(), tls)?,
            slots: Slots::new(),
            opening: Slots::new(),
            adopted: AtomicU64::new(0),
            reboot: AtomicU64::new(0),
            standing: Mutex::default(),
            disks: Disks::new(options.disk_timeout),
            grants: Grants::default(),
            maps: Maps::new(),
            names: Names::new(),
            directories: Directories::new(),
            files: Files::default(),
            owed: Mutex::default(),
            closed: Closed::default(),
            budget: Budget::new(options.log_bytes),
            unnamed: Unnamed::default(),
            placings: AtomicU64::new(0),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            options,
        })
    }

    /// The known incarnation of the server: a later one may have lost data that was committed in it.
    pub(super) fn incarnation(&self) -> u64 {
        self.reboot.load(Ordering::Acquire)
    }
}
