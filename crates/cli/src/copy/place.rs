//! What becomes of a file that is there already; and how a copy that was killed is known from a whole file.
//!
//! 1. A regular file under way carries the attribute [`MARK`] from before its first byte. It is removed after contents, owner,
//!    attributes and times: what has the size and time of its source and no mark is whole.
//! 2. Only what carries the mark, or is asked to be replaced, is ever replaced. The state of a copy is in the room alone, so that
//!    starting the same copy again goes on with it, and nothing is left when it ends.
//! 3. A file that is replaced is replaced whole: the new one is written beside it and renamed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use room::FileKind;

use super::digest;
use super::give::{self, Kept};
use crate::output::shown_path;
use crate::tree::{Fault, Meta, Source, Tree};

/// The attribute of a file that is not whole yet.
pub(crate) const MARK: &str = "user.strongroom.import";
/// What a file is called that is going to replace another of its directory.
const BESIDE: &str = ".strongroom-import";

type Result<T> = std::result::Result<T, Fault>;

/// What becomes of files that exist at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// They are replaced.
    Replace,
    /// They are left alone.
    Leave,
    /// What an earlier run of the same copy left is kept if whole, and made again if not. Anything else is left alone and
    /// reported, unless it may be replaced: then what differs in size, time or contents is.
    GoOn {
        /// Replace what is different.
        overwrite: bool,
    },
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Leave it alone.
    Leave,
    /// It is there, whole.
    Present,
    /// Make it; nothing is there.
    Make,
    /// Make it beside what is there, which it then replaces.
    Replace,
}

impl Existing {
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, Existing::GoOn { .. })
    }

    /// What to do where `there` is. `same`: whether it is the file to be copied.
    pub(crate) fn step(
        self,
        to: &dyn Tree,
        path: &Path,
        there: &Meta,
        same: impl FnOnce() -> Result<bool>,
    ) -> Result<Step> {
        if there.kind == FileKind::Directory {
            return Err(Fault::Refused(format!(
                "{} is a directory",
                shown_path(path)
            )));
        }
        let Existing::GoOn { overwrite } = self else {
            return Ok(if self == Existing::Leave {
                Step::Leave
            } else {
                Step::Replace
            });
        };
        if is_marked(to, path, there)? {
            to.remove_file(path)?;
            return Ok(Step::Make);
        }
        if same()? {
            return Ok(Step::Present);
        }
        clear_beside(to, path)?;
        if overwrite {
            return Ok(Step::Replace);
        }
        Err(Fault::Refused(format!(
            "{} is there already and differs; nothing was changed (--overwrite replaces it)",
            shown_path(path)
        )))
    }

    /// A name beside another, for what replaces it.
    pub(crate) fn beside(self, to: &dyn Tree, path: &Path) -> Result<PathBuf> {
        if self.goes_on() {
            clear_beside(to, path)?;
            return Ok(path.with_file_name(BESIDE));
        }
        let mut name = OsString::from(".strongroom-");
        name.push(std::process::id().to_string());
        name.push("-");
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.subsec_nanos());
        name.push(nanos.to_string());
        Ok(path.with_file_name(name))
    }
}

/// Removes what a killed run was about to put in the place of a file. A file of somebody's own with that name is left alone, and
/// then is in the way.
fn clear_beside(to: &dyn Tree, path: &Path) -> Result<()> {
    let beside = path.with_file_name(BESIDE);
    match to.stat(&beside, false) {
        Ok(there) if is_marked(to, &beside, &there)? => to.remove_file(&beside),
        Ok(_) => Ok(()),
        Err(fault) if fault.is_not_found() => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Marks a file as not whole yet.
pub(crate) fn mark(to: &dyn Tree, path: &Path) -> Result<()> {
    to.set_xattr(path, &MARK.into(), b"unfinished")
}

fn is_marked(to: &dyn Tree, path: &Path, meta: &Meta) -> Result<bool> {
    Ok(meta.kind == FileKind::Regular && to.xattrs(path)?.iter().any(|(name, _)| name == MARK))
}

/// Ends a marked file that has all but its times and mode. In this order: until the mark is gone it is made again; after, it has
/// its time; and the mode comes last, since it can forbid taking the mark away.
pub(crate) fn finish(to: &dyn Tree, path: &Path, meta: &Meta, kept: &Kept) -> Result<()> {
    give::times(meta, to, path)?;
    to.remove_xattr(path, &MARK.into())?;
    give::mode(meta, to, path, kept)
}

/// Whether what is there is what would be copied: by size and time, as a whole file has them; by contents too where it would
/// otherwise be replaced.
pub(crate) fn is_same(
    from: &dyn Source,
    from_path: &Path,
    meta: &Meta,
    to: &dyn Tree,
    path: &Path,
    there: &Meta,
    existing: Existing,
) -> Result<bool> {
    if there.kind != meta.kind {
        return Ok(false);
    }
    Ok(match meta.kind {
        FileKind::Regular => {
            (there.size, there.mtime) == (meta.size, meta.mtime)
                && (existing == Existing::GoOn { overwrite: false }
                    || digest::of(&*from.open(from_path)?, meta.size)?
                        == digest::of(&*to.open(path)?, there.size)?)
        }
        FileKind::Symlink => from.read_link(from_path)? == to.read_link(path)?,
        _ => there.rdev == meta.rdev,
    })
}
