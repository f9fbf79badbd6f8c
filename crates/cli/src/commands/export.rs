//! `strongroom export`: what is in a room as a tar stream.
//!
//! Invariant: a stream that was begun is always a whole one. What cannot be read is zeros in it, is named, and makes the exit code
//! say so.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use import::tar::{Member, MemberKind, Writer};
use room::FileKind;
use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::acls;
use crate::args::Global;
use crate::confinement;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::{RoomPath, readable_path};
use crate::progress::Bar;
use crate::tree::{Fault, FileId, Meta, Source};
use crate::walk::{Step, walk};

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Write what is in a room, or in a directory of it, as a tar stream, with all its attributes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The stream has pax headers: times in nanoseconds, extended attributes and ACLs (tar --xattrs --xattrs-include='*'), \
holes, hard links, devices. Sockets are left out.\n\nExamples:\n  strongroom export work.strongroom --tar work.tar\n  strongroom export \
work.strongroom:/papers --tar - | gzip >papers.tar.gz"
)]
pub(crate) struct Args {
    /// What to export: ROOM, ROOM:/path, or the same of a snapshot: ROOM@SNAPSHOT
    #[arg(value_name = "ROOM[@SNAPSHOT][:/path]")]
    source: OsString,
    /// Where to: a new FILE, or "-" for standard output
    #[arg(long, value_name = "FILE", required = true)]
    tar: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let from = readable_path(&args.source)?;
    if args.tar.as_os_str() == "-" {
        let stdout = std::io::stdout();
        if stdout.is_terminal() {
            return Err(Error::usage(
                "standard output is a terminal; name a file, or lead the stream on: strongroom export ROOM --tar - | …",
            ));
        }
        let (_, done) = export(&args, &from, stdout.lock(), global)?;
        return done.end();
    }
    // A device or a pipe of that name would be gone.
    if args.tar.metadata().is_ok_and(|there| !there.is_file()) {
        return Err(Error::failed(format!(
            "{}: is no regular file, which alone is replaced; to lead the stream there: strongroom export ROOM --tar - >{}",
            args.tar.display(),
            output::quoted(&args.tar)
        )));
    }
    let exists = || Error::failed_at(&args.tar, "exists; --force replaces it");
    if !args.force && args.tar.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists if !args.force => exists(),
        _ => Error::host(&args.tar, e),
    };
    // Written beside, so that a file of that name is always a whole stream; under a name that nobody can know before.
    let directory = confinement::directory(&args.tar);
    let mut beside = tempfile::Builder::new();
    let beside = beside.prefix(".strongroom-").suffix(".part");
    let beside = beside.tempfile_in(&directory).map_err(failed)?;
    let (beside, failures) = export(&args, &from, beside, global)?;
    beside.as_file().sync_all().map_err(failed)?;
    let named = match args.force {
        true => beside.persist(&args.tar),
        false => beside.persist_noclobber(&args.tar).or_else(|refused| {
            // Some file systems of FUSE can neither leave a name alone that is there nor give a file a second one.
            let there = args.tar.symlink_metadata();
            match there.is_err_and(|e| e.kind() == ErrorKind::NotFound) {
                true => refused.file.persist(&args.tar),
                false => Err(refused),
            }
        }),
    };
    named.map_err(|e| failed(e.error))?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed)?;
    failures.end()
}

fn export<W: Write>(args: &Args, from: &RoomPath, to: W, global: &Global) -> Result<(W, Failures)> {
    let access = Access::reach(&from.room, &args.open, Intent::Read)?;
    access.fetch_written();
    let bar = Bar::counting("exporting", global);
    let done = (|| {
        let tree = access.source(from.snapshot.as_deref())?;
        let mut export = Export {
            tree: &*tree,
            from,
            to: Writer::new(BufWriter::with_capacity(PIECE, to)),
            global,
            bar: &bar,
            links: HashMap::new(),
            failures: Failures::default(),
            files: 0,
            bytes: 0,
            buf: vec![0; PIECE],
        };
        export.all()?;
        let (files, bytes) = (export.files, export.bytes);
        let inner = export.to.end().map_err(lost)?;
        let to = inner.into_inner().map_err(|e| lost(e.into_error()))?;
        Ok((to, export.failures, files, bytes))
    })();
    bar.end();
    let closed = access.close();
    let (to, failures, files, bytes) = done?;
    closed?;
    // The stream itself may go to standard output.
    if global.json {
        output::to_stderr(json!({"files": files, "bytes": bytes}));
    } else {
        output::note(
            global,
            format!(
                "{}, {} written.",
                output::count(files, "file"),
                output::size(bytes)
            ),
        );
    }
    Ok((to, failures))
}

/// The stream cannot be written.
fn lost(e: std::io::Error) -> Error {
    Error::at("tar stream", Fault::Host(e))
}

struct Export<'a, W: Write> {
    tree: &'a dyn Source,
    from: &'a RoomPath,
    to: Writer<BufWriter<W>>,
    global: &'a Global,
    bar: &'a Bar,
    /// Files with several names that are in the stream already.
    links: HashMap<FileId, Vec<Vec<u8>>>,
    failures: Failures,
    files: u64,
    bytes: u64,
    buf: Vec<u8>,
}

