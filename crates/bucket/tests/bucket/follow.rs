//! Readers that follow a writer: whole moments only, in order, to the newest one.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use room::{Error, Room};
use strongroom_bucket::{BucketStorage, Options};

use crate::made::{options, two_machines};
use crate::room::{make, open_read_only, reopen};
use crate::store::{Store, list, remove};

/// A writer that makes a checkpoint every few commits.
fn often() -> Options {
    let mut often = options();
    often.checkpoint_commits = 7;
    often
}

/// Two files with the same text, in one moment.
fn write_both(room: &Room, round: u64) {
    let text = format!("{round} ").repeat(1 + round as usize * 37 % 900);
    room.write_file("/first", text.as_bytes()).unwrap();
    room.write_file("/second", text.as_bytes()).unwrap();
    use room::FileSystem;
    room.sync().unwrap();
}

/// The round that both files are of.
fn round(room: &Room) -> u64 {
    let first = room.read_file("/first").unwrap();
    assert!(
        first == room.read_file("/second").unwrap(),
        "of two moments"
    );
    let text = String::from_utf8(first).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

struct Reader {
    storage: Arc<BucketStorage>,
    room: Room,
}

impl Reader {
    fn new(store: &Store, dir: &Path) -> Self {
        let (storage, room) = open_read_only(store, dir).unwrap();
        Self { storage, room }
    }

    /// Whether it moved.
    fn follow(&mut self, look: bool) -> bool {
        let Some(newer) = self.storage.newer(look).unwrap() else {
            return false;
        };
        self.storage = Arc::new(newer);
        self.room = self.room.later(self.storage.clone()).unwrap();
        true
    }
}

#[test]
fn a_reader_beside_a_busy_writer_never_sees_a_mixture() {
    const ROUNDS: u64 = 60;
    let store = Store::new();
    let [here, there] = two_machines();
    let (_, room) = make(&store, here.path(), often());
    write_both(&room, 0);
    let mut reader = Reader::new(&store, there.path());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=ROUNDS {
                write_both(&room, n);
            }
            is_done.store(true, Ordering::Release);
        });
        let mut last = 0;
        loop {
            let was_done = is_done.load(Ordering::Acquire);
            let moved = reader.follow(false);
            let now = round(&reader.room);
            assert!(now >= last, "{now} after {last}");
            last = now;
            if was_done && !moved {
                break;
            }
        }
        assert_eq!(last, ROUNDS);
    });
}

#[test]
fn a_reader_follows_from_one_writer_to_the_next() {
    let (store, here, there, reading) = (
        Store::new(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let (storage, room) = make(&store, here.path(), often());
    write_both(&room, 1);
    let mut reader = Reader::new(&store, reading.path());
    storage.die();
    drop(room);
    let (_, room) = reopen(&store, there.path(), often()).unwrap();
    write_both(&room, 2);
    assert!(reader.follow(false));
    assert_eq!(round(&reader.room), 2);
    // One moment is what it is for as long as somebody holds it.
    let (old, old_room) = (reader.storage.clone(), round(&reader.room));
    write_both(&room, 3);
    assert!(reader.follow(false));
    assert_eq!((round(&reader.room), old_room), (3, 2));
    let refused = reader.room.later(old).unwrap_err();
    assert!(matches!(refused, Error::RolledBack { .. }), "{refused}");
}

#[test]
fn nothing_new_costs_one_request() {
    let store = Store::new();
    let [here, there] = two_machines();
    let (_, room) = make(&store, here.path(), options());
    write_both(&room, 1);
    let mut reader = Reader::new(&store, there.path());
    // Those for commits are asked of the log, where there is one.
    let asked = |reader: &Reader| {
        let requests = reader.storage.requests();
        requests.gets + requests.lists + requests.log
    };
    let before = asked(&reader);
    assert!(!reader.follow(false));
    assert_eq!(asked(&reader) - before, 1);
    let lists = reader.storage.requests().lists;
    assert!(!reader.follow(true));
    assert_eq!(asked(&reader) - before, 1 + 3);
    let looked = reader.storage.requests().lists - lists;
    // The list of commits is one of the log.
    assert_eq!(looked, 2 - u64::from(store.has_log()));
}

/// All commits behind the one it shows are gone from the store: they are in checkpoints.
#[test]
fn a_reader_that_slept_finds_the_newest_moment() {
    let store = Store::new();
    let [here, there] = two_machines();
    let mut quick = often();
    quick.grace = Duration::ZERO;
    let (storage, room) = make(&store, here.path(), quick);
    write_both(&room, 0);
    let mut reader = Reader::new(&store, there.path());
    for n in 1..30 {
        write_both(&room, n);
    }
    storage.checkpoint().unwrap();
    assert!(reader.follow(true));
    assert_eq!(round(&reader.room), 29);
}

#[test]
fn a_store_that_went_back_is_noticed() {
    let store = Store::new();
    let [here, there] = two_machines();
    if store.has_log() {
        // A log elsewhere does not go back with the store.
        return;
    }
    let (_, room) = make(&store, here.path(), options());
    write_both(&room, 1);
    let before = list(&store, "rooms/a");
    write_both(&room, 2);
    let reader = Reader::new(&store, there.path());
    for (name, _) in list(&store, "rooms/a") {
        if !before.iter().any(|(old, _)| *old == name) {
            remove(&store, &name);
        }
    }
    let refused = reader.storage.newer(true).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    assert!(refused.to_string().contains("went back"), "{refused}");
}
