//! `strongroom snapshot restore`: puts a file, a directory or the whole room back as it was in a snapshot.
//!
//! 1. Before anything is changed, a snapshot of the room as it is now is created: a restore can be undone.
//! 2. The copy is made whole under another name first. If any of it cannot be made, it is removed, and nothing else was changed.
//! 3. The copy and what it replaces change places in one step; then what was replaced is removed. The whole room is the exception:
//!    its names change places one after the other, in one transaction where this process has the room open. If one of them cannot, all
//!    go back.
//! 4. What programs changed at the target through a mount, while the copy was made, is in a snapshot of its own before it is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use room::{FileKind, RenameMode};
use serde_json::json;

use super::{InRoom, Reached, have_put_back};
use crate::access::{Access, Intent};
use crate::args::Global;
use crate::commands::metadata::admin::Version;
use crate::commands::rm::remove_tree;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::copy::Copier;
use crate::copy::give::{self, Kept};
use crate::copy::place::Existing;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::path_from_hex;
use crate::output::{self, Failures};
use crate::place::{RoomPath, path_in};
use crate::progress::Bar;
use crate::tree::{self, Fault, FileId, Meta, Source, Tree};

pub(super) const HELP: &str = "Contents, holes, mode, owner, times, extended attributes, ACLs, and hard links within a directory are those of \
the snapshot. What is there now is replaced as a whole, in one step. First a snapshot before-restore-TIME is created: restore from \
that one to undo it.\n\nExamples:\n  strongroom snapshot restore work.strongroom monday /papers/letter.txt\n  strongroom snapshot restore \
work.strongroom monday /papers --to /papers-of-monday";

pub(super) fn run(
    room: &InRoom,
    name: &str,
    path: &OsStr,
    to: Option<&OsStr>,
    global: &Global,
) -> Result<()> {
    let from = path_in(&room.room, Some(name), path)?;
    let to = path_in(&room.room, None, to.unwrap_or(path))?;
    let reached = room.reach(Intent::Change)?;
    let bar = Bar::counting("restoring", global);
    let done = match &reached {
        Reached::Alone(access) => restored(access, &from, &to, true, global, &bar),
        Reached::Served(dir) => restored_by_server(dir, name, &from, &to, &bar),
        Reached::Remote(server) => Err(server.refusal()),
    };
    bar.end();
    if let Err(error) = &done {
        reached.advise_when_full(&room.room, error, global);
    }
    let closed = reached.close();
    let done = done?;
    closed?;
    if global.json {
        let mut line = json!({"files": done.files, "bytes": done.bytes, "before": done.before});
        if let Some((snapshot, path)) = &done.meanwhile {
            line["meanwhile"] = json!({"snapshot": snapshot, "path": path.to_string_lossy()});
        }
        if done.readable {
            line["revoked"] = false.into();
        }
        output::json_line(&line);
    } else {
        output::note(
            global,
            format!(
                "{} restored. The room as it was before is the snapshot {}.",
                output::count(done.files, "file"),
                done.before
            ),
        );
    }
    if let Some((snapshot, path)) = &done.meanwhile {
        output::note(
            global,
            format!(
                "Files were changed while the copy was made. As they were then they are in the snapshot {snapshot}, below {}.",
                output::shown_path(path)
            ),
        );
    }
    if done.readable {
        output::note(
            global,
            "A disk cannot be reached: clients that read there what was replaced can do so until it answers, or their capabilities end.",
        );
    }
    if done.owners_lost > 0 {
        output::note(
            global,
            format!(
                "{} could not be given their owner by this user.",
                output::count(done.owners_lost, "file")
            ),
        );
    }
    done.failures.end()
}

/// What was done.
#[derive(Default)]
struct Done {
    /// The snapshot of the room before; empty where nothing may be replaced.
    before: String,
    files: u64,
    bytes: u64,
    owners_lost: u64,
    /// The snapshot of what was changed while the copy was made, and where that is in it.
    meanwhile: Option<(String, PathBuf)>,
    /// A disk does not answer that could revoke the right to read what was replaced.
    readable: bool,
    /// What of the replaced files could not be removed.
    failures: Failures,
}

