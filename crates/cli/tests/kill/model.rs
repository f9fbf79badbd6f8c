//! What one writer's files must be after each of its operations, and what they are.
//!
//! 1. A model's state changes only by [`Tree::apply`], as POSIX says the operation does.
//! 2. What is on the mount is read whole, by the calls that programs use.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::plan::{Op, content, places};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Dir,
    File(Arc<Vec<u8>>),
    Symlink(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub xattrs: BTreeMap<String, Arc<Vec<u8>>>,
}

impl Node {
    fn new(kind: Kind, mode: u32) -> Self {
        Self {
            kind,
            mode,
            xattrs: BTreeMap::new(),
        }
    }
}

/// Who writes: content depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Author {
    pub round: u64,
    pub writer: u64,
    pub op: u64,
}

/// The names of one writer and their nodes. Numbers of nodes mean nothing outside.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    pub names: BTreeMap<String, u64>,
    nodes: BTreeMap<u64, Node>,
}

impl Tree {
    /// What is there.
    pub fn read(root: &Path, writer: u64) -> Self {
        let mut tree = Self::default();
        let [own, shared] = places(writer);
        tree.read_into(root, &own, "");
        tree.read_into(root, "common", &shared);
        tree.forget("common");
        tree
    }

    fn forget(&mut self, name: &str) {
        if let Some(node) = self.names.remove(name) {
            self.nodes.remove(&node);
        }
    }

    /// `path` and below it, of that what begins with `only`.
    fn read_into(&mut self, root: &Path, path: &str, only: &str) {
        let at = root.join(path);
        let meta = std::fs::symlink_metadata(&at).unwrap_or_else(|e| panic!("{path}: {e}"));
        let kind = if meta.is_dir() {
            for entry in std::fs::read_dir(&at).unwrap() {
                let name = format!("{path}/{}", entry.unwrap().file_name().to_str().unwrap());
                if name.starts_with(only) {
                    self.read_into(root, &name, "");
                }
            }
            Kind::Dir
        } else if meta.is_symlink() {
            Kind::Symlink(
                std::fs::read_link(&at)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            )
        } else {
            let bytes = std::fs::read(&at).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(bytes.len() as u64, meta.len(), "{path}: length");
            Kind::File(Arc::new(bytes))
        };
        let mut node = Node::new(kind, meta.mode() & 0o7777);
        if !meta.is_symlink() {
            let (mut names, mut value) = (vec![0; 1 << 16], vec![0; 1 << 16]);
            let len = rustix::fs::llistxattr(&at, &mut names[..]).unwrap();
            for name in names[..len]
                .split(|b| *b == 0)
                .filter(|name| !name.is_empty())
            {
                let len = rustix::fs::lgetxattr(&at, name, &mut value[..])
                    .unwrap_or_else(|e| panic!("{path}, {}: {e}", name.escape_ascii()));
                node.xattrs.insert(
                    String::from_utf8_lossy(name).into_owned(),
                    Arc::new(value[..len].to_vec()),
                );
            }
        }
        self.names.insert(path.to_owned(), meta.ino());
        self.nodes.insert(meta.ino(), node);
    }

    pub fn get(&self, path: &str) -> Option<&Node> {
        self.names.get(path).map(|number| &self.nodes[number])
    }

    fn node(&mut self, path: &str) -> Result<&mut Node, Errno> {
        let number = self.names.get(path).ok_or(Errno::NOENT)?;
        Ok(self.nodes.get_mut(number).expect("every name has a node"))
    }

