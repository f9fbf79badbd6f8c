//! Chunks against a model that keeps, for each of the 256 blocks, which block of which unit it is.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

mod edits;
mod kept;

/// A unit: segment, position, length in blocks.
type Unit = (u64, u32, u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    unit: Unit,
    block: u32,
    nonce: NoncePart,
    tag: Tag,
}

#[derive(Clone)]
struct Model {
    cells: [Option<Cell>; 256],
}

impl Model {
    fn of(chunk: &Chunk) -> Self {
        let mut cells = [None; 256];
        for extent in chunk.extents() {
            assert_eq!(extent.fault(), None);
            let units: Vec<_> = extent.units().collect();
            for i in 0..extent.blocks {
                let at = u32::from(extent.skip) + u32::from(i);
                let (range, tag) = units[(at / UNIT_BLOCKS) as usize];
                // Digests stay with their tags, and with the segments that have them.
                let digest = extent.digests.get((at / UNIT_BLOCKS) as usize);
                assert_eq!(digest.copied(), digest_of(&tag));
                let unit = (range.segment.0, range.position, range.blocks);
                cells[usize::from(extent.first + i)] = Some(Cell {
                    unit,
                    block: at % UNIT_BLOCKS,
                    nonce: extent.nonce,
                    tag,
                });
            }
        }
        Self { cells }
    }

    fn units(&self) -> BTreeSet<Unit> {
        self.cells.iter().flatten().map(|cell| cell.unit).collect()
    }
}

/// An append of `blocks` at `position`, with a different tag for each unit.
fn sealed(segment: u64, position: u32, blocks: u32) -> Sealed {
    let tags = (0..blocks.div_ceil(UNIT_BLOCKS))
        .map(|unit| {
            let mut tag = [0; 16];
            tag[..8].copy_from_slice(&segment.to_le_bytes());
            tag[8..12].copy_from_slice(&(position + unit * UNIT_BLOCKS).to_le_bytes());
            tag
        })
        .collect();
    let mut sealed = Sealed {
        segment: SegmentNo(segment),
        position,
        blocks,
        nonce: NoncePart::NONE,
        tags,
        digests: Vec::new(),
    };
    sealed.digests = sealed.tags.iter().filter_map(digest_of).collect();
    sealed
}

/// The digest of the unit with this tag: units of every other segment have one.
fn digest_of(tag: &Tag) -> Option<crate::Digest> {
    let mut digest = [0x5a; 32];
    digest[..16].copy_from_slice(tag);
    (tag[0] % 2 == 1).then_some(digest)
}

/// The same with a nonce part of its own, but for every third position.
fn appended(segment: u64, position: u32, blocks: u32) -> Sealed {
    Sealed {
        nonce: match position % 3 {
            0 => NoncePart::NONE,
            _ => NoncePart(position.to_be_bytes()),
        },
        ..sealed(segment, position, blocks)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        first: u16,
        blocks: u16,
    },
    Punch {
        first: u16,
        blocks: u16,
    },
    /// Clones a range of the chunk to another place in it.
    Copy {
        from: u16,
        to: u16,
        blocks: u16,
    },
    Share {
        first: u16,
        blocks: u16,
    },
    Reserve {
        first: u16,
        blocks: u16,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0u16..256, prop_oneof![1u16..=5, 1u16..=256]);
    let range = range.prop_map(|(first, blocks)| (first, blocks.min(256 - first)));
    let step = prop_oneof![
        5 => range.clone().prop_map(|(first, blocks)| Step::Write { first, blocks }),
        2 => range.clone().prop_map(|(first, blocks)| Step::Punch { first, blocks }),
        1 => (range.clone(), 0u16..256)
            .prop_map(|((from, blocks), to)| Step::Copy { from, to, blocks: blocks.min(256 - to) }),
        1 => range.clone().prop_map(|(first, blocks)| Step::Share { first, blocks }),
        1 => range.prop_map(|(first, blocks)| Step::Reserve { first, blocks }),
    ];
    proptest::collection::vec(step, 1..60)
}

