//! Transfers that are cut, damaged, interrupted or killed.

use crate::common::{credential, pattern, sound};
use fastrand::Rng;
use room::{FileSystem as _, OpenOptions, ReplicaStatus, Room, SendRequest};

use super::*;

/// Where frames begin: at the first, behind each.
fn frames(stream: &[u8]) -> Vec<usize> {
    let mut at = 16;
    let mut places = vec![at];
    while at < stream.len() {
        let len = u32::from_le_bytes(stream[at + 4..at + 8].try_into().unwrap());
        at += 8 + len as usize + 32;
        places.push(at);
    }
    assert_eq!(at, stream.len());
    places
}

/// Places to try: around each frame, and some between.
fn places(stream: &[u8]) -> Vec<usize> {
    let mut all: Vec<usize> = frames(stream)
        .into_iter()
        .flat_map(|at| {
            [
                at.saturating_sub(33),
                at.saturating_sub(1),
                at,
                at + 5,
                at + 9,
            ]
        })
        .chain((0..stream.len()).step_by(4099))
        .filter(|at| *at < stream.len())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn reading() -> OpenOptions {
    OpenOptions {
        background: false,
        ..OpenOptions::default()
    }
    .for_reading()
}

#[test]
fn a_stream_that_is_cut_changed_or_out_of_order_leaves_the_last_moment() {
    let pair = Pair::new();
    let (room, whole, increment) = two_moments(&pair);
    let (one, two) = (room.moment("one").unwrap(), room.moment("two").unwrap());
    // In memory: there is nothing to wait for.
    let target = storage::testing::MemoryStorage::new();
    let take = |bytes: &[u8]| room::receive_on(&target, &mut &bytes[..], &|_, _| true);
    take(&whole).unwrap();
    let is_one = || {
        let bytes = storage::read_limited(&target, "replica", 4096).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(&one.to_string()), "{text}");
    };
    for at in places(&increment) {
        take(&increment[..at]).unwrap_err();
        is_one();
        let mut changed = increment.clone();
        changed[at] ^= 1 << (at % 8);
        take(&changed).unwrap_err();
        is_one();
    }
    let places = frames(&increment);
    let frame = |nth: usize| &increment[places[nth]..places[nth + 1]];
    for nth in 0..places.len() - 1 {
        // Left out, repeated, exchanged with the next, replaced by another stream's.
        let (before, behind) = (&increment[..places[nth]], &increment[places[nth + 1]..]);
        take(&[before, behind].concat()).unwrap_err();
        take(&[before, frame(nth), frame(nth), behind].concat()).unwrap_err();
        if nth + 2 < places.len() {
            let rest = &increment[places[nth + 2]..];
            take(&[before, frame(nth + 1), frame(nth), rest].concat()).unwrap_err();
        }
        is_one();
    }
    let others = frames(&whole);
    for nth in 1..places.len().min(others.len()) {
        take(&[&whole[..others[nth]], &increment[places[nth]..]].concat()).unwrap_err();
        is_one();
    }
    take(&[&increment[..], b"x"].concat()).unwrap_err();
    is_one();
    // Everything again, and one that is too far ahead.
    take(&whole).unwrap_err();
    let elsewhere = storage::testing::MemoryStorage::new();
    let error = room::receive_on(&elsewhere, &mut &increment[..], &|_, _| true).unwrap_err();
    assert!(error.to_string().contains("send everything"), "{error}");
    assert_eq!(take(&increment).unwrap().moment, two);
    let replica = Room::open_on(std::sync::Arc::new(target), &credential(), reading()).unwrap();
    assert!(contents(&replica, "another name") == pattern(7, 60_000));
    sound(&replica);
}

/// Reads a stream up to a byte, then fails.
struct Cut<'a>(&'a [u8], usize);

impl std::io::Read for Cut<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.1 == 0 {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        let len = buf.len().min(self.1).min(self.0.len()).min(8192);
        buf[..len].copy_from_slice(&self.0[..len]);
        (self.0, self.1) = (&self.0[len..], self.1 - len);
        Ok(len)
    }
}

