//! A connected socket, TCP or Unix.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

/// Data that the peer's kernel does not confirm for this long is lost, and the connection with it.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
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
    /// Reading waits `tick` at most, one call that sends `send_max`. A peer that vanished without a word is noticed: after two
    /// minutes of silence, or when it does not confirm what was sent to it in time (`tcp(7)`).
    pub(crate) fn prepare(&self, tick: Duration, send_max: Duration) -> io::Result<()> {
        of_either!(self, it => {
            it.set_read_timeout(Some(tick))?;
            it.set_write_timeout(Some(send_max))?;
        });
        if let Self::Tcp(it) = self {
            it.set_nodelay(true)?;
            sockopt::set_socket_keepalive(it, true)?;
            sockopt::set_tcp_keepidle(it, Duration::from_secs(60))?;
            sockopt::set_tcp_keepintvl(it, Duration::from_secs(20))?;
            sockopt::set_tcp_keepcnt(it, 3)?;
            let unconfirmed = send_max.min(UNCONFIRMED_MAX);
            // At most 30,000 ms.
            sockopt::set_tcp_user_timeout(it, unconfirmed.as_millis() as u32)?;
        }
        Ok(())
    }

    pub(crate) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        retry(|| match self {
            Self::Tcp(it) => (&mut &*it).read(out),
            Self::Unix(it) => (&mut &*it).read(out),
        })
    }

    pub(crate) fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        retry(|| match self {
            Self::Tcp(it) => (&mut &*it).write_vectored(parts),
            Self::Unix(it) => (&mut &*it).write_vectored(parts),
        })
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        // A socket whose peer is gone needs none.
        let _ = of_either!(self, it => it.shutdown(how));
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(it) => Self::Tcp(it.try_clone()?),
            Self::Unix(it) => Self::Unix(it.try_clone()?),
        })
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
