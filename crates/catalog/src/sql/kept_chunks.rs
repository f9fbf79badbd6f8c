//! What is kept of chunks: [gathered](super::gathered), so that a chunk that changes again and again is written once.

use std::ops::Range;

use super::rows::{self, bound, to_sql};
use super::schema::past;
use super::{Catalog, State};
use crate::log::EntryMap;
use crate::{InodeNo, KeptChunk, KeptRow, Result};

impl State {
    pub(super) fn gather_kept(
        &mut self,
        (inode, index, until): (InodeNo, u64, u64),
        kept: &KeptChunk,
    ) -> EntryMap {
        let list = self.snapshots.get();
        let births = self.births.get_mut();
        births.kept_changes((inode, index), until, kept.covered(), &list);
        self.seen.get_mut().changes((inode, index));
        let maps = &mut self.gathered.get_mut().kept;
        let key = (inode, index, until);
        maps.put(key, |old| kept.encode_after(old), &mut self.edits)
    }

    /// Writes the gathered maps.
    pub(super) fn write_kept(&mut self) -> Result<()> {
        let mut kept = std::mem::take(&mut self.gathered.get_mut().kept);
        for ((inode, index, until), map) in kept.new_in(..) {
            let (inode, index, until) = (to_sql(inode.0), to_sql(index), to_sql(until));
            match map.is_empty() {
                true => self.run(past::DROP_CHUNK, (inode, index, until))?,
                false => self.run(past::KEEP_CHUNK, (inode, index, until, map))?,
            };
        }
        kept.written();
        self.gathered.get_mut().kept = kept;
        Ok(())
    }

    /// Gives `each` what is kept of a chunk for some snapshots, in its stored form, the newest first, until it has enough: false.
    pub(super) fn each_kept(
        &self,
        (inode, index): (InodeNo, u64),
        untils: Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let gathered = self.gathered.borrow();
        let keys = (inode, index, untils.start)..(inode, index, untils.end);
        let maps = gathered.kept.new_in(keys).rev();
        let mut newer = maps.map(|((.., until), map)| (until, map)).peekable();
        let mut statement = self.statement(past::KEPT_BETWEEN)?;
        let (from, end) = (bound(untils.start), bound(untils.end));
        let mut rows = statement.query((bound(inode.0), bound(index), from, end))?;
        loop {
            let row = rows.next()?;
            let stored = match row {
                Some(row) => Some((rows::number::<u64>(row, 0, "a snapshot")?, row)),
                None => None,
            };
            let mut is_replaced = false;
            while let Some((until, map)) =
                newer.next_if(|(until, _)| stored.is_none_or(|(row, _)| row <= *until))
            {
                is_replaced = stored.is_some_and(|(row, _)| row == until);
                if !map.is_empty() && !each(until, map)? {
                    return Ok(());
                }
            }
            match stored {
                Some(_) if is_replaced => {}
                Some((until, row)) => {
                    if !each(until, rows::blob(row, 1, "a kept chunk")?)? {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
    }

    pub(super) fn kept_chunk(&self, inode: InodeNo, index: u64, until: u64) -> Result<KeptChunk> {
        if !self.has_past() || self.births.borrow().keeps_nothing((inode, index), until) {
            return Ok(KeptChunk::default());
        }
        match self.gathered.borrow().kept.get((inode, index, until)) {
            Some([]) => return Ok(KeptChunk::default()),
            Some(map) => return rows::kept_map(map),
            None => {}
        }
        let params = (bound(inode.0), bound(index), bound(until));
        let kept = self.one(past::KEPT_CHUNK, params, |row| rows::kept(row, 0))?;
        Ok(kept.unwrap_or_default())
    }

    /// What is kept of a chunk for snapshots from `from` on, the newest first.
    pub(super) fn kept_chunks(
        &self,
        inode: InodeNo,
        index: u64,
        from: u64,
    ) -> Result<Vec<(u64, KeptChunk)>> {
        let mut all = Vec::new();
        if self.has_past() {
            self.each_kept((inode, index), from..u64::MAX, |until, map| {
                all.push((until, rows::kept_map(map)?));
                Ok(true)
            })?;
        }
        Ok(all)
    }
}

impl Catalog {
    /// Up to `limit` kept chunks after `(inode, index, until)`, over the whole catalog.
    pub fn all_kept_chunks(
        &self,
        after: Option<(InodeNo, u64, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read_tables(|state| {
            if !state.has_past() {
                return Ok(Vec::new());
            }
            // Inode 0 has no chunks.
            let (inode, index, until) = after.unwrap_or((InodeNo(0), 0, 0));
            let params = (
                bound(inode.0),
                bound(index),
                bound(until),
                bound(limit as u64),
            );
            state.all(past::ALL_KEPT, params, rows::kept_row)
        })
    }

    /// Up to `limit` chunks after `(inode, index)` that are kept for snapshot `until`.
    pub fn kept_until(
        &self,
        until: u64,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read_tables(|state| {
            if !state.has_past() {
                return Ok(Vec::new());
            }
            let (inode, index) = after.unwrap_or((InodeNo(0), 0));
            let params = (
                bound(until),
                bound(inode.0),
                bound(index),
                bound(limit as u64),
            );
            state.all(past::KEPT_UNTIL, params, rows::kept_row)
        })
    }
}
