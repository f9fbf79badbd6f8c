//! The state that all parts of a room share, and the locks that order them.
//!
//! Locks are taken in this order, each released before an earlier one is taken again:
//! 1. `freeze`, shared by every change, exclusive for a commit: a commit sees whole operations only.
//! 2. `names`, one at a time: every change of the tree.
//! 3. a cell's state, in the order of inode numbers where two are needed.
//! 4. the short ones: inode table, shares before accounts and catalog.
//!
//! Long work (check, backup, compaction, rekey) takes `moving` or `swap` before all of these.
//!
//! Reading takes neither 1 nor 2. A reader keeps the cell locked while it reads the segments, so what it looks at is
//! not released under it.

use std::cell::Cell as Flag;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use catalog::{BlockRange, Catalog, InodeNo, Released, SegmentNo, Timestamp};
use model::now;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use segments::{DirStore, Sealed, SegmentStore, UNIT_BLOCKS};
use storage::{Storage, spans};

use crate::accounts::Accounts;
use crate::check::LostExtent;
use crate::flags::Flagged;
use crate::grants::Grants;
use crate::header::HeaderState;
use crate::inodes::{Cell, InodeTable};
use crate::lock::RoomLock;
use crate::moves::Moves;
use crate::name_cache::NameCache;
use crate::opener::Opener;
use crate::pins::Pins;
use crate::rollback::Memory;
use crate::space::SpaceState;
use crate::unsaved::Refused;
use crate::{Error, OpenOptions, Result};

thread_local! {
    /// Whether this thread holds `freeze` for several changes that one commit takes together: see [`Core::whole`].
    static IN_WHOLE: Flag<bool> = const { Flag::new(false) };
}

/// Bytes of one block.
pub(crate) const BLOCK: u64 = segments::BLOCK_LEN as u64;

/// Appended bytes after which the segments are flushed in the background, without a commit.
const FLUSH_EARLY: u64 = 32 << 20;

/// Everything of an open room but its maintenance thread.
#[derive(Debug)]
pub(crate) struct Core {
    /// Empty where the room is not in a directory of the host.
    pub(crate) dir: PathBuf,
    pub(crate) options: OpenOptions,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) header: Mutex<HeaderState>,
    /// Replaced as a whole by a rekey.
    catalog: RwLock<Arc<dyn Catalog>>,
    pub(crate) segments: Arc<DirStore>,
    pub(crate) inodes: InodeTable,
    pub(crate) found: NameCache,
    pub(crate) accounts: Mutex<Accounts>,
    pub(crate) freeze: RwLock<()>,
    pub(crate) names: Mutex<()>,
    /// Holds on inodes, and the inodes that live only by them.
    pub(crate) holds: Mutex<Holds>,
    pub(crate) reaping: Mutex<Vec<InodeNo>>,
    /// Held while inodes are deleted: who waits for it finds none under way.
    pub(crate) reap_lock: Mutex<()>,
    /// Counts changes; compared with what the last commit covered.
    pub(crate) changes: AtomicU64,
    /// `changes` as the last commit saw it.
    pub(crate) committed: AtomicU64,
    /// `changes` as the last commit or record of the log saw it.
    pub(crate) durable: AtomicU64,
    /// Held while a commit runs, or a record is appended to the log.
    pub(crate) commit_lock: Mutex<()>,
    /// Transactions begun and not completed, one in another. Changed with `commit_lock` held.
    pub(crate) transactions: AtomicUsize,
    pub(crate) memory: Mutex<Memory>,
    poisoned: AtomicBool,
    pub(crate) space: SpaceState,
    /// Bytes appended since the last commit.
    pub(crate) pending_bytes: AtomicU64,
    /// Bytes appended since the last flush that was not part of a commit.
    pub(crate) unflushed_bytes: AtomicU64,
    pub(crate) wake: (Mutex<Wake>, Condvar),
    /// The clock that stamps files, where it is not [`now`].
    clock: OnceLock<fn() -> Timestamp>,
    /// Held while the count of a shared unit is read and acted on; where compaction took shared units.
    pub(crate) shares: Mutex<Moves>,
    /// Discarded by commits, and not yet punched.
    pub(crate) holes: Mutex<Vec<BlockRange>>,
    /// Held while they are punched.
    pub(crate) punching: Mutex<()>,
    /// What was not punched when the room was opened: bytes of each segment.
    pub(crate) unpunched: Mutex<HashMap<SegmentNo, u64>>,
    /// How often holes were punched.
    pub(crate) punched: AtomicU64,
    /// What others may write to.
    pub(crate) grants: Mutex<Grants>,
    /// Files with flags.
    pub(crate) flagged: Flagged,
    /// What a backup still reads, and what is freed after it.
    pub(crate) pins: Mutex<Pins>,
    /// What a cache had accepted and found no space.
    pub(crate) refused: Refused,
    /// Held while data moves between segments.
    pub(crate) moving: Mutex<()>,
    /// Shared by long operations on one catalog, exclusive for its replacement by another.
    pub(crate) swap: RwLock<()>,
    /// The highest segment number as the catalog has it.
    pub(crate) noted_segment: AtomicU64,
    /// Who may use it.
    pub(crate) opener: Opener,
    _lock: RoomLock,
}

