//! Keeping what snapshots see of data that changes.
//!
//! 1. What is replaced or discarded for the first time since the newest snapshot is kept for it, if it knows the file: units
//!    move from the live map to the kept one, and stay alive.
//! 2. Kept maps are pending beside the live ones, and reach the catalog in the same operation: the catalog alone is always right.
//! 3. Moving data to another place changes nothing that a snapshot sees, and keeps nothing.
//!
//! It deliberately does not know names of snapshots, nor how they are deleted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catalog::{
    Births, BlockRange, CHUNK_LEN, Change, Chunk, Extent, Foreseen, InodeNo, KeptChunk, Released,
};
use parking_lot::{RwLock, RwLockWriteGuard};

use super::{CHUNK_END, Data};
use crate::history::{self, Held, History};
use crate::inodes::{Cell, State};
use crate::usage::Unit;
use crate::{Error, Result};

/// The newest snapshot, as every change of data asks for it.
#[derive(Debug, Default)]
pub(super) struct Newest {
    /// Its number; 0 where there is none.
    no: AtomicU64,
    /// It knows inodes with lower numbers.
    next_inode: AtomicU64,
    /// Held shared while data of a snapshot is looked up and read, exclusive while it moves or is discarded.
    past: RwLock<()>,
}

/// A change of a live map, and of what is kept of it.
struct Edit {
    live: Chunk,
    kept: KeptChunk,
    /// Units that lost a reference, some of them after they gained one.
    released: Vec<Released>,
    /// Units that gained one.
    gained: Vec<BlockRange>,
    held: Held,
}

/// What a discarded chunk leaves behind.
pub(super) struct Cut {
    /// The newest snapshot.
    pub(super) until: u64,
    /// What is kept of it, where that is different now.
    kept: Option<KeptChunk>,
    /// Units that lose a reference, once those that gained one have it.
    pub(super) released: Vec<Released>,
    gained: Vec<BlockRange>,
    held: Held,
}

/// What is kept of a chunk, wherever it is.
pub(crate) enum KeptRef<'a> {
    Changed(&'a KeptChunk),
    Clean(Arc<KeptChunk>),
}

impl KeptRef<'_> {
    /// The catalog's, where nothing newer is pending.
    fn into_clean(self) -> Option<Arc<KeptChunk>> {
        match self {
            Self::Changed(_) => None,
            Self::Clean(kept) => Some(kept),
        }
    }
}

impl std::ops::Deref for KeptRef<'_> {
    type Target = KeptChunk;

    fn deref(&self) -> &KeptChunk {
        match self {
            Self::Changed(kept) => kept,
            Self::Clean(kept) => kept,
        }
    }
}

impl Data {
    /// Looks which snapshot is the newest. At the opening of the room, and whenever snapshots were created or are gone; no change
    /// is under way.
    pub(crate) fn note_snapshots(&self) {
        let snapshots = self.catalog.get().snapshots();
        let newest = snapshots.last();
        let next_inode = newest.map_or(0, |s| s.next_inode.0);
        self.newest.next_inode.store(next_inode, Ordering::SeqCst);
        let no = newest.map_or(0, |s| s.no());
        self.newest.no.store(no, Ordering::SeqCst);
        self.inodes.forget_kept();
    }

    /// The newest snapshot, if it knows the inode.
    pub(crate) fn kept_until(&self, no: InodeNo) -> Option<u64> {
        match self.newest.no.load(Ordering::Relaxed) {
            0 => None,
            newest => (no.0 < self.newest.next_inode.load(Ordering::Relaxed)).then_some(newest),
        }
    }

    /// Fills `buf` with what a file held at a snapshot, from `offset` on.
    pub(crate) fn read_past(
        &self,
        at: u64,
        no: InodeNo,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut from = offset;
        while from < end {
            let index = from / CHUNK_LEN;
            let piece_end = end.min((index + 1).saturating_mul(CHUNK_LEN));
            let piece = &mut buf[(from - offset) as usize..(piece_end - offset) as usize];
            self.with_past(no, || {
                let chunk = self.catalog.get().past_chunk(at, no, index)?;
                self.read_chunk(no, index, &chunk, from - index * CHUNK_LEN, piece)
            })?;
            from = piece_end;
        }
        Ok(())
    }

