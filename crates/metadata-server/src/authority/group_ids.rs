//! Numbers of capability groups: they rise for ever, and none is used twice, across restarts too.
//!
//! 1. A number is handed out only after the room durably knows that it may be in use.
//! 2. Handing one out does not touch the room: who needs one may be in the middle of a commit.

use netdisk::GroupId;
use parking_lot::Mutex;
use room::{Error, Result, Room};

const NOTE: &str = "metadata.groups";
/// Numbers reserved at a time.
const RESERVED: u64 = 1000;

/// Numbers that may be handed out.
#[derive(Debug, Default)]
pub(crate) struct GroupIdAllocator {
    /// The next one, and the first that is not reserved.
    stock: Mutex<(u64, u64)>,
}

impl GroupIdAllocator {
    /// Reserves more where few are left. Not to be called from within the room.
    pub(crate) fn refill(&self, room: &Room) -> Result<()> {
        let (next, end) = *self.stock.lock();
        if end - next > RESERVED / 2 {
            return Ok(());
        }
        let first = match room.note(NOTE)? {
            None => 1,
            Some(bytes) => bytes
                .as_slice()
                .try_into()
                .map(u64::from_le_bytes)
                .map_err(|_| Error::Damaged(format!("note `{NOTE}` is not a number")))?,
        };
        let after = first
            .checked_add(RESERVED)
            .ok_or_else(|| Error::Damaged(format!("note `{NOTE}` is at its end")))?;
        room.set_note(NOTE, &after.to_le_bytes())?;
        // What was left of an earlier reservation is not used.
        *self.stock.lock() = (first, after);
        Ok(())
    }

    /// The next number; `None` until more are reserved.
    pub(crate) fn take(&self) -> Option<GroupId> {
        let mut stock = self.stock.lock();
        let (next, end) = *stock;
        if next == end {
            return None;
        }
        stock.0 += 1;
        Some(GroupId(next))
    }
}
