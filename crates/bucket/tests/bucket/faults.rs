//! What becomes of requests that fail, are lost, come twice, or are never answered.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use storage::{OpenMode, Storage};

use crate::made::{create, noise, open, options, read, short, two_machines, write};
use crate::store::{Fate, Store, contents, list, overwrite};

#[test]
fn requests_that_fail_for_a_while_are_of_no_consequence() {
    for fate in [
        Fate::Refused,
        Fate::AnswerLost,
        Fate::Forbidden,
        Fate::Repeated,
        Fate::Slow,
    ] {
        let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
        let storage = create(&store, dir.path(), options()).unwrap();
        store.fates([fate, fate]);
        write(&storage, "little", b"x").unwrap();
        store.fates([fate, fate]);
        write(&storage, "much", &noise(1, 2 << 20)).unwrap();
        drop(storage);
        let storage = open(&store, dir.path(), options()).unwrap();
        assert_eq!(read(&storage, "little").unwrap(), b"x", "{fate:?}");
        assert!(
            read(&storage, "much").unwrap() == noise(1, 2 << 20),
            "{fate:?}"
        );
    }
}

/// Its answer, or the request itself, was lost on a connection that was dead. One try of many bytes may last longer than all tries together, and
/// no other followed.
#[test]
fn a_large_request_without_an_answer_is_tried_again() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.timeout = short(&store, 2000);
    let storage = create(&store, dir.path(), options.clone()).unwrap();
    store.mute("/data/", 1);
    let bytes = noise(1, 1_500_000);
    write(&storage, "f", &bytes).unwrap();
    assert_eq!(store.left_mute(), 0);
    storage.checkpoint().unwrap();
    drop(storage);
    // Nobody knows how large a checkpoint is before the store has answered.
    store.mute("/checkpoints/", 1);
    let storage = open(&store, dir.path(), options).unwrap();
    assert_eq!(store.left_mute(), 0);
    assert!(read(&storage, "f").unwrap() == bytes);
}

#[test]
fn while_the_store_is_away_what_is_cached_is_read_and_a_sync_fails_in_time() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    drop(create(&store, dir.path(), options.clone()).unwrap());
    options.timeout = Duration::from_millis(if store.has_log() { 3000 } else { 300 });
    let storage = open(&store, dir.path(), options.clone()).unwrap();
    write(&storage, "f", &noise(1, 2 << 20)).unwrap();
    store.away(true);
    assert!(read(&storage, "f").unwrap() == noise(1, 2 << 20));
    let file = storage.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"late", 0).unwrap();
    let began = Instant::now();
    let refused = file.sync().unwrap_err().to_string();
    assert!(
        refused.contains("failed for") && refused.contains("opened again"),
        "{refused}"
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    store.away(false);
    assert!(
        file.sync().is_err(),
        "nobody knows what became of the commit before"
    );
    assert_eq!(&read(&storage, "f").unwrap()[..4], b"late");
    drop((file, storage));
    let storage = open(&store, dir.path(), options).unwrap();
    assert!(read(&storage, "f").unwrap() == noise(1, 2 << 20));
}

/// They had all permits of requests. A commit waited for them, in a log elsewhere too: longer than a lease.
#[test]
fn a_commit_does_not_wait_for_reads_that_hang() {
    const READS: u64 = 20;
    const AT_ONCE: u64 = 16;
    let (store, [here, there]) = (Store::new(), two_machines());
    let mut options = options();
    options.timeout = Duration::from_secs(60);
    let storage = create(&store, here.path(), options.clone()).unwrap();
    write(&storage, "f", &noise(1, (READS as usize) << 20)).unwrap();
    drop(storage);
    let storage = open(&store, there.path(), options).unwrap();
    store.mute("/data/", u64::MAX);
    for n in 0..READS {
        let file = storage.open("f", OpenMode::Read).unwrap();
        // They end with the test program, or when the time is up.
        std::thread::spawn(move || file.read_at(&mut vec![0; 1 << 20], n << 20));
    }
    while store.left_mute() > u64::MAX - AT_ONCE {
        std::thread::yield_now();
    }
    write(&storage, "g", b"x").unwrap();
    assert_eq!(
        store.left_mute(),
        u64::MAX - AT_ONCE,
        "a read was abandoned"
    );
}