    /// Does something while the data that snapshots see of a file stays where it is.
    pub(crate) fn with_past<T>(&self, no: InodeNo, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let cell = match self.cell(no) {
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        let _state = cell.as_ref().map(|cell| cell.state.read());
        let _past = self.newest.past.read();
        read()
    }

    /// Waits until nobody reads data of snapshots, which may then move or go. Taken behind the cell of the file.
    pub(crate) fn change_past(&self) -> RwLockWriteGuard<'_, ()> {
        self.newest.past.write()
    }

    /// What is kept of a chunk for the newest snapshot.
    pub(crate) fn kept_chunk<'a>(
        &self,
        no: InodeNo,
        state: &'a State,
        index: u64,
        until: u64,
    ) -> Result<KeptRef<'a>> {
        Ok(match state.kept.get(&index) {
            Some(kept) => KeptRef::Changed(kept),
            None => KeptRef::Clean(
                self.inodes
                    .clean_kept(&self.catalog.get(), (no, index, until))?,
            ),
        })
    }

    /// Whether replacing the blocks from `first` on frees none, because a snapshot sees them.
    pub(crate) fn is_kept(
        &self,
        no: InodeNo,
        state: &State,
        index: u64,
        first: u16,
        blocks: u16,
    ) -> Result<bool> {
        let Some(until) = self.kept_until(no) else {
            return Ok(false);
        };
        let chunk = self.chunk(no, state, index)?;
        if chunk.slice(first, blocks).is_empty() {
            return Ok(false);
        }
        let kept = self.kept_chunk(no, state, index, until)?;
        Ok(!kept.covers(first, blocks))
    }

    /// As [`replace`](Self::replace), where the newest snapshot knows the file.
    #[allow(
        clippy::too_many_arguments,
        reason = "what `replace` has, and the snapshot"
    )]
    pub(super) fn replace_and_keep(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        until: u64,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        let no = cell.no;
        let (foreseen, is_covered, clean) = {
            let live = self.chunk(no, state, index)?;
            let kept = self.kept_chunk(no, state, index, until)?;
            // Nearly always: where units are shared, what others refer to matters too.
            let is_plain = !with.is_empty() && with.iter().all(|e| !e.shared);
            let foreseen = is_plain.then(|| kept.foresee(&live, first, blocks, with));
            let is_covered = kept.covers(first, blocks);
            (foreseen, is_covered, kept.into_clean())
        };
        let Some(foreseen) = foreseen.filter(|foreseen| !foreseen.loses_shared) else {
            return self.replace_shared(cell, state, until, index, first, blocks, with);
        };
        let held = self.held_by(no, index, until, &foreseen)?;
        self.changed_chunk(cell, state, index)?;
        self.count_references(&foreseen.gained, 1)?;
        // Nothing fails from here on.
        let kept = (!is_covered).then(|| match clean {
            Some(clean) => {
                self.inodes.drop_kept((no, index, until));
                Arc::unwrap_or_clone(clean)
            }
            None => state.kept.remove(&index).unwrap_or_default(),
        });
        let chunk = self.changed_chunk(cell, state, index)?;
        let before = (chunk.blocks(), chunk.reserved_blocks());
        let released = match kept {
            Some(mut kept) => {
                let replaced = kept.replace_in(chunk, first, blocks, with);
                state.kept.insert(index, kept);
                replaced.released
            }
            None => chunk.replace(first, blocks, with),
        };
        self.count_blocks(state, index, before);
        history::add_all(&mut state.held, &held);
        self.mark_dirty(cell);
        self.blocks.discard(&released)
    }

    /// As [`replace`](Self::replace), by units that others refer to as well: they get one reference more, or where there is no space,
    /// none.
    pub(super) fn replace_by_shared(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        let gained: Vec<BlockRange> = {
            let chunk = self.chunk(cell.no, state, index)?;
            let units = with.iter().flat_map(Extent::units).map(|(unit, _)| unit);
            let mut gained: Vec<_> = units
                .filter(|unit| !chunk.refers_to(unit.segment, unit.position))
                .collect();
            gained.sort_unstable();
            gained.dedup();
            gained
        };
        // First: the replacement may discard the very units that come in.
        self.count_references(&gained, 1)?;
        let replaced = self.replace(cell, state, index, first, blocks, with);
        if let Err(Error::NoSpace) = replaced {
            let shared = true;
            let discarded = gained.into_iter().map(|range| Released { range, shared });
            self.blocks.discard(&discarded.collect::<Vec<_>>())?;
        }
        replaced
    }

    /// As [`replace_and_keep`](Self::replace_and_keep), whatever is replaced, and by whatever.
    #[allow(
        clippy::too_many_arguments,
        reason = "what `replace` has, and the snapshot"
    )]
    fn replace_shared(
        &self,
        cell: &Arc<Cell>,
        state: &mut State,
        until: u64,
        index: u64,
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<()> {
        let (edit, keeps_more) = {
            let live = self.chunk(cell.no, state, index)?;
            let kept = self.kept_chunk(cell.no, state, index, until)?;
            let edit = self.edit(cell.no, index, until, (&live, &kept), first, blocks, with)?;
            let keeps_more = edit.kept != *kept;
            (edit, keeps_more)
        };
        self.count_references(&edit.gained, 1)?;
        let chunk = self.changed_chunk(cell, state, index)?;
        let before = (chunk.blocks(), chunk.reserved_blocks());
        *chunk = edit.live;
        self.count_blocks(state, index, before);
        if keeps_more {
            self.inodes.drop_kept((cell.no, index, until));
            state.kept.insert(index, edit.kept);
        }
        history::add_all(&mut state.held, &edit.held);
        self.mark_dirty(cell);
        self.blocks.discard(&edit.released)
    }

    /// The space that snapshots hold as soon as units move to what is kept of a chunk.
    fn held_by(&self, no: InodeNo, index: u64, until: u64, foreseen: &Foreseen) -> Result<Held> {
        let mut held = Held::new();
        if !foreseen.moved.is_empty() {
            let places: Vec<u16> = foreseen.moved.iter().map(|(_, place)| *place).collect();
            let births = self.catalog.get().births_of(no, index, until, &places)?;
            let moved = foreseen.moved.iter().map(|(range, place)| {
                let unit = (range.segment, range.position);
                (unit, range.blocks, *place)
            });
            for (since, blocks) in history::born(moved, &births).into_values() {
                history::add(&mut held, (since, until), i64::from(blocks));
            }
        }
        Ok(held)
    }

    /// What discarded chunks leave behind for the newest snapshot: these, which the catalog has, and those in memory from `first` on.
    /// Nothing is different yet.
    pub(super) fn cut_and_keep(
        &self,
        no: InodeNo,
        state: &State,
        until: u64,
        stored: &[(u64, Chunk)],
        first: u64,
    ) -> Result<HashMap<u64, Cut>> {
        let stored = stored.iter().map(|(index, c)| (*index, c));
        let newest = state.chunks.range(first..).map(|(index, c)| (*index, c));
        let chunks: HashMap<u64, &Chunk> = stored.chain(newest).collect();
        let mut cuts = HashMap::with_capacity(chunks.len());
        for (index, live) in chunks {
            let kept = self.kept_chunk(no, state, index, until)?;
            let edit = self.edit(no, index, until, (live, &kept), 0, CHUNK_END, &[])?;
            let cut = Cut {
                until,
                kept: (edit.kept != *kept || state.kept.contains_key(&index)).then_some(edit.kept),
                released: edit.released,
                gained: edit.gained,
                held: edit.held,
            };
            cuts.insert(index, cut);
        }
        Ok(cuts)
    }

    /// Adds what is kept of discarded chunks to an operation, and the space that is pending; with the last of an inode, all that is
    /// pending for it.
    pub(super) fn keep_in<'a>(
        &self,
        changes: &mut Vec<Change<'a>>,
        no: InodeNo,
        state: &'a State,
        until: u64,
        cuts: &'a HashMap<u64, Cut>,
        last: bool,
    ) {
        let pending = state.kept.iter().filter(|(index, _)| {
            let cut = cuts.get(index).is_some_and(|cut| cut.kept.is_some());
            last && !cut
        });
        let cut = cuts
            .iter()
            .filter_map(|(i, cut)| Some((i, cut.kept.as_ref()?)));
        changes.extend(
            pending
                .chain(cut)
                .map(|(index, kept)| Change::keep_chunk(no, *index, until, kept)),
        );
        let mut held = state.held.clone();
        for cut in cuts.values() {
            history::add_all(&mut held, &cut.held);
            changes.extend(references(&cut.gained, 1));
        }
        changes.extend(history::counts(&held));
    }

    /// What replacing blocks of a chunk makes of its maps; nothing is different yet.
    #[allow(
        clippy::too_many_arguments,
        reason = "a chunk, its maps and what `replace` has"
    )]
    fn edit(
        &self,
        no: InodeNo,
        index: u64,
        until: u64,
        (old, old_kept): (&Chunk, &KeptChunk),
        first: u16,
        blocks: u16,
        with: &[Extent],
    ) -> Result<Edit> {
        let (mut live, mut kept) = (old.clone(), old_kept.clone());
        let (mut released, mut gained) = (Vec::new(), Vec::new());
        let mut replace = |live: &mut Chunk, first, blocks, with: &[Extent]| {
            let replaced = kept.replace_in(live, first, blocks, with);
            released.extend(replaced.released);
            gained.extend(replaced.gained);
        };
        if with.is_empty() {
            // A hole that stays one is nothing to remember.
            for extent in old.slice(first, blocks) {
                replace(&mut live, extent.first, extent.blocks, &[]);
            }
            live.replace(first, blocks, &[]);
        } else {
            replace(&mut live, first, blocks, with);
        }
        let gone = old.slice(first, blocks);
        let lost: HashSet<Unit> = history::units(&gone)
            .filter(|(segment, position)| !live.refers_to(*segment, *position))
            .collect();
        let is_kept = |(segment, position): &Unit| kept.chunk().refers_to(*segment, *position);
        let elsewhere = gone.iter().any(|e| e.shared) && !lost.iter().all(is_kept);
        let held = if elsewhere || with.iter().any(|e| e.shared) {
            // An older snapshot may have what the live map had, or gets.
            let before = self.held_of(no, index, until, old, old_kept)?;
            let after = self.held_of(no, index, until, &live, &kept)?;
            history::difference(&before, &after)
        } else {
            let mut held = Held::new();
            if lost.iter().any(is_kept) {
                let units = history::located_units(kept.chunk());
                let lost: Vec<_> = units.filter(|(unit, ..)| lost.contains(unit)).collect();
                let places: Vec<u16> = lost.iter().map(|(.., place)| *place).collect();
                let births = self.catalog.get().births_of(no, index, until, &places)?;
                for (since, blocks) in history::born(lost.into_iter(), &births).into_values() {
                    history::add(&mut held, (since, until), i64::from(blocks));
                }
            }
            held
        };
        Ok(Edit {
            live,
            kept,
            released,
            gained,
            held,
        })
    }

    /// After which snapshots the blocks of a live chunk were written; `None` where all of it is of one time.
    pub(crate) fn births(&self, no: InodeNo, state: &State, index: u64) -> Result<Option<Births>> {
        let Some(until) = self.kept_until(no) else {
            return Ok(None);
        };
        let catalog = self.catalog.get();
        let mut births = catalog.births(no, index, until)?;
        births.note(&*self.kept_chunk(no, state, index, until)?, until);
        Ok(Some(births))
    }

    /// Changes where the data is that is kept of a chunk until a snapshot; what it covers stays. `edit` adds the units that it does
    /// not refer to any more. Within a change.
    pub(crate) fn edit_kept(
        &self,
        (no, index, until): (InodeNo, u64, u64),
        edit: impl FnOnce(&mut KeptChunk, &mut Vec<Released>) -> Result<()>,
    ) -> Result<()> {
        let cell = match self.cell(no) {
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        let mut state = cell.as_ref().map(|cell| cell.state.write());
        let _past = self.newest.past.write();
        let mut history = self.history(no, index, state.as_deref())?;
        let before = history.held();
        let Some(kept) = history.kept.get_mut(&until) else {
            return Ok(());
        };
        let mut released = Vec::new();
        // What was done before a failure counts all the same.
        let outcome = edit(kept, &mut released);
        let kept = kept.clone();
        let held = history::difference(&before, &history.held());
        let change = Change::keep_chunk(no, index, until, &kept);
        self.put_kept((no, index, until), state.as_deref_mut(), vec![change], held)?;
        outcome.and(self.blocks.discard(&released))
    }

    /// A chunk, and what is kept of it: as the catalog has it, or newer in memory.
    pub(crate) fn history(
        &self,
        no: InodeNo,
        index: u64,
        state: Option<&State>,
    ) -> Result<History> {
        let mut history = History::read(&self.catalog.get(), no, index)?;
        if let Some(state) = state.filter(|state| !state.is_deleted()) {
            history.live = self.chunk(no, state, index)?.clone();
            if let (Some(until), Some(kept)) = (self.kept_until(no), state.kept.get(&index)) {
                history.kept.insert(until, kept.clone());
            }
        }
        Ok(history)
    }

    /// Writes to the catalog what is kept of a chunk until a snapshot, in place of what was in memory. What it changes of the
    /// space that snapshots hold is written with what is pending of that: neither would be right by itself.
    pub(crate) fn put_kept(
        &self,
        (no, index, until): (InodeNo, u64, u64),
        state: Option<&mut State>,
        mut changes: Vec<Change<'_>>,
        mut held: Held,
    ) -> Result<()> {
        if let Some(state) = &state {
            history::add_all(&mut held, &state.held);
        }
        changes.extend(history::counts(&held));
        self.catalog.get().apply(&changes)?;
        if let Some(state) = state {
            state.held.clear();
            if self.kept_until(no) == Some(until) {
                state.kept.remove(&index);
            }
            self.inodes.drop_kept((no, index, until));
        }
        Ok(())
    }

    /// The space that snapshots hold of a chunk, with these maps in place of those of the catalog.
    pub(super) fn held_of(
        &self,
        no: InodeNo,
        index: u64,
        until: u64,
        live: &Chunk,
        kept: &KeptChunk,
    ) -> Result<Held> {
        let catalog = self.catalog.get();
        let mut history = History::read(&catalog, no, index)?;
        history.live = live.clone();
        history.kept.insert(until, kept.clone());
        Ok(history.held())
    }

    /// Runs a change of a chunk's map that snapshots do not see: its data is elsewhere, and the same. The space that they hold
    /// follows.
    pub(super) fn unseen<T>(
        &self,
        no: InodeNo,
        state: &mut State,
        index: u64,
        change: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let Some(until) = self.kept_until(no) else {
            return change(state);
        };
        let held = |state: &State| -> Result<Held> {
            let live = self.chunk(no, state, index)?;
            let kept = self.kept_chunk(no, state, index, until)?;
            self.held_of(no, index, until, &live, &kept)
        };
        let before = held(state)?;
        let done = change(state)?;
        let after = held(state)?;
        history::add_all(&mut state.held, &history::difference(&before, &after));
        Ok(done)
    }

    /// Adds to the number of references to each of these units.
    fn count_references(&self, units: &[BlockRange], by: i64) -> Result<()> {
        match units {
            [] => Ok(()),
            _ => Ok(self.catalog.get().apply(&references(units, by))?),
        }
    }
}

/// The changes that add to the number of references to each of these units.
fn references<'a>(units: &[BlockRange], references: i64) -> Vec<Change<'a>> {
    units
        .iter()
        .map(|unit| Change::share_unit(unit.segment, unit.position, references))
        .collect()
}