/// Has the metadata server do it.
fn restored_by_server(
    dir: &Path,
    name: &str,
    from: &RoomPath,
    to: &RoomPath,
    bar: &Bar,
) -> Result<Done> {
    let done = have_put_back(dir, from, to, Version::Of(name.to_owned()), bar)?;
    let meanwhile = done.meanwhile.map(|(snapshot, path)| {
        let path = path_from_hex(&path)?;
        Ok::<_, Error>((snapshot, path))
    });
    Ok(Done {
        before: done.before.unwrap_or_default(),
        files: done.files,
        bytes: done.bytes,
        meanwhile: meanwhile.transpose()?,
        readable: !done.revoked,
        ..Done::default()
    })
}

/// What was put back where nothing was.
pub(in crate::commands) struct PutBack {
    pub(in crate::commands) files: u64,
    pub(in crate::commands) bytes: u64,
}

/// Puts a file or directory of a snapshot back where nothing is. What is there is never replaced: an error then.
pub(in crate::commands) fn put_back(
    access: &Access,
    from: &RoomPath,
    to: &RoomPath,
    global: &Global,
    bar: &Bar,
) -> Result<PutBack> {
    let Done { files, bytes, .. } = restored(access, from, to, false, global, bar)?;
    Ok(PutBack { files, bytes })
}

fn restored(
    access: &Access,
    from: &RoomPath,
    to: &RoomPath,
    may_replace: bool,
    global: &Global,
    bar: &Bar,
) -> Result<Done> {
    let source = access.source(from.snapshot.as_deref())?;
    let tree = access.tree()?;
    let meta = source
        .stat(&from.path, from.must_be_directory)
        .map_err(|fault| from.failed(fault))?;
    if from.must_be_directory && meta.kind != FileKind::Directory {
        return Err(from.failed(Fault::Refused("not a directory".into())));
    }
    // The root is always there.
    let is_whole = may_replace && to.path == Path::new("/");
    if is_whole && meta.kind != FileKind::Directory {
        return Err(Error::usage(format!(
            "{}: only a directory can take the place of a room's root",
            from.words()
        )));
    }
    let parent = to.path.parent().unwrap_or(Path::new("/"));
    if from.path != to.path {
        must_be_directory(&*tree, to, parent)?;
    }
    let mut done = Done::default();
    if may_replace {
        access.fetch_written();
        done.before = snapshot(access, &Request::SnapshotBeforeRestore {})?;
    }
    bar.expect(bar.survey(&*source, &from.path, &meta).stored);
    let mut restore = Restore {
        access,
        source: &*source,
        tree: &*tree,
        from,
        to,
        global,
        bar,
        may_replace,
        done,
    };
    if is_whole {
        restore.whole(&meta)?;
    } else {
        restore.one(&meta)?;
    }
    tree.sync().map_err(|fault| to.failed(fault))?;
    Ok(restore.done)
}

/// Has a snapshot created, and returns its name.
fn snapshot(access: &Access, request: &Request) -> Result<String> {
    match access.run(request, &|_, _| true)? {
        Reply::Snapshot(snapshot) => Ok(snapshot.name),
        _ => Err(unexpected()),
    }
}

fn must_be_directory(tree: &dyn Tree, to: &RoomPath, parent: &Path) -> Result<()> {
    match tree.stat(parent, true) {
        Ok(there) if there.kind == FileKind::Directory => Ok(()),
        Ok(_) => Err(to.failed(Fault::Refused(format!(
            "{} is not a directory",
            output::shown_path(parent)
        )))),
        Err(fault) => Err(to.failed(fault)),
    }
}

/// A name that was moved: from, to and how.
type Moved = (PathBuf, PathBuf, RenameMode);

struct Restore<'a> {
    access: &'a Access,
    source: &'a dyn Source,
    tree: &'a dyn Tree,
    from: &'a RoomPath,
    to: &'a RoomPath,
    global: &'a Global,
    bar: &'a Bar,
    /// Whether what is at the target may be replaced.
    may_replace: bool,
    done: Done,
}

