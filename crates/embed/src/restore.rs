//! Putting back what was in a snapshot.
//!
//! 1. The copy is complete under another name before anything is replaced; a copy that fails is removed.
//! 2. It takes the place of what is there in one step, and only then is that removed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use room::{
    Error as RoomError, FileFlags, FileKind, FileSystem, Inode, InodeNo, NewFile, RenameMode, Room,
    SetAttr, SetTime, Snapshots as _, XattrMode,
};

use crate::{Error, Result};

/// Names asked for at once.
const PAGE: usize = 1024;
/// How many names are tried for the copy.
const TRIES: u32 = 1000;

/// What was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Files of any kind, directories among them.
    pub files: u64,
    /// Bytes of their contents; shared with the snapshot, and so not stored again.
    pub bytes: u64,
}

/// Where a name is.
type Place = (InodeNo, Vec<u8>);

/// Puts `path` of the snapshot of this number at `to`.
pub(crate) fn restore(room: &Room, snapshot: u64, path: &Path, to: &Path) -> Result<Restored> {
    // Walked, it would be the root, and the whole room would be replaced.
    if path.as_os_str().is_empty() || to.as_os_str().is_empty() {
        return Err(RoomError::NotFound.into());
    }
    let past = room.snapshot_of_number(snapshot)?;
    let from = room::resolve(&*past, path, false)?;
    let mut copy = Copy {
        room,
        past: &*past,
        snapshot,
        links: HashMap::new(),
        flags: Vec::new(),
        done: Restored::default(),
    };
    let is_root = |path: &Path| path.components().all(|part| part.as_os_str() == "/");
    if is_root(to) {
        if from.kind != FileKind::Directory {
            return Err(RoomError::NotDirectory.into());
        }
        copy.whole(&from)?;
    } else {
        let missing = make_missing_above(room, to)?;
        if let Err(error) = copy.one(&from, to) {
            // They are empty again.
            for above in &missing {
                if let Ok((parent, name)) = room.resolve_parent(above) {
                    let _ = room.rmdir(parent, name);
                }
            }
            return Err(error);
        }
        // Last: their times change with each name in them.
        for above in missing.iter().filter(|_| path == to) {
            let from = room::resolve(&*past, above, true)?;
            let to = room::resolve(room, above, true)?;
            copy.attributes(&from, to.no)?;
        }
    }
    for (no, flags) in &copy.flags {
        let set = SetAttr {
            flags: Some(*flags),
            ..SetAttr::default()
        };
        room.set_attributes(*no, &set)?;
    }
    room.sync()?;
    Ok(copy.done)
}

struct Copy<'a> {
    room: &'a Room,
    past: &'a dyn FileSystem,
    /// Its number.
    snapshot: u64,
    /// The copies of files with several names.
    links: HashMap<InodeNo, InodeNo>,
    /// What is given last: it keeps files from being changed and renamed.
    flags: Vec<(InodeNo, FileFlags)>,
    done: Restored,
}

