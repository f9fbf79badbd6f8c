//! A room under a workload: carries steps out and takes snapshots.
//!
//! 1. The room starts no thread of its own: the same steps make the same calls of the storage.
//! 2. A step that fails leaves the session usable; whether the room still is, the room says.
//!
//! It deliberately does not know what a failure means.

use std::sync::Arc;

use room::{
    FileKind, FileSystem as _, InodeNo, NewCredential, NewFile, NewRoom, NewSnapshot, OpenOptions,
    RenameMode, Room, SetAttr, SetTime, Snapshots as _, Suite, XattrMode,
};
use storage::Storage;

use super::grants::Grants;
use super::step::{Step, bytes};
use crate::opening::{credential, open, open_with, options, secret};
use crate::snapshot::Snapshot;

/// A room on a storage, open or not, and what a workload keeps open in it.
#[derive(Debug)]
pub struct Session {
    storage: Arc<dyn Storage>,
    /// Where [`Step::Backup`] copies to; without one that step does nothing.
    target: Option<Arc<dyn Storage>>,
    room: Option<Room>,
    held: Vec<InodeNo>,
    borrowed: Grants,
    header: Option<Vec<u8>>,
}

impl Session {
    /// Creates a room that the first key opens; with `network_backed`, one that grants writes.
    ///
    /// # Errors
    /// What the room says.
    pub fn create(storage: Arc<dyn Storage>, network_backed: bool) -> room::Result<Self> {
        let new = NewRoom {
            credential: NewCredential::RawKey(secret(0)),
            label: String::new(),
            suite: Some(Suite::Aes256Gcm),
            uid: 1000,
            gid: 1000,
            open: OpenOptions {
                network_backed,
                ..options()
            },
        };
        let room = Room::create_on(storage.clone(), new)?;
        Ok(Self::with(storage, room))
    }

    /// Opens a prepared room.
    ///
    /// # Errors
    /// What the room says.
    pub fn open(storage: Arc<dyn Storage>) -> room::Result<Self> {
        let room = open(&storage)?;
        Ok(Self::with(storage, room))
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        self.room.as_ref().is_some_and(Room::in_transaction)
    }

    fn with(storage: Arc<dyn Storage>, room: Room) -> Self {
        Self {
            storage,
            target: None,
            room: Some(room),
            held: Vec::new(),
            borrowed: Grants::default(),
            header: None,
        }
    }

    /// Where backups go.
    pub fn back_up_to(&mut self, target: Arc<dyn Storage>) {
        self.target = Some(target);
    }

    /// The room, while it is open.
    pub fn room(&self) -> Option<&Room> {
        self.room.as_ref()
    }

    /// What a user sees now; `None` while the room is closed.
    ///
    /// # Errors
    /// What the room says.
    pub fn snapshot(&self) -> room::Result<Option<Snapshot>> {
        self.room.as_ref().map(Snapshot::of).transpose()
    }

    fn open_room(&self) -> room::Result<&Room> {
        self.room.as_ref().ok_or(room::Error::NotFound)
    }

    /// Carries one step out; `number` chooses the bytes it writes.
    ///
    /// # Errors
    /// What the room says.
    pub fn step(&mut self, number: usize, step: &Step) -> room::Result<()> {
        let salt = number as u64 + 1;
        match step {
            Step::Close => return self.close(),
            Step::Reopen => {
                self.close()?;
                self.room = Some(open(&self.storage)?);
                return Ok(());
            }
            Step::BackupHeader => {
                self.header = Some(self.open_room()?.header_backup());
                return Ok(());
            }
            Step::RestoreHeader => {
                let Some(header) = self.header.clone() else {
                    return Err(room::Error::InvalidArgument("no header was kept"));
                };
                self.close()?;
                Room::header_restore_on(self.storage.clone(), &header, &credential(0))?;
                self.room = Some(open_with(
                    &self.storage,
                    &credential(0),
                    OpenOptions {
                        accept_rollback: true,
                        ..options()
                    },
                )?);
                return Ok(());
            }
            Step::Hold(path) => {
                let no = at(self.open_room()?, path)?;
                self.open_room()?.hold(no);
                self.held.push(no);
                return Ok(());
            }
            Step::Release => {
                let room = self.room.as_ref().ok_or(room::Error::NotFound)?;
                self.held.drain(..).for_each(|no| room.release(no, 1));
                return Ok(());
            }
            Step::WriteHeld(offset, len) => {
                let no = *self.held.last().ok_or(room::Error::NotFound)?;
                return self.open_room()?.write(no, *offset, &bytes(salt, *len));
            }
            Step::Grant(_) | Step::Place(..) | Step::Settle => {
                let room = self.room.as_ref().ok_or(room::Error::NotFound)?;
                return self.borrowed.step(room, &*self.storage, salt, step);
            }
            _ => {}
        }
        let room = self.open_room()?;
        if tree(room, step)? || data(room, salt, step)? || attributes(room, salt, step)? {
            return Ok(());
        }
        whole(room, self.target.as_ref(), step)
    }