impl Restore<'_> {
    /// A file, or a directory with all that is in it.
    fn one(&mut self, meta: &Meta) -> Result<()> {
        let missing = self.missing_above()?;
        let staged = self.staged(&missing, meta);
        if staged.is_err() {
            // They are empty again.
            for dir in missing.iter().rev() {
                let _ = self.tree.remove_dir(dir);
            }
        }
        let replaced = staged?;
        for dir in missing.iter().rev() {
            let given = self.source.stat(dir, true).and_then(|meta| {
                let mut kept = Kept::default();
                give::attributes(self.source, dir, &meta, self.tree, dir, &mut kept)
            });
            given.map_err(|fault| self.failed(dir, fault))?;
        }
        match replaced {
            Some(replaced) => self.end(&replaced),
            None => Ok(()),
        }
    }

    /// The directories above the target that are not there any more, from the top. Those of the snapshot take their place.
    fn missing_above(&self) -> Result<Vec<PathBuf>> {
        let mut missing = Vec::new();
        for above in self.to.path.ancestors().skip(1) {
            match self.tree.stat(above, true) {
                Ok(_) => break,
                Err(fault) if fault.is_not_found() => missing.push(above.to_owned()),
                Err(fault) => return Err(self.failed(above, fault)),
            }
        }
        missing.reverse();
        Ok(missing)
    }

    /// Makes the copy and puts it in its place. Returns where what was replaced is now.
    fn staged(&mut self, missing: &[PathBuf], meta: &Meta) -> Result<Option<PathBuf>> {
        for dir in missing {
            let made = self.tree.make_dir(dir, 0o700);
            made.map_err(|fault| self.failed(dir, fault))?;
        }
        let to = &self.to.path;
        let beside = self.beside(to)?;
        let from = [(self.from.path.clone(), meta.clone(), beside.clone())];
        self.copied(&from, &beside)?;
        let is_there = match self.tree.stat(to, false) {
            Ok(_) => self.may_replace,
            Err(fault) if fault.is_not_found() => false,
            Err(fault) => return Err(self.discarded(&beside, self.failed(to, fault))),
        };
        let mode = match is_there {
            true => RenameMode::Exchange,
            false => RenameMode::NoReplace,
        };
        match self.tree.rename(&beside, to, mode) {
            Ok(()) => Ok(is_there.then_some(beside)),
            Err(fault) => Err(self.discarded(&beside, self.failed(to, fault))),
        }
    }

    /// The whole room, or a directory in its place.
    fn whole(&mut self, meta: &Meta) -> Result<()> {
        let root = Path::new("/");
        let stage = self.beside(&root.join("x"))?;
        let made = self.tree.make_dir(&stage, 0o700);
        made.map_err(|fault| self.failed(&stage, fault))?;
        let source = &self.from.path;
        let entries = match self.source.list(source) {
            Ok(entries) => entries,
            Err(fault) => return Err(self.discarded(&stage, self.from.failed(fault))),
        };
        let mut then = BTreeSet::new();
        let mut from = Vec::new();
        for (name, below) in entries {
            from.push((source.join(&name), below, stage.join(&name)));
            then.insert(name);
        }
        self.copied(&from, &stage)?;
        let copy = match self.files_in(&stage) {
            Ok(copy) => copy,
            Err(error) => return Err(self.discarded(&stage, error)),
        };
        let (access, mut moved) = (self.access, Vec::new());
        let done = access.at_once(|| {
            self.exchange_all(&stage, &then, &mut moved)
                .and_then(|()| self.give_root(meta))
                .map_err(|error| self.gone_back(&stage, &mut moved, error))
        });
        match done {
            Ok(()) => self.end(&stage),
            // Others may have put something of theirs there meanwhile.
            Err(error) if moved.is_empty() => match self.files_in(&stage) {
                Ok(now) if now == copy => Err(self.discarded(&stage, error)),
                _ => Err(Error::said(
                    error.exit(),
                    format!(
                        "{error}; what others changed in the root meanwhile is in {}",
                        output::shown_path(&stage)
                    ),
                )),
            },
            Err(error) => Err(error),
        }
    }

    /// The names in a directory, and which files they lead to.
    fn files_in(&self, directory: &Path) -> Result<BTreeMap<OsString, FileId>> {
        let listed = self.tree.list(directory);
        let listed = listed.map_err(|fault| self.failed(directory, fault))?;
        Ok(listed
            .into_iter()
            .map(|(name, meta)| (name, meta.id))
            .collect())
    }

    /// Moves the names back, the last one first, after an error. Those that are left then are still in `moved`, and the error says so.
    fn gone_back(&self, stage: &Path, moved: &mut Vec<Moved>, error: Error) -> Error {
        while let Some((from, to, mode)) = moved.last() {
            if let Err(fault) = self.tree.rename(to, from, *mode) {
                return Error::said(
                    error.exit(),
                    format!(
                        "{error}; the room is restored in part, which could not be undone ({}): what is missing in its root is in {}",
                        self.failed(to, fault),
                        output::shown_path(stage)
                    ),
                );
            }
            moved.pop();
        }
        error
    }

    /// Every name of the root changes places with that of the stage.
    fn exchange_all(
        &self,
        stage: &Path,
        then: &BTreeSet<OsString>,
        moved: &mut Vec<Moved>,
    ) -> Result<()> {
        let root = Path::new("/");
        let listed = self.tree.list(root);
        let now = listed.map_err(|fault| self.failed(root, fault))?;
        let now: BTreeSet<OsString> = now.into_iter().map(|(name, _)| name).collect();
        for name in then.union(&now) {
            let (staged, place) = (stage.join(name), root.join(name));
            if place == stage {
                continue;
            }
            let (from, to, mode) = match (then.contains(name), now.contains(name)) {
                (true, true) => (staged, place, RenameMode::Exchange),
                (true, false) => (staged, place, RenameMode::NoReplace),
                (false, _) => (place, staged, RenameMode::NoReplace),
            };
            let renamed = self.tree.rename(&from, &to, mode);
            renamed.map_err(|fault| self.failed(&root.join(name), fault))?;
            moved.push((from, to, mode));
        }
        Ok(())
    }

    /// The root's own attributes: it stays the same directory.
    fn give_root(&self, meta: &Meta) -> Result<()> {
        let root = Path::new("/");
        let source = &self.from.path;
        let mut kept = Kept::default();
        let given = self.source.xattrs(source).and_then(|wanted| {
            for (name, _) in self.tree.xattrs(root)? {
                if !wanted.iter().any(|(other, _)| *other == name) {
                    self.tree.remove_xattr(root, &name)?;
                }
            }
            give::attributes(self.source, source, meta, self.tree, root, &mut kept)
        });
        given.map_err(|fault| self.failed(root, fault))
    }

    /// Copies each of these, all of it or nothing: what was copied is below `stage`.
    fn copied(&mut self, from: &[(PathBuf, Meta, PathBuf)], stage: &Path) -> Result<()> {
        let from_name = format!("{}:", self.from.tree_words());
        let mut copier = Copier::new(
            (self.source, from_name),
            self.tree,
            Existing::Replace,
            self.global,
            self.bar,
        );
        let copied = from
            .iter()
            .try_for_each(|(from, meta, to)| copier.copy(from, meta, to));
        self.done.files += copier.files;
        self.done.bytes += copier.bytes;
        self.done.owners_lost += copier.kept.owners_lost;
        let copied = match (copied, copier.failures.any()) {
            (Ok(()), true) => Err(Error::said(
                copier
                    .failures
                    .end()
                    .map_or_else(|e| e.exit(), |()| Exit::Failed),
                format!(
                    "{}: not all of it can be read in the snapshot, and nothing was changed",
                    self.from.words()
                ),
            )),
            (Err(error), _) if error.exit() == Exit::Interrupted => Err(Error::said(
                Exit::Interrupted,
                "stopped; nothing was changed",
            )),
            (copied, _) => copied,
        };
        copied.map_err(|error| self.discarded(stage, error))
    }

    /// A name in the same directory that is free.
    fn beside(&self, path: &Path) -> Result<PathBuf> {
        let beside = Existing::Replace.beside(self.tree, path);
        beside.map_err(|fault| self.failed(path, fault))
    }

    /// Removes what was copied in vain.
    fn discarded(&self, stage: &Path, error: Error) -> Error {
        let mut failures = Failures::default();
        if let Err(also) = self.removed(stage, &mut failures) {
            tracing::info!("{also}");
        }
        error
    }

    /// Keeps what nothing else has of what was replaced, and removes it.
    fn end(&mut self, replaced: &Path) -> Result<()> {
        if let Err(error) = self.keep_meanwhile(replaced) {
            return Err(Error::said(
                error.exit(),
                format!(
                    "it is restored; what was replaced is not removed ({error}), and is at {}",
                    output::shown_path(replaced)
                ),
            ));
        }
        self.remove(replaced)
    }

    /// What programs changed through a mount after the first snapshot comes into a second one.
    fn keep_meanwhile(&mut self, replaced: &Path) -> Result<()> {
        let Access::Mounted(_) = self.access else {
            return Ok(());
        };
        self.access.fetch_written();
        let during = snapshot(self.access, &Request::SnapshotDuringRestore {})?;
        let before = self.access.source(Some(&self.done.before))?;
        let after = self.access.source(Some(&during))?;
        let changed = is_changed((&*before, &self.to.path), (&*after, replaced));
        // What cannot be compared stays.
        if let Ok(false) = changed {
            let request = Request::DeleteSnapshot { name: during };
            self.access.run(&request, &|_, _| true)?;
        } else {
            self.done.meanwhile = Some((during, replaced.to_owned()));
        }
        Ok(())
    }

    /// Removes what was replaced.
    fn remove(&mut self, replaced: &Path) -> Result<()> {
        let mut failures = Failures::default();
        let removed = self.removed(replaced, &mut failures);
        self.done.failures.absorb(failures);
        removed
    }

    fn removed(&self, path: &Path, failures: &mut Failures) -> Result<()> {
        let meta = match self.tree.stat(path, false) {
            Ok(meta) => meta,
            Err(fault) if fault.is_not_found() => return Ok(()),
            Err(fault) => return Err(self.failed(path, fault)),
        };
        let words = format!("{}:{}", self.to.tree_words(), output::shown_path(path));
        let bar = Bar::of_files("removing what was replaced", self.global);
        let place = (path, &*words);
        let removed = remove_tree(self.tree, place, &meta, None, failures, self.global, &bar);
        bar.end();
        removed
    }

    fn failed(&self, path: &Path, fault: Fault) -> Error {
        Error::at(
            format!("{}:{}", self.to.tree_words(), output::shown_path(path)),
            fault,
        )
    }
}

