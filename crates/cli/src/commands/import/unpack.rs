//! Members of a tar stream as files of a tree.
//!
//! 1. As GNU tar does: what was cut from a path stays cut, a member replaces an earlier one of the same path, directories get mode
//!    and times when all is in them, and a symbolic link that leads up or away (`/…`, `..`) is made at the very end, so that no
//!    member goes through it.
//! 2. What every file must be is remembered while it passes by, with the digest of its contents, since a stream is read once: some
//!    hundred bytes a member.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use import::tar::{Member, MemberKind, Reader};
use room::{FileKind, RenameMode};

use super::record::{self, Record};
use crate::acls::Names;
use crate::args::Global;
use crate::copy::digest::{Digest, Digester};
use crate::copy::give::{self, Kept};
use crate::copy::place::{self, Existing, Step};
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::progress::Bar;
use crate::tree::{Fault, Meta, OpenFile, Tree, make_above};

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

type Tried<T> = std::result::Result<T, Fault>;

/// What a stream came to.
pub(super) struct Unpacked {
    pub(super) records: BTreeMap<PathBuf, Record>,
    pub(super) kept: Kept,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) present: u64,
}

/// A stream being unpacked.
pub(super) struct Unpack<'a> {
    to: &'a dyn Tree,
    top: &'a Path,
    existing: Existing,
    global: &'a Global,
    bar: &'a Bar,
    names: Names,
    failures: Failures,
    /// Links that are made at the end, and hard links to them.
    delayed: BTreeMap<PathBuf, Member>,
    buf: Vec<u8>,
    cut: bool,
    done: Unpacked,
}

impl<'a> Unpack<'a> {
    pub(super) fn new(
        to: &'a dyn Tree,
        top: &'a Path,
        existing: Existing,
        global: &'a Global,
        bar: &'a Bar,
    ) -> Self {
        Self {
            to,
            top,
            existing,
            global,
            bar,
            names: Names::of_this_machine(),
            failures: Failures::default(),
            delayed: BTreeMap::new(),
            buf: vec![0; PIECE],
            cut: false,
            done: Unpacked {
                records: BTreeMap::new(),
                kept: Kept::default(),
                files: 0,
                bytes: 0,
                present: 0,
            },
        }
    }

    /// Unpacks the whole stream.
    pub(super) fn all(&mut self, reader: &mut Reader<impl Read>) -> Result<()> {
        while let Some(member) = reader.next_member().map_err(Error::import)? {
            self.bar.count(self.done.files, reader.position())?;
            if member.cut && !std::mem::replace(&mut self.cut, true) {
                output::note(
                    self.global,
                    "Leading slashes, and what leads out by .., are removed from the names in the stream.",
                );
            }
            let path = self.path(&member.path);
            let done = self.member(&path, &member, reader);
            self.note(&path, done)?;
        }
        if reader.has_more() {
            let error = Error::failed(
                "members behind the end of the stream were left out: another stream follows, or this one lost a block",
            );
            self.failures.note(&error, self.global);
        }
        self.links()?;
        self.directories()
    }

    pub(super) fn end(self) -> (Unpacked, Failures) {
        (self.done, self.failures)
    }

    fn path(&self, parts: &[Vec<u8>]) -> PathBuf {
        parts.iter().fold(self.top.to_owned(), |path, part| {
            path.join(OsStr::from_bytes(part))
        })
    }

    /// Counts a file, or reports why it is none.
    fn note(&mut self, path: &Path, done: Tried<()>) -> Result<()> {
        let fault = match done {
            Ok(()) => {
                self.done.files += 1;
                return Ok(());
            }
            // The stream itself cannot be read on.
            Err(Fault::Imported(error)) => return Err(Error::import(error)),
            Err(fault) => fault,
        };
        // A file that was stopped half-way is no failure.
        self.bar.go_on()?;
        let ends_all = fault.ends_all();
        self.done.records.remove(path);
        let error = Error::at(output::shown_path(path), fault);
        if ends_all {
            return Err(error);
        }
        self.failures.note(&error, self.global);
        Ok(())
    }

