//! A connection: bytes in, bytes out, plain or inside TLS; for many threads at once.
//!
//! 1. One thread at a time receives (the caller sees to that), one at a time sends ([`Sender`]); neither waits for the other.
//! 2. Nothing is sent for longer than the time allowed: a peer that does not take its data is cut off.
//! 3. What came in plain before TLS began is never taken for what came inside it.
//!
//! It deliberately does not know what the bytes mean.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use openssl::ssl::{Error as SslError, ErrorCode, Ssl, SslStream};
use parking_lot::Mutex;

use crate::Tls;
use crate::socket::{Socket, is_tick};

/// Bytes received ahead: small messages come many at once.
const AHEAD: usize = 128 << 10;
/// Bytes received ahead after a large payload: another is likely, which is better received where it belongs.
const AHEAD_OF_LARGE: usize = 256;
/// What is left of a payload is received where it belongs from this many bytes on.
const DIRECT: usize = 16 << 10;
/// Bytes of ciphertext read from the socket at once.
const CHUNK: usize = 128 << 10;
/// Bytes encrypted before they are sent.
const RECORDS: usize = 256 << 10;
/// How long a connection that ends is still listened to.
const LINGER: Duration = Duration::from_millis(500);
/// Messages up to this many bytes are gathered while another thread sends, and go out in one call.
const SMALL: usize = 16 << 10;
/// With more than this gathered, a thread waits for its turn instead.
const GATHERED_MAX: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
    tls: Option<Inside>,
    send_max: Duration,
}

/// TLS, over memory.
#[derive(Debug)]
struct Inside {
    state: Mutex<SslStream<Pipe>>,
    /// Ciphertext must leave in the order it was made: whoever sends holds this from encrypting to sending.
    outgoing: Mutex<Vec<u8>>,
    /// Ciphertext on its way in.
    incoming: Mutex<Vec<u8>>,
}

/// What TLS takes for its socket: ciphertext in both directions.
#[derive(Debug, Default)]
struct Pipe {
    incoming: Vec<u8>,
    /// How much of `incoming` was taken.
    taken: usize,
    outgoing: Vec<u8>,
}

impl Pipe {
    fn feed(&mut self, bytes: &[u8]) {
        if self.taken == self.incoming.len() {
            self.incoming.clear();
            self.taken = 0;
        }
        self.incoming.extend_from_slice(bytes);
    }
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = &self.incoming[self.taken..];
        if rest.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let part = rest.len().min(buf.len());
        buf[..part].copy_from_slice(&rest[..part]);
        self.taken += part;
        Ok(part)
    }
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wants_more(error: &SslError) -> bool {
    matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)
}

fn broken(error: SslError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}

impl Wire {
    /// Over a connected socket. Reading waits `tick` at most, sending `send_max`.
    pub(crate) fn new(socket: Socket, tick: Duration, send_max: Duration) -> io::Result<Self> {
        socket.prepare(tick, send_max)?;
        Ok(Self {
            socket,
            tls: None,
            send_max,
        })
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Goes on inside TLS after a handshake that must be done by `deadline`.
    pub(crate) fn start_tls(&mut self, tls: &Tls, deadline: Instant) -> io::Result<()> {
        let ssl = Ssl::new(&tls.context).map_err(io::Error::other)?;
        let mut stream = SslStream::new(ssl, Pipe::default()).map_err(io::Error::other)?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let step = stream.accept();
            let answer = std::mem::take(&mut stream.get_mut().outgoing);
            self.send_plain(&[&answer], deadline)?;
            match step {
                Ok(()) => break,
                Err(e) if wants_more(&e) => (),
                Err(e) => return Err(broken(e)),
            }
            let got = loop {
                if Instant::now() >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                match self.socket.read(&mut chunk) {
                    Err(e) if is_tick(&e) => (),
                    other => break other?,
                }
            };
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            stream.get_mut().feed(&chunk[..got]);
        }
        self.tls = Some(Inside {
            state: Mutex::new(stream),
            outgoing: Mutex::default(),
            incoming: Mutex::new(chunk),
        });
        Ok(())
    }

