//! The public face of an open room: each call is one of the parts'.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use catalog::{DirEntry, FileKind, Inode, InodeNo, Timestamp};
use seal::{Credential, NewCredential, SlotInfo};
use storage::{HostStorage, Storage};

use crate::core::Core;
use crate::space::Claim;
use crate::{
    Available, Error, Fallocate, Info, NewFile, NewRoom, OpenOptions, RenameMode, Result, RoomFile,
    RoomSpace, SeekTo, SetAttr, XattrMode,
};

/// An open room. All methods may be called from many threads at once. In a fork of the process that opened it, methods are
/// refused as [`Error::Forked`] (those without an error do nothing), and dropping it does nothing. Elsewhere, dropping it commits and closes; errors of that
/// last commit are logged only: [`close`](Self::close) returns them.
#[derive(Debug)]
pub struct Room {
    /// For what only reads memory, and for this process's own: see [`core`](Self::core).
    pub(crate) core: Arc<Core>,
    maintenance: Option<JoinHandle<()>>,
    closed: bool,
}

impl Room {
    /// Creates a room in `dir`, which must not exist or be empty, and opens it.
    pub fn create(dir: &Path, new: NewRoom) -> Result<Room> {
        Self::start(crate::open::create(dir, new)?)
    }

    /// Opens the room in `dir`. `InUse` where another process has it, `WrongCredential`, `RolledBack`, `HeaderDamaged`,
    /// `Catalog` and others as they say.
    pub fn open(dir: &Path, credential: &Credential, options: OpenOptions) -> Result<Room> {
        Self::start(crate::open::open(dir, credential, options)?)
    }

    /// Creates a room in an empty storage, and opens it. What this machine saw of it is remembered only where
    /// `state_dir` says so.
    pub fn create_on(storage: Arc<dyn Storage>, new: NewRoom) -> Result<Room> {
        Self::start(crate::open::create_on(storage, PathBuf::new(), new)?)
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

    fn start(core: Core) -> Result<Room> {
        let core = Arc::new(core);
        let maintenance = if core.options.read_only || !core.options.background {
            None
        } else {
            let core = core.clone();
            core.ask(|wake| wake.reap = true);
            Some(
                std::thread::Builder::new()
                    .name("room".into())
                    .spawn(move || core.maintain())?,
            )
        };
        Ok(Room {
            core,
            maintenance,
            closed: false,
        })
    }

    /// What the calls are made of; refused in a fork of the process that opened the room.
    pub(crate) fn core(&self) -> Result<&Arc<Core>> {
        self.core.opener.check()?;
        Ok(&self.core)
    }

    /// Commits and closes. `InTransaction`: one was open, nothing of which is left.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        self.core.opener.check()?;
        if std::mem::replace(&mut self.closed, true) || self.core.options.read_only {
            return Ok(());
        }
        if let Some(maintenance) = self.maintenance.take() {
            self.core.ask(|wake| wake.stop = true);
            if maintenance.join().is_err() {
                tracing::error!("the maintenance thread panicked");
            }
        }
        self.core.check_poison()?;
        let done = self.core.reap_all().and_then(|()| self.core.commit_all());
        self.core.memory.lock().write();
        done?;
        Ok(self.core.catalog().checkpoint()?)
    }

    /// Does now what the room's own thread does in time: deletes what lost its last name, commits, and moves the
    /// catalog's log into its file.
    pub fn tend(&self) -> Result<()> {
        let core = self.core()?;
        core.reap_all()?;
        core.commit_all()?;
        if self.is_read_only() {
            return Ok(());
        }
        Ok(core.catalog().checkpoint()?)
    }

    /// Whether this machine remembers the newest state it sees of this room, so that a later opening notices a rollback.
    pub fn notices_rollbacks(&self) -> bool {
        self.core.memory.lock().is_kept()
    }

    /// Facts.
    pub fn info(&self) -> Result<Info> {
        let core = self.core()?;
        let header = core.header.lock();
        let (h, space) = (&header.header, core.space()?);
        Ok(Info {
            id: h.room_id(),
            format: h.format(),
            suite: h.suite(),
            generation: core.catalog().generation(),
            key_epoch: h.epoch(),
            rekeying: h.rekey_under_way(),
            created: h.created_unix_s(),
            slots: h.slots().len(),
            segments: core.accounts.lock().len() as u64,
            space,
        })
    }

    /// The directory that holds the room; empty where it is in a storage of another kind.
    pub fn dir(&self) -> &Path {
        &self.core.dir
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.core.options.read_only
    }

    /// Bytes that can still be written: costs less than [`space`](Self::space).
    pub fn available(&self) -> Result<Available> {
        self.core()?.available()
    }

    /// Space.
    pub fn space(&self) -> Result<RoomSpace> {
        self.core()?.space()
    }

