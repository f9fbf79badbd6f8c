//! File systems that never change: what is read of one, and the refusal of everything else.

use std::fmt::Debug;

use crate::{
    Access, Available, DirEntry, Error, Fallocate, FileKind, FileSystem, Inode, InodeNo, Lock,
    LockOwner, LockTable, NewFile, RenameMode, Result, RoomSpace, SeekTo, SetAttr, XattrMode,
};

/// What can be read of a file system. Each method is that of [`FileSystem`] with its name.
pub trait ReadFiles: Send + Sync + Debug {
    /// A name in a directory.
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode>;
    /// Attributes.
    fn attributes(&self, no: InodeNo) -> Result<Inode>;
    /// A file is opened to be read. Its attributes.
    fn open(&self, no: InodeNo) -> Result<Inode> {
        self.attributes(no)
    }
    /// Names after a cookie.
    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>>;
    /// The same, with the position of the next name.
    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        Ok((self.read_dir(no, after, limit)?, u64::MAX))
    }
    /// Data.
    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// The next data or hole.
    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64>;
    /// An extended attribute.
    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>>;
    /// The names of all extended attributes.
    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>>;
    /// Space of the file system.
    fn space(&self) -> Result<RoomSpace>;
    /// Space for new data: none.
    fn available(&self) -> Result<Available> {
        Ok(Available { new: 0, cached: 0 })
    }
    /// Whether a file has flags.
    fn has_flags(&self) -> bool {
        true
    }
    /// Whether every open is to be asked for: who may read can change.
    fn is_shared(&self) -> bool {
        false
    }
    /// Whether it answers for locks. Otherwise they are the machine's.
    fn has_locks(&self) -> bool {
        self.is_shared()
    }
}

/// A file system of which every change is refused as `ReadOnly`.
#[derive(Debug)]
pub struct ReadOnly<F>(pub F);

impl<F: ReadFiles> FileSystem for ReadOnly<F> {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.0.lookup(parent, name)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.0.attributes(no)
    }

    fn set_attributes(&self, _no: InodeNo, _set: &SetAttr) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn make(&self, _parent: InodeNo, _name: &[u8], _new: &NewFile) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn create_tmpfile(&self, _parent: InodeNo, _new: &NewFile) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn link(&self, _no: InodeNo, _parent: InodeNo, _name: &[u8]) -> Result<Inode> {
        Err(Error::ReadOnly)
    }

    fn unlink(&self, _parent: InodeNo, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn rmdir(&self, _parent: InodeNo, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn rename(
        &self,
        _parent: InodeNo,
        _name: &[u8],
        _new_parent: InodeNo,
        _new_name: &[u8],
        _mode: RenameMode,
    ) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        let inode = self.0.attributes(no)?;
        match inode.kind {
            FileKind::Symlink => Ok(inode.target),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        self.0.read_dir(no, after, limit)
    }

    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        self.0.begin_read_dir(no, after, limit)
    }

    /// Times of access do not follow reads.
    fn touch_atime(&self, _no: InodeNo) {}

    /// Nothing goes.
    fn hold(&self, _no: InodeNo) {}

    fn release(&self, _no: InodeNo, _count: u64) {}

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.read(no, offset, buf)
    }

    fn write(&self, _no: InodeNo, _offset: u64, _data: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn fallocate(&self, _no: InodeNo, _what: Fallocate, _offset: u64, _len: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        self.0.seek(no, offset, to)
    }

    fn copy_range(
        &self,
        _from: InodeNo,
        _from_offset: u64,
        _to: InodeNo,
        _to_offset: u64,
        _len: u64,
    ) -> Result<u64> {
        Err(Error::ReadOnly)
    }

    fn fsync(&self, _no: InodeNo) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        self.0.xattr(no, name)
    }

    fn set_xattr(
        &self,
        _no: InodeNo,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
        _drop_setgid: bool,
    ) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _no: InodeNo, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.0.xattr_names(no)
    }

    fn space(&self) -> Result<RoomSpace> {
        self.0.space()
    }

    fn available(&self) -> Result<Available> {
        self.0.available()
    }

    fn has_flags(&self) -> bool {
        self.0.has_flags()
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    fn has_locks(&self) -> bool {
        self.0.has_locks()
    }

    fn open(&self, no: InodeNo, access: Access) -> Result<Inode> {
        match access.write {
            true => Err(Error::ReadOnly),
            false => self.0.open(no),
        }
    }

    /// Nobody writes, so a lock keeps nobody out.
    fn test_lock(
        &self,
        _no: InodeNo,
        _table: LockTable,
        _owner: LockOwner,
        _lock: Lock,
    ) -> Result<Option<Lock>> {
        Ok(None)
    }

    fn set_lock(
        &self,
        _no: InodeNo,
        _table: LockTable,
        _owner: LockOwner,
        _lock: Lock,
        _wait: bool,
        _cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        Ok(())
    }
}
