//! After which snapshots the blocks of a chunk were written.
//!
//! 1. What is kept of a chunk for older snapshots than the newest changes only with their deletion. So an answer is remembered, and what is
//!    kept later is added as it comes: otherwise every first change of a block would read rows of a hundred snapshots, or of one.
//! 2. Remembered is what the catalog holds: an entry goes with a change of what is in it, and all go with a deletion.

use std::collections::HashMap;

use super::State;
use super::rows::damaged;
use super::snapshots::living;
use crate::{Births, CHUNK_BLOCKS, InodeNo, KeptChunk, Result, SnapshotRow};

/// Chunks remembered at most: 4 MiB.
const REMEMBERED: usize = 2048;

/// Answers.
#[derive(Debug, Default)]
pub(super) struct KnownBirths(HashMap<(InodeNo, u64), Known>);

/// What is known of a chunk.
#[derive(Debug)]
struct Known {
    /// All that is kept for snapshots below this one is in `births`.
    end: u64,
    births: Box<Births>,
    /// Of those from `end` on, the only one for which something is kept, and what that covers.
    newest: Option<(u64, KeptChunk)>,
}

impl Known {
    /// Adds what is kept for snapshots below `end`, which is not before the one that was the end.
    fn advance(&mut self, end: u64, list: &[SnapshotRow]) {
        if let Some((since, covered)) = self.newest.take_if(|(no, _)| *no < end) {
            self.births.note(&covered, living(list, since));
        }
        self.end = end;
    }
}

impl KnownBirths {
    /// What is kept of a chunk until a snapshot covers other blocks now.
    pub(super) fn kept_changes(
        &mut self,
        chunk: (InodeNo, u64),
        until: u64,
        covered: KeptChunk,
        list: &[SnapshotRow],
    ) {
        let Some(known) = self.0.get_mut(&chunk) else {
            return;
        };
        let newest = known.newest.as_ref().map_or(known.end, |(no, _)| *no);
        if until < newest {
            self.0.remove(&chunk);
            return;
        }
        known.advance(until, list);
        known.newest = (!covered.is_empty()).then_some((until, covered));
    }

    /// Whether it is known that nothing is kept of a chunk for a snapshot.
    pub(super) fn keeps_nothing(&self, chunk: (InodeNo, u64), until: u64) -> bool {
        self.0.get(&chunk).is_some_and(|known| {
            known.end <= until && known.newest.as_ref().is_none_or(|(no, _)| *no != until)
        })
    }

    /// A snapshot was created. Makes room for others where chunks were not asked for since `before`, the newest one until now.
    pub(super) fn created(&mut self, before: u64) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, known| known.end == before);
        }
    }

    /// A snapshot was deleted or removed, or changes were lost.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl State {
    pub(super) fn births(
        &self,
        inode: InodeNo,
        index: u64,
        until: u64,
        blocks: &[u16],
    ) -> Result<Births> {
        let list = self.snapshots.get();
        let at = list.binary_search_by_key(&until, SnapshotRow::no).ok();
        // Later snapshots have the file too: none of them changes what was found.
        let lasts = at.is_some_and(|at| inode < list[at].next_inode);
        let mut known = self.births.borrow_mut();
        let remembered = known.0.get_mut(&(inode, index)).filter(|_| lasts);
        if let Some(known) = remembered.filter(|known| known.end <= until) {
            known.advance(until, &list);
            return Ok((*known.births).clone());
        }
        // The file itself is younger than the snapshots that do not have it.
        let younger = list
            .iter()
            .rev()
            .find(|row| row.no() < until && row.next_inode <= inode);
        let younger = younger.map_or(0, |row| living(&list, row.no()));
        let mut births = Births::after(younger);
        if !self.has_past() {
            return Ok(births);
        }
        // What is kept for the newest one is read too, and nothing can be for later ones.
        let is_newest = at.is_some_and(|at| at + 1 == list.len());
        let remember = lasts && is_newest && known.0.len() < REMEMBERED;
        let (end, mut unknown) = match remember {
            true => (until + 1, (0..CHUNK_BLOCKS as u16).collect()),
            false => (until, blocks.to_vec()),
        };
        let mut newest = None;
        // The first that covers a block decides.
        self.each_kept((inode, index), 0..end, |since, map| {
            let kept = KeptChunk::decode_covered(map).map_err(damaged)?;
            if since == until {
                newest = Some((since, kept));
                return Ok(true);
            }
            births.note(&kept, living(&list, since));
            unknown.retain(|block| !kept.covers(*block, 1));
            Ok(!unknown.is_empty())
        })?;
        if remember {
            let answer = Known {
                end: until,
                births: Box::new(births.clone()),
                newest,
            };
            known.0.insert((inode, index), answer);
        }
        Ok(births)
    }
}
