//! Attributes and extended attributes, and how mode, set-id bits and access control lists follow each other.
//!
//! It deliberately does not check permissions: the mount does.

use std::sync::Arc;

use catalog::{Change, FileKind, Inode, InodeNo, Timestamp};

use crate::acl::{self, Acl};
use crate::blocks::BLOCK;
use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::flags;
use crate::inodes::{Cell, State};
use crate::owners::More;
use crate::space::{Claim, Space};
use crate::{Error, Result, SetAttr, SetTime, XattrMode};

/// File capabilities: gone with a change of owner or data.
const CAPABILITY: &[u8] = b"security.capability";
/// Longest name of an extended attribute, bytes.
const XATTR_NAME_MAX: usize = 255;
/// Longest value, bytes: the kernel's own limit.
const XATTR_VALUE_MAX: usize = 65536;
/// Most bytes of names that a listing can carry: the kernel's own limit.
const XATTR_LIST_MAX: usize = 65536;
/// Seconds after which relatime lets an access count again.
const RELATIME_SECS: i64 = 24 * 60 * 60;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) space: Arc<Space>,
}

impl Attributes {
    /// Changes attributes.
    pub(crate) fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> {
        let _change = self.commits.change()?;
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        if state.is_gone() {
            return Err(Error::NotFound);
        }
        flags::check_attributes(&state.inode, set)?;
        if let Some(uid) = set.uid
            && uid != state.inode.uid
        {
            let more = More {
                blocks: state.inode.blocks,
                files: 1,
            };
            self.data.owners().check(uid, more)?;
        }
        if let Some(flags) = set.flags {
            if !matches!(state.inode.kind, FileKind::Regular | FileKind::Directory) {
                return Err(Error::NotSupported(
                    "flags of anything but files and directories",
                ));
            }
            self.data.set_flags(&mut state, flags);
        }
        let stamp = self.env.stamp();
        if let Some(size) = set.size {
            if size > state.inode.size && !self.space.fits(Claim::Replace, BLOCK)? {
                return Err(Error::NoSpace);
            }
            let changed = size != state.inode.size;
            self.data.resize(&cell, &mut state, size)?;
            if let Some(now) = stamp
                && (changed || set.mtime.is_none())
            {
                state.inode.mtime = now;
            }
        }
        if let Some(uid) = set.uid {
            self.data.owners().went(&state.inode);
            state.inode.uid = uid;
            self.data.owners().came(&state.inode);
        }
        if let Some(gid) = set.gid {
            state.inode.gid = gid;
        }
        if set.drop_privileges
            || ((set.uid.is_some() || set.gid.is_some()) && state.inode.kind != FileKind::Directory)
        {
            self.drop_privileges(&cell, &mut state, set.drop_setgid)?;
        }
        if let Some(mode) = set.mode {
            state.inode.mode = mode & 0o7777;
            self.follow_mode(&state)?;
        }
        let moment = |t: SetTime| match t {
            SetTime::Now => stamp.unwrap_or_else(|| self.env.now()),
            SetTime::At(at) => at,
        };
        if let Some(atime) = set.atime {
            state.inode.atime = moment(atime);
        }
        if let Some(mtime) = set.mtime {
            state.inode.mtime = moment(mtime);
        }
        if let Some(btime) = set.btime {
            state.inode.btime = btime;
        }
        match set.ctime.or(stamp) {
            Some(ctime) => self.data.touch_inode(&cell, &mut state, ctime),
            None => self.data.note_change(&cell, &mut state),
        }
        Ok(state.inode.clone())
    }

    /// Takes set-id bits and file capabilities away, as a change of owner or an unprivileged write does. The
    /// set-group-id bit of a file its group may not execute goes only if `setgid` says so.
    fn drop_privileges(&self, cell: &Arc<Cell>, state: &mut State, setgid: bool) -> Result<()> {
        let mut gone = SET_UID;
        if setgid || state.inode.mode & GROUP_EXECUTE != 0 {
            gone |= SET_GID;
        }
        state.inode.mode &= !gone;
        if state.inode.has_xattrs && self.catalog.get().xattr(cell.no, CAPABILITY)?.is_some() {
            self.catalog
                .get()
                .apply(&[Change::remove_xattr(cell.no, CAPABILITY)])?;
        }
        state.row_dirty = true;
        self.data.mark_dirty(cell);
        Ok(())
    }

    /// Makes an access control list follow the mode.
    fn follow_mode(&self, state: &State) -> Result<()> {
        if !state.inode.has_xattrs {
            return Ok(());
        }
        let no = state.inode.no;
        let catalog = self.catalog.get();
        if let Some(value) = catalog.xattr(no, acl::ACCESS)?
            && let Some(mut list) = Acl::parse(&value)?
        {
            list.follow_mode(state.inode.mode);
            catalog.apply(&[Change::put_xattr(no, acl::ACCESS, &list.encode())])?;
        }
        Ok(())
    }

