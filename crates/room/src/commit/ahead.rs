//! What the room's own thread does ahead of a commit, while others go on: a commit holds changes up for what is left to it.
//!
//! 1. A group of inodes is handed to the catalog at a time, between two changes, so the catalog has whole operations only.
//! 2. Then their pages are written, as the commit would write them. A crash forgets both, as it forgets every open transaction.
//! 3. The bytes of files need no such care: they are flushed ahead anyway.

use std::sync::Arc;

use catalog::CatalogError;
use parking_lot::RwLockWriteGuard;

use super::{Commits, waiting};
use crate::inodes::Cell;
use crate::{Error, Result};

/// Inodes between two changes.
const GROUP: usize = 64;
/// So many inodes a commit drains itself.
const FEW: usize = 4 * GROUP;

impl Commits {
    /// Does what a commit would do, as far as others can go on meanwhile. Then commits, if it `must` or much was done; returns whether
    /// it did.
    pub(crate) fn work_ahead(&self, must: bool) -> Result<bool> {
        let done = self.prepare().and_then(|()| {
            let commits = must || self.pace.is_due();
            if commits {
                self.commit_or_defer()?;
            }
            Ok(commits)
        });
        if done.is_err() {
            // Not again with the next change.
            self.pace.restart();
        }
        self.pace.answered();
        done
    }

    fn prepare(&self) -> Result<()> {
        self.check_poison()?;
        if self.data.inodes().pending_len() > FEW {
            self.drain_groups()?;
        }
        match self.pace.has_unwritten() {
            true => self.write_pages(),
            false => Ok(()),
        }
    }

    /// Hands everything to the catalog and writes pages, however little that is.
    pub(crate) fn prepare_all(&self) -> Result<()> {
        self.check_poison()?;
        self.drain_groups()?;
        self.write_pages()
    }

    fn drain_groups(&self) -> Result<()> {
        // A record of names would take along data that network disks have not made durable.
        if self.env.options.network_backed {
            return Ok(());
        }
        let mut dirty = self.data.inodes().dirty();
        // Neighbours share pages.
        dirty.sort_unstable_by_key(|cell| cell.no);
        for group in dirty.chunks(GROUP) {
            self.drain_group(group)?;
            if self.pace.has_unwritten() {
                self.write_pages()?;
            }
        }
        Ok(())
    }

    fn drain_group(&self, group: &[Arc<Cell>]) -> Result<()> {
        let freeze = waiting(|| self.freeze.write());
        let taken = self.data.inodes().take(group);
        let drained = self.drain_cells(&taken);
        if drained.is_err() {
            self.keep_dirty(&taken);
        }
        // Or those who wait would not get it before the next group.
        RwLockWriteGuard::unlock_fair(freeze);
        match drained.map_err(|e| self.failed(e))? {
            // A buffer that finds no space stays pending.
            Ok(()) | Err(Error::NoSpace) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn write_pages(&self) -> Result<()> {
        match self.catalog.get().write_ahead() {
            Ok(pages) => self.pace.written(pages),
            // The commit will say so; not again with the next change.
            Err(CatalogError::NoSpace) => self.pace.restart(),
            Err(e) => return Err(self.failed(e.into())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Room;
    use crate::testing::{credential, options, room_in};

    fn pending(room: &Room) -> usize {
        room.parts.data.inodes().pending_len()
    }

    fn write_files(room: &Room, text: &[u8]) {
        for i in 0..300 {
            room.write_file(format!("/{i}"), text).unwrap();
        }
    }

    #[test]
    fn what_is_done_ahead_leaves_the_commit_only_what_came_later() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        let generation = room.info().unwrap().generation;
        write_files(&room, b"first");
        room.prepare().unwrap();
        assert_eq!(pending(&room), 0);
        assert_eq!(
            room.info().unwrap().generation,
            generation,
            "nothing is durable"
        );
        room.write_file("/7", b"second").unwrap();
        room.tend().unwrap();
        assert!(room.info().unwrap().generation > generation);
        room.close().unwrap();
        let room =
            Room::open(&dir.path().join("room"), &credential(), options(dir.path())).unwrap();
        assert_eq!(room.read_file("/7").unwrap(), b"second");
        assert_eq!(room.read_file("/299").unwrap(), b"first");
        assert!(
            room.check(true, false, &|_, _| true)
                .unwrap()
                .findings
                .is_empty()
        );
    }
}
