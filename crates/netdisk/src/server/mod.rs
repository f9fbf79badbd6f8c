//! The disk server: takes connections, and answers what the checks allow. Threads, a few for each connection.
//!
//! 1. Memory is bounded: by the number of connections, the workers of each, the bytes of payload over all, the replay
//!    filter, and the groups.
//! 2. Who says nothing, or half of something, is cut off; who was authentic once may be silent.
//! 3. It stops in order: takes nothing new, answers what runs, flushes.

mod budget;
mod check;
mod connection;
mod metrics;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustls::ServerConfig;

pub use crate::replay::FilterSize;
pub use metrics::Metrics;

use crate::wire::Side;
use crate::{Boot, DiskKey, KeyFile, Protection, Store, tls};
use budget::Budget;
use check::Guard;
use metrics::{Counters, add, get};

/// How a disk is served.
#[derive(Debug, Clone)]
pub struct Config {
    /// Host and port to listen on; port 0 chooses one.
    pub listen: String,
    /// What protects the messages.
    pub protection: Protection,
    /// Listens also on what is not loopback in [`Protection::Open`], where anybody who reaches it may read and write.
    pub open_to_all: bool,
    /// Most connections; more are closed at once.
    pub connections_max: usize,
    /// Most threads for each connection: requests of one that run at the same time.
    pub workers_max: usize,
    /// Most bytes of payload in memory, over all connections; at least 1 MiB.
    pub payload_bytes_max: usize,
    /// A connection on which nothing authentic came within this time is cut off.
    pub first_request_max: Duration,
    /// A request must be there, and a reply be taken, within this time.
    pub transfer_max: Duration,
    /// How long a revocation waits for requests that run.
    pub drain_max: Duration,
    /// The replay filter.
    pub filter: FilterSize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            protection: Protection::Secure,
            open_to_all: false,
            connections_max: 256,
            workers_max: 8,
            payload_bytes_max: 64 << 20,
            first_request_max: Duration::from_secs(10),
            transfer_max: Duration::from_secs(30),
            drain_max: Duration::from_secs(60),
            filter: FilterSize::default(),
        }
    }
}

/// Why a disk cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, #[source] io::Error),
    /// Everybody who reaches the address could read and write.
    #[error(
        "{0} can be reached from other machines, and without protection everybody there could read and write the disk: listen on loopback, or serve it secure or private"
    )]
    OpenToOthers(SocketAddr),
    /// The key file is the metadata server's part.
    #[error(
        "the key file has no certificate: serve the disk with its own key file, not with the part for the metadata server"
    )]
    NoCertificate,
    /// The key is another disk's.
    #[error("the key file is of disk {key}, the store of disk {store}")]
    OtherDisk {
        /// The key file's.
        key: crate::DiskId,
        /// The store's.
        store: crate::DiskId,
    },
    /// The certificate cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// No thread.
    #[error("no thread could be started: {0}")]
    Thread(#[source] io::Error),
}

/// A disk that is being served. Stops when dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

/// What all connections share.
pub(crate) struct Shared {
    config: Config,
    store: Store,
    guard: Guard,
    side: Side,
    budget: Budget,
    counters: Counters,
    stopping: AtomicBool,
    seats: Mutex<Seats>,
    left: Condvar,
    /// Buffers for large payloads, between two requests.
    large: Mutex<Vec<Vec<u8>>>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    taken: HashMap<u64, TcpStream>,
}

/// A connection's place among those allowed; free when dropped.
struct Seat {
    shared: Arc<Shared>,
    number: u64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Serves `store` with the disk's own key file.
    pub fn start(config: Config, store: Store, keys: &KeyFile) -> Result<Self, ServeError> {
        if keys.id != store.id() {
            return Err(ServeError::OtherDisk {
                key: keys.id,
                store: store.id(),
            });
        }
        let tls = match config.protection {
            Protection::Private => {
                let certificate = keys.certificate.as_ref().ok_or(ServeError::NoCertificate)?;
                Some(tls::server(certificate)?)
            }
            Protection::Open | Protection::Secure => None,
        };
        Self::start_with(config, store, &keys.key, tls)
    }

