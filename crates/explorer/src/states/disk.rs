//! What is durable at one moment, and what is pending.
//!
//! 1. Every pending change is newer than everything durable in its file or directory.
//! 2. Bytes pending for a sector are the whole sector as the file had it after the write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use storage::parent;

use super::choose::{Choice, Keep};
use crate::image::{Content, Entry, Image};
use crate::record::{Event, FileId, Log};

/// Bytes that reach the disk together.
pub const SECTOR: u64 = 512;

/// What a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Dir,
    /// A file.
    File(FileId),
}

/// A change that a crash may keep or lose. Offsets and lengths are bytes.
#[derive(Debug, Clone)]
pub enum Change {
    /// A write.
    Bytes {
        /// To which file.
        file: FileId,
        /// Where its first sector begins.
        offset: u64,
        /// Whole sectors.
        bytes: Arc<[u8]>,
        /// The new length, where the write made the file longer.
        extends: Option<u64>,
    },
    /// A new length.
    Len {
        /// Of which file.
        file: FileId,
        /// The length.
        len: u64,
    },
    /// A range made zeros.
    Zeros {
        /// Of which file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// A name was made or given another meaning.
    Link {
        /// The name.
        path: Arc<str>,
        /// What it now refers to.
        node: Node,
    },
    /// A name was removed.
    Unlink {
        /// The name.
        path: Arc<str>,
    },
    /// A name was replaced by another of its directory, in one step.
    Rename {
        /// The old name.
        from: Arc<str>,
        /// The new name.
        to: Arc<str>,
        /// What it refers to.
        node: Node,
    },
}

impl Change {
    /// The file whose contents it changes.
    pub fn file(&self) -> Option<FileId> {
        match self {
            Self::Bytes { file, .. } | Self::Len { file, .. } | Self::Zeros { file, .. } => {
                Some(*file)
            }
            _ => None,
        }
    }

    /// The directory whose names it changes.
    fn dir(&self) -> Option<&str> {
        match self {
            Self::Link { path, .. } | Self::Unlink { path } | Self::Rename { to: path, .. } => {
                Some(parent(path))
            }
            _ => None,
        }
    }

    /// Sectors that can be torn apart; 0 for a change that happens or not.
    pub fn sectors(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => bytes.len() / SECTOR as usize,
            _ => 0,
        }
    }

    /// The length it gives the file, where that is apart from its data.
    pub fn extends(&self) -> Option<u64> {
        match self {
            Self::Bytes { extends, .. } => *extends,
            _ => None,
        }
    }
}

/// A change that is not durable.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Index of its event in the log.
    pub event: usize,
    /// The change.
    pub change: Change,
}

/// The disk below a running program.
#[derive(Debug)]
pub struct Disk {
    /// Names as the program sees them.
    names: BTreeMap<Arc<str>, Node>,
    /// Names that a crash leaves in any case.
    durable_names: BTreeMap<Arc<str>, Node>,
    /// Contents as the program sees them.
    contents: HashMap<FileId, Content>,
    /// Contents that a crash leaves in any case.
    durable: HashMap<FileId, Content>,
    pending: Vec<Pending>,
}

impl Disk {
    /// The disk before the first event of a log.
    pub fn new(log: &Log) -> Self {
        let mut names = BTreeMap::new();
        let mut contents = HashMap::new();
        for (path, entry) in log.start.entries() {
            let node = match entry {
                Entry::Dir => Node::Dir,
                Entry::File(content) => {
                    let file = log.files[path];
                    contents.insert(file, content.clone());
                    Node::File(file)
                }
            };
            names.insert(Arc::from(path), node);
        }
        Self {
            durable_names: names.clone(),
            names,
            durable: contents.clone(),
            contents,
            pending: Vec::new(),
        }
    }

