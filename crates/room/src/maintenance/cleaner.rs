//! The cleaner: compaction that nobody asked for, a little at a time.
//!
//! 1. It begins when thin segments waste much, or many short ones are about, and leaves everything else alone. On network disks
//!    that are nearly full it begins when segments waste anything worth the while, because dead blocks are space there only when
//!    their segment is gone.
//! 2. It moves at most [`STEP`] bytes at once and rests [`REST`] after it.
//! 3. It gives way to every compaction and rekey that was asked for.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use catalog::{SegmentAccount, SegmentNo};
use segments::SEGMENT_BLOCKS;

use super::Maintenance;
use super::compact::{Tally, Walk};
use crate::Result;
use crate::blocks::BLOCK;

/// Bytes moved at once.
const STEP: u64 = 4 << 20;
/// Between two steps: 16 MiB a second.
const REST: Duration = Duration::from_millis(250);
/// Between two looks whether there is anything to do.
const LOOK: Duration = Duration::from_secs(60);
/// Bytes that thin segments must waste.
const WASTE_MIN: u64 = 256 << 20;
/// Segments less alive than this, in percent, are thin.
const THIN: u8 = 50;
/// Short segments that are merged when there are so many.
const SHORT: usize = 16;
/// Most segments emptied in one walk.
const BATCH: usize = 64;
/// Network disks with less than this part of their space left are nearly full.
const NEARLY_FULL: u64 = 8;
/// Segments less alive than this, in percent, are rewritten there.
const THIN_NEARLY_FULL: u8 = 95;
/// Between two looks there, as long as the last one led to something.
const LOOK_NEARLY_FULL: Duration = Duration::from_secs(2);
/// When space was asked for and there was none, not more often than this.
const LOOK_ASKED: Duration = Duration::from_millis(500);

/// The cleaner's state between two steps.
#[derive(Debug)]
pub(crate) struct Cleaner {
    walk: Option<Walk>,
    due: Instant,
    /// When the last look was.
    looked: Instant,
    /// Whether the last walk emptied nothing.
    idle: bool,
}

impl Cleaner {
    pub(crate) fn new() -> Self {
        Self {
            walk: None,
            due: Instant::now() + LOOK,
            looked: Instant::now(),
            idle: false,
        }
    }

    /// Somebody found no space: it is time to look.
    pub(crate) fn hurry(&mut self) {
        if self.walk.is_none() && !self.idle {
            self.due = self.due.min(self.looked + LOOK_ASKED);
        }
    }

    /// When it wants to be called again.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Nothing to do for a long time.
    pub(crate) fn pause(&mut self) {
        self.due = Instant::now() + Duration::from_secs(3600);
    }

    /// Does a little, if it is time and there is anything to do.
    pub(crate) fn step(&mut self, room: &Maintenance) {
        if Instant::now() < self.due {
            return;
        }
        let Some(_one) = room.moving.try_lock() else {
            // Somebody else moves data, and remembers places of his own.
            self.walk = None;
            self.due = Instant::now() + LOOK;
            return;
        };
        if self.walk.is_none() {
            self.looked = Instant::now();
            let chosen = choose(room).unwrap_or_else(|e| {
                tracing::warn!("looking for thin segments: {e}");
                HashSet::new()
            });
            if chosen.is_empty() {
                self.idle = false;
                self.due = Instant::now() + LOOK;
                return;
            }
            tracing::info!("{} thin segments are rewritten", chosen.len());
            self.walk = Some(Walk::new(chosen));
        }
        match self.go_on(room) {
            Ok(true) => self.due = Instant::now() + REST,
            Ok(false) => {
                let before = room.blocks.accounts().len();
                if let Some(walk) = &self.walk {
                    room.drop_empty(walk.victims());
                }
                // On network disks the space of what is gone may be waited for.
                if room.env.options.network_backed
                    && let Err(e) = room.commits.commit_or_defer()
                {
                    tracing::warn!("rewriting thin segments: {e}");
                }
                self.idle = room.blocks.accounts().len() >= before;
                self.rest(room);
                if room.env.options.network_backed && !self.idle {
                    self.due = Instant::now() + LOOK_NEARLY_FULL;
                }
            }
            Err(e) => {
                tracing::warn!("rewriting thin segments: {e}");
                self.rest(room);
            }
        }
    }

