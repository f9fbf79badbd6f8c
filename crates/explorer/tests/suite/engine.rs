//! The engine against brute force, on tiny programs.

use std::collections::{BTreeMap, BTreeSet};

use explorer::image::{Entry, Image};
use explorer::record::{Event, FileId, Log, Recorder};
use explorer::states::{Limits, walk};
use storage::{OpenMode, Storage};

fn limits() -> Limits {
    Limits {
        bits: 16,
        samples: 0,
        tears: 0,
        seed: 1,
    }
}

/// Every state of a log, as a tree each.
fn states(log: &Log, limits: &Limits) -> Vec<Image> {
    let mut states = Vec::new();
    let mut seen = BTreeSet::new();
    walk(log, |point| {
        for choice in point.choices(limits) {
            let image = point.image(&choice);
            if seen.insert(image.hash()) {
                states.push(image);
            }
        }
        true
    });
    states
}

type Plain = BTreeMap<String, Option<Vec<u8>>>;

fn plain(image: &Image) -> Plain {
    let entries = image.entries().map(|(path, entry)| {
        let bytes = match entry {
            Entry::Dir => None,
            Entry::File(content) => Some(content.bytes()),
        };
        (path.to_owned(), bytes)
    });
    entries.collect()
}

/// A model of a disk that shares nothing with the engine's: at each point, for each subset of what happened before it,
/// whether the subset may be what the crash left, and the tree it makes. Writes are whole sectors, and one that
/// lengthens a file begins at its end.
fn by_brute_force(log: &Log) -> BTreeSet<Plain> {
    let mut found = BTreeSet::new();
    for point in 0..=log.events.len() {
        let events = &log.events[..point];
        // Two bits an event: its data (or its whole), its length.
        for subset in 0..1_u64 << (2 * point) {
            let kept = |i: usize| (subset >> (2 * i) & 1 == 1, subset >> (2 * i + 1) & 1 == 1);
            if possible(events, kept) {
                found.insert(replay(log, events, kept));
            }
        }
    }
    found
}