    /// What a crash may keep or lose, oldest first.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Files and directories that a name may refer to after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<FileId> {
        let linked = self.pending.iter().filter_map(|p| match p.change {
            Change::Link { node, .. } | Change::Rename { node, .. } => Some(node),
            _ => None,
        });
        let all = self.durable_names.values().copied().chain(linked);
        all.filter_map(|node| match node {
            Node::File(file) => Some(file),
            Node::Dir => None,
        })
        .collect()
    }

    /// Carries out one event.
    pub fn apply(&mut self, index: usize, event: &Event) {
        match event {
            Event::Create { file, path } => {
                self.contents.insert(*file, Content::default());
                self.durable.insert(*file, Content::default());
                self.link(index, path, Node::File(*file));
            }
            Event::CreateDir { path } => self.link(index, path, Node::Dir),
            Event::Remove { path } => {
                self.names.remove(path);
                self.pend(index, Change::Unlink { path: path.clone() });
            }
            Event::Rename { from, to } => self.rename(index, from, to),
            Event::Write { file, offset, data } => self.write(index, *file, *offset, data),
            Event::SetLen { file, len } => {
                let content = self.contents.entry(*file).or_default();
                if content.len() != *len {
                    content.set_len(*len);
                    let (file, len) = (*file, *len);
                    self.pend(index, Change::Len { file, len });
                }
            }
            Event::Punch { file, offset, len } if *len > 0 => {
                let (file, offset, len) = (*file, *offset, *len);
                self.contents.entry(file).or_default().zero(offset, len);
                self.pend(index, Change::Zeros { file, offset, len });
            }
            Event::Punch { .. } | Event::Mark(_) => {}
            Event::Sync { file } => {
                let content = self.durable.entry(*file).or_default();
                let mut visible = content.len();
                let of_file = |p: &Pending| p.change.file() == Some(*file);
                for p in self.pending.iter().filter(|p| of_file(p)) {
                    change_content(content, &mut visible, &p.change, &Keep::Whole);
                }
                content.show(visible);
                content.hide();
                self.pending.retain(|p| !of_file(p));
            }
            Event::SyncDir { dir } => {
                let of_dir = |p: &Pending| p.change.dir() == Some(&**dir);
                for p in self.pending.iter().filter(|p| of_dir(p)) {
                    change_names(&mut self.durable_names, &p.change);
                }
                self.pending.retain(|p| !of_dir(p));
            }
            Event::Dropped { file } => {
                for p in &mut self.pending {
                    if let Change::Bytes { file: f, bytes, .. } = &mut p.change
                        && f == file
                    {
                        // The length is the file system's own and may still arrive.
                        *bytes = [].into();
                    }
                }
                self.pending.retain(|p| match &p.change {
                    Change::Bytes { bytes, extends, .. } => !bytes.is_empty() || extends.is_some(),
                    _ => true,
                });
            }
            Event::Locked { file, path, note } => {
                self.names.insert(path.clone(), Node::File(*file));
                self.durable_names.insert(path.clone(), Node::File(*file));
                self.contents.insert(*file, (&**note).into());
                self.durable.insert(*file, (&**note).into());
            }
        }
    }

    fn pend(&mut self, event: usize, change: Change) {
        self.pending.push(Pending { event, change });
    }

    fn link(&mut self, index: usize, path: &Arc<str>, node: Node) {
        self.names.insert(path.clone(), node);
        let path = path.clone();
        self.pend(index, Change::Link { path, node });
    }

    fn rename(&mut self, index: usize, from: &Arc<str>, to: &Arc<str>) {
        let Some(node) = self.names.remove(from) else {
            return;
        };
        self.names.insert(to.clone(), node);
        let (from, to) = (from.clone(), to.clone());
        if parent(&from) == parent(&to) {
            self.pend(index, Change::Rename { from, to, node });
        } else {
            self.pend(index, Change::Link { path: to, node });
            self.pend(index, Change::Unlink { path: from });
        }
    }

    fn write(&mut self, index: usize, file: FileId, offset: u64, data: &Arc<[u8]>) {
        if data.is_empty() {
            return;
        }
        let content = self.contents.entry(file).or_default();
        let before = content.len();
        content.write(offset, data);
        let first = offset / SECTOR * SECTOR;
        let end = (offset + data.len() as u64).next_multiple_of(SECTOR);
        let bytes = if first == offset && end - first == data.len() as u64 {
            data.clone()
        } else {
            let mut bytes = vec![0; (end - first) as usize];
            content.read(first, &mut bytes);
            bytes.into()
        };
        let extends = (content.len() > before).then_some(content.len());
        self.pend(
            index,
            Change::Bytes {
                file,
                offset: first,
                bytes,
                extends,
            },
        );
    }

    /// The tree that is left when of the pending changes those of `choice` survive.
    pub(super) fn image(&self, choice: &Choice) -> Image {
        let kept = || {
            let pending = self.pending.iter().zip(&choice.0);
            pending.filter(|(_, keep)| **keep != Keep::Lost)
        };
        let mut names = self.durable_names.clone();
        let mut changed: HashMap<FileId, (Content, u64)> = HashMap::new();
        for (pending, keep) in kept() {
            match pending.change.file() {
                None => change_names(&mut names, &pending.change),
                Some(file) => {
                    let (content, visible) = changed.entry(file).or_insert_with(|| {
                        let content = self.durable.get(&file).cloned().unwrap_or_default();
                        let len = content.len();
                        (content, len)
                    });
                    change_content(content, visible, &pending.change, keep);
                }
            }
        }
        for (content, visible) in changed.values_mut() {
            content.show(*visible);
            content.hide();
        }
        let mut image = Image::new();
        // In order, so a directory comes before what is in it.
        for (path, node) in &names {
            let dir = parent(path);
            if !dir.is_empty() && image.get(dir) != Some(&Entry::Dir) {
                continue;
            }
            let entry = match node {
                Node::Dir => Entry::Dir,
                Node::File(file) => {
                    let content = changed.get(file).map(|(content, _)| content);
                    let content = content.or_else(|| self.durable.get(file));
                    Entry::File(content.cloned().unwrap_or_default())
                }
            };
            image.insert(path.to_string(), entry);
        }
        image
    }
}