impl<W: Write> Export<'_, W> {
    fn all(&mut self) -> Result<()> {
        let top = &self.from.path;
        let meta = self
            .tree
            .stat(top, self.from.must_be_directory)
            .map_err(|fault| self.at(top, fault))?;
        self.bar
            .expect(self.bar.survey(self.tree, top, &meta).stored);
        let mut unlisted = Vec::new();
        let tree = self.tree;
        walk(
            tree,
            top,
            &meta,
            &mut |step, path, meta| match step {
                Step::Leave => Ok(()),
                Step::File | Step::Enter => self.one(path, meta),
            },
            &mut |path, fault| {
                unlisted.push((path.to_owned(), fault));
                Ok(())
            },
        )?;
        for (path, fault) in unlisted {
            self.failed(&path, fault);
        }
        Ok(())
    }

    fn at(&self, path: &Path, fault: Fault) -> Error {
        Error::at(
            format!("{}:{}", self.from.tree_words(), output::shown_path(path)),
            fault,
        )
    }

    fn failed(&mut self, path: &Path, fault: Fault) {
        let error = self.at(path, fault);
        self.failures.note(&error, self.global);
    }

    fn one(&mut self, path: &Path, meta: &Meta) -> Result<()> {
        self.bar.count(self.files, self.bytes)?;
        if meta.kind == FileKind::Socket {
            output::note(
                self.global,
                format!(
                    "{}: a socket, which a tar stream cannot have",
                    output::shown_path(path)
                ),
            );
            return Ok(());
        }
        let member = match self.member(path, meta) {
            Ok(member) => member,
            Err(fault) if fault.ends_all() => return Err(self.at(path, fault)),
            Err(fault) => {
                self.failed(path, fault);
                return Ok(());
            }
        };
        self.to.member(&member).map_err(lost)?;
        self.files += 1;
        if let MemberKind::File { size, data } = &member.kind {
            let whole = [(0, *size)];
            let ranges = data.as_deref().unwrap_or(&whole);
            self.data(path, ranges)?;
        }
        if meta.nlink > 1 && meta.kind != FileKind::Directory {
            self.links.entry(meta.id).or_insert(member.path);
        }
        Ok(())
    }

    fn member(&self, path: &Path, meta: &Meta) -> std::result::Result<Member, Fault> {
        let device = (rustix::fs::major(meta.rdev), rustix::fs::minor(meta.rdev));
        let first = self.links.get(&meta.id).filter(|_| meta.nlink > 1);
        let kind = match (meta.kind, first) {
            (FileKind::Directory, _) => MemberKind::Directory,
            (_, Some(first)) => MemberKind::HardLink(first.clone()),
            (FileKind::Regular, None) => MemberKind::File {
                size: meta.size,
                data: self.holes(path, meta.size)?,
            },
            (FileKind::Symlink, None) => {
                MemberKind::Symlink(self.tree.read_link(path)?.as_bytes().to_vec())
            }
            (FileKind::Fifo | FileKind::Socket, None) => MemberKind::Fifo,
            (FileKind::CharDevice, None) => MemberKind::CharDevice(device.0, device.1),
            (FileKind::BlockDevice, None) => MemberKind::BlockDevice(device.0, device.1),
        };
        let xattrs = match kind {
            MemberKind::HardLink(_) => Vec::new(),
            _ => self.tree.xattrs(path)?,
        };
        // As text too: GNU tar takes no list from an attribute.
        let acls = acls::ATTRIBUTES.map(|attribute| {
            let list = xattrs.iter().find(|(name, _)| name == attribute);
            list.and_then(|(_, value)| acls::text(value))
        });
        let mut names: Vec<Vec<u8>> = path
            .strip_prefix(&self.from.path)
            .unwrap_or(path)
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        if names.is_empty() && kind != MemberKind::Directory {
            // A single file has its own name.
            names.extend(path.file_name().map(|name| name.as_bytes().to_vec()));
        }
        Ok(Member {
            path: names,
            cut: false,
            kind,
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            mtime: (meta.mtime.secs, meta.mtime.nanos),
            atime: Some((meta.atime.secs, meta.atime.nanos)),
            xattrs: xattrs
                .into_iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value))
                .collect(),
            acls,
        })
    }

    /// The ranges with data of a file that has holes; `None`: it has none, or so many ranges that holes are written out.
    fn holes(&self, path: &Path, size: u64) -> std::result::Result<Option<Vec<(u64, u64)>>, Fault> {
        let file = self.tree.open(path)?;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < size {
            let Some((start, end)) = file.next_data(at)? else {
                break;
            };
            let end = end.min(size);
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
            at = end;
            if ranges.len() >= import::tar::MAX_RANGES {
                return Ok(None);
            }
        }
        let is_whole = size == 0 || ranges == [(0, size)];
        Ok((!is_whole).then_some(ranges))
    }

    /// The data of a member that was begun; what cannot be read is zeros.
    fn data(&mut self, path: &Path, ranges: &[(u64, u64)]) -> Result<()> {
        let mut read = || -> std::result::Result<Result<()>, Fault> {
            let file = self.tree.open(path)?;
            for (start, end) in ranges {
                let mut at = *start;
                while at < *end {
                    let want = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                    let got = file.read_at(&mut self.buf[..want], at)?;
                    if got == 0 {
                        return Err(Fault::Refused("became shorter while it was read".into()));
                    }
                    if let Err(e) = self.to.data(&self.buf[..got]) {
                        return Ok(Err(lost(e)));
                    }
                    at += got as u64;
                    self.bytes += got as u64;
                    if let Err(stop) = self.bar.count(self.files, self.bytes) {
                        return Ok(Err(stop));
                    }
                }
            }
            Ok(Ok(()))
        };
        match read() {
            Ok(done) => done,
            Err(fault) => {
                let words = format!("{fault}; what was not read is zeros in the stream");
                let exit = fault.exit();
                let error = Error::said(exit, format!("{}: {words}", output::shown_path(path)));
                self.failures.note(&error, self.global);
                self.buf.fill(0);
                while self.to.due() > 0 {
                    let len = usize::try_from(self.to.due()).unwrap_or(PIECE).min(PIECE);
                    self.to.data(&self.buf[..len]).map_err(lost)?;
                }
                Ok(())
            }
        }
    }
}
