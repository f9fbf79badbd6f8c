//! A client of shared storage: a file system that can be mounted, whose names are with the metadata server and whose data it
//! reads from and writes to the disks itself.
//!
//! To begin with, copy `examples/share_room.rs` of `metadata-server`.
//!
//! 1. What was written is kept in memory until a commit of the server covered it, and written again when the server comes back
//!    without it, but never over what another client wrote since: that is reported as a loss. How much is kept is bounded: then a write waits.
//! 2. Closing a file commits its data; opening one sees data committed before (close-to-open). Names and attributes are
//!    fetched each time, but names of directories under a lease of the server.
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
mod client;
mod closed;
mod directories;
mod disk_writes;
mod disks;
mod errors;
mod file_system;
mod files;
mod granting;
mod grants;
mod link;
mod locks;
mod maps;
mod names;
mod naming;
mod opens;
mod past;
mod placing;
mod reading;
mod slots;
mod transport;
mod writing;

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metadata_proto::identity::Identity;
use model::Result;
use parking_lot::Mutex;

use client::ClientCore;
pub use client::ClientOptions;

/// A file system shared with others. End it: what is not durable when it is dropped may be lost.
pub struct SharedRoom {
    core: Arc<ClientCore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

// Not what it holds: too much for a log.
impl fmt::Debug for SharedRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRoom").finish_non_exhaustive()
    }
}

impl SharedRoom {
    /// Connects to the server, as the user whose identity it is.
    ///
    /// # Errors
    /// `Unreachable` where nobody answers in time; `Io` where the server speaks another version, or threads cannot be started.
    pub fn connect(options: ClientOptions, identity: &Identity) -> Result<Self> {
        let core = Arc::new(ClientCore::new(options, identity)?);
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
