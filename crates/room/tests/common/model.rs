//! Random operations on files of a room, and a plain model of them in memory.

use std::collections::BTreeMap;

use fastrand::Rng;
use room::{Fallocate, FileKind, FileSystem, InodeNo, NewFile, RenameMode, Room, SeekTo, SetAttr};

use super::pattern;

/// The kinds of [`step`]s.
pub const ALL: [u64; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// Those that neither share data between files nor move it within one.
pub const PLAIN: [u64; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15];

/// Files by name, hard links by sharing an index.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Model {
    pub names: BTreeMap<String, usize>,
    pub contents: Vec<Vec<u8>>,
}

/// Runs a random trial with each of the seeds 1 to `seeds`, for so many steps. In the environment, `STRONGROOM_MODEL_SEED` asks for one
/// seed alone, `STRONGROOM_MODEL_SEEDS` for another number of them, and `STRONGROOM_MODEL_STEPS` for another length.
pub fn with_seeds(seeds: u64, steps: u64, run: impl Fn(u64, u64)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    let steps = number("STRONGROOM_MODEL_STEPS").unwrap_or(steps);
    match number("STRONGROOM_MODEL_SEED") {
        Some(seed) => run(seed, steps),
        None => {
            let seeds = number("STRONGROOM_MODEL_SEEDS").unwrap_or(seeds);
            (1..=seeds).for_each(|seed| run(seed, steps));
        }
    }
}

const NAMES: u64 = 6;
const LARGEST: u64 = 2_500_000;

fn name(r: &mut Rng) -> String {
    format!("f{}", r.u64(..NAMES))
}

fn aligned(r: &mut Rng, value: u64) -> u64 {
    if r.bool() { value / 4096 * 4096 } else { value }
}

