//! Unix sockets by which commands reach the process that has a room.
//!
//! 1. A socket is in the user's runtime directory, under the device and inode number of the room's directory; where the user
//!    has none, in the room's directory. Clients look in both. A process whose socket has vanished binds it again.
//! 2. A socket is its owner's alone: by its mode (0600), and by the credentials of the connecting process (root too is let in).
//! 3. A client sends nothing before it knows by the credentials of the process that listens that it is one to trust: see [`Trust`].
//! 4. A line is bounded in length and in time, and wiped from memory: it may hold a secret.
//!
//! It deliberately does not know what is asked.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::exit::Exit;
use crate::runtime;

/// How often a process looks whether its socket is still there: the runtime directory goes with the user's last session.
const CHECK_INTERVAL: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Whose processes a client sends requests to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// This user's own. Root's is not an ordinary user's: it would answer root alone.
    OwnUser,
    /// For root also those of the user who owns the room's directory: a service's user.
    OwnerToo,
}

/// Why no process was reached.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// Nobody listens, which a socket left by a crash looks like too.
    Nobody,
    /// A socket is there that this user may not use.
    NotAllowed,
    /// A process of another user listens. Nothing was sent to it.
    Foreign {
        /// Its socket.
        path: PathBuf,
        /// Its user.
        user: u32,
    },
}

impl Unreachable {
    /// The refusal of a command that must not go on; `None`: nobody has the room. `what` says what a process does with a room.
    pub(crate) fn refusal(self, room: &Path, what: &str) -> Option<Error> {
        let words = match self {
            Self::Nobody => return None,
            Self::NotAllowed => format!(
                "{what} by another user, who alone (and root) can reach it: become that user, or work through the mountpoint"
            ),
            Self::Foreign { path, user } => format!(
                "a process of user {user} listens at {}, and nothing was sent to it: a command trusts only processes of its \
                 own user. Become that user, or, if nobody has the room {what}, remove the socket",
                path.display()
            ),
        };
        Some(Error::said(
            Exit::InUse,
            format!("{}: {words}", room.display()),
        ))
    }
}

/// Where a socket is or may be.
#[derive(Debug, Clone)]
struct Place {
    dir: PathBuf,
    file: String,
}

impl Place {
    fn path(&self) -> PathBuf {
        self.dir.join(&self.file)
    }

    /// A short path: names of sockets are limited to 107 bytes, directories' paths are not. The directory must stay open while
    /// the path is used.
    fn short_path(&self) -> io::Result<(File, PathBuf)> {
        let dir = File::open(&self.dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), self.file));
        Ok((dir, path))
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let (_dir, path) = self.short_path()?;
        UnixStream::connect(path)
    }

    /// Device and inode of what is there.
    fn id(&self) -> Option<(u64, u64)> {
        let meta = self.path().symlink_metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    }
}

fn in_room(room: &Path, name: &str) -> Place {
    Place {
        dir: room.to_owned(),
        file: name.to_owned(),
    }
}

/// The socket's name in a runtime directory. Whatever path leads to the room, its directory has these numbers.
fn in_runtime(room: &Path, name: &str) -> Option<String> {
    let meta = std::fs::metadata(room).ok()?;
    Some(format!("{:x}-{:x}.{name}", meta.dev(), meta.ino()))
}

/// Every place where the socket `name` of the room may be.
fn places(room: &Path, name: &str, trust: Trust) -> Vec<Place> {
    let mut dirs = runtime::directories();
    let owner = std::fs::metadata(room).map_or(0, |meta| meta.uid());
    if trust == Trust::OwnerToo && owner != 0 && rustix::process::geteuid().is_root() {
        dirs.push(runtime::usual_of(owner));
    }
    let mut places: Vec<Place> = in_runtime(room, name)
        .into_iter()
        .flat_map(|file| {
            dirs.iter().map(move |dir| Place {
                dir: dir.clone(),
                file: file.clone(),
            })
        })
        .collect();
    places.push(in_room(room, name));
    places
}

/// Connects to the socket `name` of the room in `room`.
pub(crate) fn connect(room: &Path, name: &str, trust: Trust) -> Result<UnixStream, Unreachable> {
    let mut why = Unreachable::Nobody;
    for place in places(room, name, trust) {
        match place.connect() {
            Ok(stream) => match untrusted(&stream, room, trust) {
                None => return Ok(stream),
                Some(user) => {
                    let path = place.path();
                    why = Unreachable::Foreign { path, user };
                }
            },
            Err(e) if e.kind() == ErrorKind::PermissionDenied && place.id().is_some() => {
                why = Unreachable::NotAllowed;
            }
            Err(_) => {}
        }
    }
    Err(why)
}

