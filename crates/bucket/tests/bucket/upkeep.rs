//! The storage contract, what is durable, checkpoints, the cache, and what is removed.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use storage::testing::contract;
use storage::{OpenMode, Storage};

use crate::made::{create, noise, open, options, quick, read, short, two_machines, write};
use crate::store::{Store, list, overwrite};

#[test]
fn a_bucket_keeps_the_contract_of_storages() {
    contract::run(|| {
        let dir = tempfile::tempdir().unwrap();
        let storage = create(&Store::new(), dir.path(), options()).unwrap();
        (Arc::new(storage) as Arc<dyn Storage>, dir)
    });
}

#[test]
fn what_was_synced_is_there_after_the_writer_died_and_on_another_machine() {
    let store = Store::new();
    let [here, there] = two_machines();
    let storage = create(&store, here.path(), options()).unwrap();
    storage.create_dir("segments").unwrap();
    let big = noise(1, 40 << 20);
    write(&storage, "segments/1", &big).unwrap();
    write(&storage, "small", b"few bytes").unwrap();
    storage
        .open("small", OpenMode::ReadWrite)
        .unwrap()
        .write_at(b"lost", 0)
        .unwrap();
    storage.die();
    drop(storage);
    let storage = open(&store, there.path(), options()).unwrap();
    assert_eq!(read(&storage, "segments/1").unwrap(), big);
    assert_eq!(read(&storage, "small").unwrap(), b"few bytes");
    assert_eq!(storage.list("").unwrap(), ["segments", "small"]);
    let reads = store.reads();
    assert_eq!(read(&storage, "segments/1").unwrap(), big);
    assert_eq!(store.reads(), reads, "the second time it is in the cache");
}

/// The one before it, which is removed, is not itself.
#[test]
fn a_checkpoint_behind_which_nothing_was_written_stays() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), quick()).unwrap();
    write(&storage, "f", b"x").unwrap();
    for _ in 0..3 {
        storage.checkpoint().unwrap();
    }
    drop(storage);
    let storage = open(&store, dir.path(), quick()).unwrap();
    assert_eq!(read(&storage, "f").unwrap(), b"x");
}

/// All pages of a list had the time of one request, from the first one on at each try: what was in a large room was never removed.
#[test]
fn a_list_may_have_as_many_pages_as_it_has() {
    const NAMES: u64 = 40;
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.timeout = Duration::from_secs(1);
    let storage = create(&store, dir.path(), options).unwrap();
    for n in 0..NAMES {
        let name = format!("rooms/a/data/{:020}-{n:020}", 1);
        overwrite(&store, &name, vec![7]);
    }
    store.list_slowly(Duration::from_millis(50));
    let (objects, _) = storage.stored().unwrap();
    assert!(objects >= NAMES, "{objects}");
}

/// The requests of a fresh machine that reads chunks of a file in an order, and the bytes that it got by them.
fn read_cold(store: &Store, data: &[u8], order: impl Iterator<Item = usize>) -> (u64, u64) {
    const CHUNK: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    // A writer would also look at what earlier ones left, meanwhile.
    options.read_only = true;
    let storage = open(store, dir.path(), options).unwrap();
    let file = storage.open("f", OpenMode::Read).unwrap();
    let before = storage.requests();
    let mut buf = vec![0; CHUNK];
    for at in order.map(|chunk| chunk * CHUNK) {
        file.read_at(&mut buf, at as u64).unwrap();
        assert!(buf == data[at..at + CHUNK], "at {at}");
    }
    let after = storage.requests();
    (after.gets - before.gets, after.bytes_got - before.bytes_got)
}

#[test]
fn what_is_read_in_order_takes_few_requests_and_what_is_not_gets_no_more_than_it_asks_for() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    // Objects of 16 chunks each.
    let data = noise(1, 48 << 20);
    let file = storage.open("f", OpenMode::CreateNew).unwrap();
    for (part, at) in data.chunks(16 << 20).zip((0..).step_by(16 << 20)) {
        file.write_at(part, at).unwrap();
        file.sync().unwrap();
    }
    storage.sync_dir("").unwrap();
    drop(file);
    storage.die();
    drop(storage);
    // Seven for the first, and four for each other one: a reader goes on from one to the next.
    let (gets, got) = read_cold(&store, &data, 0..48);
    assert_eq!(got, 48 << 20, "nothing comes twice");
    assert_eq!(gets, 15);
    let (gets, got) = read_cold(&store, &data, (0..24).rev());
    assert_eq!((gets, got), (24, 24 << 20));
    let (gets, got) = read_cold(&store, &data, (0..24).step_by(3));
    assert!(gets <= 10 && got <= 10 << 20, "{gets}, {got}");
    // Of five chunks that were read in order, two more come at most.
    let (_, got) = read_cold(&store, &data, 7..12);
    assert!(got <= 7 << 20, "{got}");
}

