//! Letting connections in, until the orderly end.
//!
//! 1. A connection that cannot be taken does not end the server, and is not tried again without a pause.
//! 2. At the end nothing new is taken, what runs may be answered for a while, then every connection is cut.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{ConnectionLimiter, ConnectionPermit, Socket};

/// A pause after a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(20);

/// What a server listens on.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A socket file, which is removed at the end.
    Unix(UnixListener, PathBuf),
}

/// Who serves what is let in.
pub trait Serve: Send + Sync + 'static {
    /// Serves a connection to its end, on a thread of its own. `peer` says in the log who it is.
    fn serve(self: Arc<Self>, socket: Socket, peer: String, permit: ConnectionPermit);
}

/// A thread that lets connections in.
#[derive(Debug)]
pub struct Acceptor {
    listener: Arc<Listener>,
    limiter: Arc<ConnectionLimiter>,
    accepting: Option<JoinHandle<()>>,
}

impl Listener {
    fn accept(&self) -> io::Result<(Socket, String, Option<IpAddr>)> {
        match self {
            Self::Tcp(it) => it
                .accept()
                .map(|(socket, peer)| (Socket::Tcp(socket), peer.to_string(), Some(peer.ip()))),
            Self::Unix(it, _) => it.accept().map(|(socket, _)| {
                let peer = rustix::net::sockopt::socket_peercred(&socket);
                let peer = peer.map_or_else(
                    |_| "somebody here".into(),
                    |peer| format!("process {}", peer.pid.as_raw_nonzero()),
                );
                (Socket::Unix(socket), peer, None)
            }),
        }
    }

    fn shutdown(&self) {
        // A listening socket that is shut down ends `accept` (Linux).
        let both = rustix::net::Shutdown::Both;
        let _ = match self {
            Self::Tcp(it) => rustix::net::shutdown(it, both),
            Self::Unix(it, _) => rustix::net::shutdown(it, both),
        };
    }
}

impl Acceptor {
    /// Lets connections in from now on.
    pub fn start(
        listener: Listener,
        limiter: Arc<ConnectionLimiter>,
        server: Arc<impl Serve>,
    ) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let accepting = std::thread::Builder::new()
            .name(format!("{}-accept", limiter.name()))
            .spawn({
                let (listener, limiter) = (listener.clone(), limiter.clone());
                move || accept(&listener, &limiter, &server)
            })?;
        Ok(Self {
            listener,
            limiter,
            accepting: Some(accepting),
        })
    }

    /// Where it listens, if over TCP.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &*self.listener {
            Listener::Tcp(it) => it.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// Takes nothing new, and waits until what runs is answered. After `timeout` connections are cut whatever runs. Returns
    /// whether this was the first call; a later one does nothing.
    pub fn stop(&mut self, timeout: Duration) -> bool {
        let Some(accepting) = self.accepting.take() else {
            return false;
        };
        self.limiter.begin_to_stop();
        self.listener.shutdown();
        // It only panics by a bug of ours, which was printed.
        let _ = accepting.join();
        if let Listener::Unix(_, path) = &*self.listener {
            // Somebody may have taken it away.
            let _ = std::fs::remove_file(path);
        }
        self.limiter.end(timeout);
        true
    }
}

fn accept(listener: &Listener, limiter: &Arc<ConnectionLimiter>, server: &Arc<impl Serve>) {
    loop {
        let taken = listener.accept();
        if limiter.is_stopping() {
            return;
        }
        match taken {
            Ok((socket, peer, address)) => {
                if let Some(permit) = limiter.take(&socket, address) {
                    let server = server.clone();
                    limiter.spawn(permit.number(), move || server.serve(socket, peer, permit));
                }
            }
            Err(error) => {
                // Too many open files, or a connection that was gone already: neither ends the server.
                tracing::warn!(%error, "a connection could not be taken");
                std::thread::sleep(PAUSE);
            }
        }
    }
}
