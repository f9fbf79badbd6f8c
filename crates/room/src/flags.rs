//! Append-only and immutable files: what each refuses, as ext4 and btrfs do.
//!
//! 1. An immutable file refuses every change of its contents, names, attributes and extended attributes; an immutable
//!    directory also every change of the names in it.
//! 2. An append-only file refuses the same, but contents may be added at its end, and its times may become the present
//!    moment. An append-only directory takes new names, and gives none up.
//! 3. The flags themselves can always be changed: the mount checks the permission.
//! 4. The kernel writes back whole pages, in any order, and does not say which of their bytes are new. So a write to an
//!    append-only file is taken byte by byte: what was stored when the file was first written since the room was opened
//!    stays, and after that every byte that is not zero. Bytes that are not stored yet read as zeros, so no order of
//!    appended pages is refused.

use catalog::Inode;

use crate::{Error, Result, SetAttr, SetTime};

const IMMUTABLE: Error = Error::NotPermitted("the file is immutable");
const APPEND_ONLY: Error = Error::NotPermitted("the file is append-only");

/// Refuses where nothing may change.
pub(crate) fn refuse_immutable(inode: &Inode) -> Result<()> {
    match inode.flags.immutable() {
        true => Err(IMMUTABLE),
        false => Ok(()),
    }
}

/// Refuses where nothing, or nothing but the end, may change.
pub(crate) fn refuse_flagged(inode: &Inode) -> Result<()> {
    refuse_immutable(inode)?;
    match inode.flags.append_only() {
        true => Err(APPEND_ONLY),
        false => Ok(()),
    }
}

/// Refuses a change of attributes that the flags forbid.
pub(crate) fn check_attributes(inode: &Inode, set: &SetAttr) -> Result<()> {
    if inode.flags.is_empty() {
        return Ok(());
    }
    let times = set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some();
    let others = set.mode.is_some()
        || set.uid.is_some()
        || set.gid.is_some()
        || set.size.is_some()
        || set.btime.is_some();
    if times || others || set.drop_privileges {
        refuse_immutable(inode)?;
    }
    // The kernel hands over the moment of a write as the time of both changes, and that of touch(1) too.
    let is_now = |time: &SetTime| match time {
        SetTime::Now => true,
        SetTime::At(at) => set.ctime == Some(*at),
    };
    let past = set.atime.iter().chain(&set.mtime).any(|t| !is_now(t));
    match others || past {
        true => refuse_flagged(inode),
        false => Ok(()),
    }
}

pub(crate) fn append_refused() -> Error {
    APPEND_ONLY
}
