//! What the fuzz target for extent maps tries, and what must hold whatever the bytes are.
//!
//! 1. A map that is read is written with the same bytes, keeps the invariants of [`Extent`] and [`Chunk`], and has at
//!    most one extent a block.
//! 2. Changing a map that was read does to each of its 256 blocks what was asked, and to no other; what comes of it
//!    can be written and read.
//! 3. A unit called released is one that nothing in the map refers to.
//! 4. The edit between two maps makes the second of the first, and changes the second no more. An edit that is read changes the blocks
//!    that it names and no others.

use super::{CHUNK, Chunk, Extent, MapEdit, Released, UNIT};
use crate::{BLOCK_LEN, BlockRange, NoncePart, Sealed, SegmentNo, Tag, Tags, UNIT_BLOCKS};

/// Bytes of one change.
const STEP: usize = 4;

/// One number (less 1) of changes, the changes, and the stored form of a map.
pub fn extent_map(bytes: &[u8]) {
    let Some((steps, rest)) = bytes.split_first() else {
        return;
    };
    let Some((steps, map)) = rest.split_at_checked(usize::from(steps % 8) * STEP) else {
        return;
    };
    let mut chunk = match Chunk::decode(map) {
        Ok(chunk) => chunk,
        Err(problem) => {
            assert!(problem.len() < 200, "{problem}");
            return;
        }
    };
    assert_eq!(chunk.encode(), map, "one map has one writing");
    assert_sound(&chunk);
    for step in steps.as_chunks::<STEP>().0 {
        let before = chunk.clone();
        change(&mut chunk, *step);
        assert_sound(&chunk);
        if let Some(edit) = chunk.encode_after(&before.encode()).edit {
            assert_made_by(&edit, before, &chunk);
        }
    }
}

/// Two bytes with the length of an edit, the edit, and the stored form of a map.
pub fn map_edit(bytes: &[u8]) {
    let mut map = bytes;
    let Some(len) = map.split_off(..2) else {
        return;
    };
    let len = usize::from(u16::from_le_bytes([len[0], len[1]]));
    let Some(bytes) = map.split_off(..len) else {
        return;
    };
    let (edit, chunk) = match (MapEdit::decode(bytes), Chunk::decode(map)) {
        (Ok(edit), Ok(chunk)) => (edit, chunk),
        (Err(problem), _) | (_, Err(problem)) => {
            assert!(problem.len() < 200, "{problem}");
            return;
        }
    };
    let mut alone = Chunk::default();
    edit.apply(&mut alone);
    assert_sound(&alone);
    assert!(bytes.ends_with(&alone.encode()), "one edit has one writing");
    let mut edited = chunk.clone();
    edit.apply(&mut edited);
    assert_sound(&edited);
    let (old, new, own) = (cells(&chunk), cells(&edited), cells(&alone));
    for block in 0..CHUNK {
        let at = usize::from(block);
        let is_own = edit.blocks.has(block);
        assert_eq!(new[at], if is_own { own[at] } else { old[at] });
        let from = if is_own { &alone } else { &chunk };
        assert_eq!(edited.allocated(block, 1), from.allocated(block, 1));
    }
    assert_made_by(bytes, edited.clone(), &edited);
    if let Some(between) = edited.encode_after(&chunk.encode()).edit {
        assert_made_by(&between, chunk, &edited);
    }
}

fn assert_made_by(edit: &[u8], mut before: Chunk, after: &Chunk) {
    let edit = MapEdit::decode(edit).expect("our own edit is read");
    for _ in 0..2 {
        edit.apply(&mut before);
        assert_eq!(before, *after);
    }
}

/// A block of a file: its unit, its place in the unit, and what opens the unit.
type Cell = Option<(BlockRange, u16, NoncePart, Tag)>;

fn cells(chunk: &Chunk) -> Vec<Cell> {
    let mut cells = vec![None; usize::from(CHUNK)];
    for extent in chunk.extents() {
        let units: Vec<_> = extent.units().collect();
        for index in 0..extent.blocks {
            let at = u16::from(extent.skip) + index;
            let (unit, tag) = units[usize::from(at / UNIT)];
            let cell = &mut cells[usize::from(extent.first + index)];
            assert_eq!(*cell, None, "two extents for one block");
            *cell = Some((unit, at % UNIT, extent.nonce, tag));
        }
    }
    cells
}

