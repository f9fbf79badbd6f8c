//! A room's storage whose segments lie on network disks.
//!
//! 1. A segment lies in one slot of 64 MiB of one disk. The slot is the segment's durably before the first byte is written
//!    there, and another's only after every capability that covers it is revoked.
//! 2. What was written counts as durable only after a flush under the same boot of its disk, whoever wrote it:
//!    [`NetStorage::wrote`] tells of the writes of borrowers.
//! 3. To open a room needs no disk: where everything lies is in the room's directory. Until a disk is
//!    [attached](NetStorage::attach) what is on it fails with `NotConnected`.
//! 4. Space is given back by [`NetStorage::release`] alone, which the metadata server calls from a thread of its own: the
//!    room never waits for a revocation.
//!
//! A `NetStorage` is of one opening of the room: after a failure the next opening makes another.
//!
//! It deliberately does not know what the blocks hold, who holds which capability, or where keys are kept.

mod disk;
mod file;
mod link;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netdisk::{BlockExtent, Boot, DiskId, EXTENTS_MAX};
use parking_lot::{Condvar, Mutex, RwLock};
use segments::{SEGMENT_BLOCKS, SEGMENTS_DIR, SegmentNo};
use storage::{Held, OpenMode, Space, Storage, StorageFile};

use disk::Attached;
use file::NetFile;
pub use link::{Disk, DiskFailed, Keeper, NetworkDisk};
use table::{Slot, Table};

/// Blocks of one slot: those of a segment.
pub const SLOT_BLOCKS: u64 = SEGMENT_BLOCKS as u64;
/// Bytes of one slot.
const SLOT_LEN: u64 = SLOT_BLOCKS * netdisk::BLOCK_LEN as u64;
/// Ranges given up within segments and not yet given back, at most; what is more goes back with its segment.
const HOLES_MAX: usize = 100_000;
/// How long a new segment waits for a slot that is leaving, where no other is free.
const SLOT_WAIT: Duration = Duration::from_secs(5);

/// How long a flush is tried.
#[derive(Debug)]
pub(crate) struct Patience {
    flush: Duration,
    over: AtomicBool,
}

impl Patience {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Why a write cannot be relied on.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The disk lost what it had acknowledged: write it again.
    #[error("a disk lost power, and with it what was written and not yet flushed")]
    Lost,
    /// The disk cannot be asked.
    #[error("{0}")]
    Disk(#[source] io::Error),
}

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Lost => io::Error::other(lost),
            Lost::Disk(e) => e,
        }
    }
}

/// A room's directory, with its segments on network disks. Clones are the same storage.
#[derive(Debug, Clone)]
pub struct NetStorage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Everything but the segments.
    host: Arc<dyn Storage>,
    table: RwLock<Arc<Table>>,
    /// Held while the table changes.
    changing: Mutex<()>,
    /// With `changing`: told when a slot became free.
    freed: Condvar,
    disks: RwLock<BTreeMap<DiskId, Arc<Attached>>>,
    /// Ranges given up within segments, first block and number.
    holes: Mutex<HashMap<SegmentNo, Vec<(u64, u64)>>>,
    /// Held while space is given back.
    releasing: Mutex<()>,
    patience: Patience,
}

impl NetStorage {
    /// The room in `host`, which keeps everything but the segments. A flush of a disk that cannot be reached is tried for
    /// `flush`.
    ///
    /// # Errors
    /// `InvalidData` where the file that says what lies where is damaged.
    pub fn open(host: Arc<dyn Storage>, flush: Duration) -> io::Result<Self> {
        let table = Table::load(&*host)?;
        Ok(Self(Arc::new(Shared {
            host,
            table: RwLock::new(Arc::new(table)),
            changing: Mutex::default(),
            freed: Condvar::new(),
            disks: RwLock::default(),
            holes: Mutex::default(),
            releasing: Mutex::default(),
            patience: Patience {
                flush,
                over: AtomicBool::new(false),
            },
        })))
    }

    /// Makes a disk of so many blocks usable, or an attached one reachable by another way.
    pub fn attach(&self, id: DiskId, disk: Arc<dyn Disk>, keeper: Arc<dyn Keeper>, blocks: u64) {
        let mut disks = self.0.disks.write();
        match disks.get(&id) {
            Some(attached) => attached.set_link(disk),
            None => {
                disks.insert(id, Arc::new(Attached::new(id, disk, keeper, blocks)));
            }
        }
    }

    /// Whether new segments may go to a disk; true for one just attached.
    pub fn set_taking(&self, id: DiskId, taking: bool) {
        if let Some(disk) = self.0.disks.read().get(&id) {
            disk.closed.store(!taking, Ordering::Relaxed);
        }
    }

