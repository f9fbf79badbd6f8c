//! A room's storage whose segments are on network disks.
//!
//! 1. A segment is in one range of one disk, 64 MiB long or, where there is no such gap, shorter. The range is durably
//!    assigned to the segment before the first byte is written there, and assigned to another only after every capability
//!    that covers it is revoked. The unused end of a closed segment is freed in the same way.
//! 2. What was written counts as durable only after a flush under the same boot of its disk, for every writer:
//!    [`NetStorage::wrote`] reports the writes of clients.
//! 3. To open a room needs no disk: the placement of segments is in the room's directory. Until a disk is
//!    [attached](NetStorage::attach) what is on it fails with `NotConnected`.
//! 4. Space is freed by [`NetStorage::release`] alone, which the metadata server calls from a thread of its own: the room
//!    never waits for a revocation.
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
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netdisk::{BlockExtent, Boot, DiskId, EXTENTS_MAX};
use parking_lot::{Condvar, Mutex, RwLock};
use segments::{SEGMENTS_DIR, SegmentNo};
use storage::{LockGuard, OpenMode, Space, Storage, StorageFile};

use disk::Attached;
use file::NetFile;
pub use link::{Disk, DiskFailed, Keeper, NetworkDisk};
use table::{DiskRange, SHORTEST, Table, UNIT};

/// Blocks of one unit of space.
const UNIT_BLOCKS: u64 = UNIT as u64;
/// Bytes of one unit of space.
const UNIT_LEN: u64 = UNIT_BLOCKS * netdisk::BLOCK_LEN as u64;
/// Ranges discarded within segments and not yet freed, at most; the rest is freed with its segment.
const HOLES_MAX: usize = 100_000;
/// How long a new segment waits for a place that is leaving, where no other is free.
const PLACE_WAIT: Duration = Duration::from_secs(5);

/// How long a flush is tried.
#[derive(Debug)]
pub(crate) struct FlushLimit {
    flush: Duration,
    over: AtomicBool,
}