/// The user of the process that listens, if it is not to be trusted.
fn untrusted(stream: &UnixStream, room: &Path, trust: Trust) -> Option<u32> {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else {
        return Some(u32::MAX);
    };
    let (own, user) = (rustix::process::geteuid(), peer.uid.as_raw());
    let owns_room = || std::fs::metadata(room).is_ok_and(|meta| meta.uid() == user);
    let trusted = peer.uid == own || (trust == Trust::OwnerToo && own.is_root() && owns_room());
    (!trusted).then_some(user)
}

/// Whether the socket is there, also one left by a crash.
pub(crate) fn is_there(room: &Path, name: &str) -> bool {
    let mut places = places(room, name, Trust::OwnUser).into_iter();
    places.any(|place| place.id().is_some())
}

/// Removes what a crash left. The caller holds the room's lock.
pub(crate) fn remove_leftovers(room: &Path, name: &str) {
    for place in places(room, name, Trust::OwnUser) {
        // A room that is only read may be open without a lock, and be mounted by another process.
        let refused = place.connect().err().map(|e| e.kind());
        if refused == Some(ErrorKind::ConnectionRefused) {
            // Where it cannot be removed, nobody answers on it anyway.
            let _ = std::fs::remove_file(place.path());
        }
    }
}

/// The socket of a process that has a room.
#[derive(Debug)]
pub(crate) struct Listener {
    room: PathBuf,
    name: &'static str,
    bound: Mutex<Bound>,
}

#[derive(Debug)]
struct Bound {
    socket: Arc<UnixListener>,
    place: Place,
    /// Device and inode of the name; `None`: it was removed for good.
    id: Option<(u64, u64)>,
}

impl Bound {
    /// The caller holds the room's lock, so a socket already there is a leftover.
    fn new(room: &Path, name: &str) -> io::Result<Self> {
        if let (Some(dir), Some(file)) = (runtime::directory(), in_runtime(room, name)) {
            match Self::at(Place { dir, file }) {
                Ok(bound) => {
                    // An older version's, or one from before there was a runtime directory.
                    remove_leftovers(room, name);
                    return Ok(bound);
                }
                Err(e) => tracing::warn!("no socket in the runtime directory: {e}"),
            }
        }
        Self::at(in_room(room, name))
    }

    fn at(place: Place) -> io::Result<Self> {
        let (_dir, path) = place.short_path()?;
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = Arc::new(streams::listen_privately(&path)?);
        let id = place.id();
        Ok(Self { socket, place, id })
    }

    fn is_named(&self) -> bool {
        self.id.is_none() || self.place.id() == self.id
    }
}

impl Listener {
    /// Binds the socket `name`. The caller holds the room's lock, so a socket already there is a leftover.
    pub(crate) fn bind(room: &Path, name: &'static str) -> io::Result<Self> {
        Ok(Self {
            room: room.to_owned(),
            name,
            bound: Mutex::new(Bound::new(room, name)?),
        })
    }

    fn bound(&self) -> std::sync::MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next client.
    pub(crate) fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let socket = self.bound().socket.clone();
            let mut fds = [PollFd::new(&*socket, PollFlags::IN)];
            match poll(&mut fds, Some(&CHECK_INTERVAL)) {
                Ok(0) => self.bind_again_if_gone(),
                Ok(_) => return Ok(socket.accept()?.0),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn bind_again_if_gone(&self) {
        let mut bound = self.bound();
        if bound.is_named() {
            return;
        }
        match Bound::new(&self.room, self.name) {
            Ok(again) => *bound = again,
            Err(e) => tracing::debug!("{} socket: {e}", self.name),
        }
    }

    /// Removes the socket's name, for good. Called while the room's lock is still held, so it cannot be another's.
    pub(crate) fn remove_name(&self) {
        let mut bound = self.bound();
        if bound.id.is_some() && bound.is_named() {
            // A directory that has vanished has no name to remove.
            let _ = std::fs::remove_file(bound.place.path());
        }
        bound.id = None;
    }
}

/// Whether an error says that the other side has left.
pub(crate) fn says_left(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

/// Whether the other side has closed its end.
pub(crate) fn has_left(stream: &UnixStream) -> bool {
    // A hang-up is reported whatever is asked for.
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
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

/// Reads up to the end of a line of at most about `max` bytes, without its end. `UnexpectedEof` where the client leaves before that.
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
        if len == 0 {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the client left before the end of its request",
            ));
        }
        if line.len() > max {
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// What a client's request comes to that sends this much and leaves.
    fn read(sent: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(sent).unwrap();
        drop(there);
        read_line(&here, 8, Duration::from_secs(60))
    }

    /// What failed: commands that only looked whether a process listens were logged, each as a warning of a request without an end.
    #[test]
    fn a_client_that_leaves_sends_no_request_that_is_too_long() {
        assert_eq!(&**read(b"words\nmore").unwrap(), b"words");
        for sent in [&b""[..], b"words"] {
            let left = read(sent).unwrap_err();
            assert!(says_left(&left), "{left}");
        }
        let long = read(b"more than there may be").unwrap_err();
        assert!(!says_left(&long), "{long}");
    }
}
