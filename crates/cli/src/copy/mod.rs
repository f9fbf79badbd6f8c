//! Copying files between trees: in, out, within, with everything that belongs to a file.
//!
//! 1. Kept: contents with their holes, kind, mode, owner, access and modification time, extended attributes (ACLs among
//!    them), hard links among what is copied together. What the target's owner may not set is left out; set-id bits go with
//!    an owner that could not be kept.
//! 2. A file that is replaced is replaced whole: the new one is written beside it and renamed.
//! 3. One file's failure does not stop the others; it is reported and remembered.
//! 4. A copy that can go on after a crash ([`Existing::GoOn`]) marks what is not whole yet: see [`place`].

pub(crate) mod digest;
pub(crate) mod give;
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
    /// Make each file durable before going on: its source is about to be removed.
    pub(crate) durable: bool,
    pub(crate) global: &'a Global,
    pub(crate) bar: &'a Bar,
    pub(crate) failures: Failures,
    /// Files with several names that are copied already.
    pub(crate) links: HashMap<FileId, PathBuf>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Files that were there already, whole.
    pub(crate) present: u64,
    /// Where something failed, as it was to be called.
    pub(crate) failed: HashSet<PathBuf>,
    /// What the target did not take.
    pub(crate) kept: Kept,
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
            durable: false,
            global,
            bar,
            failures: Failures::default(),
            links: HashMap::new(),
            files: 0,
            bytes: 0,
            present: 0,
            failed: HashSet::new(),
            kept: Kept::default(),
        }
    }
}

