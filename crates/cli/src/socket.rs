//! Unix sockets in a room's directory, by which commands reach the process that has the room.
//!
//! 1. A socket is its owner's alone: by its mode (0600), and by the credentials of the connecting process (root too is let in).
//! 2. A line is bounded in length and in time, and wiped from memory: it may hold a secret.
//!
//! It deliberately does not know what is asked.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

/// A short path to a socket: names of sockets are limited to 107 bytes, rooms' paths are not. The directory must stay open
/// while the path is used.
fn short_path(room: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let dir = File::open(room)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
    Ok((dir, path))
}

/// Connects to the socket `name` of the room in `room`.
pub(crate) fn connect(room: &Path, name: &str) -> io::Result<UnixStream> {
    let (_dir, path) = short_path(room, name)?;
    UnixStream::connect(path)
}

/// Binds the socket `name`. The caller holds the room's lock, so a socket already there is a leftover.
pub(crate) fn bind(room: &Path, name: &str) -> io::Result<UnixListener> {
    let (_dir, path) = short_path(room, name)?;
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // Made private by the process's umask, and said again for whoever changes that.
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Lets only the user of this process and root go on; each read and write then has so much time.
pub(crate) fn admit(stream: &UnixStream, time: Duration) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        return Err(io::Error::other(format!(
            "user {} was sent away",
            peer.uid.as_raw()
        )));
    }
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))
}

/// Reads up to the end of a line of at most about `max` bytes, without its end.
pub(crate) fn read_line(
    mut stream: &UnixStream,
    max: usize,
    time: Duration,
) -> io::Result<Zeroizing<Vec<u8>>> {
    let deadline = Instant::now() + time;
    let mut piece = Zeroizing::new([0; 16 << 10]);
    let mut line = Zeroizing::new(Vec::with_capacity(piece.len()));
    loop {
        let len = stream.read(&mut *piece)?;
        let read = &piece[..len];
        if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            append_wiped(&mut line, &read[..end]);
            return Ok(line);
        }
        append_wiped(&mut line, read);
        if len == 0 || line.len() > max {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("the request has no end within {max} bytes"),
            ));
        }
        // So that a client that sends a byte now and then does not stay for ever.
        if Instant::now() > deadline {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                "the request took too long to arrive",
            ));
        }
    }
}

/// Appends to a buffer that may hold a secret: where it must grow, the old place is wiped.
fn append_wiped(line: &mut Zeroizing<Vec<u8>>, more: &[u8]) {
    if line.capacity() - line.len() < more.len() {
        let mut larger = Zeroizing::new(Vec::with_capacity(2 * (line.len() + more.len())));
        larger.extend_from_slice(line);
        *line = larger;
    }
    line.extend_from_slice(more);
}