fn has_length(event: &Event) -> bool {
    matches!(event, Event::Write { .. })
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn possible(events: &[Event], kept: impl Fn(usize) -> (bool, bool)) -> bool {
    events.iter().enumerate().all(|(i, event)| {
        let (data, length) = kept(i);
        // Where there is no length the second bit must follow the first, so that each outcome is tried once.
        if !has_length(event) && data != length {
            return false;
        }
        let later = &events[i + 1..];
        let must = match event {
            Event::Write { file, .. } | Event::SetLen { file, .. } | Event::Punch { file, .. } => {
                later
                    .iter()
                    .any(|e| matches!(e, Event::Sync { file: f } if f == file))
            }
            Event::Create { path, .. }
            | Event::CreateDir { path }
            | Event::Remove { path }
            | Event::Rename { to: path, .. } => later
                .iter()
                .any(|e| matches!(e, Event::SyncDir { dir } if &**dir == dir_of(path))),
            _ => true,
        };
        !must || (data && length)
    })
}

fn replay(log: &Log, events: &[Event], kept: impl Fn(usize) -> (bool, bool)) -> Plain {
    #[derive(Clone, PartialEq)]
    enum Node {
        Dir,
        File(FileId),
    }
    let mut names: BTreeMap<String, Node> = BTreeMap::new();
    let mut bytes: BTreeMap<FileId, (Vec<u8>, usize)> = BTreeMap::new();
    // What names mean to the program, all kept: a rename carries along what the program saw.
    let mut seen: BTreeMap<String, Node> = BTreeMap::new();
    for (path, entry) in log.start.entries() {
        let node = match entry {
            Entry::Dir => Node::Dir,
            Entry::File(content) => {
                let file = log.files[path];
                let mut room = content.bytes();
                let len = room.len();
                room.resize(1 << 14, 0);
                bytes.insert(file, (room, len));
                Node::File(file)
            }
        };
        names.insert(path.to_owned(), node.clone());
        seen.insert(path.to_owned(), node);
    }
    let mut lens: BTreeMap<FileId, usize> = bytes.iter().map(|(f, (_, len))| (*f, *len)).collect();
    for (i, event) in events.iter().enumerate() {
        let (data, length) = kept(i);
        match event {
            Event::Create { file, path } => {
                bytes.insert(*file, (vec![0; 1 << 14], 0));
                lens.insert(*file, 0);
                seen.insert(path.to_string(), Node::File(*file));
                if data {
                    names.insert(path.to_string(), Node::File(*file));
                }
            }
            Event::CreateDir { path } => {
                seen.insert(path.to_string(), Node::Dir);
                if data {
                    names.insert(path.to_string(), Node::Dir);
                }
            }
            Event::Remove { path } => {
                seen.remove(&**path);
                if data {
                    names.remove(&**path);
                }
            }
            Event::Rename { from, to } => {
                let node = seen.remove(&**from).unwrap();
                seen.insert(to.to_string(), node.clone());
                if data {
                    if names.get(&**from) == Some(&node) {
                        names.remove(&**from);
                    }
                    names.insert(to.to_string(), node);
                }
            }
            Event::Write {
                file,
                offset,
                data: with,
            } => {
                let (room, len) = bytes.get_mut(file).unwrap();
                let (start, end) = (*offset as usize, *offset as usize + with.len());
                if data {
                    room[start..end].copy_from_slice(with);
                }
                let seen_len = lens.get_mut(file).unwrap();
                // A write within the file has no length to keep.
                if length && end > *seen_len {
                    *len = (*len).max(end);
                }
                *seen_len = (*seen_len).max(end);
            }
            Event::SetLen { file, len: to } => {
                let to = *to as usize;
                let seen_len = lens.insert(*file, to).unwrap();
                let (room, len) = bytes.get_mut(file).unwrap();
                if data && seen_len != to {
                    if to < *len {
                        room[to..].fill(0);
                    }
                    *len = to;
                }
            }
            Event::Punch { file, offset, len } if data => {
                let room = &mut bytes.get_mut(file).unwrap().0;
                room[*offset as usize..(*offset + *len) as usize].fill(0);
            }
            _ => {}
        }
    }
    let mut plain = Plain::new();
    for (path, node) in names {
        if !dir_of(&path).is_empty() && plain.get(dir_of(&path)) != Some(&None) {
            continue;
        }
        let entry = match node {
            Node::Dir => None,
            Node::File(file) => {
                let (room, len) = &bytes[&file];
                Some(room[..*len].to_vec())
            }
        };
        plain.insert(path, entry);
    }
    plain
}

/// A random program of a few operations on a few names.
fn program(seed: u64) -> Log {
    let mut random = fastrand::Rng::with_seed(seed);
    let start = Image::new().with_dir("d").with_file("a", &[9; 1024]);
    let recorder = Recorder::over(&start);
    let names = ["a", "b", "d/a", "d/b"];
    while recorder.log_so_far().events.len() < 6 {
        let name = names[random.usize(..names.len())];
        let other = names[random.usize(..names.len())];
        let byte = recorder.log_so_far().events.len() as u8 + 1;
        // What does not apply is refused and leaves no event.
        let open = recorder.open(name, OpenMode::ReadWrite);
        let _ = match (random.usize(..9), open) {
            (0, Ok(file)) => file.sync(),
            (1, _) => recorder.sync_dir(dir_of(name)),
            (2, _) => recorder.remove(name),
            (3, _) if dir_of(name) == dir_of(other) && name != other => {
                recorder.rename(name, other)
            }
            (4, Ok(file)) => file.set_len(random.u64(..3) * 512),
            (5, Ok(file)) if file.len().unwrap() > 512 => file.punch(512, 512),
            (6 | 7, Ok(file)) => {
                let sector = random.u64(..=file.len().unwrap() / 512);
                file.write_at(&[byte; 512], sector * 512)
            }
            _ => recorder.open(name, OpenMode::CreateNew).map(|_| ()),
        };
    }
    recorder.log_so_far()
}

#[test]
fn every_state_of_a_tiny_program_is_listed_and_no_other() {
    for seed in 0..300 {
        let log = program(seed);
        let listed: BTreeSet<Plain> = states(&log, &limits()).iter().map(plain).collect();
        let expected = by_brute_force(&log);
        let missing: Vec<_> = expected.difference(&listed).map(show).collect();
        let invented: Vec<_> = listed.difference(&expected).map(show).collect();
        assert!(
            missing.is_empty() && invented.is_empty(),
            "seed {seed}: {:#?}\nmissing {missing:#?}\ninvented {invented:#?}",
            log.events
        );
    }
}

fn show(plain: &Plain) -> String {
    let entry = |(path, bytes): (&String, &Option<Vec<u8>>)| match bytes {
        None => format!("{path}/"),
        Some(bytes) => format!(
            "{path}={:?}",
            bytes.chunks(512).map(|s| s[0]).collect::<Vec<_>>()
        ),
    };
    plain.iter().map(entry).collect::<Vec<_>>().join(" ")
}

/// The careful replacement of a file, with one of its syncs left out on demand.
fn replacement(without: Option<usize>) -> Log {
    let recorder = Recorder::over(&Image::new().with_file("f", b"old"));
    let file = recorder.open("f.new", OpenMode::CreateNew).unwrap();
    file.write_at(b"newer", 0).unwrap();
    if without != Some(0) {
        file.sync().unwrap();
    }
    recorder.rename("f.new", "f").unwrap();
    if without != Some(1) {
        recorder.sync_dir("").unwrap();
    }
    recorder.durable(1);
    recorder.log_so_far()
}

/// Whether every state has the old or the new contents, and after the acknowledgement the new.
fn replacement_holds(log: &Log) -> bool {
    let mut holds = true;
    walk(log, |point| {
        for choice in point.choices(&limits()) {
            let image = point.image(&choice);
            let found = image.file("f").map(|content| content.bytes());
            let new = found.as_deref() == Some(b"newer");
            holds &= new || (point.durable == 0 && found.as_deref() == Some(b"old"));
        }
        true
    });
    holds
}

#[test]
fn a_careful_replacement_is_atomic_and_durable_in_every_state() {
    assert!(replacement_holds(&replacement(None)));
}

#[test]
fn each_sync_that_a_replacement_leaves_out_is_noticed() {
    assert!(!replacement_holds(&replacement(Some(0))));
    assert!(!replacement_holds(&replacement(Some(1))));
}

#[test]
fn a_write_is_torn_at_sectors() {
    let recorder = Recorder::over(&Image::new().with_file("f", &[0; 2048]));
    let file = recorder.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&[1; 2048], 0).unwrap();
    let tears = Limits {
        tears: 1000,
        ..limits()
    };
    let found: BTreeSet<Vec<u8>> = states(&recorder.log_so_far(), &tears)
        .iter()
        .map(|image| image.file("f").unwrap().bytes())
        .map(|bytes| bytes.chunks(512).map(|sector| sector[0]).collect())
        .collect();
    assert!(found.iter().all(|sectors| sectors.len() == 4));
    // Prefixes, suffixes, single sectors lost and kept: all but 0101 and 1010, 0110 and 1001 of the sixteen for certain.
    assert!(found.len() >= 12, "{found:?}");
}

