//! Sending a room's moments to a directory that has no key, and opening them there.

mod meanwhile;
mod transfers;
mod trees;

use crate::common;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::model::{ALL, Model, compare, step, with_seeds};
use crate::common::{Place, credential, pattern, snapshot, sound};
use fastrand::Rng;
use room::{
    FileKind, FileSystem as _, InodeNo, Keep, NewFile, OpenOptions, ReplicaStatus, Room,
    SendRequest, Snapshots as _, Timestamp,
};

const ROOT: InodeNo = InodeNo::ROOT;

fn file(room: &Room, name: &str, data: &[u8]) -> InodeNo {
    let new = NewFile::of_kind(FileKind::Regular);
    let no = room.make(ROOT, name.as_bytes(), &new).unwrap().no;
    room.write(no, 0, data).unwrap();
    no
}

fn stream(room: &Room, since: Option<&str>, to: &str) -> Vec<u8> {
    stream_to_keep(room, since, to, Keep::default())
}

/// The same for a receiver that keeps some of the snapshots that the room has deleted.
fn stream_to_keep(room: &Room, since: Option<&str>, to: &str, keep: Keep) -> Vec<u8> {
    let mut out = Vec::new();
    let request = SendRequest {
        to: to.into(),
        since: since.map(Into::into),
        keep,
        ..SendRequest::default()
    };
    let report = room.send(&request, &mut out, &|_, _| true).unwrap();
    assert_eq!(report.sent, out.len() as u64);
    out
}

fn receive(target: &Path, options: &OpenOptions, stream: &[u8]) -> room::Result<()> {
    room::receive(target, &mut &stream[..], options, &|_, _| true).map(drop)
}

/// A room, and where its replica is.
struct Pair {
    place: Place,
}

impl Pair {
    fn new() -> Self {
        Self {
            place: Place::new(),
        }
    }

    fn target(&self) -> PathBuf {
        self.place.dir.path().join("replica")
    }

    fn options(&self) -> OpenOptions {
        self.place.options_without_thread()
    }

    fn receive(&self, stream: &[u8]) -> room::Result<()> {
        receive(&self.target(), &self.options(), stream)
    }

    fn replica(&self) -> Room {
        Room::open(&self.target(), &credential(), self.options().for_reading()).unwrap()
    }
}

fn contents(room: &dyn room::FileSystem, name: &str) -> Vec<u8> {
    let inode = room.lookup(ROOT, name.as_bytes()).unwrap();
    let mut data = vec![0; inode.size as usize];
    room.read(inode.no, 0, &mut data).unwrap();
    data
}

/// A room with two snapshots, and the streams of both: small, so that every place in them can be tried.
fn two_moments(pair: &Pair) -> (Room, Vec<u8>, Vec<u8>) {
    let room = pair.place.create();
    file(&room, "a secret name", &b"a secret word ".repeat(3000));
    snapshot(&room, "one");
    file(&room, "another name", &pattern(7, 60_000));
    let no = room.lookup(ROOT, b"a secret name").unwrap().no;
    room.write(no, 5000, &pattern(8, 4000)).unwrap();
    snapshot(&room, "two");
    let whole = stream(&room, None, "one");
    let increment = stream(&room, Some("one"), "two");
    (room, whole, increment)
}

