//! Which names there are after some steps: enough to know what a step needs before it applies.
//!
//! It deliberately does not know contents; a room is the judge of those.

use std::collections::BTreeMap;

use storage::parent;

use super::step::Step;

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Link,
}

/// The names, as a workload leaves them, with the lengths of the files and their extended attributes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    kinds: BTreeMap<String, Kind>,
    sizes: BTreeMap<String, u64>,
    xattrs: BTreeMap<String, Vec<String>>,
    held: bool,
}

impl Names {
    pub(crate) fn kind(&self, path: &str) -> Option<Kind> {
        if path.is_empty() || path == "." {
            return Some(Kind::Dir);
        }
        self.kinds.get(path).copied()
    }

    pub(crate) fn size(&self, path: &str) -> u64 {
        self.sizes.get(path).copied().unwrap_or(0)
    }

    pub(crate) fn has_xattr(&self, path: &str, name: &str) -> bool {
        self.xattrs
            .get(path)
            .is_some_and(|names| names.iter().any(|n| n == name))
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<&String> {
        self.kinds
            .iter()
            .filter(|(_, k)| **k == kind)
            .map(|(p, _)| p)
            .collect()
    }

    fn is_empty_dir(&self, path: &str) -> bool {
        !self.kinds.keys().any(|p| parent(p) == path)
    }

    /// What must be done first so that a step applies; `None` where it never will.
    pub(crate) fn needs(&self, step: &Step) -> Option<Vec<Step>> {
        let mut names = self.clone();
        let mut before = Vec::new();
        // Each turn repairs one thing.
        for _ in 0..12 {
            match names.lacks(step) {
                Lack::Nothing => return Some(before),
                Lack::Never => return None,
                Lack::First(first) => {
                    names.apply(&first);
                    before.push(first);
                }
            }
        }
        None
    }

    fn absent(&self, path: &str) -> Lack {
        match self.kind(path) {
            None => self.dir(parent(path)),
            Some(Kind::Dir) if !self.is_empty_dir(path) => Lack::Never,
            Some(Kind::Dir) => Lack::First(Step::Rmdir(path.into())),
            Some(_) => Lack::First(Step::Unlink(path.into())),
        }
    }

    fn dir(&self, path: &str) -> Lack {
        match self.kind(path) {
            Some(Kind::Dir) => Lack::Nothing,
            Some(_) => Lack::First(Step::Unlink(path.into())),
            None => match self.dir(parent(path)) {
                Lack::Nothing => Lack::First(Step::Mkdir(path.into())),
                other => other,
            },
        }
    }

    fn file(&self, path: &str, size: u64) -> Lack {
        match self.kind(path) {
            Some(Kind::File) if self.size(path) < size => {
                let len = size - self.size(path);
                Lack::First(Step::Append(path.into(), len))
            }
            Some(Kind::File) => Lack::Nothing,
            Some(_) => self.absent(path),
            None => self
                .dir(parent(path))
                .or(|| Lack::First(Step::Create(path.into()))),
        }
    }

    fn lacks(&self, step: &Step) -> Lack {
        match step {
            Step::Create(p) | Step::Mkdir(p) | Step::Symlink(p, _) | Step::Tmpfile(p, _) => {
                self.absent(p)
            }
            Step::Rmdir(p) => match self.kind(p) {
                Some(Kind::Dir) => match self.kinds.iter().find(|(q, _)| parent(q) == p) {
                    Some((q, Kind::Dir)) => Lack::First(Step::Rmdir(q.clone())),
                    Some((q, _)) => Lack::First(Step::Unlink(q.clone())),
                    None => Lack::Nothing,
                },
                Some(_) => self.absent(p),
                None => self.dir(p),
            },
            Step::Unlink(p) | Step::Hold(p) => match self.kind(p) {
                Some(Kind::Link) => Lack::Nothing,
                _ => self.file(p, 0),
            },
            Step::Link(p, q) => self.file(p, 0).or(|| self.absent(q)),
            Step::Rename(p, q) | Step::Exchange(p, q) => {
                let swap = matches!(step, Step::Exchange(..));
                let source = match self.kind(p) {
                    Some(_) => Lack::Nothing,
                    None => self.file(p, 0),
                };
                source.or(|| self.dir(parent(q))).or(|| {
                    let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                    if below(q, p) || (swap && below(p, q)) {
                        return Lack::Never;
                    }
                    match (self.kind(p), self.kind(q)) {
                        (_, None) if swap => self.file(q, 0),
                        (_, Some(_)) if swap => Lack::Nothing,
                        (_, None) => Lack::Nothing,
                        (Some(Kind::Dir), Some(Kind::Dir)) if !self.is_empty_dir(q) => Lack::Never,
                        (Some(Kind::Dir), Some(Kind::Dir)) => Lack::Nothing,
                        (Some(Kind::Dir), Some(_)) | (Some(_), Some(Kind::Dir)) => self.absent(q),
                        _ => Lack::Nothing,
                    }
                })
            }
            Step::Write(p, ..)
            | Step::Mmap(p, ..)
            | Step::Append(p, _)
            | Step::Fsync(p)
            | Step::Fdatasync(p) => self.file(p, 0),
            Step::Truncate(p, _) => self.file(p, 0),
            Step::Fallocate(p, what, at, len) => self.file(
                p,
                match what {
                    room::Fallocate::Collapse => at + len + 1,
                    room::Fallocate::Insert => at + 1,
                    _ => 0,
                },
            ),
            Step::Copy(p, at, q, _, len) => self.file(p, at + len).or(|| self.file(q, 0)),
            Step::SetXattr(p, ..) | Step::Chmod(p, _) | Step::Chown(p, _) | Step::Times(p, _) => {
                match self.kind(p) {
                    Some(_) => Lack::Nothing,
                    None => self.file(p, 0),
                }
            }
            Step::RemoveXattr(p, name) => {
                if self.has_xattr(p, name) {
                    Lack::Nothing
                } else {
                    match self.kind(p) {
                        Some(_) => Lack::First(Step::SetXattr(p.clone(), name.clone(), 40)),
                        None => self.file(p, 0),
                    }
                }
            }
            Step::Restore(_, _, p) => self.file(p, 0),
            Step::WriteHeld(..) if !self.held => Lack::Never,
            Step::SyncDir(p) => self.dir(p),
            _ => Lack::Nothing,
        }
    }

    /// Does a step that applies.
    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Create(p) => self.make(p, Kind::File, 0),
            Step::Tmpfile(p, len) => self.make(p, Kind::File, *len),
            Step::Mkdir(p) => self.make(p, Kind::Dir, 0),
            Step::Symlink(p, _) => self.make(p, Kind::Link, 0),
            Step::Rmdir(p) | Step::Unlink(p) => self.forget(p),
            Step::Link(p, q) => {
                let size = self.size(p);
                self.make(q, Kind::File, size);
                if let Some(x) = self.xattrs.get(p).cloned() {
                    self.xattrs.insert(q.clone(), x);
                }
            }
            Step::Rename(p, q) if p != q => {
                self.forget(q);
                self.relocate(p, q);
            }
            Step::Exchange(p, q) if p != q => {
                self.relocate(p, "\u{1}");
                self.relocate(q, p);
                self.relocate("\u{1}", q);
            }
            Step::Write(p, at, len) | Step::Mmap(p, at, len) => self.grow(p, at + len),
            Step::Append(p, len) => self.grow(p, self.size(p) + len),
            Step::Truncate(p, len) => {
                self.sizes.insert(p.clone(), *len);
            }
            Step::Fallocate(p, what, at, len) => match what {
                room::Fallocate::Allocate { keep_size: false }
                | room::Fallocate::ZeroRange { keep_size: false } => self.grow(p, at + len),
                room::Fallocate::Collapse => {
                    self.sizes
                        .insert(p.clone(), self.size(p).saturating_sub(*len));
                }
                room::Fallocate::Insert => {
                    self.sizes.insert(p.clone(), self.size(p) + len);
                }
                _ => {}
            },
            Step::Copy(_, _, q, to, len) => self.grow(q, to + len),
            Step::SetXattr(p, name, _) => {
                self.xattrs.entry(p.clone()).or_default().push(name.clone());
            }
            Step::RemoveXattr(p, name) => {
                if let Some(names) = self.xattrs.get_mut(p) {
                    names.retain(|n| n != name);
                }
            }
            Step::Hold(_) => self.held = true,
            Step::Release | Step::Reopen | Step::Close | Step::RestoreHeader => self.held = false,
            _ => {}
        }
    }

    fn make(&mut self, path: &str, kind: Kind, size: u64) {
        self.kinds.insert(path.to_owned(), kind);
        self.sizes.insert(path.to_owned(), size);
    }

    fn grow(&mut self, path: &str, size: u64) {
        let size = size.max(self.size(path));
        self.sizes.insert(path.to_owned(), size);
    }

    fn forget(&mut self, path: &str) {
        self.kinds.remove(path);
        self.sizes.remove(path);
        self.xattrs.remove(path);
    }

    fn relocate(&mut self, from: &str, to: &str) {
        fn turn<T: Clone>(map: &mut BTreeMap<String, T>, from: &str, to: &str) {
            let below = format!("{from}/");
            let moved: Vec<String> = map
                .keys()
                .filter(|p| *p == from || p.starts_with(&below))
                .cloned()
                .collect();
            for path in moved {
                if let Some(value) = map.remove(&path) {
                    map.insert(format!("{to}{}", &path[from.len()..]), value);
                }
            }
        }
        turn(&mut self.kinds, from, to);
        turn(&mut self.sizes, from, to);
        turn(&mut self.xattrs, from, to);
    }
}

/// Why a step does not apply yet.
enum Lack {
    Nothing,
    First(Step),
    Never,
}

impl Lack {
    fn or(self, then: impl FnOnce() -> Lack) -> Lack {
        match self {
            Lack::Nothing => then(),
            other => other,
        }
    }
}
