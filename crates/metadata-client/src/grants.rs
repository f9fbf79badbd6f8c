//! Places granted to this client.
//!
//! 1. A position is handed out once. Whatever becomes of the write to it, it is never handed out again.
//! 2. A grant is released when all of it was handed out and no data written there is waiting for its commit; also when
//!    nothing was written for [`IDLE`].
//! 3. Grants end with the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Granted, SegmentPlace};
use model::{Error, Result, SegmentNo, WriteGrantId};
use netdisk::{DiskId, Ticket};
use parking_lot::Mutex;
use seal::PositionKeys;

/// Blocks of the first grant: 256 KiB; each next one is twice as large.
const FIRST: u32 = 64;
/// Blocks of the largest: 4 MiB.
const LARGEST: u32 = 1024;
/// How long an unused grant is kept.
const IDLE: Duration = Duration::from_secs(20);

/// A grant in use.
#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) id: WriteGrantId,
    /// The session's.
    pub(super) generation: u64,
    pub(super) segment: SegmentNo,
    pub(super) keys: PositionKeys,
    pub(super) append_nonces: bool,
    pub(super) disk: DiskId,
    /// The disk's block that is the segment's block 0.
    pub(super) start: u64,
    pub(super) ticket: Ticket,
    /// Places handed out and not done with.
    busy: AtomicU32,
}

/// Blocks of a grant, to be written once.
#[derive(Debug)]
pub(super) struct GrantedBlocks {
    pub(super) grant: Arc<Borrowed>,
    /// First block in the segment.
    pub(super) position: u32,
    pub(super) blocks: u32,
}

impl Drop for GrantedBlocks {
    fn drop(&mut self) {
        self.grant.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct Open {
    grant: Arc<Borrowed>,
    next: u32,
    end: u32,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<Open>,
    /// Which of them gives the next place.
    turn: usize,
    /// Handed out to the last block; to be released when no data is waiting for its commit.
    full: Vec<Arc<Borrowed>>,
    /// Size of the next grant.
    size: u32,
    last_use: Option<Instant>,
}

/// All grants.
#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<State>);

impl Grants {
    /// A new session began: the grants of the old one are over.
    pub(super) fn forget(&self) {
        let mut state = self.0.lock();
        state.open.clear();
        state.full.clear();
        state.size = 0;
    }

    /// The disk or the server refuses a grant: no more blocks are taken from it.
    pub(super) fn abandon(&self, grant: &Arc<Borrowed>) {
        let mut state = self.0.lock();
        let before = state.open.len();
        state.open.retain(|open| open.grant.id != grant.id);
        if state.open.len() != before {
            state.full.push(grant.clone());
        }
    }

    /// Up to `wanted` blocks of an open grant of the session; `None`: another grant is needed first.
    pub(super) fn take_open(
        &self,
        generation: u64,
        wanted: u32,
        lanes: usize,
    ) -> Option<GrantedBlocks> {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.open.retain(|o| o.grant.generation == generation);
        if state.open.is_empty() || state.open.len() < lanes && state.size >= LARGEST {
            return None;
        }
        state.last_use = Some(Instant::now());
        state.turn = (state.turn + 1) % state.open.len();
        let open = &mut state.open[state.turn];
        let blocks = wanted.min(open.end - open.next);
        open.grant.busy.fetch_add(1, Ordering::AcqRel);
        let place = GrantedBlocks {
            grant: open.grant.clone(),
            position: open.next,
            blocks,
        };
        open.next += blocks;
        if open.next == open.end {
            let full = state.open.remove(state.turn);
            state.full.push(full.grant);
        }
        Some(place)
    }

    /// Blocks to ask for next.
    pub(super) fn next_size(&self, wanted: u32) -> u32 {
        let mut state = self.0.lock();
        let size = match state.size {
            0 => FIRST,
            size => (size * 2).min(LARGEST),
        };
        state.size = size.max(wanted.next_power_of_two()).min(LARGEST);
        state.size
    }

    /// Grants that are over, to be released.
    pub(super) fn take_finished(&self, generation: u64) -> Vec<WriteGrantId> {
        let mut state = self.0.lock();
        let state = &mut *state;
        if state.last_use.is_some_and(|at| at.elapsed() > IDLE) {
            state.full.extend(state.open.drain(..).map(|o| o.grant));
            state.size = 0;
        }
        let mut finished = Vec::new();
        state.full.retain(|grant| {
            if grant.generation != generation {
                return false;
            }
            let done = grant.busy.load(Ordering::Acquire) == 0;
            if done {
                finished.push(grant.id);
            }
            !done
        });
        finished
    }

    /// Takes in what a session of this generation was granted.
    pub(super) fn add(&self, granted: Granted, generation: u64) -> Result<()> {
        if granted.blocks == 0
            || granted.position == 0
            || granted.position.checked_add(granted.blocks).is_none()
        {
            return Err(Error::Io(std::io::Error::other(
                "the metadata server granted impossible blocks",
            )));
        }
        let SegmentPlace {
            segment,
            keys,
            disk,
            start,
        } = granted.place;
        // In a session that began since, its commit is refused; so it counts as the older session's.
        let grant = Borrowed {
            id: granted.grant,
            generation,
            segment,
            keys,
            append_nonces: granted.append_nonces,
            disk,
            start,
            ticket: granted.ticket,
            busy: AtomicU32::new(0),
        };
        let mut state = self.0.lock();
        // Smaller ones first come to their end.
        state.open.push(Open {
            grant: Arc::new(grant),
            next: granted.position,
            end: granted.position + granted.blocks,
        });
        state.last_use = Some(Instant::now());
        Ok(())
    }
}
