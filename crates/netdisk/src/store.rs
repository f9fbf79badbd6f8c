//! A disk's store: a device with one block of our own in front, and the blocks that clients see behind it.
//!
//! 1. The first block says whose disk this is; a device without it, or with a damaged one, is not served.
//! 2. Two [`Boot`]s of a store are equal only where nothing acknowledged was lost in between: a boot is made of the machine's
//!    own boot, of which file or device this is, of the mount or attachment that it is reached by, and of the number of
//!    flushes that failed. What was acknowledged without a flush is in the kernel, and outlives the server process as long
//!    as the machine runs and the file system stays mounted. Of a device that keeps it in the process instead, no two
//!    openings have the same.
//! 3. The first block says which room the disk belongs to, once one has used it. Another room's metadata server is refused: it would write over
//!    what is there.
//! 4. The first failed flush of an opening is recorded before it is reported, in the store and in a file beside the key:
//!    either is enough. Further ones begin incarnations that no later opening has. Where each opening is another incarnation
//!    there is nothing to record, and a flush without an answer is no failure.
//!
//! It deliberately does not know who may do what.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, FileDevice};
use parking_lot::Mutex;

use crate::attachment;
use crate::bytes::{array_at, u32_at, u64_at};
use crate::first_block::{Changing, MAGIC, NO_ROOM, VERSION, head};
use crate::frame::ROOM_LEN;
use crate::{BLOCK_LEN, BlockExtent, Boot, DiskId, Reason};

/// Bytes at the start of a device that must be zeros for it to be taken for empty.
const EMPTY_LEN: u64 = 1 << 20;
const INCARNATION_CONTEXT: &str = "strongroom 2026 netdisk v1 life of unflushed writes";

/// Why a store cannot be made or served.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The device could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It holds something.
    #[error(
        "it is not empty: its first MiB has data; choose another, or force it where that data may be lost"
    )]
    NotEmpty,
    /// Too small.
    #[error("{0} bytes are too few: a disk needs at least 1 MiB")]
    TooSmall(u64),
    /// Not a disk's store.
    #[error("it is not a network disk's store; make one with `strongroom disk init`")]
    NotAStore,
    /// Of a later version.
    #[error("it is of version {0}, which this program does not know")]
    Version(u32),
    /// The first block is damaged.
    #[error(
        "its first block is damaged; what clients stored may be whole, but nobody can say whose disk this is"
    )]
    Damaged,
    /// The device is shorter than the disk.
    #[error(
        "it has {0} bytes, and the disk {1}: a part of it is missing, and with that what clients stored there"
    )]
    Shorter(u64, u64),
    /// Another disk's.
    #[error("it is the store of another disk than the key's")]
    OtherDisk,
}

/// What a store is served with, besides the device.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Equal for two openings only where everything written before, flushed or not, is still there.
    pub origin: Vec<u8>,
    /// A file that grows by a byte for each opening in which a flush failed; beside the key. `None`: no later opening has
    /// the same origin.
    pub failures: Option<PathBuf>,
}

impl Surroundings {
    /// Those of a file or device of this machine, as it is mounted or attached now; failures are counted in `key_file` with `.failures` behind its name.
    pub fn of(device: &FileDevice, key_file: &Path) -> Self {
        let identity = device.identity();
        let mut origin = match fs::read("/proc/sys/kernel/random/boot_id") {
            Ok(boot) => boot,
            // Unknown: taken for a new one each time.
            Err(_) => crate::keys::random::<16>().to_vec(),
        };
        origin.extend_from_slice(&identity.device.to_le_bytes());
        origin.extend_from_slice(&identity.inode.to_le_bytes());
        origin.extend_from_slice(&attachment::of(device));
        Self {
            origin,
            failures: Some(Self::failures(key_file)),
        }
    }

    /// Files of the kernel that [`Surroundings::of`] reads where the store is at this path: for a process that confines
    /// itself. Without them a block device has another origin at each opening.
    pub fn read_for(store: &Path) -> Option<PathBuf> {
        attachment::files(store)
    }

    /// Those of a device whose unflushed writes end with the process that serves it.
    pub fn of_opening() -> Self {
        Self {
            origin: crate::keys::random::<16>().to_vec(),
            failures: None,
        }
    }

    /// The file in which failures of the disk with this key are counted.
    pub fn failures(key_file: &Path) -> PathBuf {
        let mut failures = key_file.as_os_str().to_owned();
        failures.push(".failures");
        failures.into()
    }
}

