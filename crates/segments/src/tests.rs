//! The promises of [`DirStore`], each by name: round trips, damage, durability, positions written once.

mod concurrency;
mod damage;
mod durability;
mod grants;
mod upkeep;

use std::sync::Arc;

use proptest::prelude::*;
use seal::Suite;
use storage::testing::{FaultyStorage, MemoryStorage};
use storage::{OpenMode, Storage};

use crate::testkeys::{keyring, keyring_with, rekeyed};
use crate::*;

/// A store in memory that can be made to fail.
struct Bench {
    memory: MemoryStorage,
    faults: FaultyStorage<MemoryStorage>,
    store: DirStore,
    /// What the catalog would know.
    known: Vec<SegmentId>,
}

impl Bench {
    fn new() -> Self {
        let memory = MemoryStorage::new();
        let faults = FaultyStorage::new(memory.clone());
        let store = open(&faults, Vec::new());
        Self {
            memory,
            faults,
            store,
            known: Vec::new(),
        }
    }

    fn append(&mut self, blocks: usize, seed: u8) -> Written {
        let written = append(&self.store, blocks, seed);
        self.known.extend(self.store.take_new());
        written
    }

    /// Opens the store again with what the catalog would know.
    fn reopen(&mut self) {
        self.known.extend(self.store.take_new());
        self.store = open(&self.faults, self.known.clone());
    }

    /// Changes the stored bytes of a segment from outside.
    fn patch(&self, segment: SegmentNo, offset: u64, bytes: &[u8]) {
        let file = self
            .memory
            .open(&file_name(segment), OpenMode::ReadWrite)
            .unwrap();
        file.write_at(bytes, offset).unwrap();
    }

    fn bytes(&self, segment: SegmentNo, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let file = self
            .memory
            .open(&file_name(segment), OpenMode::Read)
            .unwrap();
        file.read_at(&mut bytes, offset).unwrap();
        bytes
    }
}

/// An append and what was appended.
#[derive(Clone)]
struct Written {
    sealed: Sealed,
    plain: Vec<u8>,
}

impl Written {
    fn range(&self) -> BlockRange {
        BlockRange {
            segment: self.sealed.segment,
            position: self.sealed.position,
            blocks: self.sealed.blocks,
        }
    }

    fn read(&self, store: &DirStore) -> (Result<(), SegmentError>, Vec<u8>) {
        let mut out = vec![0xaa; self.plain.len()];
        let result = store.read(self.range(), self.sealed.proofs(), &mut out);
        (result, out)
    }

    #[track_caller]
    fn assert_readable(&self, store: &DirStore) {
        let (result, out) = self.read(store);
        result.unwrap();
        assert!(out == self.plain, "other bytes than were written");
    }

    /// Reads each unit by itself; which of them open.
    fn units_that_open(&self, store: &DirStore) -> Vec<bool> {
        let units = self.plain.chunks(UNIT_LEN).enumerate();
        units
            .map(|(index, plain)| {
                let range = BlockRange {
                    position: self.sealed.position + index as u32 * UNIT_BLOCKS,
                    blocks: (plain.len() / BLOCK_LEN) as u32,
                    ..self.range()
                };
                let mut out = vec![0xaa; plain.len()];
                let proofs = self.sealed.proofs().slice(index, index + 1);
                match store.read(range, proofs, &mut out) {
                    Ok(()) => {
                        assert!(out == plain);
                        true
                    }
                    Err(_) => {
                        assert!(
                            out.iter().all(|b| *b == 0),
                            "what does not verify is handed out"
                        );
                        false
                    }
                }
            })
            .collect()
    }
}

fn open(storage: &FaultyStorage<MemoryStorage>, known: Vec<SegmentId>) -> DirStore {
    DirStore::open(Arc::new(storage.clone()), keyring(), known, SegmentNo(1)).unwrap()
}

fn append(store: &DirStore, blocks: usize, seed: u8) -> Written {
    let plain = plain(blocks, seed);
    Written {
        sealed: store.append(&plain).unwrap(),
        plain,
    }
}

/// Bytes that differ from block to block and from seed to seed.
fn plain(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK_LEN)
        .map(|i| (i / BLOCK_LEN) as u8 ^ seed ^ (i % 251) as u8)
        .collect()
}

#[test]
fn what_was_appended_is_read_back() {
    let mut bench = Bench::new();
    let written: Vec<_> = [1, 3, 4, 5, 255, 256]
        .into_iter()
        .map(|n| bench.append(n, n as u8))
        .collect();
    for w in &written {
        assert_eq!(w.sealed.tags.len(), w.plain.len().div_ceil(UNIT_LEN));
        assert_eq!(w.sealed.blocks as usize * BLOCK_LEN, w.plain.len());
        w.assert_readable(&bench.store);
    }
    assert_eq!(bench.known.len(), 1);
    assert_eq!(
        bench.store.open_segment(),
        Some((SegmentNo(1), 1 + 1 + 3 + 4 + 5 + 255 + 256))
    );
    bench.reopen();
    written.iter().for_each(|w| w.assert_readable(&bench.store));
}

