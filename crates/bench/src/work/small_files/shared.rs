//! Shared storage, mounted by this very process, so that its client's spans are heard here.
//!
//! The files are in a directory of their own, made and removed here; nothing else of the shared room is touched.
//!
//! It deliberately does not know how a server is reached: its creator passes a way to connect.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::room::{Access, FileSystem, InodeNo};
use parking_lot::Mutex;

use super::at::At;
use super::host::HostFiles;
use super::{Files, Subject};
use crate::model::StoreFacts;
use crate::run_file::Run;
use crate::{Error, Result, observe};

/// What a connection is: the file system, and how to end it.
pub type Connection = (
    Arc<dyn FileSystem>,
    Box<dyn FnOnce() -> std::result::Result<(), String>>,
);
/// Connects to the server afresh.
pub type Connect = Box<dyn Fn() -> std::result::Result<Connection, String>>;

/// Where the shared room is and what is known of it.
pub struct Share {
    /// Its name in the report: short, as in "shared, secure".
    pub label: String,
    /// What was given on the command line.
    pub target: String,
    /// The directory on this host where the disks' files are, if they are here. Processes with files in it open serve them.
    pub disks: PathBuf,
    /// The way to it.
    pub connect: Connect,
    /// The way to it for somebody else, who may read what others may.
    pub reader: Option<Connect>,
}

/// A mounted shared room.
pub struct Shared {
    share: Share,
    at: At,
    files: HostFiles,
    dir: PathBuf,
    reader: Option<Reader>,
}

/// Somebody else, connected and not mounted.
struct Reader {
    connection: Connection,
    dir: InodeNo,
    /// Of the files he read. Asking for one again would show him that its rights changed.
    files: Mutex<HashMap<String, InodeNo>>,
}

impl Reader {
    /// `dir`: the directory of the files, in the room's root.
    fn new(connect: &Connect, dir: &Path) -> std::result::Result<Self, String> {
        let connection = connect()?;
        let name = dir.file_name().unwrap_or_default().as_encoded_bytes();
        match connection.0.lookup(InodeNo::ROOT, name) {
            Ok(dir) => Ok(Self {
                connection,
                dir: dir.no,
                files: Mutex::default(),
            }),
            Err(e) => {
                // Its own error would hide why nothing is measured.
                let _ = connection.1();
                Err(e.to_string())
            }
        }
    }

    fn find(&self, name: &str) -> ::room::Result<InodeNo> {
        let known = self.files.lock().get(name).copied();
        if let Some(no) = known {
            return Ok(no);
        }
        let no = self.connection.0.lookup(self.dir, name.as_bytes())?.no;
        self.files.lock().insert(name.to_owned(), no);
        Ok(no)
    }

    fn read(&self, name: &str, buf: &mut [u8]) -> ::room::Result<usize> {
        self.connection.0.read(self.find(name)?, 0, buf)
    }

    fn has_open(&self, name: &str, open: bool) -> ::room::Result<()> {
        let (files, no) = (&self.connection.0, self.find(name)?);
        match open {
            true => files.open(no, Access::READ).map(drop),
            false => {
                files.close(no, Access::READ);
                Ok(())
            }
        }
    }
}

impl Shared {
    /// Mounts it in the empty directory `dir`, and creates a directory for the files in it.
    ///
    /// # Errors
    /// Where nobody answers, or it cannot be mounted.
    pub fn new(share: Share, dir: &Path, run: Arc<Run>) -> Result<Self> {
        let at = At::new(dir, run, share.label.clone())?;
        let dir = at
            .path()
            .join(format!("strongroom-bench.{}", std::process::id()));
        let mut store = Self {
            share,
            files: HostFiles::new(dir.clone(), false),
            at,
            dir,
            reader: None,
        };
        store.mount()?;
        std::fs::create_dir(&store.dir)
            .map_err(|e| Error::io(&store.dir, "making the directory", e))?;
        if let Some(connect) = &store.share.reader {
            let reader = Reader::new(connect, &store.dir).map_err(|e| store.at.failed(e))?;
            store.reader = Some(reader);
        }
        Ok(store)
    }

    fn mount(&mut self) -> Result<()> {
        let (files, end) = (self.share.connect)().map_err(|e| self.at.failed(e))?;
        let label = self.share.label.clone();
        self.at.mount(
            files,
            Box::new(move || end().map_err(|e| Error::store(label, e))),
        )
    }
}

impl Subject for Shared {
    fn files(&self) -> &dyn Files {
        &self.files
    }
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            label: self.share.label.clone(),
            kind: "shared room".to_owned(),
            target: self.share.target.clone(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..observe::store_facts(&self.share.disks)
        }
    }
    fn reopen(&mut self) -> Result<()> {
        self.at.unmount()?;
        self.mount()
    }
    fn backing(&self) -> &Path {
        &self.share.disks
    }
    fn servers(&self) -> Vec<u32> {
        observe::holders_of(&self.share.disks)
    }
    fn revokes(&self) -> bool {
        self.reader.is_some()
    }
    fn other_reads(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        match &self.reader {
            Some(reader) => reader.read(name, buf).map_err(|e| {
                self.at
                    .failed(format!("somebody else's reading of {name}: {e}"))
            }),
            None => Ok(0),
        }
    }
    fn other_has_open(&self, name: &str, open: bool) -> Result<()> {
        match &self.reader {
            Some(reader) => reader.has_open(name, open).map_err(|e| {
                self.at
                    .failed(format!("somebody else's opening of {name}: {e}"))
            }),
            None => Ok(()),
        }
    }
    fn close(mut self: Box<Self>) -> Result<()> {
        // What an interrupted run left in it goes too.
        let removed = std::fs::remove_dir_all(&self.dir)
            .map_err(|e| Error::io(&self.dir, "removing the directory", e));
        if let Some(reader) = self.reader.take() {
            (reader.connection.1)().map_err(|e| self.at.failed(e))?;
        }
        self.at.unmount()?;
        removed
    }
}
