//! Reading in a snapshot: of the past rows the one with the lowest `until` that is not below the snapshot's number, else the
//! live row, where that is as old as the snapshot.

use std::collections::{BTreeMap, HashMap};

use super::rows::{self, bound, damaged};
use super::schema::{self, past};
use super::snapshots::Moment;
use super::{Catalog, State};
use crate::{
    CHUNK_LEN, CatalogError, Chunk, DirEntry, Inode, InodeNo, KeptChunk, Result, SnapshotRow,
};

/// Rows of inodes that a listing looks at for each name, before it searches for each.
const ROWS_FOR_INODE: usize = 16;

fn no_inode() -> CatalogError {
    damaged("a name in a snapshot leads to an inode that is not there")
}

impl State {
    fn moment(&self, at: u64) -> Result<Moment> {
        let list = self.snapshots.get();
        match list.binary_search_by_key(&at, SnapshotRow::no) {
            Ok(index) if !list[index].doomed => Ok(Moment::of(&list[index])),
            _ => Err(CatalogError::NoSnapshot(at)),
        }
    }

    pub(super) fn past_inode(&self, at: u64, no: InodeNo) -> Result<Option<Inode>> {
        let moment = self.moment(at)?;
        if !moment.has_inode(no) {
            return Ok(None);
        }
        let kept = self.one(past::PAST_INODE, (bound(no.0), bound(at)), |row| {
            rows::past_inode(row, 0, no)
        })?;
        match kept {
            Some(kept) => Ok(kept),
            None => self.inode(no),
        }
    }

    fn inode_of_name(&self, at: u64, no: InodeNo) -> Result<Inode> {
        self.past_inode(at, no)?.ok_or_else(no_inode)
    }

    /// What is kept of inodes for a snapshot, and `None` for those that did not exist. `numbers` in order.
    ///
    /// Inodes of a directory mostly have numbers close together: one pass over the rows between them, as long as there are not many
    /// others, is faster than a search for each.
    fn kept_inodes(&self, at: u64, numbers: &[InodeNo]) -> Result<HashMap<InodeNo, Option<Inode>>> {
        let mut kept = HashMap::new();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Ok(kept);
        };
        let rows_max = ROWS_FOR_INODE.saturating_mul(numbers.len());
        let mut statement = self.statement(past::PAST_INODES)?;
        let mut rows = statement.query((bound(first.0), bound(last.0), bound(rows_max as u64)))?;
        let (mut seen, mut reached) = (0, *first);
        while let Some(row) = rows.next()? {
            seen += 1;
            reached = InodeNo(rows::number(row, 0, "an inode number")?);
            // The first row from the snapshot on is the one that it sees.
            if rows::number::<u64>(row, 1, "a snapshot")? >= at
                && !kept.contains_key(&reached)
                && numbers.binary_search(&reached).is_ok()
            {
                kept.insert(reached, rows::past_inode(row, 2, reached)?);
            }
        }
        if seen == rows_max {
            let left = numbers.partition_point(|no| *no < reached);
            for no in &numbers[left..] {
                let found = self.one(past::PAST_INODE, (bound(no.0), bound(at)), |row| {
                    rows::past_inode(row, 0, *no)
                })?;
                kept.extend(found.map(|found| (*no, found)));
            }
        }
        Ok(kept)
    }

    pub(super) fn past_chunk(&self, at: u64, inode: InodeNo, index: u64) -> Result<Chunk> {
        if !self.moment(at)?.has_inode(inode) {
            return Ok(Chunk::default());
        }
        let key = (at, (inode, index));
        if let Some(chunk) = self.seen.borrow().get(key) {
            return Ok(chunk.clone());
        }
        let mut seen = KeptChunk::default();
        for (_, kept) in self.kept_chunks(inode, index, at)?.iter().rev() {
            seen.add_later(kept);
        }
        let mut chunk = self.chunk(inode, index)?;
        seen.overlay(&mut chunk);
        self.seen.borrow_mut().put(key, chunk.clone());
        Ok(chunk)
    }

    /// The chunks that a file has in a snapshot, most of them: the index behind the last.
    fn past_chunks_end(&self, at: u64, inode: InodeNo) -> Result<u64> {
        let inode = self.past_inode(at, inode)?;
        Ok(inode.map_or(0, |inode| inode.size.div_ceil(CHUNK_LEN)))
    }

    fn index(&self, sql: &str, inode: InodeNo, bounded: u64) -> Result<Option<u64>> {
        self.one(sql, (bound(inode.0), bound(bounded)), |row| {
            rows::number(row, 0, "a chunk's index")
        })
    }
}

