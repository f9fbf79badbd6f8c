//! A room as a tree, through the library.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use room::{
    FileFlags, FileKind, FileSystem, Inode, InodeNo, NewFile, RenameMode, Room, SeekTo, SetAttr,
    SetTime, XattrMode,
};

use super::{Attrs, Fault, FileId, Meta, OpenFile, ReadFile, Result, Source, Tree};

/// How many names are read from a directory at once.
const LIST_BATCH: usize = 1024;

/// A room, opened by this process.
#[derive(Debug)]
pub(crate) struct RoomTree<'r> {
    room: &'r Room,
}

impl<'r> RoomTree<'r> {
    pub(crate) fn new(room: &'r Room) -> Self {
        Self { room }
    }

    /// The directory and name of a path's last part. The root, `.` and `..` have none.
    fn parent<'p>(&self, path: &'p Path) -> Result<(InodeNo, &'p [u8])> {
        let name = path
            .file_name()
            .ok_or_else(|| Fault::Refused("this cannot be done to the root of a room".into()))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let no = self.room.resolve(parent, true).map_err(Fault::Room)?;
        Ok((no, name.as_bytes()))
    }

    fn no(&self, path: &Path, follow: bool) -> Result<InodeNo> {
        self.room.resolve(path, follow).map_err(Fault::Room)
    }

    fn make(&self, path: &Path, new: &NewFile) -> Result<Inode> {
        let (parent, name) = self.parent(path)?;
        self.room.make(parent, name, new).map_err(Fault::Room)
    }
}

fn meta(inode: &Inode) -> Meta {
    Meta {
        id: FileId(0, inode.no.0),
        kind: inode.kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink.into(),
        size: inode.size,
        allocated: inode.blocks * seal::BLOCK_LEN as u64,
        rdev: inode.rdev,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: Some(inode.btime),
    }
}

impl Source for RoomTree<'_> {
    fn stat(&self, path: &Path, follow: bool) -> Result<Meta> {
        stat(self.room, self.no(path, follow)?)
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Meta)>> {
        list(self.room, self.no(path, true)?)
    }

    fn read_link(&self, path: &Path) -> Result<OsString> {
        read_link(self.room, self.no(path, false)?)
    }

    fn open<'a>(&'a self, path: &Path) -> Result<Box<dyn ReadFile + 'a>> {
        let no = self.no(path, true)?;
        must_be_regular(self.room, no)?;
        Ok(Box::new(RoomFile {
            room: self.room,
            no,
        }))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
        xattrs(self.room, self.no(path, false)?)
    }

    fn flags(&self, path: &Path) -> Result<FileFlags> {
        flags(self.room, self.no(path, true)?)
    }
}

pub(super) fn stat(files: &dyn FileSystem, no: InodeNo) -> Result<Meta> {
    files
        .attributes(no)
        .map(|inode| meta(&inode))
        .map_err(Fault::Room)
}

pub(super) fn list(files: &dyn FileSystem, dir: InodeNo) -> Result<Vec<(OsString, Meta)>> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let batch = files
            .read_dir(dir, after, LIST_BATCH)
            .map_err(Fault::Room)?;
        let Some((last, _)) = batch.last() else { break };
        after = last.cookie;
        found.extend(
            batch
                .into_iter()
                .map(|(entry, inode)| (OsString::from_vec(entry.name), meta(&inode))),
        );
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

pub(super) fn read_link(files: &dyn FileSystem, no: InodeNo) -> Result<OsString> {
    files
        .read_link(no)
        .map(OsString::from_vec)
        .map_err(Fault::Room)
}

pub(super) fn must_be_regular(files: &dyn FileSystem, no: InodeNo) -> Result<()> {
    match files.attributes(no).map_err(Fault::Room)?.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Fault::Room(room::Error::IsDirectory)),
        _ => Err(Fault::Refused("not a regular file".into())),
    }
}

pub(super) fn xattrs(files: &dyn FileSystem, no: InodeNo) -> Result<Vec<(OsString, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in files.xattr_names(no).map_err(Fault::Room)? {
        let value = files.xattr(no, &name).map_err(Fault::Room)?;
        found.push((OsString::from_vec(name), value));
    }
    Ok(found)
}

pub(super) fn flags(files: &dyn FileSystem, no: InodeNo) -> Result<FileFlags> {
    files
        .attributes(no)
        .map(|inode| inode.flags)
        .map_err(Fault::Room)
}