/// A disk's store.
#[derive(Debug)]
pub struct Store {
    device: Arc<dyn Device>,
    id: DiskId,
    blocks: u64,
    surroundings: Surroundings,
    /// The room that has it, or [`NO_ROOM`].
    room: Mutex<[u8; ROOM_LEN]>,
    /// Held while that changes.
    claiming: Mutex<()>,
    /// Openings in which a flush failed, before this one.
    failures: u64,
    /// Bytes of the file of failures when this was opened.
    marks: u64,
    /// Flushes that failed since.
    failed: AtomicU64,
    /// The first of them is recorded.
    recorded: Mutex<bool>,
}

impl Store {
    /// Makes `device` the store of a new disk. `force`: also where it is not empty.
    pub fn init(device: &dyn Device, id: DiskId, force: bool) -> Result<(), StoreError> {
        if device.len() < EMPTY_LEN {
            return Err(StoreError::TooSmall(device.len()));
        }
        let mut first = vec![0; EMPTY_LEN as usize];
        device.read_at(&mut first, 0)?;
        if !force && first.iter().any(|byte| *byte != 0) {
            return Err(StoreError::NotEmpty);
        }
        let blocks = device.len() / BLOCK_LEN as u64 - 1;
        device.write_at(&head(id, blocks, 0, NO_ROOM), 0)?;
        device.flush()?;
        Ok(())
    }

    /// Opens the store on `device`.
    pub fn open(device: Arc<dyn Device>, surroundings: Surroundings) -> Result<Self, StoreError> {
        let mut first = vec![0; BLOCK_LEN];
        if device.len() < BLOCK_LEN as u64 {
            return Err(StoreError::NotAStore);
        }
        device.read_at(&mut first, 0)?;
        if first[..8] != MAGIC {
            return Err(StoreError::NotAStore);
        }
        let changing = Changing::of(&first).ok_or(StoreError::Damaged)?;
        let version = u32_at(&first, 8);
        if version != VERSION || u32_at(&first, 12) != BLOCK_LEN as u32 {
            return Err(StoreError::Version(version));
        }
        let blocks = u64_at(&first, 32);
        if blocks >= device.len() / BLOCK_LEN as u64 {
            let all = blocks.saturating_add(1).saturating_mul(BLOCK_LEN as u64);
            return Err(StoreError::Shorter(device.len(), all));
        }
        let marks = match &surroundings.failures {
            Some(path) => match fs::metadata(path) {
                Ok(metadata) => metadata.len(),
                Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
                Err(e) => return Err(e.into()),
            },
            None => 0,
        };
        Ok(Self {
            device,
            id: DiskId(array_at(&first, 16)),
            blocks,
            surroundings,
            room: Mutex::new(changing.room),
            claiming: Mutex::default(),
            failures: changing.failures,
            marks,
            failed: AtomicU64::new(0),
            recorded: Mutex::new(false),
        })
    }

    /// Whose store this is.
    pub fn id(&self) -> DiskId {
        self.id
    }

    /// Blocks that clients see.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The present incarnation of unflushed writes.
    pub fn incarnation(&self) -> Boot {
        let mut hasher = blake3::Hasher::new_derive_key(INCARNATION_CONTEXT);
        hasher.update(&self.id.0);
        hasher.update(&self.failures.to_le_bytes());
        hasher.update(&self.marks.to_le_bytes());
        hasher.update(&self.surroundings.origin);
        let failed = self.failed.load(Ordering::SeqCst);
        if failed > 0 {
            hasher.update(&failed.to_le_bytes());
        }
        Boot(array_at(hasher.finalize().as_bytes(), 0))
    }

    /// Whether these blocks are on the disk.
    pub(crate) fn has(&self, start: u64, blocks: u64) -> bool {
        start
            .checked_add(blocks)
            .is_some_and(|end| end <= self.blocks)
    }

    /// Reads whole blocks.
    pub(crate) fn read(&self, start: u64, out: &mut [u8]) -> io::Result<()> {
        self.device.read_at(out, offset(start))
    }

    /// Writes whole blocks.
    pub(crate) fn write(&self, start: u64, data: &[u8]) -> io::Result<()> {
        self.device.write_at(data, offset(start))
    }

