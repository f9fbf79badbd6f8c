//! A client of shared storage: a file system that can be mounted, whose names are with the metadata server and whose data it
//! reads from and writes to the disks itself.
//!
//! To begin with, copy `examples/share_room.rs` of `metadata-server`.
//!
//! 1. What was written is kept in memory until a commit of the server covered it, and written again when the server comes back
//!    without it. How much is bounded: then a write waits.
//! 2. Closing a file commits its data; opening one sees data committed before (close-to-open). Names and attributes are
//!    fetched each time.
//! 3. No call waits longer than the [timeout](ClientOptions::timeout), except for a lock that another client holds. A
//!    shorter network failure is not noticed.
//! 4. Two clients that write into the same 4 KiB of a file at the same time write over each other: the unit of sharing is a
//!    block.
//!
//! It deliberately does not know FUSE or rooms, nor who may do what: that is the server's to say.

#![forbid(unsafe_code)]

pub mod admin;
mod background;
mod calls;
mod closed;
mod disks;
mod errors;
mod file_system;
mod files;
mod grants;
mod link;
mod locks;
mod maps;
mod opens;
mod placing;
mod reading;
mod slots;
mod transport;
mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metadata_proto::identity::Identity;
use model::{Error, Result};
use parking_lot::{Condvar, Mutex};

/// Pauses before a disk is asked again, at first and at most; the first time there is none: a revoked right, or a new grant, is
/// requested at once.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How a client reaches its server.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Host and port of the metadata server.
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

/// Everything of a client, shared by its threads.
#[derive(Debug)]
struct ClientCore {
    options: ClientOptions,
    link: link::Link,
    slots: slots::Slots,
    /// Generation of the newest adopted session, and of the newest that found another incarnation of the server.
    adopted: AtomicU64,
    reboot: AtomicU64,
    /// The server's incarnation; held while a session is adopted.
    boot: Mutex<Option<u64>>,
    disks: disks::Disks,
    grants: grants::Grants,
    maps: maps::Maps,
    files: files::Files,
    closed: closed::Closed,
    budget: files::Budget,
    unnamed: file_system::Unnamed,
    /// Rises when data was committed: attributes fetched before may be old.
    placings: AtomicU64,
    stop: Mutex<bool>,
    wake: Condvar,
}

/// A file system shared with others. End it: what is not durable when it is dropped may be lost.
#[derive(Debug)]
pub struct SharedRoom {
    core: Arc<ClientCore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl SharedRoom {
    /// Connects to the server, as the user whose identity it is.
    ///
    /// # Errors
    /// `Unreachable` where nobody answers in time; `Io` where the server speaks another version, or threads cannot be started.
    pub fn connect(options: ClientOptions, identity: &Identity) -> Result<Self> {
        let tls = transport::Tls::new(identity).map_err(|e| Error::Io(std::io::Error::other(e)))?;
        let core = Arc::new(ClientCore {
            link: link::Link::new(options.address.clone(), tls)?,
            slots: slots::Slots::new(),
            adopted: AtomicU64::new(0),
            reboot: AtomicU64::new(0),
            boot: Mutex::new(None),
            disks: disks::Disks::new(options.disk_timeout),
            grants: grants::Grants::default(),
            maps: maps::Maps::new(),
            files: files::Files::default(),
            closed: closed::Closed::default(),
            budget: files::Budget::new(options.log_bytes),
            unnamed: file_system::Unnamed::default(),
            placings: AtomicU64::new(0),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            options,
        });
        // A mount command should not wait as long as a program that loses its connection.
        let deadline = Instant::now() + core.options.timeout.min(Duration::from_secs(10));
        core.connected(deadline)?;
        let threads = Mutex::new(background::start(&core)?);
        Ok(Self { core, threads })
    }

    /// Makes everything durable and ends the session.
    ///
    /// # Errors
    /// That of making it durable; the session is over in any case.
    pub fn end(&self) -> Result<()> {
        let synced = self.core.sync_all();
        let bye = Instant::now() + Duration::from_secs(2);
        if let Ok(connected) = self.core.connected(bye) {
            let ask = |client: metadata_proto::rpc::MetadataClient, context, id| async move {
                client.bye(context, id).await
            };
            // Without it the session ends with its lease.
            let _ = self.core.link.attempt(&connected, bye, ask);
        }
        self.stop();
        synced
    }

    fn stop(&self) {
        *self.core.stop.lock() = true;
        self.core.wake.notify_all();
        self.core.link.end();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the client ended by a bug in this program");
            }
        }
    }
}

impl Drop for SharedRoom {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ClientCore {
    /// The known incarnation of the server: a later one may have lost data that was committed in it.
    fn incarnation(&self) -> u64 {
        self.reboot.load(Ordering::Acquire)
    }

    /// Adopts a new session: open files are opened again, locks and grants are gone, and data that the server lost with its
    /// incarnation is to be committed again.
    fn adopt(&self, connected: &link::Connected, deadline: Instant) -> Result<()> {
        let session = &connected.session;
        let mut boot = self.boot.lock();
        if self.adopted.load(Ordering::Acquire) >= session.generation {
            return Ok(());
        }
        let reboot = boot.is_some_and(|boot| boot != session.boot);
        if reboot {
            tracing::warn!("the metadata server was restarted");
            // Before the files' states are read: data committed from here on belongs to the new incarnation.
            self.reboot.store(session.generation, Ordering::Release);
        }
        self.disks.update(&session.disks);
        self.grants.forget();
        self.maps.forget();
        for file in self.files.all() {
            if reboot {
                // Before the server reports what it still has of the file: it must not seem shorter for a moment.
                let mut state = file.state.lock();
                state.outdate();
                self.budget.release(state.replay());
            }
            if !self.reopen(connected, &file, deadline)? {
                // Broken again: the next session is taken up instead.
                return Ok(());
            }
            let mut state = file.state.lock();
            if !state.locks.is_empty() {
                tracing::warn!(inode = file.no.0, "locks were lost with the session");
                state.locks.clear();
                state.lost_locks = state.opens > 0;
            }
            state.outdate();
        }
        *boot = Some(session.boot);
        self.adopted.store(session.generation, Ordering::Release);
        Ok(())
    }
}
