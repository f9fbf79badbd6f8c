//! Shows the snapshots of a file system in a directory `.snapshots`: itself a file system, around the live one.
//!
//! 1. `.snapshots` is in the top directory and in each one below: `a/.snapshots/monday` is the directory `a` as it was, wherever it
//!    was then. There is none while there is no snapshot, and within snapshots.
//! 2. A file of the live tree that has this name wins: what a user stored is never covered.
//! 3. In a snapshot nothing changes: a change is refused as `ReadOnly`, and as `CrossDevice` where one of two places is live. Its files
//!    say that they are immutable, so that the kernel accepts no write into its cache (see `fuse/flagged.rs`).
//! 4. A file has one number in a snapshot, whichever way leads to it; [`numbers`] and [`routes`] say which.
//! 5. A snapshot that is deleted meanwhile answers `Stale`. Its name, as every name of a directory of snapshots, is asked for again each
//!    time ([`is_fleeting`](FileSystem::is_fleeting)).
//! 6. A call of the live tree costs one comparison more; one with a name, two.
//!
//! It deliberately does not know how a snapshot is kept, and the kernel.

use std::sync::Arc;

use model::{
    Access, Available, DirEntry, Error, Fallocate, FileSystem, Inode, InodeNo, Lock, LockOwner,
    LockTable, NewFile, RenameMode, Result, RoomSpace, SeekTo, SetAttr, Snapshots, Timestamp,
    XattrMode,
};

mod numbers;
mod places;
mod routes;
mod views;

use places::Place;
use routes::Routes;
use views::Views;

/// How snapshots are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotDirectory {
    /// The name of the directory of snapshots: see [`is_name`](Self::is_name).
    pub name: Vec<u8>,
    /// Whether a listing of the top directory shows it. Listings of other directories never do: a program that walks the tree would
    /// walk each of its directories once for each snapshot.
    pub is_listed: bool,
}

impl SnapshotDirectory {
    /// Whether `name` can be the name of a directory.
    pub fn is_name(name: &[u8]) -> bool {
        (1..=255).contains(&name.len())
            && !name.contains(&b'/')
            && !name.contains(&0)
            && name != b"."
            && name != b".."
    }
}

/// Whether an inode of a mounted room is one of a snapshot, or a directory of snapshots, by its number.
pub fn is_in_snapshots(inode: u64) -> bool {
    !numbers::is_live(InodeNo(inode))
}

impl Default for SnapshotDirectory {
    fn default() -> Self {
        Self {
            name: b".snapshots".to_vec(),
            is_listed: false,
        }
    }
}

/// A file system with its snapshots in it. Mount it in the place of the file system.
#[derive(Debug)]
pub struct WithSnapshots {
    views: Views,
    directory: SnapshotDirectory,
    routes: Routes,
    /// The numbers of the live tree have all 64 bits: every other inode's is in the table of routes.
    has_all_numbers: bool,
}

impl WithSnapshots {
    /// Shows the snapshots of `live`.
    pub fn new(live: Arc<dyn Snapshots>, directory: SnapshotDirectory) -> Self {
        Self {
            has_all_numbers: live.is_shared(),
            views: Views::new(live),
            directory,
            routes: Routes::default(),
        }
    }

    fn live(&self) -> &dyn Snapshots {
        self.views.live()
    }
}

