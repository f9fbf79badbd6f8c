//! Kept chunks against whole copies, and against a count of who refers to which unit.

use super::*;
use crate::{Absorbed, Births, BlockRange, Foreseen, KeptChunk, MapEdit, Replaced};

#[derive(Debug, Clone)]
enum Change {
    Live(Step),
    Snapshot,
    Delete(usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let live = steps().prop_map(|steps| steps.into_iter().map(Change::Live).take(12));
    let other = prop_oneof![
        3 => Just(Change::Snapshot),
        1 => (0usize..8).prop_map(Change::Delete),
    ];
    let round = (live, other).prop_map(|(live, other)| live.chain([other]).collect::<Vec<_>>());
    proptest::collection::vec(round, 1..8).prop_map(|rounds| rounds.concat())
}

/// A live chunk and the kept ones of its snapshots, with the counts of units that a room has.
#[derive(Default)]
struct Kept {
    live: Chunk,
    /// By snapshot, with a copy of what it must see.
    snapshots: Vec<(KeptChunk, Vec<Option<Cell>>)>,
    /// References to each unit beyond the first.
    shared: BTreeMap<(u64, u32), u32>,
    freed: BTreeSet<(u64, u32)>,
}

fn units(chunk: &Chunk) -> BTreeSet<(u64, u32)> {
    let units = chunk.extents().iter().flat_map(Extent::units);
    units
        .map(|(unit, _)| (unit.segment.0, unit.position))
        .collect()
}

/// Whether an extent of the range may be shared.
fn shared_units(chunk: &Chunk, first: u16, blocks: u16) -> bool {
    chunk.slice(first, blocks).iter().any(|e| e.shared)
}

/// Compares what was foreseen with the units that the chunks refer to afterwards.
fn foreseen_came_true(
    foreseen: &Foreseen,
    gained: &[BlockRange],
    (before, shares): (BTreeSet<(u64, u32)>, bool),
    live: &Chunk,
    kept: &KeptChunk,
) {
    assert_eq!(foreseen.gained, gained);
    let now = units(live);
    let lost: BTreeSet<_> = before.difference(&now).copied().collect();
    let in_kept = units(kept.chunk());
    let moved: BTreeSet<_> = foreseen
        .moved
        .iter()
        .map(|(unit, _)| (unit.segment.0, unit.position))
        .collect();
    assert_eq!(moved, lost.intersection(&in_kept).copied().collect());
    for (unit, place) in &foreseen.moved {
        let extent = kept.chunk().find(*place).unwrap();
        assert!(extent.units().any(|(there, _)| there == *unit));
    }
    let loses = lost.iter().any(|unit| !in_kept.contains(unit));
    assert_eq!(foreseen.loses_shared, shares && loses);
}

/// An edit makes the second of the first, once and again.
fn edited(old: &KeptChunk, new: &KeptChunk) {
    let encoded = new.encode_after(&old.encode());
    assert_eq!(encoded.map, new.encode());
    if let Some(edit) = encoded.edit {
        let edit = MapEdit::decode(&edit).unwrap();
        assert!(!edit.reserves());
        let mut chunk = old.clone();
        for _ in 0..2 {
            chunk.edit(&edit);
            assert_eq!(&chunk, new);
        }
    }
    let less = old.encode_after(&new.encode());
    assert_eq!(less.map, old.encode());
    assert!(less.edit.is_none() || old.covered() == new.covered());
}

impl Kept {
    fn replace(&mut self, first: u16, blocks: u16, with: &[Extent]) {
        let released = match self.snapshots.last_mut() {
            Some((kept, _)) => {
                let foreseen = kept.foresee(&self.live, first, blocks, with);
                let before = (units(&self.live), shared_units(&self.live, first, blocks));
                let old = kept.clone();
                let Replaced {
                    released, gained, ..
                } = kept.replace_in(&mut self.live, first, blocks, with);
                edited(&old, kept);
                foreseen_came_true(&foreseen, &gained, before, &self.live, kept);
                for unit in gained {
                    *self
                        .shared
                        .entry((unit.segment.0, unit.position))
                        .or_default() += 1;
                }
                released
            }
            None => self.live.replace(first, blocks, with),
        };
        self.release(&released);
    }

