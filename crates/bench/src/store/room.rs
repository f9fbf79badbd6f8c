//! A room through the library, without a mount: one made for the occasion, or somebody's own.
//!
//! 1. In a room that was there before, everything is made in one fresh directory, which the run file names, and which is
//!    removed at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use room::{
    Credential, FileKind, FileSystem as _, InodeNo, NewCredential, NewFile, NewRoom, OpenOptions,
    RenameMode, Room, Secret, SetAttr,
};

use super::{Cold, Making, Mode, Names, Object, Powers, Store, facts, host};
use crate::model::StoreFacts;
use crate::run_file::{PREFIX, Run, WorkDir};
use crate::{Error, Result};

/// Length of a raw key, bytes.
const KEY_LEN: usize = 32;

/// A room, opened by this process.
pub(crate) struct RoomStore {
    facts: StoreFacts,
    dir: PathBuf,
    credential: Credential,
    options: OpenOptions,
    room: Option<Arc<Room>>,
    base: InodeNo,
    home: Home,
    drop_caches: bool,
}

/// Where files are created, and so what is removed.
enum Home {
    /// In a room of our own.
    Made(WorkDir),
    /// In this directory of somebody's room.
    Within { run: Arc<Run>, path: String },
}

impl RoomStore {
    /// A new room below `under`.
    pub(crate) fn make(under: &Path, target: &str, making: &Making) -> Result<RoomStore> {
        let work = making.run.directory(under)?;
        let dir = work.path().join("room");
        let (new, credential) = fresh_room(making, work.path());
        let options = new.open.clone();
        let room = Room::create(&dir, new).map_err(|e| failed(&dir, &e))?;
        Self::start(
            room,
            dir,
            credential,
            options,
            Home::Made(work),
            target,
            making,
        )
    }

    /// The room that is there at `dir`.
    pub(crate) fn find(dir: &Path, target: &str, making: &Making) -> Result<RoomStore> {
        let dir = dir
            .canonicalize()
            .map_err(|e| Error::io(dir, "finding the room", e))?;
        let Some(key) = &making.key else {
            return Err(Error::Usage(format!(
                "{}: a room, and nothing was given that opens it",
                dir.display()
            )));
        };
        let credential = key(&dir)?;
        let options = OpenOptions::default();
        let room = Room::open(&dir, &credential, options.clone()).map_err(|e| failed(&dir, &e))?;
        let path = format!("/{PREFIX}{:016x}", fastrand::u64(..));
        making.run.will_make_in_room(&dir, &path)?;
        let home = Home::Within {
            run: making.run.clone(),
            path: path.clone(),
        };
        let mut store = Self::start(room, dir, credential, options, home, target, making)?;
        let room = store.room()?;
        room.make_dir(&path, false)
            .and_then(|()| room.resolve(path.as_ref(), false))
            .map(|base| store.base = base)
            .map_err(|e| failed(&store.dir, &e))?;
        Ok(store)
    }

    fn start(
        room: Room,
        dir: PathBuf,
        credential: Credential,
        options: OpenOptions,
        home: Home,
        target: &str,
        making: &Making,
    ) -> Result<RoomStore> {
        let info = room.info().map_err(|e| failed(&dir, &e))?;
        let facts = StoreFacts {
            label: making.label.clone(),
            kind: "room".into(),
            target: target.into(),
            cipher: Some(info.suite.name().into()),
            version: Some(env!("CARGO_PKG_VERSION").into()),
            ..facts::of_path(&dir)
        };
        Ok(RoomStore {
            facts,
            dir,
            credential,
            options,
            room: Some(Arc::new(room)),
            base: InodeNo::ROOT,
            home,
            drop_caches: making.drop_caches,
        })
    }

    fn room(&self) -> Result<Arc<Room>> {
        self.room
            .clone()
            .ok_or_else(|| Error::store(&self.facts.label, "the room could not be opened again"))
    }

    fn path_of(&self, name: &str) -> String {
        match &self.home {
            Home::Made(_) => format!("/{name}"),
            Home::Within { path, .. } => format!("{path}/{name}"),
        }
    }

    /// Commits and closes, so that nothing of the room is in this process's memory.
    fn shut(&mut self) -> Result<()> {
        let Some(room) = self.room.take() else {
            return Ok(());
        };
        let room = Arc::try_unwrap(room).map_err(|room| {
            // A work that keeps an object over this is a bug of ours; the room stays usable.
            self.room = Some(room);
            Error::store(
                &self.facts.label,
                "something in the room is still open: a bug in this program",
            )
        })?;
        room.close().map_err(|e| failed(&self.dir, &e))
    }

