//! A mount for reading that follows the room's writer: a file system that moves from moment to moment of a room.
//!
//! 1. Each call is answered from one moment, whole. A later call is answered from the same moment or a later one, never an earlier one.
//! 2. To the mount it is a shared file system: others change it, so the kernel keeps nothing for long. Locks are the machine's.
//! 3. A store that went back ends it: every call fails from then on. What was shown was acknowledged; what is there is not known.
//! 4. Nothing can be changed.
//!
//! It deliberately does not know how moments are found: see [`Moments`].

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use room::{
    Access, Available, DirEntry, Error, Fallocate, FileSystem, Inode, InodeNo, NewFile, RenameMode,
    Result, Room, RoomSpace, SeekTo, SetAttr, XattrMode,
};

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
    pub(crate) fn new(room: Arc<Room>) -> Self {
        Self {
            current: RwLock::new(room),
            ended: Mutex::new(None),
        }
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
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(crate) fn start(
        following: &Arc<Following>,
        moments: Box<dyn Moments>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
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
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread that follows ended by a bug in this program");
        }
    }
}

fn follow(
    following: &Weak<Following>,
    mut moments: Box<dyn Moments>,
    stop: &(Mutex<bool>, Condvar),
) {
    let mut looked = Instant::now();
    // Since when the store does not answer, or has what cannot be opened.
    let (mut away, mut unreadable): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        {
            let mut stopped = stop.0.lock();
            if !*stopped {
                stop.1.wait_for(&mut stopped, INTERVAL);
            }
            if *stopped {
                return;
            }
        }
        let Some(following) = following.upgrade() else {
            return;
        };
        let look = looked.elapsed() >= LOOKS || away.is_some();
        let newer = match moments.newer(look) {
            Ok(newer) => newer,
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                following.end(&e);
                return;
            }
            Err(e) => {
                if away.replace(away.unwrap_or_else(Instant::now)).is_none() {
                    tracing::warn!("{e}; the mount stays at the moment it shows");
                }
                continue;
            }
        };
        if away.take().is_some() {
            tracing::info!("the store answers again");
        }
        if look {
            looked = Instant::now();
        }
        let Some(storage) = newer else {
            continue;
        };
        match following.shown().later(storage) {
            Ok(later) => {
                unreadable = None;
                *following.current.write() = Arc::new(later);
            }
            Err(e @ Error::RolledBack { .. }) => {
                following.end(&e);
                return;
            }
            // The moment of an unfinished rekey can be opened by the writer only; and a store may go away while it is read.
            Err(e) => {
                let since = *unreadable.get_or_insert_with(Instant::now);
                if since.elapsed() > UNREADABLE && !matches!(e, Error::Io(_)) {
                    following.end(&e);
                    return;
                }
                tracing::warn!("a newer moment of the room cannot be opened: {e}");
            }
        }
    }
}

impl FileSystem for Following {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.room()?.lookup(parent, name)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        known(self.room()?.attributes(no))
    }

    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        known(self.room()?.read_link(no))
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

    // What the kernel knows of an inode is no reason to keep it: the writer does not know of it.
    fn hold(&self, _: InodeNo) {}

    fn release(&self, _: InodeNo, _: u64) {}

    fn touch_atime(&self, _: InodeNo) {}

    fn fsync(&self, _: InodeNo) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn open(&self, no: InodeNo, access: Access) -> Result<Inode> {
        match access.write {
            true => Err(Error::ReadOnly),
            false => self.attributes(no),
        }
    }

    fn set_attributes(&self, _: InodeNo, _: &SetAttr) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn make(&self, _: InodeNo, _: &[u8], _: &NewFile) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn create_tmpfile(&self, _: InodeNo, _: &NewFile) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn link(&self, _: InodeNo, _: InodeNo, _: &[u8]) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn unlink(&self, _: InodeNo, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn rmdir(&self, _: InodeNo, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn rename(&self, _: InodeNo, _: &[u8], _: InodeNo, _: &[u8], _: RenameMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn write(&self, _: InodeNo, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn fallocate(&self, _: InodeNo, _: Fallocate, _: u64, _: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn copy_range(&self, _: InodeNo, _: u64, _: InodeNo, _: u64, _: u64) -> Result<u64> {
        Err(Error::ReadOnly)
    }

    fn set_xattr(&self, _: InodeNo, _: &[u8], _: &[u8], _: XattrMode, _: bool) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _: InodeNo, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}
