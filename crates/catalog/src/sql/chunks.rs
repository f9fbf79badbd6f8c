//! Maps of files: [gathered](super::gathered), so that one that is made durable again and again is written once.

use std::collections::BTreeMap;

use super::rows::{self, bound, damaged, to_sql};
use super::schema;
use super::{Catalog, State};
use crate::log::EntryMap;
use crate::{Chunk, InodeNo, Result};

impl State {
    pub(super) fn gather_chunk(&mut self, key: (InodeNo, u64), chunk: &Chunk) -> EntryMap {
        self.seen.get_mut().changes(key);
        let chunks = &mut self.gathered.get_mut().chunks;
        chunks.put(key, |old| chunk.encode_after(old), &mut self.edits)
    }

    /// Writes the gathered maps.
    pub(super) fn write_chunks(&mut self) -> Result<()> {
        let mut chunks = std::mem::take(&mut self.gathered.get_mut().chunks);
        for ((inode, index), map) in chunks.new_in(..) {
            let (inode, index) = (to_sql(inode.0), to_sql(index));
            match map.is_empty() {
                true => self.run(schema::DELETE_CHUNK, (inode, index))?,
                false => self.run(schema::PUT_CHUNK, (inode, index, map))?,
            };
        }
        chunks.written();
        self.gathered.get_mut().chunks = chunks;
        Ok(())
    }

    pub(super) fn delete_chunks(&mut self, inode: InodeNo) -> Result<()> {
        self.seen.get_mut().lost(inode);
        let chunks = &mut self.gathered.get_mut().chunks;
        chunks.remove((inode, 0)..=(inode, u64::MAX));
        self.run(schema::DELETE_CHUNKS, [to_sql(inode.0)]).map(drop)
    }

    pub(super) fn chunk(&self, inode: InodeNo, index: u64) -> Result<Chunk> {
        if let Some(map) = self.gathered.borrow().chunks.get((inode, index)) {
            return Chunk::decode(map).map_err(damaged);
        }
        let chunk = self.one(schema::CHUNK, (bound(inode.0), bound(index)), |row| {
            rows::chunk(row, 0)
        })?;
        Ok(chunk.unwrap_or_default())
    }

    /// At least `limit` chunks from `first` on that are not empty, if there are so many: those to which `sql` comes first.
    fn some_chunks(
        &self,
        sql: &str,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<BTreeMap<u64, Chunk>> {
        let gathered = self.gathered.borrow();
        let gathered: Vec<_> = gathered
            .chunks
            .new_in((inode, first)..=(inode, u64::MAX))
            .collect();
        // Each of them may take a row away.
        let rows = bound(limit.saturating_add(gathered.len()) as u64);
        let stored = self.all(sql, (bound(inode.0), bound(first), rows), |row| {
            let index: u64 = rows::number(row, 0, "a chunk's index")?;
            Ok((index, rows::chunk(row, 1)?))
        })?;
        let mut chunks: BTreeMap<u64, Chunk> = stored.into_iter().collect();
        for ((_, index), map) in gathered {
            chunks.insert(index, Chunk::decode(map).map_err(damaged)?);
        }
        chunks.retain(|_, chunk| !chunk.is_empty());
        Ok(chunks)
    }
}

impl Catalog {
    /// Up to `limit` chunks from `first` on that are not empty, in order.
    pub fn chunks_from(
        &self,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| {
            let chunks = state.some_chunks(schema::CHUNKS_FROM, inode, first, limit)?;
            Ok(chunks.into_iter().take(limit).collect())
        })
    }

    /// Up to `limit` of the last of them, in order too.
    pub fn last_chunks(
        &self,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| {
            let chunks = state.some_chunks(schema::LAST_CHUNKS, inode, first, limit)?;
            let others = chunks.len().saturating_sub(limit);
            Ok(chunks.into_iter().skip(others).collect())
        })
    }

    /// Up to `limit` (inode, chunk index) keys after `after`, over the whole catalog: what cleaner and check walk.
    pub fn all_chunks(
        &self,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64, Chunk)>> {
        self.read_tables(|state| {
            // Inode 0 has no chunks.
            let (inode, index) =
                after.map_or((0, 0), |(inode, index)| (bound(inode.0), bound(index)));
            state.all(
                schema::ALL_CHUNKS,
                (inode, index, bound(limit as u64)),
                |row| {
                    let inode = InodeNo(rows::number(row, 0, "a chunk's inode")?);
                    Ok((
                        inode,
                        rows::number(row, 1, "a chunk's index")?,
                        rows::chunk(row, 2)?,
                    ))
                },
            )
        })
    }
}