    fn end(&mut self) -> Result<()> {
        if let (Home::Within { run, path }, Some(room)) = (&self.home, &self.room) {
            remove_in_room(room, path).map_err(|e| failed(&self.dir, &e))?;
            room.sync().map_err(|e| failed(&self.dir, &e))?;
            run.gone_in_room(&self.dir, path);
        }
        self.shut()
    }
}

impl Store for RoomStore {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn powers(&self) -> Powers {
        Powers {
            direct: false,
            files: false,
            single: false,
        }
    }

    fn open(&mut self, name: &str, mode: Mode) -> Result<Arc<dyn Object>> {
        if mode.is_direct() {
            return Err(Error::Refused(format!(
                "{}: a room without a mount knows no direct calls",
                self.facts.label
            )));
        }
        let room = self.room()?;
        let path = self.path_of(name);
        let no = if mode.makes() {
            room.make(
                self.base,
                name.as_bytes(),
                &NewFile::of_kind(FileKind::Regular),
            )
            .map(|inode| inode.no)
        } else {
            room.resolve(path.as_ref(), false)
        };
        let no = no.map_err(|e| failed(&self.dir, &e))?;
        room.hold(no);
        Ok(Arc::new(RoomObject {
            room,
            no,
            write: mode.writes(),
        }))
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        match self.room()?.unlink(self.base, name.as_bytes()) {
            Ok(()) | Err(room::Error::NotFound) => Ok(()),
            Err(e) => Err(failed(&self.dir, &e)),
        }
    }

    fn names(&mut self) -> Result<Arc<dyn Names>> {
        Ok(Arc::new(RoomNames {
            room: self.room()?,
            base: self.base,
        }))
    }

    fn settle(&mut self) -> Result<()> {
        self.room()?.tend().map_err(|e| failed(&self.dir, &e))?;
        host::sync_below(&self.dir)
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.shut()?;
        host::sync_below(&self.dir)?;
        host::forget_pages(&self.dir)?;
        let mut cold = Cold::default();
        cold.done
            .push("room opened afresh, page cache emptied of its files".into());
        if facts::is_fuse(&self.dir) {
            super::say_of_server(&self.dir.display().to_string(), self.drop_caches, &mut cold);
        }
        super::forget_all(self.drop_caches, &mut cold);
        let room = Room::open(&self.dir, &self.credential, self.options.clone())
            .map_err(|e| failed(&self.dir, &e))?;
        self.room = Some(Arc::new(room));
        // Opening reads a little of it: the catalog, the header.
        host::forget_pages(&self.dir)?;
        Ok(cold)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.dir.clone())
    }

    fn backing(&self) -> Option<PathBuf> {
        Some(self.dir.clone())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.end()?;
        match &mut self.home {
            Home::Made(work) => work.remove(),
            Home::Within { .. } => Ok(()),
        }
    }
}

impl Drop for RoomStore {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(
                "{error}; what is left in the room is removed by: strongroom bench clean"
            );
        }
    }
}

/// How a room for the occasion is made, and what opens it: a raw key, since no passphrase is measured here. What this
/// machine remembers of the room is kept in `work`, and goes with it.
pub(crate) fn fresh_room(making: &Making, work: &Path) -> (NewRoom, Credential) {
    let mut key = [0; KEY_LEN];
    // Nothing secret is ever in such a room.
    fastrand::fill(&mut key);
    let secret = || Secret::from(key.as_slice());
    let mut new = NewRoom::with_credential(NewCredential::RawKey(secret()));
    new.suite = making.suite;
    new.open.state_dir = Some(work.join("state"));
    (new, Credential::RawKey(secret()))
}

/// Removes the directory `path` of a room with all that is in it; one that is not there is fine. Only what begins with
/// [`PREFIX`] right below the root.
///
/// # Errors
/// `InvalidArgument` for another path; what the room says.
pub fn remove_in_room(room: &Room, path: &str) -> room::Result<()> {
    let name = path.strip_prefix('/').unwrap_or_default();
    if !name.starts_with(PREFIX) || name.contains('/') {
        return Err(room::Error::InvalidArgument(
            "not a directory of a benchmark",
        ));
    }
    match room.lookup(InodeNo::ROOT, name.as_bytes()) {
        Err(room::Error::NotFound) => return Ok(()),
        Err(e) => return Err(e),
        Ok(found) if found.kind != FileKind::Directory => return Err(room::Error::NotDirectory),
        Ok(found) => empty(room, found.no)?,
    }
    room.rmdir(InodeNo::ROOT, name.as_bytes())
}

