//! A connection: bytes in, bytes out, plain or inside TLS; for many threads at once.
//!
//! 1. One thread at a time receives, one at a time sends (the callers see to that); neither waits for the other.
//! 2. Nothing is sent for longer than the time allowed: a peer that does not take its data is cut off.
//!
//! It deliberately does not know what the bytes mean.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use streams::{Ahead, Socket, Stream, is_tick};

use crate::tls::SERVER_NAME;

/// Bytes of ciphertext read from the socket at once.
const CHUNK: usize = 64 << 10;
/// Some small messages, and little of a large payload, which is better received where it belongs.
pub(crate) const AHEAD: Ahead = Ahead {
    usual: 16 << 10,
    after_large: 16 << 10,
    direct: 8 << 10,
};
/// Data that the peer's kernel does not confirm for this long is lost, and the connection with it.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
    tls: Option<Tls>,
    send_max: Duration,
}

#[derive(Debug)]
struct Tls {
    state: Mutex<Connection>,
    /// Ciphertext must leave in the order it was made: whoever sends holds this from encrypting to sending.
    outgoing: Mutex<Vec<u8>>,
    incoming: Mutex<Incoming>,
}

/// Ciphertext that TLS has not taken in yet.
#[derive(Debug)]
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

/// Whether TLS, and as whom.
#[derive(Debug, Clone)]
pub(crate) enum Side {
    Plain,
    Server(Arc<ServerConfig>),
    Client(Arc<ClientConfig>),
}

impl Wire {
    /// Over a connected socket; with TLS after the handshake, which `socket`'s timeouts and `handshake_max` bound. Afterwards
    /// reading waits `tick` at most (for ever without one), sending `send_max`.
    pub(crate) fn new(
        socket: Socket,
        side: Side,
        handshake_max: Duration,
        tick: Option<Duration>,
        send_max: Duration,
    ) -> io::Result<Self> {
        socket.prepare(send_max, UNCONFIRMED_MAX)?;
        let state: Option<Connection> = match side {
            Side::Plain => None,
            Side::Server(config) => Some(
                ServerConnection::new(config)
                    .map_err(io::Error::other)?
                    .into(),
            ),
            Side::Client(config) => {
                let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
                Some(
                    ClientConnection::new(config, name)
                        .map_err(io::Error::other)?
                        .into(),
                )
            }
        };
        let tls = match state {
            None => None,
            Some(mut state) => {
                let deadline = Instant::now() + handshake_max;
                // So that a peer that sends a byte now and then is cut off too.
                socket.set_tick(Some(handshake_max / 4))?;
                while state.is_handshaking() {
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    match state.complete_io(&mut Until(&socket, deadline)) {
                        Err(e) if is_tick(&e) => (),
                        other => drop(other?),
                    }
                }
                state.set_buffer_limit(None);
                Some(Tls {
                    state: Mutex::new(state),
                    outgoing: Mutex::new(Vec::new()),
                    incoming: Mutex::new(Incoming {
                        bytes: vec![0; CHUNK],
                        start: 0,
                        end: 0,
                    }),
                })
            }
        };
        socket.set_tick(tick)?;
        let wire = Self {
            socket,
            tls,
            send_max,
        };
        wire.send_waiting()?;
        Ok(wire)
    }

    /// What TLS itself has to say.
    fn send_waiting(&self) -> io::Result<()> {
        self.tls.as_ref().map_or(Ok(()), |_| self.send(&[]))
    }

    /// Sends no more, and takes in what is still coming, for a moment.
    pub(crate) fn linger(&self) {
        self.socket.linger();
    }

    /// Receives no more.
    pub(crate) fn stop_receiving(&self) {
        self.socket.shutdown(Shutdown::Read);
    }
}

impl Stream for Wire {
    fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.socket.read(out);
        };
        let mut incoming = tls.incoming.lock();
        loop {
            let answers = {
                let mut state = tls.state.lock();
                match state.reader().read(out) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => (),
                    // An end without a farewell is an end: every message says its own length.
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                    other => return other,
                }
                // TLS takes in little at a time, and wants its plaintext fetched in between.
                let mut rest = incoming.rest();
                let before = rest.len();
                if before > 0 {
                    state.read_tls(&mut rest)?;
                    incoming.start += before - rest.len();
                    state
                        .process_new_packets()
                        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                }
                before > 0 && state.wants_write()
            };
            if answers {
                self.send_waiting()?;
            }
            if incoming.rest().is_empty() && tls.state.lock().wants_read() {
                let got = self.socket.read(&mut incoming.bytes)?;
                (incoming.start, incoming.end) = (0, got);
                if got == 0 {
                    return Ok(0);
                }
            }
        }
    }

    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let deadline = Instant::now() + self.send_max;
        let Some(tls) = &self.tls else {
            return self.socket.send_all(parts, deadline);
        };
        let mut outgoing = tls.outgoing.lock();
        outgoing.clear();
        {
            let mut state = tls.state.lock();
            for part in parts {
                state.writer().write_all(part)?;
            }
            while state.wants_write() {
                state.write_tls(&mut *outgoing)?;
            }
        }
        let sent = self.socket.send_all(&[&outgoing], deadline);
        if outgoing.capacity() > 4 * CHUNK {
            outgoing.shrink_to(4 * CHUNK);
        }
        sent
    }

    fn cut(&self) {
        self.socket.shutdown(Shutdown::Both);
    }
}

/// A socket from which nothing is read any more after a moment: a peer that sends a byte now and then does not keep a handshake
/// going.
struct Until<'s>(&'s Socket, Instant);

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.1 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.0.read(buf)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write_vectored(&[IoSlice::new(buf)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