    /// Forgets a disk. False, and no change, where segments lie on it or leave it.
    pub fn detach(&self, id: DiskId) -> bool {
        let _changing = self.0.changing.lock();
        let unused = self.table().used(id) == 0;
        if unused {
            self.0.disks.write().remove(&id);
        }
        unused
    }

    /// Where a segment lies: the disk, and its block that is the segment's block 0.
    pub fn locate(&self, segment: SegmentNo) -> Option<(DiskId, u64)> {
        self.table()
            .slot(segment)
            .map(|slot| (slot.disk, first_block(slot)))
    }

    /// The segments on a disk.
    pub fn segments_on(&self, id: DiskId) -> Vec<SegmentNo> {
        let table = self.table();
        let on_it = table.segments().filter(|(_, slot)| slot.disk == id);
        on_it.map(|(no, _)| no).collect()
    }

    /// Takes note that a borrower wrote to a segment under a boot of its disk; to be called before the room is told of what
    /// was written.
    ///
    /// # Errors
    /// [`Lost::Lost`] where that boot is over: it has to be written again. [`Lost::Disk`] where the disk cannot be asked.
    pub fn wrote(&self, segment: SegmentNo, boot: Boot) -> Result<(), Lost> {
        let place = self.0.place(segment).map_err(Lost::Disk)?;
        place.0.wrote(boot)
    }

    /// From now on no flush is tried again: the server is stopping.
    pub fn hurry(&self) {
        self.0.patience.over.store(true, Ordering::Relaxed);
    }

    /// Gives back what the room gave up: revokes the capabilities that cover it, then frees it. What a disk keeps from being
    /// given back waits for the next call. Returns how many slots and ranges wait.
    pub fn release(&self) -> usize {
        let _one = self.0.releasing.lock();
        // Before slots: none of them can become another segment's meanwhile.
        let holes = std::mem::take(&mut *self.0.holes.lock());
        for (segment, ranges) in holes {
            if !self.release_holes(segment, &ranges) && self.table().slot(segment).is_some() {
                self.0.put_holes(segment, &ranges);
            }
        }
        let leaving: Vec<Slot> = self.table().leaving().collect();
        let disks = self.0.disks.read().clone();
        for of_disk in leaving.chunk_by(|a, b| a.disk == b.disk) {
            let Some(disk) = disks.get(&of_disk[0].disk) else {
                continue;
            };
            for some in of_disk.chunks(EXTENTS_MAX) {
                let extents: Vec<BlockExtent> = some
                    .iter()
                    .map(|slot| BlockExtent {
                        start: first_block(*slot),
                        blocks: SLOT_BLOCKS,
                    })
                    .collect();
                if let Err(e) = disk.release(&extents) {
                    tracing::debug!(disk = ?disk.id, "space is given back later: {e}");
                    break;
                }
                let _changing = self.0.changing.lock();
                let mut table = (*self.table()).clone();
                some.iter().for_each(|slot| table.freed(*slot));
                // Written with the next segment: until then an opening gives it back once more.
                *self.0.table.write() = Arc::new(table);
                self.0.freed.notify_all();
            }
        }
        let holes: usize = self.0.holes.lock().values().map(Vec::len).sum();
        holes + self.table().leaving().count()
    }

    fn release_holes(&self, segment: SegmentNo, ranges: &[(u64, u64)]) -> bool {
        let Ok((disk, start)) = self.0.place(segment) else {
            return false;
        };
        let extents: Vec<BlockExtent> = ranges
            .iter()
            .map(|(first, blocks)| BlockExtent {
                start: start + first,
                blocks: *blocks,
            })
            .collect();
        extents
            .chunks(EXTENTS_MAX)
            .try_for_each(|some| disk.release(some))
            .inspect_err(|e| tracing::debug!(disk = ?disk.id, "space is given back later: {e}"))
            .is_ok()
    }

    fn table(&self) -> Arc<Table> {
        self.0.table.read().clone()
    }
}