    fn release(&mut self, released: &[Released]) {
        for Released { range, shared } in released {
            let end = range.position + range.blocks;
            for position in (range.position..end).step_by(UNIT_BLOCKS as usize) {
                let unit = (range.segment.0, position);
                match self.shared.get_mut(&unit) {
                    Some(count) => {
                        assert!(shared, "a shared unit is released as one");
                        *count -= 1;
                        if *count == 0 {
                            self.shared.remove(&unit);
                        }
                    }
                    None => assert!(self.freed.insert(unit), "{unit:?} is freed twice"),
                }
            }
        }
    }

    fn delete(&mut self, index: usize) {
        let (later, _) = self.snapshots.remove(index);
        let released = match index.checked_sub(1) {
            Some(before) => {
                let older = &mut self.snapshots[before].0;
                let covered = later.covered_runs();
                let old = older.clone();
                let Absorbed {
                    released,
                    moved,
                    dropped,
                } = older.absorb(&later);
                edited(&old, older);
                assert!(
                    covered
                        .iter()
                        .all(|(first, blocks)| older.covers(*first, *blocks))
                );
                let count = |extents: &[Extent]| -> u16 { extents.iter().map(|e| e.blocks).sum() };
                assert_eq!(
                    u32::from(count(&moved) + count(&dropped)),
                    later.chunk().blocks()
                );
                released
            }
            None => later.clone().rewrite(0, 256, &[]),
        };
        self.release(&released);
    }

