//! Storage that fails: the caller is told, and sees nothing older than what he was told before.

#![allow(missing_docs)]

use std::sync::Arc;

use room::{
    Credential, Error, InodeNo, NewCredential, NewRoom, OpenOptions, Room, Secret,
};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};

fn secret() -> Secret {
    Secret::from(vec![7; 32])
}

fn options() -> OpenOptions {
    OpenOptions {
        commit_interval_ms: 0,
        background: false,
        ..OpenOptions::default()
    }
}

fn room(storage: &FaultyStorage<MemoryStorage>) -> Room {
    let mut new = NewRoom::with_credential(NewCredential::RawKey(secret()));
    new.open = options();
    Room::create_on(Arc::new(storage.clone()), new).unwrap()
}

fn again(storage: &FaultyStorage<MemoryStorage>) -> Room {
    Room::open_on(
        Arc::new(storage.clone()),
        &Credential::RawKey(secret()),
        options(),
    )
    .unwrap()
}

/// After a commit whose write to the log failed, SQLite had rolled all changes back. The room went on to list the older
/// state, without a file that it had made and still found by its name; with other luck of its caches it would have shown
/// new lengths over old contents. Now a room says that it must be opened again.
#[test]
fn what_a_failed_commit_lost_is_not_followed_by_an_older_state() {
    let mut refused = 0;
    for nth in 1..=12 {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let room = room(&storage);
        room.write_file("/old", b"old").unwrap();
        room.sync().unwrap();
        room.write_file("/new", b"new").unwrap();
        storage.refuse(Op::Write, nth, Fault::Io, Times::Once);
        if room.sync().is_ok() {
            continue;
        }
        assert!(matches!(room.sync(), Err(Error::Poisoned)));
        match room.read_dir(InodeNo::ROOT, 0, 10) {
            Err(Error::Poisoned) => refused += 1,
            Ok(entries) => assert_eq!(entries.len(), 2, "write {nth}"),
            Err(e) => panic!("write {nth}: {e}"),
        }
        drop(room);
        let room = again(&storage);
        assert_eq!(room.read_file("/old").unwrap(), b"old");
        assert!(matches!(room.read_file("/new"), Err(Error::NotFound)));
        let report = room.check(true, false, &|_, _| true).unwrap();
        assert!(report.findings.is_empty() && report.lost.is_empty());
    }
    assert!(refused > 0);
}