impl FlushLimit {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Why a write cannot be relied on.
#[derive(Debug, thiserror::Error)]
pub enum DurabilityError {
    /// The disk lost what it had acknowledged: write it again.
    #[error("a disk lost power, and with it what was written and not yet flushed")]
    Lost,
    /// The disk cannot be asked.
    #[error("{0}")]
    Disk(#[source] io::Error),
}

impl From<DurabilityError> for io::Error {
    fn from(lost: DurabilityError) -> Self {
        match lost {
            DurabilityError::Lost => io::Error::other(lost),
            DurabilityError::Disk(e) => e,
        }
    }
}

/// A room's directory, with its segments on network disks. Clones are the same storage.
#[derive(Debug, Clone)]
pub struct NetStorage(Arc<Shared>);

struct Shared {
    /// Everything but the segments.
    host: Arc<dyn Storage>,
    table: RwLock<Arc<Table>>,
    /// Held while the table changes.
    changing: Mutex<()>,
    /// With `changing`: notified when a range became free.
    freed: Condvar,
    disks: RwLock<BTreeMap<DiskId, Arc<Attached>>>,
    /// Ranges discarded within segments, first block and number.
    holes: Mutex<HashMap<SegmentNo, Vec<(u64, u64)>>>,
    /// Held while space is freed.
    releasing: Mutex<()>,
    timeout: FlushLimit,
}

// Not what it holds: too much for a log.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl NetStorage {
    /// The room in `host`, which keeps everything but the segments. A flush of a disk that cannot be reached is tried for
    /// `flush`.
    ///
    /// # Errors
    /// `InvalidData` where the placement file is damaged.
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
            timeout: FlushLimit {
                flush,
                over: AtomicBool::new(false),
            },
        })))
    }

    /// Makes a disk of so many blocks usable, or an attached one reachable by another way.
    pub fn attach(&self, id: DiskId, disk: Arc<dyn Disk>, keeper: Arc<dyn Keeper>, blocks: u64) {
        // Nobody says meanwhile that it is being emptied.
        let _changing = self.0.changing.lock();
        let mut disks = self.0.disks.write();
        match disks.get(&id) {
            Some(attached) => attached.set_link(disk),
            None => {
                let attached = Attached::new(id, disk, keeper, blocks);
                let draining = self.table().is_draining(id);
                attached.closed.store(draining, Ordering::Relaxed);
                disks.insert(id, Arc::new(attached));
            }
        }
    }

    /// Whether a disk is being emptied: then no new segment goes there. Durable when this returns.
    ///
    /// # Errors
    /// Where the room's directory cannot be written to.
    pub fn set_draining(&self, id: DiskId, draining: bool) -> io::Result<()> {
        let _changing = self.0.changing.lock();
        let mut table = (*self.table()).clone();
        if table.set_draining(id, draining) {
            table.store(&*self.0.host)?;
            *self.0.table.write() = Arc::new(table);
        }
        if let Some(disk) = self.0.disks.read().get(&id) {
            disk.closed.store(draining, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Disks that are being emptied.
    pub fn draining(&self) -> Vec<DiskId> {
        self.table().draining().collect()
    }

    /// Bytes of a disk that are not free.
    pub fn used(&self, id: DiskId) -> u64 {
        u64::from(self.table().used(id)) * UNIT_LEN
    }

    /// Bytes that new segments can take on the other disks.
    pub fn available_elsewhere(&self, id: DiskId) -> u64 {
        self.0.space(Some(id)).available
    }

    /// Forgets a disk, durably also that it was being emptied. False, and no change, where it has segments or segments leave it.
    ///
    /// # Errors
    /// Where the room's directory cannot be written to.
    pub fn detach(&self, id: DiskId) -> io::Result<bool> {
        let unused = {
            let _changing = self.0.changing.lock();
            let unused = self.table().used(id) == 0;
            if unused {
                self.0.disks.write().remove(&id);
            }
            unused
        };
        if unused {
            self.set_draining(id, false)?;
        }
        Ok(unused)
    }

    /// Where a segment is: the disk, and its block that is the segment's block 0.
    pub fn locate(&self, segment: SegmentNo) -> Option<(DiskId, u64)> {
        self.table()
            .place(segment)
            .map(|place| (place.disk, first_block(place)))
    }

    /// The segments on a disk.
    pub fn segments_on(&self, id: DiskId) -> Vec<SegmentNo> {
        let table = self.table();
        let on_it = table.segments().filter(|(_, place)| place.disk == id);
        on_it.map(|(no, _)| no).collect()
    }

    /// Asks a disk whether it is there.
    ///
    /// # Errors
    /// Where it is not, or not attached: see [`DiskFailed::is_away`].
    pub fn ask(&self, id: DiskId) -> io::Result<()> {
        let disk = self.0.disks.read().get(&id).cloned();
        let disk = disk.ok_or(io::ErrorKind::NotConnected)?;
        disk.ask().map_err(|e| link::failed(id, e))
    }

    /// Notes that a client wrote to a segment under a boot of its disk; to be called before the write is committed to the
    /// room.
    ///
    /// # Errors
    /// [`DurabilityError::Lost`] where that boot is over: it has to be written again. [`DurabilityError::Disk`] where the disk cannot be asked.
    pub fn wrote(&self, segment: SegmentNo, boot: Boot) -> Result<(), DurabilityError> {
        let place = self.0.place(segment).map_err(DurabilityError::Disk)?;
        place.0.wrote(boot)
    }

    /// The same of a write that its disk has made durable: no flush is needed for it.
    ///
    /// # Errors
    /// As [`Self::wrote`].
    pub fn wrote_durably(&self, segment: SegmentNo, boot: Boot) -> Result<(), DurabilityError> {
        let place = self.0.place(segment).map_err(DurabilityError::Disk)?;
        place.0.is_present(boot)
    }

    /// From now on no flush is tried again: the server is stopping.
    pub fn hurry(&self) {
        self.0.timeout.over.store(true, Ordering::Relaxed);
    }

    /// Frees what the room discarded: revokes the capabilities that cover it, then frees it. Space that a disk cannot free
    /// now waits for the next call. Returns how many segments and ranges wait.
    pub fn release(&self) -> usize {
        let _one = self.0.releasing.lock();
        // Before places: none of them can become another segment's meanwhile.
        let holes = std::mem::take(&mut *self.0.holes.lock());
        for (segment, ranges) in holes {
            if !self.release_holes(segment, &ranges) && self.table().place(segment).is_some() {
                self.0.put_holes(segment, &ranges);
            }
        }
        let leaving: Vec<DiskRange> = self.table().leaving().collect();
        let disks = self.0.disks.read().clone();
        for of_disk in leaving.chunk_by(|a, b| a.disk == b.disk) {
            let Some(disk) = disks.get(&of_disk[0].disk) else {
                continue;
            };
            for some in of_disk.chunks(EXTENTS_MAX) {
                let extents: Vec<BlockExtent> = some
                    .iter()
                    .map(|place| BlockExtent {
                        start: first_block(*place),
                        blocks: u64::from(place.units) * UNIT_BLOCKS,
                    })
                    .collect();
                if let Err(e) = disk.release(&extents) {
                    tracing::debug!(disk = ?disk.id, "space is freed later: {e}");
                    break;
                }
                let _changing = self.0.changing.lock();
                let mut table = (*self.table()).clone();
                some.iter().for_each(|place| table.freed(*place));
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
            .inspect_err(|e| tracing::debug!(disk = ?disk.id, "space is freed later: {e}"))
            .is_ok()
    }

    fn table(&self) -> Arc<Table> {
        self.0.table.read().clone()
    }
}

impl Shared {
    /// The disk of a segment, and the block of it that is the segment's block 0. `NotFound`, `NotConnected`.
    fn place(&self, segment: SegmentNo) -> io::Result<(Arc<Attached>, u64)> {
        let place = self.table.read().place(segment);
        let place = place.ok_or(io::ErrorKind::NotFound)?;
        let disk = self.disks.read().get(&place.disk).cloned();
        disk.map(|disk| (disk, first_block(place))).ok_or_else(|| {
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
            let begun: Vec<_> = others
                .iter()
                .map(|disk| {
                    let thread = std::thread::Builder::new();
                    thread.spawn_scoped(scope, || disk.flush(&self.timeout))
                })
                .collect();
            let mut flushed = last.flush(&self.timeout);
            for (disk, begun) in others.iter().zip(begun) {
                let other = match begun {
                    Ok(thread) => thread.join().unwrap_or(Err(DurabilityError::Lost)),
                    // No thread could be started.
                    Err(_) => disk.flush(&self.timeout),
                };
                flushed = flushed.and(other);
            }
            Ok(flushed?)
        })
    }

    /// Puts a new segment into a free place: of the disks that have one, those that answer first, in turn.
    fn create(&self, segment: SegmentNo) -> io::Result<()> {
        let mut changing = self.changing.lock();
        let mut table = (**self.table.read()).clone();
        if table.place(segment).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let place = loop {
            let disks: Vec<Arc<Attached>> = self.disks.read().values().cloned().collect();
            if disks.is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "no disk is attached",
                ));
            }
            match choose(&table, &disks, segment) {
                Some(place) => break place,
                None if table.leaving().next().is_some() => {
                    let late = self.freed.wait_for(&mut changing, PLACE_WAIT).timed_out();
                    table = (**self.table.read()).clone();
                    if late {
                        return Err(io::ErrorKind::StorageFull.into());
                    }
                }
                None => return Err(io::ErrorKind::StorageFull.into()),
            }
        };
        table.put(segment, place);
        table.store_another(&*self.host)?;
        *self.table.write() = Arc::new(table);
        Ok(())
    }

    /// A segment needs so many blocks and no more.
    fn cut(&self, segment: SegmentNo, blocks: u64) {
        let _changing = self.changing.lock();
        let units = u32::try_from(blocks.div_ceil(UNIT_BLOCKS)).unwrap_or(u32::MAX);
        let place = self.table.read().place(segment);
        if place.is_some_and(|place| place.units > units.max(1)) {
            // Written before another segment is there; until then an opening cuts it once more. Usually nothing reads the
            // table meanwhile: then nothing is copied.
            Arc::make_mut(&mut *self.table.write()).cut(segment, units);
        }
    }

    /// Bytes of a segment's place.
    fn len(&self, segment: SegmentNo) -> io::Result<u64> {
        let place = self.table.read().place(segment);
        let place = place.ok_or(io::ErrorKind::NotFound)?;
        Ok(u64::from(place.units) * UNIT_LEN)
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

    fn space(&self, but: Option<DiskId>) -> Space {
        let table = self.table.read().clone();
        let mut space = Space::default();
        for disk in self.disks.read().values() {
            if but == Some(disk.id) {
                continue;
            }
            space.total += u64::from(disk.units) * UNIT_LEN;
            if disk.closed.load(Ordering::Relaxed) {
                continue;
            }
            for (_, units) in table.gaps(disk.id, disk.units) {
                space.free += u64::from(units) * UNIT_LEN;
                // A shorter one takes no segment; a segment has a header.
                if units >= SHORTEST {
                    space.available += u64::from(units) * UNIT_LEN - netdisk::BLOCK_LEN as u64;
                }
            }
        }
        space
    }
}

fn first_block(place: DiskRange) -> u64 {
    u64::from(place.start) * UNIT_BLOCKS
}

/// A place on the disk whose turn it is; on another one where that does not answer, or has only a shorter one.
fn choose(table: &Table, disks: &[Arc<Attached>], segment: SegmentNo) -> Option<DiskRange> {
    let turn = (segment.0 % disks.len() as u64) as usize;
    let in_turn = || disks.iter().cycle().skip(turn).take(disks.len());
    [true, false].into_iter().find_map(|up| {
        in_turn()
            .filter(|disk| disk.is_up() == up && !disk.closed.load(Ordering::Relaxed))
            .filter_map(|disk| table.free(disk.id, disk.units))
            // The first of the longest.
            .reduce(|best, place| {
                if place.units > best.units {
                    place
                } else {
                    best
                }
            })
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
                self.table().place(segment).ok_or(io::ErrorKind::NotFound)?;
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
        Ok(self.0.space(None))
    }

    /// The catalog and its log are here, also while no disk is attached.
    fn space_at(&self, path: &str) -> io::Result<Space> {
        match storage::parent(path) {
            SEGMENTS_DIR => self.space(),
            _ => self.0.host.space_at(path),
        }
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.0.host.lock(path, note)
    }

    fn accept(&self) {
        self.0.host.accept();
    }
}
