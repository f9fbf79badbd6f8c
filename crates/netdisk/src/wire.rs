//! A connection: bytes in, bytes out, plain or inside TLS; for many threads at once.
//!
//! 1. One thread at a time receives (the caller sees to that), one at a time sends ([`Sender`]); neither waits for the other.
//! 2. Nothing is sent for longer than the time allowed: a peer that does not take its data is cut off.
//!
//! It deliberately does not know what the bytes mean.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::tls::SERVER_NAME;

/// Bytes of ciphertext read from the socket at once.
const CHUNK: usize = 64 << 10;
/// Bytes received ahead: some small messages, and little of a large payload, which is better received where it belongs.
const AHEAD: usize = 16 << 10;
/// What is left of a payload is received where it belongs from this many bytes on.
const DIRECT: usize = 8 << 10;
/// Data that the peer's kernel does not confirm for this long is lost, and the connection with it.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(10);
/// How long a connection that ends badly is still listened to.
const LINGER: Duration = Duration::from_millis(500);
/// Messages up to this many bytes are gathered while another thread sends, and go out in one call.
const SMALL: usize = 16 << 10;
/// With more than this gathered, a thread waits for its turn instead.
const GATHERED_MAX: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: TcpStream,
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
        mut socket: TcpStream,
        side: Side,
        handshake_max: Duration,
        tick: Option<Duration>,
        send_max: Duration,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(send_max))?;
        notice_when_gone(&socket, send_max)?;
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
                socket.set_read_timeout(Some(handshake_max / 4))?;
                while state.is_handshaking() {
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    match state.complete_io(&mut Until(&mut socket, deadline)) {
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
        socket.set_read_timeout(tick)?;
        let wire = Self {
            socket,
            tls,
            send_max,
        };
        wire.send_waiting()?;
        Ok(wire)
    }

    /// Some bytes; 0 at the end. `WouldBlock` or `TimedOut` after a tick without any.
    fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return retry(|| (&self.socket).read(out));
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
                let got = retry(|| (&self.socket).read(&mut incoming.bytes))?;
                (incoming.start, incoming.end) = (0, got);
                if got == 0 {
                    return Ok(0);
                }
            }
        }
    }

    /// Sends all of `parts`. The caller is the only one that sends.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let deadline = Instant::now() + self.send_max;
        let Some(tls) = &self.tls else {
            return self.send_plain(parts, deadline);
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
        let sent = self.send_plain(&[&outgoing], deadline);
        if outgoing.capacity() > 4 * CHUNK {
            outgoing.shrink_to(4 * CHUNK);
        }
        sent
    }

    /// What TLS itself has to say.
    fn send_waiting(&self) -> io::Result<()> {
        self.tls.as_ref().map_or(Ok(()), |_| self.send(&[]))
    }

    fn send_plain(&self, parts: &[&[u8]], deadline: Instant) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); 3];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let mut rest = &mut slices[..parts.len()];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let sent = retry(|| (&self.socket).write_vectored(rest)).map_err(|e| {
                if is_tick(&e) {
                    io::ErrorKind::TimedOut.into()
                } else {
                    e
                }
            })?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, sent);
            if !rest.is_empty() && Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Ends it for both sides; whoever waits for it returns.
    pub(crate) fn cut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sends no more, and takes in what is still coming, for a moment: a connection closed with unread bytes in it is reset, and
    /// the peer would not see what was said last.
    pub(crate) fn linger(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut scratch = [0; 4096];
        while Instant::now() < deadline {
            match (&self.socket).read(&mut scratch) {
                Ok(0) | Err(_) => break,
                Ok(_) => (),
            }
        }
    }

    /// Receives no more.
    pub(crate) fn stop_receiving(&self) {
        let _ = self.socket.shutdown(Shutdown::Read);
    }
}

