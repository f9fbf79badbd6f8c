//! Bringing back the contents that a file had at a snapshot.

use std::ops::Range;
use std::sync::Arc;

use catalog::{CHUNK_LEN, Inode, InodeNo};

use super::Contents;
use crate::blocks::BLOCK;
use crate::data::regular;
use crate::flags::{refuse_flagged, refuse_immutable};
use crate::inodes::Cell;
use crate::{Error, FileKind, Result};

/// Chunks looked for at once.
const CHUNKS: usize = 64;

impl Contents {
    /// Makes the contents of `to` those that `from` had at snapshot `at`. A chunk at a time: others get their turn in between, and a
    /// crash may leave a beginning.
    pub(crate) fn copy_from_snapshot(&self, at: u64, from: InodeNo, to: InodeNo) -> Result<()> {
        let then = self.regular_then(at, from)?;
        let target = self.data.cell(to)?;
        self.space.replacing(2 * BLOCK, || {
            let _change = self.commits.change()?;
            let mut state = target.state.write();
            regular(&state)?;
            refuse_flagged(&state.inode)?;
            self.data.resize(&target, &mut state, 0)?;
            self.data.touch_contents(&target, &mut state);
            Ok(())
        })?;
        self.restore_chunks(at, from, &target, 0..then.size)?;
        self.space.replacing(2 * BLOCK, || {
            let _change = self.commits.change()?;
            let mut state = target.state.write();
            self.data.resize(&target, &mut state, then.size)?;
            self.data.touch_contents(&target, &mut state);
            Ok(())
        })
    }
    /// Appends to `to` what `from` had at snapshot `at`, at the same offset: whole chunks, and the end of the file. Returns the bytes done.
    pub(crate) fn share_from_snapshot(
        &self,
        at: u64,
        from: InodeNo,
        to: InodeNo,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        const NOT_SHARED: Error = Error::NotSupported("sharing less than whole chunks");
        let then = self.regular_then(at, from)?;
        let target = self.data.cell(to)?;
        if offset >= then.size {
            return Ok(0);
        }
        let end = match offset.saturating_add(len) {
            end if end >= then.size => then.size,
            end => end - end % CHUNK_LEN,
        };
        if !offset.is_multiple_of(CHUNK_LEN) || end <= offset {
            return Err(NOT_SHARED);
        }
        {
            let state = target.state.read();
            regular(&state)?;
            refuse_immutable(&state.inode)?;
            if state.inode.size > offset {
                return Err(NOT_SHARED);
            }
        }
        self.restore_chunks(at, from, &target, offset..end)?;
        self.space.with_space(2 * BLOCK, || {
            let _change = self.commits.change()?;
            let mut state = target.state.write();
            // The rest is a hole.
            if state.inode.size < end {
                self.data.resize(&target, &mut state, end)?;
            }
            self.data.touch_contents(&target, &mut state);
            Ok(())
        })?;
        Ok(end - offset)
    }

    /// The regular file `no` as it was.
    fn regular_then(&self, at: u64, no: InodeNo) -> Result<Inode> {
        let then = self.data.past_inode(at, no)?;
        match then.kind {
            FileKind::Regular => Ok(then),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    /// Makes the chunks of `target` that begin in a range of bytes those that `from` had, where it had some.
    fn restore_chunks(
        &self,
        at: u64,
        from: InodeNo,
        target: &Arc<Cell>,
        bytes: Range<u64>,
    ) -> Result<()> {
        let mut next = bytes.start / CHUNK_LEN;
        let behind = bytes.end.div_ceil(CHUNK_LEN);
        loop {
            let chunks = self.data.past_chunks(at, from, next, CHUNKS)?;
            let Some(last) = chunks.last() else {
                return Ok(());
            };
            next = last + 1;
            for index in chunks {
                if index >= behind {
                    return Ok(());
                }
                let end = (index + 1).saturating_mul(CHUNK_LEN).min(bytes.end);
                self.space.with_space(2 * BLOCK, || {
                    let _change = self.commits.change()?;
                    self.data.restore_chunk(at, from, target, index, |state| {
                        state.inode.size = state.inode.size.max(end);
                        Ok(())
                    })
                })?;
            }
        }
    }
}