fn assert_sound(chunk: &Chunk) {
    assert!(chunk.extents().len() <= usize::from(CHUNK));
    for extent in chunk.extents() {
        assert_eq!(extent.fault(), None);
    }
    let cells = cells(chunk);
    let filled = cells.iter().flatten().count();
    let reserved = chunk.reserved_blocks() as usize;
    assert_eq!(chunk.blocks() as usize, filled + reserved);
    assert_eq!(chunk.is_empty(), filled + reserved == 0);
    for (first, blocks) in chunk.reserved_runs() {
        let run = usize::from(first)..usize::from(first + blocks);
        assert!(
            cells[run].iter().all(Option::is_none),
            "stored and reserved"
        );
    }
    for (block, cell) in (0..).zip(&cells) {
        match chunk.find(block) {
            Ok(extent) => {
                assert!(cell.is_some() && (extent.first..extent.end()).contains(&block));
            }
            Err(end) => {
                let hole = usize::from(block)..usize::from(end);
                assert!(end > block && cells[hole].iter().all(Option::is_none));
            }
        }
    }
    let again = Chunk::decode(&chunk.encode());
    assert_eq!(again.as_ref(), Ok(chunk));
}

fn change(chunk: &mut Chunk, [kind, first, less_one, other]: [u8; STEP]) {
    let first = u16::from(first);
    let blocks = (u16::from(less_one) + 1).min(CHUNK - first);
    let mut wanted = cells(chunk);
    let place = usize::from(first)..usize::from(first + blocks);
    if kind >= 128 {
        let before = chunk.clone();
        let fresh = chunk.reserve(first, blocks);
        assert_eq!(cells(chunk), wanted, "reserving stores nothing");
        assert_eq!(chunk.blocks(), before.blocks() + fresh);
        return;
    }
    let with = match kind % 4 {
        0 => Vec::new(),
        1 => vec![written(first, blocks, other)],
        2 => {
            let from = u16::from(other);
            let blocks = blocks.min(CHUNK - from);
            let mut pieces = chunk.slice(from, blocks);
            for piece in &mut pieces {
                piece.first = piece.first - from + first;
            }
            pieces
        }
        _ => {
            chunk.mark_shared(first, blocks);
            assert_eq!(cells(chunk), wanted, "sharing moves nothing");
            return;
        }
    };
    wanted[place.clone()].fill(None);
    let mut alone = Chunk::default();
    alone.replace(first, blocks, &with);
    wanted[place.clone()].clone_from_slice(&cells(&alone)[place]);

    let before = chunk.clone();
    let released = chunk.replace(first, blocks, &with);
    assert_eq!(cells(chunk), wanted);
    assert_released(&before, chunk, &released);
}

/// A fresh append.
fn written(first: u16, blocks: u16, position: u8) -> Extent {
    let blocks = u32::from(blocks);
    let sealed = Sealed {
        segment: SegmentNo(1 << 40),
        position: u32::from(position) * BLOCK_LEN as u32 + 1,
        blocks,
        // Some without one, as in older rooms.
        nonce: NoncePart([0, 0, 0, position & 0xfe]),
        tags: Tags::from_elem([position; 16], blocks.div_ceil(UNIT_BLOCKS) as usize),
        // Of every other one, as in a room that was rekeyed.
        digests: match position % 2 {
            0 => Vec::new(),
            _ => vec![[position; 32]; blocks.div_ceil(UNIT_BLOCKS) as usize],
        },
    };
    Extent::from_sealed(first, &sealed)
}

