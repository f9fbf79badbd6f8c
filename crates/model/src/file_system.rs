//! What a mount needs of a file system: a room that is open here, or one that a metadata server shares.
//!
//! 1. Calls name inodes. What they do is said once, here, for rooms and for what is shared.
//! 2. A [shared](FileSystem::is_shared) file system is changed by others too: nothing learned from it may be kept beyond the
//!    next [`open`](FileSystem::open), and locks are its own unless [`has_locks`](FileSystem::has_locks) says otherwise. An unshared one never sees `open`, `flush` and `close`.

use std::fmt::Debug;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Available, DirEntry, Error, Fallocate, Inode, InodeNo, Lock, LockOwner, LockTable, NewFile,
    RenameMode, Result, RoomSpace, SeekTo, SetAttr, Timestamp, XattrMode,
};

/// How old the attributes may be that [`lookup`](FileSystem::lookup) has of a directory in a shared file system. What the name leads to is never old.
pub const DIRECTORY_AGE: Duration = Duration::from_millis(50);

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Reading, or running.
    pub read: bool,
    /// Writing.
    pub write: bool,
}

impl Access {
    /// For reading.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// For writing.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };
    /// For both.
    pub const READ_WRITE: Self = Self {
        read: true,
        write: true,
    };
}

/// A file system that can be mounted. All methods may be called from many threads at once.
pub trait FileSystem: Send + Sync + Debug {
    /// A name in a directory. `NotFound`, `NotDirectory`, `NameTooLong`. See [`DIRECTORY_AGE`].
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode>;

    /// Attributes.
    fn attributes(&self, no: InodeNo) -> Result<Inode>;

    /// Changes attributes; returns the new ones.
    fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode>;

    /// Makes a file of any kind under a name.
    fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode>;

    /// Makes a regular file and opens it. After an error of the open the file is there.
    fn create(&self, parent: InodeNo, name: &[u8], new: &NewFile, access: Access) -> Result<Inode> {
        let no = self.make(parent, name, new)?.no;
        self.open(no, access)
    }

    /// Makes a regular file without a name (O_TMPFILE), held once for the caller: see [`hold`](Self::hold).
    fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode>;

    /// Gives a file another name.
    fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode>;

    /// Removes a name of anything but a directory. A held inode lives on without a name.
    fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()>;

    /// Moves a name. What it costs does not depend on what is in a directory.
    fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()>;

    /// Target of a symbolic link.
    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>>;

    /// Up to `limit` names with a cookie above `after` (0: from the start) and their attributes, in the order of
    /// creation, which stays the same as long as a name exists, and when it gets another name in its directory. `.` and `..`
    /// are not among them.
    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>>;

    /// Marks a read of a file, directory or link for its access time, where relatime lets it count.
    fn touch_atime(&self, no: InodeNo);

    /// Marks a read for its access time whatever relatime would say.
    fn accessed_always(&self, no: InodeNo) {
        self.touch_atime(no);
    }

    /// Keeps an inode alive beyond its last name, as an open file does. Counted. One whose last name may have gone before is
    /// held only if [`attributes`](Self::attributes) finds it afterwards.
    fn hold(&self, no: InodeNo);

    /// Undoes `count` holds.
    fn release(&self, no: InodeNo, count: u64);

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file. `Corrupt` where data fails authentication.
    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`. Durable after the next [`fsync`](Self::fsync) or commit.
    fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()>;

    /// Allocates, punches, zeroes, collapses, inserts.
    fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()>;

    /// The next data or hole at or after `offset`; `NoMoreData` at or beyond the end, or where no data follows.
    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64>;

    /// Copies a range between files, or within one, sharing whole blocks instead of copying them where both offsets
    /// are multiples of 4096. Returns the bytes copied: fewer only where the source ends.
    fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64>;

    /// Makes everything done to this file durable. Within a transaction of a room, its completion does that, and this does nothing.
    fn fsync(&self, no: InodeNo) -> Result<()>;

    /// Makes everything done so far durable. Within a transaction of a room, its completion does that, and this does nothing.
    fn sync(&self) -> Result<()>;

    /// The value of an extended attribute, or `NoXattr`.
    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute. `system.posix_acl_access` and `system.posix_acl_default` are checked and kept in
    /// step with the mode. `drop_setgid`: the caller, who changes the access list, may not keep the set-group-id bit.
    fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()>;

    /// The names of all extended attributes.
    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>>;

    /// Space of the file system and of the storage below.
    fn space(&self) -> Result<RoomSpace>;

    /// As [`write`](Self::write), for data that a cache accepted earlier: where there is no space for new data it takes some that is
    /// kept for this (64 MiB, less on small storage), and returns true. The cache should accept no more then. Nor does it have to
    /// stamp the file: the cache did when it accepted the data, and sets the times itself.
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

    /// Whether it answers [`test_lock`](Self::test_lock) and [`set_lock`](Self::set_lock). Otherwise locks are the machine's.
    fn has_locks(&self) -> bool {
        self.is_shared()
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

    /// Whether a name, or that there is none, is known for no time: it changes without a call of this file system.
    fn is_fleeting(&self, parent: InodeNo, name: &[u8]) -> bool {
        let _ = (parent, name);
        false
    }

    /// Stamps files by `clock` from now on. Where it returns `None`, the caller keeps the times of the file that it changes, and
    /// sets them itself: they stay as they are. A shared file system keeps its server's clock.
    fn stamp_by(&self, clock: fn() -> Option<Timestamp>) {
        let _ = clock;
    }

    /// Whether a file has, or once had, [`FileFlags`](crate::FileFlags).
    fn has_flags(&self) -> bool {
        true
    }

    /// A file is opened: what others closed before is seen from now on. Returns its attributes.
    fn open(&self, no: InodeNo, access: Access) -> Result<Inode> {
        let _ = access;
        self.attributes(no)
    }

    /// A descriptor of the file was closed: a later open sees the written data. An error is also that of data which
    /// [`write`](Self::write) accepted earlier, until an [`fsync`](Self::fsync) has reported it.
    fn flush(&self, no: InodeNo) -> Result<()> {
        let _ = no;
        Ok(())
    }

    /// The newest loss of data of an open file: [`write`](Self::write) accepted it, and it was refused when it was to be stored. A
    /// number that rises with each loss, from 1, and the error. `fsync` reports a loss to one caller; by this, others who opened the
    /// file find out.
    fn newest_loss(&self, no: InodeNo) -> Option<(u64, Error)> {
        let _ = no;
        None
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
