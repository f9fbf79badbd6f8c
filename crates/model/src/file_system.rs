//! What a mount needs of a file system: a room that is open here, or one that a metadata server shares.
//!
//! 1. Calls name inodes and mean what the methods of `room::Room` of the same name do.
//! 2. A [shared](FileSystem::is_shared) file system is changed by others too: nothing learned from it may be kept beyond the
//!    next [`open`](FileSystem::open), and locks are its own. An unshared one never sees `open`, `flush` and `close`.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::{
    Available, DirEntry, Error, Fallocate, Inode, InodeNo, NewFile, RenameMode, Result, RoomSpace,
    SeekTo, SetAttr, Timestamp, XattrMode,
};

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Reading, or running.
    pub read: bool,
    /// Writing.
    pub write: bool,
}

/// Who holds a lock, as the kernel numbers them on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockOwner(pub u64);

/// Which locks of a file: those of `fcntl` and those of `flock` do not see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockTable {
    /// Locks of byte ranges.
    Posix,
    /// Locks of whole files.
    Flock,
}

/// What a lock allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
    /// Takes the lock away.
    Unlock,
}

/// A lock of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// What it allows.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` (or what the kernel calls OFFSET_MAX) means whatever comes.
    pub end: u64,
    /// The process that asked, for lock queries of others.
    pub pid: u32,
}

/// A file system that can be mounted. All methods may be called from many threads at once.
#[allow(missing_docs, reason = "each is the method of `Room` of its name")]
pub trait FileSystem: Send + Sync + Debug {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode>;
    fn attributes(&self, no: InodeNo) -> Result<Inode>;
    fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode>;
    fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode>;
    fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode>;
    fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode>;
    fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()>;
    fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()>;
    fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()>;
    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>>;
    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>>;
    fn touch_atime(&self, no: InodeNo);
    fn accessed_always(&self, no: InodeNo) {
        self.touch_atime(no);
    }
    fn hold(&self, no: InodeNo);
    fn release(&self, no: InodeNo, count: u64);
    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize>;
    fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()>;
    fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()>;
    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64>;
    fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64>;
    fn fsync(&self, no: InodeNo) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>>;
    fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()>;
    fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()>;
    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>>;
    fn space(&self) -> Result<RoomSpace>;

    /// Writes data that a cache accepted earlier; true where there was no space for it as new data.
    fn write_cached(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<bool> {
        self.write(no, offset, data).map(|()| false)
    }

    /// Bytes that can still be written.
    fn available(&self) -> Result<Available> {
        let new = self.space()?.available;
        Ok(Available { new, cached: new })
    }

    /// Whether others change it too.
    fn is_shared(&self) -> bool {
        false
    }

    /// As [`read_dir`](Self::read_dir), with the position of the next new name before, where it is known: every name that existed
    /// then has a lower one.
    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        Ok((self.read_dir(no, after, limit)?, u64::MAX))
    }

    /// Stamps files by `clock` from now on. A shared file system keeps its server's clock.
    fn stamp_by(&self, clock: fn() -> Timestamp) {
        let _ = clock;
    }

    /// Whether a file has, or once had, flags.
    fn has_flags(&self) -> bool {
        true
    }

    /// A file is opened: what others closed before is seen from now on. Returns its attributes.
    fn open(&self, no: InodeNo, access: Access) -> Result<Inode> {
        let _ = access;
        self.attributes(no)
    }

    /// A descriptor of the file was closed: a later open sees the written data.
    fn flush(&self, no: InodeNo) -> Result<()> {
        let _ = no;
        Ok(())
    }

    /// One `open` is over.
    fn close(&self, no: InodeNo, access: Access) {
        let _ = (no, access);
    }

    /// The lock that keeps `owner` from having `lock`, if any.
    fn test_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<Option<Lock>> {
        let _ = (no, table, owner, lock);
        Err(Error::NotSupported("locks of an unshared file system"))
    }

    /// Takes or releases a lock. `WouldBlock` where it is held already and `wait` is false; a wait ends with
    /// `Interrupted` when `cancelled` says so.
    fn set_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _ = (no, table, owner, lock, wait, cancelled);
        Err(Error::NotSupported("locks of an unshared file system"))
    }
}
