//! Copying files between trees: in, out, within, with everything that belongs to a file.
//!
//! 1. Kept: contents with their holes, kind, mode, owner, access and modification time, extended attributes (ACLs among
//!    them), hard links among what is copied together. What the target's owner may not set is left out; set-id bits go with
//!    an owner that could not be kept.
//! 2. A file that is replaced is replaced whole: the new one is written beside it and renamed.
//! 3. One file's failure does not stop the others; it is reported and remembered.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use room::FileKind;

use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::progress::Bar;
use crate::tree::{Attrs, Fault, FileId, Meta, OpenFile, Tree};

/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// One copy command's work.
pub(crate) struct Copier<'a> {
    pub(crate) from: &'a dyn Tree,
    pub(crate) to: &'a dyn Tree,
    /// Names the source in messages.
    pub(crate) from_name: String,
    /// Leave existing files alone.
    pub(crate) keep_existing: bool,
    /// Make each file durable before going on: its source is about to be removed.
    pub(crate) durable: bool,
    pub(crate) global: &'a Global,
    pub(crate) bar: &'a Bar,
    pub(crate) failures: Failures,
    /// Files with several names that are copied already.
    pub(crate) links: HashMap<FileId, PathBuf>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Copier<'_> {
    /// Copies one file or a directory with all that is in it to exactly `to`. Fails only when there is no going on.
    pub(crate) fn copy(&mut self, from: &Path, meta: &Meta, to: &Path) -> Result<()> {
        self.bar.count(self.files, self.bytes)?;
        if let Err(fault) = self.one(from, meta, to)? {
            let error = Error::At {
                what: format!("{}{}", self.from_name, output::shown_path(from)),
                fault,
            };
            // A full disk fails every file that follows; once is enough.
            if error.exit() == crate::exit::Exit::NoSpace {
                return Err(error);
            }
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
        Ok(self.attributes(from, meta, to))
    }

    fn file(&mut self, from: &Path, meta: &Meta, to: &Path) -> std::result::Result<(), Fault> {
        let replaced = match self.to.stat(to, false) {
            Ok(there) if there.kind == FileKind::Directory => {
                return Err(Fault::Refused(format!("{} is a directory", to.display())));
            }
            Ok(_) if self.keep_existing => return Ok(()),
            Ok(_) => true,
            Err(fault) if fault.is_not_found() => false,
            Err(fault) => return Err(fault),
        };
        let place = if replaced { beside(to) } else { to.to_owned() };
        let made = self.make(from, meta, &place).and_then(|()| {
            if replaced {
                self.to.rename(&place, to, true)
            } else {
                Ok(())
            }
        });
        if made.is_err() {
            // What is there is half a file, or nothing.
            let _ = self.to.remove_file(&place);
        } else if meta.nlink > 1 {
            self.links.insert(meta.id, to.to_owned());
        }
        made
    }

    fn make(&mut self, from: &Path, meta: &Meta, to: &Path) -> std::result::Result<(), Fault> {
        if meta.nlink > 1
            && let Some(first) = self.links.get(&meta.id)
        {
            match self.to.hard_link(first, to) {
                Ok(()) => return Ok(()),
                // The first copy was replaced or removed meanwhile, or the target has no links: a copy of its own will do.
                Err(fault) if fault.is_not_allowed() || fault.is_not_found() => {}
                Err(fault) => return Err(fault),
            }
        }
        match meta.kind {
            FileKind::Regular => {
                let source = self.from.open(from)?;
                let target = self.to.create(to)?;
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
        self.attributes(from, meta, to)
    }

    /// Copies the ranges that hold data; what lies between stays a hole.
    fn contents(
        &mut self,
        from: &dyn OpenFile,
        to: &dyn OpenFile,
        size: u64,
    ) -> std::result::Result<(), Fault> {
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
        from: &dyn OpenFile,
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

    fn attributes(&self, from: &Path, meta: &Meta, to: &Path) -> std::result::Result<(), Fault> {
        let owner = Attrs {
            owner: Some((meta.uid, meta.gid)),
            ..Attrs::default()
        };
        let mut mode = meta.mode;
        match self.to.set_attrs(to, &owner) {
            Ok(()) => {}
            Err(fault) if fault.is_not_allowed() => {
                // As an ordinary user copies: the file is his now, and must not run as somebody it did not belong to.
                let own = self.to.stat(to, false)?;
                if own.uid != meta.uid {
                    mode &= !0o6000;
                } else if own.gid != meta.gid {
                    mode &= !0o2000;
                }
            }
            Err(fault) => return Err(fault),
        }
        for (name, value) in self.from.xattrs(from)? {
            match self.to.set_xattr(to, &name, &value) {
                Err(fault) if !fault.is_not_allowed() => return Err(fault),
                Err(fault) => {
                    tracing::info!("{}: {} not kept: {fault}", to.display(), name.display())
                }
                Ok(()) => {}
            }
        }
        let rest = Attrs {
            mode: Some(mode),
            times: Some((meta.atime, meta.mtime)),
            owner: None,
        };
        self.to.set_attrs(to, &rest)
    }
}

/// A name beside another that nothing else uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".strongroom-");
    name.push(std::process::id().to_string());
    name.push("-");
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.subsec_nanos());
    name.push(nanos.to_string());
    path.with_file_name(name)
}
