//! The server: takes connections, and answers them. Threads, a few for each connection.
//!
//! 1. Memory is bounded: by the number of connections, the workers of each, and the bytes of payload over all.
//! 2. A client that sends nothing before the transmission phase, or half a request in it, is cut off. In the transmission
//!    phase a client may be idle, unless the settings say otherwise.
//! 3. It stops in order: takes nothing new, answers what runs, flushes every export.

mod act;
mod answer;
mod connection;
mod metrics;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use streams::{
    Acceptor, Budget, Buffers, ConnectionLimiter, ConnectionPermit, Listener, Serve, Socket,
};

pub use metrics::Metrics;

use crate::export::Exports;
use crate::{Export, ExportError, PAYLOAD_MAX, Tls, TlsPolicy};
use metrics::{Counters, add};

/// Bytes of the stack of a connection's threads.
const STACK: usize = 512 << 10;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// Host and port; port 0 chooses one.
    Tcp(String),
    /// A socket file, which must not be there yet, unless nobody listens on it any more. For its owner only.
    Unix(PathBuf),
}

/// How exports are served.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where.
    pub listen: Listen,
    /// Whether with TLS; not [`TlsPolicy::Off`] needs [`Self::tls`].
    pub policy: TlsPolicy,
    /// TLS.
    pub tls: Option<Tls>,
    /// Listens also on what is not loopback without requiring TLS, where anybody who reaches it may read and write.
    pub open_to_all: bool,
    /// Most connections; more are closed at once.
    pub connections_max: usize,
    /// Most threads for each connection: requests of one that run at the same time.
    pub workers_max: usize,
    /// Most bytes of payload in memory, over all connections; at least 32 MiB.
    pub payload_bytes_max: usize,
    /// A connection that is not in the transmission phase within this time is cut off; one that takes no answers, within twice that.
    pub handshake_max: Duration,
    /// A request must be there, and a reply be taken, within this time.
    pub transfer_max: Duration,
    /// A connection without a request for this long is cut off.
    pub idle_max: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Listen::Tcp("127.0.0.1:0".into()),
            policy: TlsPolicy::Off,
            tls: None,
            open_to_all: false,
            connections_max: 256,
            workers_max: 16,
            payload_bytes_max: 128 << 20,
            handshake_max: Duration::from_secs(15),
            transfer_max: Duration::from_secs(60),
            idle_max: None,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What is to be served cannot be.
    #[error(transparent)]
    Exports(#[from] ExportError),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, #[source] io::Error),
    /// Somebody listens there.
    #[error("{}: another server listens on this socket", .0.display())]
    Taken(PathBuf),
    /// Everybody who reaches the address could read and write.
    #[error(
        "{0} can be reached from other machines, and without TLS everybody there could read and write: listen on loopback or on a Unix socket, or require TLS"
    )]
    OpenToOthers(SocketAddr),
    /// TLS without keys.
    #[error("TLS needs certificates or pre-shared keys")]
    NoTls,
    /// No thread.
    #[error("no thread could be started: {0}")]
    Thread(#[source] io::Error),
}

/// Exports that are being served. Stops when dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Acceptor,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    exports: Exports,
    budget: Budget,
    counters: Counters,
    buffers: Buffers,
    limiter: Arc<ConnectionLimiter>,
}

/// Listens where it is wanted, and safe.
fn bind(config: &Config) -> Result<Listener, ServeError> {
    match &config.listen {
        Listen::Tcp(text) => {
            let listen = |e| ServeError::Listen(text.clone(), e);
            let addresses: Vec<SocketAddr> = text.to_socket_addrs().map_err(listen)?.collect();
            let open = config.policy != TlsPolicy::Require && !config.open_to_all;
            let outside = addresses.iter().find(|a| !a.ip().is_loopback());
            if let (true, Some(address)) = (open, outside) {
                return Err(ServeError::OpenToOthers(*address));
            }
            let listener = TcpListener::bind(&addresses[..]).map_err(listen)?;
            Ok(Listener::Tcp(listener))
        }
        Listen::Unix(path) => {
            let listener = bind_unix(path)?;
            Ok(Listener::Unix(listener, path.clone()))
        }
    }
}

/// Listens on a socket file; what a server that was killed left behind is replaced.
fn bind_unix(path: &Path) -> Result<UnixListener, ServeError> {
    let listen = |e| ServeError::Listen(path.display().to_string(), e);
    let listener = match streams::listen_privately(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            let refused = UnixStream::connect(path).err().map(|e| e.kind());
            match refused {
                Some(io::ErrorKind::ConnectionRefused) => {
                    use std::os::unix::fs::FileTypeExt;
                    let kind = path.symlink_metadata().map_err(listen)?.file_type();
                    if !kind.is_socket() {
                        return Err(listen(e));
                    }
                    std::fs::remove_file(path).map_err(listen)?;
                    streams::listen_privately(path).map_err(listen)?
                }
                _ => return Err(ServeError::Taken(path.to_owned())),
            }
        }
        other => other.map_err(listen)?,
    };
    Ok(listener)
}

impl Server {
    /// Serves `exports`. The first is what clients get who ask for no name.
    pub fn start(mut config: Config, exports: Vec<Export>) -> Result<Self, ServeError> {
        config.payload_bytes_max = config.payload_bytes_max.max(PAYLOAD_MAX as usize);
        config.workers_max = config.workers_max.max(1);
        if config.policy == TlsPolicy::Off {
            config.tls = None;
        } else if config.tls.is_none() {
            return Err(ServeError::NoTls);
        }
        let exports = Exports::new(exports)?;
        let listener = bind(&config)?;
        let limiter = ConnectionLimiter::new("nbd", STACK, config.connections_max);
        let shared = Arc::new(Shared {
            exports,
            budget: Budget::new(config.payload_bytes_max),
            counters: Counters::default(),
            buffers: Buffers::default(),
            limiter: limiter.clone(),
            config,
        });
        let acceptor =
            Acceptor::start(listener, limiter, shared.clone()).map_err(ServeError::Thread)?;
        Ok(Self { shared, acceptor })
    }

    /// Where it listens, if over TCP.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.acceptor.local_addr()
    }

    /// What it counted, and its state now.
    pub fn metrics(&self) -> Metrics {
        self.shared.counters.snapshot(self.shared.limiter.counts())
    }

    /// Takes nothing new, answers what runs, then flushes. After `timeout` connections are cut whatever runs.
    pub fn stop(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.acceptor.stop(timeout) {
            return Ok(());
        }
        let mut flushed = Ok(());
        let exports = self.shared.exports.iter();
        for export in exports.filter(|export| !export.is_read_only()) {
            flushed = flushed.and(export.device.flush());
        }
        flushed
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
    fn in_flight(&self) -> InFlight<'_> {
        add(&self.counters.in_flight, 1);
        InFlight(self)
    }

    fn is_stopping(&self) -> bool {
        self.limiter.is_stopping()
    }
}

/// Counts a request that runs.
struct InFlight<'s>(&'s Shared);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