impl Copier<'_> {
    /// Copies one file or a directory with all that is in it to exactly `to`. Fails only when there is no going on.
    pub(crate) fn copy(&mut self, from: &Path, meta: &Meta, to: &Path) -> Result<()> {
        self.bar.count(self.files, self.bytes)?;
        if let Err(fault) = self.one(from, meta, to)? {
            let ends_all = fault.ends_all();
            let error = Error::At {
                what: format!("{}{}", self.from_name, output::shown_path(from)),
                fault,
            };
            // Once is enough for what fails every file that follows.
            if ends_all {
                return Err(error);
            }
            self.failed.insert(to.to_owned());
            self.failures.note(&error, self.global);
        }
        Ok(())
    }

    fn one(
        &mut self,
        from: &Path,
        meta: &Meta,
        to: &Path,
    ) -> Result<std::result::Result<(), Fault>> {
        if meta.kind == FileKind::Directory {
            return self.directory(from, meta, to);
        }
        let copied = self.file(from, meta, to);
        if copied.is_ok() {
            self.files += 1;
        }
        Ok(copied)
    }

    fn directory(
        &mut self,
        from: &Path,
        meta: &Meta,
        to: &Path,
    ) -> Result<std::result::Result<(), Fault>> {
        match self.to.stat(to, true) {
            Ok(there) if there.kind == FileKind::Directory => {}
            Ok(_) => {
                return Ok(Err(Fault::Refused(format!(
                    "{} exists and is not a directory",
                    to.display()
                ))));
            }
            Err(fault) if fault.is_not_found() => {
                // Nobody else may enter until its own mode is set, at the end.
                if let Err(fault) = self.to.make_dir(to, 0o700) {
                    return Ok(Err(fault));
                }
            }
            Err(fault) => return Ok(Err(fault)),
        }
        let entries = match self.from.list(from) {
            Ok(entries) => entries,
            Err(fault) => return Ok(Err(fault)),
        };
        for (name, below) in entries {
            self.copy(&from.join(&name), &below, &to.join(&name))?;
        }
        self.files += 1;
        Ok(give::attributes(
            self.from,
            from,
            meta,
            self.to,
            to,
            &mut self.kept,
        ))
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
        match step {
            Step::Leave => return Ok(()),
            Step::Present => {
                self.present += 1;
                give::missing(self.from, from, meta, self.to, to, &mut self.kept)?;
            }
            Step::Make => self.made(from, meta, to, to)?,
            Step::Replace => {
                let beside = self.existing.beside(self.to, to)?;
                self.made(from, meta, &beside, to)?;
            }
        }
        if meta.nlink > 1 {
            self.links.insert(meta.id, to.to_owned());
        }
        Ok(())
    }

    /// Makes the file at `place`, which then becomes `to`.
    fn made(
        &mut self,
        from: &Path,
        meta: &Meta,
        place: &Path,
        to: &Path,
    ) -> std::result::Result<(), Fault> {
        let made = self.make(from, meta, place).and_then(|is_marked| {
            if place != to {
                self.to.rename(place, to, RenameMode::Replace)?;
            }
            if is_marked {
                place::finish(self.to, to, meta, &self.kept)?;
            }
            Ok(())
        });
        if made.is_err() {
            // What is there is half a file, or nothing.
            let _ = self.to.remove_file(place);
        }
        made
    }

    /// Makes one file. True: it is whole, but for what [`place::finish`] does.
    fn make(&mut self, from: &Path, meta: &Meta, to: &Path) -> std::result::Result<bool, Fault> {
        if meta.nlink > 1
            && let Some(first) = self.links.get(&meta.id)
        {
            match self.to.hard_link(first, to) {
                Ok(()) => return Ok(false),
                // The first copy was replaced or removed meanwhile, or the target has no links: a copy of its own will do.
                Err(fault) if fault.is_not_allowed() || fault.is_not_found() => {}
                Err(fault) => return Err(fault),
            }
        }
        match meta.kind {
            FileKind::Regular => {
                let source = self.from.open(from)?;
                let target = self.to.create(to)?;
                if self.existing.goes_on() {
                    place::mark(self.to, to)?;
                }
                self.contents(&*source, &*target, meta.size)?;
                if self.durable && target.as_host().is_some() {
                    target.sync()?;
                }
            }
            FileKind::Symlink => self.to.symlink(&self.from.read_link(from)?, to)?,
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                self.to
                    .make_node(to, meta.kind, meta.mode & 0o777, meta.rdev)?;
            }
            FileKind::Directory => {
                return Err(Fault::Refused("is a directory; copy it with -r".into()));
            }
        }
        if meta.kind == FileKind::Regular && self.existing.goes_on() {
            give::owner_and_xattrs(self.from, from, meta, self.to, to, &mut self.kept)?;
            return Ok(true);
        }
        give::attributes(self.from, from, meta, self.to, to, &mut self.kept)?;
        Ok(false)
    }

    /// Copies the ranges that hold data; what is between stays a hole.
    fn contents(
        &mut self,
        from: &dyn ReadFile,
        to: &dyn OpenFile,
        size: u64,
    ) -> std::result::Result<(), Fault> {
        if let (Some((room, snapshot, from)), Some((other, to))) = (from.as_past(), to.as_inode())
            && std::ptr::eq(room, other)
        {
            self.bytes += size;
            return room
                .copy_from_snapshot(snapshot, from, to)
                .map_err(Fault::Room);
        }
        let mut buf = Vec::new();
        let mut at = 0;
        while at < size {
            let Some((start, end)) = from.next_data(at)? else {
                break;
            };
            let end = end.min(size);
            at = start;
            while at < end {
                let len = (end - at).min(64 << 20);
                let shared = self.share(from, to, at, len)?;
                if shared > 0 {
                    at += shared;
                    self.bytes += shared;
                } else {
                    buf.resize(PIECE, 0);
                    let want = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                    let got = from.read_at(&mut buf[..want], at)?;
                    if got == 0 {
                        // Shorter than it was a moment ago: the source is being written to.
                        return to.set_len(at);
                    }
                    to.write_at(&buf[..got], at)?;
                    at += got as u64;
                    self.bytes += got as u64;
                }
                if self.bar.count(self.files, self.bytes).is_err() {
                    return Err(Fault::Refused("stopped".into()));
                }
            }
        }
        to.set_len(size)
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