fn assert_released(before: &Chunk, after: &Chunk, released: &[Released]) {
    for Released { range, .. } in released {
        assert!(range.blocks > 0);
        // A map may name the last positions that there are.
        let positions = range.position..range.position + range.blocks;
        for position in positions.step_by(UNIT_BLOCKS as usize) {
            assert!(before.refers_to(range.segment, position));
            assert!(!after.refers_to(range.segment, position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus;

    #[test]
    fn every_extent_map_of_the_corpus_keeps_the_promises() {
        corpus::each("extent_map", extent_map);
    }

    #[test]
    fn every_edit_of_the_corpus_keeps_the_promises() {
        corpus::each("map_edit", map_edit);
    }

    /// The edits that writing, punching, reserving and sharing make, each with the map that it is for; and some that are none.
    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/map_edit"]
    fn make_edit_seeds() {
        let seed = |edit: &[u8], map: &[u8]| {
            let len = (edit.len() as u16).to_le_bytes();
            [&len[..], edit, map].concat()
        };
        let mut chunk = Chunk::default();
        for first in (0..=250).step_by(5) {
            chunk.replace(first, 2, &[written(first, 2, first as u8)]);
        }
        let mut seeds = Vec::new();
        let mut last = (Vec::new(), Vec::new());
        for (name, step) in [
            ("written", [1, 100, 0, 7]),
            ("punched", [0, 30, 12, 0]),
            ("reserved", [128, 31, 20, 0]),
            ("shared", [3, 10, 3, 0]),
            ("copied", [2, 200, 20, 100]),
            ("same", [0, 40, 0, 0]),
        ] {
            let before = chunk.encode();
            change(&mut chunk, step);
            let edit = chunk
                .encode_after(&before)
                .edit
                .expect("an edit is shorter");
            seeds.push((name, seed(&edit, &before)));
            if name == "written" {
                last = (edit, before);
            }
        }
        // Over another map, whose extents it cuts; without its blocks; cut off.
        let whole = {
            let mut chunk = Chunk::default();
            chunk.replace(0, CHUNK, &[written(0, CHUNK, 3)]);
            chunk.encode()
        };
        let (edit, before) = last;
        seeds.push(("cutting", seed(&edit, &whole)));
        seeds.push((
            "without-blocks",
            seed(&[&[0], &edit[3..]].concat(), &before),
        ));
        seeds.push(("cut", seed(&edit[..edit.len() - 1], &before)));
        corpus::replace_seeds("map_edit", seeds);
    }

    /// The maps that writing, punching and cloning in a room leave, each with some changes before it.
    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/extent_map"]
    fn make_seeds() {
        let mut chunk = Chunk::default();
        let mut seeds = vec![("empty", vec![2, 1, 0, 9, 1, 0, 4, 3, 0])];
        for (name, steps) in [
            ("one-append", [[1, 0, 255, 0]].as_slice()),
            ("small", &[[0, 0, 255, 0], [1, 17, 0, 3]]),
            ("appended-to", &[[1, 18, 5, 4], [1, 24, 200, 5]]),
            ("punched", &[[0, 30, 2, 0], [0, 99, 50, 0]]),
            ("cloned", &[[3, 20, 40, 0], [2, 0, 17, 20]]),
            ("patched", &[[1, 40, 0, 6], [1, 42, 1, 7], [1, 150, 4, 8]]),
        ] {
            for step in steps {
                change(&mut chunk, *step);
            }
            let next = [vec![2], vec![0, 10, 30, 0], vec![2, 100, 60, 5]].concat();
            seeds.push((name, [next, chunk.encode()].concat()));
        }
        let mut scattered = Chunk::default();
        for first in (0..=250).step_by(5) {
            scattered.replace(first, 2, &[written(first, 2, first as u8)]);
        }
        seeds.push(("scattered", [vec![0], scattered.encode()].concat()));
        scattered.reserve(100, 100);
        let steps = vec![2, 130, 0, 90, 0, 1, 150, 9, 0];
        seeds.push(("reserved", [steps, scattered.encode()].concat()));
        // Not maps: two extents for a block, a bit that means nothing, an extent that goes on behind the bytes.
        let (one, other) = (written(0, 5, 1), written(4, 5, 2));
        let of = |extent: Extent| {
            let mut chunk = Chunk::default();
            chunk.replace(extent.first, extent.blocks, &[extent]);
            chunk.encode()
        };
        let mut unknown = of(one.clone());
        unknown[2] |= 1 << 7;
        let mut empty_nonce = of(one.clone());
        empty_nonce[2] |= 1 << 6;
        empty_nonce.splice(15..15, [0; 4]);
        let cut = of(one.clone())[..20].to_vec();
        for (name, map) in [
            ("overlapping", [of(one), of(other)].concat()),
            ("unknown-bit", unknown),
            ("empty-nonce", empty_nonce),
            ("cut", cut),
        ] {
            seeds.push((name, [vec![0], map].concat()));
        }
        corpus::replace_seeds("extent_map", seeds);
    }
}