#[test]
fn a_small_write_changes_its_sector_as_a_whole() {
    let recorder = Recorder::over(&Image::new().with_file("f", &[0; 512]));
    let file = recorder.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&[1; 10], 0).unwrap();
    file.write_at(&[2; 10], 10).unwrap();
    let found: BTreeSet<(u8, u8)> = states(&recorder.log_so_far(), &limits())
        .iter()
        .map(|image| image.file("f").unwrap().bytes())
        .map(|bytes| (bytes[0], bytes[10]))
        .collect();
    // The disk takes what the file holds: never the second write without the first.
    assert_eq!(found, BTreeSet::from([(0, 0), (1, 0), (1, 2)]));
}

#[test]
fn a_lengthened_file_may_come_back_as_zeros() {
    let recorder = Recorder::new();
    let file = recorder.open("f", OpenMode::CreateNew).unwrap();
    recorder.sync_dir("").unwrap();
    file.write_at(&[7; 1024], 0).unwrap();
    let found: BTreeSet<Vec<u8>> = states(&recorder.log_so_far(), &limits())
        .iter()
        .filter_map(|image| image.file("f").map(|content| content.bytes()))
        .collect();
    let expected = [vec![], vec![0; 1024], vec![7; 1024]];
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn a_dropped_write_never_arrives_though_a_later_sync_succeeds() {
    let recorder = Recorder::over(&Image::new().with_file("f", &[0; 1024]));
    let file = recorder.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&[1; 512], 0).unwrap();
    recorder.drop_unsynced("f").unwrap();
    file.write_at(&[2; 512], 512).unwrap();
    file.sync().unwrap();
    recorder.durable(1);
    let mut last = Vec::new();
    walk(&recorder.log_so_far(), |point| {
        let choices = point.choices(&limits());
        last = choices.iter().map(|c| plain(&point.image(c))).collect();
        true
    });
    let lost = [vec![0; 512], vec![2; 512]].concat();
    assert!(!last.is_empty());
    assert!(last.iter().all(|state| state["f"] == Some(lost.clone())));
}

#[test]
fn many_pending_changes_are_sampled_the_same_way_each_time() {
    let recorder = Recorder::over(&Image::new().with_file("f", &[0; 1 << 15]));
    let file = recorder.open("f", OpenMode::ReadWrite).unwrap();
    for sector in 0..40 {
        file.write_at(&[1; 1024], sector * 700).unwrap();
    }
    let log = recorder.log_so_far();
    let some = Limits::default();
    let first: Vec<u128> = states(&log, &some).iter().map(Image::hash).collect();
    let again: Vec<u128> = states(&log, &some).iter().map(Image::hash).collect();
    assert_eq!(first, again);
    assert!(first.len() > 2000, "{}", first.len());
    let other = Limits { seed: 2, ..some };
    let other: Vec<u128> = states(&log, &other).iter().map(Image::hash).collect();
    assert_ne!(first, other);
}
