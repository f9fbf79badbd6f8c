//! A room through the library.

use room::FileSystem as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::room::{Credential, InodeNo, NewCredential, NewRoom, OpenOptions, Room, Secret, SetAttr};

use super::{Files, Subject};
use crate::model::StoreFacts;
use crate::{Error, Result, observe};

const LABEL: &str = "room";
const KEY: [u8; 32] = [0x5a; 32];

/// A room created for the measurement, opened with a raw key: what is measured has no key derivation in it.
#[derive(Debug, Clone)]
pub(super) struct Made {
    dir: PathBuf,
    state: PathBuf,
}

impl Made {
    /// Creates a room below the empty directory `dir`.
    pub(super) fn new(dir: &Path) -> Result<(Self, Arc<Room>)> {
        let made = Self {
            dir: dir.join("room"),
            state: dir.join("state"),
        };
        let mut new = NewRoom::with_credential(NewCredential::RawKey(Secret::from(KEY.to_vec())));
        new.open = made.options();
        let room = Room::create(&made.dir, new).map_err(|e| made.failed("making it", &e))?;
        Ok((made, Arc::new(room)))
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::with_state_dir(self.state.clone())
    }

    pub(super) fn open(&self) -> Result<Arc<Room>> {
        let key = Credential::RawKey(Secret::from(KEY.to_vec()));
        Room::open(&self.dir, &key, self.options())
            .map(Arc::new)
            .map_err(|e| self.failed("opening it", &e))
    }

    /// Closes a room that nobody else holds any more.
    pub(super) fn close(&self, room: Arc<Room>) -> Result<()> {
        match Arc::try_unwrap(room) {
            Ok(room) => room.close().map_err(|e| self.failed("closing it", &e)),
            Err(_) => Err(Error::store(
                LABEL,
                "it is still in use and cannot be closed",
            )),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn facts(&self, label: &str, room: &Room) -> StoreFacts {
        StoreFacts {
            label: label.to_owned(),
            kind: label.to_owned(),
            target: self.dir.display().to_string(),
            cipher: room.info().ok().map(|info| info.suite.to_string()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..observe::store_facts(&self.dir)
        }
    }

    fn failed(&self, doing: &str, error: &::room::Error) -> Error {
        Error::store(LABEL, format!("{}: {doing}: {error}", self.dir.display()))
    }
}

/// A room through the library.
#[derive(Debug)]
pub struct Library {
    made: Made,
    /// None only while it is reopened.
    room: Option<Arc<Room>>,
}

impl Library {
    /// Creates a room below the empty directory `dir`.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new(dir: &Path) -> Result<Self> {
        let (made, room) = Made::new(dir)?;
        Ok(Self {
            made,
            room: Some(room),
        })
    }

    fn room(&self) -> Result<&Room> {
        self.room
            .as_deref()
            .ok_or_else(|| Error::store(LABEL, "it could not be opened again"))
    }

    fn on<T>(&self, name: &str, call: impl FnOnce(&Room) -> ::room::Result<T>) -> Result<T> {
        call(self.room()?).map_err(|e| Error::store(LABEL, format!("{name}: {e}")))
    }
}

impl Files for Library {
    fn create(&self, name: &str, content: &[u8]) -> Result<()> {
        self.on(name, |room| {
            let file = room.open_or_make_file(name)?;
            room.write(file.inode(), 0, content)?;
            room.fsync(file.inode())
        })
    }

    fn read(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        self.on(name, |room| {
            let file = room.open_file(name)?;
            room.read(file.inode(), 0, buf)
        })
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        self.on(name, |room| {
            let file = room.open_file(name)?;
            room.write(file.inode(), 0, content)?;
            room.fsync(file.inode())
        })
    }

    fn open(&self, name: &str) -> Result<()> {
        self.on(name, |room| room.open_file(name).map(drop))
    }

    fn chmod(&self, name: &str, mode: u32) -> Result<()> {
        self.on(name, |room| {
            let no = room.lookup(InodeNo::ROOT, name.as_bytes())?.no;
            room.set_attributes(no, &SetAttr::mode(mode as u16))
                .map(drop)
        })
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.on(name, |room| room.unlink(InodeNo::ROOT, name.as_bytes()))
    }

    fn sync(&self) -> Result<()> {
        self.on("all", Room::sync)
    }
}

impl Subject for Library {
    fn facts(&self) -> StoreFacts {
        self.room
            .as_deref()
            .map(|room| self.made.facts(LABEL, room))
            .unwrap_or_default()
    }

    fn files(&self) -> &dyn Files {
        self
    }

    fn reopen(&mut self) -> Result<()> {
        if let Some(room) = self.room.take() {
            self.made.close(room)?;
        }
        self.room = Some(self.made.open()?);
        Ok(())
    }

    fn backing(&self) -> &Path {
        self.made.dir()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        match self.room.take() {
            Some(room) => self.made.close(room),
            None => Ok(()),
        }
    }
}