    /// A name in a directory. `NotFound`, `NotDirectory`, `NameTooLong`.
    pub fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.core()?.lookup(parent, name)
    }

    /// Attributes.
    pub fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.core()?.attributes(no)
    }

    /// Changes attributes; returns the new ones.
    pub fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> {
        self.core()?.set_attributes(no, set)
    }

    /// Makes a file of any kind under a name.
    pub fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> {
        self.core()?.make(parent, name, new)
    }

    /// Makes a regular file without a name (O_TMPFILE), held once for the caller: see [`hold`](Self::hold).
    pub fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> {
        self.core()?.create_tmpfile(parent, new)
    }

    /// Gives a file another name.
    pub fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.core()?.link(no, parent, name)
    }

    /// Removes a name of anything but a directory. A held inode lives on without a name.
    pub fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.core()?.unlink(parent, name)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.core()?.rmdir(parent, name)
    }

    /// Moves a name. What it costs does not depend on what is in a directory.
    pub fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.core()?
            .rename(parent, name, new_parent, new_name, mode)
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        let inode = self.core()?.attributes(no)?;
        match inode.kind {
            FileKind::Symlink => Ok(inode.target),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    /// Up to `limit` names with a cookie above `after` (0: from the start) and their attributes, in the order of
    /// creation, which stays the same as long as a name exists, and when it gets another name in its directory. `.` and `..`
    /// are not among them.
    pub fn read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.core()?.read_dir(no, after, limit)
    }

    /// As [`read_dir`](Self::read_dir), with the position of the next new name before: every name that existed then has a lower
    /// one. A listing that stops there ends even while names are created.
    pub fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        let core = self.core()?;
        let next = core.catalog().next_cookie();
        Ok((core.read_dir(no, after, limit)?, next))
    }

    /// Stamps files by `clock` from now on. For a mount, whose kernel stamps the same files by a clock of its own. A second
    /// call changes nothing.
    pub fn stamp_by(&self, clock: fn() -> Timestamp) {
        self.core.stamp_by(clock);
    }

    /// Marks a read of a file, directory or link for its access time, where relatime lets it count.
    pub fn touch_atime(&self, no: InodeNo) {
        if let Ok(core) = self.core() {
            core.touch_atime(no);
        }
    }

    /// Marks a read for its access time whatever relatime would say.
    pub fn accessed_always(&self, no: InodeNo) {
        if let Ok(core) = self.core() {
            core.touch_atime_if(no, |_, _| true);
        }
    }

    /// Whether a file of the room has, or once had, [`FileFlags`](crate::FileFlags).
    pub fn has_flags(&self) -> bool {
        self.core().is_ok_and(|core| core.has_flags())
    }

    /// Keeps an inode alive beyond its last name, as an open file does. Counted. One whose last name may have gone before is
    /// held only if [`attributes`](Self::attributes) finds it afterwards.
    pub fn hold(&self, no: InodeNo) {
        if let Ok(core) = self.core() {
            core.hold(no);
        }
    }

    /// Undoes `count` holds.
    pub fn release(&self, no: InodeNo, count: u64) {
        if let Ok(core) = self.core() {
            core.release(no, count);
        }
    }

    /// Inodes without a name that are [held](Self::hold). Those that [`OpenOptions::keep_unnamed`] holds are to be
    /// [released](Self::release) when no program can come back for them.
    pub fn held_without_name(&self) -> Vec<InodeNo> {
        match self.core() {
            Ok(core) => core.holds.lock().unlinked.iter().copied().collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file. `Corrupt` where data fails authentication.
    pub fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.core()?.read(no, offset, buf)
    }

    /// Writes all of `data` at `offset`. Durable after the next [`fsync`](Self::fsync) or commit.
    pub fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        self.core()?.write(no, offset, data)
    }

    /// As [`write`](Self::write), for data that a cache accepted earlier: where there is no space for new data it takes some that is
    /// kept for this (64 MiB, less on small storage), and returns true. The cache should accept no more then.
    pub fn write_cached(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<bool> {
        let core = self.core()?;
        let written = core.write_for(Claim::Cached, no, offset, data);
        if matches!(written, Err(Error::NoSpace)) {
            core.refused.note(no, offset, data.len() as u64);
        }
        written
    }

    /// Allocates, punches, zeroes, collapses, inserts.
    pub fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.core()?.fallocate(no, what, offset, len)
    }

    /// The next data or hole at or after `offset`; `NoMoreData` at or beyond the end, or where no data follows.
    pub fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        self.core()?.seek(no, offset, to)
    }

    /// Copies a range between files, or within one, sharing whole blocks instead of copying them where both offsets
    /// are multiples of 4096. Returns the bytes copied: fewer only where the source ends.
    pub fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.core()?
            .copy_range(from, from_offset, to, to_offset, len)
    }

    /// Makes everything done to this file durable; in fact everything done to the room. Within a transaction its
    /// completion does that, and this does nothing.
    pub fn fsync(&self, no: InodeNo) -> Result<()> {
        let _ = no;
        self.core()?.sync_or_defer()
    }

    /// Makes everything done so far durable. Within a transaction its completion does that, and this does nothing.
    pub fn sync(&self) -> Result<()> {
        self.core()?.sync_or_defer()
    }

    /// Begins a transaction: what is done to the room from now on, by any thread, becomes durable as a whole when
    /// [`complete`](Self::complete) returns, and after a crash before that none of it is there. What was done before is
    /// committed first. One may be begun in another; the outermost counts. There is no way back: a room that is closed or
    /// dropped within a transaction is as after a crash, and what changes keys, checks, backs up or compacts is refused as
    /// `InTransaction`.
    pub fn begin(&self) -> Result<()> {
        self.core()?.begin()
    }

    /// Completes a transaction. After `NoSpace` it is still open: delete something and complete it again.
    pub fn complete(&self) -> Result<()> {
        self.core()?.complete()
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.core.in_transaction()
    }

    /// The value of an extended attribute, or `NoXattr`.
    pub fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        self.core()?.xattr(no, name)
    }

    /// Sets an extended attribute. `system.posix_acl_access` and `system.posix_acl_default` are checked and kept in
    /// step with the mode. `drop_setgid`: the caller, who changes the access list, may not keep the set-group-id bit.
    pub fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()> {
        self.core()?.set_xattr(no, name, value, mode, drop_setgid)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> {
        self.core()?.remove_xattr(no, name)
    }

    /// The names of all extended attributes.
    pub fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.core()?.xattr_names(no)
    }

    /// The inode at a path; `follow`: through a symbolic link at its end too.
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<InodeNo> {
        Ok(self.core()?.resolve(path, follow)?.no)
    }

    /// The directory that holds a path's last name, and that name.
    pub fn resolve_parent<'a>(&self, path: &'a Path) -> Result<(InodeNo, &'a [u8])> {
        self.core()?.resolve_parent(path)
    }

    /// Opens a file that exists, for reading and writing.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<RoomFile> {
        let core = self.core()?;
        let inode = core.resolve(path.as_ref(), true)?;
        RoomFile::new(core.clone(), inode.no)
    }

    /// Opens a file, making an empty one where there is none.
    pub fn open_or_make_file(&self, path: impl AsRef<Path>) -> Result<RoomFile> {
        let core = self.core()?;
        let inode = core.open_or_make(path.as_ref())?;
        RoomFile::new(core.clone(), inode.no)
    }

    /// The whole contents of a file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let core = self.core()?;
        let inode = core.resolve(path.as_ref(), true)?;
        let mut data = vec![0; inode.size as usize];
        let n = core.read(inode.no, 0, &mut data)?;
        data.truncate(n);
        Ok(data)
    }

    /// Makes a file or replaces its contents.
    pub fn write_file(&self, path: impl AsRef<Path>, data: &[u8]) -> Result<()> {
        let core = self.core()?;
        let inode = core.open_or_make(path.as_ref())?;
        if inode.size > 0 {
            core.set_attributes(
                inode.no,
                &SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                },
            )?;
        }
        core.write(inode.no, 0, data)
    }

    /// Creates a directory; with `parents` also those above it that are missing, and one that is there already is no error.
    pub fn make_dir(&self, path: impl AsRef<Path>, parents: bool) -> Result<()> {
        match parents {
            true => self.core()?.make_dirs(path.as_ref()),
            false => self.core()?.make_dir(path.as_ref()),
        }
    }

    /// The key slots.
    pub fn slots(&self) -> Vec<SlotInfo> {
        self.core.slots()
    }

    /// Adds a key slot; returns its number.
    pub fn add_slot(&self, new: NewCredential, label: &str) -> Result<u32> {
        self.core()?.add_slot(new, label)
    }

    /// Removes a key slot; never the last one.
    pub fn remove_slot(&self, id: u32) -> Result<()> {
        self.core()?.remove_slot(id)
    }

    /// Replaces what opens a slot.
    pub fn change_slot(&self, id: u32, new: NewCredential) -> Result<()> {
        self.core()?.change_slot(id, new)
    }

    /// The current header, for a backup file.
    pub fn header_backup(&self) -> Vec<u8> {
        self.core.header.lock().bytes.clone()
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
        self.core.poison();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.core.opener.is_this_process() {
            std::mem::forget(self.maintenance.take());
            return self.core.leave();
        }
        if let Err(e) = self.shut() {
            tracing::error!("closing the room: {e}");
        }
    }
}