    /// Makes durable what was written before.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let Err(error) = self.device.flush() else {
            return Ok(());
        };
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        if is_late && self.surroundings.failures.is_none() {
            // What this process holds it still holds: the flush may be asked for again.
            return Err(error);
        }
        self.count_failure();
        // From the kernel it is a failure like any other, which it reports once.
        Err(if is_late {
            io::Error::other(error)
        } else {
            error
        })
    }

    /// Gives the space of blocks back.
    pub(crate) fn discard(&self, extent: BlockExtent) -> io::Result<()> {
        // Within the disk, so within a u64 in bytes too.
        self.device
            .discard(offset(extent.start), extent.blocks * BLOCK_LEN as u64)
    }

    /// Makes `next` the room that has the disk, durably, where it is `room`'s or nobody's. False, and no change, where it is another's.
    pub(crate) fn claim(&self, room: [u8; ROOM_LEN], next: [u8; ROOM_LEN]) -> io::Result<bool> {
        let _one = self.claiming.lock();
        let has_it = self.room.lock();
        if *has_it != room && *has_it != NO_ROOM {
            return Ok(false);
        }
        if *has_it != next {
            // Within the lock: a failed flush writes the first block too.
            let failures = self.failures + self.failed.load(Ordering::SeqCst).min(1);
            let head = head(self.id, self.blocks, failures, next);
            self.device.write_at(&head, 0)?;
            drop(has_it);
            self.flush()?;
            *self.room.lock() = next;
        }
        Ok(true)
    }

    fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::SeqCst);
        // Failures at the same time wait for the record, too.
        let mut recorded = self.recorded.lock();
        if *recorded {
            return;
        }
        let room = self.room.lock();
        let head = head(self.id, self.blocks, self.failures + 1, *room);
        let in_store = self.device.write_at(&head, 0);
        drop(room);
        let beside = self.surroundings.failures.as_ref().map(|path| {
            let mut file = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?;
            file.write_all(b"x")?;
            file.sync_all()
        });
        *recorded = in_store.is_ok() || matches!(beside, Some(Ok(())));
        if in_store.is_err() && matches!(beside, Some(Err(_))) {
            tracing::error!(
                "a flush failed, and that could be recorded nowhere: restart the machine before this disk is served again"
            );
        }
    }
}

/// The offset of a client's block, in bytes.
fn offset(block: u64) -> u64 {
    (block + 1) * BLOCK_LEN as u64
}

