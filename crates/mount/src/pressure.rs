//! Back-pressure: programs learn from `write` that a room is full, and not from the loss of what they wrote.
//!
//! The kernel accepts writes into its cache without asking, and passes them on later. What it holds back must therefore find
//! space, whatever happens in between:
//!
//! 1. The less space is left, the less the kernel may hold back (the limit on dirty pages of this mount, which root may set).
//! 2. What arrives although no space for new data is left goes where the room keeps some for it
//!    ([`FileSystem::write_cached`]), and its file is noted.
//! 3. Near the end ("tight") the kernel is kept from trusting the attributes it has of a file, so that it asks for them
//!    before each `write`. The answer for a file that was noted is ENOSPC, which `write` returns.
//!
//! A read does not fail for that: for the length alone the kernel of a write-back mount does not ask.
//!
//! One `write` cannot be refused in its middle, nor can a map. What is lost of those is reported by `fsync` or `close`, but the
//! kernel keeps the file's length for as long as it knows the inode. So it is asked to forget the inode once nobody has the
//! file open, and takes the length of what is stored at the next lookup.
//!
//! No thread that serves writes notifies the kernel: it may be waiting for these writes with the inode locked.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use model::{Available, FileSystem, InodeNo};
use parking_lot::Mutex;

use crate::kernel::Kernel;
use crate::tune::settings_of;

/// Bytes of space below which the kernel asks before each write, and above which it stops asking.
const TIGHT: (u64, u64) = (256 << 20, 384 << 20);
/// Bytes that the kernel may always hold back, as far as the room keeps twice as much for them.
const DIRTY_LEAST: u64 = 32 << 20;
/// The part of the space left that the kernel may hold back: one byte in so many.
const DIRTY_PART: u64 = 4;
/// Bytes written between two looks at the space: a part of it, within these limits.
const LOOK: (u64, u64) = (1 << 20, 256 << 20);

/// Something for the thread to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Have the kernel ask before it writes to a file again.
    Ask(InodeNo),
    /// The same for every file.
    AskAll,
    /// Have the kernel pass on what it holds.
    WriteBack,
    /// Have the kernel drop what it holds of a file from an offset on: it could not be stored.
    Drop(InodeNo, u64),
}

/// What is known of the space, for the threads that serve requests.
#[derive(Debug)]
pub(crate) struct Pressure {
    orders: Sender<Order>,
    tight: AtomicBool,
    /// Bytes that may be written until the next look.
    unlooked: AtomicI64,
    /// Whether a write-back is ordered already.
    writing_back: AtomicBool,
    files: Mutex<Files>,
    /// Files of which the kernel may count more bytes than are stored.
    too_long: Mutex<HashSet<InodeNo>>,
    /// `None` until the mount's device is known.
    limit: Mutex<Option<DirtyLimit>>,
}

#[derive(Debug, Default)]
struct Files {
    /// Those of which the kernel asks already.
    asked: HashSet<InodeNo>,
    /// Those that grew although there was no space for new data.
    grown: HashSet<InodeNo>,
}

impl Pressure {
    /// For one mount; the receiver is for the thread of [`relief`](crate::relief).
    pub(crate) fn new() -> (Self, Orders) {
        let (orders, receiver) = channel();
        let pressure = Self {
            orders,
            tight: AtomicBool::new(false),
            unlooked: AtomicI64::new(0),
            writing_back: AtomicBool::new(false),
            files: Mutex::default(),
            too_long: Mutex::default(),
            limit: Mutex::default(),
        };
        (pressure, Orders(receiver))
    }

    /// Looks for the first time: the mount's device is known now.
    pub(crate) fn begin(&self, device: u64, room: &dyn FileSystem) {
        *self.limit.lock() = Some(DirtyLimit::new(device));
        self.look(room);
    }

    /// Whether the kernel is to ask before each write.
    pub(crate) fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Cached data of a file was stored; `grown` if it found no space for new data. Call it when the write is answered.
    pub(crate) fn stored(&self, room: &dyn FileSystem, no: InodeNo, bytes: usize, grown: bool) {
        let bytes = bytes as i64;
        if self.unlooked.fetch_sub(bytes, Ordering::Relaxed) <= bytes {
            self.look(room);
        }
        if !grown && !self.is_tight() {
            return;
        }
        let mut files = self.files.lock();
        if grown {
            files.grown.insert(no);
        }
        if files.asked.insert(no) {
            self.order(Order::Ask(no));
        }
    }

    /// Cached data of a file could not be stored: what the kernel shows of it is not there.
    pub(crate) fn lost(&self, room: &dyn FileSystem, no: InodeNo, offset: u64) {
        self.stored(room, no, 0, true);
        self.too_long.lock().insert(no);
        self.order(Order::Drop(no, offset));
    }

    /// The kernel has taken over the stored length of a file, or has forgotten the file.
    pub(crate) fn length_corrected(&self, no: InodeNo) {
        self.too_long.lock().remove(&no);
    }

