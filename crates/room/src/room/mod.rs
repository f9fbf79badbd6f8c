//! The public face of an open room. What a file system does is [`FileSystem`]'s; the calls here are the room's own.

mod answers;
mod file;
mod file_system;
mod maintenance;
mod remote;
mod replica;
mod snapshots;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use catalog::InodeNo;
use seal::{Credential, NewCredential, SlotInfo};
use storage::{HostStorage, Storage};

use crate::background;
use crate::contents::Unsaved;
use crate::options::{Info, NewRoom, OpenOptions};
use crate::parts::Parts;
use crate::{Error, Result, SetAttr};
pub use answers::OperationId;
pub use file::RoomFile;

/// Bytes that changes which are one may take in the catalog: for the check of free space.
const WHOLE_COST: u64 = 64 << 10;

/// An open room. All methods, and those of [`FileSystem`](crate::FileSystem), may be called from many threads at once. In a fork
/// of the process that opened it, methods are refused as [`Error::Forked`] (those without an error do nothing), and dropping it
/// does nothing. Elsewhere, dropping it commits and closes; errors of that last commit are logged only: [`close`](Self::close) returns them.
pub struct Room {
    /// For what only reads memory, and for this process's own: see [`parts`](Self::parts).
    pub(crate) parts: Arc<Parts>,
    maintenance: Option<JoinHandle<()>>,
    closed: bool,
}