pub(super) fn next_data(
    files: &dyn FileSystem,
    no: InodeNo,
    offset: u64,
) -> Result<Option<(u64, u64)>> {
    match files.seek(no, offset, SeekTo::Data) {
        Ok(start) => {
            let end = files.seek(no, start, SeekTo::Hole).map_err(Fault::Room)?;
            Ok(Some((start, end)))
        }
        Err(room::Error::NoMoreData) => Ok(None),
        Err(e) => Err(Fault::Room(e)),
    }
}

impl Tree for RoomTree<'_> {
    fn create<'a>(&'a self, path: &Path) -> Result<Box<dyn OpenFile + 'a>> {
        let new = NewFile {
            mode: 0o600,
            ..NewFile::of_kind(FileKind::Regular)
        };
        let no = self.make(path, &new)?.no;
        Ok(Box::new(RoomFile {
            room: self.room,
            no,
        }))
    }

    fn make_dir(&self, path: &Path, mode: u16) -> Result<()> {
        self.make(
            path,
            &NewFile {
                mode,
                ..NewFile::of_kind(FileKind::Directory)
            },
        )
        .map(drop)
    }

    fn symlink(&self, target: &OsString, path: &Path) -> Result<()> {
        let new = NewFile {
            mode: 0o777,
            target: target.as_bytes().to_vec(),
            ..NewFile::of_kind(FileKind::Symlink)
        };
        self.make(path, &new).map(drop)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let no = self.no(from, false)?;
        let (parent, name) = self.parent(to)?;
        self.room
            .link(no, parent, name)
            .map(drop)
            .map_err(Fault::Room)
    }

    fn make_node(&self, path: &Path, kind: FileKind, mode: u16, rdev: u64) -> Result<()> {
        self.make(
            path,
            &NewFile {
                mode,
                rdev,
                ..NewFile::of_kind(kind)
            },
        )
        .map(drop)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.room.unlink(parent, name).map_err(Fault::Room)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.room.rmdir(parent, name).map_err(Fault::Room)
    }

    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        self.room
            .rename(from_parent, from_name, to_parent, to_name, mode)
            .map_err(Fault::Room)
    }

    fn set_attrs(&self, path: &Path, attrs: &Attrs) -> Result<()> {
        let no = self.no(path, false)?;
        // Owner first, since its change takes set-id bits away; one call would leave the order to the room.
        if let Some((uid, gid)) = attrs.owner {
            self.room
                .set_attributes(no, &SetAttr::owner(Some(uid), Some(gid)))
                .map_err(Fault::Room)?;
        }
        let is_link = self.room.attributes(no).map_err(Fault::Room)?.kind == FileKind::Symlink;
        let set = SetAttr {
            mode: attrs.mode.filter(|_| !is_link),
            atime: attrs.times.map(|(atime, _)| SetTime::At(atime)),
            mtime: attrs.times.map(|(_, mtime)| SetTime::At(mtime)),
            ..SetAttr::default()
        };
        self.room
            .set_attributes(no, &set)
            .map(drop)
            .map_err(Fault::Room)
    }

    fn set_xattr(&self, path: &Path, name: &OsString, value: &[u8]) -> Result<()> {
        let no = self.no(path, false)?;
        self.room
            .set_xattr(no, name.as_bytes(), value, XattrMode::Any, false)
            .map_err(Fault::Room)
    }

    fn remove_xattr(&self, path: &Path, name: &OsString) -> Result<()> {
        let no = self.no(path, false)?;
        match self.room.remove_xattr(no, name.as_bytes()) {
            Err(room::Error::NoXattr) => Ok(()),
            done => done.map_err(Fault::Room),
        }
    }

    fn sync(&self) -> Result<()> {
        self.room.sync().map_err(Fault::Room)
    }
}

struct RoomFile<'r> {
    room: &'r Room,
    no: InodeNo,
}

impl ReadFile for RoomFile<'_> {
    fn meta(&self) -> Result<Meta> {
        stat(self.room, self.no)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.room.read(self.no, offset, buf).map_err(Fault::Room)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        next_data(self.room, self.no, offset)
    }

    fn as_inode(&self) -> Option<(&Room, InodeNo)> {
        Some((self.room, self.no))
    }
}

impl OpenFile for RoomFile<'_> {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.room.write(self.no, offset, data).map_err(Fault::Room)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let set = SetAttr::size(len);
        self.room
            .set_attributes(self.no, &set)
            .map(drop)
            .map_err(Fault::Room)
    }

    fn sync(&self) -> Result<()> {
        self.room.fsync(self.no).map_err(Fault::Room)
    }
}
