//! Operations on ranges of files: allocate, punch, seek, copy.

use catalog::{CHUNK_LEN, Inode, InodeNo};

use super::Contents;
use crate::blocks::BLOCK;
use crate::data::{SIZE_MAX, regular};
use crate::flags::{refuse_flagged, refuse_immutable};
use crate::{Error, Fallocate, Result, SeekTo};

impl Contents {
    /// Allocates, punches, zeroes, collapses, inserts.
    pub(crate) fn fallocate(
        &self,
        no: InodeNo,
        what: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return Err(Error::InvalidArgument("an empty range"));
        }
        let check = |inode: &Inode| match what {
            // As Linux has it, also where that makes the file longer.
            Fallocate::Allocate { .. } => refuse_immutable(inode),
            _ => refuse_flagged(inode),
        };
        check(&self.data.cell(no)?.state.read().inode)?;
        if let Fallocate::Allocate { .. } | Fallocate::ZeroRange { .. } = what {
            self.allocate(no, offset, end)?;
        }
        self.space.replacing(2 * BLOCK, || {
            let _change = self.commits.change()?;
            let cell = self.data.cell(no)?;
            let mut state = cell.state.write();
            regular(&state)?;
            check(&state.inode)?;
            self.data.flush_buffer(&cell, &mut state)?;
            let size = state.inode.size;
            match what {
                Fallocate::Allocate { keep_size } => {
                    if end > size && !keep_size {
                        self.data.resize(&cell, &mut state, end)?;
                    }
                }
                Fallocate::PunchHole => self.data.punch(&cell, &mut state, offset, end)?,
                Fallocate::ZeroRange { keep_size } => {
                    self.data.punch(&cell, &mut state, offset, end)?;
                    if !self.env.options.network_backed {
                        // The space of what was stored there stays the file's.
                        self.data.mark_locked(
                            &cell,
                            &mut state,
                            offset / BLOCK,
                            end.div_ceil(BLOCK),
                        )?;
                    }
                    if end > size && !keep_size {
                        self.data.resize(&cell, &mut state, end)?;
                    }
                }
                Fallocate::Collapse => {
                    aligned(offset, len)?;
                    if end >= size {
                        return Err(Error::InvalidArgument(
                            "collapsing up to or beyond the end of the file",
                        ));
                    }
                    self.data.punch(&cell, &mut state, offset, end)?;
                    self.data.shift(&cell, &mut state, end, offset)?;
                    // Nothing may fail from here on: tried again, it would collapse once more. Behind the new end there
                    // is nothing, and the rest of the last block came along as zeros.
                    state.inode.size = size - len;
                }
                Fallocate::Insert => {
                    aligned(offset, len)?;
                    if offset >= size {
                        return Err(Error::InvalidArgument(
                            "inserting at or beyond the end of the file",
                        ));
                    }
                    if size + len > SIZE_MAX {
                        return Err(Error::FileTooLarge);
                    }
                    self.data.shift(&cell, &mut state, offset, end)?;
                    state.inode.size = size + len;
                }
            }
            self.data.touch_contents(&cell, &mut state);
            Ok(())
        })
    }

    /// The next data or hole at or after `offset`.
    pub(crate) fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let cell = self.data.cell(no)?;
        let mut state = cell.state.write();
        regular(&state)?;
        if offset >= state.inode.size {
            return Err(Error::NoMoreData);
        }
        if state.buffer.is_some() {
            drop(state);
            let _change = self.commits.change()?;
            state = cell.state.write();
            self.data.flush_buffer(&cell, &mut state)?;
        }
        let size = state.inode.size;
        let mut at = offset;
        loop {
            let index = at / CHUNK_LEN;
            let found = self.data.next_chunk(no, &state, index)?;
            let Some((next, chunk)) = found else {
                return if to == SeekTo::Hole {
                    Ok(at)
                } else {
                    Err(Error::NoMoreData)
                };
            };
            if next > index {
                match to {
                    SeekTo::Hole => return Ok(at),
                    SeekTo::Data => at = next.saturating_mul(CHUNK_LEN),
                }
            }
            while at / CHUNK_LEN == next {
                let base = next * CHUNK_LEN;
                let (is_data, end) = match chunk.find(((at - base) / BLOCK) as u16) {
                    Ok(extent) => (true, base + u64::from(extent.end()) * BLOCK),
                    Err(following) => (false, base + u64::from(following) * BLOCK),
                };
                if is_data == (to == SeekTo::Data) {
                    return match to {
                        SeekTo::Data if at >= size => Err(Error::NoMoreData),
                        _ => Ok(at.min(size)),
                    };
                }
                at = end;
            }
            if at >= size {
                return if to == SeekTo::Hole {
                    Ok(size)
                } else {
                    Err(Error::NoMoreData)
                };
            }
        }
    }

    /// Copies a range, sharing whole blocks where both offsets are block-aligned. Returns the bytes copied.
    pub(crate) fn copy_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if to_offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(Error::FileTooLarge);
        }
        if from == to
            && from_offset < to_offset.saturating_add(len)
            && to_offset < from_offset.saturating_add(len)
        {
            return Err(Error::InvalidArgument("copying a range onto itself"));
        }
        // A copy within one file may make it longer: what counts is its end before.
        let len = len.min(self.data.attributes(from)?.size.saturating_sub(from_offset));
        let mut done = 0;
        while done < len {
            // One chunk of the source at a time, so that others get their turn and a commit its moment.
            let at = from_offset + done;
            let step = (len - done).min(CHUNK_LEN - at % CHUNK_LEN);
            let aligned = (at | (to_offset + done)).is_multiple_of(BLOCK);
            let bytes = if aligned { 2 * BLOCK } else { step };
            let copied = self.space.with_space(bytes, || {
                self.copy_step(from, at, to, to_offset + done, step)
            })?;
            done += copied;
            if copied < step {
                break;
            }
        }
        Ok(done)
    }

    fn copy_step(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _change = self.commits.change()?;
        let source = self.data.cell(from)?;
        let target = if from == to {
            source.clone()
        } else {
            self.data.cell(to)?
        };
        {
            // What is only in the buffer cannot be shared.
            for cell in [&source, &target] {
                let mut state = cell.state.write();
                regular(&state)?;
                self.data.flush_buffer(cell, &mut state)?;
            }
        }
        let mut target_state;
        let mut source_state;
        if from == to {
            target_state = target.state.write();
            source_state = None;
        } else if from < to {
            source_state = Some(source.state.write());
            target_state = target.state.write();
        } else {
            target_state = target.state.write();
            source_state = Some(source.state.write());
        }
        match to_offset < target_state.inode.size {
            true => refuse_flagged(&target_state.inode)?,
            false => refuse_immutable(&target_state.inode)?,
        }
        let size = source_state
            .as_ref()
            .map_or(target_state.inode.size, |s| s.inode.size);
        let len = len.min(size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(0);
        }
        let range = to_offset..to_offset + len;
        self.data.check_quota(&target, &target_state, [range])?;
        let ends = from_offset + len;
        // A last partial block can be shared where nothing follows it in either file: beyond the end it is zeros.
        let whole_tail = ends == size && to_offset + len >= target_state.inode.size;
        let sharable = from_offset.is_multiple_of(BLOCK)
            && to_offset.is_multiple_of(BLOCK)
            && (len.is_multiple_of(BLOCK) || whole_tail);
        if sharable {
            let source_state = source_state.as_deref_mut();
            self.data.share(
                &source,
                source_state,
                &target,
                &mut target_state,
                from_offset,
                to_offset,
                len,
            )?;
        } else {
            let mut data = vec![0; len as usize];
            let state = source_state.as_deref().unwrap_or(&target_state);
            self.data
                .read_locked(&source, state, from_offset, &mut data)?;
            self.data
                .write_locked(&target, &mut target_state, to_offset, &data)?;
        }
        if target_state.inode.size < to_offset + len {
            target_state.inode.size = to_offset + len;
        }
        self.data.touch_contents(&target, &mut target_state);
        Ok(len)
    }
}

fn aligned(offset: u64, len: u64) -> Result<()> {
    if offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK) {
        Ok(())
    } else {
        Err(Error::InvalidArgument(
            "offset and length must be multiples of 4096",
        ))
    }
}