#[test]
fn a_sync_of_little_is_one_request_and_one_of_nothing_is_none() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    write(&storage, "f", b"x").unwrap();
    let before = storage.requests();
    let file = storage.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&noise(2, 5000), 100).unwrap();
    file.sync().unwrap();
    let after = storage.requests();
    assert_eq!(
        (
            after.puts + after.log - before.puts - before.log,
            after.gets - before.gets,
            after.lists - before.lists
        ),
        (1, 0, 0)
    );
    file.sync().unwrap();
    storage.sync_dir("").unwrap();
    assert_eq!(storage.requests(), after);
}

#[test]
fn zeros_take_no_space() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    let before = storage.requests().bytes_put;
    write(&storage, "log", &vec![0; 4 << 20]).unwrap();
    assert!(storage.requests().bytes_put - before < 1000);
    drop(storage);
    let storage = open(&store, dir.path(), options()).unwrap();
    assert_eq!(read(&storage, "log").unwrap(), vec![0; 4 << 20]);
}

/// An object of which little was in use could not be read. Each checkpoint tried to move what was left of it, and failed: commits piled up.
#[test]
fn an_object_that_cannot_be_read_does_not_keep_checkpoints_from_being_made() {
    for is_gone in [false, true] {
        let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
        let mut options = options();
        options.cache_bytes = 0;
        let storage = create(&store, dir.path(), options.clone()).unwrap();
        let old = noise(1, 3 << 20);
        write(&storage, "f", &old).unwrap();
        let [(damaged, _)] = &names(&store, "data")[..] else {
            panic!("one object");
        };
        // Two more thin ones, before and behind it in the files.
        for name in ["e", "g"] {
            write(&storage, name, &old).unwrap();
        }
        for name in ["e", "f", "g"] {
            let file = storage.open(name, OpenMode::ReadWrite).unwrap();
            file.write_at(&noise(2, 2 << 20), 0).unwrap();
            file.sync().unwrap();
        }
        match is_gone {
            true => crate::store::remove(&store, damaged),
            false => store.unreadable(damaged),
        }
        for n in 0..3 {
            write(&storage, &format!("{n}"), &noise(n, 5000)).unwrap();
            storage.checkpoint().unwrap();
        }
        let last = names(&store, "commits").len() as u64;
        let checkpoints = names(&store, "checkpoints");
        let (newest, _) = checkpoints.last().expect("a checkpoint");
        assert!(newest.ends_with(&format!("{last}")), "{newest}, {last}");
        drop(storage);
        let storage = open(&store, dir.path(), options).unwrap();
        for name in ["e", "f", "g"] {
            let file = storage.open(name, OpenMode::Read).unwrap();
            let mut found = vec![0; 2 << 20];
            file.read_at(&mut found, 0).unwrap();
            assert!(found == noise(2, 2 << 20), "{name}");
            found.truncate(1 << 20);
            let rest = file.read_at(&mut found, 2 << 20);
            assert_eq!(rest.is_err(), name == "f", "{name}");
            assert!(name == "f" || found == old[2 << 20..], "{name}");
        }
        assert_eq!(read(&storage, "2").unwrap(), noise(2, 5000));
    }
}

/// The log lost its last commits. The next writer has the number of one that wrote behind them, and gave its objects the same names: it wrote over
/// what a log that is put right needs, and caches showed the bytes of before.
#[test]
fn writers_with_one_number_have_objects_of_different_names() {
    let (store, other) = (Store::new(), Store::new());
    let [here, there] = two_machines();
    drop(create(&store, here.path(), options()).unwrap());
    for (name, bytes) in crate::store::contents(&store, "rooms/a") {
        overwrite(&other, &name, bytes);
    }
    let data = noise(2, 3 << 20);
    for (store, dir, bytes) in [
        (&store, here.path(), &noise(1, 3 << 20)),
        (&other, there.path(), &data),
    ] {
        let storage = open(store, dir, options()).unwrap();
        write(&storage, "f", bytes).unwrap();
    }
    let storage = open(&other, here.path(), options()).unwrap();
    assert!(read(&storage, "f").unwrap() == data);
}

/// With more bytes in commits than a checkpoint waits for, each sync tried to make one while none could be made.
#[test]
fn a_checkpoint_that_fails_is_not_tried_again_at_each_sync() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.checkpoint_bytes = 1;
    let storage = create(&store, dir.path(), options).unwrap();
    store.unwritable("/data/");
    let before = storage.requests().puts;
    for n in 0..20 {
        write(&storage, &format!("{n}"), b"x").unwrap();
    }
    let commits = if store.has_log() { 0 } else { 20 };
    let sent = storage.requests().puts - before;
    assert_eq!(sent, commits + 1, "one try of a checkpoint");
    store.heal();
    for n in 20..120 {
        write(&storage, &format!("{n}"), b"x").unwrap();
    }
    assert!(!names(&store, "checkpoints").is_empty());
}