fn change_names(names: &mut BTreeMap<Arc<str>, Node>, change: &Change) {
    match change {
        Change::Link { path, node } => {
            names.insert(path.clone(), *node);
        }
        Change::Unlink { path } => {
            names.remove(path);
        }
        Change::Rename { from, to, node } => {
            if names.get(from) == Some(node) {
                names.remove(from);
            }
            names.insert(to.clone(), *node);
        }
        Change::Bytes { .. } | Change::Len { .. } | Change::Zeros { .. } => {}
    }
}

/// Applies the part of a change that is kept. `visible` is the length; there may be bytes beyond it until the end.
fn change_content(content: &mut Content, visible: &mut u64, change: &Change, keep: &Keep) {
    match change {
        Change::Bytes {
            offset,
            bytes,
            extends,
            ..
        } => {
            match keep {
                Keep::Lost | Keep::LengthOnly => {}
                Keep::Whole | Keep::DataOnly => content.put(*offset, bytes),
                Keep::Torn { sectors, .. } => {
                    let pieces = bytes.chunks(SECTOR as usize).zip(sectors).enumerate();
                    for (index, (piece, _)) in pieces.filter(|(_, (_, kept))| **kept) {
                        content.put(offset + index as u64 * SECTOR, piece);
                    }
                }
            }
            let len = match keep {
                Keep::Lost | Keep::DataOnly => None,
                Keep::Whole | Keep::LengthOnly => *extends,
                Keep::Torn { length, .. } => *length,
            };
            *visible = (*visible).max(len.unwrap_or(0));
        }
        Change::Len { len, .. } => {
            if *len < *visible {
                content.zero(*len, u64::MAX - len);
            }
            *visible = *len;
        }
        Change::Zeros { offset, len, .. } => content.zero(*offset, *len),
        Change::Link { .. } | Change::Unlink { .. } | Change::Rename { .. } => {}
    }
}