#[test]
fn an_interrupted_transfer_goes_on_where_it_ended() {
    let pair = Pair::new();
    let room = pair.place.create();
    file(&room, "a", &pattern(1, 30_000_000));
    snapshot(&room, "one");
    let mut r = Rng::with_seed(5);
    let mut sent = 0;
    let mut turns = 0;
    let whole = stream(&room, None, "one").len();
    loop {
        turns += 1;
        let unfinished = ReplicaStatus::of(&pair.target()).unwrap().unfinished;
        if let Some(unfinished) = &unfinished {
            assert_eq!(unfinished.to, room.moment("one").unwrap());
            assert_eq!(unfinished.since, None);
        }
        let request = SendRequest {
            to: "one".into(),
            resume: unfinished.map(|u| u.token.to_string().parse().unwrap()),
            ..SendRequest::default()
        };
        let mut out = Vec::new();
        room.send(&request, &mut out, &|_, _| true).unwrap();
        let cut = 1 + r.usize(..5_000_000);
        sent += cut.min(out.len());
        let mut from = Cut(&out, cut);
        match room::receive(&pair.target(), &mut from, &pair.options(), &|_, _| true) {
            Ok(report) => {
                assert_eq!(report.moment, room.moment("one").unwrap());
                break;
            }
            Err(_) => assert!(!pair.target().join("catalog.db").exists()),
        }
    }
    assert!(turns > 5);
    // Each turn repeats at most a frame, the beginning and the catalog.
    assert!(
        sent < whole + turns * 2_000_000,
        "{sent} of {whole} in {turns}"
    );
    let replica = pair.replica();
    assert!(contents(&replica, "a") == pattern(1, 30_000_000));
    sound(&replica);
}

#[test]
fn a_token_of_something_else_is_refused() {
    let pair = Pair::new();
    let (room, whole, increment) = two_moments(&pair);
    let cut = &mut Cut(&whole, frames(&whole)[2]);
    room::receive(&pair.target(), cut, &pair.options(), &|_, _| true).unwrap_err();
    let token = ReplicaStatus::of(&pair.target())
        .unwrap()
        .unfinished
        .unwrap()
        .token;
    let request = SendRequest {
        to: "two".into(),
        since: Some("one".into()),
        resume: Some(token),
        ..SendRequest::default()
    };
    room.send(&request, &mut Vec::new(), &|_, _| true)
        .unwrap_err();
    let resumed = SendRequest {
        to: "one".into(),
        resume: Some(token),
        ..SendRequest::default()
    };
    let mut rest = Vec::new();
    room.send(&resumed, &mut rest, &|_, _| true).unwrap();
    assert!(rest.len() < whole.len());
    // Somewhere else there is nothing that it goes on with.
    let elsewhere = pair.place.dir.path().join("elsewhere");
    receive(&elsewhere, &pair.options(), &rest).unwrap_err();
    pair.receive(&rest).unwrap();
    pair.receive(&increment).unwrap();
    sound(&pair.replica());
}

#[test]
fn a_crash_of_the_receiver_leaves_one_moment_or_the_other() {
    use storage::testing::{Fault, FaultyStorage, MemoryStorage, Times};
    let pair = Pair::new();
    let (room, whole, increment) = two_moments(&pair);
    let (one, two) = (room.moment("one").unwrap(), room.moment("two").unwrap());
    let mut nth = 0;
    loop {
        let memory = MemoryStorage::new();
        room::receive_on(&memory, &mut &whole[..], &|_, _| true).unwrap();
        let faulty = FaultyStorage::new(memory.clone());
        faulty.refuse_any(nth, Fault::Io, Times::Always);
        let done = room::receive_on(&faulty, &mut &increment[..], &|_, _| true).is_ok();
        drop(faulty);
        memory.power_cut_keeping_some(nth);
        let options = reading();
        let storage: std::sync::Arc<dyn storage::Storage> = std::sync::Arc::new(memory.clone());
        let replica = Room::open_on(storage, &credential(), options).unwrap();
        let is_two = replica.lookup(ROOT, b"another name").is_ok();
        assert!(is_two || !done, "step {nth}");
        sound(&replica);
        drop(replica);
        if !is_two {
            let again = room::receive_on(&memory, &mut &increment[..], &|_, _| true);
            assert_eq!(again.unwrap().moment, two, "step {nth}");
        } else {
            let again = room::receive_on(&memory, &mut &increment[..], &|_, _| true);
            assert!(again.is_err());
        }
        assert_ne!(one, two);
        if done {
            assert!(nth > 20);
            return;
        }
        nth += 1;
    }
}

