//! Names: free ones, those that change places, and those that go.

use std::cell::RefCell;
use std::collections::BTreeMap;

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

/// What has a name, if anything has.
fn number(room: &Room, parent: InodeNo, name: &[u8]) -> Result<Option<InodeNo>> {
    match room.lookup(parent, name) {
        Ok(inode) => Ok(Some(inode.no)),
        Err(Error::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
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

/// A name of the root that changed places with the same name of the stage.
#[derive(Debug)]
pub(super) struct Moved {
    name: Vec<u8>,
    /// The part of the copy that has it in the root now.
    copy: Option<InodeNo>,
}

/// All names of the root, but the stage's own, change places with those of the stage. After an error all are where they were, but for
/// those that are left in `moved`: see [`go_back`].
pub(super) fn swap_all(
    room: &Room,
    place: &Place,
    stage: InodeNo,
    moved: &RefCell<Vec<Moved>>,
) -> Result<Vec<Inode>> {
    let root = InodeNo::ROOT;
    let mut now: BTreeMap<_, _> = list(room, root)?.into_iter().collect();
    now.remove(&place.1);
    let then: BTreeMap<_, _> = list(room, stage)?.into_iter().collect();
    let goes = now.keys().filter(|name| !then.contains_key(*name));
    for name in then.keys().chain(goes) {
        let (from, to, mode) = match (then.contains_key(name), now.contains_key(name)) {
            (true, true) => (stage, root, RenameMode::Exchange),
            (true, false) => (stage, root, RenameMode::NoReplace),
            (false, _) => (root, stage, RenameMode::NoReplace),
        };
        if let Err(error) = room.rename(from, name, to, name, mode) {
            if let Err(e) = go_back(room, stage, moved) {
                tracing::warn!("names that changed places are not back yet: {e}");
            }
            return Err(error);
        }
        moved.borrow_mut().push(Moved {
            name: name.clone(),
            copy: then.get(name).map(|inode| inode.no),
        });
    }
    moved.borrow_mut().clear();
    Ok(now.into_values().collect())
}

/// Moves names back, each whatever becomes of the others. Those that fail are left in `moved`.
pub(super) fn go_back(room: &Room, stage: InodeNo, moved: &RefCell<Vec<Moved>>) -> Result<()> {
    let mut outcome = Ok(());
    moved.borrow_mut().retain(|moved| {
        let back = move_back(room, stage, moved);
        let failed = back.is_err();
        if outcome.is_ok() {
            outcome = back;
        }
        failed
    });
    outcome
}

/// Others may have changed what is there since, and nothing of theirs may be taken for the copy.
fn move_back(room: &Room, stage: InodeNo, Moved { name, copy }: &Moved) -> Result<()> {
    let root = InodeNo::ROOT;
    let (here, there) = (number(room, root, name)?, number(room, stage, name)?);
    let is_copy = |no: Option<InodeNo>| no.is_some() && no == *copy;
    match (here, there) {
        (None, Some(_)) if !is_copy(there) => {
            room.rename(stage, name, root, name, RenameMode::NoReplace)
        }
        (Some(_), Some(_)) if is_copy(here) => {
            room.rename(stage, name, root, name, RenameMode::Exchange)
        }
        (Some(_), Some(_)) if !is_copy(there) => Err(Error::Exists),
        (Some(_), None) if is_copy(here) => {
            room.rename(root, name, stage, name, RenameMode::NoReplace)
        }
        _ => Ok(()),
    }
}

pub(super) fn set_flags(room: &Room, flags: &[(InodeNo, FileFlags)]) -> Result<()> {
    for (no, flags) in flags {
        room.set_attributes(*no, &SetAttr::flags(*flags))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::room_in;

    /// Every way in which others may have changed names that were moved.
    #[test]
    fn names_go_back_and_nothing_of_others_is_taken_for_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        let root = InodeNo::ROOT;
        room.make_dir("/stage", false).unwrap();
        let stage = room.lookup(root, b"stage").unwrap().no;
        let text = |path: &str| {
            let found = room.read_file(path);
            found.map_or_else(|_| String::new(), |text| String::from_utf8(text).unwrap())
        };
        let both = ["stays", "removed", "replaced"];
        for name in both {
            room.write_file(format!("/{name}"), b"now").unwrap();
            room.write_file(format!("/stage/{name}"), b"then").unwrap();
        }
        for name in ["only-now", "only-now-made-again"] {
            room.write_file(format!("/{name}"), b"now").unwrap();
        }
        for name in ["only-then", "only-then-removed"] {
            room.write_file(format!("/stage/{name}"), b"then").unwrap();
        }
        let moved = RefCell::default();
        let copies = list(&room, stage).unwrap();
        let place = (root, b"stage".to_vec());
        swap_all(&room, &place, stage, &moved).unwrap();
        assert_eq!(
            (text("/stays"), text("/only-now")),
            ("then".into(), String::new())
        );
        let copy = |name: &[u8]| copies.iter().find(|(n, _)| n == name).map(|(_, i)| i.no);
        let now = list(&room, root)
            .unwrap()
            .into_iter()
            .chain(list(&room, stage).unwrap());
        let names: std::collections::BTreeSet<_> = now.map(|(name, _)| name).collect();
        let swapped = names.into_iter().filter(|name| name != b"stage");
        moved.replace(
            swapped
                .map(|name| Moved {
                    copy: copy(&name),
                    name,
                })
                .collect(),
        );
        // What others do meanwhile.
        room.unlink(root, b"removed").unwrap();
        room.unlink(root, b"replaced").unwrap();
        room.write_file("/replaced", b"other").unwrap();
        room.write_file("/only-now-made-again", b"other").unwrap();
        room.unlink(root, b"only-then-removed").unwrap();

        let back = go_back(&room, stage, &moved);
        assert!(matches!(back, Err(Error::Exists)), "{back:?}");
        let found = |name: &str| (text(&format!("/{name}")), text(&format!("/stage/{name}")));
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(found("stays"), pair("now", "then"));
        assert_eq!(found("removed"), pair("now", ""));
        assert_eq!(found("replaced"), pair("other", "now"));
        assert_eq!(found("only-now"), pair("now", ""));
        assert_eq!(found("only-now-made-again"), pair("other", "now"));
        assert_eq!(found("only-then"), pair("", "then"));
        assert_eq!(found("only-then-removed"), pair("", ""));
        // Once more, when they are out of the way.
        let left: Vec<_> = moved.borrow().iter().map(|m| m.name.clone()).collect();
        assert_eq!(
            left,
            [b"only-now-made-again".to_vec(), b"replaced".to_vec()]
        );
        for name in left {
            room.unlink(root, &name).unwrap();
        }
        go_back(&room, stage, &moved).unwrap();
        assert_eq!(found("replaced"), pair("now", ""));
        assert_eq!(found("only-now-made-again"), pair("now", ""));
        assert!(moved.borrow().is_empty());
    }
}
