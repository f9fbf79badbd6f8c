//! Lines and open files over a Unix socket, from one process to another.
//!
//! Invariant: a descriptor comes with the line it was sent with; one that nobody asked for is closed.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use zeroize::Zeroizing;

/// A line of JSON with its newline, in a buffer that is wiped.
pub(crate) fn encode_line(value: &impl Serialize) -> Zeroizing<Vec<u8>> {
    let mut line = Zeroizing::new(Vec::with_capacity(4096));
    // Writing to memory cannot fail, and every type here has text for keys.
    serde_json::to_writer(&mut *line, value).expect("our own messages are JSON");
    line.push(b'\n');
    line
}

/// Sends a line, which ends with its newline, and an open file with it.
pub(crate) fn send(
    stream: &UnixStream,
    line: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut rest = line;
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    while !rest.is_empty() {
        let sent = rustix::net::sendmsg(
            stream,
            &[IoSlice::new(rest)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
        match sent {
            // The file went with the first bytes.
            Ok(sent) => {
                rest = &rest[sent..];
                control.clear();
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Receives such lines.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: UnixStream,
    read: Vec<u8>,
    file: Option<File>,
}

impl Lines {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            read: Vec::new(),
            file: None,
        }
    }

    /// The next line of at most about `max` bytes, without its end, and what came with it.
    pub(crate) fn next(&mut self, max: usize) -> io::Result<(Vec<u8>, Option<File>)> {
        let mut looked_at = 0;
        loop {
            let new = &self.read[looked_at..];
            if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(looked_at + end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok((line, self.file.take()));
            }
            looked_at = self.read.len();
            if looked_at > max {
                return Err(ErrorKind::InvalidData.into());
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            let mut iov = [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(self.stream.as_fd(), &mut iov, &mut control, flags) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                self.file = files.next().map(File::from);
            }
        }
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.read.extend_from_slice(&bytes[..received.bytes]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_comes_with_its_line_and_no_other() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"words").unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut lines = Lines::new(there);
        send(&here, b"one\n", None).unwrap();
        assert_eq!(lines.next(100).unwrap().0, b"one");
        send(&here, b"two\n", Some(file.as_fd())).unwrap();
        let (line, received) = lines.next(100).unwrap();
        let mut words = String::new();
        received.unwrap().read_to_string(&mut words).unwrap();
        assert_eq!((&line[..], &*words), (&b"two"[..], "words"));
        send(&here, b"three\nfour\n", None).unwrap();
        assert!(lines.next(100).unwrap().1.is_none());
        assert_eq!(lines.next(100).unwrap().0, b"four");
        drop(here);
        assert!(lines.next(100).is_err());
    }
}
