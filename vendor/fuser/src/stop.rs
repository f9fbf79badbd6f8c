//! How a session ends that the kernel does not end: what serves it has failed.
//!
//! The kernel ends a connection, and every call that waits for it, when the last file of its device is closed. A thread that waits in a
//! read or in a ring keeps one open. So such threads wait for a pipe too, which is closed at one end to stop them; and its other end
//! replaces the device under its number, which may be known elsewhere ([`Notifier`](crate::Notifier)).

use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use nix::fcntl::FcntlArg;
use nix::fcntl::OFlag;
use nix::fcntl::fcntl;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use nix::poll::poll;
use nix::unistd::read;
use parking_lot::Mutex;

use crate::channel::Channel;

pub(crate) struct Stop {
    device: Channel,
    /// Hung up once the session is to stop.
    pipe: OwnedFd,
    other_end: Mutex<Option<OwnedFd>>,
    reader: Mutex<()>,
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Stop {
    pub(crate) fn new(device: Channel) -> io::Result<Self> {
        let (pipe, other_end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        Ok(Self {
            device,
            pipe,
            other_end: Mutex::new(Some(other_end)),
            reader: Mutex::new(()),
        })
    }

    pub(crate) fn stop(&self) {
        *self.other_end.lock() = None;
        let (pipe, device) = (self.pipe.as_raw_fd(), self.device.as_fd().as_raw_fd());
        // SAFETY: both are open as long as this value is there.
        if unsafe { libc::dup3(pipe, device, libc::O_CLOEXEC) } < 0 {
            let e = io::Error::last_os_error();
            log::error!("the connection is not closed: {e}");
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.other_end.lock().is_none()
    }

    /// As [`Channel::receive_retrying`]; `ENODEV` once the session is to stop.
    pub(crate) fn receive(&self, channel: &Channel, buffer: &mut [u8]) -> nix::Result<usize> {
        // One at a time: of two that find something to read, one would wait in the device.
        let _turn = self.reader.lock();
        // What was there to read may be gone, as the request of a program that was killed.
        fcntl(channel, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        loop {
            let of = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut fds = [of(channel.as_fd()), of(self.as_fd())];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) if self.is_stopped() => return Err(nix::Error::ENODEV),
                Ok(_) => {}
                Err(nix::Error::EINTR) => continue,
                Err(e) => return Err(e),
            }
            match read(channel, buffer) {
                // The pipe's end, in the device's place.
                Ok(0) if self.is_stopped() => return Err(nix::Error::ENODEV),
                Err(nix::Error::ENOENT | nix::Error::EINTR | nix::Error::EAGAIN) => {}
                received => return received,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::dev_fuse::DevFuse;

    /// What failed: a reader that had found a request waited for another one in the device, where that one was gone. It could not be
    /// stopped any more.
    #[test]
    fn a_reader_waits_nowhere_but_where_it_can_be_stopped() {
        // Something is there, and a read waits for more of it.
        let (device, mut kernel) = UnixStream::pair().unwrap();
        let least: libc::c_int = 2;
        // SAFETY: the value is there during the call.
        let set = unsafe {
            libc::setsockopt(
                device.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const least).cast(),
                size_of_val(&least) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        kernel.write_all(b"x").unwrap();
        let device = DevFuse(File::from(OwnedFd::from(device)));
        let channel = Channel::new(Arc::new(device));
        let stop = Stop::new(channel.clone()).unwrap();
        let (report, reported) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            let first = stop.receive(&channel, &mut buffer);
            stop.stop();
            report
                .send((first, stop.receive(&channel, &mut buffer)))
                .unwrap();
        });
        let received = reported.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(received, (Ok(1), Err(nix::Error::ENODEV)));
    }
}
