//! Files in memory as a file system that can be mounted: what a mount costs with nothing behind it.
//!
//! 1. Nothing is durable: a sync does nothing.
//! 2. Changes of names are made one after the other; data of different files is read and written at the same time.
//!
//! It deliberately has no flags, no shared blocks and no limit but the machine's memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use room::{
    DirEntry, Error, Fallocate, FileKind, FileSystem, Inode, InodeNo, NewFile, RenameMode, Result,
    RoomSpace, SeekTo, SetAttr, SetTime, XattrMode, now,
};

/// Bytes that are allocated together.
const PIECE: usize = 128 << 10;
/// Space that the mount sees: so much that it never runs short.
const SPACE: u64 = 1 << 40;
/// Lowest position of a name in a listing: those below are `.` and `..`.
const FIRST_COOKIE: u64 = 16;

/// A file system in memory.
#[derive(Debug)]
pub struct MemoryFiles {
    nodes: RwLock<HashMap<InodeNo, Arc<Node>>>,
    /// Held while names change; guards the next inode number and the next position in a listing.
    names: Mutex<(u64, u64)>,
    /// How often each inode is held.
    holds: Mutex<HashMap<InodeNo, u64>>,
}

#[derive(Debug)]
struct Node(RwLock<Body>);

#[derive(Debug)]
struct Body {
    inode: Inode,
    /// Data by the number of the piece; what is not there reads as zeros.
    pieces: BTreeMap<u64, Box<[u8]>>,
    /// Names of a directory by their position.
    entries: BTreeMap<u64, (Vec<u8>, InodeNo)>,
    /// Positions by name.
    positions: HashMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Body {
    fn touch(&mut self) {
        let now = now();
        (self.inode.mtime, self.inode.ctime) = (now, now);
    }

    /// Cuts data off; a file that gets longer reads as zeros there.
    fn resize(&mut self, size: u64) {
        let (whole, part) = (size / PIECE as u64, (size % PIECE as u64) as usize);
        self.pieces.split_off(&(whole + u64::from(part > 0)));
        if part > 0
            && let Some(piece) = self.pieces.get_mut(&whole)
        {
            piece[part..].fill(0);
        }
        self.inode.size = size;
        self.count_blocks();
    }

    fn count_blocks(&mut self) {
        self.inode.blocks = (self.pieces.len() * PIECE / 4096) as u64;
    }
}

/// The parts of a range that are within one piece each: the piece's number, the first byte in it, how many.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let within = (at % PIECE as u64) as usize;
        let part = (PIECE - within).min((end - at) as usize);
        let piece = at / PIECE as u64;
        at += part as u64;
        (part > 0).then_some((piece, within, part))
    })
}

impl Default for MemoryFiles {
    fn default() -> Self {
        let files = Self {
            nodes: RwLock::default(),
            names: Mutex::new((InodeNo::ROOT.0 + 1, FIRST_COOKIE)),
            holds: Mutex::default(),
        };
        let root = NewFile::of_kind(FileKind::Directory);
        files.insert(InodeNo::ROOT, InodeNo::ROOT, &root, 2);
        files
    }
}

impl MemoryFiles {
    fn node(&self, no: InodeNo) -> Result<Arc<Node>> {
        self.nodes.read().get(&no).cloned().ok_or(Error::NotFound)
    }

    fn directory(&self, no: InodeNo) -> Result<Arc<Node>> {
        let node = self.node(no)?;
        let kind = node.0.read().inode.kind;
        match kind {
            FileKind::Directory => Ok(node),
            _ => Err(Error::NotDirectory),
        }
    }

    fn insert(&self, no: InodeNo, parent: InodeNo, new: &NewFile, nlink: u32) -> Inode {
        let now = now();
        let inode = Inode {
            mode: new.mode & !new.umask & 0o7777,
            uid: new.uid,
            gid: new.gid,
            nlink,
            size: new.target.len() as u64,
            rdev: new.rdev,
            parent: match new.kind {
                FileKind::Directory => parent,
                _ => InodeNo(0),
            },
            target: new.target.clone(),
            ..Inode::new(no, new.kind, now)
        };
        let body = Body {
            inode: inode.clone(),
            pieces: BTreeMap::new(),
            entries: BTreeMap::new(),
            positions: HashMap::new(),
            xattrs: BTreeMap::new(),
        };
        let node = Arc::new(Node(RwLock::new(body)));
        self.nodes.write().insert(no, node);
        inode
    }

