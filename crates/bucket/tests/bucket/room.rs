//! Rooms in a bucket: what they acknowledged survives, the store learns nothing, and what it changes is noticed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use room::{Credential, Error, FileSystem, NewCredential, NewRoom, OpenOptions, Room};
use strongroom_bucket::{BucketStorage, Options};

use crate::made::{
    create, noise, open, open_unaccepted, options, polite, quick, short, two_machines,
};
use crate::store::{Fate, Store, contents, list, overwrite};

const KEY: [u8; 32] = [7; 32];

fn in_room(dir: &Path) -> OpenOptions {
    OpenOptions {
        state_dir: Some(dir.join("state")),
        background: false,
        ..OpenOptions::default()
    }
}

pub(crate) fn make(store: &Store, dir: &Path, options: Options) -> (Arc<BucketStorage>, Room) {
    let storage = Arc::new(create(store, dir, options).unwrap());
    let mut new = NewRoom::with_credential(NewCredential::RawKey(KEY.to_vec().into()));
    new.open = in_room(dir);
    let room = Room::create_on(storage.clone(), new).unwrap();
    (storage, room)
}

/// Opens it for reading, and disturbs nobody.
pub(crate) fn open_read_only(
    store: &Store,
    dir: &Path,
) -> room::Result<(Arc<BucketStorage>, Room)> {
    let mut reading = options();
    reading.read_only = true;
    let storage = Arc::new(open(store, dir, reading)?);
    let credential = Credential::RawKey(KEY.to_vec().into());
    let mut options = in_room(dir);
    options.read_only = true;
    let room = Room::open_on(storage.clone(), &credential, options)?;
    Ok((storage, room))
}

pub(crate) fn reopen(
    store: &Store,
    dir: &Path,
    options: Options,
) -> room::Result<(Arc<BucketStorage>, Room)> {
    let storage = Arc::new(open_unaccepted(store, dir, options)?);
    let credential = Credential::RawKey(KEY.to_vec().into());
    let room = Room::open_on(storage.clone(), &credential, in_room(dir))?;
    Ok((storage, room))
}

fn put(room: &Room, path: &str, bytes: &[u8]) -> room::Result<()> {
    room.write_file(path, bytes)?;
    room.open_file(path)?.sync()
}

#[test]
fn a_room_goes_on_elsewhere_after_its_writer_died() {
    let store = Store::new();
    let [here, there] = two_machines();
    let (storage, room) = make(&store, here.path(), options());
    let big = noise(1, 5 << 20);
    put(&room, "/big", &big).unwrap();
    room.make_dir("/papers", false).unwrap();
    put(&room, "/papers/little", b"few bytes").unwrap();
    storage.die();
    drop(room);
    let (_, room) = reopen(&store, there.path(), options()).unwrap();
    assert!(room.read_file("/big").unwrap() == big);
    assert_eq!(room.read_file("/papers/little").unwrap(), b"few bytes");
    let report = room.check(true, false, &|_, _| true).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    room.close().unwrap();
}

#[test]
fn a_small_synced_file_is_one_request() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let (storage, room) = make(&store, dir.path(), options());
    put(&room, "/first", b"x").unwrap();
    let before = storage.requests();
    for n in 0..10 {
        put(&room, &format!("/f{n}"), &noise(n, 4096)).unwrap();
    }
    let after = storage.requests();
    assert_eq!((after.puts + after.log) - (before.puts + before.log), 10);
    assert_eq!((after.gets, after.lists), (before.gets, before.lists));
}

