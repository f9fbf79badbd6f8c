//! What a user can see of a room at one moment.
//!
//! 1. Everything is in it: names, which of them are one file, kinds, permissions, owners, times, lengths, contents,
//!    extended attributes, targets of links, and which keys open the room. Left out are blocks in use, which depend on
//!    when data was sealed.
//! 2. Taking one changes nothing, access times neither, and writes nothing to the storage.
//!
//! It deliberately does not know which snapshot is the right one.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;

use room::{CHUNK_LEN, Error, FileKind, FileSystem, InodeNo, Room, Snapshots as _, Timestamp};
use seal::{Header, SealError};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::opening::{KEYS, credential};

/// Bytes read at once; a part of a chunk.
const PIECE: u64 = 256 << 10;
const BLOCK: u64 = 4096;
/// Names read at once.
const NAMES: usize = 1000;

/// What a user can see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The tree, by paths without a leading slash; the root is `""`. The trees of snapshots begin with `@` and their name.
    pub tree: BTreeMap<String, Node>,
    /// Which of the keys of [`credential`] open the room.
    pub keys: Vec<bool>,
}

/// One name and what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Names with one number are one file.
    pub no: InodeNo,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Names of it; for a directory, as POSIX counts.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Access, modification, change, birth.
    pub times: [Timestamp; 4],
    /// A hash of the contents of each chunk; holes are zeros. `None` where a part of it cannot be read because it is damaged.
    pub content: Option<Vec<u128>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Target of a symbolic link.
    pub target: String,
}

impl Snapshot {
    /// Looks at a room.
    ///
    /// # Errors
    /// What the room says; damaged data of a file is no error here (see [`Node::content`]).
    pub fn of(room: &Room) -> room::Result<Self> {
        let mut snapshot = Self {
            tree: BTreeMap::new(),
            keys: keys_of(room)?,
        };
        snapshot.walk_all(room, "")?;
        for there in room.snapshots()? {
            let view = room.snapshot(&there.name)?;
            snapshot.walk_all(&*view, &format!("@{}", there.name))?;
        }
        Ok(snapshot)
    }

    fn walk_all(&mut self, room: &dyn FileSystem, root: &str) -> room::Result<()> {
        let node = node(room, room.attributes(InodeNo::ROOT)?)?;
        self.tree.insert(root.to_owned(), node);
        self.walk(room, InodeNo::ROOT, root)
    }

    fn walk(&mut self, room: &dyn FileSystem, directory: InodeNo, path: &str) -> room::Result<()> {
        let mut after = 0;
        loop {
            let entries = room.read_dir(directory, after, NAMES)?;
            let Some((last, _)) = entries.last() else {
                return Ok(());
            };
            after = last.cookie;
            for (entry, listed) in entries {
                let name = String::from_utf8_lossy(&entry.name);
                let path = if path.is_empty() {
                    name.into_owned()
                } else {
                    format!("{path}/{name}")
                };
                let inode = room.lookup(directory, &entry.name)?;
                if inode.no != listed.no || entry.inode != inode.no || entry.kind != inode.kind {
                    return Err(Error::Damaged(format!(
                        "{path}: a listing shows another file than a lookup"
                    )));
                }
                let is_directory = inode.kind == FileKind::Directory;
                let no = inode.no;
                let node = node(room, inode)?;
                if self.tree.insert(path.clone(), node).is_some() {
                    return Err(Error::Damaged(format!("{path} is listed twice")));
                }
                if is_directory {
                    self.walk(room, no, &path)?;
                }
            }
        }
    }

    /// The same without times, and with numbers of files in the order of their names: for comparing two runs.
    pub fn timeless(&self) -> Self {
        let mut timeless = self.clone();
        let mut numbers = BTreeMap::new();
        for node in timeless.tree.values_mut() {
            node.times = [Timestamp::default(); 4];
            let next = InodeNo(numbers.len() as u64 + 1);
            node.no = *numbers.entry(node.no).or_insert(next);
        }
        timeless
    }

    /// Whether `found` shows the same tree. A damaged file matches any contents.
    pub fn agrees_with(&self, found: &Snapshot) -> bool {
        let mut expected = self.clone();
        for (path, node) in &mut expected.tree {
            if found.tree.get(path).is_some_and(|f| f.content.is_none()) {
                node.content = None;
            }
        }
        expected.tree == found.tree
    }

