//! Whether a user may reach an inode by its number: there is a path to it of directories that the user may search.
//!
//! 1. A file that a session has open is reached, whatever became of its path.
//! 2. A directory is reached if the user may search every directory above it, as they are now.
//! 3. Another inode is reached through a directory in which it has a name, as far as this server has seen one. Where it has seen none the
//!    number is `Stale`, and the client or its kernel looks the path up again. In the first two minutes it is reached all the same:
//!    clients open again what they had open before a restart.
//! 4. What was found is kept for the session until a directory moves or the rights of one change.
//!
//! Names and rights change under [`Incarnation::rights`], exclusively: callers hold it shared, or changes would pass between the check and
//! what relies on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use room::{Error, FileKind, Inode, InodeNo};

use super::files::Found;
use super::incarnation::Incarnation;
use crate::sessions::Session;

/// Inodes of which names are remembered; then all are forgotten, and learned again.
const SEEN_MAX: usize = 1 << 18;
/// Directories that one inode is remembered to have names in.
const NAMED_IN_MAX: usize = 16;
/// For how long after its start a server takes numbers that it has seen no name of.
const GRACE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Paths {
    begun: Instant,
    /// A test does not wait for the end of the first two minutes.
    is_late: AtomicBool,
    /// Counts moves of directories and changes of their rights.
    changes: AtomicU64,
    /// For inodes that are no directories: directories in which they have names.
    seen: Mutex<HashMap<InodeNo, Vec<InodeNo>>>,
}

impl Paths {
    pub(super) fn new(is_late: bool) -> Self {
        Self {
            begun: Instant::now(),
            is_late: AtomicBool::new(is_late),
            changes: AtomicU64::new(0),
            seen: Mutex::default(),
        }
    }

    /// An inode has a name in this directory.
    pub(super) fn seen(&self, inode: &Inode, directory: InodeNo) {
        if inode.kind == FileKind::Directory {
            return;
        }
        let mut seen = self.seen.lock();
        if seen.len() >= SEEN_MAX && !seen.contains_key(&inode.no) {
            seen.clear();
        }
        let directories = seen.entry(inode.no).or_default();
        if !directories.contains(&directory) && directories.len() < NAMED_IN_MAX {
            directories.push(directory);
        }
    }

    /// A name of an inode in this directory was removed, or moved elsewhere. Another one in the same directory is found again when
    /// somebody looks it up.
    pub(super) fn name_gone(&self, inode: &Inode, directory: InodeNo) {
        if inode.kind == FileKind::Directory {
            self.directory_changed();
        } else if let Some(directories) = self.seen.lock().get_mut(&inode.no) {
            directories.retain(|seen| *seen != directory);
        }
    }

    /// The rights of this inode changed.
    pub(super) fn rights_changed(&self, inode: &Inode) {
        if inode.kind == FileKind::Directory {
            self.directory_changed();
        }
    }

    /// Whether numbers are taken of which no name was seen.
    fn is_in_grace(&self) -> bool {
        self.begun.elapsed() < GRACE && !self.is_late.load(Ordering::SeqCst)
    }

    /// As two minutes after a start, if nobody looked at anything since.
    pub(super) fn forget_for_test(&self) {
        self.is_late.store(true, Ordering::SeqCst);
        self.seen.lock().clear();
    }

    /// What was found about ways through directories does not count any more.
    pub(super) fn directory_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Incarnation {
    /// An inode that a client names by number. `AccessDenied` where its user may not search the path to it.
    pub(super) fn reach(&self, session: &Session, no: InodeNo) -> room::Result<Found> {
        let found = self.find(no)?;
        if session.subject.is_root() || session.has_open(no) {
            return Ok(found);
        }
        let inode = &found.inode;
        match inode.kind {
            FileKind::Directory if no == InodeNo::ROOT => {}
            FileKind::Directory => self.searchable(session, inode.parent)?,
            _ => self.named(session, inode)?,
        }
        Ok(found)
    }

    /// Whether one of the names of an inode is reached.
    fn named(&self, session: &Session, inode: &Inode) -> room::Result<()> {
        let unseen = || match inode.nlink {
            // It has none: nobody finds it again.
            0 => Error::NotFound,
            _ => Error::Stale,
        };
        let directories = self.paths.seen.lock().get(&inode.no).cloned();
        let directories = match directories {
            Some(directories) if directories.is_empty() => return Err(unseen()),
            Some(directories) => directories,
            None if self.paths.is_in_grace() => return Ok(()),
            None => return Err(unseen()),
        };
        for directory in &directories {
            match self.searchable(session, *directory) {
                Err(Error::AccessDenied | Error::NotFound) => {}
                other => return other,
            }
        }
        // Another name may be where the user may search.
        match inode.nlink as usize > directories.len() {
            true => Err(Error::Stale),
            false => Err(Error::AccessDenied),
        }
    }

    /// Whether the session's user may search a directory and every one above it.
    pub(super) fn searchable(&self, session: &Session, no: InodeNo) -> room::Result<()> {
        let changes = self.paths.changes.load(Ordering::SeqCst);
        let mut way = Vec::new();
        let mut at = no;
        while !session.has_searched(changes, at) {
            let found = self.find(at)?;
            session.subject.search(found.object())?;
            way.push(at);
            if at == InodeNo::ROOT {
                break;
            }
            at = found.inode.parent;
        }
        session.searched(changes, &way);
        Ok(())
    }
}