    fn check(&self) {
        let mut chunk = self.live.clone();
        for (at, (kept, copy)) in self.snapshots.iter().enumerate().rev() {
            kept.overlay(&mut chunk);
            assert_eq!(&Model::of(&chunk).cells[..], &copy[..]);
            let mut seen = KeptChunk::default();
            let later = self.snapshots[at..].iter();
            later.for_each(|(kept, _)| seen.add_later(kept));
            let mut at_once = self.live.clone();
            seen.overlay(&mut at_once);
            assert_eq!(&Model::of(&at_once).cells[..], &copy[..]);
            assert_eq!(KeptChunk::decode(&kept.encode()).as_ref(), Ok(kept));
            for (first, blocks) in kept.covered_runs() {
                assert!(
                    kept.covers(first, blocks) && kept.uncovered_runs(first, blocks).is_empty()
                );
            }
            assert_eq!(kept.is_empty(), kept.covered_runs().is_empty());
        }
        let mut references: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        let all = self.snapshots.iter().map(|(kept, _)| kept.chunk());
        for chunk in all.chain([&self.live]) {
            for unit in units(chunk) {
                *references.entry(unit).or_default() += 1;
            }
        }
        assert!(self.freed.iter().all(|unit| !references.contains_key(unit)));
        references.retain(|_, count| {
            *count -= 1;
            *count > 0
        });
        assert_eq!(references, self.shared);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn kept_chunks_hold_what_each_snapshot_saw(changes in changes()) {
        let mut all = Kept::default();
        let mut position = 1;
        for change in changes {
            match change {
                Change::Live(Step::Write { first, blocks }) => {
                    let extent = Extent::from_sealed(first, &appended(7, position, u32::from(blocks)));
                    position += u32::from(blocks);
                    all.replace(first, blocks, &[extent]);
                }
                Change::Live(Step::Punch { first, blocks }) => all.replace(first, blocks, &[]),
                Change::Live(Step::Copy { from, to, blocks }) => {
                    let with = moved(all.live.slice(from, blocks), from, to);
                    all.replace(to, blocks, &with);
                }
                Change::Live(Step::Share { first, blocks }) => all.live.mark_shared(first, blocks),
                Change::Live(Step::Reserve { first, blocks }) => drop(all.live.reserve(first, blocks)),
                Change::Snapshot => {
                    let copy = Model::of(&all.live).cells.to_vec();
                    all.snapshots.push((KeptChunk::default(), copy));
                }
                Change::Delete(index) if index < all.snapshots.len() => all.delete(index),
                Change::Delete(_) => {}
            }
            all.check();
        }
        while !all.snapshots.is_empty() {
            all.delete(all.snapshots.len() / 2);
            all.check();
        }
        prop_assert!(all.shared.is_empty(), "each unit is the live chunk's alone");
    }

    #[test]
    fn decoding_foreign_bytes_fails_or_gives_a_whole_kept_chunk(
        count in 0u8..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        first in any::<u8>(),
    ) {
        // A run that covers much, so that an extent may fit.
        for bytes in [[vec![count], bytes.clone()].concat(), [vec![1, first, 255 - first], bytes].concat()] {
            if let Ok(kept) = KeptChunk::decode(&bytes) {
                prop_assert_eq!(kept.encode(), bytes);
                prop_assert_eq!(kept.chunk().reserved_blocks(), 0);
                for extent in kept.chunk().extents() {
                    prop_assert!(kept.covers(extent.first, extent.blocks));
                }
            }
        }
    }
}

#[test]
fn kept_chunks_that_break_the_form_are_refused() {
    let mut kept = KeptChunk::default();
    kept.keep(4, 4, &[Extent::from_sealed(4, &sealed(2, 1, 4))]);
    kept.keep(10, 1, &[]);
    let good = kept.encode();
    assert_eq!(good[..5], [2, 4, 3, 10, 0]);
    assert_eq!(KeptChunk::decode(&good), Ok(kept));
    let extents = &good[5..];
    let with = |runs: &[u8]| KeptChunk::decode(&[runs, extents].concat());
    with(&[1, 4, 3]).unwrap();
    with(&[1, 0, 255]).unwrap();
    for runs in [
        &[0][..],
        // Covers less than it keeps.
        &[1, 4, 2],
        // Runs that meet, overlap, are in the wrong order, or leave the chunk.
        &[2, 4, 3, 8, 0],
        &[2, 4, 3, 7, 0],
        &[2, 10, 0, 4, 3],
        &[1, 4, 252],
    ] {
        with(runs).unwrap_err();
    }
    KeptChunk::decode(&good[..2]).unwrap_err();
    let reserved = [&[1, 0, 255][..], extents, &[20, 0, 32]].concat();
    KeptChunk::decode(&reserved).unwrap_err();
    assert_eq!(KeptChunk::decode(&[]), Ok(KeptChunk::default()));
}

#[test]
fn births_are_of_the_newest_snapshot_that_covers_a_block() {
    let kept = |first, blocks| {
        let mut kept = KeptChunk::default();
        kept.keep(first, blocks, &[]);
        kept
    };
    let mut births = Births::after(2);
    births.note(&kept(0, 10), 5);
    births.note(&kept(5, 10), 3);
    assert_eq!(
        [0, 9, 10, 14, 15].map(|block| births.since(block)),
        [5, 5, 3, 3, 2]
    );
    let extents = [
        Extent::from_sealed(8, &sealed(1, 1, 4)),
        Extent::from_sealed(14, &sealed(1, 9, 4)),
    ];
    assert_eq!(births.count(&extents), [(2, 3), (3, 3), (5, 2)]);
}

#[test]
#[should_panic(expected = "covered once")]
fn a_block_is_not_covered_twice() {
    let mut kept = KeptChunk::default();
    kept.keep(3, 4, &[]);
    kept.keep(6, 4, &[]);
}

#[test]
#[should_panic(expected = "covered blocks")]
fn nothing_is_kept_for_blocks_that_are_not_covered() {
    let mut kept = KeptChunk::default();
    kept.keep(0, 3, &[]);
    kept.rewrite(0, 4, &[Extent::from_sealed(0, &sealed(1, 1, 4))]);
}