/// A peer that vanished without a word is noticed: after two minutes of silence, or when it does not confirm what was sent
/// to it in time (`tcp(7)`).
fn notice_when_gone(socket: &TcpStream, send_max: Duration) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    let unconfirmed = send_max.min(UNCONFIRMED_MAX);
    // At most 10,000 ms.
    sockopt::set_tcp_user_timeout(socket, unconfirmed.as_millis() as u32)?;
    Ok(())
}

/// A socket from which nothing is read any more after a moment: a peer that sends a byte now and then does not keep a handshake
/// going.
struct Until<'s>(&'s mut TcpStream, Instant);

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.1 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        retry(|| self.0.read(buf))
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether an error only says that nothing came (or left) within a tick.
pub(crate) fn is_tick(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            other => return other,
        }
    }
}

/// The sending half: threads take turns, and what is small goes out together.
#[derive(Debug)]
pub(crate) struct Sender {
    turn: Mutex<()>,
    gathered: Mutex<Vec<u8>>,
}

impl Sender {
    pub(crate) fn new() -> Self {
        Self {
            turn: Mutex::new(()),
            gathered: Mutex::new(Vec::new()),
        }
    }

    /// Sends `parts` as one piece, now or with what another thread is about to send. An error ends the connection, also
    /// for those whose bytes were gathered: they learn it from the receiving side.
    pub(crate) fn send(&self, wire: &Wire, parts: [&[u8]; 2]) -> io::Result<()> {
        let len = parts[0].len() + parts[1].len();
        let mut gathered = self.gathered.lock();
        if len <= SMALL && gathered.len() <= GATHERED_MAX {
            gathered.extend_from_slice(parts[0]);
            gathered.extend_from_slice(parts[1]);
            drop(gathered);
        } else {
            drop(gathered);
            let turn = self.turn.lock();
            let before = std::mem::take(&mut *self.gathered.lock());
            self.checked(wire, &[&before, parts[0], parts[1]])?;
            drop(turn);
        }
        // Whoever had the turn when ours was gathered may have looked before: look again after each turn.
        while !self.gathered.lock().is_empty() {
            let Some(turn) = self.turn.try_lock() else {
                break;
            };
            let mut together = std::mem::take(&mut *self.gathered.lock());
            if !together.is_empty() {
                self.checked(wire, &[&together])?;
            }
            drop(turn);
            together.clear();
            let mut gathered = self.gathered.lock();
            if gathered.capacity() == 0 && together.capacity() <= GATHERED_MAX {
                *gathered = together;
            }
        }
        Ok(())
    }

    fn checked(&self, wire: &Wire, parts: &[&[u8]]) -> io::Result<()> {
        wire.send(parts).inspect_err(|_| wire.cut())
    }
}

/// The receiving half: fewer, larger reads.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; AHEAD],
            start: 0,
            end: 0,
        }
    }

    /// Fills `out`. After each wait `waited` says whether to go on, and is told whether anything of `out` is there. `Ok(false)`
    /// where the peer had ended before the first byte.
    pub(crate) fn fill(
        &mut self,
        wire: &Wire,
        out: &mut [u8],
        waited: &mut dyn FnMut(bool) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut done = 0;
        while done < out.len() {
            if self.start < self.end {
                let part = (out.len() - done).min(self.end - self.start);
                out[done..done + part].copy_from_slice(&self.buffer[self.start..self.start + part]);
                done += part;
                self.start += part;
                continue;
            }
            let rest = &mut out[done..];
            let direct = rest.len() >= DIRECT;
            let got = if direct {
                wire.recv(rest)
            } else {
                wire.recv(&mut self.buffer)
            };
            match got {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) if direct => done += got,
                Ok(got) => (self.start, self.end) = (0, got),
                Err(e) if is_tick(&e) => {
                    waited(done > 0)?;
                    continue;
                }
                Err(e) => return Err(e),
            }
            if done < out.len() {
                waited(done > 0 || self.start < self.end)?;
            }
        }
        Ok(true)
    }
}
