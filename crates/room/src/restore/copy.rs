//! Copying a tree out of a snapshot, by numbers of inodes.

use std::collections::HashMap;

use model::{
    Error, FileFlags, FileKind, FileSystem, Inode, InodeNo, NewFile, Result, SetAttr, SetTime,
    Snapshots as _, XattrMode,
};

use super::{Flags, GoOn, Place, Restored, list, private};
use crate::room::Room;

/// Bytes shared between two looks whether to go on: whole chunks.
const PIECE: u64 = 1 << 30;

pub(super) struct Copy<'a> {
    room: &'a Room,
    past: &'a dyn FileSystem,
    /// Its number.
    snapshot: u64,
    go_on: GoOn<'a>,
    /// The copies of files with several names.
    links: HashMap<InodeNo, InodeNo>,
    pub(super) flags: Flags,
    pub(super) done: Restored,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        room: &'a Room,
        past: &'a dyn FileSystem,
        snapshot: u64,
        go_on: GoOn<'a>,
    ) -> Self {
        Self {
            room,
            past,
            snapshot,
            go_on,
            links: HashMap::new(),
            flags: Vec::new(),
            done: Restored::default(),
        }
    }

    /// Fills a new file: with its contents, or with all that is below it. Its own attributes stay what they are.
    pub(super) fn below(&mut self, from: &Inode, made: InodeNo) -> Result<()> {
        self.counted()?;
        match from.kind {
            FileKind::Regular => self.contents(from, made),
            FileKind::Directory => self.entries(from.no, made),
            _ => Ok(()),
        }
    }

    /// What is in a directory. No recursion: the room decides how deep it would go.
    fn entries(&mut self, from: InodeNo, to: InodeNo) -> Result<()> {
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
    fn alone(&mut self, from: &Inode, (parent, name): &Place) -> Result<Option<InodeNo>> {
        self.counted()?;
        let has_names = from.kind != FileKind::Directory && from.nlink > 1;
        if let Some(made) = self.links.get(&from.no).filter(|_| has_names) {
            self.room.link(*made, *parent, name)?;
            return Ok(None);
        }
        let new = NewFile {
            rdev: from.rdev,
            target: from.target.clone(),
            ..private(from.kind)
        };
        let made = self.room.make(*parent, name, &new)?.no;
        if from.kind == FileKind::Regular {
            self.contents(from, made)?;
        }
        if has_names {
            self.links.insert(from.no, made);
        }
        Ok(Some(made))
    }

    fn contents(&mut self, from: &Inode, made: InodeNo) -> Result<()> {
        let mut at = 0;
        while at < from.size {
            // By number: the snapshot may get another name meanwhile.
            let (snapshot, len) = (self.snapshot, PIECE.min(from.size - at));
            let room = self.room;
            let shared = room.share_from_snapshot(snapshot, from.no, made, at, len)?;
            at += shared;
            self.done.bytes += shared;
            self.may_go_on()?;
        }
        Ok(())
    }

    fn counted(&mut self) -> Result<()> {
        self.done.files += 1;
        self.may_go_on()
    }

    fn may_go_on(&self) -> Result<()> {
        match (self.go_on)(self.done.files, self.done.bytes) {
            true => Ok(()),
            false => Err(Error::Io(std::io::ErrorKind::Interrupted.into())),
        }
    }

    fn attributes(&mut self, from: &Inode, made: InodeNo) -> Result<()> {
        if from.flags != FileFlags::default() {
            self.flags.push((made, from.flags));
        }
        give_attributes(self.room, self.past, from, made)
    }
}

/// Everything but flags.
pub(super) fn give_attributes(
    room: &Room,
    past: &dyn FileSystem,
    from: &Inode,
    to: InodeNo,
) -> Result<()> {
    let set = |set: SetAttr| room.set_attributes(to, &set);
    set(SetAttr::owner(Some(from.uid), Some(from.gid)))?;
    // A new file may have got access lists from its directory.
    if from.kind != FileKind::Symlink {
        for name in room.xattr_names(to)? {
            room.remove_xattr(to, &name)?;
        }
    }
    if from.has_xattrs {
        for name in past.xattr_names(from.no)? {
            let value = past.xattr(from.no, &name)?;
            room.set_xattr(to, &name, &value, XattrMode::Any, false)?;
        }
    }
    set(SetAttr {
        mode: Some(from.mode).filter(|_| from.kind != FileKind::Symlink),
        ..SetAttr::default()
    })?;
    give_times(room, from, to)
}

pub(super) fn give_times(room: &Room, from: &Inode, to: InodeNo) -> Result<()> {
    let set = SetAttr {
        atime: Some(SetTime::At(from.atime)),
        mtime: Some(SetTime::At(from.mtime)),
        ..SetAttr::default()
    };
    room.set_attributes(to, &set).map(drop)
}
