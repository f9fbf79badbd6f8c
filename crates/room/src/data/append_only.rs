//! Files with flags: what may still be written to one that is append-only (see `flags`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::{CHUNK_LEN, Chunk, Extent, FileFlags, InodeNo};
use parking_lot::Mutex;

use super::Data;
use crate::blocks::BLOCK;
use crate::flags::{append_refused, refuse_immutable};
use crate::inodes::{Cell, State};
use crate::{Result, WrittenExtent};

/// What is known of files with flags since the room was opened.
#[derive(Debug, Default)]
pub(super) struct Flagged {
    /// For each append-only file written, its length before. Not forgotten while the file stays append-only: pages that
    /// the kernel holds may arrive in any order.
    ends: Mutex<HashMap<InodeNo, u64>>,
    /// Whether flags were set.
    set: AtomicBool,
}

impl Data {
    /// What of `data` may be written to a file with flags: `data` itself, or what is stored in the place of what must
    /// stay. The second says whether something had to.
    pub(crate) fn allowed<'a>(
        &self,
        cell: &Arc<Cell>,
        state: &State,
        offset: u64,
        data: &'a [u8],
    ) -> Result<(Cow<'a, [u8]>, bool)> {
        refuse_immutable(&state.inode)?;
        let size = state.inode.size;
        let end = *self.flagged.ends.lock().entry(cell.no).or_insert(size);
        let overlap = size.saturating_sub(offset).min(data.len() as u64) as usize;
        if overlap == 0 {
            return Ok((Cow::Borrowed(data), false));
        }
        let mut stored = vec![0; overlap];
        self.read_locked(cell, state, offset, &mut stored)?;
        let stays = |at: usize| stored[at] != 0 || offset + (at as u64) < end;
        if !(0..overlap).any(|at| stays(at) && stored[at] != data[at]) {
            return Ok((Cow::Borrowed(data), false));
        }
        let mut merged = data.to_vec();
        for at in (0..overlap).filter(|at| stays(*at)) {
            merged[at] = stored[at];
        }
        Ok((Cow::Owned(merged), true))
    }

    /// Refuses what another machine wrote for an append-only file if it changes what is stored. The same bytes may come again:
    /// a client places once more what may have been lost with the server.
    pub(crate) fn check_extents(
        &self,
        cell: &Cell,
        state: &State,
        extents: &[WrittenExtent],
    ) -> Result<()> {
        if !state.inode.flags.append_only() {
            return Ok(());
        }
        let size = state.inode.size;
        let end = *self.flagged.ends.lock().entry(cell.no).or_insert(size);
        for p in extents {
            let (index, start) = (p.offset / CHUNK_LEN, p.offset % CHUNK_LEN);
            let (first, blocks) = ((start / BLOCK) as u16, p.sealed.blocks as u16);
            let overlap = size.saturating_sub(p.offset);
            let overlap = overlap.min(u64::from(blocks) * BLOCK) as usize;
            let mut stored = vec![0; overlap];
            self.read_locked(cell, state, p.offset, &mut stored)?;
            let stays = |at: usize| stored[at] != 0 || p.offset + (at as u64) < end;
            if !(0..overlap).any(stays) {
                continue;
            }
            let mut new = vec![0; overlap];
            let mut chunk = Chunk::default();
            chunk.replace(first, blocks, &[Extent::from_sealed(first, &p.sealed)]);
            self.read_chunk(cell.no, index, &chunk, start, &mut new)?;
            if (0..overlap).any(|at| stays(at) && stored[at] != new[at]) {
                return Err(append_refused());
            }
        }
        Ok(())
    }

    /// Changes a file's flags.
    pub(crate) fn set_flags(&self, state: &mut State, flags: FileFlags) {
        state.inode.flags = flags;
        self.flagged.ends.lock().remove(&state.inode.no);
        self.flagged
            .set
            .fetch_or(!flags.is_empty(), Ordering::Relaxed);
    }

    /// Whether a file of the room has, or once had, flags.
    pub(crate) fn has_flags(&self) -> bool {
        self.flagged.set.load(Ordering::Relaxed) || self.catalog.get().has_flags()
    }
}
