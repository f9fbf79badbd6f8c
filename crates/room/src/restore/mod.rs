//! Putting back what was in a snapshot: prepared beside what is there, swapped in one step, and only then is what was there removed.
//!
//! 1. [`prepare`] makes the copy complete under another name. Until the swap it is root's alone, whatever directory it is in.
//! 2. [`Prepared::swap`] changes names: one commit has all of it, or none. Where it fails, or is not called, the room is as it was.
//! 3. After a path was walked, everything goes by numbers of inodes: what somebody renames meanwhile leads nowhere else.
//!
//! It deliberately does not know who else sees the room: a program with other users keeps them away from the swap, and learns of each
//! name that goes.

mod above;
mod copy;
mod names;

use std::cell::RefCell;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use model::{Error, FileFlags, FileKind, FileSystem, Inode, InodeNo, NewFile, Result};

use crate::room::Room;
use crate::walk::resolve;
use above::Above;
use copy::{Copy, give_attributes, give_times};
use names::{Moved, beside, go_back, remove, swap_all, swap_one};
pub use names::{Removing, list};

/// How the name begins of the snapshot that undoes a restore; the time follows.
pub const BEFORE: &str = "before-restore-";
/// How the name begins of the snapshot with what was changed while the copy was made; the time follows.
pub const DURING: &str = "during-restore-";

const LINK: Error = Error::NotPermitted("the path leads through a symbolic link");
const MOVED: Error = Error::NotPermitted("somebody moved the copy while it was made");

/// What was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Files of any kind, directories among them.
    pub files: u64,
    /// Bytes of their contents; shared with the snapshot, and so not stored again.
    pub bytes: u64,
}

/// What is to be put back, and where.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Number of the snapshot.
    pub snapshot: u64,
    /// What, by its path there.
    pub path: &'a Path,
    /// Where it goes.
    pub to: &'a Path,
    /// Whether what is there is replaced; otherwise that is `Exists`.
    pub replaces: bool,
    /// Whether paths lead through symbolic links: see [`find`].
    pub follows: bool,
}

/// Asked with files and bytes done; false ends the work as `Interrupted`.
pub type GoOn<'a> = &'a dyn Fn(u64, u64) -> bool;

/// Where a name is.
type Place = (InodeNo, Vec<u8>);

/// What is given last: it keeps files from being changed and renamed.
type Flags = Vec<(InodeNo, FileFlags)>;

/// What is at a path; a symbolic link at its end is found itself. Without `follows` one on the way is `NotPermitted`: a user who may create links
/// could lead somebody else's restore astray.
pub fn find(files: &dyn FileSystem, path: &Path, follows: bool) -> Result<Inode> {
    if follows {
        return resolve(files, path, false);
    }
    let mut at = files.attributes(InodeNo::ROOT)?;
    for part in path.components() {
        at = match (part, at.kind) {
            (Component::RootDir | Component::CurDir, _) => continue,
            (_, FileKind::Symlink) => return Err(LINK),
            (Component::Normal(name), FileKind::Directory) => {
                files.lookup(at.no, name.as_bytes())?
            }
            (_, FileKind::Directory) => files.attributes(at.parent)?,
            _ => return Err(Error::NotDirectory),
        };
    }
    Ok(at)
}

/// A file that nobody but root may look at.
fn private(kind: FileKind) -> NewFile {
    let mode = match kind {
        FileKind::Directory => 0o700,
        _ => 0o600,
    };
    NewFile {
        mode,
        uid: 0,
        gid: 0,
        ..NewFile::of_kind(kind)
    }
}