/// The writer is cut off after every number of changes of the store. What it synced is in the room that is opened elsewhere.
#[test]
fn a_room_cut_off_anywhere_has_all_that_was_synced() {
    let mut quick = quick();
    quick.timeout = short(&Store::new(), 40);
    let mut cut = 0;
    loop {
        let mut is_over = false;
        for next_is_done in [false, true] {
            let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
            let (_, room) = make(&store, dir.path(), quick.clone());
            store.end_after(cut, next_is_done);
            let content = |n: u64| noise(n, if n == 3 { 1_500_000 } else { 5000 });
            let mut synced = Vec::new();
            for n in 0..6 {
                let name = format!("/f{n}");
                if n == 4 && room.sync().is_err() {
                    break;
                }
                match put(&room, &name, &content(n)) {
                    Ok(()) => synced.push(n),
                    Err(_) => break,
                }
            }
            let is_closed = room.close().is_ok();
            is_over |= synced.len() == 6 && is_closed;
            store.heal();
            let (_, room) = reopen(&store, dir.path(), options()).unwrap();
            for n in synced {
                let found = room.read_file(format!("/f{n}")).unwrap();
                assert!(found == content(n), "f{n}, cut {cut}, {next_is_done}");
            }
            let report = room.check(true, false, &|_, _| true).unwrap();
            assert!(
                report.findings.is_empty(),
                "cut {cut}: {:?}",
                report.findings
            );
        }
        if is_over {
            break;
        }
        // The first ones are the creation's end; later ones repeat each other.
        cut += if cut < 6 { 1 } else { 3 };
    }
    assert!(cut > 12, "{cut}");
}

/// Creates a room as the command does, where an earlier creation may have been killed.
fn try_to_make(store: &Store, dir: &Path, timeout: Duration) -> room::Result<Room> {
    let mut options = polite();
    (options.remains, options.timeout) = (room::is_left_of_creation, timeout);
    let mut new = NewRoom::with_credential(NewCredential::RawKey(KEY.to_vec().into()));
    new.open = in_room(dir);
    Room::create_on(Arc::new(create(store, dir, options)?), new)
}

/// Somebody had to remove what it left by hand, once it had written names.
#[test]
fn a_creation_that_was_killed_anywhere_leaves_a_room_or_a_place_for_one() {
    if Store::new().has_log() {
        // Each creation that fails takes as long as a lost engine.
        return;
    }
    let (mut rooms, mut places) = (0, 0);
    for changes in 0.. {
        let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
        store.end_at_once_after(changes, Fate::AnswerLost);
        let is_made = try_to_make(&store, dir.path(), Duration::from_millis(100)).is_ok();
        store.heal();
        let room = match try_to_make(&store, dir.path(), Duration::from_secs(5)) {
            Ok(room) => {
                places += 1;
                room
            }
            Err(e) => {
                assert!(e.to_string().contains("already"), "{changes}: {e}");
                rooms += 1;
                reopen(&store, dir.path(), polite()).unwrap().1
            }
        };
        put(&room, "/f", b"few bytes").unwrap();
        assert_eq!(room.read_file("/f").unwrap(), b"few bytes");
        if is_made {
            break;
        }
    }
    assert!(rooms > 3 && places > 15, "{rooms}, {places}");
}

#[test]
fn bucket_and_cache_have_no_name_and_no_content_in_clear() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let (storage, room) = make(&store, dir.path(), options());
    let (name, content) = (
        "a-very-secret-name",
        b"and a very secret content ".repeat(100_000),
    );
    put(&room, &format!("/{name}"), &content).unwrap();
    put(&room, &format!("/{name}.small"), &content[..26]).unwrap();
    room.close().unwrap();
    storage.checkpoint().unwrap();
    drop(storage);
    let mut all = contents(&store, "rooms/a");
    for dir in std::fs::read_dir(dir.path()).unwrap() {
        let Ok(files) = std::fs::read_dir(dir.unwrap().path()) else {
            continue;
        };
        for file in files {
            let path = file.unwrap().path();
            all.push((path.display().to_string(), std::fs::read(path).unwrap()));
        }
    }
    assert!(all.iter().any(|(name, _)| name.contains("chunks-")));
    for (object, bytes) in all {
        for secret in [name.as_bytes(), b"secret content", &KEY] {
            assert!(
                !bytes.windows(secret.len()).any(|part| part == secret),
                "{object}"
            );
        }
    }
}

/// A whole older state is refused on a machine that saw the newer one.
#[test]
fn a_store_that_goes_back_is_noticed() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let (_, room) = make(&store, dir.path(), options());
    put(&room, "/f", b"first").unwrap();
    room.close().unwrap();
    let old = contents(&store, "rooms/a");
    let (_, room) = reopen(&store, dir.path(), options()).unwrap();
    put(&room, "/f", b"second").unwrap();
    room.close().unwrap();
    let back = Store::new();
    for (name, bytes) in old {
        overwrite(&back, &name, bytes);
    }
    let refused = reopen(&back, dir.path(), options()).unwrap_err();
    assert!(matches!(refused, Error::RolledBack { .. }), "{refused}");
}

