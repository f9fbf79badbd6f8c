//! Edits against whole maps.

use super::*;
use crate::{Encoded, MapEdit};

/// What a log has of a map: what is new in it, or all of it where that is as short.
enum Entry {
    Edit(MapEdit),
    Whole(Chunk),
}

fn entry(old: &Chunk, new: &Chunk) -> Entry {
    let Encoded { map, edit } = new.encode_after(&old.encode());
    assert_eq!(map, new.encode());
    match edit {
        Some(edit) => {
            assert!(edit.len() < map.len());
            Entry::Edit(MapEdit::decode(&edit).unwrap())
        }
        None => Entry::Whole(new.clone()),
    }
}

fn apply(entries: &[Entry], chunk: &mut Chunk) {
    for entry in entries {
        match entry {
            Entry::Edit(edit) => edit.apply(chunk),
            Entry::Whole(whole) => chunk.clone_from(whole),
        }
    }
}

/// The maps after each step, the first one before all of them.
fn maps(steps: &[Step]) -> Vec<Chunk> {
    (0..=steps.len()).map(|n| built(&steps[..n])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn edits_make_each_map_of_the_one_before_once_and_again(steps in steps(), at_once in 1usize..5) {
        let maps: Vec<Chunk> = maps(&steps).into_iter().step_by(at_once).collect();
        let entries: Vec<Entry> = maps.windows(2).map(|two| entry(&two[0], &two[1])).collect();
        let mut chunk = maps[0].clone();
        for (one, map) in entries.iter().zip(&maps[1..]) {
            apply(std::slice::from_ref(one), &mut chunk);
            prop_assert_eq!(&chunk, map);
            apply(std::slice::from_ref(one), &mut chunk);
            prop_assert_eq!(&chunk, map);
        }
        // All of them again, over what they came to: the same blocks, perhaps in other extents.
        apply(&entries, &mut chunk);
        let last = &maps[maps.len() - 1];
        prop_assert_eq!(&Model::of(&chunk).cells[..], &Model::of(last).cells[..]);
        prop_assert_eq!(chunk.reserved_runs(), last.reserved_runs());
        prop_assert_eq!(Chunk::decode(&chunk.encode()), Ok(chunk));
    }

    #[test]
    fn decoding_foreign_bytes_fails_or_gives_an_edit_of_its_blocks(
        count in 0u8..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        steps in steps(),
    ) {
        if let Ok(edit) = MapEdit::decode(&[vec![count], bytes].concat()) {
            let mut chunk = built(&steps);
            edit.apply(&mut chunk);
            prop_assert_eq!(Chunk::decode(&chunk.encode()), Ok(chunk));
        }
    }
}

#[test]
fn a_block_of_a_long_map_is_a_short_edit() {
    let mut chunk = Chunk::default();
    for i in 0..64 {
        chunk.replace(
            i * 4,
            2,
            &[Extent::from_sealed(
                i * 4,
                &appended(2, 1 + u32::from(i) * 4, 2),
            )],
        );
    }
    let old = chunk.encode();
    chunk.replace(100, 1, &[Extent::from_sealed(100, &appended(2, 2001, 1))]);
    let new = chunk.encode();
    let edit = chunk.encode_after(&old).edit.unwrap();
    // One run, blocks 100 and 101, with the new extent and what is left of the old one.
    assert_eq!(edit[..4], [1, 100, 1, 100]);
    assert!(old.len() > 2000 && edit.len() < 80, "{}", edit.len());
    assert_eq!(chunk.encode_after(&new).edit.unwrap(), [0]);
    assert_eq!(Chunk::default().encode_after(&new).edit, None);
    let whole = Encoded {
        map: new.clone(),
        edit: None,
    };
    assert_eq!(chunk.encode_after(&[]), whole);
    // One that is cut off is passed over.
    assert_eq!(chunk.encode_after(&old[..old.len() - 1]), whole);
}

#[test]
fn edits_that_break_the_form_are_refused() {
    let mut chunk = Chunk::default();
    chunk.replace(4, 4, &[Extent::from_sealed(4, &sealed(2, 1, 4))]);
    chunk.reserve(20, 2);
    let map = chunk.encode();
    let with = |runs: &[u8]| MapEdit::decode(&[runs, &map].concat());
    assert!(with(&[2, 4, 3, 20, 1]).unwrap().reserves());
    with(&[1, 0, 255]).unwrap();
    for runs in [
        &[][..],
        &[0],
        // Less than its extents, or its reserved holes, take.
        &[2, 4, 2, 20, 1],
        &[2, 4, 3, 20, 0],
        &[1, 4, 3],
        // Runs that meet, overlap or leave the chunk.
        &[3, 4, 3, 8, 0, 20, 1],
        &[3, 4, 3, 7, 0, 20, 1],
        &[2, 4, 3, 20, 250],
    ] {
        with(runs).unwrap_err();
    }
    MapEdit::decode(&[1, 4]).unwrap_err();
    MapEdit::decode(&[]).unwrap_err();
    MapEdit::decode(&[0]).unwrap();
}