#[test]
fn stored_bytes_are_the_sealed_ones_at_their_position() {
    let mut bench = Bench::new();
    let w = bench.append(5, 9);
    let keys = keyring().unit_keys(&bench.known[0]).unwrap();
    let mut cipher = keys.cipher();
    let mut units = w.plain.clone();
    for (index, unit) in units.chunks_mut(UNIT_LEN).enumerate() {
        let position = w.sealed.position + 4 * index as u32;
        let tag = cipher.seal(w.sealed.nonce, position, unit);
        assert_eq!(tag, w.sealed.tags[index]);
    }
    assert_eq!(
        bench.bytes(w.sealed.segment, BLOCK_LEN as u64, units.len()),
        units
    );
}

#[test]
fn both_suites_read_what_they_wrote() {
    for suite in Suite::ALL {
        let storage = Arc::new(MemoryStorage::new());
        let store = DirStore::open(
            storage,
            keyring_with(suite, [3; 16]),
            Vec::new(),
            SegmentNo(1),
        )
        .unwrap();
        append(&store, 7, 1).assert_readable(&store);
        store.check_header(SegmentNo(1)).unwrap();
    }
}

#[test]
fn a_full_segment_is_followed_by_the_next() {
    let mut bench = Bench::new();
    let written: Vec<_> = (0..65).map(|seed| bench.append(256, seed)).collect();
    assert_eq!(
        bench.known.iter().map(|id| id.no.0).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_ne!(bench.known[0].salt, bench.known[1].salt);
    let file = bench.store.list().unwrap()[0];
    assert_eq!(file.no, SegmentNo(1));
    assert!(file.len <= u64::from(SEGMENT_BLOCKS) * BLOCK_LEN as u64);
    written.iter().for_each(|w| w.assert_readable(&bench.store));
}

#[test]
fn new_segments_are_reported_once() {
    let store = Bench::new().store;
    assert!(store.take_new().is_empty());
    store.append(&plain(1, 0)).unwrap();
    store.rotate().unwrap();
    assert_eq!(store.open_segment(), None);
    store.append(&plain(1, 0)).unwrap();
    assert_eq!(store.take_new().len(), 2);
    assert!(store.take_new().is_empty());
}

#[test]
fn a_new_epoch_seals_apart_and_the_old_stays_readable() {
    let mut bench = Bench::new();
    let old = bench.append(3, 1);
    bench.store.set_keyring(rekeyed());
    let new = bench.append(3, 2);
    assert_eq!(
        bench
            .known
            .iter()
            .map(|id| id.key_epoch)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    for w in [&old, &new] {
        w.assert_readable(&bench.store);
        bench.store.check_header(w.sealed.segment).unwrap();
    }
    bench.reopen();
    old.assert_readable(&bench.store);
    let (result, out) = new.read(&bench.store);
    assert!(matches!(
        result,
        Err(SegmentError::UnknownEpoch {
            segment: SegmentNo(2),
            key_epoch: 2
        })
    ));
    assert!(out.iter().all(|b| *b == 0));
}

#[test]
fn keys_are_never_printed() {
    let mut bench = Bench::new();
    bench.append(1, 1);
    let printed = format!("{:?}", bench.store);
    assert!(
        printed.contains("DataKey(..)") && printed.contains("SegmentKey("),
        "{printed}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_order_of_appends_rotations_and_reopenings_reads_back(
        steps in prop::collection::vec((1_usize..=40, any::<u8>(), 0_u8..8), 1..20)
    ) {
        let mut bench = Bench::new();
        let mut written = Vec::new();
        for (blocks, seed, what) in steps {
            match what {
                0 => bench.store.rotate().unwrap(),
                1 => { bench.store.flush().unwrap(); bench.reopen() }
                _ => written.push(bench.append(blocks, seed)),
            }
        }
        for w in &written {
            w.assert_readable(&bench.store);
        }
        // No two appends share a block.
        let mut taken = std::collections::HashSet::new();
        for w in &written {
            for block in w.sealed.position..w.sealed.position + w.sealed.blocks {
                prop_assert!(taken.insert((w.sealed.segment, block)));
            }
        }
    }

    #[test]
    fn any_whole_units_of_an_append_read_alone(blocks in 1_usize..=64, from in 0_usize..16, count in 1_usize..=16) {
        let mut bench = Bench::new();
        let w = bench.append(blocks, 77);
        let units = w.sealed.tags.len();
        let from = from % units;
        let to = (from + count).min(units);
        let bytes = from * UNIT_LEN..(to * UNIT_LEN).min(w.plain.len());
        let range = BlockRange {
            position: w.sealed.position + from as u32 * UNIT_BLOCKS,
            blocks: (bytes.len() / BLOCK_LEN) as u32,
            ..w.range()
        };
        let mut out = vec![0; bytes.len()];
        bench.store.read(range, w.sealed.proofs().slice(from, to), &mut out).unwrap();
        prop_assert!(out == w.plain[bytes]);
    }
}
