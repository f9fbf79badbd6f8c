//! Append-only and immutable files: what each refuses, as ext4 and btrfs do.
//!
//! 1. An immutable file refuses every change of its contents, names, attributes and extended attributes; an immutable
//!    directory also every change of the names in it.
//! 2. An append-only file refuses the same, but contents may be added at its end, and its times may become the present
//!    moment. An append-only directory takes new names, and gives none up.
//! 3. The flags themselves can always be changed: the mount checks the permission.
//! 4. The kernel writes back whole pages, in any order, and does not say which of their bytes are new. So a write to an
//!    append-only file is taken byte by byte: what was stored when the file was first written since the room was opened
//!    stays, and after that every byte that is not zero. Bytes that are not stored yet read as zeros, so no order of
//!    appended pages is refused.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::{CHUNK_LEN, Chunk, Extent, Inode, InodeNo};
use parking_lot::Mutex;

use crate::core::{BLOCK, Core};
use crate::inodes::{Cell, State};
use crate::{Error, Result, SetAttr, SetTime, WrittenExtent};

/// What is known of files with flags since the room was opened.
#[derive(Debug, Default)]
pub(crate) struct Flagged {
    /// For each append-only file written, its length before. Not forgotten while the file stays append-only: pages that
    /// the kernel holds may arrive in any order.
    ends: Mutex<HashMap<InodeNo, u64>>,
    /// Whether flags were set.
    set: AtomicBool,
}

const IMMUTABLE: Error = Error::NotPermitted("the file is immutable");
const APPEND_ONLY: Error = Error::NotPermitted("the file is append-only");

/// Refuses where nothing may change.
pub(crate) fn refuse_immutable(inode: &Inode) -> Result<()> {
    match inode.flags.immutable() {
        true => Err(IMMUTABLE),
        false => Ok(()),
    }
}

/// Refuses where nothing, or nothing but the end, may change.
pub(crate) fn refuse_flagged(inode: &Inode) -> Result<()> {
    refuse_immutable(inode)?;
    match inode.flags.append_only() {
        true => Err(APPEND_ONLY),
        false => Ok(()),
    }
}

/// Refuses a change of attributes that the flags forbid.
pub(crate) fn check_attributes(inode: &Inode, set: &SetAttr) -> Result<()> {
    if inode.flags.is_empty() {
        return Ok(());
    }
    let times = set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some();
    let others = set.mode.is_some()
        || set.uid.is_some()
        || set.gid.is_some()
        || set.size.is_some()
        || set.btime.is_some();
    if times || others || set.drop_privileges {
        refuse_immutable(inode)?;
    }
    // The kernel hands over the moment of a write as the time of both changes, and that of touch(1) too.
    let is_now = |time: &SetTime| match time {
        SetTime::Now => true,
        SetTime::At(at) => set.ctime == Some(*at),
    };
    let past = set.atime.iter().chain(&set.mtime).any(|t| !is_now(t));
    match others || past {
        true => refuse_flagged(inode),
        false => Ok(()),
    }
}

impl Core {
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
                return Err(APPEND_ONLY);
            }
        }
        Ok(())
    }

    /// Changes a file's flags.
    pub(crate) fn set_flags(&self, state: &mut State, flags: catalog::FileFlags) {
        state.inode.flags = flags;
        self.flagged.ends.lock().remove(&state.inode.no);
        self.flagged
            .set
            .fetch_or(!flags.is_empty(), Ordering::Relaxed);
    }

    /// Whether a file of the room has, or once had, flags.
    pub(crate) fn has_flags(&self) -> bool {
        self.flagged.set.load(Ordering::Relaxed) || self.catalog().has_flags()
    }
}

pub(crate) fn append_refused() -> Error {
    APPEND_ONLY
}