    /// The write-back that was ordered begins.
    pub(crate) fn write_back_begins(&self) {
        self.writing_back.store(false, Ordering::Relaxed);
    }

    /// Whether there are files whose length is wrong.
    pub(crate) fn has_wrong_lengths(&self) -> bool {
        !self.too_long.lock().is_empty()
    }

    /// Has the kernel forget the files whose length is wrong, as far as nobody has them open.
    pub(crate) fn prune(&self, kernel: &Kernel) {
        let files: Vec<_> = self.too_long.lock().iter().copied().collect();
        if !files.is_empty() && !kernel.forget_unused(&files) {
            // An earlier kernel cannot. It forgets them when it needs memory, or with the mount.
            self.too_long.lock().clear();
        }
    }

    /// Whether a program may write to a file: asked by the kernel before each write while space is tight.
    pub(crate) fn may_write(&self, room: &dyn FileSystem, no: InodeNo) -> bool {
        let Ok(left) = room.available() else {
            // The write itself will say what is wrong.
            return true;
        };
        if left.new >= TIGHT.1 {
            self.look(room);
        }
        if left.new < DIRTY_LEAST && !self.writing_back.swap(true, Ordering::Relaxed) {
            // The sooner it arrives, the sooner a file is seen to grow.
            self.order(Order::WriteBack);
        }
        let mut files = self.files.lock();
        if left.new > 0 {
            files.grown.remove(&no);
            return true;
        }
        if !files.grown.contains(&no) {
            return true;
        }
        if left.cached > DIRTY_LEAST {
            // Reported once. The program may go on with what needs no more space; where the file grows again, that is seen.
            files.grown.remove(&no);
        }
        false
    }

    /// Looks how much space is left, and adjusts what the kernel may hold back.
    pub(crate) fn look(&self, room: &dyn FileSystem) {
        // Another thread that looks sees the same.
        let Some(mut limit) = self.limit.try_lock() else {
            return;
        };
        let Some(limit) = limit.as_mut() else {
            return;
        };
        let Ok(left) = room.available() else {
            return;
        };
        let next = (left.new / 8).clamp(LOOK.0, LOOK.1);
        self.unlooked.store(next as i64, Ordering::Relaxed);
        limit.follow(&left);
        let was = self.is_tight();
        let tight = left.new < if was { TIGHT.1 } else { TIGHT.0 };
        self.tight.store(tight, Ordering::Relaxed);
        if tight && !was {
            tracing::debug!(left = left.new, "space is getting tight");
            self.order(Order::AskAll);
        } else if was && !tight {
            *self.files.lock() = Files::default();
        }
    }

    fn order(&self, order: Order) {
        // The thread is gone when the mount is ending.
        let _ = self.orders.send(order);
    }
}

/// The orders of one mount.
#[derive(Debug)]
pub(crate) struct Orders(pub(crate) Receiver<Order>);

/// The kernel's limit on the dirty pages of one mount. Without this a mount may have 1 % of what all may hold back, which
/// throttles small writes.
#[derive(Debug)]
struct DirtyLimit {
    /// Where the kernel shows the settings of the mount's device.
    dir: PathBuf,
    /// As last set: bytes, or no limit but the one for all mounts.
    set: Option<Option<u64>>,
}

impl DirtyLimit {
    fn new(device: u64) -> Self {
        Self {
            dir: settings_of(device),
            set: None,
        }
    }

    /// Sets the limit for the space that is left. Best effort: an ordinary user may not, and keeps the kernel's own.
    fn follow(&mut self, left: &Available) {
        let least = ((left.cached - left.new) / 2).clamp(LOOK.0, DIRTY_LEAST);
        let wanted = (left.new / DIRTY_PART).max(least);
        let wanted = (wanted < dirty_threshold()).then_some(wanted);
        match (self.set, wanted) {
            (Some(None), None) => return,
            // A limit that is a little lower than it could be is left alone.
            (Some(Some(set)), Some(wanted)) if (set..=set.saturating_mul(2)).contains(&wanted) => {
                return;
            }
            (_, None) => {
                self.write("max_ratio", "100");
                self.write("strict_limit", "0");
            }
            (_, Some(bytes)) => {
                self.write("max_bytes", &bytes.to_string());
                self.write("strict_limit", "1");
            }
        }
        self.set = Some(wanted);
    }

    fn write(&self, file: &str, value: &str) {
        if let Err(e) = std::fs::write(self.dir.join(file), value) {
            tracing::debug!("{file} of the mount is left as it is: {e}");
        }
    }
}

/// Bytes that all writers together may have in the kernel's cache.
fn dirty_threshold() -> u64 {
    let table = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let pages = table
        .lines()
        .find_map(|line| line.strip_prefix("nr_dirty_threshold "))
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.map_or(u64::MAX, |pages| {
        pages.saturating_mul(rustix::param::page_size() as u64)
    })
}