#[test]
fn a_whole_stream_and_what_changed_since_make_a_replica() {
    let pair = Pair::new();
    let room = pair.place.create();
    let a = file(&room, "a", &pattern(1, 3_000_000));
    file(&room, "b", &pattern(2, 100_000));
    room.set_xattr(a, b"user.x", b"one", room::XattrMode::Any, false)
        .unwrap();
    snapshot(&room, "one");
    room.write(a, 1_000_000, &pattern(3, 5000)).unwrap();
    room.unlink(ROOT, b"b").unwrap();
    file(&room, "c", &pattern(4, 50_000));
    room.set_xattr(a, b"user.x", b"two", room::XattrMode::Any, false)
        .unwrap();
    snapshot(&room, "two");

    pair.receive(&stream(&room, None, "one")).unwrap();
    let replica = pair.replica();
    assert!(contents(&replica, "a") == pattern(1, 3_000_000));
    assert!(contents(&replica, "b") == pattern(2, 100_000));
    sound(&replica);
    drop(replica);

    let increment = stream(&room, Some("one"), "two");
    pair.receive(&increment).unwrap();
    for settled in [false, true] {
        if settled {
            Room::settle_replica(&pair.target(), &credential(), pair.options()).unwrap();
        }
        let replica = pair.replica();
        let mut now = pattern(1, 3_000_000);
        now[1_000_000..1_005_000].copy_from_slice(&pattern(3, 5000));
        assert!(contents(&replica, "a") == now);
        assert!(contents(&replica, "c") == pattern(4, 50_000));
        assert!(replica.lookup(ROOT, b"b").is_err());
        let no = replica.lookup(ROOT, b"a").unwrap().no;
        assert_eq!(replica.xattr(no, b"user.x").unwrap(), b"two");
        let before = replica.snapshot("one").unwrap();
        assert!(contents(&*before, "a") == pattern(1, 3_000_000));
        assert!(contents(&*before, "b") == pattern(2, 100_000));
        assert_eq!(before.xattr(no, b"user.x").unwrap(), b"one");
        sound(&replica);
    }
    // It was received already.
    assert!(pair.receive(&increment).is_err());
    let status = ReplicaStatus::of(&pair.target()).unwrap();
    assert_eq!(status.moment, Some(room.moment("two").unwrap()));
    assert!(status.unfinished.is_none());
}