/// The writer's connection ends after every number of changes, the next one done or not. What was acknowledged is there; what was not is
/// there whole or not at all.
#[test]
fn a_writer_cut_off_anywhere_loses_nothing_that_it_acknowledged() {
    let mut options = options();
    options.checkpoint_commits = 3;
    options.grace = Duration::ZERO;
    options.timeout = short(&Store::new(), 40);
    let mut cut = 0;
    loop {
        let mut reached_the_end = false;
        for next_is_done in [false, true] {
            let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
            let storage = create(&store, dir.path(), options.clone()).unwrap();
            store.end_after(cut, next_is_done);
            let mut acknowledged = 0;
            let version = |n: u64| noise(n, if n.is_multiple_of(3) { 1_500_000 } else { 3000 });
            for n in 1..8 {
                let _ = storage.remove("f.new");
                let done = storage::replace(&storage, "f", &version(n));
                if done.is_err() {
                    break;
                }
                acknowledged = n;
            }
            reached_the_end |= acknowledged == 7;
            drop(storage);
            store.heal();
            let elsewhere = tempfile::tempdir().unwrap();
            let storage = open(&store, elsewhere.path(), options.clone()).unwrap();
            let found = match read(&storage, "f") {
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                found => Some(found.unwrap()),
            };
            let is = |n: u64| match n {
                0 => found.is_none(),
                n => found.as_deref() == Some(&version(n)[..]),
            };
            assert!(
                is(acknowledged) || is(acknowledged + 1),
                "cut {cut}, {next_is_done}: acknowledged {acknowledged}"
            );
            write(&storage, "after", b"it goes on").unwrap();
        }
        if reached_the_end {
            break;
        }
        cut += 1;
    }
    assert!(cut > 15, "{cut}");
}

#[test]
fn a_garbled_commit_or_checkpoint_is_refused_by_name() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    write(&storage, "f", b"x").unwrap();
    storage.checkpoint().unwrap();
    write(&storage, "g", b"x").unwrap();
    drop(storage);
    for directory in ["checkpoints", "commits"] {
        let (name, bytes) = contents(&store, &format!("rooms/a/{directory}"))
            .pop()
            .unwrap();
        let mut garbled = bytes.clone();
        *garbled.last_mut().unwrap() ^= 1;
        overwrite(&store, &name, garbled);
        let refused = open(&store, dir.path(), options()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        let said = refused.to_string();
        assert!(
            said.contains(name.rsplit('/').next().unwrap()) && said.contains("damaged"),
            "{said}"
        );
        overwrite(&store, &name, bytes);
    }
    open(&store, dir.path(), options()).unwrap();
}

/// Many threads write to one file, as clients of a disk do, and nothing can be uploaded.
#[test]
fn writes_wait_while_uploads_do_and_memory_stays_bounded() {
    const WRITERS: u64 = 24;
    const PIECE: usize = 1 << 20;
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let mut options = options();
    options.timeout = Duration::from_secs(3);
    let storage = create(&store, dir.path(), options).unwrap();
    let file = storage.open("f", OpenMode::CreateNew).unwrap();
    store.away(true);
    let accepted: u64 = std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let file = &file;
            scope.spawn(move || {
                let piece = noise(writer + 1, PIECE);
                let place = |n| (n * WRITERS + writer) * PIECE as u64;
                // Until an upload has failed: then nothing is accepted any more.
                (0..).find(|n| file.write_at(&piece, place(*n)).is_err())
            })
        });
        let writers: Vec<_> = writers.collect();
        let accepted = writers.into_iter().map(|writer| writer.join().unwrap());
        accepted.map(|n| n.unwrap()).sum()
    });
    // Four uploads, what is gathered for the next one, and a write of each.
    assert!(accepted <= 4 * 17 + 16 + WRITERS, "{accepted} MiB");
}

/// Each read of an object that was cut short was tried again until the time was up, and a check of the data never ended.
#[test]
fn an_object_that_was_cut_short_is_an_error_at_once() {
    let store = Store::new();
    let [here, there] = two_machines();
    let storage = create(&store, here.path(), options()).unwrap();
    write(&storage, "f", &noise(1, 3 << 20)).unwrap();
    drop(storage);
    let [(name, _)] = &list(&store, "rooms/a/data")[..] else {
        panic!("one object");
    };
    overwrite(&store, name, noise(1, 5000));
    let mut options = options();
    options.read_only = true;
    let storage = open(&store, there.path(), options).unwrap();
    let file = storage.open("f", OpenMode::Read).unwrap();
    for at in [0, 2 << 20] {
        let refused = file.read_at(&mut [0; 10], at).unwrap_err().to_string();
        assert!(refused.contains("bytes instead of"), "{refused}");
    }
}
