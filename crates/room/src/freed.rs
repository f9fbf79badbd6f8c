//! What commits discarded, until the storage has it again.
//!
//! 1. A commit leaves dead ranges here, and they are punched together: a hole costs milliseconds beside a journal that is being
//!    committed, and a caller that waits for a commit need not wait for space that is not needed yet. Holes that a crash prevents
//!    are reclaimed (`commit::reclaim`).
//! 2. A segment number up to `up_to` of the pins is neither deleted nor punched while a pin is held, because a backup still
//!    copies it. What a crash keeps from being freed is found when the room is opened (dead segments) or reclaimed (dead ranges).
//! 3. Ranges within a write grant are held back until the grant is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catalog::{BlockRange, SegmentNo};
use parking_lot::{Mutex, MutexGuard};
use segments::DirStore;

use crate::accounts::Settlement;
use crate::environment::Environment;
use crate::grants::Grants;

/// Ranges punched before the room's thread looks at what else is asked of it.
const AT_ONCE: usize = 128;
/// Discarded blocks after which their holes are punched without a request: 1 MiB.
const HOLES_GATHERED: u32 = 256;

#[derive(Debug)]
pub(crate) struct Freed {
    env: Arc<Environment>,
    segments: Arc<DirStore>,
    /// Discarded by commits, and not yet punched.
    holes: Mutex<Vec<BlockRange>>,
    /// Held while they are punched.
    punching: Mutex<()>,
    /// How often holes were punched.
    punched: AtomicU64,
    /// What was not punched when the room was opened: bytes of each segment.
    unpunched: Mutex<HashMap<SegmentNo, u64>>,
    /// What others may write to.
    grants: Mutex<Grants>,
    pins: Mutex<Pins>,
}

/// What a backup still reads, and what is freed after it.
#[derive(Debug, Default)]
struct Pins {
    held: u32,
    up_to: u64,
    deferred: Settlement,
}

impl Pins {
    /// Keeps what is pinned, and returns what may be freed now.
    fn hold_back(&mut self, mut settlement: Settlement) -> Settlement {
        if self.held > 0 {
            let last = self.up_to;
            self.deferred
                .dead
                .extend(settlement.dead.extract_if(.., |no| no.0 <= last));
            self.deferred.released.extend(
                settlement
                    .released
                    .extract_if(.., |range| range.segment.0 <= last),
            );
        }
        settlement
    }
}

/// Segments pinned until this is dropped.
pub(crate) struct Pin<'a>(&'a Freed);

impl Freed {
    pub(crate) fn new(
        env: Arc<Environment>,
        segments: Arc<DirStore>,
        unpunched: HashMap<SegmentNo, u64>,
    ) -> Self {
        Self {
            env,
            segments,
            holes: Mutex::default(),
            punching: Mutex::new(()),
            punched: AtomicU64::new(0),
            unpunched: Mutex::new(unpunched),
            grants: Mutex::default(),
            pins: Mutex::default(),
        }
    }

    pub(crate) fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock()
    }

    /// Pins every segment up to the number `last`.
    pub(crate) fn pin(&self, last: SegmentNo) -> Pin<'_> {
        let mut pins = self.pins.lock();
        pins.held += 1;
        pins.up_to = pins.up_to.max(last.0);
        drop(pins);
        Pin(self)
    }

    /// Gives the space of what is dead for good back. Failures cost space, not data.
    pub(crate) fn free(&self, settlement: Settlement) {
        let settlement = self.pins.lock().hold_back(settlement);
        for no in &settlement.dead {
            if let Err(e) = self.segments.remove(*no) {
                tracing::warn!("segment {} is dead but could not be deleted: {e}", no.0);
            }
            self.unpunched.lock().remove(no);
        }
        if settlement.released.is_empty() {
            return;
        }
        let mut holes = self.holes.lock();
        holes.extend(settlement.released);
        let blocks: u32 = holes.iter().map(|range| range.blocks).sum();
        drop(holes);
        if blocks >= HOLES_GATHERED {
            if self.env.options.background {
                self.env.requests.ask(|wake| wake.punch = true);
            } else {
                self.punch_holes();
            }
        }
    }

    /// Ranges to be punched with the next ones.
    pub(crate) fn gather(&self, released: Vec<BlockRange>) {
        self.holes.lock().extend(released);
    }

    /// Punches what commits discarded. Returns when all are punched, including those of another thread.
    pub(crate) fn punch_holes(&self) {
        let _one = self.punching.lock();
        let released = std::mem::take(&mut *self.holes.lock());
        self.punch_released(released);
    }

    /// Punches some of what commits discarded. Returns whether there is more.
    pub(crate) fn punch_some(&self) -> bool {
        let _one = self.punching.lock();
        let (some, more) = {
            let mut holes = self.holes.lock();
            // Neighbours become one hole.
            holes.sort_unstable_by_key(|range| (range.segment, range.position));
            let kept = holes.len().saturating_sub(AT_ONCE);
            (holes.split_off(kept), kept > 0)
        };
        self.punch_released(some);
        more
    }

    fn punch_released(&self, released: Vec<BlockRange>) {
        let released = self.grants.lock().hold_back(released);
        self.punch_dead(released);
    }

    /// Punches ranges that no commit and no reader refers to, but for those that a backup still copies.
    pub(crate) fn punch_dead(&self, released: Vec<BlockRange>) {
        let settlement = self.pins.lock().hold_back(Settlement {
            released,
            ..Settlement::default()
        });
        let ranges = settlement.released;
        if let Err(e) = self.segments.release(&ranges) {
            tracing::warn!("dead ranges could not be freed: {e}");
        }
        if !ranges.is_empty() {
            self.punched.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often holes were punched.
    pub(crate) fn times_punched(&self) -> u64 {
        self.punched.load(Ordering::SeqCst)
    }

    /// Blocks that wait to be punched.
    pub(crate) fn hole_blocks(&self) -> u64 {
        self.holes.lock().iter().map(|r| u64::from(r.blocks)).sum()
    }

    /// Bytes that were dead when the room was opened, and are not punched.
    pub(crate) fn reclaimable(&self) -> u64 {
        self.unpunched.lock().values().sum()
    }

    /// The segments with such bytes, which are somebody else's business from now on.
    pub(crate) fn take_unpunched(&self) -> HashMap<SegmentNo, u64> {
        std::mem::take(&mut *self.unpunched.lock())
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pins = self.0.pins.lock();
        pins.held -= 1;
        if pins.held > 0 {
            return;
        }
        let deferred = std::mem::take(&mut *pins).deferred;
        drop(pins);
        self.0.free(deferred);
    }
}
