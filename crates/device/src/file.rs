//! A file or a block device as a [`Device`].
//!
//! 1. Two processes never have the same store open for writing: it is locked (`flock(2)`) for as long as it is open, and no longer.
//!    What the system uses is not written to either, a block device that is mounted or mapped, or a file that is the image of a loop
//!    device: its file system would not notice.
//! 2. After a failed flush no flush succeeds: Linux reports a write that failed to one caller and then forgets it, so a later
//!    success would say nothing about what was lost.
//!
//! It deliberately does not bypass the page cache: what was written is in the kernel, and outlives this process.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, OFlags, StatxFlags, fallocate, flock, seek, statx,
};
use rustix::io::Errno;

use crate::known::KnownData;
use crate::{Device, Extent, Zeroing, range};

/// Ranges that a block device discards are cut to whole units of this many bytes; of the second where its logical blocks are larger, up
/// to what Linux has.
const DISCARD_UNITS: [u64; 2] = [4096, 64 << 10];

/// How long a block device that is in use is waited for, and how often it is tried.
const USE_MAX: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// How a [`FileDevice`] is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading, shared with other readers.
    ReadOnly,
    /// Reading and writing, alone: a block device that is mounted, or in use by the system in another way, is refused, and so is the
    /// image of a loop device.
    ReadWrite,
    /// Reading and writing, alone but for the system: for the part of a device that the system does not look at, as the
    /// header of a volume that it has mapped.
    ReadWriteBesideSystem,
}

/// A file or block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    len: u64,
    read_only: bool,
    block_device: bool,
    punches: bool,
    identity: FileIdentity,
    /// Flushes that were begun.
    begun: AtomicU64,
    flushed: Mutex<Flushed>,
    data: KnownData,
}

/// Which store this is on this machine, as long as it runs: the same file opened again has the same, also after its file
/// system was mounted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file system's device number; a block device's own.
    pub device: u64,
    /// The inode number; 0 for a block device.
    pub inode: u64,
}

#[derive(Debug)]
struct Flushed {
    /// Number of the last flush that succeeded, as counted by `begun`.
    last: u64,
    /// A flush failed.
    failed: bool,
}

impl FileDevice {
    /// Opens an existing file or block device. `ResourceBusy` where another process, or the system, uses it in a way that
    /// `access` does not allow.
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        let read_only = access == Access::ReadOnly;
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only);
        let alone = access == Access::ReadWrite && path.metadata()?.file_type().is_block_device();
        if alone {
            // Without O_CREAT, and on block devices alone, this asks the kernel whether it uses the device (`open(2)`).
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
        let file = patiently(alone, || options.open(path)).map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => busy("mounted, or in use by the system in another way"),
            _ => e,
        })?;
        if access == Access::ReadWrite {
            not_attached(path, &file)?;
        }
        Self::of(file, read_only)
    }

    /// Makes a file of `len` bytes that read as zeros, and take no space before they are written. `AlreadyExists` where
    /// there is something at this path.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // An empty file would be in the way of the next try.
        file.set_len(len).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })?;
        Self::of(file, false)
    }

    fn of(mut file: File, read_only: bool) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let block_device = metadata.file_type().is_block_device();
        lock(&file, read_only, block_device)?;
        if !block_device && !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a file nor a block device",
            ));
        }
        // A block device has no length of its own to ask for; its end is where seeking ends.
        let len = file.seek(SeekFrom::End(0))?;
        let identity = if block_device {
            FileIdentity {
                device: metadata.rdev(),
                inode: 0,
            }
        } else {
            FileIdentity {
                device: metadata.dev(),
                inode: metadata.ino(),
            }
        };
        // Past the end there is nothing to lose, so asking there shows whether the file system can do it.
        let punches = !block_device && !read_only && punch(&file, len, DISCARD_UNITS[0]).is_ok();
        Ok(Self {
            file,
            len,
            read_only,
            block_device,
            punches,
            identity,
            begun: AtomicU64::new(0),
            flushed: Mutex::new(Flushed {
                last: 0,
                failed: false,
            }),
            data: KnownData::default(),
        })
    }

    /// Which store this is.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// The number of the mount through which the file was opened. No other mount has it until the machine starts again; the
    /// same file system has one for each mount namespace and bind mount. `None` before Linux 6.8.
    pub fn mount(&self) -> Option<u64> {
        // STATX_MNT_ID_UNIQUE.
        let unique = StatxFlags::from_bits_retain(0x4000);
        let found = statx(&self.file, "", AtFlags::EMPTY_PATH, unique).ok()?;
        (found.stx_mask & unique.bits() != 0).then_some(found.stx_mnt_id)
    }

    fn writable(&self, len: u64, offset: u64) -> io::Result<()> {
        if self.read_only {
            return Err(range::read_only());
        }
        range::to_write(self.len, offset, len)
    }

    /// Where the file ends now: somebody may have shortened it since it was opened. A block device keeps its length.
    fn ends(&self) -> io::Result<u64> {
        match self.block_device {
            true => Ok(self.len),
            false => Ok(self.file.metadata()?.len()),
        }
    }

    /// Frees a range where that can be done: a discard is a hint.
    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        let punched = punch(&self.file, offset, len);
        self.data.forget();
        match punched {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => other,
        }
    }

    /// Zeros by the kernel; `None` where it cannot.
    fn zero_range(&self, offset: u64, len: u64, keep_space: bool) -> io::Result<Option<()>> {
        // On a block device the kernel takes whole logical blocks only.
        let done = if self.block_device || keep_space {
            fallocate(
                &self.file,
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                offset,
                len,
            )
        } else {
            punch(&self.file, offset, len)
        };
        match done {
            Ok(()) => Ok(Some(())),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }
}

