//! A mount for reading that follows the room's writer: a file system that moves from moment to moment of a room.
//!
//! 1. Each call is answered from one moment, whole. A later call is answered from the same moment or a later one, never an earlier one.
//! 2. To the mount it is a shared file system: others change it, so the kernel keeps nothing for long. Locks are the machine's.
//! 3. A store that went back ends it: every call fails from then on. What was shown was acknowledged; what is there is not known.
//! 4. Nothing can be changed. What the kernel knows of an inode is no reason to keep it: the writer does not know of it.
//!
//! It deliberately does not know how moments are found: see [`Moments`].

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use room::{
    Available, DirEntry, Error, FileSystem as _, Inode, InodeNo, ReadFiles, ReadOnly, Result, Room,
    RoomSpace, SeekTo,
};
use service::Stop;

use crate::bucket::Moments;

/// Between two questions whether there is something newer.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks whether the store went back, or went on by more than is kept for a reader that slept.
const LOOKS: Duration = Duration::from_secs(60);
/// How long a newer moment may be one that cannot be opened, as in the middle of a rekey.
const UNREADABLE: Duration = Duration::from_secs(60);

/// The room at the moment it has come to.
#[derive(Debug)]
pub(crate) struct Following {
    current: RwLock<Arc<Room>>,
    /// Set for good when there is no later moment to be shown.
    ended: Mutex<Option<String>>,
}

impl Following {
    pub(crate) fn new(room: Arc<Room>) -> ReadOnly<Self> {
        ReadOnly(Self {
            current: RwLock::new(room),
            ended: Mutex::new(None),
        })
    }

    /// The room at the moment that is shown.
    pub(crate) fn shown(&self) -> Arc<Room> {
        self.current.read().clone()
    }

    fn room(&self) -> Result<Arc<Room>> {
        match &*self.ended.lock() {
            Some(why) => Err(Error::Damaged(why.clone())),
            None => Ok(self.shown()),
        }
    }

    fn end(&self, why: &dyn std::fmt::Display) {
        let why =
            format!("{why}; the mount follows no more, and answers nothing: mount the room again");
        tracing::error!("{why}");
        *self.ended.lock() = Some(why);
    }
}

/// An inode that the kernel knows and the room no longer has was deleted.
fn known<T>(answer: Result<T>) -> Result<T> {
    match answer {
        Err(Error::NotFound) => Err(Error::Stale),
        other => other,
    }
}

/// The thread that moves a [`Following`]; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(crate) fn start(
        following: &Arc<ReadOnly<Following>>,
        moments: Box<dyn Moments>,
    ) -> std::io::Result<Self> {
        let stop = Stop::default();
        let (following, stopped) = (Arc::downgrade(following), stop.clone());
        let thread = std::thread::Builder::new()
            .name("follow".into())
            .spawn(move || follow(&following, moments, &stopped))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.ask();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread that follows ended by a bug in this program");
        }
    }
}

/// Newer moments that cannot be opened.
#[derive(Debug, Default)]
struct Unreadable {
    is_reported: bool,
    /// Since when, although the store answers.
    since: Option<Instant>,
}

impl Unreadable {
    /// Notes that one could not be; whether that is so for too long.
    fn is_too_long(&mut self, why: &Error, now: Instant) -> bool {
        if !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!("a newer moment of the room cannot be opened: {why}");
        }
        if matches!(why, Error::Io(_)) {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) > UNREADABLE
    }
}

fn follow(following: &Weak<ReadOnly<Following>>, mut moments: Box<dyn Moments>, stop: &Stop) {
    let mut looked = Instant::now();
    // A newer moment that could not be opened yet. It is tried again: nobody knows whether there will be a newer one.
    let mut pending = None;
    let mut unreadable = Unreadable::default();
    // Whether the store does not answer.
    let mut is_away = false;
    while !stop.wait_for(INTERVAL) {
        let Some(following) = following.upgrade() else {
            return;
        };
        let following = &following.0;
        let look = looked.elapsed() >= LOOKS || is_away;
        let newer = match moments.newer(look) {
            Ok(newer) => newer,
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                following.end(&e);
                return;
            }
            Err(e) => {
                if !std::mem::replace(&mut is_away, true) {
                    tracing::warn!("{e}; the mount stays at the moment it shows");
                }
                continue;
            }
        };
        if std::mem::take(&mut is_away) {
            tracing::info!("the store answers again");
        }
        if look {
            looked = Instant::now();
        }
        let is_new = newer.is_some();
        pending = newer.or(pending);
        let Some(storage) = pending.clone() else {
            continue;
        };
        match following.shown().later(storage) {
            Ok(later) => {
                (pending, unreadable) = (None, Unreadable::default());
                *following.current.write() = Arc::new(later);
            }
            // A writer that shares this machine's state directory may remember there a commit that came after this moment was read. That
            // commit is in the store by the next question, unless the store went back.
            Err(e @ Error::RolledBack { .. }) if !is_new => {
                following.end(&e);
                return;
            }
            // The moment of an unfinished rekey can be opened by the writer only; and a store may go away while it is read.
            Err(e) => {
                if unreadable.is_too_long(&e, Instant::now()) {
                    following.end(&e);
                    return;
                }
            }
        }
    }
}