    /// Some bytes; 0 at the end. `WouldBlock` or `TimedOut` after a tick without any.
    fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.socket.read(out);
        };
        let mut incoming = tls.incoming.lock();
        loop {
            let (got, answers) = {
                let mut state = tls.state.lock();
                let mut got = 0;
                let end = loop {
                    match state.ssl_read(&mut out[got..]) {
                        Ok(more) => got += more,
                        Err(e) => break e,
                    }
                    if got == out.len() {
                        return Ok(got);
                    }
                };
                match end.code() {
                    _ if wants_more(&end) || got > 0 => (),
                    ErrorCode::ZERO_RETURN => return Ok(0),
                    _ => return Err(broken(end)),
                }
                (got, !state.get_ref().outgoing.is_empty())
            };
            if answers {
                self.send(&[])?;
            }
            if got > 0 {
                return Ok(got);
            }
            let more = self.socket.read(&mut incoming)?;
            if more == 0 {
                // An end without a farewell is an end: every message says its own length.
                return Ok(0);
            }
            tls.state.lock().get_mut().feed(&incoming[..more]);
        }
    }

    /// Sends all of `parts`. The caller is the only one that sends.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let deadline = Instant::now() + self.send_max;
        let Some(tls) = &self.tls else {
            return self.send_plain(parts, deadline);
        };
        let mut outgoing = tls.outgoing.lock();
        let pieces = parts.iter().flat_map(|part| part.chunks(RECORDS));
        for piece in pieces.chain([&[][..]]) {
            {
                let mut state = tls.state.lock();
                let mut rest = piece;
                while !rest.is_empty() {
                    // The pipe takes everything, so this never waits.
                    let taken = state.ssl_write(rest).map_err(broken)?;
                    rest = &rest[taken..];
                }
                if state.get_ref().outgoing.len() < RECORDS && !piece.is_empty() {
                    continue;
                }
                outgoing.clear();
                std::mem::swap(&mut *outgoing, &mut state.get_mut().outgoing);
            }
            self.send_plain(&[&outgoing], deadline)?;
        }
        Ok(())
    }

    fn send_plain(&self, parts: &[&[u8]], deadline: Instant) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); 4];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let mut rest = &mut slices[..parts.len()];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let sent = self.socket.write_vectored(rest).map_err(|e| {
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
        self.socket.shutdown(Shutdown::Both);
    }

    /// Receives no more.
    pub(crate) fn stop_receiving(&self) {
        self.socket.shutdown(Shutdown::Read);
    }

    /// Says farewell, sends no more, and takes in what is still coming, for a moment: a connection closed with unread bytes in
    /// it is reset, and the peer would not see what was said last.
    pub(crate) fn farewell(&self) {
        if let Some(tls) = &self.tls {
            let mut outgoing = tls.outgoing.lock();
            let mut state = tls.state.lock();
            let _ = state.shutdown();
            outgoing.clear();
            std::mem::swap(&mut *outgoing, &mut state.get_mut().outgoing);
            drop(state);
            let _ = self.send_plain(&[&outgoing], Instant::now() + LINGER);
        }
        self.socket.shutdown(Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut scratch = [0; 4096];
        while Instant::now() < deadline {
            match self.socket.read(&mut scratch) {
                Ok(0) | Err(_) => break,
                Ok(_) => (),
            }
        }
    }
}

/// The sending half: threads take turns, and what is small goes out together.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    turn: Mutex<()>,
    gathered: Mutex<Vec<u8>>,
}

impl Sender {
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
    ahead: usize,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; AHEAD],
            start: 0,
            end: 0,
            ahead: AHEAD,
        }
    }

    /// Bytes that are there already.
    pub(crate) fn ready(&self) -> usize {
        self.end - self.start
    }

    /// The next `len` bytes, if they are there already: they are taken.
    pub(crate) fn take(&mut self, len: usize) -> Option<&[u8]> {
        if self.ready() < len {
            return None;
        }
        let start = self.start;
        self.start += len;
        Some(&self.buffer[start..start + len])
    }

    /// Fills `out`. After each wait `waited` says whether to go on, and is told whether anything of `out` is there. `Ok(false)`
    /// where the peer had ended before the first byte.
    pub(crate) fn fill(
        &mut self,
        wire: &Wire,
        out: &mut [u8],
        waited: &mut dyn FnMut(bool) -> io::Result<()>,
    ) -> io::Result<bool> {
        if out.len() >= DIRECT {
            self.ahead = AHEAD_OF_LARGE;
        }
        let mut done = 0;
        while done < out.len() {
            let part = (out.len() - done).min(self.ready());
            if let Some(bytes) = self.take(part).filter(|bytes| !bytes.is_empty()) {
                out[done..done + part].copy_from_slice(bytes);
                done += part;
                continue;
            }
            let rest = &mut out[done..];
            let direct = rest.len() >= DIRECT;
            let got = if direct {
                wire.recv(rest)
            } else {
                wire.recv(&mut self.buffer[..self.ahead])
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
                waited(done > 0 || self.ready() > 0)?;
            }
        }
        Ok(true)
    }

    /// What comes next is small.
    pub(crate) fn expect_small(&mut self) {
        self.ahead = AHEAD;
    }
}
