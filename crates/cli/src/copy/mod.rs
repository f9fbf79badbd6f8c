//! Copying files between trees: in, out, within, with everything that belongs to a file.
//!
//! 1. Kept: contents with their holes, kind, mode, owner, access and modification time, extended attributes (ACLs among
//!    them), hard links among what is copied together. What the target's owner may not set is left out; set-id bits go with
//!    an owner that could not be kept.
//! 2. A file that is replaced is replaced whole: the new one is written beside it and renamed.
//! 3. One file's failure does not stop the others; it is reported and remembered.
//! 4. What this copy made is never replaced by another of its sources.
//! 5. For a move ([`Moved`]): what was copied is known as it was, and what changed while it was copied is a failure.
//! 6. A copy that can go on after a crash ([`Existing::GoOn`]) marks what is not whole yet: see [`place`].

pub(crate) mod digest;
pub(crate) mod give;
mod made;
mod moved;
pub(crate) mod place;
pub(crate) mod verify;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use room::{FileKind, FileSystem as _, RenameMode};

use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::progress::Bar;
use crate::tree::{Fault, FileId, Meta, OpenFile, ReadFile, Source, Tree};
use give::Kept;
pub(crate) use made::Made;
use made::Taken;
pub(crate) use moved::Moved;
use place::{Existing, Step};

/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// One copy command's work.
pub(crate) struct Copier<'a> {
    pub(crate) from: &'a dyn Source,
    pub(crate) to: &'a dyn Tree,
    /// Names the source in messages.
    pub(crate) from_name: String,
    /// What becomes of files that exist at the target.
    pub(crate) existing: Existing,
    /// Of a move: what is copied already, each file durably.
    pub(crate) moved: Option<Moved>,
    pub(crate) global: &'a Global,
    pub(crate) bar: &'a Bar,
    pub(crate) failures: Failures,
    /// Files with several names that are copied already.
    pub(crate) links: HashMap<FileId, PathBuf>,
    /// Where another source, or the target, may give two files one name: those that this made.
    pub(crate) made: Option<Made>,
    /// Directories that this made at the target, where one of the source with the same identity is the same.
    pub(crate) directories: Option<HashSet<FileId>>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Files that were there already, whole.
    pub(crate) present: u64,
    /// Where something failed, as it was to be called.
    pub(crate) failed: HashSet<PathBuf>,
    /// What the target did not take.
    pub(crate) kept: Kept,
    /// A piece on its way; kept for the next file.
    pub(crate) buf: Vec<u8>,
}

impl<'a> Copier<'a> {
    /// One that has copied nothing yet.
    pub(crate) fn new(
        (from, from_name): (&'a dyn Source, String),
        to: &'a dyn Tree,
        existing: Existing,
        global: &'a Global,
        bar: &'a Bar,
    ) -> Self {
        Self {
            from,
            to,
            from_name,
            existing,
            moved: None,
            global,
            bar,
            failures: Failures::default(),
            links: HashMap::new(),
            made: None,
            directories: None,
            files: 0,
            bytes: 0,
            present: 0,
            failed: HashSet::new(),
            kept: Kept::default(),
            buf: Vec::new(),
        }
    }
}

/// What is at a place.
enum Begun<'a> {
    Link,
    File(Box<dyn ReadFile + 'a>, Box<dyn OpenFile + 'a>),
    Other,
}

impl<'a> Copier<'a> {
    /// Copies one file or a directory with all that is in it to exactly `to`, which may be a symbolic link to a directory. Fails only when there
    /// is no going on.
    pub(crate) fn copy(&mut self, from: &Path, meta: &Meta, to: &Path) -> Result<()> {
        self.copy_one(from, meta, to, true)
    }

    fn copy_one(&mut self, from: &Path, meta: &Meta, to: &Path, is_top: bool) -> Result<()> {
        self.bar.count(self.files, self.bytes)?;
        let copied = match meta.kind {
            FileKind::Directory => self.directory(from, meta, to, is_top)?,
            _ => self.file(from, meta, to),
        };
        if let Err(fault) = copied {
            // A file that was stopped half-way is no failure.
            self.bar.go_on()?;
            let ends_all = fault.ends_all();
            let error = Error::at(
                format!("{}{}", self.from_name, output::shown_path(from)),
                fault,
            );
            // Once is enough for what fails every file that follows.
            if ends_all {
                return Err(error);
            }
            self.failed.insert(to.to_owned());
            self.failures.note(&error, self.global);
        }
        Ok(())
    }

    fn directory(
        &mut self,
        from: &Path,
        meta: &Meta,
        to: &Path,
        is_top: bool,
    ) -> Result<std::result::Result<(), Fault>> {
        let begun = self.begin_directory(meta, to, is_top);
        let entries = match begun.and_then(|()| self.from.list(from)) {
            Ok(entries) => entries,
            Err(fault) => return Ok(Err(fault)),
        };
        for (name, below) in entries {
            self.copy_one(&from.join(&name), &below, &to.join(&name), false)?;
        }
        self.files += 1;
        if let Some(moved) = &mut self.moved {
            moved.note(meta);
        }
        Ok(give::attributes(
            self.from,
            from,
            meta,
            self.to,
            to,
            &mut self.kept,
        ))
    }

