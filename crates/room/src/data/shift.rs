//! Moving the rest of a file up or down by whole blocks, in the maps only.
//!
//! 1. One `apply` is all that can fail, and it comes before anything else is changed.
//! 2. A unit that a chunk's border cuts in two is shared by two chunks from then on, and counted so.
//!
//! It deliberately does not know lengths of files.

use std::collections::HashMap;
use std::sync::Arc;

use catalog::{CHUNK_LEN, Change, Chunk, Extent, InodeNo, KeptChunk, SegmentNo};

use super::shape::CHUNKS_AT_ONCE;
use super::{CHUNK_END, Data};
use crate::Result;
use crate::blocks::BLOCK;
use crate::history::{self, Held};
use crate::inodes::{Cell, State};

impl Data {
    /// Moves everything from `from` on so that it begins at `to`. Both are whole blocks; what lay between `to` and
    /// `from` is a hole already, or becomes one. On failure nothing is changed.
    pub(crate) fn shift(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let catalog = self.catalog.get();
        let (from_block, to_block) = (from / BLOCK, to / BLOCK);
        let first = from.min(to) / CHUNK_LEN;
        // All maps concerned, from memory and catalog.
        let mut old: HashMap<u64, Chunk> = HashMap::new();
        let mut next = first;
        loop {
            let stored = catalog.chunks_from(cell.no, next, CHUNKS_AT_ONCE)?;
            let Some((last, _)) = stored.last() else {
                break;
            };
            next = last + 1;
            old.extend(stored);
        }
        for (index, chunk) in state.chunks.range(first..) {
            old.insert(*index, chunk.clone());
        }
        let mut new: HashMap<u64, Chunk> = HashMap::new();
        for (index, chunk) in &old {
            for extent in chunk.extents() {
                let begin = index * u64::from(CHUNK_END) + u64::from(extent.first);
                let end = begin + u64::from(extent.blocks);
                for (a, b, moved) in [
                    (begin, end.min(from_block), false),
                    (begin.max(from_block), end, true),
                ] {
                    let target = if moved {
                        a.wrapping_sub(from_block).wrapping_add(to_block)
                    } else {
                        a
                    };
                    if a < b {
                        spread(&mut new, extent, (a - begin) as u16, (b - a) as u16, target);
                    }
                }
            }
        }
        let blocks = u64::from(CHUNK_END);
        let reserved = old.iter().flat_map(|(index, chunk)| {
            let runs = chunk.reserved_runs().into_iter();
            runs.flat_map(move |(first, run)| {
                (0..u64::from(run)).map(move |i| index * blocks + u64::from(first) + i)
            })
        });
        for block in reserved {
            let target = if block < from_block {
                block
            } else {
                block - from_block + to_block
            };
            let chunk = new.entry(target / blocks).or_default();
            chunk.reserve((target % blocks) as u16, 1);
        }
        let mut kept = match self.kept_until(cell.no) {
            None => Vec::new(),
            Some(until) => {
                let begin = (first, (from_block.min(to_block) % blocks) as u16);
                self.keep_shifted(cell.no, state, until, begin, (&old, &new))?
            }
        };
        // A unit cut in two by a chunk's border is from now on referred to by two chunks; one that a snapshot sees at its old
        // place, by what is kept too.
        let kept_before = kept.iter().map(|k| k.before.chunk());
        let kept_after = kept.iter().map(|k| k.after.chunk());
        let before = count_units(old.values().chain(kept_before));
        let after = count_units(new.values().chain(kept_after));
        let is_shared = |e: &Extent| {
            e.units()
                .any(|(r, _)| after.get(&(r.segment, r.position)) > Some(&1))
        };
        let mut changes = Vec::new();
        for (unit, now) in &after {
            let was = before.get(unit).copied().unwrap_or(0);
            if *now != was {
                let (segment, position) = *unit;
                changes.push(Change::share_unit(
                    segment,
                    position,
                    i64::from(*now) - i64::from(was),
                ));
            }
        }
        let ranges = |chunk: &Chunk| -> Vec<(u16, u16)> {
            let shared = chunk.extents().iter().filter(|e| is_shared(e));
            shared.map(|e| (e.first, e.blocks)).collect()
        };
        for chunk in new.values_mut() {
            for (first, blocks) in ranges(chunk) {
                chunk.mark_shared(first, blocks);
            }
        }
        for Shifted { after, .. } in &mut kept {
            for (first, blocks) in ranges(after.chunk()) {
                after.mark_shared(first, blocks);
            }
        }
        if !changes.is_empty() {
            catalog.apply(&changes)?;
        }
        for index in old.keys() {
            self.inodes.drop_chunk(cell.no, *index);
            state.chunks.insert(*index, Chunk::default());
        }
        state.chunks.extend(new);
        for shifted in kept {
            if shifted.after != shifted.before {
                let key = (cell.no, shifted.index, shifted.until);
                self.inodes.drop_kept(key);
                state.kept.insert(shifted.index, shifted.after);
            }
            history::add_all(&mut state.held, &shifted.held);
        }
        state.row_dirty = true;
        self.mark_dirty(cell);
        Ok(())
    }