// Not what it holds: too much for a log.
impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl Room {
    /// Creates a room in `dir`, which must not exist or be empty, and opens it.
    pub fn create(dir: &Path, new: NewRoom) -> Result<Room> {
        Self::start(crate::create::create(dir, new)?)
    }

    /// Opens the room in `dir`. `InUse` where another process has it, `WrongCredential`, `RolledBack`, `HeaderDamaged`,
    /// `Catalog` and others as they say.
    pub fn open(dir: &Path, credential: &Credential, options: OpenOptions) -> Result<Room> {
        Self::start(crate::open::open(dir, credential, options)?)
    }

    /// Creates a room in an empty storage, and opens it. What this machine saw of it is remembered only where
    /// `state_dir` says so.
    pub fn create_on(storage: Arc<dyn Storage>, new: NewRoom) -> Result<Room> {
        Self::start(crate::create::create_on(storage, PathBuf::new(), new)?)
    }

    /// Opens the room in a storage. The rest as for [`open`](Self::open) and [`create_on`](Self::create_on).
    pub fn open_on(
        storage: Arc<dyn Storage>,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<Room> {
        Self::start(crate::open::open_on(
            storage,
            PathBuf::new(),
            credential,
            options,
        )?)
    }

    /// Creates a room in an empty storage that `dir`, an existing directory, represents on this machine: what this machine saw of the
    /// room is remembered under that directory's name.
    pub fn create_for(storage: Arc<dyn Storage>, dir: &Path, new: NewRoom) -> Result<Room> {
        Self::start(crate::create::create_on(storage, dir.to_owned(), new)?)
    }

    /// Opens the room in such a storage.
    pub fn open_for(
        storage: Arc<dyn Storage>,
        dir: &Path,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<Room> {
        let dir = dir.to_owned();
        Self::start(crate::open::open_on(storage, dir, credential, options)?)
    }

    /// Opens a later moment of this room, which is open for reading: what its storage became meanwhile. The room must have the master
    /// key that this one has; no credential is asked for. This one stays what it is.
    ///
    /// # Errors
    /// `RolledBack` where that moment is an earlier one, `Seal` where the room has another master key by now.
    pub fn later(&self, storage: Arc<dyn Storage>) -> Result<Room> {
        Self::start(crate::open::open_later(self.parts()?, storage)?)
    }

    fn start(parts: Parts) -> Result<Room> {
        let parts = Arc::new(parts);
        let maintenance = if parts.env.options.read_only || !parts.env.options.background {
            None
        } else {
            let parts = parts.clone();
            parts.env.requests.ask(|wake| {
                wake.reap = true;
                wake.merge = parts.past.has_deleted();
            });
            Some(
                std::thread::Builder::new()
                    .name("room".into())
                    .spawn(move || background::run(&parts))?,
            )
        };
        Ok(Room {
            parts,
            maintenance,
            closed: false,
        })
    }

    /// What the calls are made of; refused in a fork of the process that opened the room.
    pub(crate) fn parts(&self) -> Result<&Arc<Parts>> {
        self.parts.env.opener.check()?;
        Ok(&self.parts)
    }

    /// Commits and closes. `InTransaction`: one was open, nothing of which is left.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        self.parts.env.opener.check()?;
        if std::mem::replace(&mut self.closed, true) || self.parts.env.options.read_only {
            return Ok(());
        }
        if let Some(maintenance) = self.maintenance.take() {
            self.parts.env.requests.ask(|wake| wake.stop = true);
            if maintenance.join().is_err() {
                tracing::error!("the maintenance thread panicked");
            }
        }
        self.parts.commits.check_poison()?;
        let done = self
            .parts
            .reaper
            .reap_all_and_make_space()
            .and_then(|()| self.parts.commits.commit_all());
        self.parts.commits.remember_now();
        done?;
        Ok(self.parts.catalog.get().checkpoint()?)
    }

    /// Does now what the room's own thread does in time: deletes what lost its last name and what only deleted snapshots held,
    /// commits, and moves the catalog's log into its file.
    pub fn tend(&self) -> Result<()> {
        let parts = self.parts()?;
        parts.reaper.reap_all_and_make_space()?;
        parts.past.delete_all()?;
        parts.commits.commit_all()?;
        if self.is_read_only() {
            return Ok(());
        }
        Ok(parts.catalog.get().checkpoint()?)
    }

    /// Does now what the room's own thread does ahead of a commit. Nothing becomes durable by it.
    #[doc(hidden)]
    pub fn prepare(&self) -> Result<()> {
        self.parts()?.commits.prepare_all()
    }

    /// Whether this machine remembers the newest state it sees of this room, so that a later opening notices a rollback.
    pub fn notices_rollbacks(&self) -> bool {
        self.parts.commits.is_remembered()
    }

    /// Facts.
    pub fn info(&self) -> Result<Info> {
        let parts = self.parts()?;
        let space = parts.space.total()?;
        let header = parts.keys.header();
        let h = &header.header;
        Ok(Info {
            id: h.room_id(),
            format: h.format(),
            suite: h.suite(),
            generation: parts.catalog.get().generation(),
            key_epoch: h.epoch(),
            rekeying: h.rekey_under_way(),
            created: h.created_unix_s(),
            slots: h.slots().len(),
            segments: parts.blocks.accounts().len() as u64,
            space,
        })
    }

    /// The directory that holds the room; empty where it is in a storage of another kind.
    pub fn dir(&self) -> &Path {
        &self.parts.env.dir
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.parts.env.options.read_only
    }

    /// Inodes without a name that are [held](crate::FileSystem::hold). Those that [`OpenOptions::keep_unnamed`] holds are to be
    /// [released](crate::FileSystem::release) when no program can come back for them.
    pub fn held_without_name(&self) -> Vec<InodeNo> {
        match self.parts() {
            Ok(parts) => parts.holds.unnamed(),
            Err(_) => Vec::new(),
        }
    }

    /// Commits, and returns what found no space. Closing the room loses that: to be asked when it is about to be closed.
    /// Other errors than `NoSpace` as they are.
    pub fn commit_or_list(&self) -> Result<Unsaved> {
        let parts = self.parts()?;
        let changes = match parts.commits.sync_or_defer() {
            Ok(()) => false,
            Err(Error::NoSpace) => match parts.commits.commit_without_buffers() {
                Ok(()) => false,
                Err(Error::NoSpace) => true,
                Err(e) => return Err(e),
            },
            Err(e) => return Err(e),
        };
        let ranges = parts.contents.unsaved();
        Ok(Unsaved {
            ranges: parts.maintenance.named(ranges)?,
            changes,
        })
    }

    /// The inode at a path; `follow`: through a symbolic link at its end too.
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<InodeNo> {
        Ok(self.parts()?.tree.resolve(path, follow)?.no)
    }

    /// The directory that holds a path's last name, and that name.
    pub fn resolve_parent<'a>(&self, path: &'a Path) -> Result<(InodeNo, &'a [u8])> {
        self.parts()?.tree.resolve_parent(path)
    }

    /// Opens a file that exists, for reading and writing.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<RoomFile> {
        let parts = self.parts()?;
        let inode = parts.tree.resolve(path.as_ref(), true)?;
        RoomFile::new(parts.clone(), inode.no)
    }

    /// Opens a file, making an empty one where there is none.
    pub fn open_or_make_file(&self, path: impl AsRef<Path>) -> Result<RoomFile> {
        let parts = self.parts()?;
        let inode = parts.tree.open_or_make(path.as_ref())?;
        RoomFile::new(parts.clone(), inode.no)
    }

    /// The whole contents of a file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let parts = self.parts()?;
        let inode = parts.tree.resolve(path.as_ref(), true)?;
        let mut data = vec![0; inode.size as usize];
        let n = parts.contents.read(inode.no, 0, &mut data)?;
        data.truncate(n);
        Ok(data)
    }

    /// Makes a file or replaces its contents.
    pub fn write_file(&self, path: impl AsRef<Path>, data: &[u8]) -> Result<()> {
        let parts = self.parts()?;
        let inode = parts.tree.open_or_make(path.as_ref())?;
        if inode.size > 0 {
            parts
                .attributes
                .set_attributes(inode.no, &SetAttr::size(0))?;
        }
        parts.contents.write(inode.no, 0, data)
    }

    /// Creates a directory; with `parents` also those above it that are missing, and one that is there already is no error.
    pub fn make_dir(&self, path: impl AsRef<Path>, parents: bool) -> Result<()> {
        match parents {
            true => self.parts()?.tree.make_dirs(path.as_ref()),
            false => self.parts()?.tree.make_dir(path.as_ref()),
        }
    }

    /// Begins a transaction: what is done to the room from now on, by any thread, becomes durable as a whole when
    /// [`complete`](Self::complete) returns, and after a crash before that none of it is there. What was done before is
    /// committed first. One may be begun in another; the outermost counts. There is no way back: a room that is closed or
    /// dropped within a transaction is as after a crash, and what changes keys, checks, backs up or compacts is refused as
    /// `InTransaction`.
    pub fn begin(&self) -> Result<()> {
        self.parts()?.commits.begin()
    }

    /// Completes a transaction. After `NoSpace` it is still open: delete something and complete it again.
    pub fn complete(&self) -> Result<()> {
        self.parts()?.commits.complete()
    }

    /// Runs short changes of this thread so that one commit has all of them, or none. Others are not kept away, and what fails half way is not
    /// taken back. Without space what was discarded is freed, and all of it runs once more. Not to be nested.
    pub(crate) fn whole<T>(&self, changes: impl Fn() -> Result<T>) -> Result<T> {
        let parts = self.parts()?;
        let attempt = || parts.commits.whole(&changes);
        parts.space.replacing(WHOLE_COST, attempt)
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.parts.commits.in_transaction()
    }

    /// The key slots.
    pub fn slots(&self) -> Vec<SlotInfo> {
        self.parts.keys.slots()
    }

    /// Adds a key slot; returns its number.
    pub fn add_slot(&self, new: NewCredential, label: &str) -> Result<u32> {
        self.parts()?.keys.add_slot(new, label)
    }

    /// Removes a key slot; never the last one.
    pub fn remove_slot(&self, id: u32) -> Result<()> {
        self.parts()?.keys.remove_slot(id)
    }

    /// Replaces what opens a slot.
    pub fn change_slot(&self, id: u32, new: NewCredential) -> Result<()> {
        self.parts()?.keys.change_slot(id, new)
    }

    /// The current header, for a backup file.
    pub fn header_backup(&self) -> Vec<u8> {
        self.parts.keys.header().bytes.clone()
    }

    /// Puts a header made by [`header_backup`](Self::header_backup) in the place of both copies of the room in `dir`,
    /// after checking that `credential` opens it and that its key opens the room's catalog.
    pub fn header_restore(dir: &Path, backup: &[u8], credential: &Credential) -> Result<()> {
        Self::header_restore_on(Arc::new(HostStorage::open(dir)?), backup, credential)
    }

    /// The same for the room in a storage.
    pub fn header_restore_on(
        storage: Arc<dyn Storage>,
        backup: &[u8],
        credential: &Credential,
    ) -> Result<()> {
        crate::keys::restore(&storage, backup, credential)
    }

    /// Leaves the room as a failed commit does: no change is taken any more, and what was not durable is lost. For tests of
    /// layers above rooms.
    #[doc(hidden)]
    pub fn fail_for_test(&self) {
        self.parts.commits.poison();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.parts.env.opener.is_this_process() {
            std::mem::forget(self.maintenance.take());
            return self.parts.leave();
        }
        if let Err(e) = self.shut() {
            tracing::error!("closing the room: {e}");
        }
    }
}
