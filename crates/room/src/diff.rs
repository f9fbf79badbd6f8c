//! What differs between two moments of one file system.
//!
//! 1. A file is the same one if its inode number is: numbers are never used again.
//! 2. A file that has another path only because a directory above it has is not reported: the directory is.
//! 3. Every name that one moment has and the other lacks is reported once, as added, removed, or renamed. Another file of the same kind
//!    under the same path counts as the same one changed, as editors and `cp` replace files.
//! 4. A regular file is taken as unchanged only if its change time is the same, and well before either moment, or if its size,
//!    modification time and every byte are.
//!
//! It deliberately does not know how a past moment is kept: it walks both.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{Error, FileKind, FileSystem, Inode, InodeNo, Result};

/// How many names are read from a directory at once.
const LIST_BATCH: usize = 1024;
/// Bytes compared at once.
const PIECE: usize = 1 << 20;
/// Longer than a tick of any clock, in seconds.
const TICK: i64 = 1;

/// One moment of the file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'f> {
    /// The file system as it was, or is.
    pub(crate) files: &'f dyn FileSystem,
    /// When it was, in seconds.
    pub(crate) taken: i64,
    /// Whether it is the present, which changes while it is walked.
    pub(crate) is_now: bool,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The path is new.
    Added,
    /// The path is gone.
    Removed,
    /// The same file has another path.
    Renamed {
        /// Its earlier path.
        from: PathBuf,
    },
    /// Its data, or when that was modified.
    Contents,
    /// Mode, owner, extended attributes or flags only.
    Attributes,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What became of the file.
    pub what: What,
    /// Its path: the later one, if there is a later one.
    pub path: PathBuf,
    /// The kind of file.
    pub kind: FileKind,
    /// Length in bytes at the earlier moment, of a regular file that was there.
    pub before: Option<u64>,
    /// Length in bytes at the later moment, likewise.
    pub after: Option<u64>,
}

/// All differences, by path. `go_on`: asked now and then; false ends the walk with `Interrupted`.
pub(crate) fn diff(
    earlier: Moment<'_>,
    later: Moment<'_>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<Change>> {
    let mut diff = Diff {
        earlier,
        later,
        go_on,
        changes: Vec::new(),
        compared: HashSet::new(),
    };
    let (gone, new) = diff.same_places()?;
    diff.moves(gone, new)?;
    let mut changes = diff.changes;
    changes.sort_unstable_by(|a, b| (&a.path, &a.what).cmp(&(&b.path, &b.what)));
    Ok(changes)
}

struct Diff<'d> {
    earlier: Moment<'d>,
    later: Moment<'d>,
    go_on: &'d dyn Fn() -> bool,
    changes: Vec<Change>,
    /// Files with several names that were compared already.
    compared: HashSet<InodeNo>,
}

/// A name that only one of the moments has at its place.
struct Node {
    parent: InodeNo,
    path: PathBuf,
    inode: Inode,
}

impl Node {
    /// Whether both are the same name of the same file, in a directory that may have moved.
    fn is_same_name(&self, other: &Node) -> bool {
        self.parent == other.parent && self.path.file_name() == other.path.file_name()
    }
}

