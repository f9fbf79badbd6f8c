//! For how long capabilities may be good that earlier servers of the room gave: they may have given theirs for longer than this one does.
//!
//! The room durably knows the longest lifetime before capabilities have it, and until no disk can have any of before.

use std::time::Duration;

use parking_lot::Mutex;
use room::{Error, Result, Room};

/// In nanoseconds.
const NOTE: &str = "metadata.lifetime";

/// The lifetime that capabilities get now, and the longest that those of before may have.
#[derive(Debug)]
pub(super) struct Lifetimes {
    pub(super) present: Duration,
    longest: Mutex<Duration>,
}

impl Lifetimes {
    /// The room knows of the present one when this returns.
    pub(super) fn begin(room: &Room, present: Duration) -> Result<Self> {
        let noted = match room.note(NOTE)? {
            None => Duration::ZERO,
            Some(bytes) => bytes
                .as_slice()
                .try_into()
                .map(|bytes| Duration::from_nanos(u64::from_le_bytes(bytes)))
                .map_err(|_| Error::Damaged(format!("note `{NOTE}` is not a number")))?,
        };
        if noted < present {
            room.set_note(NOTE, &nanos(present))?;
        }
        let longest = Mutex::new(noted.max(present));
        Ok(Self { present, longest })
    }

    pub(super) fn longest(&self) -> Duration {
        *self.longest.lock()
    }

    /// Notes that nothing is good any more that an earlier server gave. Not to be called from within the room.
    pub(super) fn forget_earlier(&self, room: &Room) -> Result<()> {
        if self.longest() > self.present {
            room.set_note_as_name(NOTE, &nanos(self.present))?;
            *self.longest.lock() = self.present;
        }
        Ok(())
    }
}

/// Centuries at most.
fn nanos(of: Duration) -> [u8; 8] {
    u64::try_from(of.as_nanos())
        .unwrap_or(u64::MAX)
        .to_le_bytes()
}
