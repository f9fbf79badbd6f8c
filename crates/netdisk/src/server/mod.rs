//! The disk server: takes connections, and answers what the checks allow. Threads, a few for each connection.
//!
//! 1. Memory is bounded: by the number of connections, the workers of each, the bytes of payload over all, the replay
//!    filter, and the groups.
//! 2. A connection on which nothing was accepted for a while, or whose capability is not good any more, is cut off, and gives
//!    way to others before that. One whose capability is good may be idle.
//! 3. Clients cannot keep the metadata server out: its connections and payloads are not counted among theirs.
//! 4. It stops in order: takes nothing new, answers what runs, flushes.

mod check;
mod clock;
mod connection;
mod metrics;
mod proof;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::ServerConfig;
use streams::{
    Acceptor, Budget, Buffers, ConnectionLimiter, ConnectionPermit, Holder, Limits, Listener,
    Permit, Serve, Socket,
};

pub use crate::replay::FilterSize;
pub use clock::{MachineTime, TimeSource};
pub use metrics::Metrics;

use crate::wire::Side;
use crate::{Boot, KeyFile, Protection, Store, tls};
use check::Guard;
use clock::Clock;
use metrics::{Counters, add, get};

/// Bytes of the stack of a connection's threads.
const STACK: usize = 256 << 10;
/// Bytes of payload that only the metadata server's connections use.
const RESERVED: usize = 4 * crate::frame::PAYLOAD_MAX;
/// Payloads up to this many bytes are not counted: the workers have buffers of that size anyway.
const UNCOUNTED: usize = 4096;

/// How a disk is served.
#[derive(Debug, Clone)]
pub struct Config {
    /// Host and port to listen on; port 0 chooses one.
    pub listen: String,
    /// What protects the messages.
    pub protection: Protection,
    /// Listens also on what is not loopback in [`Protection::Open`], where anybody who reaches it may read and write.
    pub open_to_all: bool,
    /// Most connections of clients; requests on more are refused as [`crate::Reason::Busy`].
    pub connections_max: usize,
    /// Of these, most from one address; an IPv6 network of 64 bits counts as one.
    pub connections_per_address: usize,
    /// Of these, most of one client.
    pub connections_per_client: usize,
    /// Most connections on which nothing was accepted yet, or whose capability is not good any more; a further one takes the
    /// place of the oldest. A quarter of them may be from one address.
    pub waiting_max: usize,
    /// Most threads for each connection: requests of one that run at the same time.
    pub workers_max: usize,
    /// Most bytes of payload in memory, over all connections; at least 1 MiB.
    pub payload_bytes_max: usize,
    /// A connection on which nothing was accepted within this time, or since its capability is not good any more, is cut off.
    pub first_request_max: Duration,
    /// A request must be there, and a reply be taken, within this time.
    pub transfer_max: Duration,
    /// How long a revocation waits for requests that run.
    pub drain_max: Duration,
    /// The replay filter.
    pub filter: FilterSize,
    /// What the disk's clock has its time from.
    pub time: Arc<dyn TimeSource>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            protection: Protection::Secure,
            open_to_all: false,
            connections_max: 256,
            connections_per_address: 128,
            connections_per_client: 16,
            waiting_max: 256,
            workers_max: 8,
            payload_bytes_max: 64 << 20,
            first_request_max: Duration::from_secs(10),
            transfer_max: Duration::from_secs(30),
            drain_max: Duration::from_secs(60),
            filter: FilterSize::default(),
            time: Arc::new(MachineTime),
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
    acceptor: Acceptor,
    address: SocketAddr,
}

/// What all connections share.
pub(crate) struct Shared {
    config: Config,
    store: Store,
    guard: Guard,
    side: Side,
    budget: Budget,
    /// For the metadata server alone.
    reserved: Budget,
    counters: Counters,
    buffers: Buffers,
    limiter: Arc<ConnectionLimiter>,
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
                let previous = keys.previous.as_ref().map(|it| &it.certificate);
                Some(tls::server(certificate, previous)?)
            }
            Protection::Open | Protection::Secure => None,
        };
        Self::start_with(config, store, keys, tls)
    }

    fn start_with(
        mut config: Config,
        store: Store,
        keys: &KeyFile,
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
        let limits = Limits {
            clients: config.connections_max,
            per_address: config.connections_per_address,
            per_client: config.connections_per_client,
            waiting: config.waiting_max,
            waiting_per_address: config.waiting_max.div_ceil(4),
        };
        let limiter = ConnectionLimiter::authenticating("disk", STACK, limits);
        let shared = Arc::new(Shared {
            guard: Guard::new(
                keys,
                config.protection,
                config.filter,
                Clock::new(config.time.clone()),
            ),
            side: tls.map_or(Side::Plain, Side::Server),
            budget: Budget::new(config.payload_bytes_max),
            reserved: Budget::new(RESERVED),
            counters: Counters::new(),
            buffers: Buffers::default(),
            limiter: limiter.clone(),
            store,
            config,
        });
        let acceptor = Acceptor::start(Listener::Tcp(listener), limiter, shared.clone())
            .map_err(ServeError::Thread)?;
        Ok(Self {
            shared,
            acceptor,
            address,
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

    /// The present incarnation of unflushed writes.
    pub fn incarnation(&self) -> Boot {
        self.shared.store.incarnation()
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
            ..shared.counters.snapshot(shared.limiter.counts())
        }
    }

    /// Takes nothing new, answers what runs, then flushes. After `timeout` connections are cut whatever runs.
    pub fn stop(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.acceptor.stop(timeout) {
            return Ok(());
        }
        self.shared.store.flush()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop(Duration::from_secs(5)) {
            tracing::error!(%error, "the last flush failed");
        }
    }
}

impl Serve for Shared {
    fn serve(self: Arc<Self>, socket: Socket, peer: String, permit: ConnectionPermit) {
        connection::serve(self, socket, peer, permit);
    }
}

impl Shared {
    /// Memory for a payload, for those who share it with others or, where there are none, for the metadata server; `None` where none
    /// became free in time.
    fn payload(&self, bytes: usize, holders: &[Holder]) -> Option<Permit<'_>> {
        let budget = match holders {
            [] => &self.reserved,
            _ => &self.budget,
        };
        let counted = if bytes > UNCOUNTED { bytes } else { 0 };
        budget.take(counted, holders, self.config.transfer_max)
    }

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
