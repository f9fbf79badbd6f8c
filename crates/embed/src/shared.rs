//! The room that a session and its files share, until it is closed; for a session of a snapshot, at that moment.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use room::{Error as RoomError, FileSystem, InodeNo, Opener, Room};

use crate::{Error, Result};

/// Locks among which appending writers are spread.
const LANES: usize = 16;

#[derive(Debug)]
pub(crate) struct Shared {
    room: Arc<RwLock<Option<Room>>>,
    opener: Opener,
    appending: [Mutex<()>; LANES],
    past: Option<Past>,
}

/// The moment of a session that reads a snapshot.
#[derive(Debug)]
struct Past {
    /// The snapshot's number.
    number: u64,
    is_closed: AtomicBool,
}

impl Shared {
    pub(crate) fn of(room: Room) -> Self {
        Self {
            room: Arc::new(RwLock::new(Some(room))),
            opener: Opener::this_process(),
            appending: Default::default(),
            past: None,
        }
    }

    /// The same room at the moment of the snapshot of this number.
    pub(crate) fn past(&self, number: u64) -> Self {
        Self {
            room: self.room.clone(),
            opener: self.opener.clone(),
            appending: Default::default(),
            past: Some(Past {
                number,
                is_closed: AtomicBool::new(false),
            }),
        }
    }

    /// Closes what is a snapshot; false: it is a room.
    pub(crate) fn close_past(&self) -> bool {
        let past = self.past.as_ref();
        past.inspect(|past| past.is_closed.store(true, Ordering::Release))
            .is_some()
    }

    /// The room, which is not closed as long as this is held.
    pub(crate) fn room(&self) -> Result<OpenRoom<'_>> {
        // Before the lock: a thread that the parent alone has may hold it.
        self.opener.check()?;
        let lock = self.room.read();
        let Some(room) = &*lock else {
            return Err(Error::Closed("room"));
        };
        let past = match &self.past {
            None => None,
            Some(past) if past.is_closed.load(Ordering::Acquire) => {
                return Err(Error::Closed("snapshot"));
            }
            // Found by each call, so that nothing of a closed room stays.
            Some(past) => Some(room.snapshot_of_number(past.number)?),
        };
        Ok(OpenRoom { lock, past })
    }

    /// Where the room is, for taking it out: waits for the calls under way. Asked for after [`room`](Self::room) has succeeded.
    pub(crate) fn place(&self) -> RwLockWriteGuard<'_, Option<Room>> {
        self.room.write()
    }

    /// Held between looking where a file ends and writing there.
    pub(crate) fn lane(&self, no: InodeNo) -> &Mutex<()> {
        &self.appending[no.0 as usize % LANES]
    }
}

/// The files are those of the room, or of its snapshot.
pub(crate) struct OpenRoom<'a> {
    lock: RwLockReadGuard<'a, Option<Room>>,
    past: Option<Arc<dyn FileSystem>>,
}

impl std::ops::Deref for OpenRoom<'_> {
    type Target = dyn FileSystem;

    fn deref(&self) -> &(dyn FileSystem + 'static) {
        match &self.past {
            Some(past) => &**past,
            None => self.room(),
        }
    }
}

impl OpenRoom<'_> {
    /// The room itself, of a snapshot too.
    pub(crate) fn room(&self) -> &Room {
        self.lock.as_ref().expect("looked at when it was made")
    }

    /// The room itself, where it is one that can be changed.
    pub(crate) fn changeable(&self) -> room::Result<&Room> {
        match self.past {
            Some(_) => Err(RoomError::ReadOnly),
            None => Ok(self.room()),
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.past.is_some() || self.room().is_read_only()
    }

    /// As the room's, but that no path leads nowhere, as in POSIX, and not to the root.
    pub(crate) fn resolve(&self, path: &Path, follow: bool) -> room::Result<InodeNo> {
        if path.as_os_str().is_empty() {
            return Err(RoomError::NotFound);
        }
        match &self.past {
            Some(past) => Ok(room::resolve(&**past, path, follow)?.no),
            None => self.room().resolve(path, follow),
        }
    }

    /// For a change: the directory that holds a path's last name, and that name.
    pub(crate) fn resolve_parent<'p>(&self, path: &'p Path) -> room::Result<(InodeNo, &'p [u8])> {
        self.changeable()?.resolve_parent(path)
    }
}