    fn member(
        &mut self,
        path: &Path,
        member: &Member,
        reader: &mut Reader<impl Read>,
    ) -> Tried<()> {
        if path
            .ancestors()
            .skip(1)
            .any(|above| self.delayed.contains_key(above))
        {
            return Err(Fault::Refused(
                "left out: it goes through a symbolic link that leads out of its directory".into(),
            ));
        }
        self.delayed.remove(path);
        if path != self.top {
            make_above(self.to, path)?;
        }
        let record = record::of(member, &self.names, &mut self.done.kept);
        match &member.kind {
            MemberKind::Other(kind) => {
                return Err(Fault::Refused(format!(
                    "left out: a member of the kind '{}', which is not known",
                    char::from(*kind).escape_default()
                )));
            }
            MemberKind::Directory => self.directory(path)?,
            MemberKind::File { size, .. } => {
                let digest = self.file(path, &record, *size, reader)?;
                let record = Record {
                    digest: Some(digest),
                    ..record
                };
                self.done.records.insert(path.to_owned(), record);
                return Ok(());
            }
            MemberKind::Symlink(target) if leads_away(target) => {
                self.delayed.insert(path.to_owned(), member.clone());
                return Ok(());
            }
            MemberKind::HardLink(target) if self.delayed.contains_key(&self.path(target)) => {
                self.delayed.insert(path.to_owned(), member.clone());
                return Ok(());
            }
            MemberKind::HardLink(target) => {
                let target = self.path(target);
                return self.hard_link(path, &target);
            }
            _ => self.small(path, &record)?,
        }
        self.done.records.insert(path.to_owned(), record);
        Ok(())
    }

    fn step(&self, path: &Path, same: impl FnOnce(&Meta) -> Tried<bool>) -> Tried<Step> {
        let there = match self.to.stat(path, false) {
            Ok(there) => there,
            Err(fault) if fault.is_not_found() => return Ok(Step::Make),
            Err(fault) => return Err(fault),
        };
        let existing = if self.done.records.contains_key(path) {
            // It came with this stream, whose later member counts.
            Existing::GoOn { overwrite: true }
        } else {
            self.existing
        };
        existing.step(self.to, path, &there, || same(&there))
    }

    fn directory(&mut self, path: &Path) -> Tried<()> {
        match self.to.stat(path, false) {
            Ok(there) if there.kind == FileKind::Directory => return Ok(()),
            _ if path == self.top => return Ok(()),
            Ok(_) => {
                self.step(path, |_| Ok(false))?;
                self.to.remove_file(path)?;
            }
            Err(fault) if fault.is_not_found() => {}
            Err(fault) => return Err(fault),
        }
        self.to.make_dir(path, 0o700)
    }

    fn file(
        &mut self,
        path: &Path,
        record: &Record,
        size: u64,
        reader: &mut Reader<impl Read>,
    ) -> Tried<Digest> {
        let overwrite = self.existing == Existing::GoOn { overwrite: true };
        let again = self.done.records.contains_key(path);
        let step = self.step(path, |there| {
            Ok(!overwrite
                && !again
                && there.kind == FileKind::Regular
                && (there.size, there.mtime) == (size, record.meta.mtime))
        })?;
        if step == Step::Present {
            let digest = self.contents(None, size, reader)?;
            self.done.present += 1;
            self.give(path, record)?;
            return Ok(digest);
        }
        let place = match step {
            Step::Replace => self.existing.beside(self.to, path)?,
            _ => path.to_owned(),
        };
        // What is there after an error of this is somebody else's.
        let file = self.to.create(&place)?;
        let made = self.make_file(&*file, &place, path, record, size, reader);
        if made.is_err() {
            let _ = self.to.remove_file(&place);
        }
        made
    }

    fn make_file(
        &mut self,
        file: &dyn OpenFile,
        place: &Path,
        path: &Path,
        record: &Record,
        size: u64,
        reader: &mut Reader<impl Read>,
    ) -> Tried<Digest> {
        let to = self.to;
        place::mark(to, place)?;
        let digest = self.contents(Some(file), size, reader)?;
        file.set_len(size)?;
        give::owner(&record.meta, to, place, &mut self.done.kept)?;
        self.xattrs(place, record)?;
        if place != path {
            to.rename(place, path, RenameMode::Replace)?;
        }
        place::finish(to, path, &record.meta, &self.done.kept)?;
        Ok(digest)
    }

    /// Reads a member's data, writing it where there is something to write to.
    fn contents(
        &mut self,
        file: Option<&dyn crate::tree::OpenFile>,
        size: u64,
        reader: &mut Reader<impl Read>,
    ) -> Tried<Digest> {
        let mut digest = Digester::new();
        while let Some((at, len)) = reader.read_data(&mut self.buf).map_err(Fault::Imported)? {
            digest.data(at, &self.buf[..len]);
            if let Some(file) = file {
                file.write_at(&self.buf[..len], at)?;
                self.done.bytes += len as u64;
            }
            if self.bar.count(self.done.files, reader.position()).is_err() {
                return Err(Fault::Refused("stopped".into()));
            }
        }
        Ok(digest.end(size))
    }

