//! Replicas in a bucket: opened in their place, one whole moment after any cut, by one writer at a time.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use room::{
    Credential, Error, MomentId, NewCredential, NewRoom, NewSnapshot, OpenOptions, ReceiveReport,
    ReplicaStatus, Room, SendRequest, Snapshots as _,
};
use storage::Storage;
use strongroom_bucket::{BucketStorage, Options};

use crate::made::{create, noise, open, options, polite, quick, short, two_machines};
use crate::store::{Store, contents, overwrite};

const KEY: [u8; 32] = [9; 32];

/// What files of the root are at a moment.
type Tree = BTreeMap<&'static str, Vec<u8>>;

fn credential() -> Credential {
    Credential::RawKey(KEY.to_vec().into())
}

fn in_room(dir: &Path, read_only: bool) -> OpenOptions {
    OpenOptions {
        state_dir: Some(dir.join("state")),
        background: false,
        read_only,
        ..OpenOptions::default()
    }
}

/// A room in a directory, and what it was at each snapshot.
struct Source {
    room: Room,
    trees: BTreeMap<&'static str, Tree>,
    _dir: tempfile::TempDir,
}

impl Source {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut new = NewRoom::with_credential(NewCredential::RawKey(KEY.to_vec().into()));
        new.open = in_room(dir.path(), false);
        Self {
            room: Room::create(&dir.path().join("room"), new).unwrap(),
            trees: BTreeMap::new(),
            _dir: dir,
        }
    }

    /// Writes files, and takes a snapshot.
    fn moment(&mut self, name: &'static str, files: &[(&'static str, Vec<u8>)]) {
        let mut tree = self.trees.values().last().cloned().unwrap_or_default();
        for (path, data) in files {
            self.room.write_file(path, data).unwrap();
            tree.insert(path, data.clone());
        }
        let new = NewSnapshot::default();
        self.room.create_snapshot(name, new).unwrap();
        self.trees.insert(name, tree);
    }

    fn id(&self, name: &str) -> MomentId {
        self.room.moment(name).unwrap()
    }

    fn send(&self, request: SendRequest) -> Vec<u8> {
        let mut out = Vec::new();
        self.room.send(&request, &mut out, &|_, _| true).unwrap();
        out
    }

    fn whole(&self, to: &str) -> Vec<u8> {
        self.send(SendRequest {
            to: to.into(),
            ..SendRequest::default()
        })
    }

    fn increment(&self, since: &str, to: &str) -> Vec<u8> {
        self.send(SendRequest {
            to: to.into(),
            since: Some(since.into()),
            ..SendRequest::default()
        })
    }

    /// The moment that the replica in a store shows on a machine of its own: whole, sound, and one of the room's.
    fn shown(&self, store: &Store) -> &'static str {
        let dir = tempfile::tempdir().unwrap();
        self.shown_on(store, dir.path()).unwrap()
    }

    /// The same on a machine that may have seen it before.
    fn shown_on(&self, store: &Store, dir: &Path) -> room::Result<&'static str> {
        let mut reading = options();
        reading.read_only = true;
        let storage = Arc::new(open(store, dir, reading)?);
        let replica = Room::open_for(storage, dir, &credential(), in_room(dir, true))?;
        Ok(self.is_shown(&replica))
    }

    fn is_shown(&self, replica: &Room) -> &'static str {
        let report = replica.check(true, false, &|_, _| true).unwrap();
        assert!(
            report.findings.is_empty() && report.lost.is_empty(),
            "{report:?}"
        );
        let last = replica.snapshots().unwrap().pop().unwrap().name;
        let (&name, tree) = self.trees.get_key_value(&*last).unwrap();
        for (path, data) in tree {
            assert!(
                replica.read_file(path).unwrap() == *data,
                "{path} at {name}"
            );
        }
        name
    }
}

fn receive(
    storage: &dyn Storage,
    dir: &Path,
    stream: &mut dyn Read,
) -> room::Result<ReceiveReport> {
    room::receive_for(storage, dir, stream, &in_room(dir, false), &|_, _| true)
}

