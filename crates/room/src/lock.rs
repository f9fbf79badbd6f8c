//! One writer: the lock file of a room, with the holder's process number in it.

use std::io::ErrorKind;

use storage::{LockGuard, Storage};

use crate::{Error, Result};

/// Its name.
pub(crate) const LOCK: &str = "lock";

/// Whether a storage has nothing but a lock, or nothing at all.
pub(crate) fn is_alone(storage: &dyn Storage) -> Result<bool> {
    Ok(storage.list("")?.iter().all(|name| name == LOCK))
}

/// Held for as long as the room is open; it goes when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct RoomLock {
    _held: Option<Box<dyn LockGuard>>,
}

impl RoomLock {
    /// Takes the lock, or names its holder. A read-only directory can have no second writer: then nothing is locked.
    pub(crate) fn take(storage: &dyn Storage, read_only: bool) -> Result<Self> {
        match storage.lock(LOCK, &format!("{}\n", std::process::id())) {
            Ok(held) => Ok(Self { _held: Some(held) }),
            Err(e)
                if read_only
                    && matches!(
                        e.kind(),
                        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
                    ) =>
            {
                Ok(Self { _held: None })
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let text = storage::read_limited(storage, LOCK, 64).unwrap_or_default();
                let pid = String::from_utf8_lossy(&text).trim().parse().unwrap_or(0);
                Err(Error::InUse { pid })
            }
            Err(e) => Err(e.into()),
        }
    }
}
