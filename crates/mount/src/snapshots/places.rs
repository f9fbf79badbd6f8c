//! Where an inode is that is not of the live tree, and how it is shown: its number, its parent, its flags.

use model::{DirEntry, Error, FileFlags, FileKind, FileSystem, Inode, InodeNo, Result, Snapshot};

use super::WithSnapshots;
use super::numbers::{self, Number};
use super::routes::Route;
use super::views::View;

/// Position of the directory of snapshots in a listing of the top directory: behind `.` and `..`, before all others.
const OWN_COOKIE: u64 = 3;
/// Position of the snapshot 0 in a listing of snapshots.
const FIRST_COOKIE: u64 = 16;

/// A file in a snapshot.
pub(super) struct Past {
    pub(super) door: InodeNo,
    pub(super) snapshot: u64,
    pub(super) view: View,
    pub(super) no: InodeNo,
}

/// Where an inode is that is not of the live tree.
pub(super) enum Place {
    /// The directory of snapshots in this directory.
    List(InodeNo),
    Past(Past),
}

impl WithSnapshots {
    /// Whether a number is of the live tree.
    pub(super) fn is_live(&self, no: InodeNo) -> bool {
        match self.has_all_numbers {
            false => numbers::is_live(no),
            true => !numbers::is_route(no) || self.routes.find(no).is_none(),
        }
    }

    /// Refuses to change what is not of the live tree.
    pub(super) fn check_live(&self, no: InodeNo) -> Result<()> {
        match self.is_live(no) {
            true => Ok(()),
            false => Err(Error::ReadOnly),
        }
    }

    /// What a number of another tree than the live one means.
    fn route(&self, no: InodeNo) -> Result<Route> {
        let number = match self.has_all_numbers {
            false => numbers::parse(no),
            true => Number::Route,
        };
        match number {
            Number::List(of) => Ok(Route::List(of)),
            Number::Past(snapshot, inode) => Ok(Route::Past {
                door: InodeNo::ROOT,
                snapshot,
                inode,
            }),
            Number::Route => self.routes.find(no).ok_or(Error::Stale),
            Number::Live => Err(Error::NotFound),
        }
    }

    /// Whether a number that is not of the live tree is of a directory of snapshots.
    pub(super) fn is_list(&self, no: InodeNo) -> bool {
        matches!(self.route(no), Ok(Route::List(_)))
    }

    /// Where an inode is that is not of the live tree.
    pub(super) fn place(&self, no: InodeNo) -> Result<Place> {
        match self.route(no)? {
            Route::List(of) => Ok(Place::List(of)),
            Route::Past {
                door,
                snapshot,
                inode,
            } => Ok(Place::Past(Past {
                door,
                snapshot,
                view: self.views.by_number(snapshot)?,
                no: inode,
            })),
        }
    }

    /// The number of the directory of snapshots in a live directory.
    fn list_number(&self, of: InodeNo) -> InodeNo {
        match self.has_all_numbers {
            false => numbers::list(of),
            true => self.routes.number(Route::List(of)),
        }
    }

    /// A file in a snapshot; `refusal` where it is the directory of snapshots.
    pub(super) fn past(&self, no: InodeNo, refusal: Error) -> Result<Past> {
        match self.place(no)? {
            Place::List(_) => Err(refusal),
            Place::Past(past) => Ok(past),
        }
    }

    /// Whether a name in a live directory leads to its snapshots.
    pub(super) fn is_ours(&self, parent: InodeNo, name: &[u8]) -> Result<bool> {
        if name != self.directory.name {
            return Ok(false);
        }
        match self.live().lookup(parent, name) {
            Err(Error::NotFound) => Ok(!self.views.list()?.is_empty()),
            other => other.map(|_| false),
        }
    }

    /// Refuses `refusal` for a name that leads to snapshots; `ReadOnly` in a directory that is not live.
    pub(super) fn check_name(&self, parent: InodeNo, name: &[u8], refusal: Error) -> Result<()> {
        self.check_live(parent)?;
        match self.is_ours(parent, name)? {
            true => Err(refusal),
            false => Ok(()),
        }
    }