/// Whether what was replaced is another than before, by attributes and times. The change time of what was renamed itself says nothing; the root
/// was not renamed, but all that was in it.
fn is_changed(before: (&dyn Source, &Path), after: (&dyn Source, &Path)) -> tree::Result<bool> {
    let is_same = |then: &Meta, now: &Meta, is_renamed: bool| {
        let of = |meta: &Meta| (meta.kind, meta.mode, meta.uid, meta.gid, meta.size);
        let times = |meta: &Meta| (meta.btime, meta.mtime, (!is_renamed).then_some(meta.ctime));
        of(then) == of(now) && times(then) == times(now)
    };
    let is_whole = before.1 == Path::new("/");
    let (then, now) = (
        before.0.stat(before.1, false)?,
        after.0.stat(after.1, false)?,
    );
    if !is_whole && !is_same(&then, &now, true) {
        return Ok(true);
    }
    let mut directories = Vec::new();
    if then.kind == FileKind::Directory {
        directories.push((before.1.to_owned(), after.1.to_owned(), is_whole));
    }
    while let Some((then, now, is_renamed)) = directories.pop() {
        let (old, new) = (before.0.list(&then)?, after.0.list(&now)?);
        if old.len() != new.len() {
            return Ok(true);
        }
        for ((name, old), (other, new)) in old.iter().zip(&new) {
            if name != other || !is_same(old, new, is_renamed) {
                return Ok(true);
            }
            if old.kind == FileKind::Directory {
                directories.push((then.join(name), now.join(name), false));
            }
        }
    }
    Ok(false)
}