fn empty(room: &Room, dir: InodeNo) -> room::Result<()> {
    loop {
        let entries = room.read_dir(dir, 0, 1024)?;
        if entries.is_empty() {
            return Ok(());
        }
        for (entry, _) in entries {
            if entry.kind == FileKind::Directory {
                empty(room, entry.inode)?;
                room.rmdir(dir, &entry.name)?;
            } else {
                room.unlink(dir, &entry.name)?;
            }
        }
    }
}

fn failed(dir: &Path, error: &room::Error) -> Error {
    let why = match error {
        room::Error::InUse { pid } => format!(
            "the room is in use by process {pid}; unmount it, or name a directory in its mountpoint instead"
        ),
        other => other.to_string(),
    };
    Error::store(dir.display().to_string(), why)
}

fn io_error(error: room::Error) -> io::Error {
    match error {
        room::Error::NotFound => io::ErrorKind::NotFound.into(),
        room::Error::Exists => io::ErrorKind::AlreadyExists.into(),
        room::Error::NoSpace => io::ErrorKind::StorageFull.into(),
        other => io::Error::other(other),
    }
}

struct RoomObject {
    room: Arc<Room>,
    no: InodeNo,
    write: bool,
}

impl Object for RoomObject {
    fn len(&self) -> io::Result<u64> {
        Ok(self.room.attributes(self.no).map_err(io_error)?.size)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let n = self.room.read(self.no, offset, buf).map_err(io_error)?;
        if n < buf.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if !self.write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.room.write(self.no, offset, data).map_err(io_error)
    }

    fn sync(&self) -> io::Result<()> {
        self.room.fsync(self.no).map_err(io_error)
    }
}

impl Drop for RoomObject {
    fn drop(&mut self) {
        self.room.release(self.no, 1);
    }
}

struct RoomNames {
    room: Arc<Room>,
    base: InodeNo,
}

impl RoomNames {
    fn find(&self, path: &str) -> io::Result<InodeNo> {
        let mut at = self.base;
        for name in path
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
        {
            at = self.room.lookup(at, name.as_bytes()).map_err(io_error)?.no;
        }
        Ok(at)
    }

    fn parent<'a>(&self, path: &'a str) -> io::Result<(InodeNo, &'a [u8])> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?, name.as_bytes()))
    }
}

impl Names for RoomNames {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let new = NewFile::of_kind(FileKind::Directory);
        self.room
            .make(parent, name, &new)
            .map(drop)
            .map_err(io_error)
    }

    fn create(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let new = NewFile::of_kind(FileKind::Regular);
        let made = self.room.make(parent, name, &new).map_err(io_error)?;
        self.room.write(made.no, 0, content).map_err(io_error)?;
        if sync {
            self.room.fsync(made.no).map_err(io_error)?;
        }
        Ok(())
    }

    fn open(&self, path: &str) -> io::Result<()> {
        let no = self.find(path)?;
        self.room.hold(no);
        self.room.release(no, 1);
        Ok(())
    }

    fn read(&self, path: &str, buf: &mut [u8]) -> io::Result<usize> {
        self.room.read(self.find(path)?, 0, buf).map_err(io_error)
    }

    fn write(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()> {
        let no = self.find(path)?;
        self.room.write(no, 0, content).map_err(io_error)?;
        if sync {
            self.room.fsync(no).map_err(io_error)?;
        }
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<u64> {
        let no = self.find(path)?;
        Ok(self.room.attributes(no).map_err(io_error)?.size)
    }

    fn list(&self, path: &str) -> io::Result<u64> {
        let no = self.find(path)?;
        let (mut after, mut count) = (0, 0);
        loop {
            let entries = self.room.read_dir(no, after, 1024).map_err(io_error)?;
            let Some((last, _)) = entries.last() else {
                return Ok(count);
            };
            after = last.cookie;
            count += entries.len() as u64;
        }
    }

    fn chmod(&self, path: &str, mode: u32) -> io::Result<()> {
        let set = SetAttr::mode((mode & 0o7777) as u16);
        let no = self.find(path)?;
        self.room
            .set_attributes(no, &set)
            .map(drop)
            .map_err(io_error)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from, name), (to, new)) = (self.parent(from)?, self.parent(to)?);
        self.room
            .rename(from, name, to, new, RenameMode::Replace)
            .map_err(io_error)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.room.unlink(parent, name).map_err(io_error)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.room.rmdir(parent, name).map_err(io_error)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.room.fsync(self.find(path)?).map_err(io_error)
    }

    fn sync(&self) -> io::Result<()> {
        self.room.sync().map_err(io_error)
    }
}
