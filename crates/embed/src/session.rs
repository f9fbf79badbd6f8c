//! The open room, and what is done to it by path.

use std::path::Path;
use std::sync::Arc;

use room::{
    Argon2Cost, Error as RoomError, FileKind, Info, Inode, NewFile, NewRoom, OpenOptions,
    RenameMode, Room, RoomSpace, SetAttr, SlotInfo, Suite, XattrMode,
};

use crate::shared::{OpenRoom, Shared};
use crate::{Error, File, Key, OpenMode, Result};

/// An open room, or a room at the moment of a snapshot, which reads only. Clones are the same one. When the last clone and the last
/// file of it are dropped, it is committed and closed; a transaction that is open then is as if it had never begun.
#[derive(Debug, Clone)]
pub struct Session(pub(crate) Arc<Shared>);

/// One name of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name: 1 to 255 bytes, no `/`, no NUL.
    pub name: Vec<u8>,
    /// What it leads to.
    pub inode: Inode,
}

impl Session {
    fn of(room: Room) -> Self {
        Self(Arc::new(Shared::of(room)))
    }

    /// A session of the snapshot of this number.
    pub(crate) fn past(&self, number: u64) -> Self {
        Self(Arc::new(self.0.past(number)))
    }

    /// Creates a room in `dir`, which must not exist or be empty, and opens it. `cost` as for [`Key::new_credential`].
    pub fn create(
        dir: impl AsRef<Path>,
        key: Key,
        cost: Option<Argon2Cost>,
        options: OpenOptions,
    ) -> Result<Self> {
        Self::create_with(dir, key, cost, options, None)
    }

    /// The same, with a suite; `None`: the faster one here.
    pub fn create_with(
        dir: impl AsRef<Path>,
        key: Key,
        cost: Option<Argon2Cost>,
        options: OpenOptions,
        suite: Option<Suite>,
    ) -> Result<Self> {
        let mut new = NewRoom::with_credential(key.new_credential(cost));
        new.open = options;
        new.suite = suite;
        Ok(Self::of(noticed(
            dir.as_ref(),
            Room::create(dir.as_ref(), new)?,
        )))
    }

    /// Opens the room in `dir`.
    pub fn open(dir: impl AsRef<Path>, key: Key, options: OpenOptions) -> Result<Self> {
        let room = Room::open(dir.as_ref(), &key.credential(), options)?;
        Ok(Self::of(noticed(dir.as_ref(), room)))
    }

    /// Waits for the calls under way, commits, and closes. Within a transaction: refused as busy, and nothing is closed. Closed
    /// already: nothing to do.
    pub fn close(&self) -> Result<()> {
        match self.0.room() {
            Err(Error::Closed(_)) => return Ok(()),
            other => drop(other?),
        }
        if self.0.close_past() {
            return Ok(());
        }
        let mut room = self.0.place();
        if room.as_ref().is_some_and(Room::in_transaction) {
            return Err(room::Error::InTransaction.into());
        }
        Ok(room.take().map_or(Ok(()), Room::close)?)
    }

