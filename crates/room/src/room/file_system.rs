//! A room as a [file system](FileSystem): each operation is the part's that owns what it changes.

use catalog::{DirEntry, FileKind, Inode, InodeNo, Timestamp};
use model::FileSystem;

use super::Room;
use crate::{
    Available, Error, Fallocate, NewFile, RenameMode, Result, RoomSpace, SeekTo, SetAttr, XattrMode,
};

impl FileSystem for Room {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.parts()?.tree.lookup(parent, name)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.parts()?.data.attributes(no)
    }

    fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> {
        self.parts()?.attributes.set_attributes(no, set)
    }

    fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> {
        self.parts()?.tree.make(parent, name, new)
    }

    fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> {
        self.parts()?.tree.create_tmpfile(parent, new)
    }

    fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        self.parts()?.tree.link(no, parent, name)
    }

    fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.parts()?.tree.unlink(parent, name)
    }

    fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.parts()?.tree.rmdir(parent, name)
    }

    fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let tree = &self.parts()?.tree;
        tree.rename(parent, name, new_parent, new_name, mode)
    }

    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        let inode = self.parts()?.data.attributes(no)?;
        match inode.kind {
            FileKind::Symlink => Ok(inode.target),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        self.parts()?.tree.read_dir(no, after, limit)
    }

    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        let parts = self.parts()?;
        let next = parts.catalog.get().next_cookie();
        Ok((parts.tree.read_dir(no, after, limit)?, next))
    }

    fn touch_atime(&self, no: InodeNo) {
        if let Ok(parts) = self.parts() {
            parts.attributes.touch_atime(no);
        }
    }

    fn accessed_always(&self, no: InodeNo) {
        if let Ok(parts) = self.parts() {
            parts.attributes.touch_atime_if(no, |_, _| true);
        }
    }

    fn hold(&self, no: InodeNo) {
        if let Ok(parts) = self.parts() {
            parts.holds.hold(no);
        }
    }

    fn release(&self, no: InodeNo, count: u64) {
        if let Ok(parts) = self.parts() {
            parts.holds.release(no, count);
        }
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.parts()?.contents.read(no, offset, buf)
    }

    fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        self.parts()?.contents.write(no, offset, data)
    }

    fn write_cached(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<bool> {
        self.parts()?.contents.write_cached(no, offset, data)
    }

    fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.parts()?.contents.fallocate(no, what, offset, len)
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        self.parts()?.contents.seek(no, offset, to)
    }

    fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let contents = &self.parts()?.contents;
        contents.copy_range(from, from_offset, to, to_offset, len)
    }

    /// In fact everything done to the room.
    fn fsync(&self, _no: InodeNo) -> Result<()> {
        self.parts()?.commits.sync_or_defer()
    }

    fn sync(&self) -> Result<()> {
        self.parts()?.commits.sync_or_defer()
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        self.parts()?.attributes.xattr(no, name)
    }

    fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()> {
        let attributes = &self.parts()?.attributes;
        attributes.set_xattr(no, name, value, mode, drop_setgid)
    }

    fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> {
        self.parts()?.attributes.remove_xattr(no, name)
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.parts()?.attributes.xattr_names(no)
    }

    fn space(&self) -> Result<RoomSpace> {
        self.parts()?.space.total()
    }

    fn available(&self) -> Result<Available> {
        self.parts()?.space.available()
    }

    fn stamp_by(&self, clock: fn() -> Option<Timestamp>) {
        self.parts.env.stamp_by(clock);
    }

    fn has_flags(&self) -> bool {
        self.parts().is_ok_and(|parts| parts.data.has_flags())
    }
}