fn status(storage: &dyn Storage, dir: &Path) -> ReplicaStatus {
    ReplicaStatus::of_storage(storage, dir).unwrap()
}

/// A store with the same objects.
fn copy_of(store: &Store) -> Store {
    let copy = Store::new();
    for (name, bytes) in contents(store, "rooms/a") {
        overwrite(&copy, &name, bytes);
    }
    copy
}

/// A room of three moments. The segment to which the second one adds is there already.
fn three_moments() -> Source {
    let mut source = Source::new();
    source.moment("1", &[("/a", noise(1, 300_000)), ("/b", noise(2, 9000))]);
    source.moment("2", &[("/b", noise(3, 40_000)), ("/c", noise(4, 70_000))]);
    source.moment("3", &[("/a", noise(5, 20_000))]);
    source
}

/// The store with the first moment of a room.
fn with_the_first(source: &Source, dir: &Path) -> Store {
    let store = Store::new();
    let storage = create(&store, dir, options()).unwrap();
    assert_eq!(status(&storage, dir), ReplicaStatus::default());
    receive(&storage, dir, &mut &source.whole("1")[..]).unwrap();
    store
}

#[test]
fn a_replica_is_opened_in_its_place_applied_and_promoted() {
    let source = three_moments();
    let [here, there] = two_machines();
    let store = with_the_first(&source, here.path());
    assert_eq!(source.shown_on(&store, there.path()).unwrap(), "1");
    for (since, to) in [("1", "2"), ("2", "3")] {
        let storage = open(&store, here.path(), options()).unwrap();
        let increment = source.increment(since, to);
        receive(&storage, here.path(), &mut &increment[..]).unwrap();
        assert_eq!(status(&storage, here.path()).moment, Some(source.id(to)));
        receive(&storage, here.path(), &mut &increment[..]).unwrap_err();
        drop(storage);
        assert_eq!(source.shown_on(&store, there.path()).unwrap(), to);
    }
    let storage = Arc::new(open(&store, here.path(), options()).unwrap());
    let (dir, change) = (here.path(), || in_room(here.path(), false));
    Room::settle_replica_for(storage.clone(), dir, &credential(), change()).unwrap();
    assert!(storage.list("increments").unwrap().is_empty());
    assert_eq!(source.shown_on(&store, there.path()).unwrap(), "3");
    let refused = Room::open_for(storage.clone(), dir, &credential(), change()).unwrap_err();
    assert!(matches!(refused, Error::NotPermitted(_)), "{refused}");
    Room::promote_replica_for(storage.clone(), dir, &credential(), change()).unwrap();
    let room = Room::open_for(storage.clone(), dir, &credential(), change()).unwrap();
    room.write_file("/own", b"own").unwrap();
    room.close().unwrap();
    receive(&*storage, dir, &mut &source.whole("3")[..]).unwrap_err();
}

/// The store stops answering after every number of changes. What is left is one moment, and what comes next is received.
#[test]
fn a_receiver_cut_off_anywhere_leaves_a_whole_moment_and_goes_on() {
    let source = three_moments();
    let first = with_the_first(&source, tempfile::tempdir().unwrap().path());
    let increment = source.increment("1", "3");
    let mut quick = quick();
    quick.timeout = short(&Store::new(), 40);
    let mut cut = 0;
    loop {
        let mut is_over = false;
        for next_is_done in [false, true] {
            let store = copy_of(&first);
            let [here, there] = two_machines();
            let storage = open(&store, here.path(), quick.clone()).unwrap();
            store.end_after(cut, next_is_done);
            let done = receive(&storage, here.path(), &mut &increment[..]).is_ok();
            storage.die();
            drop(storage);
            store.heal();
            let story = format!("cut {cut}, {next_is_done}, received: {done}");
            let shown = source.shown(&store);
            assert!(shown == "3" || (shown == "1" && !done), "{shown}: {story}");
            let storage = open(&store, there.path(), options()).unwrap();
            let found = status(&storage, there.path());
            if found.moment == Some(source.id("3")) {
                // It has arrived, and the next receiver puts it in its place.
                receive(&storage, there.path(), &mut &increment[..]).unwrap_err();
            } else {
                assert_eq!(found.moment, Some(source.id("1")), "{story}");
                let rest = source.send(SendRequest {
                    to: "3".into(),
                    since: Some("1".into()),
                    resume: found.unfinished.map(|unfinished| unfinished.token),
                    ..SendRequest::default()
                });
                receive(&storage, there.path(), &mut &rest[..]).unwrap();
            }
            drop(storage);
            assert_eq!(source.shown(&store), "3", "{story}");
            is_over |= done && cut > 0;
        }
        if is_over {
            break;
        }
        cut += 1;
    }
    assert!(cut > 8, "{cut}");
}

