//! Giving a file what belongs to it besides its contents: owner, mode, times, extended attributes (ACLs among them).
//!
//! Invariant: set-id bits go with an owner that could not be kept, so that nothing runs as somebody it did not belong to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::tree::{Attrs, Fault, Meta, Source, Tree};

use super::place::MARK;

type Result<T> = std::result::Result<T, Fault>;

/// What a target did not take of what it was given.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Files whose owner or group this user may not set.
    pub(crate) owners_lost: u64,
    /// Names of extended attributes, and of how many files.
    pub(crate) xattrs_lost: BTreeMap<OsString, u64>,
}

/// All of it, from the file it is copied from.
pub(crate) fn attributes(
    from: &dyn Source,
    from_path: &Path,
    meta: &Meta,
    to: &dyn Tree,
    path: &Path,
    kept: &mut Kept,
) -> Result<()> {
    owner_and_xattrs(from, from_path, meta, to, path, kept)?;
    times(meta, to, path)?;
    mode(meta, to, path, kept)
}

/// What takes set-id bits away, and what a file that must not be written to any more could not be given.
pub(crate) fn owner_and_xattrs(
    from: &dyn Source,
    from_path: &Path,
    meta: &Meta,
    to: &dyn Tree,
    path: &Path,
    kept: &mut Kept,
) -> Result<()> {
    let xattrs = from.xattrs(from_path)?;
    owner(meta, to, path, kept)?;
    for (name, value) in xattrs.iter().filter(|(name, _)| name != MARK) {
        set_xattr(to, path, name, value, kept)?;
    }
    Ok(())
}

/// The owner, where this user may set it.
pub(crate) fn owner(meta: &Meta, to: &dyn Tree, path: &Path, kept: &mut Kept) -> Result<()> {
    let owner = Attrs {
        owner: Some((meta.uid, meta.gid)),
        ..Attrs::default()
    };
    match to.set_attrs(path, &owner) {
        Ok(()) => Ok(()),
        Err(fault) if fault.is_not_allowed() => {
            kept.owners_lost += 1;
            Ok(())
        }
        Err(fault) => Err(fault),
    }
}

/// An extended attribute, where the target takes it.
pub(crate) fn set_xattr(
    to: &dyn Tree,
    path: &Path,
    name: &OsString,
    value: &[u8],
    kept: &mut Kept,
) -> Result<()> {
    match to.set_xattr(path, name, value) {
        Err(fault) if fault.is_not_allowed() => {
            tracing::info!("{}: {} not kept: {fault}", path.display(), name.display());
            *kept.xattrs_lost.entry(name.clone()).or_default() += 1;
            Ok(())
        }
        done => done,
    }
}

/// Access and modification time.
pub(crate) fn times(meta: &Meta, to: &dyn Tree, path: &Path) -> Result<()> {
    let times = Attrs {
        times: Some((meta.atime, meta.mtime)),
        ..Attrs::default()
    };
    to.set_attrs(path, &times)
}

/// The mode, without what the owner it has now must not be given.
pub(crate) fn mode(meta: &Meta, to: &dyn Tree, path: &Path, kept: &Kept) -> Result<()> {
    let mut mode = meta.mode;
    if kept.owners_lost > 0 && mode & 0o6000 != 0 {
        let own = to.stat(path, false)?;
        mode = allowed_mode(meta, &own);
    }
    to.set_attrs(
        path,
        &Attrs {
            mode: Some(mode),
            ..Attrs::default()
        },
    )
}

/// As an ordinary user copies: the file is his now, and must not run as somebody it did not belong to.
pub(crate) fn allowed_mode(meta: &Meta, own: &Meta) -> u16 {
    if own.uid != meta.uid {
        meta.mode & !0o6000
    } else if own.gid != meta.gid {
        meta.mode & !0o2000
    } else {
        meta.mode
    }
}

/// What a file that was there already lacks: a run before this one ended before it was given.
pub(crate) fn missing(
    from: &dyn Source,
    from_path: &Path,
    meta: &Meta,
    to: &dyn Tree,
    path: &Path,
    kept: &mut Kept,
) -> Result<()> {
    let there = to.stat(path, false)?;
    let owned = (there.uid, there.gid) == (meta.uid, meta.gid);
    let mut wanted = from.xattrs(from_path)?;
    wanted.retain(|(name, _)| name != MARK);
    let mut found = to.xattrs(path)?;
    wanted.sort_unstable();
    found.sort_unstable();
    if owned && there.mode == meta.mode && wanted == found && there.mtime == meta.mtime {
        return Ok(());
    }
    attributes(from, from_path, meta, to, path, kept)
}
