//! A room mounted by this very process, so that its spans are heard here.

use std::path::Path;
use std::sync::{Arc, Weak};

use ::room::Room;

use super::at::At;
use super::host::HostFiles;
use super::room::Made;
use super::{Files, Subject};
use crate::Result;
use crate::model::StoreFacts;
use crate::run_file::Run;

const LABEL: &str = "mounted room";

/// A mounted room.
pub struct MountedHere {
    made: Made,
    at: At,
    files: HostFiles,
    /// What is mounted.
    room: Weak<Room>,
}

impl MountedHere {
    /// Creates a room below the empty directory `dir` and mounts it there.
    ///
    /// # Errors
    /// Where it cannot be made or mounted, as without `/dev/fuse`.
    pub fn new(dir: &Path, run: Arc<Run>) -> Result<Self> {
        let at = At::new(dir, run, LABEL.to_owned())?;
        let (made, room) = Made::new(dir)?;
        let mut store = Self {
            made,
            files: HostFiles::new(at.path().to_owned(), false),
            at,
            room: Weak::new(),
        };
        store.mount(room)?;
        Ok(store)
    }

    fn mount(&mut self, room: Arc<Room>) -> Result<()> {
        self.room = Arc::downgrade(&room);
        let (made, ending) = (self.made.clone(), room.clone());
        self.at.mount(room, Box::new(move || made.close(ending)))
    }
}

impl Subject for MountedHere {
    fn files(&self) -> &dyn Files {
        &self.files
    }
    fn facts(&self) -> StoreFacts {
        self.room
            .upgrade()
            .map(|room| self.made.facts(LABEL, &room))
            .unwrap_or_default()
    }
    fn reopen(&mut self) -> Result<()> {
        self.at.unmount()?;
        let room = self.made.open()?;
        self.mount(room)
    }
    fn backing(&self) -> &Path {
        self.made.dir()
    }
    fn close(mut self: Box<Self>) -> Result<()> {
        self.at.unmount()
    }
}
