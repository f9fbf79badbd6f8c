//! A connection: bytes in, bytes out, plain or inside TLS; for many threads at once.
//!
//! 1. One thread at a time receives, one at a time sends (the callers see to that); neither waits for the other.
//! 2. Nothing is sent for longer than the time allowed: a peer that does not take its data is cut off.
//! 3. What came in plain before TLS began is never taken for what came inside it.
//!
//! It deliberately does not know what the bytes mean.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use openssl::ssl::{Error as SslError, ErrorCode, Ssl, SslStream};
use parking_lot::Mutex;
use streams::{Ahead, Socket, Stream, is_tick};

use crate::Tls;

/// Small requests come many at once; after a large payload little is received ahead.
pub(crate) const AHEAD: Ahead = Ahead {
    usual: 128 << 10,
    after_large: 256,
    direct: 16 << 10,
};
/// Data that the peer's kernel does not confirm for this long is lost, and the connection with it.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(30);
/// Bytes of ciphertext read from the socket at once.
const CHUNK: usize = 128 << 10;
/// Bytes encrypted before they are sent.
const RECORDS: usize = 256 << 10;
/// How long a farewell may take.
const FAREWELL_MAX: Duration = Duration::from_millis(500);

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
    /// Ciphertext must leave in the order of its encryption: a sender holds this lock from encrypting to sending.
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
        socket.prepare(send_max, UNCONFIRMED_MAX)?;
        socket.set_tick(Some(tick))?;
        Ok(Self {
            socket,
            tls: None,
            send_max,
        })
    }

    /// From now on sending waits `send_max` at most.
    pub(crate) fn send_within(&mut self, send_max: Duration) -> io::Result<()> {
        self.socket.prepare(send_max, UNCONFIRMED_MAX)?;
        self.send_max = send_max;
        Ok(())
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
            self.socket.send_all(&[&answer], deadline)?;
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

    /// What has come inside TLS as far as records are whole: how many bytes, 0 at the end; `None` where there is nothing yet.
    fn decrypted(&self, tls: &Inside, out: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = tls.state.lock();
        let mut got = 0;
        let end = loop {
            match state.ssl_read(&mut out[got..]) {
                Ok(more) => got += more,
                Err(e) => break e,
            }
            if got == out.len() {
                return Ok(Some(got));
            }
        };
        match end.code() {
            _ if wants_more(&end) || got > 0 => (),
            ErrorCode::ZERO_RETURN => return Ok(Some(0)),
            _ => return Err(broken(end)),
        }
        let answers = !state.get_ref().outgoing.is_empty();
        drop(state);
        if answers {
            self.send(&[])?;
        }
        Ok((got > 0).then_some(got))
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
            let _ = self
                .socket
                .send_all(&[&outgoing], Instant::now() + FAREWELL_MAX);
        }
        self.socket.linger();
    }
}

impl Stream for Wire {
    fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.socket.read(out);
        };
        let mut incoming = tls.incoming.lock();
        if let Some(got) = self.decrypted(tls, out)? {
            return Ok(got);
        }
        let more = self.socket.read(&mut incoming)?;
        if more == 0 {
            // An end without a farewell is an end: every message says its own length.
            return Ok(0);
        }
        tls.state.lock().get_mut().feed(&incoming[..more]);
        // A part of a record is nothing yet. The caller looks at its deadline, as it does after a tick.
        let got = self.decrypted(tls, out)?;
        got.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let deadline = Instant::now() + self.send_max;
        let Some(tls) = &self.tls else {
            return self.socket.send_all(parts, deadline);
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
            self.socket.send_all(&[&outgoing], deadline)?;
        }
        Ok(())
    }

    fn cut(&self) {
        self.socket.shutdown(Shutdown::Both);
    }
}