pub fn step(room: &Room, model: &mut Model, r: &mut Rng, kinds: &[u64]) -> String {
    let root = InodeNo::ROOT;
    let n = name(r);
    let existing = model.names.get(&n).copied();
    let kind = kinds[r.usize(..kinds.len())];
    let Some(i) = existing else {
        room.make(root, n.as_bytes(), &NewFile::of_kind(FileKind::Regular))
            .unwrap();
        model.names.insert(n.clone(), model.contents.len());
        model.contents.push(Vec::new());
        return format!("make {n}");
    };
    let no = room.lookup(root, n.as_bytes()).unwrap().no;
    let size = model.contents[i].len() as u64;
    match kind {
        0..=4 => {
            let spread = [4096, 65536, LARGEST][r.usize(..3)];
            let offset = if r.u64(..3) == 0 {
                size
            } else {
                r.u64(..LARGEST)
            };
            let offset = aligned(r, offset).min(LARGEST);
            let len = 1 + r.u64(..spread);
            let data = pattern(r.u64(..), len as usize);
            room.write(no, offset, &data).unwrap();
            let end = (offset + len) as usize;
            let content = &mut model.contents[i];
            if content.len() < end {
                content.resize(end, 0);
            }
            content[offset as usize..end].copy_from_slice(&data);
            format!("write {n} {offset} {len}")
        }
        5 => {
            let to = r.u64(..LARGEST);
            let to = aligned(r, to);
            room.set_attributes(no, &SetAttr::size(to)).unwrap();
            model.contents[i].resize(to as usize, 0);
            format!("truncate {n} {to}")
        }
        6 | 7 => {
            let offset = r.u64(..LARGEST);
            let offset = aligned(r, offset);
            let len = 1 + r.u64(..300_000);
            let len = aligned(r, len).max(1);
            room.fallocate(no, Fallocate::PunchHole, offset, len)
                .unwrap();
            let content = &mut model.contents[i];
            let (from, to) = (
                (offset.min(size)) as usize,
                (offset + len).min(size) as usize,
            );
            content[from..to].fill(0);
            format!("punch {n} {offset} {len}")
        }
        8 => {
            let offset = r.u64(..size + 1) / 4096 * 4096;
            let len = (1 + r.u64(..100)) * 4096;
            if offset + len < size {
                room.fallocate(no, Fallocate::Collapse, offset, len)
                    .unwrap();
                model.contents[i].drain(offset as usize..(offset + len) as usize);
            }
            format!("collapse {n} {offset} {len}")
        }
        9 => {
            let offset = r.u64(..size + 1) / 4096 * 4096;
            let len = (1 + r.u64(..100)) * 4096;
            if offset < size && size + len < 2 * LARGEST {
                room.fallocate(no, Fallocate::Insert, offset, len).unwrap();
                let tail = model.contents[i].split_off(offset as usize);
                model.contents[i].resize((offset + len) as usize, 0);
                model.contents[i].extend(tail);
            }
            format!("insert {n} {offset} {len}")
        }
        10 | 11 => {
            let other = name(r);
            let Some(&j) = model.names.get(&other) else {
                return "nothing".into();
            };
            let to = room.lookup(root, other.as_bytes()).unwrap().no;
            let from_offset = r.u64(..size + 1);
            let from_offset = aligned(r, from_offset);
            let to_offset = r.u64(..LARGEST);
            let to_offset = aligned(r, to_offset);
            let len = 1 + r.u64(..1_500_000);
            let len = aligned(r, len).max(1);
            if i == j && from_offset < to_offset + len && to_offset < from_offset + len {
                return "nothing".into();
            }
            let copied = room
                .copy_range(no, from_offset, to, to_offset, len)
                .unwrap();
            let expected = len.min(size.saturating_sub(from_offset));
            assert_eq!(copied, expected);
            let data =
                model.contents[i][from_offset as usize..(from_offset + expected) as usize].to_vec();
            if !data.is_empty() {
                let content = &mut model.contents[j];
                let end = to_offset as usize + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[to_offset as usize..end].copy_from_slice(&data);
            }
            format!("copy {n} {from_offset} {other} {to_offset} {len}")
        }
        12 => {
            room.unlink(root, n.as_bytes()).unwrap();
            model.names.remove(&n);
            format!("unlink {n}")
        }
        13 => {
            let to = name(r);
            let mode = if model.names.contains_key(&to) && r.bool() {
                RenameMode::Exchange
            } else {
                RenameMode::Replace
            };
            room.rename(root, n.as_bytes(), root, to.as_bytes(), mode)
                .unwrap();
            if n != to && model.names.get(&to) != Some(&i) {
                let old = model.names.remove(&n);
                if let (RenameMode::Exchange, Some(&j)) = (mode, model.names.get(&to)) {
                    model.names.insert(n.clone(), j);
                }
                model.names.insert(to.clone(), old.unwrap());
            }
            format!("rename {n} {to} {mode:?}")
        }
        14 => {
            let to = name(r);
            if !model.names.contains_key(&to) {
                room.link(no, root, to.as_bytes()).unwrap();
                model.names.insert(to.clone(), i);
            }
            format!("link {n} {to}")
        }
        _ => {
            let offset = r.u64(..size + 1);
            let mut buf = vec![0; r.usize(..200_000)];
            let read = room.read(no, offset, &mut buf).unwrap();
            let end = (offset as usize + buf.len()).min(size as usize);
            assert_eq!(buf[..read], model.contents[i][offset as usize..end]);
            format!("read {n} {offset}")
        }
    }
}

pub fn compare(room: &dyn FileSystem, model: &Model) {
    let found: Vec<String> = room
        .read_dir(InodeNo::ROOT, 0, 1000)
        .unwrap()
        .into_iter()
        .map(|(e, _)| String::from_utf8(e.name).unwrap())
        .collect();
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(sorted, model.names.keys().cloned().collect::<Vec<_>>());
    for (name, i) in &model.names {
        let inode = room.lookup(InodeNo::ROOT, name.as_bytes()).unwrap();
        let links = model.names.values().filter(|j| *j == i).count();
        assert_eq!(inode.nlink as usize, links, "{name}");
        let mut data = vec![0; inode.size as usize];
        room.read(inode.no, 0, &mut data).unwrap();
        assert!(data == model.contents[*i], "{name} differs");
        // What is between data and hole is what was written, and a hole is zeros.
        let mut at = 0;
        while at < inode.size {
            let hole = room.seek(inode.no, at, SeekTo::Hole).unwrap();
            let data = room
                .seek(inode.no, hole, SeekTo::Data)
                .unwrap_or(inode.size);
            assert!(
                model.contents[*i][hole as usize..data as usize]
                    .iter()
                    .all(|b| *b == 0)
            );
            assert!(data > at || hole > at);
            at = data;
        }
    }
}