/// Random operations, snapshots, deletions and compaction at the source; increments between random snapshots. Some replicas keep what
/// the source deletes.
fn run(seed: u64, steps: u64) {
    let mut r = Rng::with_seed(seed);
    let keep = Keep {
        since: r.bool().then(Timestamp::default),
        periods: None,
    };
    // What the source has deleted and the replica has.
    let mut kept: Vec<(String, Model)> = Vec::new();
    // The first snapshots of `past`, as they are called there.
    let mut replicated: Vec<String> = Vec::new();
    let pair = Pair::new();
    let room = pair.place.create();
    let mut now = Model::default();
    // Snapshots in order, with what they hold.
    let mut past: Vec<(String, Model)> = Vec::new();
    let mut sent: Option<String> = None;
    for at in 0..steps {
        step(&room, &mut now, &mut r, &ALL);
        match r.u64(..40) {
            0..4 => {
                let name = format!("s{at}");
                snapshot(&room, &name);
                past.push((name, now.clone()));
            }
            4 if past.len() > 2 => {
                let nth = r.usize(..past.len());
                if Some(&past[nth].0) != sent.as_ref() {
                    room.delete_snapshot(&past[nth].0).unwrap();
                    let (_, model) = past.remove(nth);
                    if nth < replicated.len() {
                        kept.push((replicated.remove(nth), model));
                    }
                }
            }
            5 if past.len() > 2 => {
                let nth = r.usize(..past.len());
                if Some(&past[nth].0) != sent.as_ref() {
                    let name = format!("r{at}");
                    room.rename_snapshot(&past[nth].0, &name).unwrap();
                    past[nth].0 = name;
                }
            }
            6 => drop(room.compact(100, &|_, _| true).unwrap()),
            7 => room.tend().unwrap(),
            // A file of a snapshot comes back, in the place of any file: units are shared with the past.
            10..13 if !past.is_empty() && !now.names.is_empty() => {
                let (name, model) = &past[r.usize(..past.len())];
                if model.names.is_empty() {
                    continue;
                }
                let nth = r.usize(..model.names.len());
                let (source, i) = model.names.iter().nth(nth).unwrap();
                let nth = r.usize(..now.names.len());
                let (target, j) = now.names.iter().nth(nth).unwrap();
                let view = room.snapshot(name).unwrap();
                let from = view.lookup(ROOT, source.as_bytes()).unwrap().no;
                let to = room.lookup(ROOT, target.as_bytes()).unwrap().no;
                room.copy_from_snapshot(name, from, to).unwrap();
                now.contents[*j] = model.contents[*i].clone();
            }
            8..10 => {
                let first = sent.as_ref().map_or(0, |sent| {
                    past.iter().position(|(name, _)| name == sent).unwrap() + 1
                });
                if first >= past.len() {
                    continue;
                }
                let nth = first + r.u64(..(past.len() - first) as u64) as usize;
                let to = past[nth].0.clone();
                let bytes = stream_to_keep(&room, sent.as_deref(), &to, keep);
                pair.receive(&bytes).unwrap();
                sent = Some(to);
                replicated = past[..=nth].iter().map(|(n, _)| n.clone()).collect();
                if r.u64(..3) == 0 {
                    Room::settle_replica(&pair.target(), &credential(), pair.options()).unwrap();
                }
                let replica = pair.replica();
                compare(&replica, &past[nth].1);
                if keep.since.is_none() {
                    kept.clear();
                }
                let names = replica.snapshots().unwrap().into_iter();
                let names: BTreeSet<_> = names.map(|s| s.name).collect();
                let there = past[..=nth].iter().chain(&kept);
                let there: BTreeSet<_> = there.map(|(n, _)| n.clone()).collect();
                assert_eq!(names, there, "seed {seed}, step {at}");
                for (name, model) in past[..=nth].iter().chain(&kept) {
                    compare(&*replica.snapshot(name).unwrap(), model);
                }
                sound(&replica);
            }
            _ => {}
        }
    }
    if sent.is_some() {
        Room::promote_replica(&pair.target(), &credential(), pair.options()).unwrap();
        let room = Room::open(&pair.target(), &credential(), pair.options()).unwrap();
        sound(&room);
        for (entry, _) in room.read_dir(ROOT, 0, 1000).unwrap() {
            room.unlink(ROOT, &entry.name).unwrap();
        }
        for snapshot in room.snapshots().unwrap() {
            room.delete_snapshot(&snapshot.name).unwrap();
        }
        room.tend().unwrap();
        sound(&room);
        assert_eq!(room.space().unwrap().live, 0, "seed {seed}");
    }
}

#[test]
fn replicas_hold_what_whole_copies_do() {
    with_seeds(4, 300, run);
}

#[test]
fn increments_that_do_not_follow_are_refused_by_name() {
    let pair = Pair::new();
    let (room, whole, first) = two_moments(&pair);
    file(&room, "late", b"late");
    snapshot(&room, "three");
    let second = stream(&room, Some("two"), "three");
    pair.receive(&whole).unwrap();
    let error = pair.receive(&second).unwrap_err().to_string();
    assert!(
        error.contains(&room.moment("two").unwrap().to_string())
            && error.contains(&room.moment("one").unwrap().to_string()),
        "{error}"
    );
    pair.receive(&first).unwrap();
    pair.receive(&second).unwrap();
    assert_eq!(contents(&pair.replica(), "late"), b"late");

    let other = Pair::new();
    let (_other_room, _, increment) = two_moments(&other);
    let error = pair.receive(&increment).unwrap_err().to_string();
    assert!(error.contains("another room"), "{error}");

    room.rekey(&credential(), &|_, _| true).unwrap();
    file(&room, "later", b"later");
    snapshot(&room, "four");
    let rekeyed = stream(&room, Some("three"), "four");
    let error = pair.receive(&rekeyed).unwrap_err().to_string();
    assert!(error.contains("rekeyed"), "{error}");
    let fresh = pair.place.dir.path().join("fresh");
    receive(&fresh, &pair.options(), &stream(&room, None, "four")).unwrap();
    let replica = Room::open(&fresh, &credential(), pair.options().for_reading()).unwrap();
    assert_eq!(contents(&replica, "later"), b"later");
    sound(&replica);
}