    fn close(&mut self) -> room::Result<()> {
        self.held.clear();
        self.borrowed = Grants::default();
        match self.room.take() {
            Some(room) => room.close(),
            None => Ok(()),
        }
    }
}

fn at(room: &Room, path: &str) -> room::Result<InodeNo> {
    room.resolve(path.as_ref(), false)
}

fn new(kind: FileKind) -> NewFile {
    NewFile {
        uid: 1000,
        gid: 1000,
        ..NewFile::of_kind(kind)
    }
}

/// Steps that change names; false if it is none of them.
fn tree(room: &Room, step: &Step) -> room::Result<bool> {
    let make = |path: &str, new: &NewFile| {
        let (parent, name) = room.resolve_parent(path.as_ref())?;
        room.make(parent, name, new).map(drop)
    };
    let rename = |p: &str, q: &str, mode| {
        let (parent, name) = room.resolve_parent(p.as_ref())?;
        let (new_parent, new_name) = room.resolve_parent(q.as_ref())?;
        room.rename(parent, name, new_parent, new_name, mode)
    };
    match step {
        Step::Create(p) => make(p, &new(FileKind::Regular))?,
        Step::Mkdir(p) => make(p, &new(FileKind::Directory))?,
        Step::Symlink(p, to) => make(
            p,
            &NewFile {
                target: to.as_bytes().to_vec(),
                ..new(FileKind::Symlink)
            },
        )?,
        Step::Rmdir(p) => {
            let (parent, name) = room.resolve_parent(p.as_ref())?;
            room.rmdir(parent, name)?;
        }
        Step::Unlink(p) => {
            let (parent, name) = room.resolve_parent(p.as_ref())?;
            room.unlink(parent, name)?;
        }
        Step::Link(p, q) => {
            let no = at(room, p)?;
            let (parent, name) = room.resolve_parent(q.as_ref())?;
            room.link(no, parent, name)?;
        }
        Step::Rename(p, q) => rename(p, q, RenameMode::Replace)?,
        Step::Exchange(p, q) => rename(p, q, RenameMode::Exchange)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Steps that change data.
fn data(room: &Room, salt: u64, step: &Step) -> room::Result<bool> {
    match step {
        Step::Write(p, offset, len) => room.write(at(room, p)?, *offset, &bytes(salt, *len))?,
        Step::Mmap(p, offset, len) => {
            let no = at(room, p)?;
            let size = room.attributes(no)?.size;
            // A mapping is written back page by page, and never lengthens the file.
            let end = (offset + len).min(size.next_multiple_of(4096));
            let data = bytes(salt, *len);
            let mut page = offset / 4096 * 4096;
            while page < end {
                let mut content = vec![0; 4096.min(size - page) as usize];
                let n = room.read(no, page, &mut content)?;
                content.truncate(n);
                for (byte, place) in content.iter_mut().zip(page..) {
                    if let Some(new) = place
                        .checked_sub(*offset)
                        .and_then(|i| data.get(i as usize))
                    {
                        *byte = *new;
                    }
                }
                room.write(no, page, &content)?;
                page += 4096;
            }
        }
        Step::Append(p, len) => {
            let no = at(room, p)?;
            let size = room.attributes(no)?.size;
            room.write(no, size, &bytes(salt, *len))?;
        }
        Step::Truncate(p, len) => {
            room.set_attributes(at(room, p)?, &SetAttr::size(*len))?;
        }
        Step::Fallocate(p, what, offset, len) => {
            room.fallocate(at(room, p)?, *what, *offset, *len)?;
        }
        Step::Copy(p, from, q, to, len) => {
            let (source, target) = (at(room, p)?, at(room, q)?);
            room.copy_range(source, *from, target, *to, *len)?;
        }
        Step::Tmpfile(p, len) => {
            let (parent, name) = room.resolve_parent(p.as_ref())?;
            let inode = room.create_tmpfile(parent, &new(FileKind::Regular))?;
            let done = room
                .write(inode.no, 0, &bytes(salt, *len))
                .and_then(|()| room.link(inode.no, parent, name));
            room.release(inode.no, 1);
            done?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Steps that change attributes.
fn attributes(room: &Room, salt: u64, step: &Step) -> room::Result<bool> {
    let set = |p: &str, set: &SetAttr| room.set_attributes(at(room, p)?, set).map(drop);
    match step {
        Step::SetXattr(p, name, len) => room.set_xattr(
            at(room, p)?,
            name.as_bytes(),
            &bytes(salt, *len),
            XattrMode::Any,
            false,
        )?,
        Step::RemoveXattr(p, name) => room.remove_xattr(at(room, p)?, name.as_bytes())?,
        Step::Chmod(p, mode) => set(p, &SetAttr::mode(*mode))?,
        Step::Chown(p, id) => set(p, &SetAttr::owner(Some(*id), Some(*id)))?,
        Step::Times(p, secs) => set(
            p,
            &SetAttr {
                atime: Some(SetTime::at(*secs, 1)),
                mtime: Some(SetTime::at(*secs, 2)),
                ..SetAttr::default()
            },
        )?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Steps that concern the whole room.
fn whole(room: &Room, target: Option<&Arc<dyn Storage>>, step: &Step) -> room::Result<()> {
    let slot_of = |key: u8| {
        room.slots()
            .into_iter()
            .find(|slot| slot.label == label(key))
            .map(|slot| slot.id)
            .ok_or(room::Error::NotFound)
    };
    match step {
        Step::Fsync(p) | Step::Fdatasync(p) | Step::SyncDir(p) => room.fsync(at(room, p)?),
        Step::Sync => room.sync(),
        Step::Begin => room.begin(),
        Step::Complete => room.complete(),
        Step::AddSlot(key) => room
            .add_slot(NewCredential::RawKey(secret(*key)), &label(*key))
            .map(drop),
        Step::RemoveSlot(key) => room.remove_slot(slot_of(*key)?),
        Step::ChangeSlot(key, to) => {
            room.change_slot(slot_of(*key)?, NewCredential::RawKey(secret(*to)))
        }
        Step::Rekey(key) => match room.rekey(&credential(*key), &|_, _| true) {
            Ok(report) if report.finished => Ok(()),
            Ok(report) => Err(room::Error::Damaged(format!(
                "the rekey did not finish: {report:?}"
            ))),
            Err(e) => Err(e),
        },
        Step::Snapshot(name) => room.create_snapshot(name, NewSnapshot::default()).map(drop),
        Step::DropSnapshot(name) => room.delete_snapshot(name),
        Step::RenameSnapshot(name, to) => room.rename_snapshot(name, to),
        Step::Restore(name, from, to) => {
            let view = room.snapshot(name)?;
            let mut no = InodeNo::ROOT;
            for name in from.split('/') {
                no = view.lookup(no, name.as_bytes())?.no;
            }
            room.copy_from_snapshot(name, no, at(room, to)?)
        }
        Step::Tend => room.tend(),
        Step::Prepare => room.prepare(),
        Step::Compact(percent) => room.compact(*percent, &|_, _| true).map(drop),
        Step::Backup => match target {
            Some(target) => room.backup_on(target.clone(), &|_, _| true).map(drop),
            None => Ok(()),
        },
        Step::Check => room.check(true, false, &|_, _| true).map(drop),
        Step::Repair => {
            room.check(true, true, &|_, _| true)?;
            // Data that the storage refused to read is not repaired, and is no error.
            let left = room.check(true, false, &|_, _| true)?;
            if left.findings.is_empty() && left.lost.is_empty() {
                Ok(())
            } else {
                Err(room::Error::Damaged(format!("{left:?}")))
            }
        }
        // Every other step is carried out before this is called.
        _ => Err(room::Error::InvalidArgument("a step nobody carries out")),
    }
}

/// The label of a key's slot. The first slot of a room has none.
fn label(key: u8) -> String {
    if key == 0 {
        String::new()
    } else {
        format!("key {key}")
    }
}