/// It was called no room, although its status named the moment, until something was received again.
#[test]
fn a_first_transfer_that_is_complete_is_read_wherever_its_receiver_was_killed() {
    use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
    let pair = Pair::new();
    let (room, whole, _) = two_moments(&pair);
    let one = room.moment("one").unwrap();
    let (mut nth, mut out_of_place) = (0, 0);
    loop {
        let memory = MemoryStorage::new();
        let faulty = FaultyStorage::new(memory.clone());
        faulty.refuse_any(nth, Fault::Io, Times::Always);
        let done = room::receive_on(&faulty, &mut &whole[..], &|_, _| true).is_ok();
        drop(faulty);
        let nowhere = std::path::Path::new("");
        let is_there = ReplicaStatus::of_storage(&memory, nowhere).unwrap().moment == Some(one);
        let has_header =
            storage::Storage::open(&memory, "header.json", storage::OpenMode::Read).is_ok();
        out_of_place += u64::from(is_there && !has_header);
        // As a reader that may not write there, and as one that may.
        for may_write in [false, true] {
            let faulty = FaultyStorage::new(memory.clone());
            let writes = [
                Op::Create,
                Op::Write,
                Op::SetLen,
                Op::Rename,
                Op::Remove,
                Op::CreateDir,
            ];
            for op in writes.into_iter().filter(|_| !may_write) {
                faulty.refuse(op, 1, Fault::Io, Times::Always);
            }
            let opened = Room::open_on(std::sync::Arc::new(faulty), &credential(), reading());
            assert!(is_there || opened.is_err(), "step {nth}");
            if is_there {
                sound(&opened.unwrap_or_else(|e| panic!("step {nth}: {e}")));
            }
        }
        if done {
            assert!(out_of_place > 0 && nth > 20);
            return;
        }
        nth += 1;
    }
}

#[test]
fn what_is_not_of_a_transfer_is_not_received_over() {
    use storage::testing::MemoryStorage;
    use storage::{OpenMode, Storage};
    let pair = Pair::new();
    let (_room, whole, _) = two_moments(&pair);
    for path in [
        "mine",
        "mine.incoming",
        "segments/00000000000000000001",
        "segments/mine.incoming",
        "increments/1",
        "incoming/mine",
    ] {
        let memory = MemoryStorage::new();
        if path.contains('/') {
            memory.create_dir(storage::parent(path)).unwrap();
        }
        memory.open(path, OpenMode::CreateNew).unwrap();
        let refused = room::receive_on(&memory, &mut &whole[..], &|_, _| true);
        assert!(
            matches!(refused, Err(room::Error::NotEmptyTarget(_))),
            "{path}: {refused:?}"
        );
        let looked = ReplicaStatus::of_storage(&memory, std::path::Path::new(""));
        assert!(
            matches!(looked, Err(room::Error::NotEmptyTarget(_))),
            "{path}: {looked:?}"
        );
        memory.open(path, OpenMode::Read).unwrap();
        // Nothing of ours is left in it either.
        assert_eq!(memory.list("").unwrap().len(), 1, "{path}");
    }
}

/// The same as an older version would have left it, which had all of a transfer in one directory and made the others later.
fn as_older(now: &dyn storage::Storage) -> storage::testing::MemoryStorage {
    use storage::Storage;
    let older = storage::testing::MemoryStorage::new();
    older.create_dir("incoming").unwrap();
    for dir in ["", "segments/", "increments/"] {
        for name in now.list(dir.trim_end_matches('/')).unwrap() {
            let path = format!("{dir}{name}");
            let Ok(bytes) = storage::read_limited(now, &path, 1 << 30) else {
                continue;
            };
            let to = match name.strip_suffix(".incoming") {
                Some(name) => format!("incoming/{name}"),
                None => path,
            };
            let _ = older.create_dir(storage::parent(&to));
            storage::write_new(&older, &to, &bytes).unwrap();
        }
    }
    older
}

/// An older version was killed when its transfer was complete.
#[test]
fn what_an_older_version_received_comes_to_its_place() {
    use storage::Storage;
    use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
    let pair = Pair::new();
    let (_room, whole, increment) = two_moments(&pair);
    let mut replica = MemoryStorage::new();
    for (stream, is_two) in [(whole, false), (increment, true)] {
        let faulty = FaultyStorage::new(replica.clone());
        // The first renaming says that all is there, the next ones put it in its place.
        faulty.refuse(Op::Rename, 2, Fault::Io, Times::Always);
        room::receive_on(&faulty, &mut &stream[..], &|_, _| true).unwrap_err();
        replica = as_older(&replica);
        let came = replica.list("incoming").unwrap();
        assert!(came.contains(&"header".into()) && came.len() > 1);
        assert_eq!(replica.list("segments").is_ok(), is_two);
        let options = reading();
        let on = std::sync::Arc::new(replica.clone());
        let opened = Room::open_on(on, &credential(), options).unwrap();
        assert_eq!(opened.lookup(ROOT, b"another name").is_ok(), is_two);
        sound(&opened);
        assert!(replica.list("incoming").unwrap().is_empty());
    }
}

