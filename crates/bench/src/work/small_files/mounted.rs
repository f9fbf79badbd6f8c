//! A room mounted by this very process, so that its spans are heard here.
//!
//! 1. The mountpoint is in the run file before anything is mounted there.
//! 2. Whatever happens, dropping it unmounts; what is still busy then stays in the run file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::room::Room;
use mount::{MountOptions, Mounted};

use super::Subject;
use super::host::Files;
use super::room::Made;
use crate::model::StoreFacts;
use crate::run_file::{self, Run};
use crate::{Error, Result};

const LABEL: &str = "mounted room";

/// A mounted room.
#[derive(Debug)]
pub struct MountedHere {
    made: Made,
    at: PathBuf,
    run: Arc<Run>,
    files: Files,
    /// None only while it is mounted afresh.
    held: Option<(Mounted, Arc<Room>)>,
}

impl MountedHere {
    /// Makes a room below the empty directory `dir` and mounts it there.
    ///
    /// # Errors
    /// Where it cannot be made or mounted, as without `/dev/fuse`.
    pub fn new(dir: &Path, run: Arc<Run>) -> Result<Self> {
        let at = dir.join("mnt");
        std::fs::create_dir(&at).map_err(|e| Error::io(&at, "making the mountpoint", e))?;
        let (made, room) = Made::new(dir)?;
        let mut store = Self {
            made,
            files: Files::new(at.clone(), false),
            at,
            run,
            held: None,
        };
        store.mount(room)?;
        Ok(store)
    }

    fn mount(&mut self, room: Arc<Room>) -> Result<()> {
        self.run.will_mount(&self.at)?;
        let options = MountOptions {
            name: "strongroom-bench".to_owned(),
            allow_other: false,
            ..MountOptions::default()
        };
        match mount::mount(room.clone(), &self.at, &options) {
            Ok(mounted) => {
                mount::tune(mounted.mountpoint());
                self.held = Some((mounted, room));
                Ok(())
            }
            Err(e) => {
                self.run.unmounted(&self.at);
                // The room's own closing error would hide why nothing is measured.
                let _ = self.made.close(room);
                Err(Error::store(
                    LABEL,
                    format!("it could not be mounted at {}: {e}", self.at.display()),
                ))
            }
        }
    }

    fn unmount(&mut self) -> Result<()> {
        let Some((mounted, room)) = self.held.take() else {
            return Ok(());
        };
        if let Err(e) = mounted.unmount() {
            self.held = Some((mounted, room));
            return Err(Error::store(
                LABEL,
                format!("{} could not be unmounted: {e}", self.at.display()),
            ));
        }
        self.run.unmounted(&self.at);
        mounted
            .wait()
            .map_err(|e| Error::store(LABEL, e.to_string()))?;
        self.made.close(room)
    }
}

impl Drop for MountedHere {
    fn drop(&mut self) {
        // What stays mounted all the same is in the run file, for `bench clean`.
        if self.unmount().is_err() && run_file::unmount(&self.at).is_ok() {
            self.run.unmounted(&self.at);
        }
    }
}

impl Subject for MountedHere {
    fn facts(&self) -> StoreFacts {
        self.held
            .as_ref()
            .map(|(_, room)| self.made.facts(LABEL, room))
            .unwrap_or_default()
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
        // `syncfs` of a FUSE mount waits for nobody; an fsync of the directory commits the room.
        self.files.sync(false)
    }
    fn reopen(&mut self) -> Result<()> {
        self.unmount()?;
        let room = self.made.open()?;
        self.mount(room)
    }
    fn backing(&self) -> &Path {
        self.made.dir()
    }
    fn close(mut self: Box<Self>) -> Result<()> {
        self.unmount()
    }
}
