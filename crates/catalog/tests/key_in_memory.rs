//! Where the catalog's key is in memory while a catalog is open. In a program of its own, with one test: all its memory is looked at.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use seal::{MasterKey, RoomId};
use storage::{HostStorage, Storage};
use strongroom_catalog::{Catalog, OpenOptions};

/// Keys, masks and pieces of what was read, each as the bits that its bytes do not have: otherwise the test would find its own copies.
type Absent = [u8; 32];

/// A mapping of this process that can be read.
struct Mapping {
    from: u64,
    to: u64,
    is_locked: bool,
    is_dumped: bool,
}

fn mappings() -> Vec<Mapping> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let (mut all, mut range) = (Vec::new(), None);
    for line in smaps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((from, to)) = first.split_once('-') {
            range = hex(from).zip(hex(to));
        } else if let (Some((from, to)), "VmFlags:") = (range, first) {
            let has = |flag| rest.split(' ').any(|f| f == flag);
            if has("rd") && has("wr") && !has("io") {
                let (is_locked, is_dumped) = (has("lo"), !has("dd"));
                all.push(Mapping {
                    from,
                    to,
                    is_locked,
                    is_dumped,
                });
            }
        }
    }
    all
}

/// Gives `each` every 32 bytes of a mapping that begin at a multiple of `step`.
fn each_piece(memory: &File, mapping: &Mapping, step: usize, mut each: impl FnMut(u64, Absent)) {
    let mut page = vec![0; 4096 + 31];
    for at in (mapping.from..mapping.to).step_by(4096) {
        let len = page.len().min((mapping.to - at) as usize);
        if memory.read_exact_at(&mut page[..len], at).is_err() {
            continue;
        }
        page.iter_mut().for_each(|byte| *byte = !*byte);
        for first in (0..4096.min(len - 31)).step_by(step) {
            each(
                at + first as u64,
                page[first..first + 32].try_into().unwrap(),
            );
        }
        page.fill(0);
    }
}

#[test]
fn no_core_dump_has_the_key_of_an_open_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(dir.path()).unwrap());
    let key = MasterKey::random().catalog_key(&RoomId::random());
    let absent: Vec<Absent> = {
        let hex = key.to_hex();
        let raw: Vec<u8> = (0..64)
            .step_by(2)
            .map(|at| !u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        let digits: Vec<u8> = hex.bytes().map(|byte| !byte).collect();
        // The first words of an expanded key, where they are kept as numbers.
        let words: Vec<u8> = raw
            .chunks(4)
            .flat_map(|w| w.iter().rev().copied())
            .collect();
        [&raw[..], &digits[..32], &digits[32..], &words]
            .map(|part| part.try_into().unwrap())
            .to_vec()
    };
    let catalog = Catalog::create(&storage, "catalog.db", &key, &OpenOptions::default()).unwrap();
    catalog.set_meta("a", b"b").unwrap();
    catalog.commit().unwrap();

    let memory = File::open("/proc/self/mem").unwrap();
    let mappings = mappings();
    // SQLCipher masks the key with 32 bytes that are elsewhere in locked memory. With a mask that is dumped, what it masks must not be.
    let (mut masked, mut masked_in_dump) = (HashSet::new(), HashSet::new());
    for mapping in mappings.iter().filter(|mapping| mapping.is_locked) {
        each_piece(&memory, mapping, 8, |_, mask| {
            let piece: Absent = std::array::from_fn(|at| absent[0][at] ^ !mask[at]);
            if mask != absent[0] {
                masked.insert(piece);
                if mapping.is_dumped {
                    masked_in_dump.insert(piece);
                }
            }
        });
    }
    let (mut dumped, mut kept) = (Vec::new(), HashSet::new());
    for mapping in &mappings {
        let masked = match mapping.is_dumped {
            true => &masked_in_dump,
            false => &masked,
        };
        each_piece(&memory, mapping, 1, |at, piece| {
            let what = match absent.iter().position(|part| *part == piece) {
                Some(0) => "the key",
                Some(3) => "the expanded key",
                Some(_) => "digits of the key",
                None if masked.contains(&piece) => "the masked key",
                None => return,
            };
            match mapping.is_dumped {
                true => dumped.push(format!("{what} at {at:x}")),
                false => drop(kept.insert(what)),
            }
        });
    }
    assert_eq!(dumped, [""; 0]);
    assert!(kept.contains("the key"), "what is looked for is there");
    // Nothing is locked where that is not allowed; the mask is not known then.
    assert!(masked.is_empty() || kept.contains("the masked key"));
    drop(catalog);
}
