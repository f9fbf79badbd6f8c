//! Copies and moves between trees that change meanwhile, or that take two names for one.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;

use rustix::io::Errno;

use super::*;
use crate::commands::rm::remove_tree;
use crate::confinement::Confinement;
use crate::tree::{self, Attrs, HostTree};

const QUIET: Global = Global {
    json: false,
    verbose: 0,
    quiet: true,
    confinement: Confinement::Auto,
};

/// A tree whose files are changed while they are read.
struct Changing<'c> {
    tree: HostTree,
    change: &'c dyn Fn(),
}

struct ChangingFile<'c> {
    file: Box<dyn ReadFile + 'c>,
    change: &'c dyn Fn(),
}

impl Source for Changing<'_> {
    fn stat(&self, path: &Path, follow: bool) -> tree::Result<Meta> {
        self.tree.stat(path, follow)
    }
    fn list(&self, path: &Path) -> tree::Result<Vec<(OsString, Meta)>> {
        self.tree.list(path)
    }
    fn read_link(&self, path: &Path) -> tree::Result<OsString> {
        self.tree.read_link(path)
    }
    fn open<'a>(&'a self, path: &Path) -> tree::Result<Box<dyn ReadFile + 'a>> {
        Ok(Box::new(ChangingFile {
            file: self.tree.open(path)?,
            change: self.change,
        }))
    }
    fn xattrs(&self, path: &Path) -> tree::Result<Vec<(OsString, Vec<u8>)>> {
        self.tree.xattrs(path)
    }
}

impl ReadFile for ChangingFile<'_> {
    fn meta(&self) -> tree::Result<Meta> {
        self.file.meta()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> tree::Result<usize> {
        let read = self.file.read_at(buf, offset);
        (self.change)();
        read
    }
    fn next_data(&self, offset: u64) -> tree::Result<Option<(u64, u64)>> {
        self.file.next_data(offset)
    }
}

/// Moves `from` to `to`, or copies it only, while `change` changes it. Whether all of it was copied, and what was not removed.
fn moved(from: &Path, to: &Path, moves: bool, change: &dyn Fn()) -> (bool, Failures) {
    let bar = Bar::counting("moving", &QUIET);
    let source = Changing {
        tree: HostTree::with_top(from),
        change,
    };
    let target = HostTree::with_top(to);
    let mut copier = Copier {
        moved: moves.then(Moved::default),
        ..Copier::new(
            (&source, String::new()),
            &target,
            Existing::Replace,
            &QUIET,
            &bar,
        )
    };
    let meta = source.stat(from, true).unwrap();
    copier.copy(from, &meta, to).unwrap();
    let is_whole = !copier.failures.any();
    let mut left = Failures::default();
    if moves && is_whole {
        let only = copier.moved.as_ref();
        let place = (from, "from");
        remove_tree(&source.tree, place, &meta, only, &mut left, &QUIET, &bar).unwrap();
    }
    (is_whole, left)
}

/// What failed: the last file of a copy that was stopped in the middle of it counted as a failure, with exit code 1; a restore said that
/// the snapshot cannot be read.
#[test]
fn a_copy_that_is_stopped_in_its_last_file_was_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::write(&from, vec![1; 2 * PIECE]).unwrap();
    let bar = Bar::counting("copying", &QUIET);
    let source = Changing {
        tree: HostTree::with_top(&from),
        change: &|| bar.stop(),
    };
    let target = HostTree::with_top(&to);
    let name = String::new();
    let mut copier = Copier::new((&source, name), &target, Existing::Replace, &QUIET, &bar);
    let meta = source.stat(&from, true).unwrap();
    let stopped = copier.copy(&from, &meta, &to).unwrap_err();
    assert_eq!(stopped.exit(), crate::exit::Exit::Interrupted);
    assert!(!copier.failures.any() && !to.exists());
}

#[test]
fn what_is_changed_while_it_is_moved_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("a"), "before").unwrap();
    let append = || fs::write(from.join("a"), "before and after").unwrap();
    let (is_whole, _) = moved(&from, &to, true, &append);
    assert!(!is_whole);
    assert!(!to.join("a").exists());

    // A copy has what was appended meanwhile, and is none the worse for it.
    fs::write(from.join("a"), "before").unwrap();
    let (is_whole, _) = moved(&from, &to, false, &append);
    assert!(is_whole);
    assert_eq!(
        fs::read_to_string(to.join("a")).unwrap(),
        "before and after"
    );

    // What came after its directory was listed stays.
    let new = from.join("new");
    let add = || {
        if !new.exists() {
            fs::write(&new, "never copied").unwrap();
        }
    };
    let (is_whole, left) = moved(&from, &to, true, &add);
    assert!(is_whole && left.any());
    assert_eq!(fs::read_to_string(&new).unwrap(), "never copied");
    assert_eq!(fs::read_dir(&from).unwrap().count(), 1);
    assert!(to.join("sub").is_dir());
}

/// A directory of a file system that takes some names for one, as FAT does.
struct Careless {
    tree: HostTree,
    /// What it makes of a name.
    spelling: fn(&str) -> String,
    /// Added to the number of every file, and changed with every new one: what is not in memory any more gets another.
    numbers: Option<Cell<u64>>,
    /// Nothing can be looked at.
    is_blind: Cell<bool>,
}