    /// Puts a name into a directory; `directories` is how many subdirectories come with it.
    fn enter(&self, parent: &Node, cookie: u64, name: &[u8], no: InodeNo, directories: u32) {
        let mut body = parent.0.write();
        body.entries.insert(cookie, (name.to_vec(), no));
        body.positions.insert(name.to_vec(), cookie);
        body.inode.nlink += directories;
        body.touch();
    }

    /// Takes a name out of a directory, and one of its names from the inode, which goes with the last.
    fn leave(&self, parent: &Node, name: &[u8]) -> Result<()> {
        let no = self.take(parent, name)?;
        let node = self.node(no)?;
        let mut body = node.0.write();
        if body.inode.kind == FileKind::Directory {
            body.inode.nlink = 0;
        } else {
            body.inode.nlink -= 1;
        }
        body.inode.ctime = now();
        if body.inode.nlink == 0 && !self.holds.lock().contains_key(&no) {
            self.nodes.write().remove(&no);
        }
        Ok(())
    }

    fn take(&self, parent: &Node, name: &[u8]) -> Result<InodeNo> {
        let mut body = parent.0.write();
        let cookie = body.positions.remove(name).ok_or(Error::NotFound)?;
        let (_, no) = body.entries.remove(&cookie).ok_or(Error::NotFound)?;
        let directory = self.node(no)?.0.read().inode.kind == FileKind::Directory;
        body.inode.nlink -= u32::from(directory);
        body.touch();
        Ok(no)
    }

    fn find(&self, parent: &Node, name: &[u8]) -> Result<Arc<Node>> {
        let no = {
            let body = parent.0.read();
            let cookie = body.positions.get(name).ok_or(Error::NotFound)?;
            body.entries.get(cookie).ok_or(Error::NotFound)?.1
        };
        self.node(no)
    }
}