/// The commits go back within a writer's, as a log does that lost its last ones, and the opening is refused. It had removed the data that
/// only the lost commits refer to: when they were put back, it was gone.
#[test]
fn a_refused_opening_removes_nothing() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let (storage, room) = make(&store, dir.path(), options());
    put(&room, "/small", b"few bytes").unwrap();
    let old = contents(&store, "rooms/a/commits");
    let big = noise(1, 3 << 20);
    put(&room, "/big", &big).unwrap();
    storage.die();
    drop((room, storage));
    let newest = contents(&store, "rooms/a");
    let back = Store::new();
    let others = newest.iter();
    let others = others.filter(|(name, _)| !name.contains("/commits/"));
    for (name, bytes) in old.iter().chain(others) {
        overwrite(&back, name, bytes.clone());
    }
    let refused = reopen(&back, dir.path(), options()).unwrap_err();
    assert!(matches!(refused, Error::RolledBack { .. }), "{refused}");
    let left = list(&back, "rooms/a/data");
    for (name, _) in newest {
        let is_there = || left.iter().any(|(there, _)| *there == name);
        assert!(!name.contains("/data/") || is_there(), "{name}: {left:?}");
    }
}

/// A check reported each unit of 16 KiB of it, by the number of the file.
#[test]
fn a_check_names_the_file_of_a_missing_object_once() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let (storage, room) = make(&store, dir.path(), options());
    room.make_dir("/papers", false).unwrap();
    put(&room, "/papers/big", &noise(1, 3 << 20)).unwrap();
    let [(object, _)] = &list(&store, "rooms/a/data")[..] else {
        panic!("one object");
    };
    put(&room, "/other", &noise(2, 2 << 20)).unwrap();
    room.close().unwrap();
    drop(storage);
    crate::store::remove(&store, object);
    let elsewhere = tempfile::tempdir().unwrap();
    let (_, room) = open_read_only(&store, elsewhere.path()).unwrap();
    let report = room.check(true, false, &|_, _| true).unwrap();
    // The begin of a segment may be in it, too.
    let is_of_file = |finding: &&String| !finding.starts_with("segment ");
    let of_files: Vec<_> = report.findings.iter().filter(is_of_file).collect();
    let [finding] = of_files[..] else {
        panic!("{:?}", report.findings);
    };
    assert!(finding.starts_with("/papers/big: "), "{finding}");
    assert!(finding.contains("not found"), "{finding}");
    assert_eq!(room.read_file("/other").unwrap(), noise(2, 2 << 20));
}

/// Anyone with the bucket changes any object, hash included: what is read is right, or an error.
#[test]
fn a_store_that_changes_bytes_is_noticed() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let (_, room) = make(&store, dir.path(), options());
    let big = noise(1, 2 << 20);
    put(&room, "/big", &big).unwrap();
    put(&room, "/small", b"few bytes").unwrap();
    room.close().unwrap();
    let mut noticed = 0;
    for (name, bytes) in contents(&store, "rooms/a") {
        for at in [bytes.len() / 2, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            if !name.contains("/data/") && bytes.len() >= 88 {
                let mut hashed = changed.clone();
                hashed[56..88].fill(0);
                changed[56..88].copy_from_slice(blake3::hash(&hashed).as_bytes());
            }
            let other = Store::new();
            for (name, bytes) in contents(&store, "rooms/a") {
                overwrite(&other, &name, bytes);
            }
            overwrite(&other, &name, changed);
            let elsewhere = tempfile::tempdir().unwrap();
            let mut read = options();
            read.take_over = true;
            let Ok((_, room)) = reopen(&other, elsewhere.path(), read) else {
                noticed += 1;
                continue;
            };
            for (path, expected) in [("/big", &big[..]), ("/small", &b"few bytes"[..])] {
                match room.read_file(path) {
                    Ok(found) => assert!(found == expected, "{path} with {name} changed at {at}"),
                    Err(_) => noticed += 1,
                }
            }
        }
    }
    assert!(noticed > 5, "{noticed}");
}