    /// The directory of snapshots in the live directory `of`: who may list that may list this.
    pub(super) fn list_inode(&self, of: &Inode, newest: Option<&Snapshot>) -> Inode {
        let time = newest.map_or(of.btime, |snapshot| snapshot.created);
        Inode {
            mode: of.mode & 0o555,
            flags: FileFlags::IMMUTABLE,
            uid: of.uid,
            gid: of.gid,
            btime: of.btime,
            parent: of.no,
            // It has one name: a directory whose subdirectories are not counted, as btrfs has it.
            ..Inode::new(self.list_number(of.no), FileKind::Directory, time)
        }
    }

    /// The live directory `of` as it was in a snapshot. `NotFound` where it did not exist then, or the snapshot does not exist now.
    pub(super) fn door(&self, of: InodeNo, snapshot: &Snapshot) -> Result<Inode> {
        let found = self
            .views
            .open(snapshot)
            .and_then(|view| view.attributes(of));
        match found {
            Ok(mut inode) => {
                self.show(of, snapshot.number, &mut inode);
                Ok(inode)
            }
            Err(Error::Stale) => Err(Error::NotFound),
            Err(e) => Err(e),
        }
    }

    /// Turns the attributes of a file in a snapshot into those that are shown.
    pub(super) fn show(&self, door: InodeNo, snapshot: u64, inode: &mut Inode) {
        let (no, kind) = (inode.no, inode.kind);
        inode.no = self.number(door, snapshot, no, kind);
        if kind == FileKind::Directory {
            inode.parent = match no == door {
                true => self.list_number(door),
                false => self.number(door, snapshot, inode.parent, kind),
            };
        }
        if matches!(kind, FileKind::Directory | FileKind::Regular) {
            inode.flags = inode.flags.and(FileFlags::IMMUTABLE);
        }
    }

    pub(super) fn number(
        &self,
        door: InodeNo,
        snapshot: u64,
        inode: InodeNo,
        kind: FileKind,
    ) -> InodeNo {
        let door = match kind {
            FileKind::Directory => door,
            _ => InodeNo::ROOT,
        };
        let short = match door {
            InodeNo::ROOT if !self.has_all_numbers => numbers::past(snapshot, inode),
            _ => None,
        };
        short.unwrap_or_else(|| {
            self.routes.number(Route::Past {
                door,
                snapshot,
                inode,
            })
        })
    }

    /// The snapshots in which a live directory exists and may be reached, as [`read_dir`](FileSystem::read_dir) has them, and the position of the next.
    pub(super) fn list(
        &self,
        of: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        let snapshots = self.views.list()?;
        let next = snapshots.last().map_or(0, |s| s.number + 1);
        let cookie = |snapshot: &Snapshot| FIRST_COOKIE.saturating_add(snapshot.number);
        let mut entries = Vec::new();
        for snapshot in snapshots.iter().filter(|s| cookie(s) > after) {
            if entries.len() == limit {
                break;
            }
            let inode = match self.door(of, snapshot) {
                // Who may not reach it in this snapshot does not lose the others.
                Err(Error::NotFound | Error::AccessDenied) => continue,
                found => found?,
            };
            let entry = DirEntry {
                cookie: cookie(snapshot),
                name: snapshot.name.clone().into_bytes(),
                inode: inode.no,
                kind: inode.kind,
            };
            entries.push((entry, inode));
        }
        Ok((entries, FIRST_COOKIE.saturating_add(next)))
    }

    pub(super) fn show_all(
        &self,
        past: &Past,
        mut entries: Vec<(DirEntry, Inode)>,
    ) -> Vec<(DirEntry, Inode)> {
        for (entry, inode) in &mut entries {
            self.show(past.door, past.snapshot, inode);
            entry.inode = inode.no;
        }
        entries
    }

    /// The directory of snapshots as an entry of the top directory, where a listing after `after` shows it.
    pub(super) fn own_entry(&self, no: InodeNo, after: u64) -> Result<Option<(DirEntry, Inode)>> {
        let name = &self.directory.name;
        let begins = no == InodeNo::ROOT && after < OWN_COOKIE;
        if !self.directory.is_listed || !begins || !self.is_ours(no, name)? {
            return Ok(None);
        }
        let inode = self.lookup(no, name)?;
        let entry = DirEntry {
            cookie: OWN_COOKIE,
            name: name.clone(),
            inode: inode.no,
            kind: inode.kind,
        };
        Ok(Some((entry, inode)))
    }
}