impl Diff<'_> {
    /// Walks the directories that are in one place at both moments. Returns the names that only the earlier one has, and those that
    /// only the later one has, without what is below them.
    fn same_places(&mut self) -> Result<(Vec<Node>, Vec<Node>)> {
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        let root = |moment: Moment<'_>| moment.files.attributes(InodeNo::ROOT);
        let (before, after) = (root(self.earlier)?, root(self.later)?);
        self.compare(&before, &after, Path::new("/"))?;
        let mut left = vec![(InodeNo::ROOT, PathBuf::from("/"))];
        while let Some((dir, path)) = left.pop() {
            let mut before: HashMap<_, _> = self
                .names(self.earlier, dir, &path)?
                .into_iter()
                .map(|node| (node.path.clone(), node))
                .collect();
            for after in self.names(self.later, dir, &path)? {
                match before.remove(&after.path) {
                    Some(before) if before.inode.no == after.inode.no => {
                        self.compare(&before.inode, &after.inode, &after.path)?;
                        if after.inode.kind == FileKind::Directory {
                            left.push((after.inode.no, after.path));
                        }
                    }
                    other => {
                        gone.extend(other);
                        new.push(after);
                    }
                }
            }
            gone.extend(before.into_values());
        }
        Ok((gone, new))
    }

    /// Finds out which of the names that are gone are now elsewhere.
    fn moves(&mut self, gone: Vec<Node>, new: Vec<Node>) -> Result<()> {
        let mut gone = self.with_below(self.earlier, gone)?;
        let mut new = self.with_below(self.later, new)?;
        gone.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        new.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut by_number: HashMap<InodeNo, Vec<Node>> = HashMap::new();
        for node in gone {
            by_number.entry(node.inode.no).or_default().push(node);
        }
        // First the names that moved with their directory, so that none of them is taken for the earlier name of another.
        let mut rest = Vec::new();
        for after in new {
            let earlier = by_number.entry(after.inode.no).or_default();
            match earlier.iter().position(|node| node.is_same_name(&after)) {
                Some(at) => {
                    let before = earlier.remove(at);
                    self.compare(&before.inode, &after.inode, &after.path)?;
                }
                None => rest.push(after),
            }
        }
        let mut added = Vec::new();
        for after in rest {
            let earlier = by_number.entry(after.inode.no).or_default();
            if earlier.is_empty() {
                added.push(after);
                continue;
            }
            let before = earlier.remove(0);
            let what = What::Renamed { from: before.path };
            let path = after.path.clone();
            self.report(what, Some(&before.inode), Some(&after.inode), path);
            self.compare(&before.inode, &after.inode, &after.path)?;
        }
        let removed = by_number.into_values().flatten();
        let mut removed: HashMap<_, _> = removed.map(|node| (node.path.clone(), node)).collect();
        for after in added {
            match removed.remove(&after.path) {
                Some(before) if before.inode.kind == after.inode.kind => {
                    self.compare_all(&before.inode, &after.inode, &after.path)?;
                }
                other => {
                    if let Some(before) = other {
                        self.report(What::Removed, Some(&before.inode), None, before.path);
                    }
                    self.report(What::Added, None, Some(&after.inode), after.path);
                }
            }
        }
        for node in removed.into_values() {
            self.report(What::Removed, Some(&node.inode), None, node.path);
        }
        Ok(())
    }

    /// The names, and everything below them.
    fn with_below(&self, moment: Moment<'_>, mut nodes: Vec<Node>) -> Result<Vec<Node>> {
        let mut next = 0;
        while let Some(node) = nodes.get(next) {
            if node.inode.kind == FileKind::Directory {
                let below = self.names(moment, node.inode.no, &node.path)?;
                nodes.extend(below);
            }
            next += 1;
        }
        Ok(nodes)
    }

    fn names(&self, moment: Moment<'_>, dir: InodeNo, path: &Path) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        let mut after = 0;
        loop {
            if !(self.go_on)() {
                return Err(Error::Interrupted);
            }
            let batch = match moment.files.read_dir(dir, after, LIST_BATCH) {
                // Removed since its own directory was read.
                Err(Error::NotFound) if moment.is_now => return Ok(nodes),
                other => other?,
            };
            let Some((last, _)) = batch.last() else {
                return Ok(nodes);
            };
            after = last.cookie;
            nodes.extend(batch.into_iter().map(|(entry, inode)| Node {
                parent: dir,
                path: path.join(OsStr::from_bytes(&entry.name)),
                inode,
            }));
        }
    }

    /// Reports what changed of a file that is there at both moments.
    fn compare(&mut self, before: &Inode, after: &Inode, path: &Path) -> Result<()> {
        // Clocks have ticks: of two changes in one, one can be before and one after the moment.
        let settled = self.earlier.taken.min(self.later.taken) - TICK;
        if before.ctime == after.ctime && after.ctime.secs < settled
            || after.nlink > 1 && !self.compared.insert(after.no)
        {
            return Ok(());
        }
        self.compare_all(before, after, path)
    }

    fn compare_all(&mut self, before: &Inode, after: &Inode, path: &Path) -> Result<()> {
        let what = if self.has_other_contents(before, after)? {
            What::Contents
        } else if self.has_other_attributes(before, after)? {
            What::Attributes
        } else {
            return Ok(());
        };
        self.report(what, Some(before), Some(after), path.to_owned());
        Ok(())
    }

    fn has_other_contents(&self, before: &Inode, after: &Inode) -> Result<bool> {
        if after.kind != FileKind::Regular {
            return Ok((&before.target, before.rdev) != (&after.target, after.rdev));
        }
        if (before.size, before.mtime) != (after.size, after.mtime) {
            return Ok(true);
        }
        // Written to, and then given its old time again: or something else that moves the change time.
        let (mut ours, mut theirs) = (vec![0; PIECE], vec![0; PIECE]);
        let mut at = 0;
        while at < after.size {
            if !(self.go_on)() {
                return Err(Error::Interrupted);
            }
            let len = self.earlier.files.read(before.no, at, &mut ours)?;
            let other = match self.later.files.read(after.no, at, &mut theirs) {
                Err(Error::NotFound) if self.later.is_now => return Ok(true),
                other => other?,
            };
            if ours[..len] != theirs[..other] {
                return Ok(true);
            }
            if len == 0 {
                break;
            }
            at += len as u64;
        }
        Ok(false)
    }

    fn has_other_attributes(&self, before: &Inode, after: &Inode) -> Result<bool> {
        let own = |inode: &Inode| (inode.mode, inode.uid, inode.gid, inode.flags);
        if own(before) != own(after) {
            return Ok(true);
        }
        if !before.has_xattrs && !after.has_xattrs {
            return Ok(false);
        }
        let all = |moment: Moment<'_>, no: InodeNo| {
            let mut names = moment.files.xattr_names(no)?;
            names.sort_unstable();
            let with_value = names.into_iter().map(|name| {
                let value = moment.files.xattr(no, &name)?;
                Ok((name, value))
            });
            with_value.collect::<Result<Vec<_>>>()
        };
        let later = match all(self.later, after.no) {
            Err(Error::NotFound | Error::NoXattr) if self.later.is_now => return Ok(true),
            other => other?,
        };
        Ok(all(self.earlier, before.no)? != later)
    }

    fn report(&mut self, what: What, before: Option<&Inode>, after: Option<&Inode>, path: PathBuf) {
        let Some(kind) = after.or(before).map(|inode| inode.kind) else {
            return;
        };
        let len = |inode: Option<&Inode>| {
            inode
                .filter(|inode| inode.kind == FileKind::Regular)
                .map(|inode| inode.size)
        };
        self.changes.push(Change {
            what,
            path,
            kind,
            before: len(before),
            after: len(after),
        });
    }
}
