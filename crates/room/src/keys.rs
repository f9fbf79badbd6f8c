//! Key slots and the header's backup.
//!
//! 1. A change is made on a copy of the header, written, and only then taken over. Where something fails, the header of before is written again: after
//!    an error, the keys are those of before, as far as the storage lets it.
//! 2. The catalog remembers the newest revision, so an older header put back is noticed when the room is opened.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use seal::{Credential, Header, NewCredential, SealError, SlotInfo};
use storage::Storage;

use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::environment::Environment;
use crate::header::{self, HeaderState};
use crate::layout::{CATALOG, HEADER_REVISION};
use crate::lock::RoomLock;
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct Keys {
    env: Arc<Environment>,
    catalog: Arc<CurrentCatalog>,
    commits: Arc<Commits>,
    header: Mutex<HeaderState>,
    /// The revision that the catalog remembers, at least.
    noted: Mutex<u64>,
}

impl Keys {
    pub(crate) fn new(
        env: Arc<Environment>,
        catalog: Arc<CurrentCatalog>,
        commits: Arc<Commits>,
        header: HeaderState,
    ) -> Self {
        Self {
            env,
            catalog,
            commits,
            header: Mutex::new(header),
            noted: Mutex::new(0),
        }
    }

    /// The header, which is not changed while this is held.
    pub(crate) fn header(&self) -> MutexGuard<'_, HeaderState> {
        self.header.lock()
    }

    /// Changes the header and makes the change durable.
    pub(crate) fn change_header<T>(
        &self,
        change: impl FnOnce(&mut HeaderState) -> std::result::Result<T, seal::SealError>,
    ) -> Result<T> {
        if self.env.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.commits.check_poison()?;
        self.commits.check_no_transaction()?;
        // A catalog that takes no more changes could not remember what the header is about to become.
        let present = self.header.lock().header.revision();
        self.note_revision(present)?;
        let mut header = self.header.lock();
        let mut next = HeaderState {
            header: header.header.clone(),
            master: header.master.clone(),
            bytes: Vec::new(),
        };
        let value = change(&mut next).map_err(Error::from)?;
        if let Err(e) = next.store(&*self.env.storage) {
            // The caller may throw a new key away now, or go on with the one before.
            let _ = header::write_both(&*self.env.storage, &header.bytes);
            return Err(e);
        }
        let revision = next.header.revision();
        let before = std::mem::replace(&mut *header, next);
        drop(header);
        // A transaction that was begun meanwhile takes what the catalog remembers of it along.
        self.note_revision(revision)
            .and_then(|()| self.commits.commit_or_defer())
            .or_else(|e| self.take_back(before, revision, e))?;
        Ok(value)
    }

    /// Puts the slots of before in the place of those of a revision that the catalog could not note, and returns its error; unless another change
    /// follows that revision.
    fn take_back(&self, mut before: HeaderState, revision: u64, error: Error) -> Result<()> {
        let mut header = self.header.lock();
        if header.header.revision() != revision {
            tracing::warn!("the catalog has not noted a change of the header: {error}");
            return Ok(());
        }
        // The catalog may have noted it all the same, and takes no earlier one.
        before.header = before.header.following(&header.header);
        before.store(&*self.env.storage)?;
        *header = before;
        Err(error)
    }

    /// Has the catalog remember a revision of the header, or a newer one that it knows already, with its next commit.
    pub(crate) fn note_revision(&self, revision: u64) -> Result<()> {
        let _change = self.commits.change()?;
        let mut noted = self.noted.lock();
        *noted = revision.max(*noted);
        let catalog = self.catalog.get();
        Ok(catalog.set_meta(HEADER_REVISION, noted.to_string().as_bytes())?)
    }

    pub(crate) fn slots(&self) -> Vec<SlotInfo> {
        self.header.lock().header.slots()
    }

    pub(crate) fn add_slot(&self, new: NewCredential, label: &str) -> Result<u32> {
        self.change_header(|h| h.header.add_slot(&h.master, new, label))
    }

    pub(crate) fn remove_slot(&self, id: u32) -> Result<()> {
        self.change_header(|h| h.header.remove_slot(id))
    }

    pub(crate) fn change_slot(&self, id: u32, new: NewCredential) -> Result<()> {
        self.change_header(|h| h.header.replace_slot(&h.master, id, new, None))
    }
}

/// Puts a backed-up header in the place of both copies, after checking that the credential opens it and that it is the
/// header of this room, as far as that can be known: the catalog must open with its key.
pub(crate) fn restore(
    storage: &Arc<dyn Storage>,
    backup: &[u8],
    credential: &Credential,
) -> Result<()> {
    let _lock = RoomLock::take(&**storage, false)?;
    let parsed = Header::parse(backup).map_err(|e| Error::from(SealError::from(e)))?;
    let unlocked = parsed.unlock(credential).map_err(|e| match e {
        seal::SealError::WrongCredential { .. } => Error::WrongCredential(credential.kind().name()),
        other => other.into(),
    })?;
    if storage.list("")?.iter().any(|name| name == CATALOG) {
        let options = catalog::OpenOptions {
            read_only: true,
            // What is wrong with the log does not keep the header from being restored.
            cut_log: true,
            ..catalog::OpenOptions::default()
        };
        let key = parsed.catalog_key(&unlocked.master);
        catalog::Catalog::open(storage, CATALOG, &key, &options)?;
    }
    header::write_both(&**storage, backup)
}

#[cfg(test)]
mod tests {
    use seal::Secret;

    use super::*;
    use crate::Room;
    use crate::testing::{credential, options, room_in};

    /// What failed: of two changes of keys at once the slower one, which then failed, noted the header that it had found. The catalog
    /// forgot the other's, so that the header of before could be put back.
    #[test]
    fn a_note_that_comes_late_takes_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        let before = room.header_backup();
        let late = room.parts.keys.header().header.revision();
        room.add_slot(NewCredential::RawKey(Secret::from(vec![8; 32])), "")
            .unwrap();
        room.parts.keys.note_revision(late).unwrap();
        room.close().unwrap();
        for name in [header::HEADER, header::BACKUP] {
            std::fs::write(dir.path().join("room").join(name), &before).unwrap();
        }
        let opened = Room::open(&dir.path().join("room"), &credential(), options(dir.path()));
        assert!(matches!(opened, Err(Error::OldHeader { .. })), "{opened:?}");
    }
}