    fn rest(&mut self, room: &Maintenance) {
        self.walk = None;
        room.blocks.shares().clear();
        self.due = Instant::now() + LOOK;
    }

    fn go_on(&mut self, room: &Maintenance) -> Result<bool> {
        match &mut self.walk {
            Some(walk) => walk.step(room, STEP, &mut Tally::default()),
            None => Ok(false),
        }
    }
}

/// The segments to be emptied now.
fn choose(room: &Maintenance) -> Result<HashSet<SegmentNo>> {
    if room.env.options.network_backed {
        let space = room.space.total()?;
        if space.available < space.total / NEARLY_FULL {
            return choose_nearly_full(room);
        }
    }
    let stored = room.blocks.accounts().stored_blocks() * BLOCK;
    let thin = room.thin_segments(THIN);
    let waste: u64 = thin
        .iter()
        .map(|a| u64::from(a.length - a.live) * BLOCK)
        .sum();
    let short = thin
        .iter()
        .filter(|a| a.length < SEGMENT_BLOCKS / 2)
        .count();
    if waste < WASTE_MIN.max(stored / 4) && short < SHORT {
        return Ok(HashSet::new());
    }
    Ok(thin.iter().take(BATCH).map(|a| a.id.no).collect())
}

/// The thinnest segments, as many as find a place elsewhere: one that is emptied in part gives nothing back.
fn choose_nearly_full(room: &Maintenance) -> Result<HashSet<SegmentNo>> {
    // What open segments have not used of their places is space to move to.
    room.commits.close_segment()?;
    let wasteful = |a: &SegmentAccount| {
        let percent = u64::from(THIN_NEARLY_FULL);
        u64::from(a.live) * 100 < percent * u64::from(a.length.saturating_sub(1))
    };
    let thin = room.thin_segments(THIN_NEARLY_FULL);
    let mut left = room.space.room_to_move()? / 8 * 7;
    Ok(thin
        .iter()
        .filter(|a| wasteful(a))
        .filter(|a| {
            let needed = u64::from(a.live) * BLOCK;
            let fits = needed <= left;
            if fits {
                left -= needed;
            }
            fits
        })
        .take(BATCH)
        .map(|a| a.id.no)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{credential, options, room_in, sound};
    use crate::{FileSystem as _, Room};

    #[test]
    fn the_cleaner_merges_many_short_segments_and_then_rests() {
        let dir = tempfile::tempdir().unwrap();
        room_in(dir.path()).close().unwrap();
        let open =
            || Room::open(&dir.path().join("room"), &credential(), options(dir.path())).unwrap();
        for n in 0..SHORT {
            let room = open();
            room.write_file(format!("/{n}"), &vec![n as u8; 50_000])
                .unwrap();
            room.close().unwrap();
        }
        let room = open();
        let mut cleaner = Cleaner::new();
        cleaner.step(&room.parts.maintenance);
        assert!(cleaner.walk.is_none(), "it has just begun to rest");
        let mut steps = 0;
        loop {
            cleaner.due = Instant::now();
            cleaner.step(&room.parts.maintenance);
            room.sync().unwrap();
            if cleaner.walk.is_none() {
                break;
            }
            steps += 1;
        }
        assert!(steps < 10);
        assert_eq!(room.info().unwrap().segments, 1);
        for n in 0..SHORT {
            assert_eq!(
                room.read_file(format!("/{n}")).unwrap(),
                vec![n as u8; 50_000]
            );
        }
        sound(&room);
    }
}
