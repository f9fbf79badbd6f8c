//! The cleaner: compaction that nobody asked for, a little at a time.
//!
//! 1. It begins when thin segments waste much, or many short ones are about, and leaves everything else alone.
//! 2. It moves at most [`STEP`] bytes at once and rests [`REST`] after it.
//! 3. It gives way to every compaction and rekey that was asked for.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use catalog::SegmentAccount;
use segments::SEGMENT_BLOCKS;

use crate::Result;
use crate::compact::{Tally, Walk};
use crate::core::{BLOCK, Core};

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

/// The cleaner's state between two steps.
#[derive(Debug)]
pub(crate) struct Cleaner {
    walk: Option<Walk>,
    due: Instant,
}

impl Cleaner {
    pub(crate) fn new() -> Self {
        Self {
            walk: None,
            due: Instant::now() + LOOK,
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
    pub(crate) fn step(&mut self, core: &Core) {
        if Instant::now() < self.due {
            return;
        }
        let Some(_one) = core.moving.try_lock() else {
            // Somebody else moves data, and remembers places of his own.
            self.walk = None;
            self.due = Instant::now() + LOOK;
            return;
        };
        if self.walk.is_none() {
            let victims = victims(core);
            if victims.is_empty() {
                self.due = Instant::now() + LOOK;
                return;
            }
            tracing::info!("{} thin segments are rewritten", victims.len());
            self.walk = Some(Walk::new(victims));
        }
        match self.go_on(core) {
            Ok(true) => self.due = Instant::now() + REST,
            Ok(false) => {
                if let Some(walk) = &self.walk {
                    core.drop_empty(walk.victims());
                }
                self.rest(core);
            }
            Err(e) => {
                tracing::warn!("rewriting thin segments: {e}");
                self.rest(core);
            }
        }
    }

    fn rest(&mut self, core: &Core) {
        self.walk = None;
        core.shares.lock().clear();
        self.due = Instant::now() + LOOK;
    }

    fn go_on(&mut self, core: &Core) -> Result<bool> {
        match &mut self.walk {
            Some(walk) => walk.step(core, STEP, &mut Tally::default()),
            None => Ok(false),
        }
    }
}

fn victims(core: &Core) -> HashSet<catalog::SegmentNo> {
    let stored = core.accounts.lock().stored_blocks() * BLOCK;
    let thin = core.thin_segments(THIN);
    let waste: u64 = thin
        .iter()
        .map(|a| u64::from(a.length - a.live) * BLOCK)
        .sum();
    let short = thin
        .iter()
        .filter(|a| a.length < SEGMENT_BLOCKS / 2)
        .count();
    if waste < WASTE_MIN.max(stored / 4) && short < SHORT {
        return HashSet::new();
    }
    thin.iter()
        .take(BATCH)
        .map(|a: &SegmentAccount| a.id.no)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Room;
    use crate::testing::{credential, options, room_in};

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
        cleaner.step(&room.core);
        assert!(cleaner.walk.is_none(), "it has just begun to rest");
        let mut steps = 0;
        loop {
            cleaner.due = Instant::now();
            cleaner.step(&room.core);
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
        let report = room.check(true, false, &|_, _| true).unwrap();
        assert!(
            report.findings.is_empty() && report.lost.is_empty(),
            "{report:?}"
        );
    }
}