    /// Closes at once; an open transaction is as if it had never begun.
    pub fn abandon(&self) -> Result<()> {
        drop(self.0.room()?);
        if self.0.close_past() {
            return Ok(());
        }
        let Some(room) = self.0.place().take() else {
            return Ok(());
        };
        match room.close() {
            Err(room::Error::InTransaction) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Whether it can be used.
    pub fn is_open(&self) -> bool {
        self.0.room().is_ok()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> Result<bool> {
        Ok(self.0.room()?.is_read_only())
    }

    /// Facts about the room.
    pub fn info(&self) -> Result<Info> {
        Ok(self.0.room()?.room().info()?)
    }

    /// Space of the room and of what holds it.
    pub fn space(&self) -> Result<RoomSpace> {
        Ok(self.0.room()?.space()?)
    }

    /// Makes everything done so far durable; within a transaction its completion does.
    pub fn sync(&self) -> Result<()> {
        Ok(self.0.room()?.sync()?)
    }

    /// Begins a transaction: [`Room::begin`].
    pub fn begin(&self) -> Result<()> {
        Ok(self.0.room()?.changeable()?.begin()?)
    }

    /// Completes it: [`Room::complete`].
    pub fn complete(&self) -> Result<()> {
        Ok(self.0.room()?.changeable()?.complete()?)
    }

    /// Whether one is open.
    pub fn in_transaction(&self) -> Result<bool> {
        let room = self.0.room()?;
        Ok(room.changeable().is_ok_and(Room::in_transaction))
    }

    /// Opens a file. Symbolic links are followed, at the end of the path too.
    pub fn open_file(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<File> {
        File::open(&self.0, path.as_ref(), mode)
    }

    /// Attributes of what is at a path; `follow`: through a symbolic link at its end.
    pub fn stat(&self, path: impl AsRef<Path>, follow: bool) -> Result<Inode> {
        let room = self.0.room()?;
        Ok(room.attributes(room.resolve(path.as_ref(), follow)?)?)
    }

    /// Whether there is something at a path. Errors other than that there is not are errors.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.stat(path, true) {
            Ok(_) => Ok(true),
            Err(Error::Room(room::Error::NotFound | room::Error::NotDirectory)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// All names of a directory, in the order in which they were made.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<Entry>> {
        let room = self.0.room()?;
        let no = room.resolve(path.as_ref(), true)?;
        let all = room::restore::list(&*room, no)?;
        let entry = |(name, inode)| Entry { name, inode };
        Ok(all.into_iter().map(entry).collect())
    }

    /// Creates a directory with the given permission bits.
    pub fn make_dir(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        Ok(make_dir(&self.0.room()?, path.as_ref(), mode)?)
    }

    /// Creates a directory and those above it that are missing; all there already: nothing to do.
    pub fn make_dirs(&self, path: impl AsRef<Path>) -> Result<()> {
        let (room, path) = (self.0.room()?, path.as_ref());
        // For the answer to a path that leads nowhere.
        if path.as_os_str().is_empty() {
            return Err(RoomError::NotFound.into());
        }
        Ok(room.changeable()?.make_dir(path, true)?)
    }

    /// Removes a name that is not a directory's.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let room = self.0.room()?;
        let (parent, name) = room.resolve_parent(path.as_ref())?;
        Ok(room.unlink(parent, name)?)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let room = self.0.room()?;
        let (parent, name) = room.resolve_parent(path.as_ref())?;
        Ok(room.rmdir(parent, name)?)
    }

    /// Renames, as rename(2) does.
    pub fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let room = self.0.room()?;
        let (parent, name) = room.resolve_parent(from.as_ref())?;
        let (new_parent, new_name) = room.resolve_parent(to.as_ref())?;
        Ok(room.rename(parent, name, new_parent, new_name, mode)?)
    }

    /// Gives a file another name.
    pub fn link(&self, existing: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        let room = self.0.room()?;
        let no = room.resolve(existing.as_ref(), false)?;
        let (parent, name) = room.resolve_parent(new.as_ref())?;
        room.link(no, parent, name)?;
        Ok(())
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn symlink(&self, target: &[u8], path: impl AsRef<Path>) -> Result<()> {
        let room = self.0.room()?;
        let (parent, name) = room.resolve_parent(path.as_ref())?;
        let new = NewFile {
            mode: 0o777,
            target: target.to_vec(),
            ..NewFile::of_kind(FileKind::Symlink)
        };
        room.make(parent, name, &new)?;
        Ok(())
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let room = self.0.room()?;
        Ok(room.read_link(room.resolve(path.as_ref(), false)?)?)
    }

    /// Changes attributes of what is at a path: permission bits, owner, length, times.
    pub fn set_attributes(
        &self,
        path: impl AsRef<Path>,
        set: &SetAttr,
        follow: bool,
    ) -> Result<Inode> {
        let room = self.0.room()?;
        Ok(room.set_attributes(room.resolve(path.as_ref(), follow)?, set)?)
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<Vec<u8>> {
        let room = self.0.room()?;
        Ok(room.xattr(room.resolve(path.as_ref(), true)?, name)?)
    }

    /// Sets one.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let room = self.0.room()?;
        let no = room.resolve(path.as_ref(), true)?;
        Ok(room.set_xattr(no, name, value, mode, false)?)
    }

    /// Removes one.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<()> {
        let room = self.0.room()?;
        Ok(room.remove_xattr(room.resolve(path.as_ref(), true)?, name)?)
    }

    /// The names of all, sorted.
    pub fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let room = self.0.room()?;
        Ok(room.xattr_names(room.resolve(path.as_ref(), true)?)?)
    }

    /// The key slots.
    pub fn slots(&self) -> Result<Vec<SlotInfo>> {
        Ok(self.0.room()?.room().slots())
    }

    /// Adds a key slot; returns its number.
    pub fn add_key(&self, key: Key, cost: Option<Argon2Cost>, label: &str) -> Result<u32> {
        let room = self.0.room()?;
        Ok(room
            .changeable()?
            .add_slot(key.new_credential(cost), label)?)
    }

    /// Puts another key into a slot.
    pub fn change_key(&self, slot: u32, key: Key, cost: Option<Argon2Cost>) -> Result<()> {
        let room = self.0.room()?;
        Ok(room
            .changeable()?
            .change_slot(slot, key.new_credential(cost))?)
    }

    /// Removes a key slot. The last one stays.
    pub fn remove_key(&self, slot: u32) -> Result<()> {
        Ok(self.0.room()?.changeable()?.remove_slot(slot)?)
    }
}

/// Warns the user of a room whose rollback nobody will notice; where the program takes log messages, `room` has done so.
fn noticed(dir: &Path, room: Room) -> Room {
    if !room.notices_rollbacks() && !tracing::dispatcher::has_been_set() {
        eprintln!(
            "strongroom: {}: a rollback of this room will not be noticed, because there is no place to remember it: set HOME, \
             XDG_STATE_HOME, STRONGROOM_STATE_DIR, or the option for the state directory",
            dir.display()
        );
    }
    room
}

fn make_dir(room: &OpenRoom<'_>, path: &Path, mode: u16) -> room::Result<()> {
    let (parent, name) = room.resolve_parent(path)?;
    let new = NewFile {
        mode: mode & 0o7777,
        ..NewFile::of_kind(FileKind::Directory)
    };
    room.make(parent, name, &new).map(drop)
}