/// The name of a transfer that is complete is removed, and its receiver killed before that is durable. Were it there again after a
/// power cut, what the next transfer brought so far would be taken for its parts.
#[test]
fn a_killed_receiver_and_a_power_cut_in_the_next_transfer_leave_one_moment() {
    use storage::testing::{Fault, FaultyStorage, MemoryStorage, Times};
    let pair = Pair::new();
    let (room, whole, second) = two_moments(&pair);
    file(&room, "third", &pattern(9, 60_000));
    snapshot(&room, "three");
    let third = stream(&room, Some("two"), "three");
    let receive = |to: &dyn storage::Storage, stream: &[u8]| {
        room::receive_on(to, &mut &stream[..], &|_, _| true)
    };
    let mut nth = 0;
    loop {
        let mut ended = false;
        for seed in 0..6 {
            let memory = MemoryStorage::new();
            receive(&memory, &whole).unwrap();
            let faulty = FaultyStorage::new(memory.clone());
            faulty.refuse_any(nth, Fault::Io, Times::Always);
            ended = receive(&faulty, &second).is_ok();
            drop(faulty);
            let moved = receive(&memory, &third[..third.len() - 40]).is_err();
            assert!(moved, "step {nth}");
            memory.power_cut_keeping_some(seed + 6 * nth);
            let options = reading();
            let on: std::sync::Arc<dyn storage::Storage> = std::sync::Arc::new(memory.clone());
            let replica = Room::open_on(on, &credential(), options);
            sound(&replica.unwrap_or_else(|e| panic!("step {nth}, seed {seed}: {e}")));
        }
        if ended {
            return;
        }
        nth += 1;
    }
}

/// What failed: the sync of a segment was refused, with its data lost, and the transfer went on behind it: that segment was damaged in
/// the replica.
#[test]
fn data_whose_sync_failed_is_sent_again() {
    use storage::Storage as _;
    use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
    let pair = Pair::new();
    let room = pair.place.create();
    file(&room, "a", &pattern(1, 300_000));
    room.close().unwrap();
    // Another segment.
    let room = pair.place.open();
    file(&room, "b", &pattern(2, 300_000));
    snapshot(&room, "one");
    let send = |resume| {
        let request = SendRequest {
            to: "one".into(),
            resume,
            ..SendRequest::default()
        };
        let mut out = Vec::new();
        room.send(&request, &mut out, &|_, _| true).unwrap();
        out
    };
    let mut failed = 0;
    for op in [Op::Sync, Op::SyncDir] {
        for nth in 1.. {
            let memory = MemoryStorage::new();
            let faulty = FaultyStorage::new(memory.clone());
            let lossy = memory.clone();
            faulty.on_failed_sync(move |path| {
                let file = lossy.open(path, storage::OpenMode::ReadWrite).unwrap();
                let len = file.len().unwrap() as usize;
                file.write_at(&vec![0; len], 0).unwrap();
            });
            faulty.refuse(op, nth, Fault::Io, Times::Once);
            let take = |stream: &[u8]| room::receive_on(&faulty, &mut &stream[..], &|_, _| true);
            let received = take(&send(None));
            let befell = faulty.refused() > 0;
            if received.is_err() {
                failed += 1;
                let nowhere = std::path::Path::new("");
                let status = ReplicaStatus::of_storage(&faulty, nowhere).unwrap();
                if status.moment.is_none() {
                    take(&send(status.unfinished.map(|u| u.token))).unwrap();
                }
            }
            let options = reading();
            let storage = std::sync::Arc::new(memory);
            let replica = Room::open_on(storage, &credential(), options).unwrap();
            sound(&replica);
            assert!(contents(&replica, "a") == pattern(1, 300_000));
            if !befell {
                break;
            }
        }
    }
    assert!(failed > 5, "{failed}");
}
