//! What a commit may not free yet, because a backup still copies it.
//!
//! Invariant: a segment number up to `up_to` is neither deleted nor punched while a pin is held. What a crash keeps
//! from being freed is found when the room is opened (dead segments) or reclaimed (dead ranges).

use crate::accounts::Settlement;
use crate::core::Core;

/// The pins of a room.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    held: u32,
    up_to: u64,
    deferred: Settlement,
}

impl Pins {
    /// Keeps what is pinned, and returns what may be freed now.
    pub(crate) fn hold_back(&mut self, mut settlement: Settlement) -> Settlement {
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
pub(crate) struct Pin<'a>(&'a Core);

impl Core {
    /// Pins every segment that the catalog knows or that was ever begun.
    pub(crate) fn pin_segments(&self) -> Pin<'_> {
        let last = self
            .accounts
            .lock()
            .iter()
            .map(|a| a.id.no.0)
            .max()
            .unwrap_or(0);
        let mut pins = self.pins.lock();
        pins.held += 1;
        pins.up_to = pins.up_to.max(last);
        drop(pins);
        Pin(self)
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
        self.0.free_settled(deferred);
    }
}
