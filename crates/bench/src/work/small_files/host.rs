//! A directory of the host: by itself, or where a room is mounted; and the caches beneath.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ::room::spans;
use rustix::fs::Advice;
use tracing::span::EnteredSpan;

use super::{Files, Subject};
use crate::model::{Issue, IssueKind, StoreFacts};
use crate::words::bytes;
use crate::{Error, Result, observe};

/// A way to open a span of the program's; its name must be a constant there.
macro_rules! span {
    ($name:expr) => {
        || tracing::trace_span!(target: spans::TARGET, $name).entered()
    };
}

/// Files of a directory of the host.
#[derive(Debug)]
pub(super) struct HostFiles {
    dir: PathBuf,
    /// Whether the calls are this store's device: not where they go to a room that says so itself.
    device: bool,
}

impl HostFiles {
    pub(super) fn new(dir: PathBuf, device: bool) -> Self {
        Self { dir, device }
    }

    /// A call that is the device's part of an operation.
    fn call<T>(
        &self,
        span: impl FnOnce() -> EnteredSpan,
        at: &Path,
        doing: &str,
        call: impl FnOnce() -> std::io::Result<T>,
    ) -> Result<T> {
        let _span = self.device.then(span);
        call().map_err(|e| Error::io(at, doing, e))
    }

    fn opened(&self, name: &str, options: &OpenOptions) -> Result<(PathBuf, File)> {
        let at = self.dir.join(name);
        let file = self.call(span!(spans::DEVICE_NAMES), &at, "opening", || {
            options.open(&at)
        })?;
        Ok((at, file))
    }

    fn put(&self, at: &Path, mut file: File, content: &[u8]) -> Result<()> {
        self.call(span!(spans::DEVICE_WRITE), at, "writing", || {
            file.write_all(content)
        })?;
        self.call(span!(spans::DEVICE_SYNC), at, "making it durable", || {
            file.sync_all()
        })?;
        self.call(span!(spans::DEVICE_NAMES), at, "closing", || {
            drop(file);
            Ok(())
        })
    }
}

impl Files for HostFiles {
    fn create(&self, name: &str, content: &[u8]) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o644);
        let (at, file) = self.opened(name, &options)?;
        self.put(&at, file, content)
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let (at, file) = self.opened(name, OpenOptions::new().write(true))?;
        self.put(&at, file, content)
    }

    fn read(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        let (at, mut file) = self.opened(name, OpenOptions::new().read(true))?;
        self.call(span!(spans::DEVICE_READ), &at, "reading", || {
            let mut there = 0;
            while there < buf.len() {
                match file.read(&mut buf[there..])? {
                    0 => break,
                    more => there += more,
                }
            }
            Ok(there)
        })
    }

    fn open(&self, name: &str) -> Result<()> {
        self.opened(name, OpenOptions::new().read(true)).map(drop)
    }

    fn chmod(&self, name: &str, mode: u32) -> Result<()> {
        let at = self.dir.join(name);
        self.call(span!(spans::DEVICE_NAMES), &at, "changing its mode", || {
            fs::set_permissions(&at, Permissions::from_mode(mode))
        })
    }

    fn unlink(&self, name: &str) -> Result<()> {
        let at = self.dir.join(name);
        self.call(span!(spans::DEVICE_NAMES), &at, "removing", || {
            fs::remove_file(&at)
        })
    }

    /// Of the whole file system where that is the kernel's. `syncfs` of a FUSE mount waits for nobody; an `fsync` of the directory
    /// commits a room.
    fn sync(&self) -> Result<()> {
        self.call(
            span!(spans::DEVICE_SYNC),
            &self.dir,
            "making it durable",
            || {
                let dir = File::open(&self.dir)?;
                match self.device {
                    true => Ok(rustix::fs::syncfs(&dir)?),
                    false => dir.sync_all(),
                }
            },
        )
    }
}

/// A plain directory.
#[derive(Debug)]
pub struct Directory {
    files: HostFiles,
    dir: PathBuf,
}

impl Directory {
    /// Makes one below `dir`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(dir: &Path) -> Result<Self> {
        let dir = dir.join("plain");
        fs::create_dir(&dir).map_err(|e| Error::io(&dir, "making the directory", e))?;
        Ok(Self {
            files: HostFiles::new(dir.clone(), true),
            dir,
        })
    }
}

impl Subject for Directory {
    fn files(&self) -> &dyn Files {
        &self.files
    }
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            label: "directory".to_owned(),
            kind: "directory".to_owned(),
            target: self.dir.display().to_string(),
            ..observe::store_facts(&self.dir)
        }
    }
    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }
    fn backing(&self) -> &Path {
        &self.dir
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Drops the pages of every file in and below `dir` from the page cache and looks whether they are gone; with `drop_caches` the
/// kernel's names and inodes go too.
pub(super) fn empty_caches(
    dir: &Path,
    drop_caches: bool,
    notes: &mut Vec<String>,
) -> Option<Issue> {
    let said = if drop_caches {
        match fs::write("/proc/sys/vm/drop_caches", "3") {
            Ok(()) => "the kernel's names, inodes and pages were dropped".to_owned(),
            Err(e) => format!("the kernel's names and inodes stayed cached: {e}"),
        }
    } else {
        "the kernel's names and inodes stayed cached, so opening in a plain directory is warm: --drop-caches drops them"
            .to_owned()
    };
    if !notes.contains(&said) {
        notes.push(said);
    }
    match still_cached(dir) {
        Ok(0) => None,
        Ok(left) => Some(Issue {
            kind: IssueKind::CacheHit,
            said: format!(
                "{} of {} stayed in the page cache",
                bytes(left),
                dir.display()
            ),
        }),
        Err(e) => Some(Issue {
            kind: IssueKind::NotObservable,
            said: format!("whether the page cache is empty is not known: {e}"),
        }),
    }
}

/// Bytes that the page cache holds of the files in and below `dir` although they were dropped.
fn still_cached(dir: &Path) -> std::io::Result<u64> {
    let mut left = 0;
    for path in observe::files_beneath(dir, usize::MAX)?.unwrap_or_default() {
        let file = File::open(path)?;
        // What is dirty is not dropped.
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        left += observe::cached(file.as_fd())?.resident_bytes();
    }
    Ok(left)
}