    /// What is kept for the newest snapshot of the chunks of a file that moves from a block of a chunk on. Nothing is different
    /// yet.
    fn keep_shifted(
        &self,
        no: InodeNo,
        state: &State,
        until: u64,
        (first, block): (u64, u16),
        (old, new): (&HashMap<u64, Chunk>, &HashMap<u64, Chunk>),
    ) -> Result<Vec<Shifted>> {
        let nothing = Chunk::default();
        let added = new.keys().filter(|index| !old.contains_key(index));
        old.keys()
            .chain(added)
            .map(|index| {
                let was = old.get(index).unwrap_or(&nothing);
                let is = new.get(index).unwrap_or(&nothing);
                let before = KeptChunk::clone(&*self.kept_chunk(no, state, *index, until)?);
                let mut after = before.clone();
                let from = if *index == first { block } else { 0 };
                for (run, blocks) in before.uncovered_runs(from, CHUNK_END - from) {
                    let extents = was.slice(run, blocks);
                    if !extents.is_empty() || !is.slice(run, blocks).is_empty() {
                        after.keep(run, blocks, &extents);
                    }
                }
                let held_before = self.held_of(no, *index, until, was, &before)?;
                let held_after = self.held_of(no, *index, until, is, &after)?;
                Ok(Shifted {
                    index: *index,
                    until,
                    before,
                    after,
                    held: history::difference(&held_before, &held_after),
                })
            })
            .collect()
    }
}

/// What is kept of a chunk whose blocks move.
struct Shifted {
    index: u64,
    until: u64,
    before: KeptChunk,
    after: KeptChunk,
    held: Held,
}

/// Puts part of an extent at a block of the file, cut at the borders of chunks.
fn spread(new: &mut HashMap<u64, Chunk>, extent: &Extent, skip: u16, blocks: u16, target: u64) {
    let (mut done, per_chunk) = (0, u64::from(CHUNK_END));
    while done < blocks {
        let at = target + u64::from(done);
        let first = (at % per_chunk) as u16;
        let count = (blocks - done).min(CHUNK_END - first);
        let from = extent.first + skip + done;
        let mut piece = extent.trim(from, from + count);
        piece.first = first;
        new.entry(at / per_chunk)
            .or_default()
            .replace(first, count, &[piece]);
        done += count;
    }
}

/// How many of the chunks refer to each unit.
fn count_units<'a>(chunks: impl Iterator<Item = &'a Chunk>) -> HashMap<(SegmentNo, u32), u32> {
    let mut counts = HashMap::new();
    for chunk in chunks {
        let mut units: Vec<_> = chunk
            .extents()
            .iter()
            .flat_map(|e| e.units().map(|(r, _)| (r.segment, r.position)))
            .collect();
        units.sort_unstable();
        units.dedup();
        for unit in units {
            *counts.entry(unit).or_insert(0) += 1;
        }
    }
    counts
}