impl Drop for FileDevice {
    /// Closing alone would leave the lock with any copy of the descriptor: a process that another thread is starting has one until it
    /// runs its program.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Device for FileDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        range::to_read(self.len, offset, buf.len() as u64)?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => shortened(),
                _ => e,
            })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.writable(buf.len() as u64, offset)?;
        self.file.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        if flushed.failed {
            return Err(io::Error::other(
                "an earlier flush failed: what was written before it may be lost; open the store again",
            ));
        }
        if flushed.last > before {
            // One that began after this call did has covered it.
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        // Held by the lock: of two that ran at once only one would see a failure.
        match self.file.sync_data() {
            Ok(()) => {
                flushed.last = number;
                Ok(())
            }
            Err(error) => {
                flushed.failed = true;
                tracing::error!(%error, "a flush failed, and so does every later one until the store is opened again");
                Err(error)
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.writable(len, offset)?;
        if !self.block_device {
            return self.punch(offset, len).map_err(Into::into);
        }
        for unit in DISCARD_UNITS {
            let (offset, len) = range::whole_units(offset, len, unit);
            match self.punch(offset, len) {
                Err(Errno::INVAL) => {}
                done => return done.map_err(Into::into),
            }
        }
        Ok(())
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.zero(offset, len, Zeroing::default())
    }

    fn zero(&self, offset: u64, len: u64, how: Zeroing) -> io::Result<()> {
        self.writable(len, offset)?;
        if len == 0 {
            return Ok(());
        }
        if how.only_fast && self.block_device {
            // The kernel falls to writing without a word where the device cannot do it.
            return Err(range::not_fast());
        }
        let zeroed = self.zero_range(offset, len, how.keep_space);
        self.data.forget();
        match zeroed? {
            // Behind the end there is nothing that the kernel could zero.
            Some(()) if self.ends()? < offset + len => Err(shortened()),
            Some(()) => Ok(()),
            None if how.only_fast => Err(range::not_fast()),
            None => crate::write_zeros_by_hand(self, offset, len),
        }
    }

    fn status(&self, offset: u64, len: u64) -> io::Result<Extent> {
        range::to_read(self.len, offset, len)?;
        if self.block_device || len == 0 {
            return Ok(Extent::data(len));
        }
        let hole = |len| Extent {
            len,
            allocated: false,
            zeros: true,
        };
        if let Some(end) = self.data.end_of(offset) {
            return Ok(Extent::data(len.min(end - offset)));
        }
        match seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) if data > offset => Ok(hole(len.min(data - offset))),
            Ok(_) => match seek(&self.file, rustix::fs::SeekFrom::Hole(offset)) {
                // A hole that came to be in between is data that reads as zeros.
                Ok(end) if end > offset => {
                    self.data.learn(offset, end);
                    Ok(Extent::data(len.min(end - offset)))
                }
                _ => Ok(Extent::data(len)),
            },
            // No data from here on; nor a hole, behind the end.
            Err(Errno::NXIO) => match self.ends()?.saturating_sub(offset) {
                0 => Err(shortened()),
                left => Ok(hole(len.min(left))),
            },
            // A file system that does not know.
            Err(_) => Ok(Extent::data(len)),
        }
    }

    fn prefetch(&self, offset: u64, len: u64) -> io::Result<()> {
        range::to_read(self.len, offset, len)?;
        if let Some(len) = std::num::NonZeroU64::new(len) {
            // What cannot be read ahead is read when it is asked for.
            let _ =
                rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::WillNeed);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn discards_to_zeros(&self) -> bool {
        self.punches
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// Locks the file at `path` as [`FileDevice::open`] does for writing, for as long as it is open. `ResourceBusy` where another process has it
/// open, or a loop device.
pub fn lock_alone(path: &Path, file: &File) -> io::Result<()> {
    not_attached(path, file)?;
    lock(file, false, false)
}

/// Refuses a file that is the image of a loop device. One that is being detached is waited for: `losetup -d` returns before that where
/// somebody looks at the device.
fn not_attached(path: &Path, file: &File) -> io::Result<()> {
    let deadline = Instant::now() + USE_MAX;
    while let Some(device) = attached_to(path, file)? {
        let ends = std::fs::read(device.join("loop/autoclear")).unwrap_or_default();
        if ends.trim_ascii_end() != b"1" || Instant::now() >= deadline {
            let name = device.file_name().unwrap_or_default();
            return Err(busy(format!("attached to /dev/{}", name.display())));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The loop device (`Documentation/ABI`, block/loop) that a file is the image of, by whatever name, as far as the one there still leads to
/// it. That locks nothing.
fn attached_to(path: &Path, file: &File) -> io::Result<Option<PathBuf>> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else {
        return Ok(None);
    };
    let id = |of: &Metadata| (of.dev(), of.ino());
    let (this, path) = (id(&file.metadata()?), path.canonicalize()?);
    let passed: Vec<_> = path.ancestors().filter_map(file_system).collect();
    // Only file systems that were passed on the way to this file are touched: another one may answer no more.
    let answers = |image: &Path| {
        let mut steps: Vec<&Path> = image.ancestors().collect();
        steps.reverse();
        let mut on = steps.into_iter().map(file_system);
        on.all(|it| it.is_some_and(|it| passed.contains(&it)))
    };
    let mut devices = devices.flatten().map(|device| device.path());
    Ok(devices.find(|device| {
        let image = std::fs::read(device.join("loop/backing_file")).unwrap_or_default();
        let image = Path::new(OsStr::from_bytes(image.trim_ascii_end()));
        answers(image) && image.metadata().is_ok_and(|of| id(&of) == this)
    }))
}

/// The device number of the file system that a path is on, as far as the kernel knows it without asking that file system.
fn file_system(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// Locks a file; a block device [`patiently`].
fn lock(file: &File, read_only: bool, block_device: bool) -> io::Result<()> {
    let lock = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match patiently(block_device, || Ok(flock(file, lock)?)) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(busy("in use by another process")),
        other => other,
    }
}

/// Tries again for a while where a block device is in use: udev looks at one that somebody has just written to, and a program that is
/// being started has for a moment what another thread had open.
fn patiently<T>(block_device: bool, take: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + USE_MAX;
    loop {
        match take() {
            Err(e)
                if block_device
                    && matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                    )
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// What a file answers of a range that it does not have any more.
fn shortened() -> io::Error {
    let words = "the file ends before this range: it was shortened after it was opened";
    io::Error::new(io::ErrorKind::UnexpectedEof, words)
}

fn busy(words: impl Into<String>) -> io::Error {
    let words: String = words.into();
    io::Error::new(io::ErrorKind::ResourceBusy, words)
}

/// Frees a range, which then reads as zeros (`fallocate(2)`). On a block device the kernel discards it, or refuses.
fn punch(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    fallocate(
        file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        offset,
        len,
    )
}