    /// Has a directory at the target.
    fn begin_directory(
        &mut self,
        meta: &Meta,
        to: &Path,
        is_top: bool,
    ) -> std::result::Result<(), Fault> {
        if let Some(made) = &self.directories
            && made.contains(&meta.id)
        {
            return Err(Fault::Refused("a directory cannot go into itself".into()));
        }
        match self.to.stat(to, is_top) {
            Ok(there) if there.kind == FileKind::Directory => return Ok(()),
            Ok(_) => {
                return Err(Fault::Refused(format!(
                    "{} exists and is not a directory",
                    output::shown_path(to)
                )));
            }
            Err(fault) if fault.is_not_found() => {}
            Err(fault) => return Err(fault),
        }
        // Nobody else may enter until its own mode is set, at the end.
        self.to.make_dir(to, 0o700)?;
        if let Some(made) = &mut self.directories {
            made.insert(self.to.stat(to, false)?.id);
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, meta: &Meta, to: &Path) -> std::result::Result<(), Fault> {
        let there = match self.to.stat(to, false) {
            Ok(there) => Some(there),
            Err(fault) if fault.is_not_found() => None,
            Err(fault) => return Err(fault),
        };
        // Another name of what is copied already.
        let first = match self.links.get(&meta.id) {
            Some(first) if meta.nlink > 1 => Some(first.clone()),
            _ => None,
        };
        let step = match &there {
            None => Step::Make,
            Some(there) => self.existing.step(self.to, to, there, || {
                place::is_same(self.from, from, meta, self.to, to, there, self.existing)
            })?,
        };
        let step = match (step, &first, &there) {
            // The same contents, but not yet the same file.
            (Step::Present, Some(first), Some(there))
                if self.to.stat(first, false)?.id != there.id =>
            {
                Step::Replace
            }
            (step, ..) => step,
        };
        let copied = match step {
            Step::Leave => {
                self.files += 1;
                return Ok(());
            }
            Step::Present => {
                self.present += 1;
                give::missing(self.from, from, meta, self.to, to, &mut self.kept)?;
                meta.clone()
            }
            Step::Make => self.made(from, meta, to, to)?,
            Step::Replace => {
                if let (Some(made), Some(there)) = (&self.made, &there)
                    && let Some(taken) = made.taken(self.to, to, there)
                {
                    let why = match taken {
                        Taken::ByThis => "was made a moment ago from another of the sources",
                        Taken::ByAnother => {
                            "was made a moment ago from another file, whose name is the same one there"
                        }
                    };
                    return Err(Fault::Refused(format!("{} {why}", output::shown_path(to))));
                }
                let beside = self.existing.beside(self.to, to)?;
                self.made(from, meta, &beside, to)?
            }
        };
        if copied.nlink > 1 {
            self.links.insert(copied.id, to.to_owned());
        }
        if let Some(made) = &mut self.made {
            made.note(self.to, to);
        }
        if let Some(moved) = &mut self.moved {
            moved.note(&copied);
        }
        self.files += 1;
        Ok(())
    }

    /// Makes the file at `place`, which then becomes `to`. Returns the attributes that its contents had.
    fn made(
        &mut self,
        from: &Path,
        meta: &Meta,
        place: &Path,
        to: &Path,
    ) -> std::result::Result<Meta, Fault> {
        // What is there after an error of this is somebody else's.
        let begun = self.begin(from, meta, place)?;
        let made = self.complete(begun, from, meta, place, to);
        if made.is_err() {
            // Half a file.
            let _ = self.to.remove_file(place);
        }
        made
    }

    fn begin(
        &self,
        from: &Path,
        meta: &Meta,
        place: &Path,
    ) -> std::result::Result<Begun<'a>, Fault> {
        let to = self.to;
        if meta.nlink > 1
            && let Some(first) = self.links.get(&meta.id)
        {
            match to.hard_link(first, place) {
                Ok(()) => return Ok(Begun::Link),
                // The first copy was replaced or removed meanwhile, or the target has no links: a copy of its own will do.
                Err(fault) if fault.is_not_allowed() || fault.is_not_found() => {}
                Err(fault) => return Err(fault),
            }
        }
        match meta.kind {
            FileKind::Regular => {
                let source = self.from.open(from)?;
                return Ok(Begun::File(source, to.create(place)?));
            }
            FileKind::Symlink => to.symlink(&self.from.read_link(from)?, place)?,
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                to.make_node(place, meta.kind, meta.mode & 0o777, meta.rdev)?;
            }
            FileKind::Directory => {
                return Err(Fault::Refused("is a directory; copy it with -r".into()));
            }
        }
        Ok(Begun::Other)
    }

    /// Gives what was begun its contents, its attributes and its name. Returns the attributes that its contents had.
    fn complete(
        &mut self,
        begun: Begun<'a>,
        from: &Path,
        meta: &Meta,
        place: &Path,
        to: &Path,
    ) -> std::result::Result<Meta, Fault> {
        let goes_on = self.existing.goes_on();
        let mut copied = meta.clone();
        let mut is_marked = false;
        match begun {
            Begun::Link => {}
            Begun::File(source, target) => {
                // Those of the listing may be of another file, or of an earlier one.
                copied = source.meta()?;
                if goes_on {
                    place::mark(self.to, place)?;
                }
                self.contents(&*source, &*target, copied.size)?;
                if self.moved.is_some() {
                    if !moved::is_unchanged(&copied, &source.meta()?) {
                        return Err(Fault::Refused("was changed while it was copied".into()));
                    }
                    if target.as_host().is_some() {
                        target.sync()?;
                    }
                }
                is_marked = goes_on;
                if goes_on {
                    let kept = &mut self.kept;
                    give::owner_and_xattrs(self.from, from, &copied, self.to, place, kept)?;
                } else {
                    let kept = &mut self.kept;
                    give::attributes(self.from, from, &copied, self.to, place, kept)?;
                }
            }
            Begun::Other => {
                give::attributes(self.from, from, meta, self.to, place, &mut self.kept)?;
            }
        }
        if place != to {
            self.to.rename(place, to, RenameMode::Replace)?;
        }
        if is_marked {
            place::finish(self.to, to, &copied, &self.kept)?;
        }
        Ok(copied)
    }

    /// Copies the ranges that hold data; what is between stays a hole. What is appended meanwhile is copied too.
    fn contents(
        &mut self,
        from: &dyn ReadFile,
        to: &dyn OpenFile,
        mut size: u64,
    ) -> std::result::Result<(), Fault> {
        if let (Some((room, snapshot, from)), Some((other, to))) = (from.as_past(), to.as_inode())
            && std::ptr::eq(room, other)
        {
            self.bytes += size;
            return room
                .copy_from_snapshot(snapshot, from, to)
                .map_err(Fault::Room);
        }
        let mut at = 0;
        while at < size {
            let Some((start, end)) = from.next_data(at)? else {
                // A hole to the end, or cut short meanwhile.
                size = from.meta()?.size.min(size);
                break;
            };
            let end = end.min(size);
            at = start;
            while at < end {
                let len = (end - at).min(64 << 20);
                let shared = self.share(from, to, at, len)?;
                let copied = match shared {
                    0 => self.piece(from, to, at, end - at)?,
                    shared => shared,
                };
                if copied == 0 {
                    // Shorter than it was a moment ago: the source is being written to.
                    return to.set_len(at);
                }
                at += copied;
                self.count(copied)?;
            }
        }
        // The size that some files have, as those of /proc, says nothing.
        at = size;
        loop {
            match self.piece(from, to, at, PIECE as u64)? {
                0 => return to.set_len(at),
                copied => at += copied,
            }
            self.count(at - size)?;
            size = at;
        }
    }

    fn count(&mut self, copied: u64) -> std::result::Result<(), Fault> {
        self.bytes += copied;
        let counted = self.bar.count(self.files, self.bytes);
        counted.map_err(|_| Fault::Refused("stopped".into()))
    }

    /// Copies up to `len` bytes. 0: there is nothing any more.
    fn piece(
        &mut self,
        from: &dyn ReadFile,
        to: &dyn OpenFile,
        at: u64,
        len: u64,
    ) -> std::result::Result<u64, Fault> {
        self.buf.resize(PIECE, 0);
        let len = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
        let got = from.read_at(&mut self.buf[..len], at)?;
        to.write_at(&self.buf[..got], at)?;
        Ok(got as u64)
    }

    /// Copies without moving bytes through this process, where both files are of one kind. 0: it cannot be done so.
    fn share(
        &self,
        from: &dyn ReadFile,
        to: &dyn OpenFile,
        at: u64,
        len: u64,
    ) -> std::result::Result<u64, Fault> {
        if let (Some((room, from)), Some((other, to))) = (from.as_inode(), to.as_inode())
            && std::ptr::eq(room, other)
        {
            return room.copy_range(from, at, to, at, len).map_err(Fault::Room);
        }
        if let (Some(from), Some(to)) = (from.as_host(), to.as_host()) {
            let (mut from_at, mut to_at) = (at, at);
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            // A refusal (two file systems, an old kernel) is not a failure: the bytes are then copied by hand.
            return Ok(rustix::fs::copy_file_range(
                from,
                Some(&mut from_at),
                to,
                Some(&mut to_at),
                len,
            )
            .unwrap_or(0) as u64);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
