//! Shared storage, mounted by this very process, so that its client's spans are heard here.
//!
//! 1. The files are in a directory of their own, made and removed here; nothing else of the shared room is touched.
//! 2. The mountpoint is in the run file before anything is mounted there.
//!
//! It deliberately does not know how a server is reached: whoever makes it brings a way to connect.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::room::FileSystem;
use mount::{MountOptions, Mounted};

use super::Subject;
use super::host::Files;
use crate::model::StoreFacts;
use crate::run_file::{self, Run};
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
    /// The directory on this host where the disks' files are, if they are here.
    pub disks: PathBuf,
    /// The way to it.
    pub connect: Connect,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// A mounted shared room.
pub struct Shared {
    share: Share,
    at: PathBuf,
    run: Arc<Run>,
    files: Files,
    dir: PathBuf,
    /// None only while it is mounted afresh.
    held: Option<(Mounted, Connection)>,
}

impl Shared {
    /// Mounts it in the empty directory `dir`, and makes a directory for the files in it.
    ///
    /// # Errors
    /// Where nobody answers, or it cannot be mounted.
    pub fn new(share: Share, dir: &Path, run: Arc<Run>) -> Result<Self> {
        let at = dir.join("mnt");
        std::fs::create_dir(&at).map_err(|e| Error::io(&at, "making the mountpoint", e))?;
        let files = at.join(format!("strongroom-bench.{}", std::process::id()));
        let mut store = Self {
            share,
            files: Files::new(files.clone(), false),
            at,
            run,
            dir: files,
            held: None,
        };
        store.mount()?;
        std::fs::create_dir(&store.dir)
            .map_err(|e| Error::io(&store.dir, "making the directory", e))?;
        Ok(store)
    }

    fn failed(&self, what: impl std::fmt::Display) -> Error {
        Error::store(self.share.label.clone(), what.to_string())
    }

    fn mount(&mut self) -> Result<()> {
        let connection = (self.share.connect)().map_err(|e| self.failed(e))?;
        self.run.will_mount(&self.at)?;
        let options = MountOptions {
            name: "strongroom-bench".to_owned(),
            allow_other: false,
            ..MountOptions::default()
        };
        match mount::mount(connection.0.clone(), &self.at, &options) {
            Ok(mounted) => {
                mount::tune(mounted.mountpoint());
                self.held = Some((mounted, connection));
                Ok(())
            }
            Err(e) => {
                self.run.unmounted(&self.at);
                // Its own error would hide why nothing is measured.
                let _ = connection.1();
                Err(self.failed(format!(
                    "it could not be mounted at {}: {e}",
                    self.at.display()
                )))
            }
        }
    }

    fn unmount(&mut self) -> Result<()> {
        let Some((mounted, connection)) = self.held.take() else {
            return Ok(());
        };
        if let Err(e) = mounted.unmount() {
            let said = format!("{} could not be unmounted: {e}", self.at.display());
            self.held = Some((mounted, connection));
            return Err(self.failed(said));
        }
        self.run.unmounted(&self.at);
        mounted.wait().map_err(|e| self.failed(e))?;
        connection.1().map_err(|e| self.failed(e))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What stays mounted all the same is in the run file, for `bench clean`.
        if self.unmount().is_err() && run_file::unmount(&self.at).is_ok() {
            self.run.unmounted(&self.at);
        }
    }
}

impl Subject for Shared {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            label: self.share.label.clone(),
            kind: "shared room".to_owned(),
            target: self.share.target.clone(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..observe::store_facts(&self.share.disks)
        }
    }
    fn create(&self, name: &str, content: &[u8]) -> Result<()> {
        self.files.create(name, content)
    }
    fn read(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        self.files.read(name, buf)
    }
    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        self.files.write(name, content)
    }
    fn open(&self, name: &str) -> Result<()> {
        self.files.open(name)
    }
    fn chmod(&self, name: &str, mode: u32) -> Result<()> {
        self.files.chmod(name, mode)
    }
    fn unlink(&self, name: &str) -> Result<()> {
        self.files.unlink(name)
    }
    fn sync(&self) -> Result<()> {
        self.files.sync(false)
    }
    fn reopen(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }
    fn backing(&self) -> &Path {
        &self.share.disks
    }
    fn revokes(&self) -> bool {
        true
    }
    fn close(mut self: Box<Self>) -> Result<()> {
        // What an interrupted run left in it goes too.
        let removed = std::fs::remove_dir_all(&self.dir)
            .map_err(|e| Error::io(&self.dir, "removing the directory", e));
        self.unmount()?;
        removed
    }
}
