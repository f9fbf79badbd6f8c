//! A connected socket, TCP or Unix.
//!
//! 1. Reading waits a tick at most, sending as long as the caller says: a peer that does not take its data is cut off.
//! 2. A peer that vanished without a word is noticed.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

/// Most parts that are sent in one call.
const PARTS_MAX: usize = 3;
/// How long a connection that ends is still listened to.
const LINGER: Duration = Duration::from_millis(500);

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a socket file.
    Unix(UnixStream),
}

macro_rules! of_either {
    ($socket:expr, $it:ident => $what:expr) => {
        match $socket {
            Socket::Tcp($it) => $what,
            Socket::Unix($it) => $what,
        }
    };
}

impl Socket {
    /// One call that sends waits `send_max` at most. A peer that vanished without a word is noticed: after two minutes of
    /// silence, or when its kernel does not confirm what was sent to it within `unconfirmed_max`, a minute at most (`tcp(7)`).
    pub fn prepare(&self, send_max: Duration, unconfirmed_max: Duration) -> io::Result<()> {
        of_either!(self, it => it.set_write_timeout(Some(send_max)))?;
        if let Self::Tcp(it) = self {
            it.set_nodelay(true)?;
            sockopt::set_socket_keepalive(it, true)?;
            sockopt::set_tcp_keepidle(it, Duration::from_secs(60))?;
            sockopt::set_tcp_keepintvl(it, Duration::from_secs(20))?;
            sockopt::set_tcp_keepcnt(it, 3)?;
            let unconfirmed = send_max.min(unconfirmed_max).min(Duration::from_secs(60));
            // At most 60,000 ms.
            sockopt::set_tcp_user_timeout(it, unconfirmed.as_millis() as u32)?;
        }
        Ok(())
    }

    /// Reading waits `tick` at most, for ever without one.
    pub fn set_tick(&self, tick: Option<Duration>) -> io::Result<()> {
        of_either!(self, it => it.set_read_timeout(tick))
    }

    /// Some bytes; 0 at the end. `WouldBlock` or `TimedOut` after a tick without any.
    pub fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        retry(|| of_either!(self, it => (&mut &*it).read(out)))
    }

    /// Sends some of `parts`: how many bytes. `WouldBlock` or `TimedOut` where the peer took none in time.
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        retry(|| of_either!(self, it => (&mut &*it).write_vectored(parts)))
    }

    /// Sends all of `parts`, three at most, by `deadline`; `TimedOut` where the peer does not take them.
    pub fn send_all(&self, parts: &[&[u8]], deadline: Instant) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let mut rest = &mut slices[..parts.len()];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let sent = self.write_vectored(rest).map_err(|e| {
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

    /// Sends no more, and takes in what is still coming, for a moment: a connection closed with unread bytes in it is reset, and
    /// the peer would not see what was said last.
    pub fn linger(&self) {
        self.shutdown(Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut scratch = [0; 4096];
        while Instant::now() < deadline {
            match self.read(&mut scratch) {
                Ok(0) | Err(_) => break,
                Ok(_) => (),
            }
        }
    }

    /// Ends one direction, or both.
    pub fn shutdown(&self, how: Shutdown) {
        // A socket whose peer is gone needs none.
        let _ = of_either!(self, it => it.shutdown(how));
    }

    /// Another handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(it) => Self::Tcp(it.try_clone()?),
            Self::Unix(it) => Self::Unix(it.try_clone()?),
        })
    }
}

/// Whether an error only says that nothing came (or left) within a tick.
pub fn is_tick(error: &io::Error) -> bool {
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
