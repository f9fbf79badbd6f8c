//! A file system mounted by this very process, so that its spans are heard here.
//!
//! 1. The mountpoint is in the run file before anything is mounted there.
//! 2. Whatever happens, dropping it unmounts; what is still busy then stays in the run file.
//!
//! It deliberately does not know what is mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::room::FileSystem;
use mount::{MountOptions, Mounted};

use crate::run_file::{self, Run};
use crate::{Error, Result};

/// How what is mounted is ended when it is not mounted any more.
pub(super) type End = Box<dyn FnOnce() -> Result<()>>;

/// A mountpoint, and what is mounted there.
pub(super) struct At {
    /// Names the store in errors.
    label: String,
    path: PathBuf,
    run: Arc<Run>,
    /// None only while it is mounted afresh.
    held: Option<(Mounted, End)>,
}

impl At {
    /// Makes the mountpoint in the empty directory `dir`.
    pub(super) fn new(dir: &Path, run: Arc<Run>, label: String) -> Result<Self> {
        let path = dir.join("mnt");
        std::fs::create_dir(&path).map_err(|e| Error::io(&path, "making the mountpoint", e))?;
        Ok(Self {
            label,
            path,
            run,
            held: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn failed(&self, what: impl std::fmt::Display) -> Error {
        Error::store(self.label.clone(), what.to_string())
    }

    pub(super) fn mount(&mut self, files: Arc<dyn FileSystem>, end: End) -> Result<()> {
        self.run.will_mount(&self.path)?;
        let options = MountOptions {
            name: "strongroom-bench".to_owned(),
            allow_other: false,
            ..MountOptions::default()
        };
        match mount::mount(files, &self.path, &options) {
            Ok(mounted) => {
                mount::tune(mounted.mountpoint());
                self.held = Some((mounted, end));
                Ok(())
            }
            Err(e) => {
                self.run.unmounted(&self.path);
                // Its own error would hide why nothing is measured.
                let _ = end();
                Err(self.failed(format!(
                    "it could not be mounted at {}: {e}",
                    self.path.display()
                )))
            }
        }
    }

    pub(super) fn unmount(&mut self) -> Result<()> {
        let Some((mounted, end)) = self.held.take() else {
            return Ok(());
        };
        if let Err(e) = mounted.unmount() {
            self.held = Some((mounted, end));
            return Err(self.failed(format!(
                "{} could not be unmounted: {e}",
                self.path.display()
            )));
        }
        self.run.unmounted(&self.path);
        mounted.wait().map_err(|e| self.failed(e))?;
        end()
    }
}

impl Drop for At {
    fn drop(&mut self) {
        // What stays mounted all the same is in the run file, for `bench clean`.
        if self.unmount().is_err() && run_file::unmount(&self.path).is_ok() {
            self.run.unmounted(&self.path);
        }
    }
}
