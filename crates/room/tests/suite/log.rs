//! The log in front of the catalog: what a sync costs, and what is found after a crash, with a damaged log, or without the
//! right to write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::stored::{create_on, open_on, options};
use crate::common::{pattern, sound};
use room::{Error, FileSystem as _, InodeNo, OpenOptions, RenameMode, Room};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
use storage::{OpenMode, Storage};

const LOG: &str = "catalog.db-log";
const BLOCK: u64 = 4096;

/// A room whose log is there: the first sync is the commit that says so.
fn room_on(storage: Arc<dyn Storage>) -> Room {
    let room = create_on(storage, options());
    room.write_file("/first", b"1").unwrap();
    room.sync().unwrap();
    room
}

fn open(storage: &MemoryStorage) -> Room {
    open_on(Arc::new(storage.clone()), options()).unwrap()
}

/// Every file's name and content.
fn files(room: &Room) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = room.read_dir(InodeNo::ROOT, 0, 1000).unwrap();
    let content = |no: InodeNo| {
        let mut bytes = vec![0; room.attributes(no).unwrap().size as usize];
        assert_eq!(room.read(no, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    entries
        .into_iter()
        .map(|(entry, _)| (entry.name, content(entry.inode)))
        .collect()
}

#[test]
fn a_small_sync_is_one_write_and_one_sync_of_the_log() {
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room_on(Arc::new(storage.clone()));
    let file = room.open_file("/first").unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    storage.observe(move |call| {
        if matches!(call.op, Op::Write | Op::Sync | Op::SetLen) {
            seen.lock().unwrap().push((call.op, call.path.to_owned()));
        }
    });
    for round in 0..5 {
        room.write(file.inode(), round * BLOCK, &[round as u8; BLOCK as usize])
            .unwrap();
        room.fsync(file.inode()).unwrap();
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        let (of_log, others): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.1 == LOG);
        assert_eq!(
            of_log.iter().map(|call| call.0).collect::<Vec<_>>(),
            [Op::Write, Op::Sync]
        );
        // The data is written to its segment too, and not waited for.
        assert!(others.iter().all(|call| call.0 == Op::Write), "{others:?}");
    }
    // Nothing new: nothing to be done.
    room.fsync(file.inode()).unwrap();
    assert!(calls.lock().unwrap().is_empty());
}

/// Random changes, some made durable: after a power cut the room is as at the last sync, or as at a later change where a sync
/// was under way.
#[test]
fn what_a_sync_acknowledged_survives_a_power_cut() {
    for seed in 0..60 {
        let storage = MemoryStorage::new();
        let mut room = room_on(Arc::new(storage.clone()));
        let mut random = pattern(seed, 4000).into_iter();
        let mut next = || random.next().unwrap();
        for _ in 0..6 {
            let mut durable = files(&room);
            room.sync().unwrap();
            for step in 0..20 {
                let name = format!("/{}", next() % 8);
                match next() % 8 {
                    0 => drop(room.unlink(InodeNo::ROOT, &name.as_bytes()[1..])),
                    1 => {
                        let to = [b'0' + next() % 8];
                        let from = &name.as_bytes()[1..];
                        let mode = RenameMode::Replace;
                        drop(room.rename(InodeNo::ROOT, from, InodeNo::ROOT, &to, mode));
                    }
                    // Now and then more than a record carries.
                    2 if next() < 30 => room
                        .write_file(&name, &pattern(step, 300_000 + usize::from(next())))
                        .unwrap(),
                    _ => room
                        .write_file(&name, &pattern(step, usize::from(next()) * 40))
                        .unwrap(),
                }
                if next() < 100 {
                    room.sync().unwrap();
                    durable = files(&room);
                }
                if next() < 8 {
                    room.tend().unwrap();
                    durable = files(&room);
                }
            }
            match seed % 2 {
                0 => storage.power_cut(),
                _ => storage.power_cut_keeping_some(seed),
            }
            drop(room);
            room = open(&storage);
            assert!(files(&room) == durable, "seed {seed}");
            sound(&room);
        }
    }
}

/// Power goes at each operation of an opening that applies records, and in the one after it: applying them twice is applying
/// them once.
#[test]
fn an_opening_that_is_cut_off_is_repeated() {
    let crashed = || {
        let storage = MemoryStorage::new();
        let room = room_on(Arc::new(storage.clone()));
        for i in 0..5 {
            room.write_file(format!("/{i}"), &pattern(i, 10_000))
                .unwrap();
            room.unlink(InodeNo::ROOT, b"first").ok();
            room.sync().unwrap();
        }
        let expected = files(&room);
        storage.power_cut();
        (storage, expected)
    };
    let mut cut_off = 0;
    for nth in 1.. {
        let (storage, expected) = crashed();
        let faulty = FaultyStorage::new(storage.clone());
        faulty.refuse_any(nth, Fault::Torn, Times::Always);
        let opened = open_on(Arc::new(faulty), options());
        let done = opened.is_ok();
        cut_off += u32::from(!done);
        storage.power_cut_keeping_some(nth);
        drop(opened);
        let room = open(&storage);
        assert!(files(&room) == expected, "cut off at {nth}");
        sound(&room);
        if done {
            break;
        }
    }
    assert!(cut_off > 10, "{cut_off}");
}

/// A crashed room with three records, and where in the log each begins.
fn three_records() -> (MemoryStorage, Vec<u64>) {
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room_on(Arc::new(storage.clone()));
    let starts = Arc::new(Mutex::new(Vec::new()));
    let seen = starts.clone();
    storage.observe(move |call| {
        if call.op == Op::Write && call.path == LOG {
            seen.lock().unwrap().push(call.offset);
        }
    });
    for i in 0..3 {
        room.write_file(format!("/{i}"), &pattern(i, 5000)).unwrap();
        room.sync().unwrap();
    }
    storage.inner().power_cut();
    let starts = starts.lock().unwrap().clone();
    assert_eq!(starts.len(), 3);
    (storage.inner().clone(), starts)
}

fn flip(storage: &MemoryStorage, at: u64) {
    let file = storage.open(LOG, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_torn_last_record_ends_the_log() {
    for within in [0, 8, 20, 40, 64, 72, 88, 120, 5000] {
        let (storage, starts) = three_records();
        flip(&storage, starts[2] + within);
        let room = open(&storage);
        assert_eq!(room.read_file("/1").unwrap(), pattern(1, 5000));
        assert!(matches!(room.read_file("/2"), Err(Error::NotFound)));
        sound(&room);
        // The log goes on behind what was found.
        room.write_file("/3", b"3").unwrap();
        room.sync().unwrap();
        storage.power_cut();
        drop(room);
        assert_eq!(open(&storage).read_file("/3").unwrap(), b"3");
    }
}

#[test]
fn damage_before_the_end_is_refused_by_name_and_can_be_accepted() {
    for (record, within) in [(0, 0), (0, 16), (0, 4000), (1, 8), (1, 90)] {
        let (storage, starts) = three_records();
        flip(&storage, starts[record] + within);
        for read_only in [false, true] {
            let refused = open_on(
                Arc::new(storage.clone()),
                OpenOptions {
                    read_only,
                    ..options()
                },
            );
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("the log holds record"), "{error}");
        }
        let accepting = OpenOptions {
            accept_rollback: true,
            ..options()
        };
        let room = open_on(Arc::new(storage.clone()), accepting).unwrap();
        assert_eq!(room.read_file("/0").is_ok(), record == 1);
        assert!(matches!(room.read_file("/2"), Err(Error::NotFound)));
        sound(&room);
        room.close().unwrap();
        // What was cut off is not found again.
        sound(&open(&storage));
    }
}

#[test]
fn records_of_another_history_are_refused() {
    let (storage, _) = three_records();
    let other = {
        let copy = MemoryStorage::new();
        copy.create_dir("segments").unwrap();
        let segments = storage.list("segments").unwrap();
        let segments = segments.iter().map(|name| format!("segments/{name}"));
        for name in storage.list("").unwrap().into_iter().chain(segments) {
            if name != "segments" && name != "lock" {
                let bytes = storage::read_limited(&storage, &name, 1 << 30).unwrap();
                storage::replace(&copy, &name, &bytes).unwrap();
            }
        }
        copy
    };
    // Both go on from the same state, by as many steps: the same numbers, other contents.
    for (storage, name) in [(&storage, "/a"), (&other, "/b")] {
        let room = open(storage);
        for i in 0..3 {
            room.write_file(format!("{name}{i}"), name.as_bytes())
                .unwrap();
            room.sync().unwrap();
        }
        storage.power_cut();
    }
    let log = storage::read_limited(&other, LOG, 1 << 30).unwrap();
    assert_ne!(log, storage::read_limited(&storage, LOG, 1 << 30).unwrap());
    storage::replace(&storage, LOG, &log).unwrap();
    let error = open_on(Arc::new(storage.clone()), options()).unwrap_err();
    assert!(
        error.to_string().contains("the log holds record"),
        "{error}"
    );
}

#[test]
fn a_crashed_room_is_read_without_writing_to_it() {
    let (storage, _) = three_records();
    let before: Vec<_> = storage.list("").unwrap();
    let faulty = FaultyStorage::new(storage.clone());
    faulty.observe(|call| {
        let writes = matches!(
            call.op,
            Op::Write | Op::SetLen | Op::Remove | Op::Rename | Op::Punch | Op::Create
        );
        assert!(!writes || call.path == "lock", "{call}");
    });
    let reading = options().for_reading();
    for _ in 0..2 {
        let room = open_on(Arc::new(faulty.clone()), reading.clone()).unwrap();
        for i in 0..3 {
            let read = room.read_file(format!("/{i}")).unwrap();
            assert_eq!(read, pattern(i, 5000));
        }
        sound(&room);
    }
    assert_eq!(storage.list("").unwrap(), before);
    assert_eq!(files(&open(&storage)).len(), 4);
}

#[test]
fn a_full_log_and_a_large_change_are_committed() {
    let storage = MemoryStorage::new();
    let room = room_on(Arc::new(storage.clone()));
    let generation = room.info().unwrap().generation;
    // Each carries 100 KiB: the log is full many times.
    for i in 0..200 {
        room.write_file("/f", &pattern(i, 100_000)).unwrap();
        room.sync().unwrap();
    }
    assert!(room.info().unwrap().generation >= generation + 200);
    // More changes than a record holds.
    for i in 0..12_000 {
        room.make_dir(format!("/a directory with a long name {i}"), false)
            .unwrap();
    }
    room.sync().unwrap();
    storage.power_cut();
    drop(room);
    let room = open(&storage);
    assert_eq!(room.read_file("/f").unwrap(), pattern(199, 100_000));
    assert_eq!(room.info().unwrap().space.inodes, 12_003);
    sound(&room);
}

/// Two copies of a machine's memory go on from the same point: no key is used for two records.
#[test]
fn every_record_has_a_key_of_its_own() {
    let (storage, starts) = three_records();
    let log = storage::read_limited(&storage, LOG, 1 << 30).unwrap();
    let mut salts: Vec<_> = starts
        .iter()
        .map(|start| log[*start as usize + 32..][..32].to_vec())
        .collect();
    salts.sort();
    salts.dedup();
    assert_eq!(salts.len(), 3);
}

/// The first commit is the one that says that there is a log: until it is done no record is read by an opening, so no sync
/// may be answered by one.
#[test]
fn a_sync_is_refused_until_the_commit_that_begins_the_log_finds_space() {
    for fault in [Fault::NoSpace, Fault::Quota] {
        let storage = MemoryStorage::new();
        let faulty = FaultyStorage::new(storage.clone());
        let disk: Arc<dyn Storage> = Arc::new(faulty.clone());
        create_on(disk.clone(), options()).close().unwrap();
        let room = open_on(disk, options()).unwrap();
        faulty.refuse(Op::Allocate, 1, fault, Times::Always);
        room.write_file("/a", b"1").unwrap();
        for _ in 0..3 {
            assert!(matches!(room.sync(), Err(Error::NoSpace)));
        }
        faulty.heal();
        room.sync().unwrap();
        storage.power_cut();
        drop(room);
        let room = open(&storage);
        assert_eq!(room.read_file("/a").unwrap(), b"1");
        sound(&room);
    }
}

#[test]
fn a_room_opens_where_its_owner_is_at_a_quota() {
    for fault in [Fault::NoSpace, Fault::Quota] {
        let storage = MemoryStorage::new();
        let room = create_on(Arc::new(storage.clone()), options());
        room.write_file("/a", b"1").unwrap();
        room.close().unwrap();
        let faulty = FaultyStorage::new(storage);
        for op in [Op::Write, Op::Allocate] {
            faulty.refuse(op, 1, fault, Times::Always);
        }
        let room = open_on(Arc::new(faulty.clone()), options()).unwrap();
        assert_eq!(room.read_file("/a").unwrap(), b"1");
        faulty.heal();
        room.unlink(InodeNo::ROOT, b"a").unwrap();
        room.close().unwrap();
    }
}