    fn start_with(
        mut config: Config,
        store: Store,
        key: &DiskKey,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<Self, ServeError> {
        config.payload_bytes_max = config.payload_bytes_max.max(crate::frame::PAYLOAD_MAX);
        config.workers_max = config.workers_max.max(1);
        let listen = |e| ServeError::Listen(config.listen.clone(), e);
        let addresses: Vec<SocketAddr> = config.listen.to_socket_addrs().map_err(listen)?.collect();
        if config.protection == Protection::Open
            && !config.open_to_all
            && let Some(address) = addresses.iter().find(|a| !a.ip().is_loopback())
        {
            return Err(ServeError::OpenToOthers(*address));
        }
        let listener = TcpListener::bind(&addresses[..]).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            guard: Guard::new(key, config.protection, config.filter),
            side: tls.map_or(Side::Plain, Side::Server),
            budget: Budget::new(config.payload_bytes_max),
            counters: Counters::new(),
            stopping: AtomicBool::new(false),
            seats: Mutex::default(),
            left: Condvar::new(),
            large: Mutex::default(),
            store,
            config,
        });
        let listener = Arc::new(listener);
        let accepting = std::thread::Builder::new()
            .name("disk-accept".into())
            .spawn({
                let (listener, shared) = (listener.clone(), shared.clone());
                move || accept(&listener, &shared)
            })
            .map_err(ServeError::Thread)?;
        Ok(Self {
            shared,
            listener,
            address,
            accepting: Some(accepting),
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The disk it serves.
    pub fn id(&self) -> crate::DiskId {
        self.shared.store.id()
    }

    /// The present life of what is written and not flushed.
    pub fn life(&self) -> Boot {
        self.shared.store.life()
    }

    /// What it counted, and its state now.
    pub fn metrics(&self) -> Metrics {
        let shared = &self.shared;
        let (epoch, epoch_taken) = shared.guard.epoch();
        let size = shared.guard.filter_size();
        Metrics {
            epoch,
            epoch_taken,
            epoch_max: size.requests_per_epoch(),
            filter_bytes: size.memory_bytes(),
            groups: shared.guard.groups.valid().len() as u64,
            blocks: shared.store.blocks(),
            ..shared.counters.snapshot()
        }
    }

    /// Takes nothing new, answers what runs, then flushes. After `patience` connections are cut whatever runs.
    pub fn stop(&mut self, patience: Duration) -> io::Result<()> {
        let shared = self.shared.clone();
        shared.stopping.store(true, Ordering::SeqCst);
        // A listening socket that is shut down ends `accept` (Linux).
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            // It only panics by a bug of ours, which was printed.
            let _ = accepting.join();
        } else {
            return Ok(());
        }
        let mut seats = shared.seats.lock();
        for socket in seats.taken.values() {
            let _ = socket.shutdown(std::net::Shutdown::Read);
        }
        let deadline = Instant::now() + patience;
        while !seats.taken.is_empty() {
            if shared.left.wait_until(&mut seats, deadline).timed_out() {
                break;
            }
        }
        for socket in seats.taken.values() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        drop(seats);
        shared.store.flush()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop(Duration::from_secs(5)) {
            tracing::error!(%error, "the last flush failed");
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let taken = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match taken {
            Ok((socket, peer)) => take(socket, peer, shared),
            Err(error) => {
                // Too many open files, or a connection that was gone already: neither ends the server.
                tracing::warn!(%error, "a connection could not be taken");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn take(socket: TcpStream, peer: SocketAddr, shared: &Arc<Shared>) {
    let counters = &shared.counters;
    let Ok(handle) = socket.try_clone() else {
        return add(&counters.connections_refused, 1);
    };
    let number = {
        let mut seats = shared.seats.lock();
        if seats.taken.len() >= shared.config.connections_max {
            add(&counters.connections_refused, 1);
            return;
        }
        seats.next += 1;
        let number = seats.next;
        seats.taken.insert(number, handle);
        number
    };
    add(&counters.connections_taken, 1);
    add(&counters.connections, 1);
    let seat = Seat {
        shared: shared.clone(),
        number,
    };
    let started = std::thread::Builder::new()
        .name(format!("disk-{number}"))
        .stack_size(connection::STACK)
        .spawn(move || connection::serve(socket, peer, seat));
    if let Err(error) = started {
        // The seat went with the closure.
        tracing::warn!(%error, "no thread for a connection");
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.seats.lock().taken.remove(&self.number);
        self.shared
            .counters
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        self.shared.left.notify_all();
    }
}

impl Shared {
    fn in_flight(&self) -> InFlight<'_> {
        add(&self.counters.in_flight, 1);
        InFlight(self)
    }
}

/// Counts a request that runs.
struct InFlight<'s>(&'s Shared);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(get(&self.0.counters.in_flight) < u64::MAX / 2);
    }
}