    fn hard_link(&mut self, path: &Path, target: &Path) -> Tried<()> {
        let first = self.to.stat(target, false).map_err(|fault| {
            Fault::Refused(format!(
                "left out: what it is another name of ({}): {fault}",
                output::shown_path(target)
            ))
        })?;
        match self.step(path, |there| Ok(there.id == first.id))? {
            Step::Present => self.done.present += 1,
            Step::Make => self.to.hard_link(target, path)?,
            Step::Replace | Step::Leave => {
                let beside = self.existing.beside(self.to, path)?;
                self.to.hard_link(target, &beside)?;
                self.to.rename(&beside, path, RenameMode::Replace)?;
            }
        }
        let record = match self.done.records.get(target) {
            Some(record) => record.clone(),
            None => Record {
                xattrs: self.to.xattrs(target)?,
                target: None,
                digest: None,
                meta: first,
                link: None,
            },
        };
        let record = Record {
            link: Some(target.to_owned()),
            // Its contents are compared once.
            digest: None,
            ..record
        };
        self.done.records.insert(path.to_owned(), record);
        Ok(())
    }

    /// A symbolic link, FIFO or device: there in one step.
    fn small(&mut self, path: &Path, record: &Record) -> Tried<()> {
        let (meta, to) = (&record.meta, self.to);
        let step = self.step(path, |there| {
            Ok(there.kind == meta.kind
                && match &record.target {
                    Some(target) => to.read_link(path)? == *target,
                    None => there.rdev == meta.rdev,
                })
        })?;
        let place = match step {
            Step::Present => {
                self.done.present += 1;
                return self.give(path, record);
            }
            Step::Replace => self.existing.beside(to, path)?,
            _ => path.to_owned(),
        };
        match &record.target {
            Some(target) => to.symlink(target, &place)?,
            None => to.make_node(&place, meta.kind, meta.mode & 0o777, meta.rdev)?,
        }
        let made = self.give(&place, record).and_then(|()| {
            if place == path {
                Ok(())
            } else {
                to.rename(&place, path, RenameMode::Replace)
            }
        });
        if made.is_err() {
            let _ = to.remove_file(&place);
        }
        made
    }

    /// Owner, attributes, times, mode.
    fn give(&mut self, path: &Path, record: &Record) -> Tried<()> {
        give::owner(&record.meta, self.to, path, &mut self.done.kept)?;
        self.xattrs(path, record)?;
        give::times(&record.meta, self.to, path)?;
        give::mode(&record.meta, self.to, path, &self.done.kept)
    }

    fn xattrs(&mut self, path: &Path, record: &Record) -> Tried<()> {
        for (name, value) in &record.xattrs {
            give::set_xattr(self.to, path, name, value, &mut self.done.kept)?;
        }
        Ok(())
    }

    /// The links that lead away, and other names of them, now that nothing can go through them any more.
    fn links(&mut self) -> Result<()> {
        let delayed = std::mem::take(&mut self.delayed);
        let (links, names): (Vec<_>, Vec<_>) = delayed
            .into_iter()
            .partition(|(_, member)| matches!(member.kind, MemberKind::Symlink(_)));
        for (path, member) in links {
            let record = record::of(&member, &self.names, &mut self.done.kept);
            let done = self.small(&path, &record);
            if done.is_ok() {
                self.done.records.insert(path.clone(), record);
                // It was counted when it passed by.
                continue;
            }
            self.note(&path, done)?;
        }
        for (path, member) in names {
            if let MemberKind::HardLink(target) = &member.kind {
                let done = self.hard_link(&path, &self.path(target));
                if done.is_err() {
                    self.note(&path, done)?;
                }
            }
        }
        Ok(())
    }

    /// What directories are given, the inner ones first: making something in one changes its time.
    fn directories(&mut self) -> Result<()> {
        let directories: Vec<_> = self
            .done
            .records
            .iter()
            .rev()
            .filter(|(_, record)| record.meta.kind == FileKind::Directory)
            .map(|(path, record)| (path.clone(), record.clone()))
            .collect();
        for (path, record) in directories {
            let done = self.give(&path, &record);
            if done.is_err() {
                self.note(&path, done)?;
            }
        }
        Ok(())
    }
}

/// Whether a link's target can be anywhere.
fn leads_away(target: &[u8]) -> bool {
    target.starts_with(b"/") || target.split(|b| *b == b'/').any(|part| part == b"..")
}
