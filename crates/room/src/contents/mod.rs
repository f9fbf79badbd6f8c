//! Reading and writing the contents of files, whole operations: each takes space, a change and the file's lock.
//!
//! `ranges` has what changes a file's shape, `reserve` reserves space, `restore` brings back what a snapshot sees, `unsaved` knows
//! what found none.

mod ranges;
mod reserve;
mod restore;
mod unsaved;

use std::borrow::Cow;
use std::sync::Arc;

use catalog::InodeNo;
use segments::UNIT_BLOCKS;

use crate::blocks::BLOCK;
use crate::commit::Commits;
use crate::data::{CHUNK_END, Data, SIZE_MAX, regular};
use crate::environment::Environment;
use crate::flags;
use crate::keys::Keys;
use crate::space::{Claim, Space};
use crate::{Error, Result};
use unsaved::Refused;
pub use unsaved::Unsaved;

#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) env: Arc<Environment>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) space: Arc<Space>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) refused: Refused,
}

impl Contents {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    pub(crate) fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let cell = self.data.cell(no)?;
        let state = cell.state.read();
        regular(&state)?;
        if offset >= state.inode.size {
            return Ok(0);
        }
        let len = (state.inode.size - offset).min(buf.len() as u64) as usize;
        self.data
            .read_locked(&cell, &state, offset, &mut buf[..len])?;
        Ok(len)
    }

    /// Writes all of `data` at `offset`.
    pub(crate) fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        self.write_for(Claim::New, no, offset, data).map(drop)
    }

    /// Writes all of `data` at `offset`; true where it took space that is kept for `claim`, because there was none for new data.
    fn write_for(&self, claim: Claim, no: InodeNo, offset: u64, data: &[u8]) -> Result<bool> {
        if data.is_empty() {
            return Ok(false);
        }
        let len = data.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        let write = || self.write_and_touch(claim, no, offset, data, false);
        match self.space.promise(len).and_then(|()| write()) {
            Err(Error::NoSpace) => {}
            done => return done.map(|()| false),
        }
        if self.owns_space(no, offset, end)? {
            let whole = len + 2 * u64::from(UNIT_BLOCKS) * BLOCK;
            return self
                .space
                .replacing(whole, || {
                    self.write_and_touch(claim, no, offset, data, true)
                })
                .map(|()| false);
        }
        match self.space.with_space(len, write) {
            Err(Error::NoSpace) if claim > Claim::New && self.space.fits(claim, len)? => {
                write().map(|()| true)
            }
            done => done.map(|()| false),
        }
    }

    /// As [`write`](Self::write), for data that a cache accepted earlier. The file's times stay: whose cache it was stamped the
    /// file when a program wrote, and sets them if that changed them.
    pub(crate) fn write_cached(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<bool> {
        let written = self.write_for(Claim::Cached, no, offset, data);
        if matches!(written, Err(Error::NoSpace)) {
            self.refused.note(no, offset, data.len() as u64);
        }
        written
    }

    fn write_and_touch(
        &self,
        claim: Claim,
        no: InodeNo,
        offset: u64,
        data: &[u8],
        whole_units: bool,
    ) -> Result<()> {
        let _change = self.commits.change()?;
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        let (data, refused) = match state.inode.flags.is_empty() {
            true => (Cow::Borrowed(data), false),
            false => self.data.allowed(&cell, &state, offset, data)?,
        };
        let range = offset..offset + data.len() as u64;
        self.data.check_quota(&cell, &state, [range])?;
        match whole_units {
            true => self
                .data
                .write_whole_units(&cell, &mut state, offset, &data)?,
            false => self.data.write_locked(&cell, &mut state, offset, &data)?,
        }
        match claim {
            Claim::Cached => self.data.note_change(&cell, &mut state),
            Claim::New | Claim::Replace => self.data.touch_contents(&cell, &mut state),
        }
        match refused {
            true => Err(flags::append_refused()),
            false => Ok(()),
        }
    }

    /// Whether writing a range needs no space but its own.
    fn owns_space(&self, no: InodeNo, offset: u64, end: u64) -> Result<bool> {
        let cell = self.data.cell(no)?;
        let state = cell.state.read();
        let mut at = offset / BLOCK;
        let end = end.div_ceil(BLOCK);
        while at < end {
            let index = at / u64::from(CHUNK_END);
            let first = (at % u64::from(CHUNK_END)) as u16;
            let blocks = (end - at).min(u64::from(CHUNK_END - first)) as u16;
            let chunk = self.data.chunk(no, &state, index)?;
            if !chunk.owns_space(first, blocks)
                || self.data.is_kept(no, &state, index, first, blocks)?
            {
                return Ok(false);
            }
            at += u64::from(blocks);
        }
        Ok(true)
    }
}