/// Makes the copy, and the directories above its target that are missing. After an error the room is as it was. `InTransaction` within one,
/// which could take the restore back.
pub fn prepare<'r>(room: &'r Room, wanted: &Wanted<'_>, go_on: GoOn<'_>) -> Result<Prepared<'r>> {
    room.parts()?.commits.check_no_transaction()?;
    let (path, to) = (wanted.path, wanted.to);
    // Walked, it would be the root, and the whole room would be replaced.
    if path.as_os_str().is_empty() || to.as_os_str().is_empty() {
        return Err(Error::NotFound);
    }
    let past = room.snapshot_of_number(wanted.snapshot)?;
    let from = find(&*past, path, wanted.follows)?;
    let is_whole = to.components().all(|part| part == Component::RootDir);
    match (is_whole, wanted.replaces) {
        (true, false) => return Err(Error::Exists),
        (true, true) if from.kind != FileKind::Directory => return Err(Error::NotDirectory),
        _ => {}
    }
    let target = match to.file_name() {
        Some(name) => Some(name.as_bytes().to_vec()),
        None if is_whole => None,
        None => return Err(Error::InvalidArgument("the target has no name")),
    };
    let above = Above::make(room, &*past, wanted)?;
    let mut prepared = Prepared {
        room,
        past,
        from,
        directory: above.lowest(),
        target,
        above,
        stage: None,
        replaces: wanted.replaces,
        moved: RefCell::default(),
        flags: Vec::new(),
        done: Restored::default(),
    };
    match prepared.copy(wanted.snapshot, go_on) {
        Ok(()) => Ok(prepared),
        Err(error) => Err(prepared.failed(error)),
    }
}

/// Names that a swap moved, and that could not be moved back.
#[derive(Debug, thiserror::Error)]
#[error(
    "the room is restored in part, which could not be undone ({why}): what is missing in its root is in `{beside}` there"
)]
pub struct Left {
    beside: String,
    why: Error,
}

impl Left {
    /// Whether this is what an error of [`Prepared::swap`] says.
    pub fn is_in(error: &Error) -> bool {
        let inner = match error {
            Error::Io(e) => e.get_ref(),
            _ => None,
        };
        inner.is_some_and(|e| e.is::<Self>())
    }
}

/// A complete copy beside what it is to replace.
pub struct Prepared<'r> {
    room: &'r Room,
    past: Arc<dyn FileSystem>,
    from: Inode,
    /// The directory of the target, or the root itself.
    directory: InodeNo,
    /// The target's name; `None`: the root itself.
    target: Option<Vec<u8>>,
    above: Above,
    /// The copy, in that directory; of the whole room: a directory with what is to be in the root.
    stage: Option<(Place, InodeNo)>,
    replaces: bool,
    /// Names of the root that changed places with those of the copy of it.
    moved: RefCell<Vec<Moved>>,
    flags: Flags,
    done: Restored,
}

impl std::fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

impl<'r> Prepared<'r> {
    fn copy(&mut self, snapshot: u64, go_on: GoOn<'_>) -> Result<()> {
        let room = self.room;
        let place = (self.directory, beside(room, self.directory)?);
        let mut copy = Copy::new(room, &*self.past, snapshot, go_on);
        let new = NewFile {
            rdev: self.from.rdev,
            target: self.from.target.clone(),
            ..private(self.from.kind)
        };
        let made = room.make(place.0, &place.1, &new)?.no;
        self.stage = Some((place, made));
        copy.below(&self.from, made)?;
        (self.flags, self.done) = (copy.flags, copy.done);
        Ok(())
    }

    /// Removes the copy.
    pub fn discard(self) {
        if let Some((place, made)) = self.stage
            && let Err(e) = remove(self.room, place, made, &|_, _, remove| remove())
        {
            tracing::info!("an incomplete copy could not be removed: {e}");
        }
        self.above.remove(self.room);
    }

    fn failed(self, error: Error) -> Error {
        self.discard();
        error
    }

    /// Moves back what a swap that failed left, and removes the copy. While names of the room are in the place of the copy, that stays.
    fn undone(self, error: Error) -> Error {
        let (Some(((_, name), made)), false) = (&self.stage, self.moved.borrow().is_empty()) else {
            return self.failed(error);
        };
        match self.room.whole(|| go_back(self.room, *made, &self.moved)) {
            Ok(()) => self.failed(error),
            Err(why) => Error::Io(io::Error::other(Left {
                beside: String::from_utf8_lossy(name).into_owned(),
                why,
            })),
        }
    }