    /// Marks a read for the access time, where relatime lets it count.
    pub(crate) fn touch_atime(&self, no: InodeNo) {
        self.touch_atime_if(no, |i, now| {
            i.atime <= i.mtime
                || i.atime <= i.ctime
                || now.secs.saturating_sub(i.atime.secs) >= RELATIME_SECS
        });
    }

    /// Sets the access time where `counts` says so. Not a change that a sync waits for.
    pub(crate) fn touch_atime_if(&self, no: InodeNo, counts: impl Fn(&Inode, Timestamp) -> bool) {
        if self.env.options.read_only {
            return;
        }
        let Ok(cell) = self.data.cell(no) else { return };
        let now = self.env.now();
        if counts(&cell.state.read().inode, now) {
            let mut state = cell.state.write();
            state.inode.atime = now;
            state.row_dirty = true;
            self.data.mark_dirty(&cell);
        }
    }

    /// The value of an extended attribute.
    pub(crate) fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        if !self.data.cell(no)?.state.read().inode.has_xattrs {
            return Err(Error::NoXattr);
        }
        self.catalog.get().xattr(no, name)?.ok_or(Error::NoXattr)
    }

    /// The names of all extended attributes.
    pub(crate) fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        if !self.data.cell(no)?.state.read().inode.has_xattrs {
            return Ok(Vec::new());
        }
        Ok(self.catalog.get().xattr_names(no)?)
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        drop_setgid: bool,
    ) -> Result<()> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
            return Err(Error::InvalidArgument(
                "not a name of an extended attribute",
            ));
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::XattrTooLarge);
        }
        self.space.with_space(value.len() as u64 + BLOCK, || {
            let _change = self.commits.change()?;
            let cell = self.data.cell(no)?;
            let mut state = cell.state.write();
            if state.is_gone() {
                return Err(Error::NotFound);
            }
            flags::refuse_flagged(&state.inode)?;
            let exists = state.inode.has_xattrs && self.catalog.get().xattr(no, name)?.is_some();
            match mode {
                XattrMode::Create if exists => return Err(Error::Exists),
                XattrMode::Replace if !exists => return Err(Error::NoXattr),
                _ => {}
            }
            if !exists && state.inode.has_xattrs {
                let names = self.catalog.get().xattr_names(no)?;
                if names.iter().map(|n| n.len() + 1).sum::<usize>() + name.len() + 1
                    > XATTR_LIST_MAX
                {
                    return Err(Error::XattrTooLarge);
                }
            }
            let keep = match name {
                acl::ACCESS => self.set_access_list(&mut state, value, drop_setgid)?,
                acl::DEFAULT => {
                    if state.inode.kind != FileKind::Directory {
                        return Err(Error::NotPermitted(
                            "only a directory has a default access control list",
                        ));
                    }
                    Acl::parse(value)?.is_some()
                }
                _ => true,
            };
            if keep {
                self.catalog
                    .get()
                    .apply(&[Change::put_xattr(no, name, value)])?;
                state.inode.has_xattrs = true;
            } else if exists {
                self.catalog
                    .get()
                    .apply(&[Change::remove_xattr(no, name)])?;
            }
            self.data.touch_inode(&cell, &mut state, self.env.now());
            Ok(())
        })
    }

    /// Makes the mode follow an access list. False if the mode says all there is to say.
    fn set_access_list(&self, state: &mut State, value: &[u8], drop_setgid: bool) -> Result<bool> {
        if state.inode.kind == FileKind::Symlink {
            return Err(Error::NotSupported(
                "access control lists on symbolic links",
            ));
        }
        let Some(list) = Acl::parse(value)? else {
            return Ok(false);
        };
        state.inode.mode = state.inode.mode & !0o777 | list.mode();
        if drop_setgid {
            state.inode.mode &= !SET_GID;
        }
        Ok(!list.is_minimal())
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> {
        let _change = self.commits.change()?;
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        let catalog = self.catalog.get();
        flags::refuse_flagged(&state.inode)?;
        if state.is_gone() || !state.inode.has_xattrs || catalog.xattr(no, name)?.is_none() {
            return Err(Error::NoXattr);
        }
        catalog.apply(&[Change::remove_xattr(no, name)])?;
        state.inode.has_xattrs = !catalog.xattr_names(no)?.is_empty();
        self.data.touch_inode(&cell, &mut state, self.env.now());
        Ok(())
    }
}