impl FileSystem for WithSnapshots {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        if self.is_live(parent) {
            let found = self.live().lookup(parent, name);
            if name != self.directory.name || !matches!(found, Err(Error::NotFound)) {
                return found;
            }
            let snapshots = self.views.list()?;
            let newest = snapshots.last().ok_or(Error::NotFound)?;
            return Ok(self.list_inode(&self.live().attributes(parent)?, Some(newest)));
        }
        match self.place(parent)? {
            Place::List(of) => {
                let snapshots = self.views.list()?;
                let named = snapshots.iter().find(|s| s.name.as_bytes() == name);
                self.door(of, named.ok_or(Error::NotFound)?)
            }
            Place::Past(past) => {
                let mut inode = past.view.lookup(past.no, name)?;
                self.show(past.door, past.snapshot, &mut inode);
                Ok(inode)
            }
        }
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        if self.is_live(no) {
            return self.live().attributes(no);
        }
        match self.place(no)? {
            Place::List(of) => {
                let of = self.live().attributes(of)?;
                Ok(self.list_inode(&of, self.views.list()?.last()))
            }
            Place::Past(past) => {
                let mut inode = past.view.attributes(past.no)?;
                self.show(past.door, past.snapshot, &mut inode);
                Ok(inode)
            }
        }
    }

    fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> {
        self.check_live(no)?;
        self.live().set_attributes(no, set)
    }

    fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> {
        self.check_name(parent, name, Error::Exists)?;
        self.live().make(parent, name, new)
    }

    fn create(&self, parent: InodeNo, name: &[u8], new: &NewFile, access: Access) -> Result<Inode> {
        self.check_name(parent, name, Error::Exists)?;
        self.live().create(parent, name, new, access)
    }

    fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> {
        self.check_live(parent)?;
        self.live().create_tmpfile(parent, new)
    }

    fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        if self.is_live(no) != self.is_live(parent) {
            return Err(Error::CrossDevice);
        }
        self.check_name(parent, name, Error::Exists)?;
        self.live().link(no, parent, name)
    }

    fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.check_name(parent, name, Error::ReadOnly)?;
        self.live().unlink(parent, name)
    }

    fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.check_name(parent, name, Error::ReadOnly)?;
        self.live().rmdir(parent, name)
    }

    fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        if self.is_live(parent) != self.is_live(new_parent) {
            return Err(Error::CrossDevice);
        }
        self.check_name(parent, name, Error::ReadOnly)?;
        self.check_name(new_parent, new_name, Error::ReadOnly)?;
        self.live().rename(parent, name, new_parent, new_name, mode)
    }

    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        if self.is_live(no) {
            return self.live().read_link(no);
        }
        let past = self.past(no, Error::InvalidArgument("not a symbolic link"))?;
        past.view.read_link(past.no)
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        if self.is_live(no) {
            let Some(own) = self.own_entry(no, after)? else {
                return self.live().read_dir(no, after, limit);
            };
            let rest = self.live().read_dir(no, after, limit.saturating_sub(1))?;
            return Ok(std::iter::once(own).chain(rest).collect());
        }
        match self.place(no)? {
            Place::List(of) => Ok(self.list(of, after, limit)?.0),
            Place::Past(past) => {
                let entries = past.view.read_dir(past.no, after, limit)?;
                Ok(self.show_all(&past, entries))
            }
        }
    }

    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        if self.is_live(no) {
            let Some(own) = self.own_entry(no, after)? else {
                return self.live().begin_read_dir(no, after, limit);
            };
            let fewer = limit.saturating_sub(1);
            let (rest, next) = self.live().begin_read_dir(no, after, fewer)?;
            return Ok((std::iter::once(own).chain(rest).collect(), next));
        }
        match self.place(no)? {
            Place::List(of) => self.list(of, after, limit),
            Place::Past(past) => {
                let (entries, next) = past.view.begin_read_dir(past.no, after, limit)?;
                Ok((self.show_all(&past, entries), next))
            }
        }
    }

    fn touch_atime(&self, no: InodeNo) {
        if self.is_live(no) {
            self.live().touch_atime(no);
        }
    }

    fn accessed_always(&self, no: InodeNo) {
        if self.is_live(no) {
            self.live().accessed_always(no);
        }
    }

    fn hold(&self, no: InodeNo) {
        match self.is_live(no) {
            true => self.live().hold(no),
            // What is in a snapshot stays there.
            false => self.routes.hold(no),
        }
    }

    fn release(&self, no: InodeNo, count: u64) {
        match self.is_live(no) {
            true => self.live().release(no, count),
            false => self.routes.release(no, count),
        }
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.is_live(no) {
            return self.live().read(no, offset, buf);
        }
        let past = self.past(no, Error::IsDirectory)?;
        past.view.read(past.no, offset, buf)
    }

    fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        self.check_live(no)?;
        self.live().write(no, offset, data)
    }

    fn write_cached(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<bool> {
        self.check_live(no)?;
        self.live().write_cached(no, offset, data)
    }

    fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.check_live(no)?;
        self.live().fallocate(no, what, offset, len)
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        if self.is_live(no) {
            return self.live().seek(no, offset, to);
        }
        let past = self.past(no, Error::IsDirectory)?;
        past.view.seek(past.no, offset, to)
    }

    fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.check_live(to)?;
        if !self.is_live(from) {
            let past = self.past(from, Error::IsDirectory)?;
            // Otherwise the kernel reads and writes.
            if from_offset != to_offset {
                return Err(Error::NotSupported("sharing at another offset"));
            }
            let (number, no) = (past.snapshot, past.no);
            return self
                .live()
                .share_from_snapshot(number, no, to, to_offset, len);
        }
        self.live()
            .copy_range(from, from_offset, to, to_offset, len)
    }

    fn fsync(&self, no: InodeNo) -> Result<()> {
        match self.is_live(no) {
            true => self.live().fsync(no),
            // A snapshot is durable.
            false => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        self.live().sync()
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        if self.is_live(no) {
            return self.live().xattr(no, name);
        }
        let past = self.past(no, Error::NoXattr)?;
        past.view.xattr(past.no, name)
    }

    fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()> {
        self.check_live(no)?;
        self.live().set_xattr(no, name, value, mode, drop_setgid)
    }

    fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> {
        self.check_live(no)?;
        self.live().remove_xattr(no, name)
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        if self.is_live(no) {
            return self.live().xattr_names(no);
        }
        match self.place(no)? {
            Place::List(_) => Ok(Vec::new()),
            Place::Past(past) => past.view.xattr_names(past.no),
        }
    }

    fn space(&self) -> Result<RoomSpace> {
        self.live().space()
    }

    fn available(&self) -> Result<Available> {
        self.live().available()
    }

    fn is_shared(&self) -> bool {
        self.live().is_shared()
    }

    fn is_fleeting(&self, parent: InodeNo, name: &[u8]) -> bool {
        match self.is_live(parent) {
            true => name == self.directory.name,
            false => self.is_list(parent),
        }
    }

    fn stamp_by(&self, clock: fn() -> Option<Timestamp>) {
        self.live().stamp_by(clock);
    }

    fn has_flags(&self) -> bool {
        // The files of snapshots have some, but a mount that asks at each open is slower.
        self.live().has_flags()
    }

    fn open(&self, no: InodeNo, access: Access) -> Result<Inode> {
        if self.is_live(no) {
            return self.live().open(no, access);
        }
        if access.write {
            return Err(Error::ReadOnly);
        }
        match self.place(no)? {
            Place::List(_) => self.attributes(no),
            Place::Past(past) => {
                let mut inode = past.view.open(past.no, access)?;
                self.show(past.door, past.snapshot, &mut inode);
                Ok(inode)
            }
        }
    }

    fn newest_loss(&self, no: InodeNo) -> Option<(u64, Error)> {
        self.live().newest_loss(no).filter(|_| self.is_live(no))
    }

    fn flush(&self, no: InodeNo) -> Result<()> {
        match self.is_live(no) {
            true => self.live().flush(no),
            false => Ok(()),
        }
    }

    fn close(&self, no: InodeNo, access: Access) {
        if self.is_live(no) {
            self.live().close(no, access);
        }
    }

    fn test_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<Option<Lock>> {
        match self.is_live(no) {
            true => self.live().test_lock(no, table, owner, lock),
            false => Ok(None),
        }
    }

    fn set_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        match self.is_live(no) {
            true => self
                .live()
                .set_lock(no, table, owner, lock, wait, cancelled),
            // What never changes needs none.
            false => Ok(()),
        }
    }
}
