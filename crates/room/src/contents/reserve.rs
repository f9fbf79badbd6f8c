//! Reserving space for holes of a file: what `fallocate` promises.
//!
//! 1. A reservation is durable with the next commit, and with it the sum of all.
//! 2. A room that has reservations says so in its header: a program that does not know them refuses the room.
//! 3. Where the space does not suffice for all of a range, nothing of it is reserved.
//!
//! It deliberately does not know what a reservation is used for: writing ends it, wherever it comes from.

use catalog::InodeNo;

use super::Contents;
use crate::blocks::BLOCK;
use crate::data::{CHUNK_END, regular};
use crate::owners::More;
use crate::reservations::Promise;
use crate::space::Claim;
use crate::{Error, Result};

/// Chunks marked in one change, so that others get their turn and a commit its moment.
const CHUNKS_AT_ONCE: u64 = 256;

impl Contents {
    /// Reserves space for what is not stored in the bytes `offset..end`.
    pub(super) fn allocate(&self, no: InodeNo, offset: u64, end: u64) -> Result<()> {
        let (first, behind) = (offset / BLOCK, end.div_ceil(BLOCK));
        if self.env.options.network_backed {
            if self.data.owners().is_counting() {
                self.wanted(no, first, behind)?;
            }
            // Space comes in segments there, which are granted to clients: it is looked for, and not reserved.
            return match self.space.fits(Claim::New, end - offset)? {
                true => Ok(()),
                false => Err(Error::NoSpace),
            };
        }
        let wanted = self.wanted(no, first, behind)?;
        if wanted == 0 {
            return Ok(());
        }
        let mut promise = self.promise_blocks(wanted)?;
        self.require_reservations()?;
        // Another writer may meanwhile fill some of the holes, or make more.
        self.mark(no, first, behind, &mut promise)
    }

    /// Counts blocks as promised, if there is space for them.
    fn promise_blocks(&self, blocks: u64) -> Result<Promise<'_>> {
        let promise = self.space.promise_blocks(blocks);
        let mut fit = self.space.reservations_fit();
        if matches!(fit, Ok(false)) {
            fit = self
                .space
                .make_space()
                .and_then(|()| self.space.reservations_fit());
        }
        match fit {
            Ok(true) => Ok(promise),
            refused => refused.and(Err(Error::NoSpace)),
        }
    }

    /// How many blocks a range lacks. `QuotaExceeded` where the file's owner may not have them.
    fn wanted(&self, no: InodeNo, first: u64, end: u64) -> Result<u64> {
        let blocks = self.unallocated(no, first, end)?;
        let owner = self.data.attributes(no)?.uid;
        self.data.owners().check(owner, More { blocks, files: 0 })?;
        Ok(blocks)
    }

    /// How many blocks of a range are neither stored nor reserved.
    fn unallocated(&self, no: InodeNo, first: u64, end: u64) -> Result<u64> {
        let cell = self.data.cell(no)?;
        let mut at = first;
        let mut allocated = 0;
        while at < end {
            let state = cell.state.read();
            regular(&state)?;
            let Some((index, chunk)) =
                self.data
                    .next_chunk(no, &state, at / u64::from(CHUNK_END))?
            else {
                break;
            };
            let base = index * u64::from(CHUNK_END);
            let (from, to) = (at.max(base), end.min(base + u64::from(CHUNK_END)));
            if from < to {
                let (from, to) = ((from - base) as u16, (to - base) as u16);
                allocated += u64::from(chunk.allocated(from, to - from));
            }
            at = base + u64::from(CHUNK_END);
        }
        Ok((end - first).saturating_sub(allocated))
    }

    /// Marks the holes of a range as reserved, which keeps a promise.
    fn mark(&self, no: InodeNo, first: u64, end: u64, promise: &mut Promise<'_>) -> Result<()> {
        let mut at = first;
        while at < end {
            let chunk = at / u64::from(CHUNK_END);
            let step_end = end.min((chunk + CHUNKS_AT_ONCE) * u64::from(CHUNK_END));
            self.mark_step(no, at, step_end, promise)?;
            at = step_end;
        }
        Ok(())
    }

    fn mark_step(
        &self,
        no: InodeNo,
        first: u64,
        end: u64,
        promise: &mut Promise<'_>,
    ) -> Result<()> {
        let _change = self.commits.change()?;
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        self.data.flush_buffer(&cell, &mut state)?;
        let fresh = self.data.mark_locked(&cell, &mut state, first, end)?;
        promise.keep(fresh);
        Ok(())
    }

    /// Has the header of an older room say that it has reservations. `InTransaction` while one is open.
    fn require_reservations(&self) -> Result<()> {
        if self.keys.header().header.has_reservations() {
            return Ok(());
        }
        self.keys.change_header(|h| {
            h.header.require_reservations();
            Ok(())
        })
    }
}
