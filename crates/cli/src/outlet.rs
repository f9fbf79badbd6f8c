//! The end of a pipe that may be full for long: writing to it waits, and stops waiting when the process is to end.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// How often a waiting writer looks whether it shall stop.
const LOOK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Why a command that is waited for gets no answer.
pub(crate) fn closing() -> io::Error {
    io::Error::other("the room is being closed")
}

/// Writes to a pipe until the process is to end.
pub(crate) struct Outlet<'a> {
    pipe: File,
    stopping: &'a dyn Fn() -> bool,
}

impl<'a> Outlet<'a> {
    /// Nobody else may read or write at this end.
    pub(crate) fn new(pipe: File, stopping: &'a dyn Fn() -> bool) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok(Self { pipe, stopping })
    }
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if (self.stopping)() {
                // Not `Interrupted`: that would be tried again.
                return Err(closing());
            }
            let mut fds = [PollFd::new(&self.pipe, PollFlags::OUT)];
            match poll(&mut fds, Some(&LOOK_INTERVAL)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_full_pipe_is_waited_for_and_left_when_the_process_ends() {
        let (mut read, write) = io::pipe().unwrap();
        let stop = AtomicBool::new(false);
        let stopping = || stop.load(Ordering::Relaxed);
        let mut out = Outlet::new(File::from(OwnedFd::from(write)), &stopping).unwrap();
        let many = vec![7; 1 << 20];
        let read = std::thread::spawn(move || {
            let mut all = vec![0; 1 << 20];
            read.read_exact(&mut all).unwrap();
            (all, read)
        });
        out.write_all(&many).unwrap();
        let (all, read) = read.join().unwrap();
        assert!(all == many);
        stop.store(true, Ordering::Relaxed);
        let stopped = out.write_all(&many).unwrap_err();
        assert!(stopped.to_string().contains("being closed"), "{stopped}");
        drop(read);
        let gone = out.write_all(&many).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
    }
}