    /// Puts the copy in the place of what is there. After an error the room is as it was, but for what is [`Left`].
    pub fn swap(mut self) -> Result<Swapped<'r>> {
        let (replaced, mut flags) = match self.room.whole(|| self.change()) {
            Ok(changed) => changed,
            Err(error) => return Err(self.undone(error)),
        };
        self.flags.append(&mut flags);
        let left = match (self.stage, &self.target) {
            (Some(stage), None) => Some(stage),
            (Some((place, _)), Some(_)) => replaced.first().map(|there| (place, there.no)),
            (None, _) => None,
        };
        Ok(Swapped {
            room: self.room,
            directory: self.directory,
            left,
            replaced,
            flags: self.flags,
            done: self.done,
        })
    }

    /// What the swap changes. After an error the names are as they were, but for those that are left in `moved`.
    fn change(&self) -> Result<(Vec<Inode>, Flags)> {
        let room = self.room;
        let (place, made) = self.stage.as_ref().ok_or(Error::NotFound)?;
        // A try before this one found no space, perhaps not even to go back: half-way none may begin.
        go_back(room, *made, &self.moved)?;
        // Who may write to that directory could have moved the copy, and put something else there.
        match room.lookup(place.0, &place.1) {
            Ok(there) if there.no == *made => {}
            Ok(_) | Err(Error::NotFound) => return Err(MOVED),
            Err(e) => return Err(e),
        }
        let top = match self.target {
            Some(_) => *made,
            None => InodeNo::ROOT,
        };
        // What may fail comes before the names.
        let mut flags = Vec::new();
        let mut all = vec![(&self.from, top)];
        all.extend(self.above.restored());
        for (from, to) in &all {
            give_attributes(room, &*self.past, from, *to)?;
            if from.flags != FileFlags::default() {
                flags.push((*to, from.flags));
            }
        }
        let replaced = match &self.target {
            Some(name) => swap_one(room, place, (self.directory, name), self.replaces)?,
            None => swap_all(room, place, *made, &self.moved)?,
        };
        // A directory's times change with each name in it.
        for (from, to) in all {
            if let Err(e) = give_times(room, from, to) {
                tracing::warn!("the times of a restored directory: {e}");
            }
        }
        Ok((replaced, flags))
    }
}

/// A copy in its place, and what it replaced beside it.
pub struct Swapped<'r> {
    room: &'r Room,
    directory: InodeNo,
    /// Below which name what was replaced is now, and what is there.
    left: Option<(Place, InodeNo)>,
    replaced: Vec<Inode>,
    flags: Flags,
    done: Restored,
}

impl std::fmt::Debug for Swapped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Swapped").finish_non_exhaustive()
    }
}

impl Swapped<'_> {
    /// What was put back.
    pub fn restored(&self) -> Restored {
        self.done
    }

    /// The directory whose names changed.
    pub fn directory(&self) -> InodeNo {
        self.directory
    }

    /// What had names there, as it was before the swap.
    pub fn replaced(&self) -> &[Inode] {
        &self.replaced
    }

    /// The name in that directory below which what was replaced is now.
    pub fn left(&self) -> Option<&[u8]> {
        self.left.as_ref().map(|((_, name), _)| &name[..])
    }

    /// Whether anything of what was replaced is another than in a snapshot: by its times, which every change moves, and its size.
    pub fn differs_from(&self, past: &dyn FileSystem) -> Result<bool> {
        let is_same = |now: &Inode| match past.attributes(now.no) {
            Ok(then) => Ok((then.ctime, then.mtime, then.size) == (now.ctime, now.mtime, now.size)),
            Err(Error::NotFound) => Ok(false),
            Err(e) => Err(e),
        };
        let mut left = self.replaced.clone();
        while let Some(inode) = left.pop() {
            if !is_same(&inode)? {
                return Ok(true);
            }
            if inode.kind == FileKind::Directory {
                let below = list(self.room, inode.no)?.into_iter();
                left.extend(below.map(|(_, inode)| inode));
            }
        }
        Ok(false)
    }

    /// Removes what was replaced. What was put back has its flags also where that fails.
    pub fn finish(self, removing: Removing<'_>) -> Result<Restored> {
        // Those of the directory in which it is removed would forbid that.
        let (last, first): (Flags, Flags) =
            self.flags.iter().partition(|(no, _)| *no == self.directory);
        names::set_flags(self.room, &first)?;
        let removed = match self.left.clone() {
            Some((place, no)) => remove(self.room, place, no, removing),
            None => Ok(()),
        };
        names::set_flags(self.room, &last)?;
        removed.map(|()| self.done)
    }

    /// Ends the restore, and leaves what was replaced where it is.
    pub fn keep(self) -> Result<Restored> {
        names::set_flags(self.room, &self.flags)?;
        Ok(self.done)
    }
}