impl Copy<'_> {
    fn one(&mut self, from: &Inode, to: &Path) -> Result<()> {
        let room = self.room;
        let (parent, name) = room.resolve_parent(to)?;
        let beside = self.beside(parent)?;
        let copied = self
            .tree(from, (parent, beside.clone()))
            .and_then(|()| replace(room, (parent, &beside), (parent, name)));
        let replaced = match copied {
            Ok(replaced) => replaced,
            Err(error) => return Err(self.discarded((parent, beside), error)),
        };
        match replaced {
            true => Ok(remove(room, (parent, beside))?),
            false => Ok(()),
        }
    }

    /// All names of the root change places in one transaction.
    fn whole(&mut self, from: &Inode) -> Result<()> {
        let room = self.room;
        let beside = self.beside(InodeNo::ROOT)?;
        let stage = room
            .make(
                InodeNo::ROOT,
                &beside,
                &NewFile::of_kind(FileKind::Directory),
            )?
            .no;
        let copied = self.entries(from.no, stage).and_then(|()| room.begin());
        if let Err(error) = copied {
            return Err(self.discarded((InodeNo::ROOT, beside), error));
        }
        let swapped = self.swap_all(stage, &beside).and_then(|()| {
            self.take_xattrs(InodeNo::ROOT)?;
            self.attributes(from, InodeNo::ROOT)
        });
        // There is no way back: what was changed becomes durable, and is right in parts.
        room.complete()?;
        swapped?;
        self.done.files += 1;
        Ok(remove(room, (InodeNo::ROOT, beside))?)
    }

    fn swap_all(&self, stage: InodeNo, beside: &[u8]) -> room::Result<()> {
        let root = InodeNo::ROOT;
        let then = names(self.room, stage)?;
        let now = names(self.room, root)?;
        for name in then.iter().filter(|name| *name != beside) {
            replace(self.room, (stage, name), (root, name))?;
        }
        for name in now
            .iter()
            .filter(|name| *name != beside && !then.contains(name))
        {
            let mode = RenameMode::NoReplace;
            self.room.rename(root, name, stage, name, mode)?;
        }
        Ok(())
    }

    /// A file or directory with all that is below it.
    fn tree(&mut self, from: &Inode, to: Place) -> room::Result<()> {
        let made = self.alone(from, &to)?;
        let Some(made) = made else {
            return Ok(());
        };
        if from.kind == FileKind::Directory {
            self.entries(from.no, made)?;
        }
        self.attributes(from, made)
    }

    /// What is in a directory. No recursion: the room decides how deep it would go.
    fn entries(&mut self, from: InodeNo, to: InodeNo) -> room::Result<()> {
        let mut directories: Vec<(Inode, InodeNo)> = Vec::new();
        let mut left = vec![(from, to)];
        while let Some((from, to)) = left.pop() {
            for (name, inode) in list(self.past, from)? {
                let Some(made) = self.alone(&inode, &(to, name))? else {
                    continue;
                };
                if inode.kind == FileKind::Directory {
                    left.push((inode.no, made));
                    directories.push((inode, made));
                } else {
                    self.attributes(&inode, made)?;
                }
            }
        }
        // Their times change with each name in them.
        for (inode, made) in directories.iter().rev() {
            self.attributes(inode, *made)?;
        }
        Ok(())
    }

    /// The file with its contents, or an empty directory. `None`: it is another name of a file that was copied.
    fn alone(&mut self, from: &Inode, (parent, name): &Place) -> room::Result<Option<InodeNo>> {
        self.done.files += 1;
        let has_names = from.kind != FileKind::Directory && from.nlink > 1;
        if let Some(made) = self.links.get(&from.no).filter(|_| has_names) {
            self.room.link(*made, *parent, name)?;
            return Ok(None);
        }
        let new = NewFile {
            kind: from.kind,
            mode: from.mode,
            umask: 0,
            uid: from.uid,
            gid: from.gid,
            rdev: from.rdev,
            target: from.target.clone(),
        };
        let made = self.room.make(*parent, name, &new)?.no;
        if from.kind == FileKind::Regular {
            // By number: the snapshot may get another name meanwhile.
            self.room
                .share_from_snapshot(self.snapshot, from.no, made, 0, from.size)?;
            self.done.bytes += from.size;
        }
        if has_names {
            self.links.insert(from.no, made);
        }
        Ok(Some(made))
    }

    fn attributes(&mut self, from: &Inode, to: InodeNo) -> room::Result<()> {
        let set = |set: SetAttr| self.room.set_attributes(to, &set);
        set(SetAttr {
            uid: Some(from.uid),
            gid: Some(from.gid),
            ..SetAttr::default()
        })?;
        // A new file may have got access lists from its directory.
        if from.kind != FileKind::Symlink {
            self.take_xattrs(to)?;
        }
        if from.has_xattrs {
            for name in self.past.xattr_names(from.no)? {
                let value = self.past.xattr(from.no, &name)?;
                self.room
                    .set_xattr(to, &name, &value, XattrMode::Any, false)?;
            }
        }
        set(SetAttr {
            mode: Some(from.mode).filter(|_| from.kind != FileKind::Symlink),
            atime: Some(SetTime::At(from.atime)),
            mtime: Some(SetTime::At(from.mtime)),
            ..SetAttr::default()
        })?;
        if from.flags != FileFlags::default() {
            self.flags.push((to, from.flags));
        }
        Ok(())
    }

    fn take_xattrs(&self, no: InodeNo) -> room::Result<()> {
        for name in self.room.xattr_names(no)? {
            self.room.remove_xattr(no, &name)?;
        }
        Ok(())
    }

    /// A name in a directory that is free.
    fn beside(&self, parent: InodeNo) -> Result<Vec<u8>> {
        for number in 0..TRIES {
            let name = format!(".strongroom-restore-{number}").into_bytes();
            match self.room.lookup(parent, &name) {
                Err(RoomError::NotFound) => return Ok(name),
                Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(RoomError::Exists.into())
    }

    /// Removes what was copied in vain.
    fn discarded(&self, place: Place, error: RoomError) -> Error {
        if let Err(also) = remove(self.room, place) {
            tracing::info!("an incomplete copy could not be removed: {also}");
        }
        error.into()
    }
}

/// Creates the directories above a path that are missing. Returns their paths, the lowest first.
fn make_missing_above(room: &Room, to: &Path) -> Result<Vec<PathBuf>> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for above in to.ancestors().skip(1) {
        match room::resolve(room, above, true) {
            Ok(_) => break,
            Err(RoomError::NotFound) => missing.push(above.to_owned()),
            Err(e) => return Err(e.into()),
        }
    }
    for above in missing.iter().rev() {
        room.make_dir(above, false)?;
    }
    Ok(missing)
}