#[test]
fn the_first_transfer_cut_off_anywhere_is_completed() {
    let source = three_moments();
    let whole = source.whole("2");
    let mut quick = options();
    quick.timeout = short(&Store::new(), 40);
    let mut cut = 0;
    loop {
        let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
        let storage = create(&store, dir.path(), quick.clone()).unwrap();
        store.end_after(cut, cut % 2 == 0);
        let done = receive(&storage, dir.path(), &mut &whole[..]).is_ok();
        storage.die();
        drop(storage);
        store.heal();
        let storage = open(&store, dir.path(), options()).unwrap();
        let has_arrived = status(&storage, dir.path()).moment.is_some();
        assert!(has_arrived || !done, "cut {cut}");
        // What has arrived is put in its place, and does not arrive twice.
        let again = receive(&storage, dir.path(), &mut &whole[..]);
        assert_eq!(again.is_err(), has_arrived, "cut {cut}");
        drop(storage);
        assert_eq!(source.shown(&store), "2", "cut {cut}");
        if done {
            break;
        }
        cut += 1;
    }
    assert!(cut > 8, "{cut}");
}

/// Reads a stream, and does something in its middle.
struct Meanwhile<'a, F: FnMut()> {
    stream: &'a [u8],
    left: usize,
    act: F,
}

impl<F: FnMut()> Read for Meanwhile<'_, F> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            (self.act)();
            self.left = usize::MAX;
        }
        let most = buf.len().min(self.left);
        let len = Read::read(&mut self.stream, &mut buf[..most])?;
        self.left -= len;
        Ok(len)
    }
}

#[test]
fn of_two_senders_the_one_that_was_overtaken_changes_nothing() {
    let source = three_moments();
    let [one, two] = two_machines();
    let store = with_the_first(&source, one.path());
    let increment = source.increment("1", "2");
    let slow = open(&store, one.path(), options()).unwrap();
    let refusing = || {
        let refused = open(&store, two.path(), polite()).unwrap_err().to_string();
        assert!(refused.contains("--take-over"), "{refused}");
    };
    let mut second: Option<BucketStorage> = None;
    let mut from = Meanwhile {
        stream: &increment,
        left: increment.len() / 2,
        act: || {
            refusing();
            let storage = open(&store, two.path(), options()).unwrap();
            receive(&storage, two.path(), &mut &source.increment("1", "3")[..]).unwrap();
            second = Some(storage);
        },
    };
    let refused = receive(&slow, one.path(), &mut from)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("another writer has taken over"),
        "{refused}"
    );
    drop(slow);
    drop(second);
    assert_eq!(source.shown(&store), "3");
}