fn moved(pieces: Vec<Extent>, from: u16, to: u16) -> Vec<Extent> {
    pieces
        .into_iter()
        .map(|piece| Extent {
            first: piece.first - from + to,
            ..piece
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_chunk_does_what_256_single_blocks_would_do(steps in steps()) {
        let mut chunk = Chunk::default();
        let mut model = Model { cells: [None; 256] };
        let mut shared: BTreeMap<Unit, bool> = BTreeMap::new();
        let mut reserved = [false; 256];
        let mut position = 1;
        for step in steps {
            let before = model.units();
            if let Step::Write { first, blocks } | Step::Punch { first, blocks } | Step::Copy { to: first, blocks, .. } = step {
                reserved[usize::from(first)..usize::from(first + blocks)].fill(false);
            }
            let released = match step {
                Step::Write { first, blocks } => {
                    let extent = Extent::from_sealed(first, &appended(7, position, u32::from(blocks)));
                    position += u32::from(blocks);
                    let fresh = Model::of(&Chunk::from_extents(vec![extent.clone()]).unwrap());
                    for i in usize::from(first)..usize::from(first + blocks) {
                        model.cells[i] = fresh.cells[i];
                    }
                    chunk.replace(first, blocks, &[extent])
                }
                Step::Punch { first, blocks } => {
                    model.cells[usize::from(first)..usize::from(first + blocks)].fill(None);
                    chunk.replace(first, blocks, &[])
                }
                Step::Copy { from, to, blocks } => {
                    let source = model.cells;
                    let (f, t, n) = (usize::from(from), usize::from(to), usize::from(blocks));
                    model.cells[t..t + n].copy_from_slice(&source[f..f + n]);
                    let pieces = moved(chunk.slice(from, blocks), from, to);
                    chunk.replace(to, blocks, &pieces)
                }
                Step::Share { first, blocks } => {
                    for cell in model.cells[usize::from(first)..usize::from(first + blocks)].iter().flatten() {
                        shared.insert(cell.unit, true);
                    }
                    chunk.mark_shared(first, blocks);
                    Vec::new()
                }
                Step::Reserve { first, blocks } => {
                    let range = usize::from(first)..usize::from(first + blocks);
                    let holes = range.filter(|i| model.cells[*i].is_none() && !reserved[*i]).collect::<Vec<_>>();
                    prop_assert_eq!(chunk.reserve(first, blocks) as usize, holes.len());
                    holes.into_iter().for_each(|i| reserved[i] = true);
                    Vec::new()
                }
            };
            prop_assert_eq!(&Model::of(&chunk).cells[..], &model.cells[..]);
            let mut end = 0;
            for extent in chunk.extents() {
                prop_assert!(extent.first >= end);
                end = extent.end();
                // A unit marked anywhere is marked everywhere.
                for (unit, _) in extent.units() {
                    let unit = (unit.segment.0, unit.position, unit.blocks);
                    prop_assert!(extent.shared || !shared.contains_key(&unit));
                }
            }

            // Released is exactly what no block refers to any more, each unit once.
            let gone: BTreeSet<Unit> = before.difference(&model.units()).copied().collect();
            let mut blocks = BTreeSet::new();
            for r in &released {
                for block in r.range.position..r.range.position + r.range.blocks {
                    prop_assert!(blocks.insert((r.range.segment.0, block)), "released twice");
                }
            }
            let expected: BTreeSet<_> = gone.iter().flat_map(|u| (u.1..u.1 + u.2).map(|b| (u.0, b))).collect();
            prop_assert_eq!(&blocks, &expected);
            for unit in &gone {
                let range = released.iter().find(|r| {
                    r.range.position <= unit.1 && unit.1 < r.range.position + r.range.blocks
                }).unwrap();
                prop_assert!(range.shared || !shared.contains_key(unit), "a shared unit is released as shared");
                prop_assert!((unit.1 - range.range.position).is_multiple_of(UNIT_BLOCKS), "units have known borders");
                prop_assert!(!chunk.refers_to(SegmentNo(unit.0), unit.1));
            }
            for unit in model.units() {
                prop_assert!(chunk.refers_to(SegmentNo(unit.0), unit.1));
            }
            let stored = model.cells.iter().flatten().count();
            prop_assert_eq!(chunk.blocks() as usize, stored + reserved.iter().filter(|r| **r).count());
            for (first, blocks) in chunk.reserved_runs() {
                prop_assert!(reserved[usize::from(first)..usize::from(first + blocks)].iter().all(|r| *r));
            }
            for block in 0..256u16 {
                let cell = usize::from(block);
                let owned = match chunk.find(block) {
                    Ok(extent) => !extent.shared,
                    Err(_) => reserved[cell],
                };
                prop_assert_eq!(chunk.owns_space(block, 1), owned);
                // Replacing whole units leaves no unit half used.
                let (from, to) = chunk.whole_units(block, 1);
                prop_assert!(from <= block && block < to);
                let unit = model.cells[cell].map(|c| c.unit);
                let others = model.cells.iter().enumerate().filter(|(_, c)| unit.is_some() && c.map(|c| c.unit) == unit);
                for (at, _) in others {
                    prop_assert!((usize::from(from)..usize::from(to)).contains(&at));
                }
            }
            prop_assert_eq!(Chunk::decode(&chunk.encode()), Ok(chunk.clone()));
        }
    }

    #[test]
    fn a_slice_is_the_range_and_nothing_else(steps in steps(), first in 0u16..256, blocks in 0u16..=256) {
        let blocks = blocks.min(256 - first);
        let chunk = built(&steps);
        let mut expected = Model::of(&chunk);
        expected.cells[..usize::from(first)].fill(None);
        expected.cells[usize::from(first + blocks)..].fill(None);
        let slice = Chunk { extents: chunk.slice(first, blocks), ..Chunk::default() };
        prop_assert_eq!(&Model::of(&slice).cells[..], &expected.cells[..]);
    }

    #[test]
    fn find_names_the_extent_or_the_end_of_the_hole(steps in steps()) {
        let chunk = built(&steps);
        let model = Model::of(&chunk);
        for block in 0u16..256 {
            match chunk.find(block) {
                Ok(extent) => {
                    prop_assert!(extent.first <= block && block < extent.end());
                    prop_assert!(model.cells[usize::from(block)].is_some());
                }
                Err(end) => {
                    prop_assert!(model.cells[usize::from(block)..usize::from(end)].iter().all(Option::is_none));
                    prop_assert!(end == 256 || model.cells[usize::from(end)].is_some());
                }
            }
        }
    }

    #[test]
    fn decoding_foreign_bytes_fails_or_gives_a_whole_chunk(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(chunk) = Chunk::decode(&bytes) {
            prop_assert!(chunk.extents().iter().all(|extent| extent.fault().is_none()));
            prop_assert_eq!(chunk.encode(), bytes);
        }
    }
}

fn built(steps: &[Step]) -> Chunk {
    let mut chunk = Chunk::default();
    let mut position = 1;
    for step in steps {
        match *step {
            Step::Write { first, blocks } => {
                let extent = Extent::from_sealed(first, &appended(7, position, u32::from(blocks)));
                position += u32::from(blocks);
                chunk.replace(first, blocks, &[extent]);
            }
            Step::Punch { first, blocks } => drop(chunk.replace(first, blocks, &[])),
            Step::Copy { from, to, blocks } => {
                let pieces = moved(chunk.slice(from, blocks), from, to);
                chunk.replace(to, blocks, &pieces);
            }
            Step::Share { first, blocks } => chunk.mark_shared(first, blocks),
            Step::Reserve { first, blocks } => drop(chunk.reserve(first, blocks)),
        }
    }
    chunk
}

fn released(segment: u64, position: u32, blocks: u32) -> Released {
    Released {
        range: BlockRange {
            segment: SegmentNo(segment),
            position,
            blocks,
        },
        shared: false,
    }
}

#[test]
fn appends_that_continue_each_other_become_one_extent() {
    let mut chunk = Chunk::default();
    for i in 0..64u16 {
        let extent = Extent::from_sealed(i * 4, &sealed(1, 1 + u32::from(i) * 4, 4));
        assert!(chunk.replace(i * 4, 4, &[extent]).is_empty());
    }
    assert_eq!(chunk.extents().len(), 1);
    assert_eq!(chunk.extents()[0].tags.len(), 64);
    // A short unit ends a run: its follower does not begin at a multiple of the unit length.
    let mut chunk = Chunk::default();
    chunk.replace(0, 3, &[Extent::from_sealed(0, &sealed(1, 1, 3))]);
    chunk.replace(3, 4, &[Extent::from_sealed(3, &sealed(1, 4, 4))]);
    assert_eq!(chunk.extents().len(), 2);
}

/// A run of units has one nonce part: joining two appends would leave one of them unreadable.
#[test]
fn appends_with_nonce_parts_of_their_own_stay_apart_and_what_was_cut_is_joined_again() {
    let part = |i: u32| NoncePart((i + 1).to_le_bytes());
    let mut chunk = Chunk::default();
    for i in 0..64 {
        let append = Sealed {
            nonce: part(i),
            ..sealed(2, 1 + i * 4, 4)
        };
        let first = i as u16 * 4;
        chunk.replace(first, 4, &[Extent::from_sealed(first, &append)]);
    }
    assert_eq!(chunk.extents().len(), 64);
    for (i, extent) in (0..).zip(chunk.extents()) {
        assert_eq!((extent.nonce, extent.tags.len()), (part(i), 1));
    }
    // The most a map of whole units can grow by.
    assert_eq!(chunk.encode().len(), 64 * (15 + 4 + 16));
    assert_eq!(Chunk::decode(&chunk.encode()).unwrap(), chunk);

    let whole = Sealed {
        nonce: part(0),
        ..sealed(2, 1, 256)
    };
    let mut chunk = Chunk::default();
    chunk.replace(0, 256, &[Extent::from_sealed(0, &whole)]);
    let (left, right) = (chunk.slice(0, 128), chunk.slice(128, 128));
    let mut again = Chunk::default();
    again.replace(0, 128, &left);
    again.replace(128, 128, &right);
    assert_eq!(again, chunk);
    assert_eq!(chunk.encode().len(), 15 + 4 + 64 * 16);
}

#[test]
fn a_unit_lives_until_its_last_piece_goes() {
    let mut chunk = Chunk::default();
    chunk.replace(0, 8, &[Extent::from_sealed(0, &sealed(1, 1, 8))]);
    assert_eq!(chunk.replace(1, 1, &[]), []);
    assert_eq!(chunk.extents().len(), 2);
    assert_eq!(chunk.replace(0, 1, &[]), []);
    assert_eq!(chunk.replace(2, 2, &[]), [released(1, 1, 4)]);
    assert_eq!(chunk.replace(0, 256, &[]), [released(1, 5, 4)]);
    assert!(chunk.is_empty());
}

#[test]
fn each_kind_of_malformed_map_is_refused() {
    let of_segment = |segment| {
        let mut chunk = Chunk::default();
        chunk.replace(0, 6, &[Extent::from_sealed(0, &sealed(segment, 1, 6))]);
        chunk.encode()
    };
    let good = of_segment(2);
    assert_eq!(good.len(), 15 + 32);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let refused = |bytes: &[u8], word: &str| {
        let said = Chunk::decode(bytes).unwrap_err();
        assert!(said.contains(word), "{said}");
    };
    refused(&good[..good.len() - 1], "ends within");
    refused(&good[..7], "ends within");
    refused(&with(0, 251), "within its chunk");
    // With digests, each tag is followed by one.
    let bound = of_segment(1);
    assert_eq!((bound.len(), bound[2] & 0xe0), (15 + 96, 0x80));
    assert_eq!(
        bound[15 + 16..15 + 48],
        digest_of(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap()
    );
    refused(&bound[..bound.len() - 1], "ends within");
    refused(&with(2, with(2, 0)[2] | 0x80), "ends within");
    // The first four bytes of the first tag are then read as the nonce part.
    refused(&with(2, 0x40), "ends within");
    let with_part = |part: [u8; 4]| [&with(2, 0x40)[..15], &part, &good[15..]].concat();
    let read = Chunk::decode(&with_part([0, 0, 0, 9])).unwrap();
    assert_eq!(read.extents()[0].nonce, NoncePart([0, 0, 0, 9]));
    assert_eq!(read.encode(), with_part([0, 0, 0, 9]));
    refused(&with_part([0; 4]), "empty nonce part");
    // Both: the nonce part comes before the first tag.
    let both = [
        &bound[..2],
        &[bound[2] | 0x40],
        &bound[3..15],
        &[0, 0, 0, 9],
        &bound[15..],
    ]
    .concat();
    let read = Chunk::decode(&both).unwrap();
    assert_eq!(read.extents()[0].nonce, NoncePart([0, 0, 0, 9]));
    assert_eq!(read.extents()[0].digests.len(), 2);
    assert_eq!(read.encode(), both);
    // Three blocks behind six: a third unit that holds nothing of the range.
    let mut surplus = with(2, 3 << 2);
    surplus.extend_from_slice(&[0; 16]);
    refused(&surplus, "do not fit");
    refused(&with(3, 0), "outside every segment");
    refused(&with(7, 0), "impossible segment");
    refused(&with(14, 0x80), "impossible segment");
    refused(&[good.clone(), good.clone()].concat(), "overlap");
    let behind = |records: &[u8]| [good.clone(), records.to_vec()].concat();
    assert_eq!(Chunk::decode(&behind(&[6, 1, 32])).unwrap().blocks(), 8);
    refused(&behind(&[6, 1]), "ends within");
    refused(&behind(&[5, 1, 32]), "stored and reserved");
    refused(&behind(&[250, 6, 32]), "out of order");
    refused(&behind(&[8, 1, 32, 10, 0, 32]), "out of order");
    refused(&behind(&[8, 1, 32, 6, 0, 32]), "out of order");
    refused(&behind(&[8, 1, 32, 20, 0, 48]), "behind the reserved");
    refused(&[&[8, 1, 32], &good[..]].concat(), "behind the reserved");
}

proptest! {
    #[test]
    fn pieces_name_for_each_byte_the_unit_that_holds_it(
        steps in steps(),
        start in 0..CHUNK_LEN,
        len in 0..CHUNK_LEN as usize,
    ) {
        let chunk = built(&steps);
        let len = len.min((CHUNK_LEN - start) as usize);
        let model = Model::of(&chunk);
        let mut at = start;
        for piece in chunk.pieces(start, len) {
            prop_assert!(!piece.is_empty());
            for byte in (at..at + piece.len() as u64).step_by(512) {
                let cell = model.cells[(byte / 4096) as usize];
                match piece {
                    Piece::Hole { .. } => prop_assert_eq!(cell, None),
                    Piece::Stored(stored) => {
                        // Where the byte is in the opened units.
                        let in_units = stored.skip as u64 + byte - at;
                        let block = (in_units / 4096) as u32;
                        let unit = block / UNIT_BLOCKS;
                        let position = stored.range.position + unit * UNIT_BLOCKS;
                        let of_unit = UNIT_BLOCKS.min(stored.range.blocks - unit * UNIT_BLOCKS);
                        let cell = cell.unwrap();
                        prop_assert_eq!(cell.unit, (stored.range.segment.0, position, of_unit));
                        prop_assert_eq!(cell.block, block % UNIT_BLOCKS);
                        prop_assert_eq!(in_units % 4096, byte % 4096);
                        prop_assert_eq!(stored.proofs.tags[unit as usize], cell.tag);
                        prop_assert_eq!(stored.proofs.nonce, cell.nonce);
                    }
                }
            }
            if let Piece::Stored(stored) = piece {
                prop_assert!(stored.proofs.fit(stored.range.blocks.div_ceil(UNIT_BLOCKS) as usize));
                let (from, hidden) = stored.hidden_by(stored.range.position);
                prop_assert!(from <= at && at < from + hidden);
            }
            at += piece.len() as u64;
        }
        prop_assert_eq!(at, start + len as u64);
    }

    #[test]
    fn a_map_that_somebody_else_made_is_taken_only_if_it_is_well_formed(
        steps in steps(),
        which in any::<usize>(),
        spoil in 0..10_u8,
    ) {
        let chunk = built(&steps);
        let mut extents = chunk.extents().to_vec();
        let taken = Chunk::from_extents(extents.clone()).unwrap();
        prop_assert_eq!(taken.extents(), chunk.extents());
        if extents.is_empty() {
            return Ok(());
        }
        let which = which % extents.len();
        let extent = &mut extents[which];
        match spoil {
            0 => extent.blocks = 0,
            1 => extent.first = 256,
            2 => extent.first = u16::MAX,
            3 => extent.blocks = u16::MAX,
            4 => extent.segment = SegmentNo(0),
            5 => extent.position = 0,
            6 => extent.position = u32::MAX,
            7 => extent.skip = u8::MAX,
            8 => extent.tags.push([0; 16]),
            _ => {
                let twice = extent.clone();
                extents.insert(which, twice);
            }
        }
        prop_assert!(Chunk::from_extents(extents).is_err());
    }
}