    /// How another snapshot's tree differs, one line each.
    pub fn differences(&self, found: &Snapshot) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, expected) in &self.tree {
            match found.tree.get(path) {
                None => lines.push(format!("/{path}: is missing ({expected})")),
                Some(node) => lines.extend(
                    expected
                        .differences(node)
                        .into_iter()
                        .map(|d| format!("/{path}: {d}")),
                ),
            }
        }
        for (path, node) in &found.tree {
            if !self.tree.contains_key(path) {
                lines.push(format!("/{path}: should not be there ({node})"));
            }
        }
        lines
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {}, {} bytes, {} names",
            self.kind, self.no.0, self.size, self.nlink
        )
    }
}

impl Node {
    fn differences(&self, found: &Node) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, expected: String, found: String| {
            if expected != found {
                lines.push(format!("{what}: expected {expected}, found {found}"));
            }
        };
        let content = |node: &Node| match &node.content {
            Some(hashes) => format!("{hashes:032x?}"),
            None => "damaged".into(),
        };
        compare("inode", self.no.0.to_string(), found.no.0.to_string());
        compare(
            "kind",
            format!("{:?}", self.kind),
            format!("{:?}", found.kind),
        );
        compare(
            "mode",
            format!("{:o}", self.mode),
            format!("{:o}", found.mode),
        );
        compare(
            "owner",
            format!("{:?}", self.owner),
            format!("{:?}", found.owner),
        );
        compare("names", self.nlink.to_string(), found.nlink.to_string());
        compare("length", self.size.to_string(), found.size.to_string());
        compare("contents", content(self), content(found));
        compare("target", self.target.clone(), found.target.clone());
        for (what, expected, found) in [
            ("access time", self.times[0], found.times[0]),
            ("modification time", self.times[1], found.times[1]),
            ("change time", self.times[2], found.times[2]),
            ("birth time", self.times[3], found.times[3]),
        ] {
            let text = |t: Timestamp| format!("{}.{:09}", t.secs, t.nanos);
            compare(what, text(expected), text(found));
        }
        if self.xattrs != found.xattrs {
            let text = |node: &Node| {
                let each = |(name, value): (&String, &Vec<u8>)| {
                    format!("{name} ({} bytes, {:02x?}…)", value.len(), value.first())
                };
                node.xattrs.iter().map(each).collect::<Vec<_>>().join(", ")
            };
            compare("extended attributes", text(self), text(found));
        }
        lines
    }
}

/// Which keys open a room, by its newest header.
fn keys_of(room: &Room) -> room::Result<Vec<bool>> {
    let header =
        Header::parse(&room.header_backup()).map_err(|e| Error::from(SealError::from(e)))?;
    Ok((0..KEYS)
        .map(|key| header.unlock(&credential(key)).is_ok())
        .collect())
}

fn node(room: &dyn FileSystem, inode: room::Inode) -> room::Result<Node> {
    let content = match inode.kind {
        FileKind::Regular => match content(room, inode.no, inode.size) {
            Ok(hashes) => Some(hashes),
            Err(Error::Corrupt { .. }) => None,
            Err(e) => return Err(e),
        },
        _ => Some(Vec::new()),
    };
    let mut xattrs = BTreeMap::new();
    for name in room.xattr_names(inode.no)? {
        let value = room.xattr(inode.no, &name)?;
        xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    Ok(Node {
        no: inode.no,
        kind: inode.kind,
        mode: inode.mode,
        owner: (inode.uid, inode.gid),
        nlink: inode.nlink,
        size: inode.size,
        times: [inode.atime, inode.mtime, inode.ctime, inode.btime],
        content,
        xattrs,
        target: String::from_utf8_lossy(&inode.target).into_owned(),
    })
}

/// Of each chunk a hash of the blocks that are not zeros, with their places.
fn content(room: &dyn FileSystem, no: InodeNo, size: u64) -> room::Result<Vec<u128>> {
    let mut hashes = Vec::new();
    let mut hasher = SipHasher13::new();
    let mut buffer = vec![0; PIECE.min(size) as usize];
    let mut offset = 0;
    while offset < size {
        let len = (size - offset).min(PIECE) as usize;
        let piece = &mut buffer[..len];
        let n = room.read(no, offset, piece)?;
        if n != len {
            return Err(Error::Damaged(format!(
                "inode {}: {n} of {len} bytes read at {offset} of {size}",
                no.0
            )));
        }
        for (block, at) in piece
            .chunks(BLOCK as usize)
            .zip((offset..).step_by(BLOCK as usize))
        {
            if block.iter().any(|byte| *byte != 0) {
                hasher.write_u64(at);
                hasher.write(block);
            }
        }
        offset += len as u64;
        if offset.is_multiple_of(CHUNK_LEN) || offset == size {
            let hasher = std::mem::replace(&mut hasher, SipHasher13::new());
            hashes.push(hasher.finish128().as_u128());
        }
    }
    Ok(hashes)
}
