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

use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use streams::{Ahead, Socket, Stream, is_tick};

use crate::session::Session;
use crate::tls::ClientTls;

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
    tls: Option<Session>,
    send_max: Duration,
}

/// Whether TLS, and as whom.
#[derive(Debug, Clone)]
pub(crate) enum Side {
    Plain,
    Server(Arc<ServerConfig>),
    Client(ClientTls),
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
            Side::Client(tls) => Some(
                ClientConnection::new(tls.config, tls.name)
                    .map_err(io::Error::other)?
                    .into(),
            ),
        };
        let tls = state
            .map(|state| shake_hands(state, &socket, handshake_max))
            .transpose()?;
        socket.set_tick(tick)?;
        Ok(Self {
            socket,
            tls,
            send_max,
        })
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
        match &self.tls {
            None => self.socket.read(out),
            Some(tls) => {
                let got = tls.recv(out, |bytes| self.socket.read(bytes))?;
                if tls.has_answers() {
                    self.send(&[])?;
                }
                Ok(got)
            }
        }
    }

    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let deadline = Instant::now() + self.send_max;
        match &self.tls {
            None => self.socket.send_all(parts, deadline),
            Some(tls) => tls.send(parts, |bytes| self.socket.send_all(&[bytes], deadline)),
        }
    }

    fn cut(&self) {
        self.socket.shutdown(Shutdown::Both);
    }
}

/// The handshake, which `socket`'s timeouts and `handshake_max` bound.
fn shake_hands(
    mut state: Connection,
    socket: &Socket,
    handshake_max: Duration,
) -> io::Result<Session> {
    let deadline = Instant::now() + handshake_max;
    // So that a peer that sends a byte now and then is cut off too.
    socket.set_tick(Some(handshake_max / 4))?;
    let mut bounded = Bounded { socket, deadline };
    while state.is_handshaking() || state.wants_write() {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match state.complete_io(&mut bounded) {
            Err(e) if is_tick(&e) => (),
            other => drop(other?),
        }
    }
    Ok(Session::new(state))
}

/// A socket that is not read any more after a moment: a peer that sends a byte now and then does not keep a handshake going.
struct Bounded<'s> {
    socket: &'s Socket,
    deadline: Instant,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.read(buf)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.write_vectored(&[IoSlice::new(buf)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use rustls::StreamOwned;

    use super::*;
    use crate::{KeyFile, tls};

    const LONG: Duration = Duration::from_secs(20);

    fn wire(socket: TcpStream, side: Side) -> io::Result<Wire> {
        Wire::new(Socket::Tcp(socket), side, LONG, Some(LONG), LONG)
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn receive(wire: &Wire, len: usize) -> Vec<u8> {
        let (mut all, mut out) = (Vec::new(), vec![0; 50_000]);
        while all.len() < len {
            let got = wire.recv(&mut out).unwrap();
            assert!(got > 0);
            all.extend_from_slice(&out[..got]);
        }
        all
    }

    /// Sends there and back what is larger than a record, with `rustls` as the other end.
    fn talk(wire: &Wire, other: &mut (impl Read + Write + Send)) {
        let data: Vec<u8> = (0..300_000).map(|at| (at / 3) as u8).collect();
        thread::scope(|scope| {
            scope.spawn(|| wire.send(&[b"head", &data]).unwrap());
            let mut got = vec![0; 4 + data.len()];
            other.read_exact(&mut got).unwrap();
            assert!(got == [b"head", &data[..]].concat());
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                other.write_all(&data).unwrap();
                other.flush().unwrap();
            });
            assert!(receive(wire, data.len()) == data);
        });
    }

    #[test]
    fn both_ends_speak_tls_with_others() {
        let keys = KeyFile::generate().unwrap();
        let certificate = keys.certificate.as_ref().unwrap();
        let server = tls::server(certificate, None).unwrap();
        let client = tls::client(keys.certificate_hash).unwrap();

        let (near, far) = pair();
        let mut other = thread::scope(|scope| {
            let server = Side::Server(server.clone());
            let wire = scope.spawn(|| wire(far, server).unwrap());
            let state = ClientConnection::new(client.config.clone(), client.name.clone()).unwrap();
            let mut other = StreamOwned::new(state, near);
            // Together with the end of the handshake.
            other.write_all(b"early").unwrap();
            let wire = wire.join().unwrap();
            assert_eq!(receive(&wire, 5), b"early");
            talk(&wire, &mut other);
            other.conn.send_close_notify();
            other.flush().unwrap();
            assert_eq!(wire.recv(&mut [0; 100]).unwrap(), 0);
            other
        });
        assert!(other.read(&mut [0; 1]).is_err());

        let (near, far) = pair();
        thread::scope(|scope| {
            let wire = scope.spawn(|| wire(near, Side::Client(client)).unwrap());
            let state = ServerConnection::new(server).unwrap();
            let mut other = StreamOwned::new(state, far);
            other.write_all(b"early").unwrap();
            let wire = wire.join().unwrap();
            assert_eq!(receive(&wire, 5), b"early");
            talk(&wire, &mut other);
            other.conn.refresh_traffic_keys().unwrap();
            other.write_all(b"under other keys").unwrap();
            assert_eq!(receive(&wire, 16), b"under other keys");
            talk(&wire, &mut other);
        });
    }
}