/// Anyone with the bucket changes, cuts, exchanges or removes objects, with right hashes: what is read is right, or an error.
#[test]
fn a_replica_whose_objects_are_changed_cut_exchanged_or_gone_shows_nothing_false() {
    let source = three_moments();
    let dir = tempfile::tempdir().unwrap();
    let store = with_the_first(&source, dir.path());
    let storage = open(&store, dir.path(), options()).unwrap();
    receive(&storage, dir.path(), &mut &source.increment("1", "3")[..]).unwrap();
    storage.checkpoint().unwrap();
    drop(storage);
    let objects = contents(&store, "rooms/a");
    let rehashed = |name: &str, mut bytes: Vec<u8>| {
        if !name.contains("/data/") && !name.ends_with("/log") && bytes.len() >= 88 {
            bytes[56..88].fill(0);
            let hash = blake3::hash(&bytes);
            bytes[56..88].copy_from_slice(hash.as_bytes());
        }
        bytes
    };
    let (mut noticed, mut tried) = (0, 0);
    for (nth, (name, bytes)) in objects.iter().enumerate() {
        let mut flipped = bytes.clone();
        let middle = bytes.len() / 2;
        flipped[middle] ^= 1;
        let cut = bytes[..middle].to_vec();
        let other = objects[(nth + 1) % objects.len()].1.clone();
        for false_bytes in [rehashed(name, flipped), rehashed(name, cut), other] {
            let false_store = copy_of(&store);
            overwrite(&false_store, name, false_bytes);
            noticed += usize::from(shows_nothing_false(&source, &false_store));
            tried += 1;
        }
    }
    assert!(noticed > 5, "{noticed} of {tried}");
}

/// Reads all that a store shows. Whether something was refused.
fn shows_nothing_false(source: &Source, store: &Store) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut reading: Options = options();
    reading.read_only = true;
    let Ok(storage) = open(store, dir.path(), reading) else {
        return true;
    };
    let storage = Arc::new(storage);
    let opened = Room::open_for(
        storage,
        dir.path(),
        &credential(),
        in_room(dir.path(), true),
    );
    let Ok(replica) = opened else {
        return true;
    };
    let mut is_refused = false;
    // An older state is a state too: a machine that saw a newer one refuses it.
    let last = replica.snapshots().unwrap().pop().unwrap().name;
    for (path, data) in &source.trees[&*last] {
        match replica.read_file(path) {
            Ok(found) => assert!(found == *data, "{path}"),
            Err(_) => is_refused = true,
        }
    }
    is_refused
}

#[test]
fn a_replica_that_was_put_back_is_refused_where_a_newer_one_was_seen() {
    let source = three_moments();
    let [here, there] = two_machines();
    let store = with_the_first(&source, here.path());
    let old = copy_of(&store);
    let storage = open(&store, here.path(), options()).unwrap();
    receive(&storage, here.path(), &mut &source.increment("1", "2")[..]).unwrap();
    drop(storage);
    assert_eq!(source.shown_on(&store, there.path()).unwrap(), "2");
    let refused = source.shown_on(&old, there.path()).unwrap_err();
    assert!(matches!(refused, Error::RolledBack { .. }), "{refused}");
    // Without the key it is known by its moment.
    let storage = open(&old, here.path(), options()).unwrap();
    assert_eq!(status(&storage, here.path()).moment, Some(source.id("1")));
    let refused = receive(&storage, here.path(), &mut &source.increment("2", "3")[..]);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(&source.id("1").to_string()), "{refused}");
}

#[test]
fn a_reader_follows_a_replica_from_moment_to_moment() {
    let source = three_moments();
    let [here, there] = two_machines();
    let store = with_the_first(&source, here.path());
    let mut reading = options();
    reading.read_only = true;
    let mut shown = Arc::new(open(&store, there.path(), reading).unwrap());
    let opened = in_room(there.path(), true);
    let mut replica = Room::open_for(shown.clone(), there.path(), &credential(), opened).unwrap();
    assert_eq!(source.is_shown(&replica), "1");
    for (since, to) in [("1", "2"), ("2", "3")] {
        let storage = open(&store, here.path(), options()).unwrap();
        let increment = source.increment(since, to);
        // Each commit of the receiver is a state that the reader may find.
        let mut from = Meanwhile {
            stream: &increment,
            left: increment.len() / 2,
            act: || {
                shown = Arc::new(shown.newer(false).unwrap().unwrap());
                replica = replica.later(shown.clone()).unwrap();
                assert_eq!(source.is_shown(&replica), since);
            },
        };
        receive(&storage, here.path(), &mut from).unwrap();
        shown = Arc::new(shown.newer(false).unwrap().unwrap());
        replica = replica.later(shown.clone()).unwrap();
        assert_eq!(source.is_shown(&replica), to);
    }
}