impl Careless {
    fn new(top: &Path) -> Self {
        Self {
            tree: HostTree::with_top(top),
            spelling: str::to_lowercase,
            numbers: None,
            is_blind: Cell::default(),
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.with_file_name((self.spelling)(name))
    }
}

impl Source for Careless {
    fn stat(&self, path: &Path, follow: bool) -> tree::Result<Meta> {
        if self.is_blind.get() {
            return Err(Fault::Host(Errno::IO.into()));
        }
        let mut meta = self.tree.stat(&self.at(path), follow)?;
        meta.id.1 += self.numbers.as_ref().map_or(0, Cell::get);
        Ok(meta)
    }
    fn list(&self, path: &Path) -> tree::Result<Vec<(OsString, Meta)>> {
        self.tree.list(path)
    }
    fn read_link(&self, path: &Path) -> tree::Result<OsString> {
        self.tree.read_link(&self.at(path))
    }
    fn open<'a>(&'a self, path: &Path) -> tree::Result<Box<dyn ReadFile + 'a>> {
        self.tree.open(&self.at(path))
    }
    fn xattrs(&self, path: &Path) -> tree::Result<Vec<(OsString, Vec<u8>)>> {
        self.tree.xattrs(&self.at(path))
    }
}

impl Tree for Careless {
    fn create<'a>(&'a self, path: &Path) -> tree::Result<Box<dyn OpenFile + 'a>> {
        if let Some(numbers) = &self.numbers {
            numbers.set(numbers.get() + 1_000_000);
        }
        self.tree.create(&self.at(path))
    }
    fn make_dir(&self, path: &Path, mode: u16) -> tree::Result<()> {
        self.tree.make_dir(&self.at(path), mode)
    }
    fn symlink(&self, target: &OsString, path: &Path) -> tree::Result<()> {
        self.tree.symlink(target, &self.at(path))
    }
    fn hard_link(&self, from: &Path, to: &Path) -> tree::Result<()> {
        self.tree.hard_link(&self.at(from), &self.at(to))
    }
    fn make_node(&self, path: &Path, kind: FileKind, mode: u16, rdev: u64) -> tree::Result<()> {
        self.tree.make_node(&self.at(path), kind, mode, rdev)
    }
    fn remove_file(&self, path: &Path) -> tree::Result<()> {
        self.tree.remove_file(&self.at(path))
    }
    fn remove_dir(&self, path: &Path) -> tree::Result<()> {
        self.tree.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> tree::Result<()> {
        self.tree.rename(&self.at(from), &self.at(to), mode)
    }
    fn set_attrs(&self, path: &Path, attrs: &Attrs) -> tree::Result<()> {
        self.tree.set_attrs(&self.at(path), attrs)
    }
    fn set_xattr(&self, path: &Path, name: &OsString, value: &[u8]) -> tree::Result<()> {
        self.tree.set_xattr(&self.at(path), name, value)
    }
    fn remove_xattr(&self, path: &Path, name: &OsString) -> tree::Result<()> {
        self.tree.remove_xattr(&self.at(path), name)
    }
    fn sync(&self) -> tree::Result<()> {
        Ok(())
    }
}

/// `mv` of a directory to a USB stick removed both, and one was left.
#[test]
fn of_two_files_that_have_one_name_at_the_target_the_second_is_not_copied() {
    let with_accents_apart = |name: &str| name.replace('é', "e\u{301}");
    for (names, spelling, numbers) in [
        (["A", "a"], str::to_lowercase as fn(&str) -> String, Some(0)),
        (["A", "a"], str::to_lowercase, None),
        (["e\u{301}", "é"], with_accents_apart, None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for made in [&from, &to] {
            fs::create_dir(made).unwrap();
        }
        for name in names.iter().chain(&["b"]) {
            fs::write(from.join(name), name).unwrap();
        }
        // What was there before is replaced, as always.
        fs::write(to.join("b"), "before").unwrap();
        let target = Careless {
            spelling,
            numbers: numbers.map(Cell::new),
            ..Careless::new(&to)
        };
        let source = HostTree::with_top(&from);
        let bar = Bar::counting("moving", &QUIET);
        let mut copier = Copier {
            moved: Some(Moved::default()),
            made: Some(Made::default()),
            ..Copier::new(
                (&source, String::new()),
                &target,
                Existing::Replace,
                &QUIET,
                &bar,
            )
        };
        let meta = source.stat(&from, true).unwrap();
        copier.copy(&from, &meta, &to).unwrap();
        assert!(copier.failures.any(), "{names:?}");
        let read = |name: &str| fs::read_to_string(to.join(spelling(name))).unwrap();
        assert_eq!((read(names[0]).as_str(), &*read("b")), (names[0], "b"));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
    }
}

/// It was removed unseen.
#[test]
fn what_cannot_be_looked_at_any_more_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("f"), "never copied").unwrap();
    let tree = Careless::new(&from);
    let meta = tree.stat(&from, true).unwrap();
    tree.is_blind.set(true);
    let mut failures = Failures::default();
    let bar = Bar::counting("moving", &QUIET);
    let (place, none) = ((&*from, "from"), Moved::default());
    remove_tree(
        &tree,
        place,
        &meta,
        Some(&none),
        &mut failures,
        &QUIET,
        &bar,
    )
    .unwrap();
    assert!(failures.any());
    assert_eq!(fs::read_to_string(from.join("f")).unwrap(), "never copied");
}