    fn bytes(&mut self, path: &str) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.node(path)?.kind {
            Kind::File(bytes) => Ok(Arc::make_mut(bytes)),
            other => panic!("{path} is planned as a file, and is {other:?}"),
        }
    }

    fn children(&self, dir: &str) -> Vec<String> {
        let prefix = format!("{dir}/");
        self.names
            .keys()
            .filter(|name| name.starts_with(&prefix))
            .cloned()
            .collect()
    }

    /// The directory of a name to be made must be there; the one all share always is.
    fn parent(&self, path: &str) -> Result<(), Errno> {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        if dir == "common" || self.names.contains_key(dir) {
            Ok(())
        } else {
            Err(Errno::NOENT)
        }
    }

    fn add(&mut self, path: &str, node: Node) -> Result<(), Errno> {
        self.parent(path)?;
        if self.names.contains_key(path) {
            return Err(Errno::EXIST);
        }
        let number = self.nodes.keys().next_back().map_or(1, |last| last + 1);
        self.names.insert(path.to_owned(), number);
        self.nodes.insert(number, node);
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<(), Errno> {
        let number = self.names.remove(path).ok_or(Errno::NOENT)?;
        if !self.names.values().any(|other| *other == number) {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    /// Gives a name, and all below it, another.
    fn move_name(&mut self, from: &str, to: &str) {
        for old in self.children(from).into_iter().chain([from.to_owned()]) {
            if let Some(number) = self.names.remove(&old) {
                self.names
                    .insert(format!("{to}{}", &old[from.len()..]), number);
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let number = *self.names.get(from).ok_or(Errno::NOENT)?;
        self.parent(to)?;
        if to.starts_with(&format!("{from}/")) {
            return Err(Errno::INVAL);
        }
        if let Some(target) = self.names.get(to) {
            if *target == number {
                return Ok(());
            }
            if !self.children(to).is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            self.remove(to)?;
        }
        self.move_name(from, to);
        Ok(())
    }

    fn exchange(&mut self, a: &str, b: &str) -> Result<(), Errno> {
        for path in [a, b] {
            self.names.get(path).ok_or(Errno::NOENT)?;
        }
        if a.starts_with(&format!("{b}/")) || b.starts_with(&format!("{a}/")) {
            return Err(Errno::INVAL);
        }
        if a != b {
            self.move_name(a, "aside");
            self.move_name(b, a);
            self.move_name("aside", b);
        }
        Ok(())
    }

    fn write(
        &mut self,
        path: &str,
        offset: Option<u64>,
        len: u64,
        author: Author,
    ) -> Result<(), Errno> {
        if !self.names.contains_key(path) {
            self.add(path, Node::new(Kind::File(Arc::default()), 0o644))?;
        }
        let file = self.bytes(path)?;
        let offset = offset.unwrap_or(file.len() as u64);
        let (from, to) = (offset as usize, (offset + len) as usize);
        if file.len() < to {
            file.resize(to, 0);
        }
        file[from..to].copy_from_slice(&content(
            author.round,
            author.writer,
            author.op,
            offset,
            len,
        ));
        Ok(())
    }

    /// Does what the operation is to do. `true`: it came as far as to acknowledge that it is durable, if it is of those.
    pub fn apply(&mut self, op: &Op, author: Author) -> Result<bool, Errno> {
        match op {
            Op::Put {
                path, offset, len, ..
            } => self.write(path, Some(*offset), *len, author)?,
            Op::Append { path, len, .. } => self.write(path, None, *len, author)?,
            Op::Map { path, at, len, .. } => {
                let size = self.bytes(path)?.len() as u64;
                let Some((at, len)) = within(*at, *len, size) else {
                    return Ok(false);
                };
                self.write(path, Some(at), len, author)?;
            }
            Op::Truncate { path, len } => self.bytes(path)?.resize(*len as usize, 0),
            Op::Punch { path, offset, len } | Op::Zero { path, offset, len } => {
                let file = self.bytes(path)?;
                let from = (*offset as usize).min(file.len());
                let to = (from + *len as usize).min(file.len());
                file[from..to].fill(0);
            }
            Op::Copy {
                from,
                to,
                offset,
                len,
            } => {
                let source = self.bytes(from)?.clone();
                self.bytes(to)?;
                let (start, end) = (*offset as usize, (*offset + *len) as usize);
                let end = end.min(source.len());
                if self.names[from] != self.names[to] && start < end {
                    let target = self.bytes(to)?;
                    let longer = target.len().max(end);
                    target.resize(longer, 0);
                    target[start..end].copy_from_slice(&source[start..end]);
                }
            }
            Op::Rename { from, to } => self.rename(from, to)?,
            Op::Exchange { a, b } => self.exchange(a, b)?,
            Op::Link { from, to } => {
                let number = *self.names.get(from).ok_or(Errno::NOENT)?;
                self.parent(to)?;
                if self.names.contains_key(to) {
                    return Err(Errno::EXIST);
                }
                self.names.insert(to.clone(), number);
            }
            Op::Symlink { target, path } => {
                self.add(path, Node::new(Kind::Symlink(target.clone()), 0o777))?
            }
            Op::Unlink { path } => self.remove(path)?,
            Op::Mkdir { path } => self.add(path, Node::new(Kind::Dir, 0o755))?,
            Op::Rmdir { path } => {
                self.node(path)?;
                if !self.children(path).is_empty() {
                    return Err(Errno::NOTEMPTY);
                }
                self.remove(path)?;
            }
            Op::SetXattr { path, name, len } => {
                let value = content(author.round, author.writer, author.op, 0, *len);
                self.node(path)?
                    .xattrs
                    .insert(name.clone(), Arc::new(value));
            }
            Op::RemoveXattr { path, name } => {
                self.node(path)?.xattrs.remove(name).ok_or(Errno::NODATA)?;
            }
            Op::Chmod { path, mode } => self.node(path)?.mode = *mode,
            Op::Sync { path, .. } => {
                if path != "common" {
                    self.node(path)?;
                }
            }
        }
        Ok(true)
    }
}

/// Where a write through a mapping goes in a file of that size.
pub fn within(at: u64, len: u64, size: u64) -> Option<(u64, u64)> {
    let at = at.checked_rem(size)?;
    Some((at, len.min(size - at)))
}
