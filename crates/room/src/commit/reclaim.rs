//! Space that a crash kept from being freed.
//!
//! What commits discard is punched some time after them, and what records of the log discard is known only to the next
//! commit: a crash forgets both. Opening a room sees from what its segments take in the storage how much that is, and who
//! finds no space has it looked for, which reads all extent maps.

use std::collections::HashMap;

use catalog::{SegmentAccount, SegmentNo};
use segments::SegmentFile;

use super::{Commits, waiting};
use crate::blocks::BLOCK;
use crate::{Result, usage};

/// Bytes a segment takes beyond what is alive in it that are not worth a look: a file system's own rounding.
const SLACK: u64 = 64 << 10;

/// Bytes that each segment takes in the storage beyond its live data: dead ranges that were not punched.
pub(crate) fn unpunched(
    files: &[SegmentFile],
    accounts: &[SegmentAccount],
) -> HashMap<SegmentNo, u64> {
    let live: HashMap<SegmentNo, u64> = accounts
        .iter()
        // And the header.
        .map(|a| (a.id.no, (u64::from(a.live) + 1) * BLOCK))
        .collect();
    files
        .iter()
        .filter_map(|file| {
            let unpunched = file.allocated?.checked_sub(*live.get(&file.no)?)?;
            (unpunched > SLACK).then_some((file.no, unpunched))
        })
        .collect()
}

impl Commits {
    /// Punches what was dead when the room was opened. Changes wait while the extent maps are read.
    pub(crate) fn reclaim(&self) -> Result<()> {
        if self.freed.reclaimable() == 0 {
            return Ok(());
        }
        let _one = waiting(|| self.commit_lock.lock());
        match self.in_transaction() {
            // Left to the next who finds no space.
            true => Ok(()),
            false => self.reclaim_now(),
        }
    }

    /// The same with `commit_lock` held.
    pub(crate) fn reclaim_now(&self) -> Result<()> {
        if self.freed.reclaimable() == 0 {
            return Ok(());
        }
        // What is dead in a commit stays dead: nothing is appended to these segments again, and only what is alive is copied.
        let dead = self.commit_now_and(|_| {
            let segments = self.freed.take_unpunched().into_keys().collect();
            usage::dead_ranges(&self.catalog.get(), &segments)
        })?;
        let blocks: u64 = dead.iter().map(|range| u64::from(range.blocks)).sum();
        tracing::info!(
            "after a crash: dead ranges of {} MiB are punched, some of them once more",
            (blocks * BLOCK) >> 20
        );
        self.freed.punch_dead(dead);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use catalog::InodeNo;

    use crate::blocks::BLOCK;
    use crate::testing::{copy_tree, credential, options, room_in, sound};
    use crate::{FileSystem as _, NewSnapshot, Room, Snapshots as _};

    const LARGE: usize = 8 << 20;

    /// A room whose segment has a dead range that was not punched, as a crash between a commit and its holes leaves it.
    fn room_after_a_crash(dir: &std::path::Path) -> Room {
        let (room_dir, kept) = (dir.join("room"), dir.join("kept"));
        let room = room_in(dir);
        room.write_file("/stays", &[1; 100_000]).unwrap();
        room.write_file("/goes", &vec![2; LARGE]).unwrap();
        room.write_file("/stays too", &[3; 100_000]).unwrap();
        room.close().unwrap();
        copy_tree(&room_dir.join("segments"), &kept);
        let open = || Room::open(&room_dir, &credential(), options(dir)).unwrap();
        let room = open();
        remove(&room, b"goes");
        room.close().unwrap();
        copy_tree(&kept, &room_dir.join("segments"));
        open()
    }

    fn remove(room: &Room, name: &[u8]) {
        room.unlink(InodeNo::ROOT, name).unwrap();
    }

    fn allocated(room: &Room) -> u64 {
        let files = room.parts.blocks.segments().list().unwrap();
        files.iter().map(|file| file.allocated.unwrap()).sum()
    }

    #[test]
    fn what_a_crash_kept_from_being_punched_is_available_and_freed_when_it_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_after_a_crash(dir.path());
        assert!(allocated(&room) > LARGE as u64);
        assert!(room.parts.freed.reclaimable() >= LARGE as u64);
        room.parts.space.make_space().unwrap();
        assert_eq!(room.parts.freed.reclaimable(), 0);
        assert!(allocated(&room) < LARGE as u64 / 8);
        assert_eq!(room.read_file("/stays").unwrap(), [1; 100_000]);
        assert_eq!(room.read_file("/stays too").unwrap(), [3; 100_000]);
        sound(&room);
    }

    #[test]
    fn nothing_is_freed_that_a_copy_still_refers_to() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_after_a_crash(dir.path());
        let no = |path: &str| room.resolve(path.as_ref(), true).unwrap();
        room.write_file("/copy", &[]).unwrap();
        room.copy_range(no("/stays"), 0, no("/copy"), 0, 20 * BLOCK)
            .unwrap();
        remove(&room, b"stays");
        room.parts.space.make_space().unwrap();
        assert_eq!(room.read_file("/copy").unwrap(), [1; 20 * BLOCK as usize]);
    }

    #[test]
    fn nothing_is_freed_that_a_snapshot_still_sees() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_after_a_crash(dir.path());
        room.create_snapshot("s", NewSnapshot::default()).unwrap();
        remove(&room, b"stays");
        room.write_file("/stays too", &[4; 100_000]).unwrap();
        room.tend().unwrap();
        room.parts.space.make_space().unwrap();
        assert_eq!(room.parts.freed.reclaimable(), 0);
        let view = room.snapshot("s").unwrap();
        for (name, byte) in [("stays", 1), ("stays too", 3)] {
            let mut data = vec![0; 100_000];
            let no = view.lookup(InodeNo::ROOT, name.as_bytes()).unwrap().no;
            view.read(no, 0, &mut data).unwrap();
            assert_eq!(data, [byte; 100_000]);
        }
        sound(&room);
    }

    #[test]
    fn a_room_in_order_has_nothing_to_reclaim() {
        let dir = tempfile::tempdir().unwrap();
        room_after_a_crash(dir.path())
            .parts
            .space
            .make_space()
            .unwrap();
        let room =
            Room::open(&dir.path().join("room"), &credential(), options(dir.path())).unwrap();
        assert_eq!(room.parts.freed.reclaimable(), 0);
    }
}