/// With a log elsewhere and the store away, what commits carried stayed in memory, without a bound.
#[test]
fn commits_end_when_the_store_takes_no_checkpoint_for_long() {
    const LEN: usize = 10_000;
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.timeout = short(&store, 300);
    (options.checkpoint_bytes, options.waiting_bytes) = (50_000, 400_000);
    let storage = create(&store, dir.path(), options.clone()).unwrap();
    store.unwritable("/data/");
    let mut synced = 0;
    let refused = loop {
        match write(&storage, &synced.to_string(), &noise(synced, LEN)) {
            Ok(()) => synced += 1,
            Err(e) => break e.to_string(),
        }
        assert!(synced < 100, "nothing ends them");
    };
    assert!(
        refused.contains("wait") && refused.contains("data/"),
        "{refused}"
    );
    assert_eq!(synced as usize * LEN, 400_000);
    store.heal();
    drop(storage);
    let storage = open(&store, dir.path(), options).unwrap();
    for n in 0..synced {
        assert!(
            read(&storage, &n.to_string()).unwrap() == noise(n, LEN),
            "{n}"
        );
    }
    write(&storage, "later", b"x").unwrap();
}

/// Random changes of files, with checkpoints after a few commits and nothing kept for readers, agree with a model after every opening.
#[test]
fn files_agree_with_a_model_over_commits_checkpoints_and_openings() {
    let mut random = fastrand::Rng::with_seed(11);
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.checkpoint_commits = 7;
    options.grace = Duration::ZERO;
    options.cache_bytes = 4 << 20;
    let mut storage = create(&store, dir.path(), options.clone()).unwrap();
    let mut model: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
    for step in 0..400_u64 {
        let name = format!("f{}", random.u8(0..6));
        let file = match model.contains_key(&name) {
            true => storage.open(&name, OpenMode::ReadWrite).unwrap(),
            false => {
                model.insert(name.clone(), Vec::new());
                storage.open(&name, OpenMode::CreateNew).unwrap()
            }
        };
        let bytes = model.get_mut(&name).unwrap();
        let offset = random.usize(0..300_000);
        match random.u8(0..12) {
            0 => {
                file.set_len(offset as u64).unwrap();
                bytes.resize(offset, 0);
            }
            1 => {
                file.punch(offset as u64, 100_000).unwrap();
                let end = bytes.len().min(offset + 100_000);
                if offset < end {
                    bytes[offset..end].fill(0);
                }
            }
            2 => {
                storage.remove(&name).unwrap();
                model.remove(&name);
            }
            3 => {
                storage.rename(&name, "f0").unwrap();
                let moved = model.remove(&name).unwrap();
                model.insert("f0".into(), moved);
            }
            _ => {
                let len = match random.u8(0..20) {
                    0 => 3 << 20,
                    _ => random.usize(1..20_000),
                };
                let new = noise(step, len);
                file.write_at(&new, offset as u64).unwrap();
                bytes.resize(bytes.len().max(offset + len), 0);
                bytes[offset..offset + len].copy_from_slice(&new);
            }
        }
        if random.u8(0..3) == 0 {
            for name in model.keys() {
                storage
                    .open(name, OpenMode::ReadWrite)
                    .unwrap()
                    .sync()
                    .unwrap();
            }
            storage.sync_dir("").unwrap();
            if random.u8(0..6) == 0 {
                if random.bool() {
                    storage.die();
                }
                drop(storage);
                storage = open(&store, dir.path(), options.clone()).unwrap();
            }
        }
        if step % 10 == 0 {
            let names: Vec<&String> = model.keys().collect();
            assert_eq!(
                storage.list("").unwrap(),
                names.iter().map(|n| n.as_str()).collect::<Vec<_>>()
            );
            for (name, bytes) in &model {
                assert!(
                    read(&storage, name).unwrap() == *bytes,
                    "{name} after step {step}"
                );
            }
        }
    }
}