impl FileSystem for MemoryFiles {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let node = self.find(&*self.directory(parent)?, name)?;
        let inode = node.0.read().inode.clone();
        Ok(inode)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        Ok(self.node(no)?.0.read().inode.clone())
    }

    fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> {
        let node = self.node(no)?;
        let mut body = node.0.write();
        if let Some(size) = set.size {
            body.resize(size);
            body.touch();
        }
        let now = now();
        let moment = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(at) => at,
        };
        let inode = &mut body.inode;
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        inode.mode = set.mode.map_or(inode.mode, |mode| mode & 0o7777);
        if set.drop_privileges {
            inode.mode &= !0o4000;
        }
        inode.atime = set.atime.map_or(inode.atime, moment);
        inode.mtime = set.mtime.map_or(inode.mtime, moment);
        inode.ctime = now;
        Ok(inode.clone())
    }

    fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> {
        let mut next = self.names.lock();
        let directory = self.directory(parent)?;
        if self.find(&directory, name).is_ok() {
            return Err(Error::Exists);
        }
        let is_directory = new.kind == FileKind::Directory;
        let no = InodeNo(next.0);
        let inode = self.insert(no, parent, new, if is_directory { 2 } else { 1 });
        self.enter(&directory, next.1, name, no, u32::from(is_directory));
        *next = (next.0 + 1, next.1 + 1);
        Ok(inode)
    }

    fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> {
        let mut next = self.names.lock();
        self.directory(parent)?;
        let inode = self.insert(InodeNo(next.0), parent, new, 0);
        next.0 += 1;
        self.hold(inode.no);
        Ok(inode)
    }

    fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let mut next = self.names.lock();
        let directory = self.directory(parent)?;
        if self.find(&directory, name).is_ok() {
            return Err(Error::Exists);
        }
        self.enter(&directory, next.1, name, no, 0);
        next.1 += 1;
        let node = self.node(no)?;
        let mut body = node.0.write();
        body.inode.nlink += 1;
        body.inode.ctime = now();
        Ok(body.inode.clone())
    }

    fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        let _names = self.names.lock();
        let directory = self.directory(parent)?;
        let kind = self.find(&directory, name)?.0.read().inode.kind;
        match kind {
            FileKind::Directory => Err(Error::IsDirectory),
            _ => self.leave(&directory, name),
        }
    }

    fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        let _names = self.names.lock();
        let directory = self.directory(parent)?;
        let node = self.find(&directory, name)?;
        {
            let body = node.0.read();
            if body.inode.kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            if !body.entries.is_empty() {
                return Err(Error::NotEmpty);
            }
        }
        self.leave(&directory, name)
    }

    fn rename(
        &self,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let mut next = self.names.lock();
        let (from, to) = (self.directory(parent)?, self.directory(new_parent)?);
        let node = self.find(&from, name)?;
        let (no, kind) = {
            let body = node.0.read();
            (body.inode.no, body.inode.kind)
        };
        if let Ok(there) = self.find(&to, new_name) {
            match mode {
                RenameMode::NoReplace => return Err(Error::Exists),
                RenameMode::Exchange => return Err(Error::NotSupported("swapping two names")),
                RenameMode::Replace => {}
            }
            let same = there.0.read().inode.no == no;
            if same {
                return Ok(());
            }
            if !there.0.read().entries.is_empty() {
                return Err(Error::NotEmpty);
            }
            self.leave(&to, new_name)?;
        }
        self.take(&from, name)?;
        let is_directory = kind == FileKind::Directory;
        self.enter(&to, next.1, new_name, no, u32::from(is_directory));
        next.1 += 1;
        let mut body = node.0.write();
        if is_directory {
            body.inode.parent = new_parent;
        }
        body.inode.ctime = now();
        Ok(())
    }

    fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> {
        Ok(self.node(no)?.0.read().inode.target.clone())
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        let directory = self.directory(no)?;
        let entries: Vec<_> = {
            let body = directory.0.read();
            let behind = body.entries.range(after.saturating_add(1)..).take(limit);
            behind
                .map(|(cookie, (name, no))| (*cookie, name.clone(), *no))
                .collect()
        };
        let with_inode = |(cookie, name, no)| {
            // One that was removed meanwhile is left out.
            let inode = self.attributes(no).ok()?;
            let kind = inode.kind;
            let entry = DirEntry {
                cookie,
                name,
                inode: no,
                kind,
            };
            Some((entry, inode))
        };
        Ok(entries.into_iter().filter_map(with_inode).collect())
    }

    fn touch_atime(&self, _: InodeNo) {}

    fn hold(&self, no: InodeNo) {
        *self.holds.lock().entry(no).or_insert(0) += 1;
    }

    fn release(&self, no: InodeNo, count: u64) {
        let mut holds = self.holds.lock();
        if let Some(held) = holds.get_mut(&no) {
            *held = held.saturating_sub(count);
            if *held > 0 {
                return;
            }
            holds.remove(&no);
        }
        drop(holds);
        let gone = self
            .node(no)
            .is_ok_and(|node| node.0.read().inode.nlink == 0);
        if gone {
            self.nodes.write().remove(&no);
        }
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.node(no)?;
        let body = node.0.read();
        let there = body.inode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut rest = &mut buf[..there];
        for (piece, within, part) in parts(offset, there) {
            let (now, later) = rest.split_at_mut(part);
            match body.pieces.get(&piece) {
                Some(bytes) => now.copy_from_slice(&bytes[within..within + part]),
                None => now.fill(0),
            }
            rest = later;
        }
        Ok(there)
    }

    fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        let node = self.node(no)?;
        let mut body = node.0.write();
        let mut rest = data;
        for (piece, within, part) in parts(offset, data.len()) {
            let (now, later) = rest.split_at(part);
            let bytes = body.pieces.entry(piece);
            let bytes = bytes.or_insert_with(|| vec![0; PIECE].into_boxed_slice());
            bytes[within..within + part].copy_from_slice(now);
            rest = later;
        }
        body.inode.size = body.inode.size.max(offset + data.len() as u64);
        body.count_blocks();
        body.touch();
        Ok(())
    }

    fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        let Fallocate::Allocate { keep_size } = what else {
            return Err(Error::NotSupported("holes of files in memory"));
        };
        let node = self.node(no)?;
        let mut body = node.0.write();
        if !keep_size && offset + len > body.inode.size {
            body.resize(offset + len);
        }
        Ok(())
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let size = self.attributes(no)?.size;
        match to {
            _ if offset >= size => Err(Error::NoMoreData),
            SeekTo::Data => Ok(offset),
            SeekTo::Hole => Ok(size),
        }
    }

    fn copy_range(&self, _: InodeNo, _: u64, _: InodeNo, _: u64, _: u64) -> Result<u64> {
        Err(Error::NotSupported("sharing blocks of files in memory"))
    }

    fn fsync(&self, _: InodeNo) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(no)?;
        let body = node.0.read();
        body.xattrs.get(name).cloned().ok_or(Error::NoXattr)
    }

    fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        _: bool,
    ) -> Result<()> {
        let node = self.node(no)?;
        let mut body = node.0.write();
        match (mode, body.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoXattr),
            _ => {}
        }
        body.xattrs.insert(name.to_vec(), value.to_vec());
        body.inode.has_xattrs = true;
        Ok(())
    }

    fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> {
        let node = self.node(no)?;
        let removed = node.0.write().xattrs.remove(name);
        removed.map(drop).ok_or(Error::NoXattr)
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        Ok(self.node(no)?.0.read().xattrs.keys().cloned().collect())
    }

    fn space(&self) -> Result<RoomSpace> {
        let inodes = self.nodes.read().len() as u64;
        Ok(RoomSpace {
            total: SPACE,
            free: SPACE,
            available: SPACE,
            inodes,
            ..RoomSpace::default()
        })
    }

    fn has_flags(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(files: &MemoryFiles, name: &[u8]) -> InodeNo {
        let new = NewFile::of_kind(FileKind::Regular);
        files.make(InodeNo::ROOT, name, &new).unwrap().no
    }

    #[test]
    fn what_is_written_is_read_across_pieces_and_after_a_cut() {
        let files = MemoryFiles::default();
        let no = file(&files, b"a");
        let data: Vec<u8> = (0..3 * PIECE).map(|i| (i % 251) as u8).collect();
        files.write(no, 1000, &data).unwrap();
        let mut read = vec![1; data.len() + 2000];
        assert_eq!(files.read(no, 0, &mut read).unwrap(), data.len() + 1000);
        assert!(read[..1000].iter().all(|byte| *byte == 0));
        assert!(read[1000..][..data.len()] == data);
        let size = Some(PIECE as u64 + 10);
        let set = SetAttr {
            size,
            ..SetAttr::default()
        };
        files.set_attributes(no, &set).unwrap();
        files.write(no, 2 * PIECE as u64, b"x").unwrap();
        let mut read = vec![1; 3 * PIECE];
        assert_eq!(files.read(no, 0, &mut read).unwrap(), 2 * PIECE + 1);
        assert!(read[PIECE + 10..2 * PIECE].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_file_without_a_name_is_there_while_it_is_held() {
        let files = MemoryFiles::default();
        let no = file(&files, b"a");
        files.hold(no);
        files.unlink(InodeNo::ROOT, b"a").unwrap();
        assert!(matches!(
            files.lookup(InodeNo::ROOT, b"a"),
            Err(Error::NotFound)
        ));
        assert_eq!(files.attributes(no).unwrap().nlink, 0);
        files.release(no, 1);
        assert!(matches!(files.attributes(no), Err(Error::NotFound)));
    }

    #[test]
    fn names_are_renamed_over_each_other_and_listed_in_order() {
        let files = MemoryFiles::default();
        let (a, b) = (file(&files, b"a"), file(&files, b"b"));
        let root = InodeNo::ROOT;
        let rename = |mode| files.rename(root, b"b", root, b"a", mode);
        assert!(matches!(rename(RenameMode::NoReplace), Err(Error::Exists)));
        rename(RenameMode::Replace).unwrap();
        assert_eq!(files.lookup(root, b"a").unwrap().no, b);
        assert!(matches!(files.attributes(a), Err(Error::NotFound)));
        let new = NewFile::of_kind(FileKind::Directory);
        files.make(root, b"d", &new).unwrap();
        assert_eq!(files.attributes(root).unwrap().nlink, 3);
        let names = files.read_dir(root, 0, 10).unwrap();
        let names: Vec<_> = names.iter().map(|(entry, _)| &entry.name[..]).collect();
        assert_eq!(names, [b"a", b"d"]);
        files.rmdir(root, b"d").unwrap();
        assert_eq!(files.attributes(root).unwrap().nlink, 2);
    }
}
