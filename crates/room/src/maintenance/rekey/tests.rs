//! A rekey killed between any two of its steps.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use seal::{Credential, Secret};

use super::Step;
use crate::testing::{copy_tree, credential, options, room_in, sound};
use crate::{Error, FileSystem as _, NewSnapshot, Room, Snapshots as _};

fn rekey(room: &Room, watch: &dyn Fn(Step)) {
    let maintenance = &room.parts.maintenance;
    let report = maintenance.rekey_watched(&credential(), false, &|_, _| true, watch);
    assert!(report.unwrap().finished);
}

#[test]
fn a_rekey_killed_at_every_step_opens_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("room");
    let room = room_in(dir.path());
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    room.write_file("/a", &data).unwrap();
    let (a, b) = (
        room.resolve("/a".as_ref(), true).unwrap(),
        room.open_or_make_file("/b").unwrap().inode(),
    );
    room.copy_range(a, 0, b, 4096, 1 << 20).unwrap();
    room.make_dir("/d", false).unwrap();
    let old_header = room.header_backup();

    let copies = Mutex::new(Vec::new());
    let watch = |step: Step| {
        let copy = dir.path().join(format!("{step:?}"));
        copy_tree(&at, &copy);
        copies.lock().unwrap().push((step, copy));
    };
    rekey(&room, &watch);
    let copies = copies.into_inner().unwrap();
    assert_eq!(copies.len(), 4);
    for (step, copy) in copies {
        // In the middle of the exchange the disk may also hold the old log no longer, or the new header only once.
        if step == Step::HeaderWritten {
            let half = copy.with_extension("half");
            copy_tree(&copy, &half);
            std::fs::write(half.join("header.backup.json"), &old_header).unwrap();
            let _ = std::fs::remove_file(half.join("catalog.db-wal"));
            goes_on(&half, step, &data);
            // Or the new catalog without its table, which is still beside it.
            let half = copy.with_extension("two");
            copy_tree(&copy, &half);
            let _ = std::fs::remove_file(half.join("catalog.db-wal"));
            std::fs::rename(half.join("catalog.db.new"), half.join("catalog.db")).unwrap();
            goes_on(&half, step, &data);
        }
        if step == Step::CatalogInPlace {
            // The table of another catalog is a leftover, and does no harm.
            let with = copy.with_extension("leftover");
            copy_tree(&copy, &with);
            let old = dir.path().join("CatalogWritten/catalog.db-pages");
            std::fs::copy(old, with.join("catalog.db.new-pages")).unwrap();
            goes_on(&with, step, &data);
            assert!(!with.join("catalog.db.new-pages").exists());
        }
        goes_on(&copy, step, &data);
    }
}

/// The whole room, and what `/a` and a part of `/b` have.
fn is_whole(room: &Room, step: Step, data: &[u8]) {
    let report = room.check(true, false, &|_, _| true).unwrap();
    assert!(
        report.findings.is_empty() && report.lost.is_empty(),
        "{step:?}: {report:?}"
    );
    assert_eq!(room.read_file("/a").unwrap(), data);
    assert_eq!(room.read_file("/b").unwrap()[4096..], data[..1 << 20]);
}

/// The room's files but the segments.
fn files(copy: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = std::fs::read_dir(copy).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// It is read as the rekey left it, without being changed.
fn is_read(copy: &Path, step: Step, data: &[u8]) {
    let state = tempfile::tempdir().unwrap();
    let before = files(copy);
    let mut reading = options(state.path());
    reading.read_only = true;
    let room = Room::open(copy, &credential(), reading).unwrap();
    is_whole(&room, step, data);
    room.close().unwrap();
    assert!(files(copy) == before, "{step:?}");
}

fn goes_on(copy: &Path, step: Step, data: &[u8]) {
    is_read(copy, step, data);
    let state = tempfile::tempdir().unwrap();
    let room = Room::open(copy, &credential(), options(state.path())).unwrap();
    assert_eq!(
        room.info().unwrap().rekeying,
        step != Step::CatalogWritten,
        "{step:?}"
    );
    assert!(!copy.join("catalog.db.new").exists());
    let header = |name: &str| std::fs::read(copy.join(name)).unwrap();
    assert_eq!(header("header.json"), header("header.backup.json"));
    is_whole(&room, step, data);
    room.write_file("/new", b"new").unwrap();
    assert!(room.rekey(&credential(), &|_, _| true).unwrap().finished);
    let info = room.info().unwrap();
    assert_eq!((info.rekeying, info.key_epoch), (false, 2), "{step:?}");
    is_whole(&room, step, data);
    room.close().unwrap();
    let room = Room::open(copy, &credential(), options(state.path())).unwrap();
    is_whole(&room, step, data);
    assert_eq!(room.read_file("/new").unwrap(), b"new");
}

/// What failed: who created a snapshot when a rekey began waited for it with the old catalog in hand, and the rekey for that catalog. After a
/// minute the rekey failed, and the room took no more changes.
#[test]
fn a_snapshot_that_is_created_while_a_rekey_begins_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let room = room_in(dir.path());
    room.write_file("/a", b"then").unwrap();
    std::thread::scope(|scope| {
        let room = &room;
        let watch = |step: Step| {
            if step != Step::CatalogWritten {
                return;
            }
            let catalog = std::sync::Arc::downgrade(&room.parts.catalog.get());
            scope.spawn(|| room.create_snapshot("s", NewSnapshot::default()).unwrap());
            // It has come far enough when it holds the catalog; where it does not, no wait is too short.
            let begun = Instant::now();
            while catalog.strong_count() == 1 && begun.elapsed() < Duration::from_millis(500) {
                std::thread::yield_now();
            }
        };
        rekey(room, &watch);
    });
    room.write_file("/a", b"now").unwrap();
    sound(&room);
    room.close().unwrap();
    let room = Room::open(&dir.path().join("room"), &credential(), options(dir.path())).unwrap();
    let view = room.snapshot("s").unwrap();
    let no = view.lookup(catalog::InodeNo::ROOT, b"a").unwrap().no;
    let mut then = [0; 4];
    view.read(no, 0, &mut then).unwrap();
    assert_eq!(&then, b"then");
}

#[test]
fn a_rekey_needs_a_credential_of_this_room() {
    let dir = tempfile::tempdir().unwrap();
    let room = room_in(dir.path());
    let raw = Credential::RawKey(Secret::from(vec![1; 32]));
    assert!(matches!(
        room.rekey(&raw, &|_, _| true),
        Err(Error::WrongCredential(_))
    ));
}
