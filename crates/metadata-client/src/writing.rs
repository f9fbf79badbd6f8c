//! Buffers what programs write: whole blocks, gathered until they are committed.
//!
//! 1. A block that is written in part is completed from what the file holds when it is taken in.
//! 2. Memory is taken of the [`Budget`](super::files::Budget) before data is taken in.

use std::sync::Arc;
use std::time::Instant;

use model::{BLOCK_LEN, Error, InodeNo, Result};

use super::client::ClientCore;
use super::files::{BLOCK, Block, File};

/// Largest size and end of a write: off_t's.
const SIZE_MAX: u64 = i64::MAX as u64;
/// Blocks of a file at which their commit begins: 8 MiB.
pub(super) const PLACE_AT: usize = 2048;
/// Blocks of a file at which its writer waits for that.
const WAIT_AT: usize = 2 * PLACE_AT;

/// A block with what it holds; `None`: it is dirty.
type Edge = (u64, Option<Arc<Block>>);

impl ClientCore {
    pub(super) fn write_file(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Error::FileTooLarge)?;
        let file = self.files.get_or_new(no);
        if file.state.lock().is_unknown() {
            self.attributes_of(no)?;
        }
        // Earlier data was refused, which close or fsync will report: more would be for nothing.
        {
            let state = file.state.lock();
            if let Some(lost) = state.lost.filter(|_| !state.notified) {
                return Err(lost.error());
            }
        }
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        let blocks = (last - first + 1) as usize;
        let _alone = file.writing.lock();
        self.take_budget(blocks)?;
        let (mut state, edges) = loop {
            let edges = self.edges(&file, offset, end).inspect_err(|_| {
                self.budget.release(blocks);
            })?;
            let state = file.state.lock();
            if let Err(e) = state.usable() {
                self.budget.release(blocks);
                return Err(e);
            }
            // Data that was dirty a moment ago may be committed by now: then it is to be read.
            let there = |at: &u64| state.dirty.contains_key(at) || state.flight.contains_key(at);
            if edges
                .iter()
                .flatten()
                .all(|(at, block)| block.is_some() || there(at))
            {
                break (state, edges);
            }
        };
        let mut new = 0;
        for at in first..=last {
            let start = at * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            let piece = &data[(from - offset) as usize..(to - offset) as usize];
            let range = (from - start) as usize..(to - start) as usize;
            if let Some(block) = state.dirty.get_mut(&at) {
                Arc::make_mut(block)[range].copy_from_slice(piece);
                continue;
            }
            // What was returned is what was read, and older.
            new += usize::from(state.returned.blocks.remove(&at).is_none());
            let edge = edges.iter().flatten().find(|(of, _)| *of == at);
            // What is in flight is newer than what was read; nothing is dirty here, so nothing is newer still.
            let mut block = match (state.flight.get(&at), edge) {
                (Some(block), _) | (None, Some((_, Some(block)))) => block.clone(),
                _ => Arc::new([0; BLOCK_LEN]),
            };
            Arc::make_mut(&mut block)[range].copy_from_slice(piece);
            state.dirty.insert(at, block);
        }
        state.end = state.end.max(end);
        state.written = Some(model::now());
        state.dirty_since.get_or_insert_with(Instant::now);
        let dirty = state.dirty.len();
        drop(state);
        self.budget.release(blocks - new);
        if dirty >= WAIT_AT {
            self.flush_file(&file)?;
        } else if dirty >= PLACE_AT {
            self.wake.notify_all();
        }
        Ok(())
    }

    fn take_budget(&self, blocks: usize) -> Result<()> {
        if self.budget.percent() >= 50 {
            self.wake.notify_all();
        }
        match self.budget.take(blocks, self.options.timeout) {
            true => Ok(()),
            false => Err(Error::Unreachable(
                "the metadata server, which has not made earlier data durable,".into(),
            )),
        }
    }

    /// The first and the last block of a write, where they are written in part and hold something already: with their bytes,
    /// but for those that are dirty.
    fn edges(&self, file: &File, offset: u64, end: u64) -> Result<[Option<Edge>; 2]> {
        let size = {
            let state = file.state.lock();
            state.usable()?;
            state.size()
        };
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        let edge = |at: u64, partly: bool| -> Result<Option<Edge>> {
            let start = at * BLOCK;
            if !partly || start >= size {
                return Ok(None);
            }
            if file.state.lock().dirty.contains_key(&at) {
                return Ok(Some((at, None)));
            }
            let mut block: Block = [0; BLOCK as usize];
            // Beyond the end of the file a block is zeros.
            let len = (size - start).min(BLOCK) as usize;
            self.read_range(file, start, &mut block[..len])?;
            Ok(Some((at, Some(Arc::new(block)))))
        };
        let cut = !end.is_multiple_of(BLOCK) && end < size;
        let head = !offset.is_multiple_of(BLOCK) || first == last && cut;
        Ok([edge(first, head)?, edge(last, cut && last != first)?])
    }
}