/// The reason that goes with a failure of the store.
pub(crate) fn reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::NoSpace,
        // It may answer later, and what was asked may be asked again.
        io::ErrorKind::TimedOut => Reason::Busy,
        _ => Reason::Storage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{AroundMemory, MemoryDevice};

    /// Memory whose flushes fail on request.
    #[derive(Debug)]
    struct Failing(MemoryDevice, Mutex<Option<io::ErrorKind>>);

    impl AroundMemory for Failing {
        fn memory(&self) -> &MemoryDevice {
            &self.0
        }
        fn sync(&self) -> io::Result<()> {
            match *self.1.lock() {
                Some(kind) => Err(io::Error::new(kind, "fails on request")),
                None => Ok(()),
            }
        }
    }

    fn device() -> Arc<Failing> {
        let device = Failing(MemoryDevice::new(1 << 20), Mutex::default());
        Store::init(&device, DiskId([3; 16]), false).unwrap();
        Arc::new(device)
    }

    fn open(device: &Arc<Failing>, origin: &[u8]) -> Store {
        let surroundings = Surroundings {
            origin: origin.to_vec(),
            failures: None,
        };
        Store::open(device.clone(), surroundings).unwrap()
    }

    #[test]
    fn a_store_is_made_of_an_empty_device_only() {
        let device = device();
        assert!(matches!(
            Store::init(&*device, DiskId([4; 16]), false),
            Err(StoreError::NotEmpty)
        ));
        assert_eq!(open(&device, b"").id(), DiskId([3; 16]));
        Store::init(&*device, DiskId([4; 16]), true).unwrap();
        let store = open(&device, b"");
        assert_eq!((store.id(), store.blocks()), (DiskId([4; 16]), 255));
    }

    #[test]
    fn a_damaged_or_shortened_first_block_is_refused() {
        let bytes = device().0.contents();
        let refusal = |bytes: Vec<u8>| {
            Store::open(
                Arc::new(MemoryDevice::read_only(bytes)),
                Surroundings::default(),
            )
            .unwrap_err()
        };
        for at in [9, 20, 33, 41, 4000, 4095] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(matches!(refusal(damaged), StoreError::Damaged), "byte {at}");
        }
        assert!(matches!(refusal(vec![0; 1 << 20]), StoreError::NotAStore));
        let mut longer = vec![0; 2 << 20];
        longer[..BLOCK_LEN].copy_from_slice(&head(DiskId([3; 16]), 512, 0, NO_ROOM));
        assert!(matches!(
            refusal(longer),
            StoreError::Shorter(0x20_0000, 0x20_1000)
        ));
        let short = bytes[..512 << 10].to_vec();
        assert!(matches!(refusal(short), StoreError::Shorter(..)));
    }

    #[test]
    fn an_incarnation_goes_on_while_nothing_can_be_lost_and_ends_for_good_with_a_failed_flush() {
        let device = device();
        let store = open(&device, b"one");
        let first = store.incarnation();
        store.flush().unwrap();
        assert_eq!(open(&device, b"one").incarnation(), first);
        assert_ne!(open(&device, b"two").incarnation(), first);
        *device.1.lock() = Some(io::ErrorKind::Other);
        store.flush().unwrap_err();
        assert_ne!(store.incarnation(), first);
        *device.1.lock() = None;
        assert_ne!(open(&device, b"one").incarnation(), first);
    }

    #[test]
    fn a_disk_is_one_rooms_until_that_releases_it_also_after_a_failed_flush() {
        let device = device();
        let store = open(&device, b"one");
        let (one, two) = ([1; ROOM_LEN], [2; ROOM_LEN]);
        // To release what nobody has changes nothing.
        assert!(store.claim(two, NO_ROOM).unwrap());
        assert!(store.claim(one, one).unwrap());
        assert!(!store.claim(two, two).unwrap());
        assert!(!store.claim(two, NO_ROOM).unwrap());
        *device.1.lock() = Some(io::ErrorKind::Other);
        store.flush().unwrap_err();
        // What is not durable does not count.
        store.claim(one, NO_ROOM).unwrap_err();
        assert!(!store.claim(two, two).unwrap());
        *device.1.lock() = None;
        let store = open(&device, b"one");
        assert_eq!(store.failures, 1);
        assert!(store.claim(one, NO_ROOM).unwrap());
        assert!(store.claim(two, two).unwrap());
        assert!(!open(&device, b"one").claim(one, one).unwrap());
    }

    #[test]
    fn a_failed_flush_is_remembered_beside_the_key_too() {
        let dir = tempfile::tempdir().unwrap();
        let device = device();
        let surroundings = Surroundings {
            origin: Vec::new(),
            failures: Some(dir.path().join("disk.key.failures")),
        };
        let store = Store::open(device.clone(), surroundings.clone()).unwrap();
        let first = store.incarnation();
        *device.1.lock() = Some(io::ErrorKind::Other);
        store.flush().unwrap_err();
        // The store itself forgets it, as a disk that fails may.
        device
            .write_at(&head(DiskId([3; 16]), 255, 0, NO_ROOM), 0)
            .unwrap();
        let again = Store::open(device, surroundings).unwrap();
        assert_ne!(again.incarnation(), first);
    }
    #[test]
    fn one_failed_flush_of_an_opening_is_recorded_and_each_begins_an_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let device = device();
        let surroundings = Surroundings {
            origin: b"one".to_vec(),
            failures: Some(dir.path().join("disk.key.failures")),
        };
        let mut seen = Vec::new();
        for opening in 1..=2 {
            let store = Store::open(device.clone(), surroundings.clone()).unwrap();
            seen.push(store.incarnation());
            *device.1.lock() = Some(io::ErrorKind::TimedOut);
            for _ in 0..3 {
                let error = store.flush().unwrap_err();
                assert_eq!(reason(&error), Reason::Storage);
                seen.push(store.incarnation());
            }
            *device.1.lock() = None;
            let recorded = fs::metadata(surroundings.failures.as_ref().unwrap()).unwrap();
            assert_eq!(recorded.len(), opening);
            assert_eq!(u64_at(&device.0.contents(), 40), opening);
        }
        // Also where only the store or only the file remembers it.
        fs::remove_file(surroundings.failures.as_ref().unwrap()).unwrap();
        seen.push(
            Store::open(device.clone(), surroundings.clone())
                .unwrap()
                .incarnation(),
        );
        let unique: std::collections::HashSet<_> = seen.iter().map(|boot| boot.0).collect();
        assert_eq!(unique.len(), seen.len());
    }
}
