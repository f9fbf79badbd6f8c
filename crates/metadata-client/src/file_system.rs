//! The client as a file system: each call of [`FileSystem`], by asking the server or by the parts beside.

use std::sync::atomic::Ordering;

use metadata_proto::rpc::{Change, Changed, Found};
use model::{
    Access, DirEntry, Error, Fallocate, FileSystem, Inode, InodeNo, Lock, LockOwner, LockTable,
    NewFile, RenameMode, Result, RoomSpace, SeekTo, SetAttr, XattrMode,
};

use super::SharedRoom;
use super::client::ClientCore;
use super::errors::{gone, unexpected};
use super::names::Name;
use super::opens::inode;

/// Entries of a directory asked for at once, at most.
pub(super) const LIST_MAX: usize = 1024;

impl ClientCore {
    /// Makes a change that answers with an inode.
    fn change_inode(&self, change: Change) -> Result<Inode> {
        let before = self.placings.load(Ordering::Acquire);
        let inode = inode(self.change(change)?)?;
        self.learned(before, inode)
    }
}

impl SharedRoom {
    /// Takes in the attributes of a file that is open here.
    fn refresh(&self, no: InodeNo) -> Result<()> {
        match self.core.files.get(no) {
            Some(_) => self.core.attributes_of(no).map(drop),
            None => Ok(()),
        }
    }
}

