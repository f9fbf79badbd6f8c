//! The room that a session and its files share, until it is closed.

use std::path::Path;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use room::{InodeNo, Opener, Room};

use crate::{Error, Result};

/// Locks among which appending writers are spread.
const LANES: usize = 16;

#[derive(Debug)]
pub(crate) struct Shared {
    room: RwLock<Option<Room>>,
    opener: Opener,
    appending: [Mutex<()>; LANES],
}

impl Shared {
    pub(crate) fn of(room: Room) -> Self {
        Self {
            room: RwLock::new(Some(room)),
            opener: Opener::this_process(),
            appending: Default::default(),
        }
    }

    /// The room, which is not closed as long as this is held.
    pub(crate) fn room(&self) -> Result<OpenRoom<'_>> {
        // Before the lock: a thread that the parent alone has may hold it.
        self.opener.check()?;
        let room = self.room.read();
        match *room {
            Some(_) => Ok(OpenRoom(room)),
            None => Err(Error::Closed("room")),
        }
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

pub(crate) struct OpenRoom<'a>(RwLockReadGuard<'a, Option<Room>>);

impl std::ops::Deref for OpenRoom<'_> {
    type Target = Room;

    fn deref(&self) -> &Room {
        self.0.as_ref().expect("looked at when it was made")
    }
}

impl OpenRoom<'_> {
    /// As the room's, but that no path leads nowhere, as in POSIX, and not to the root.
    pub(crate) fn resolve(&self, path: &Path, follow: bool) -> room::Result<InodeNo> {
        match path.as_os_str().is_empty() {
            true => Err(room::Error::NotFound),
            false => Room::resolve(self, path, follow),
        }
    }
}