/// Puts the first in the place of the second; true: that was there, and is in the first's place now.
fn replace(room: &Room, from: (InodeNo, &[u8]), to: (InodeNo, &[u8])) -> room::Result<bool> {
    let is_there = match room.lookup(to.0, to.1) {
        Ok(_) => true,
        Err(RoomError::NotFound) => false,
        Err(e) => return Err(e),
    };
    let mode = match is_there {
        true => RenameMode::Exchange,
        false => RenameMode::NoReplace,
    };
    room.rename(from.0, from.1, to.0, to.1, mode)?;
    Ok(is_there)
}

/// Removes a file, or a directory with all that is in it. There already is nothing: nothing to do.
fn remove(room: &Room, place: Place) -> room::Result<()> {
    // Each directory comes twice: to be listed, and to be removed when what is in it was.
    let mut left = vec![(place, false)];
    while let Some(((parent, name), is_empty)) = left.pop() {
        let inode = match room.lookup(parent, &name) {
            Err(RoomError::NotFound) => continue,
            other => other?,
        };
        let set_flags = |flags: FileFlags| {
            let set = SetAttr {
                flags: Some(flags),
                ..SetAttr::default()
            };
            room.set_attributes(inode.no, &set)
        };
        let is_flagged = inode.flags != FileFlags::default();
        if is_flagged {
            set_flags(FileFlags::default())?;
        }
        match (inode.kind, is_empty) {
            (FileKind::Directory, true) => room.rmdir(parent, &name)?,
            (FileKind::Directory, false) => {
                left.push(((parent, name), true));
                let below = names(room, inode.no)?;
                left.extend(below.into_iter().map(|name| ((inode.no, name), false)));
            }
            _ => {
                room.unlink(parent, &name)?;
                // What has other names stays there, as it is.
                if is_flagged && inode.nlink > 1 {
                    set_flags(inode.flags)?;
                }
            }
        }
    }
    Ok(())
}

fn names(files: &dyn FileSystem, no: InodeNo) -> room::Result<Vec<Vec<u8>>> {
    let all = list(files, no)?;
    Ok(all.into_iter().map(|(name, _)| name).collect())
}

/// All names of a directory.
pub(crate) fn list(files: &dyn FileSystem, no: InodeNo) -> room::Result<Vec<(Vec<u8>, Inode)>> {
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