/// Holds on inodes beyond their names.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pub(crate) counts: HashMap<InodeNo, u64>,
    pub(crate) unlinked: HashSet<InodeNo>,
    /// When the last of those lost its last name.
    pub(crate) unlinked_at: Option<Instant>,
}

/// Requests to the maintenance thread.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) stop: bool,
    pub(crate) commit: bool,
    pub(crate) reap: bool,
    pub(crate) flush: bool,
    pub(crate) punch: bool,
    /// There was no space: the cleaner shall look now.
    pub(crate) clean: bool,
    /// What is remembered outside the room is to be written down.
    pub(crate) remember: bool,
    /// Ranges that failed authentication, to be named in the log.
    pub(crate) damaged: Vec<LostExtent>,
    /// Those that were seen before.
    noted: HashSet<LostExtent>,
}

/// The parts of a core that its opener puts together.
pub(crate) struct Parts {
    /// Empty where the room is not in a directory of the host.
    pub(crate) dir: PathBuf,
    pub(crate) options: OpenOptions,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) header: HeaderState,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) segments: Arc<DirStore>,
    pub(crate) accounts: Accounts,
    pub(crate) unpunched: HashMap<SegmentNo, u64>,
    /// Blocks reserved for holes.
    pub(crate) reserved: u64,
    pub(crate) memory: Memory,
    pub(crate) lock: RoomLock,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            dir: parts.dir,
            options: parts.options,
            storage: parts.storage,
            header: Mutex::new(parts.header),
            catalog: RwLock::new(parts.catalog),
            segments: parts.segments,
            inodes: InodeTable::new(),
            found: NameCache::new(),
            accounts: Mutex::new(parts.accounts),
            freeze: RwLock::new(()),
            names: Mutex::new(()),
            holds: Mutex::default(),
            reaping: Mutex::default(),
            reap_lock: Mutex::default(),
            changes: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            commit_lock: Mutex::new(()),
            transactions: AtomicUsize::new(0),
            memory: Mutex::new(parts.memory),
            poisoned: AtomicBool::new(false),
            space: SpaceState::new(parts.reserved),
            pending_bytes: AtomicU64::new(0),
            unflushed_bytes: AtomicU64::new(0),
            wake: (Mutex::default(), Condvar::new()),
            clock: OnceLock::new(),
            shares: Mutex::default(),
            holes: Mutex::default(),
            punching: Mutex::default(),
            unpunched: Mutex::new(parts.unpunched),
            punched: AtomicU64::new(0),
            grants: Mutex::default(),
            flagged: Flagged::default(),
            refused: Refused::default(),
            pins: Mutex::default(),
            moving: Mutex::default(),
            swap: RwLock::default(),
            noted_segment: AtomicU64::new(0),
            opener: Opener::this_process(),
            _lock: parts.lock,
        }
    }

    /// In a fork of the process that opened the room: leaves everything as it is. Files, locks and threads are the parent's, and
    /// nothing of them may be closed in order.
    pub(crate) fn leave(self: &Arc<Self>) {
        std::mem::forget(self.clone());
    }

    /// The catalog of this moment.
    pub(crate) fn catalog(&self) -> Arc<dyn Catalog> {
        self.catalog.read().clone()
    }

    /// Puts another catalog with the same contents in place. The caller holds `freeze` exclusively.
    pub(crate) fn replace_catalog(&self, catalog: Arc<dyn Catalog>) {
        *self.catalog.write() = catalog;
    }

    /// Begins a change: refuses it where none may be, and keeps commits away until the guard is dropped.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_poison()?;
        if self.is_in_whole() {
            // The thread has `freeze` already; asking again would wait for a commit that waits for this thread.
            return Ok(Change {
                core: self,
                _freeze: None,
            });
        }
        self.throttle()?;
        Ok(Change {
            core: self,
            _freeze: Some(self.freeze.try_read().unwrap_or_else(|| {
                let _span = tracing::trace_span!(target: spans::TARGET, spans::WAITING).entered();
                self.freeze.read()
            })),
        })
    }

    /// Files are stamped by `clock` from now on. A second call changes nothing.
    pub(crate) fn stamp_by(&self, clock: fn() -> Timestamp) {
        self.clock.get_or_init(|| clock);
    }

    /// The present moment, as files are stamped with it.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.get().map_or_else(now, |clock| clock())
    }

    /// Whether this thread is within [`whole`](Self::whole): it must not wait for a commit.
    pub(crate) fn is_in_whole(&self) -> bool {
        IN_WHOLE.get()
    }

    /// Runs several changes of this thread that one commit takes together. None of them may be long, or touch another room.
    pub(crate) fn whole<T>(&self, changes: impl FnOnce() -> Result<T>) -> Result<T> {
        struct Mark;
        impl Drop for Mark {
            fn drop(&mut self) {
                IN_WHOLE.set(false);
            }
        }
        assert!(!self.is_in_whole(), "whole changes are not nested");
        let _change = self.change()?;
        IN_WHOLE.set(true);
        let _mark = Mark;
        changes()
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::SeqCst) {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    /// After a failed flush or commit, disk and memory may disagree: no more changes.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn cell(&self, no: InodeNo) -> Result<Arc<Cell>> {
        self.inodes.get(&*self.catalog(), no)
    }

    /// Notes a range that fails authentication, for the log line that names its file. Once each, up to a limit.
    pub(crate) fn note_damage(&self, lost: LostExtent) {
        const NOTED_MAX: usize = 10_000;
        if self.options.read_only {
            // No thread looks names up there.
            tracing::error!(
                "inode {}: {} bytes at {} are damaged, replaced or missing",
                lost.no.0,
                lost.len,
                lost.offset
            );
            return;
        }
        self.ask(|wake| {
            if wake.noted.len() < NOTED_MAX && wake.noted.insert(lost) {
                wake.damaged.push(lost);
            }
        });
    }

    /// Seals and writes whole blocks, and takes them into the accounts.
    pub(crate) fn append(&self, plain: &[u8]) -> Result<Sealed> {
        let sealed = self.segments.append(plain)?;
        self.enter(BlockRange {
            segment: sealed.segment,
            position: sealed.position,
            blocks: sealed.blocks,
        });
        Ok(sealed)
    }

    /// Takes segments begun lately into the accounts.
    pub(crate) fn enter_new(&self) {
        let mut accounts = self.accounts.lock();
        for id in self.segments.take_new() {
            accounts.begin(id);
        }
    }

    /// Takes what was written into the accounts.
    pub(crate) fn enter(&self, range: BlockRange) {
        self.enter_new();
        self.accounts.lock().add(range);
        let len = u64::from(range.blocks) * BLOCK;
        self.pending_bytes.fetch_add(len, Ordering::Relaxed);
        // The disk writes while the next units are sealed: what a sync waits for is short.
        let unflushed = self.unflushed_bytes.fetch_add(len, Ordering::Relaxed);
        if unflushed < FLUSH_EARLY && unflushed + len >= FLUSH_EARLY {
            self.ask(|wake| wake.flush = true);
        }
    }

    /// Discards units that a chunk no longer refers to.
    pub(crate) fn discard(&self, released: &[Released]) -> Result<()> {
        for r in released {
            if r.shared {
                self.discard_shared(r.range)?;
            } else {
                self.accounts.lock().release(r.range);
            }
        }
        Ok(())
    }

    fn discard_shared(&self, range: BlockRange) -> Result<()> {
        // Two files that give the same unit up at the same time must not both see the other's reference.
        let mut shares = self.shares.lock();
        let catalog = self.catalog();
        let mut position = range.position;
        let end = range.position + range.blocks;
        while position < end {
            let blocks = UNIT_BLOCKS.min(end - position);
            let unit = BlockRange {
                segment: range.segment,
                position,
                blocks,
            };
            if catalog.shared_references(unit.segment, position)? > 0 {
                catalog.apply(&[catalog::Change::ShareUnit {
                    segment: unit.segment,
                    position,
                    references: -1,
                }])?;
            } else {
                self.accounts.lock().release(unit);
                shares.forget(unit.segment, position);
            }
            position += blocks;
        }
        Ok(())
    }
}

/// A change under way: dropped when it is done, which is what a commit waits for.
pub(crate) struct Change<'a> {
    core: &'a Core,
    /// `None`: within [`Core::whole`], which holds it.
    _freeze: Option<RwLockReadGuard<'a, ()>>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.core.changes.fetch_add(1, Ordering::SeqCst);
    }
}