impl Catalog {
    /// A name in a directory, with the inode it leads to, as snapshot `at` sees them.
    pub fn past_lookup(&self, at: u64, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| {
            let moment = state.moment(at)?;
            let hash = state.name_hash(name);
            for sql in [past::LIVE_LOOKUP, past::PAST_LOOKUP] {
                let params = (
                    bound(parent.0),
                    hash,
                    name,
                    bound(at),
                    bound(moment.next_cookie),
                );
                let found =
                    state.one(sql, params, |row| rows::number(row, 0, "an entry's inode"))?;
                if let Some(no) = found {
                    return state.inode_of_name(at, InodeNo(no)).map(Some);
                }
            }
            Ok(None)
        })
    }

    /// Up to `limit` names with a cookie above `after`, in the order of cookies, as snapshot `at` sees them.
    pub fn past_entries(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        self.read(|state| {
            let moment = state.moment(at)?;
            let mut entries = Vec::new();
            for sql in [past::LIVE_ENTRIES, past::PAST_ENTRIES] {
                let params = (
                    bound(parent.0),
                    bound(after),
                    bound(moment.next_cookie),
                    bound(at),
                    bound(limit as u64),
                );
                entries.extend(state.all(sql, params, |row| rows::entry(row, 0))?);
            }
            entries.sort_unstable_by_key(|entry| entry.cookie);
            entries.truncate(limit);
            Ok(entries)
        })
    }

    /// The same with the inodes.
    pub fn past_entries_plus(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| {
            let moment = state.moment(at)?;
            let params = (
                bound(parent.0),
                bound(after),
                bound(moment.next_cookie),
                bound(limit as u64),
            );
            let live = state.all(past::LIVE_ENTRIES_PLUS, params, |row| {
                let is_there = row.get::<_, Option<i64>>(0)?.is_some();
                let inode = is_there.then(|| rows::inode(row)).transpose()?;
                Ok((rows::entry(row, schema::INODE_COLUMNS)?, inode))
            })?;
            let params = (
                bound(parent.0),
                bound(after),
                bound(moment.next_cookie),
                bound(at),
                bound(limit as u64),
            );
            let kept = state.all(past::PAST_ENTRIES, params, |row| rows::entry(row, 0))?;
            // Both in the order of cookies. What is kept of a name is in the place of the live one. Where it was cut at the limit,
            // so is the whole, before the first live name that it does not decide on.
            let mut found: BTreeMap<u64, (DirEntry, Option<Inode>)> = live
                .into_iter()
                .map(|(entry, inode)| (entry.cookie, (entry, inode)))
                .collect();
            found.extend(kept.into_iter().map(|entry| (entry.cookie, (entry, None))));
            let found: Vec<_> = found.into_values().take(limit).collect();
            let mut numbers: Vec<InodeNo> = found.iter().map(|(entry, _)| entry.inode).collect();
            numbers.sort_unstable();
            let kept = state.kept_inodes(at, &numbers)?;
            found
                .into_iter()
                .map(|(entry, live)| {
                    let inode = match (kept.get(&entry.inode), live) {
                        (Some(kept), _) => kept.clone().ok_or_else(no_inode)?,
                        (None, Some(live)) if moment.has_inode(entry.inode) => live,
                        (None, _) => state.inode_of_name(at, entry.inode)?,
                    };
                    Ok((entry, inode))
                })
                .collect()
        })
    }

    /// The name with a cookie, as snapshot `at` sees it.
    pub fn past_entry(&self, at: u64, parent: InodeNo, cookie: u64) -> Result<Option<DirEntry>> {
        self.read(|state| {
            if !state.moment(at)?.has_cookie(cookie) {
                return Ok(None);
            }
            let params = (bound(parent.0), bound(cookie), bound(at));
            let kept = state.one(past::PAST_ENTRY, params, |row| rows::entry(row, 0))?;
            match kept {
                Some(kept) => Ok(Some(kept)),
                None => state.one(past::LIVE_ENTRY, (bound(parent.0), bound(cookie)), |row| {
                    rows::entry(row, 0)
                }),
            }
        })
    }

    /// Up to `limit` inode numbers from `from` on that the catalog has, now or for snapshots: those with a lower number than the
    /// first that is younger than snapshot `at`. Not all of them are inodes in it.
    pub fn past_numbers(&self, at: u64, from: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| {
            let end = state.moment(at)?.next_inode();
            let mut numbers = Vec::new();
            for sql in [past::LIVE_NUMBERS, past::PAST_NUMBERS] {
                let params = (bound(from.0), bound(end.0), bound(limit as u64));
                numbers.extend(state.all(sql, params, |row| {
                    rows::number(row, 0, "an inode number").map(InodeNo)
                })?);
            }
            numbers.sort_unstable();
            numbers.dedup();
            numbers.truncate(limit);
            Ok(numbers)
        })
    }

    /// An extended attribute as snapshot `at` sees it.
    pub fn past_xattr(&self, at: u64, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| {
            if !state.moment(at)?.has_inode(inode) {
                return Ok(None);
            }
            let kept = state.one(past::PAST_XATTR, (bound(inode.0), name, bound(at)), |row| {
                rows::past_value(row, 0)
            })?;
            match kept {
                Some(kept) => Ok(kept),
                None => state.xattr(inode, name),
            }
        })
    }

    /// The names of all extended attributes, sorted, as snapshot `at` sees them.
    pub fn past_xattr_names(&self, at: u64, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| {
            if !state.moment(at)?.has_inode(inode) {
                return Ok(Vec::new());
            }
            let mut names = Vec::new();
            for sql in [past::LIVE_XATTR_NAMES, past::PAST_XATTR_NAMES] {
                names.extend(state.all(sql, (bound(inode.0), bound(at)), |row| {
                    rows::bytes(row, 0, "an attribute's name")
                })?);
            }
            names.sort_unstable();
            Ok(names)
        })
    }

    /// Up to `limit` chunks from `first` on that are not empty, in order, as snapshot `at` sees them. None behind the end of the
    /// file.
    pub fn past_chunks_from(
        &self,
        at: u64,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read_tables(|state| {
            let end = state.past_chunks_end(at, inode)?;
            let (mut chunks, mut next) = (Vec::new(), first);
            while chunks.len() < limit {
                let live = state.index(past::NEXT_CHUNK, inode, next)?;
                let kept = state.index(past::NEXT_KEPT, inode, next)?;
                let Some(index) = live.into_iter().chain(kept).min().filter(|i| *i < end) else {
                    break;
                };
                let chunk = state.past_chunk(at, inode, index)?;
                if !chunk.is_empty() {
                    chunks.push((index, chunk));
                }
                next = index + 1;
            }
            Ok(chunks)
        })
    }

    /// Up to `limit` inodes after `after` that are kept for snapshot `until`.
    pub fn inodes_until(&self, until: u64, after: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| {
            if !state.has_past() {
                return Ok(Vec::new());
            }
            let params = (bound(until), bound(after.0), bound(limit as u64));
            state.all(past::INODES_AFTER, params, |row| {
                rows::number(row, 0, "an inode number").map(InodeNo)
            })
        })
    }

    /// Up to `limit` names after `(parent, cookie)` that are kept for snapshot `until`, each as its directory and its cookie.
    pub fn entries_until(
        &self,
        until: u64,
        (parent, cookie): (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64)>> {
        self.read(|state| {
            if !state.has_past() {
                return Ok(Vec::new());
            }
            let params = (
                bound(until),
                bound(parent.0),
                bound(cookie),
                bound(limit as u64),
            );
            state.all(past::ENTRIES_AFTER, params, |row| {
                let parent = rows::number(row, 0, "an entry's directory")?;
                Ok((InodeNo(parent), rows::number(row, 1, "a cookie")?))
            })
        })
    }

    /// Up to `limit` extended attributes after `(inode, name)` that are kept for snapshot `until`.
    pub fn xattrs_until(
        &self,
        until: u64,
        (inode, name): &(InodeNo, Vec<u8>),
        limit: usize,
    ) -> Result<Vec<(InodeNo, Vec<u8>)>> {
        self.read(|state| {
            if !state.has_past() {
                return Ok(Vec::new());
            }
            let params = (bound(until), bound(inode.0), name, bound(limit as u64));
            state.all(past::XATTRS_AFTER, params, |row| {
                let inode = rows::number(row, 0, "an attribute's inode")?;
                Ok((InodeNo(inode), rows::bytes(row, 1, "an attribute's name")?))
            })
        })
    }
}
