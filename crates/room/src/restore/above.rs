//! The directories above the target of a restore.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use model::{Error, FileKind, FileSystem, Inode, InodeNo, NewFile, Result};

use super::{LINK, Place, Wanted, find, private};
use crate::room::Room;
use crate::walk::resolve;

/// A directory that was missing.
struct Made {
    place: Place,
    no: InodeNo,
    /// What it was in the snapshot: where something comes back to its own place.
    then: Option<Inode>,
}

/// The directories above a target.
pub(super) struct Above {
    lowest: InodeNo,
    /// The highest first.
    made: Vec<Made>,
}

fn directory(files: &dyn FileSystem, path: &Path, follows: bool) -> Result<Inode> {
    let found = match follows {
        true => resolve(files, path, true)?,
        false => find(files, path, false)?,
    };
    match found.kind {
        FileKind::Directory => Ok(found),
        FileKind::Symlink => Err(LINK),
        _ => Err(Error::NotDirectory),
    }
}

impl Above {
    /// Finds them, and makes those that are missing. After an error there are none.
    pub(super) fn make(room: &Room, past: &dyn FileSystem, wanted: &Wanted<'_>) -> Result<Self> {
        let mut above = Self {
            lowest: InodeNo::ROOT,
            made: Vec::new(),
        };
        let mut missing = Vec::new();
        for path in wanted.to.ancestors().skip(1) {
            match directory(room, path, wanted.follows) {
                Ok(found) => {
                    above.lowest = found.no;
                    break;
                }
                Err(Error::NotFound) => missing.push(path),
                Err(e) => return Err(e),
            }
        }
        for path in missing.into_iter().rev() {
            if let Err(error) = above.make_one(room, past, wanted, path) {
                above.remove(room);
                return Err(error);
            }
        }
        Ok(above)
    }

    fn make_one(
        &mut self,
        room: &Room,
        past: &dyn FileSystem,
        wanted: &Wanted<'_>,
        path: &Path,
    ) -> Result<()> {
        let name = path.file_name();
        let name = name.ok_or(Error::InvalidArgument("a directory above has no name"))?;
        let (new, then) = match wanted.path == wanted.to {
            true => {
                let then = directory(past, path, wanted.follows)?;
                (private(FileKind::Directory), Some(then))
            }
            false => (NewFile::of_kind(FileKind::Directory), None),
        };
        let place = (self.lowest, name.as_bytes().to_vec());
        let no = room.make(place.0, &place.1, &new)?.no;
        self.made.push(Made { place, no, then });
        self.lowest = no;
        Ok(())
    }

    /// The one that has the target.
    pub(super) fn lowest(&self) -> InodeNo {
        self.lowest
    }

    /// What was made again, with what it was; the lowest first.
    pub(super) fn restored(&self) -> impl Iterator<Item = (&Inode, InodeNo)> {
        let made = self.made.iter().rev();
        made.filter_map(|made| Some((made.then.as_ref()?, made.no)))
    }

    /// Removes what was made: it is empty again.
    pub(super) fn remove(&self, room: &Room) {
        for made in self.made.iter().rev() {
            let (parent, name) = &made.place;
            if let Err(e) = room.rmdir(*parent, name) {
                tracing::info!("a directory that was made for a restore stays: {e}");
            }
        }
    }
}