impl ReadFiles for Following {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.room()?.lookup(parent, name)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        known(self.room()?.attributes(no))
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        known(self.room()?.read_dir(no, after, limit))
    }

    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        known(self.room()?.begin_read_dir(no, after, limit))
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        known(self.room()?.read(no, offset, buf))
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        known(self.room()?.seek(no, offset, to))
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        known(self.room()?.xattr(no, name))
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        known(self.room()?.xattr_names(no))
    }

    fn space(&self) -> Result<RoomSpace> {
        self.room()?.space()
    }

    fn available(&self) -> Result<Available> {
        self.room()?.available()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn has_locks(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use room::{Credential, NewCredential, NewRoom, OpenOptions};
    use storage::testing::{Fault, FaultyStorage, Times};
    use storage::{HostStorage, Storage};

    use super::*;

    /// One newer moment, and none after it. The store is away from then on, and back when it is asked again.
    struct One {
        storage: FaultyStorage<Arc<HostStorage>>,
        was_asked: bool,
    }

    impl Moments for One {
        fn newer(&mut self, _: bool) -> std::io::Result<Option<Arc<dyn Storage>>> {
            if std::mem::replace(&mut self.was_asked, true) {
                self.storage.heal();
                return Ok(None);
            }
            self.storage.refuse_any(1, Fault::Io, Times::Always);
            Ok(Some(Arc::new(self.storage.clone())))
        }
    }

    /// A store that was away for a minute, and then one moment in the middle of a rekey, ended the mount.
    #[test]
    fn time_without_a_store_does_not_count_as_time_with_unreadable_moments() {
        let (away, rekeyed) = (
            Error::from(std::io::Error::other("away")),
            Error::Damaged("rekeyed".into()),
        );
        let (begin, more) = (Instant::now(), UNREADABLE + Duration::from_secs(1));
        let mut unreadable = Unreadable::default();
        assert!(!unreadable.is_too_long(&away, begin));
        assert!(!unreadable.is_too_long(&rekeyed, begin + more));
        assert!(!unreadable.is_too_long(&away, begin + more));
        assert!(!unreadable.is_too_long(&rekeyed, begin + more));
        assert!(unreadable.is_too_long(&rekeyed, begin + 2 * more));
    }

    /// It stayed at the older moment until the writer committed again, which it may never do.
    #[test]
    fn a_moment_that_could_not_be_read_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Arc::new(HostStorage::open(&dir.path().join(name)).unwrap());
        for name in ["now", "later"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let raw = vec![7; 32];
        let mut new = NewRoom::with_credential(NewCredential::RawKey(raw.clone().into()));
        new.open.background = false;
        Room::create_on(at("now"), new).unwrap().close().unwrap();
        let copied = std::process::Command::new("cp")
            .arg("-rT")
            .arg(dir.path().join("now"))
            .arg(dir.path().join("later"))
            .status();
        assert!(copied.unwrap().success());
        let open = |name, read_only| {
            let options = OpenOptions {
                read_only,
                background: false,
                ..OpenOptions::default()
            };
            let credential = Credential::RawKey(raw.clone().into());
            Room::open_on(at(name), &credential, options).unwrap()
        };
        let writer = open("later", false);
        writer.write_file("/news", b"x").unwrap();
        writer.close().unwrap();

        let following = Arc::new(Following::new(Arc::new(open("now", true))));
        let moments = One {
            storage: FaultyStorage::new(at("later")),
            was_asked: false,
        };
        let _follower = Follower::start(&following, Box::new(moments)).unwrap();
        let begin = Instant::now();
        while following.0.shown().read_file("/news").is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "it stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
