//! Lines of progress to a command that waits for an answer on a Unix socket.
//!
//! 1. They are few, and take no more of the worker's time than the socket's own limit for a write: once a line was not taken, none follows.
//!
//! It deliberately does not know what the lines say.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Progress is reported at most this often.
const INTERVAL: Duration = Duration::from_millis(100);

/// Sends lines of progress, and notices when nobody reads them any more.
pub(crate) struct Reporting<'a> {
    stream: &'a UnixStream,
    /// The line for so much done, of so much.
    line: fn(u64, u64) -> Vec<u8>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    /// A line was not taken in time. It may have been sent in part.
    gone: bool,
}

impl<'a> Reporting<'a> {
    pub(crate) fn new(stream: &'a UnixStream, line: fn(u64, u64) -> Vec<u8>) -> Self {
        Self {
            stream,
            line,
            state: Mutex::default(),
        }
    }

    /// Whether somebody still waits.
    pub(crate) fn report(&self, done: u64, total: u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.gone {
            return false;
        }
        if state.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return true;
        }
        state.last = Some(Instant::now());
        let mut stream = self.stream;
        state.gone = stream.write_all(&(self.line)(done, total)).is_err();
        !state.gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What failed: each report waited again for a client that took nothing any more, 10 seconds each.
    #[test]
    fn nothing_more_is_reported_to_a_client_that_took_nothing_in_time() {
        let (stream, client) = UnixStream::pair().unwrap();
        let progress = Reporting::new(&stream, |_, _| b"progress\n".to_vec());
        assert!(progress.report(1, 2));
        stream.set_nonblocking(true).unwrap();
        while (&stream).write_all(&[b' '; 4096]).is_ok() {}
        let due = || progress.state.lock().unwrap().last = None;
        due();
        assert!(!progress.report(1, 2), "nobody takes it");
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        std::io::copy(&mut &client, &mut std::io::sink()).unwrap();
        assert!(!progress.report(1, 2), "nobody took it");
    }
}