impl FileSystem for SharedRoom {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let of = Name::new(parent, name);
        let asked = match self.core.directories.get(&of) {
            Ok(known) => return Ok(known),
            Err(asked) => asked,
        };
        let before = self.core.placings.load(Ordering::Acquire);
        let Found { inode, leased } = self.core.call(|client, context, session| {
            let name = name.to_vec();
            async move { client.lookup(context, session, parent, name).await }
        })?;
        if leased {
            self.core.directories.put(asked, of, &inode);
        } else {
            self.core.reached(&inode, of);
        }
        self.core.learned(before, inode)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.core.attributes_of(no).map_err(gone)
    }

    fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> {
        let (set, resized) = (set.clone(), set.size.is_some());
        let before = self.core.placings.load(Ordering::Acquire);
        let change = Change::SetAttributes { no, set };
        let changed = self.core.change_in_order(no, None, change, resized)?;
        self.core.learned(before, inode(changed)?)
    }

    fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> {
        let made = self.core.change_inode(Change::Make {
            parent,
            name: name.to_vec(),
            new: new.clone(),
        })?;
        self.core.reached(&made, Name::new(parent, name));
        Ok(made)
    }

    fn create(&self, parent: InodeNo, name: &[u8], new: &NewFile, access: Access) -> Result<Inode> {
        self.core.create_file(parent, name, new, access)
    }

    fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> {
        let new = new.clone();
        let inode = self
            .core
            .change_inode(Change::CreateTmpfile { parent, new })?;
        self.core.unnamed.0.lock().insert(inode.no);
        Ok(inode)
    }

    fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let before = self.core.placings.load(Ordering::Acquire);
        let link = Change::Link {
            no,
            parent,
            name: name.to_vec(),
        };
        let linked = inode(self.core.change_after_data(&link)?)?;
        self.core.reached(&linked, Name::new(parent, name));
        self.core.learned(before, linked)
    }

    fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.core.send_closed();
        let name = name.to_vec();
        let unlink = Change::Unlink { parent, name };
        self.core.change_after_data(&unlink).map(drop)
    }

    fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        let name = name.to_vec();
        self.core.change(Change::Rmdir { parent, name }).map(drop)
    }

    fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.core.send_closed();
        let change = Change::Rename {
            parent,
            name: name.to_vec(),
            new_parent,
            new_name: new_name.to_vec(),
            mode,
        };
        let moved = self.core.names.file(parent, name);
        let back = match mode {
            RenameMode::Exchange => self.core.names.file(new_parent, new_name),
            RenameMode::Replace | RenameMode::NoReplace => None,
        };
        self.core.change_after_data(&change)?;
        if let Some(no) = moved {
            self.core.is_named(no, Name::new(new_parent, new_name));
        }
        if let Some(no) = back {
            self.core.is_named(no, Name::new(parent, name));
        }
        Ok(())
    }

    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        let inode = self.core.attributes_of(no).map_err(gone)?;
        match inode.kind {
            model::FileKind::Symlink => Ok(inode.target),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        self.begin_read_dir(no, after, limit)
            .map(|(entries, _)| entries)
    }

    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        let limit = limit.min(LIST_MAX) as u32;
        // The inodes may be veiled, and nobody relies on more than their kinds.
        let listed = self.core.call(|client, context, session| async move {
            client.read_dir(context, session, no, after, limit).await
        });
        listed
            .map(|listing| (listing.entries, listing.next))
            .map_err(gone)
    }

    /// Access times of shared files do not follow reads.
    fn touch_atime(&self, _no: InodeNo) {}

    /// A file is held by its opens.
    fn hold(&self, _no: InodeNo) {}

    fn release(&self, no: InodeNo, _count: u64) {
        if self.core.unnamed.0.lock().remove(&no) {
            let generation = self.core.adopted.load(Ordering::Acquire);
            self.core.report_closed(generation, vec![(no, 1)]);
        }
        self.core.files.tidy(no);
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.core.read_file(no, offset, buf)
    }

    fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        self.core.write_file(no, offset, data)
    }

    fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        let change = Change::Fallocate {
            no,
            what,
            offset,
            len,
        };
        self.core.change_in_order(no, None, change, true)?;
        // It may be longer or shorter now.
        self.refresh(no)
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let hole = matches!(to, SeekTo::Hole);
        self.core.call_in_order(no, || {
            self.core.call(|client, context, session| async move {
                client.seek(context, session, no, offset, hole).await
            })
        })
    }

    fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let change = Change::CopyRange {
            from,
            from_offset,
            to,
            to_offset,
            len,
        };
        match self
            .core
            .change_in_order(to, (from != to).then_some(from), change, true)?
        {
            Changed::Copied(bytes) => {
                self.refresh(to)?;
                Ok(bytes)
            }
            Changed::Inode(_) | Changed::Opened(..) | Changed::Done => Err(unexpected()),
        }
    }

    fn fsync(&self, no: InodeNo) -> Result<()> {
        self.core.fsync_file(no)
    }

    fn sync(&self) -> Result<()> {
        self.core.sync_all()
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        self.core.call(|client, context, session| {
            let name = name.to_vec();
            async move { client.xattr(context, session, no, name).await }
        })
    }

    fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()> {
        let change = Change::SetXattr {
            no,
            name: name.to_vec(),
            value: value.to_vec(),
            mode,
            drop_setgid,
        };
        self.core.change(change).map(drop)
    }

    fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> {
        let name = name.to_vec();
        self.core.change(Change::RemoveXattr { no, name }).map(drop)
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.core.call(|client, context, session| async move {
            client.xattr_names(context, session, no).await
        })
    }

    fn space(&self) -> Result<RoomSpace> {
        self.core
            .call(|client, context, session| async move { client.space(context, session).await })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn open(&self, no: InodeNo, access: Access) -> Result<Inode> {
        self.core.open_file(no, access)
    }

    fn flush(&self, no: InodeNo) -> Result<()> {
        self.core.flush_and_report(no)
    }

    fn newest_loss(&self, no: InodeNo) -> Option<(u64, Error)> {
        self.core.newest_loss_of(no)
    }

    fn close(&self, no: InodeNo, _access: Access) {
        self.core.close_file(no);
    }

    fn test_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<Option<Lock>> {
        self.core.test_lock_of(no, table, owner, lock)
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
        self.core
            .set_lock_of(no, table, owner, lock, wait, cancelled)
    }
}