#[test]
fn a_replica_is_read_only_until_it_is_promoted() {
    let pair = Pair::new();
    let (room, whole, increment) = two_moments(&pair);
    pair.receive(&whole).unwrap();
    let error = Room::open(&pair.target(), &credential(), pair.options()).unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
    Room::promote_replica(&pair.target(), &credential(), pair.options()).unwrap();
    let promoted = Room::open(&pair.target(), &credential(), pair.options()).unwrap();
    file(&promoted, "new", b"new");
    promoted.close().unwrap();
    assert!(pair.receive(&increment).is_err());
    // It cannot be taken for a room that was put back.
    drop(room);
    pair.place.open().close().unwrap();
}

#[test]
fn a_backup_never_takes_the_place_of_a_replica() {
    let pair = Pair::new();
    let (room, whole, increment) = two_moments(&pair);
    pair.receive(&whole).unwrap();
    let refused = |room: &Room| {
        let refused = room.backup(&pair.target(), &|_, _| true);
        assert!(
            matches!(refused, Err(room::Error::NotEmptyTarget(_))),
            "{refused:?}"
        );
    };
    refused(&room);
    pair.receive(&increment).unwrap();
    refused(&room);
    Room::promote_replica(&pair.target(), &credential(), pair.options()).unwrap();
    refused(&room);
    // Nothing that this machine remembers says so.
    drop(room);
    std::fs::remove_dir_all(pair.place.dir.path().join("state")).unwrap();
    refused(&pair.place.open());
}

#[test]
fn an_increment_is_little_more_than_what_changed() {
    let pair = Pair::new();
    let room = pair.place.create();
    let blocks = 20_000_u64;
    let no = file(&room, "a", &pattern(1, (blocks * 4096) as usize));
    for i in 0..2000 {
        file(&room, &format!("small {i}"), b"x");
    }
    snapshot(&room, "one");
    let mut r = Rng::with_seed(3);
    let mut changed = std::collections::BTreeSet::new();
    while (changed.len() as u64) < blocks / 100 {
        let block = r.u64(..blocks);
        if changed.insert(block) {
            room.write(no, block * 4096, &pattern(block, 4096)).unwrap();
        }
    }
    snapshot(&room, "two");
    let bytes = stream(&room, Some("one"), "two").len() as u64;
    let most = changed.len() as u64 * 4096 * 105 / 100 + 65536;
    println!("{bytes} bytes for {} changed", changed.len() * 4096);
    assert!(bytes <= most, "{bytes} of {most}");
}

#[test]
fn nothing_in_a_stream_can_be_read() {
    let pair = Pair::new();
    let (_room, whole, increment) = two_moments(&pair);
    for stream in [whole, increment] {
        for word in ["secret", "another name", "one", "two"] {
            let found = stream.windows(word.len()).any(|w| w == word.as_bytes());
            // Three letters come by chance.
            assert!(!found || word.len() < 4, "{word}");
        }
    }
}

#[test]
fn a_replica_that_was_put_back_is_noticed_where_a_newer_one_was_seen() {
    let pair = Pair::new();
    let (room, whole, increment) = two_moments(&pair);
    pair.receive(&whole).unwrap();
    let older = pair.place.dir.path().join("older");
    common::copy_tree(&pair.target(), &older);
    pair.receive(&increment).unwrap();
    drop(pair.replica());
    std::fs::remove_dir_all(pair.target()).unwrap();
    std::fs::rename(&older, pair.target()).unwrap();
    let opened = Room::open(&pair.target(), &credential(), pair.options().for_reading());
    assert!(matches!(opened, Err(room::Error::RolledBack { .. })));
    // What is sent as a whole is another lineage, also in the same place.
    std::fs::remove_dir_all(pair.target()).unwrap();
    pair.receive(&stream(&room, None, "one")).unwrap();
    sound(&pair.replica());
}