#[test]
fn what_is_not_needed_is_removed_and_what_crashed_uploads_left_too() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.checkpoint_commits = 4;
    options.grace = Duration::ZERO;
    let storage = create(&store, dir.path(), options.clone()).unwrap();
    write(&storage, "gone", &noise(3, 20 << 20)).unwrap();
    // Uploaded, and never committed.
    let lost = storage.open("lost", OpenMode::CreateNew).unwrap();
    lost.write_at(&noise(4, 17 << 20), 0).unwrap();
    wait_for(|| names(&store, "data").len() >= 2);
    storage.remove("gone").unwrap();
    storage.sync_dir("").unwrap();
    storage.die();
    drop((lost, storage));
    let storage = open(&store, dir.path(), options).unwrap();
    for n in 0..30 {
        write(&storage, &format!("f{n}"), &noise(n, 1000)).unwrap();
    }
    wait_for(|| {
        storage.sync_dir("").unwrap();
        write(
            &storage,
            &format!("g{}", storage.list("").unwrap().len()),
            b"x",
        )
        .unwrap();
        let bytes: u64 = names(&store, "data").iter().map(|(_, size)| size).sum();
        bytes < 200_000
            && names(&store, "commits").len() < 12
            && names(&store, "checkpoints").len() <= 2
    });
    // Both openings are there for good.
    let commits = names(&store, "commits");
    assert!(
        commits[0].0.ends_with("/00000000000000000001"),
        "{commits:?}"
    );
}

/// As on a disk whose blocks were freed, and that nobody writes to any more.
#[test]
fn a_sync_with_nothing_to_commit_removes_what_is_due() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    // Not in the commit that makes the hole.
    options.grace = Duration::from_millis(1);
    let storage = create(&store, dir.path(), options).unwrap();
    write(&storage, "f", &noise(3, 20 << 20)).unwrap();
    let file = storage.open("f", OpenMode::ReadWrite).unwrap();
    file.punch(0, 20 << 20).unwrap();
    file.sync().unwrap();
    assert!(!names(&store, "data").is_empty());
    wait_for(|| {
        file.sync().unwrap();
        names(&store, "data").is_empty()
    });
}

#[test]
fn a_removed_file_can_be_read_as_long_as_it_is_open() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.grace = Duration::ZERO;
    options.cache_bytes = 0;
    let storage = create(&store, dir.path(), options).unwrap();
    let bytes = noise(5, 3 << 20);
    write(&storage, "f", &bytes).unwrap();
    let file = storage.open("f", OpenMode::Read).unwrap();
    storage.remove("f").unwrap();
    for n in 0..5 {
        write(&storage, &format!("g{n}"), b"x").unwrap();
    }
    let mut found = vec![0; bytes.len()];
    file.read_at(&mut found, 0).unwrap();
    assert!(found == bytes);
    drop(file);
    let mut n = 5;
    wait_for(|| {
        n += 1;
        write(&storage, &format!("g{n}"), b"x").unwrap();
        names(&store, "data").is_empty()
    });
}

#[test]
fn a_reader_sees_one_moment_and_disturbs_nobody() {
    let store = Store::new();
    let [here, there] = two_machines();
    let storage = create(&store, here.path(), options()).unwrap();
    write(&storage, "f", b"first").unwrap();
    let mut reading = options();
    reading.read_only = true;
    let reader = open(&store, there.path(), reading.clone()).unwrap();
    let file = storage.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"other", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(read(&reader, "f").unwrap(), b"first");
    let refused = reader.open("g", OpenMode::CreateNew).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    drop(reader);
    let reader = open(&store, there.path(), reading).unwrap();
    assert_eq!(read(&reader, "f").unwrap(), b"other");
}

/// Names and sizes of the objects in a directory of the room.
fn names(store: &Store, directory: &str) -> Vec<(String, u64)> {
    let mut names = crate::store::list(store, &format!("rooms/a/{directory}"));
    names.sort();
    names
}

/// Other threads get there.
#[track_caller]
fn wait_for(mut what: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not come");
}

/// Writers that are all shorter than the time that is left to readers, as commands are: each removes what the ones before it left. Nothing
/// was ever removed, and a replica that got an increment every hour only grew.
#[test]
fn what_short_writers_leave_is_removed_by_later_ones() {
    const ROUNDS: u64 = 8;
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.grace = Duration::from_millis(300);
    options.checkpoint_commits = 4;
    drop(create(&store, dir.path(), options.clone()).unwrap());
    for round in 0..ROUNDS {
        std::thread::sleep(options.grace + Duration::from_millis(100));
        let storage = open(&store, dir.path(), options.clone()).unwrap();
        if round > 0 {
            storage.remove("f").unwrap();
        }
        write(&storage, "f", &noise(round, 2 << 20)).unwrap();
    }
    let storage = open(&store, dir.path(), options).unwrap();
    assert!(read(&storage, "f").unwrap() == noise(ROUNDS - 1, 2 << 20));
    let count = |directory: &str| list(&store, &format!("rooms/a/{directory}")).len() as u64;
    assert!(count("data") <= 3, "{} objects", count("data"));
    // A begin of each stays.
    assert!(count("commits") <= ROUNDS + 14, "{}", count("commits"));
    assert!(count("checkpoints") <= 3, "{}", count("checkpoints"));
}
