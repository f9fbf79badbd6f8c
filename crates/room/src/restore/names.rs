//! Names: free ones, those that change places, and those that go.

use std::collections::BTreeSet;

use model::{Error, FileFlags, FileKind, FileSystem, Inode, InodeNo, RenameMode, Result, SetAttr};

use super::Place;
use crate::room::Room;

/// Names asked for at once.
const PAGE: usize = 1024;
/// How many names are tried for a copy.
const TRIES: u32 = 1000;
/// How often a directory is emptied: others may still put names into it.
const EMPTIED_MAX: u32 = 16;

/// Calls what it is given, which removes a name of this inode, as it was before, from this directory.
pub type Removing<'a> = &'a dyn Fn(&Inode, InodeNo, &dyn Fn() -> Result<()>) -> Result<()>;

/// All names of a directory.
pub fn list(files: &dyn FileSystem, no: InodeNo) -> Result<Vec<(Vec<u8>, Inode)>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = files.read_dir(no, after, PAGE)?;
        let Some((last, _)) = page.last() else {
            return Ok(all);
        };
        after = last.cookie;
        all.extend(page.into_iter().map(|(entry, inode)| (entry.name, inode)));
    }
}

fn names(all: Vec<(Vec<u8>, Inode)>) -> BTreeSet<Vec<u8>> {
    all.into_iter().map(|(name, _)| name).collect()
}

/// A name in a directory that is free.
pub(super) fn beside(room: &Room, parent: InodeNo) -> Result<Vec<u8>> {
    for number in 0..TRIES {
        let name = format!(".strongroom-restore-{number}").into_bytes();
        match room.lookup(parent, &name) {
            Err(Error::NotFound) => return Ok(name),
            Ok(_) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::Exists)
}

/// Puts the first in the place of the second. Returns what was there, which is in the first's place now.
pub(super) fn swap_one(
    room: &Room,
    (parent, name): &Place,
    to: (InodeNo, &[u8]),
    replaces: bool,
) -> Result<Vec<Inode>> {
    let there = match room.lookup(to.0, to.1) {
        Ok(there) if replaces => vec![there],
        Ok(_) => return Err(Error::Exists),
        Err(Error::NotFound) => Vec::new(),
        Err(e) => return Err(e),
    };
    let mode = match there.is_empty() {
        true => RenameMode::NoReplace,
        false => RenameMode::Exchange,
    };
    room.rename(*parent, name, to.0, to.1, mode)?;
    Ok(there)
}

/// All names of the root, but the stage's own, change places with those of the stage. After an error all are where they were.
pub(super) fn swap_all(room: &Room, place: &Place, stage: InodeNo) -> Result<Vec<Inode>> {
    let root = InodeNo::ROOT;
    let mut now = list(room, root)?;
    now.retain(|(name, _)| *name != place.1);
    let (then, here) = (names(list(room, stage)?), names(now.clone()));
    let mut moves = Vec::new();
    for name in &then {
        let mode = match here.contains(name) {
            true => RenameMode::Exchange,
            false => RenameMode::NoReplace,
        };
        moves.push(((stage, name), (root, name), mode));
    }
    for name in here.difference(&then) {
        moves.push(((root, name), (stage, name), RenameMode::NoReplace));
    }
    for (at, (from, to, mode)) in moves.iter().enumerate() {
        if let Err(error) = room.rename(from.0, from.1, to.0, to.1, *mode) {
            for (from, to, mode) in moves[..at].iter().rev() {
                room.rename(to.0, to.1, from.0, from.1, *mode)?;
            }
            return Err(error);
        }
    }
    Ok(now.into_iter().map(|(_, inode)| inode).collect())
}

pub(super) fn set_flags(room: &Room, flags: &[(InodeNo, FileFlags)]) -> Result<()> {
    for (no, flags) in flags {
        let set = SetAttr {
            flags: Some(*flags),
            ..SetAttr::default()
        };
        room.set_attributes(*no, &set)?;
    }
    Ok(())
}

/// Removes a file, or a directory with all that is in it. Where the name leads to another inode by now, that stays.
pub(super) fn remove(room: &Room, place: Place, no: InodeNo, removing: Removing<'_>) -> Result<()> {
    // Each directory comes once to be listed, and again to be removed when what was in it is.
    let mut left = vec![(place, no, 0)];
    while let Some(((parent, name), no, emptied)) = left.pop() {
        let is_there = || {
            room.lookup(parent, &name)
                .ok()
                .filter(|inode| inode.no == no)
        };
        let Some(inode) = is_there() else {
            continue;
        };
        let is_flagged = inode.flags != FileFlags::default();
        if is_flagged {
            set_flags(room, &[(no, FileFlags::default())])?;
        }
        if inode.kind != FileKind::Directory {
            let removed = removing(&inode, parent, &|| match is_there() {
                Some(_) => room.unlink(parent, &name),
                None => Ok(()),
            });
            // What still has a name, this one or another, stays there as it is.
            let stays = || room.attributes(no).is_ok_and(|inode| inode.nlink > 0);
            let kept = match is_flagged && stays() {
                true => set_flags(room, &[(no, inode.flags)]),
                false => Ok(()),
            };
            removed.and(kept)?;
            continue;
        }
        if emptied > 0 {
            let removed = removing(&inode, parent, &|| match is_there() {
                Some(_) => room.rmdir(parent, &name),
                None => Ok(()),
            });
            match removed {
                Err(Error::NotEmpty) if emptied < EMPTIED_MAX => {}
                removed => {
                    removed?;
                    continue;
                }
            }
        }
        left.push(((parent, name), no, emptied + 1));
        let below = list(room, no)?.into_iter();
        left.extend(below.map(|(name, inode)| ((no, name), inode.no, 0)));
    }
    Ok(())
}