impl Shared {
    /// The disk of a segment, and the block of it that is the segment's block 0. `NotFound`, `NotConnected`.
    fn place(&self, segment: SegmentNo) -> io::Result<(Arc<Attached>, u64)> {
        let slot = self.table.read().slot(segment);
        let slot = slot.ok_or(io::ErrorKind::NotFound)?;
        let disk = self.disks.read().get(&slot.disk).cloned();
        disk.map(|disk| (disk, first_block(slot))).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotConnected,
                format!("segment {}: its disk is not attached", segment.0),
            )
        })
    }

    /// Makes every disk's writes durable, side by side.
    fn flush(&self) -> io::Result<()> {
        let disks: Vec<Arc<Attached>> = self
            .disks
            .read()
            .values()
            .filter(|disk| disk.is_dirty())
            .cloned()
            .collect();
        let Some((last, others)) = disks.split_last() else {
            return Ok(());
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = others
                .iter()
                .map(|disk| scope.spawn(|| disk.flush(&self.patience)))
                .collect();
            let mut flushed = last.flush(&self.patience);
            for other in others {
                let other = other.join().unwrap_or(Err(Lost::Lost));
                flushed = flushed.and(other);
            }
            Ok(flushed?)
        })
    }

    /// Puts a new segment into a free slot: of the disks that have one, those that answer first, in turn.
    fn create(&self, segment: SegmentNo) -> io::Result<()> {
        let mut changing = self.changing.lock();
        let mut table = (**self.table.read()).clone();
        if table.slot(segment).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let slot = loop {
            let disks: Vec<Arc<Attached>> = self.disks.read().values().cloned().collect();
            if disks.is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "no disk is attached",
                ));
            }
            match choose(&table, &disks, segment) {
                Some(slot) => break slot,
                None if table.leaving().next().is_some() => {
                    let late = self.freed.wait_for(&mut changing, SLOT_WAIT).timed_out();
                    table = (**self.table.read()).clone();
                    if late {
                        return Err(io::ErrorKind::StorageFull.into());
                    }
                }
                None => return Err(io::ErrorKind::StorageFull.into()),
            }
        };
        table.put(segment, slot);
        table.store(&*self.host)?;
        *self.table.write() = Arc::new(table);
        Ok(())
    }

    fn remove(&self, segment: SegmentNo) -> io::Result<()> {
        let _changing = self.changing.lock();
        let mut table = (**self.table.read()).clone();
        if !table.remove(segment) {
            return Err(io::ErrorKind::NotFound.into());
        }
        table.store(&*self.host)?;
        *self.table.write() = Arc::new(table);
        self.holes.lock().remove(&segment);
        Ok(())
    }

    fn put_holes(&self, segment: SegmentNo, ranges: &[(u64, u64)]) {
        let mut holes = self.holes.lock();
        if holes.values().map(Vec::len).sum::<usize>() + ranges.len() <= HOLES_MAX {
            holes.entry(segment).or_default().extend_from_slice(ranges);
        }
    }

    fn space(&self) -> Space {
        let table = self.table.read().clone();
        let mut space = Space::default();
        for disk in self.disks.read().values() {
            space.total += u64::from(disk.slots) * SLOT_LEN;
            if !disk.closed.load(Ordering::Relaxed) {
                space.free += u64::from(disk.slots.saturating_sub(table.used(disk.id))) * SLOT_LEN;
            }
        }
        space.available = space.free;
        space
    }
}

fn first_block(slot: Slot) -> u64 {
    u64::from(slot.index) * SLOT_BLOCKS
}

fn choose(table: &Table, disks: &[Arc<Attached>], segment: SegmentNo) -> Option<Slot> {
    let turn = (segment.0 % disks.len() as u64) as usize;
    let in_turn = || disks.iter().cycle().skip(turn).take(disks.len());
    [true, false].into_iter().find_map(|up| {
        in_turn()
            .filter(|disk| disk.is_up() == up && !disk.closed.load(Ordering::Relaxed))
            .find_map(|disk| table.free(disk.id, disk.slots))
    })
}

/// The segment whose file has this path, if it is one.
fn segment_of(path: &str) -> Option<SegmentNo> {
    segments::parse_file_name(path.strip_prefix(SEGMENTS_DIR)?.strip_prefix('/')?)
}

impl Storage for NetStorage {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let Some(segment) = segment_of(path) else {
            return self.0.host.open(path, mode);
        };
        match mode {
            OpenMode::CreateNew => self.0.create(segment)?,
            OpenMode::Read | OpenMode::ReadWrite => {
                self.table().slot(segment).ok_or(io::ErrorKind::NotFound)?;
            }
        }
        Ok(Arc::new(NetFile {
            shared: self.0.clone(),
            segment,
            writable: mode != OpenMode::Read,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if segment_of(from).or(segment_of(to)).is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.0.host.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        match segment_of(path) {
            Some(segment) => self.0.remove(segment),
            None => self.0.host.remove(path),
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        if dir != SEGMENTS_DIR {
            return self.0.host.list(dir);
        }
        let table = self.table();
        Ok(table
            .segments()
            .map(|(no, _)| segments::name_in_dir(no))
            .collect())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.0.host.create_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        match dir {
            // What the table says is durable.
            SEGMENTS_DIR => Ok(()),
            _ => self.0.host.sync_dir(dir),
        }
    }

    fn space(&self) -> io::Result<Space> {
        Ok(self.0.space())
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn Held>> {
        self.0.host.lock(path, note)
    }
}
