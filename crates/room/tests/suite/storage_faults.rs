//! Storage that fails: the caller gets the error, and sees nothing older than what was acknowledged before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::sound;
use crate::common::stored::{create_on, key, open_on, options};
use room::{
    Credential, Error, Fallocate, FileSystem as _, InodeNo, NewCredential, Room, Secret, SetAttr,
};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
use storage::{OpenMode, Overlay, Storage};

fn room(storage: &FaultyStorage<MemoryStorage>) -> Room {
    create_on(Arc::new(storage.clone()), options())
}

fn again(storage: &FaultyStorage<MemoryStorage>) -> Room {
    open_on(Arc::new(storage.clone()), options()).unwrap()
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
        sound(&room);
    }
    assert!(refused > 0);
}

/// Collapsing a range moved the rest of the file down and then found no space for its new last block. Space freed since
/// then let the second try succeed, which took the range out a second time: it returned success with wrong contents.
#[test]
fn a_range_is_collapsed_once_also_where_space_runs_out() {
    let content: Vec<u8> = (0..50_000_u32).map(|i| (i / 100) as u8).collect();
    let mut collapsed = content.clone();
    collapsed.drain(4096..12_288);
    for nth in 1..=4 {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let room = room(&storage);
        room.write_file("/f", &content).unwrap();
        room.sync().unwrap();
        let no = room.resolve("/f".as_ref(), false).unwrap();
        storage.refuse(Op::Write, nth, Fault::NoSpace, Times::Once);
        let done = room.fallocate(no, Fallocate::Collapse, 4096, 8192);
        storage.heal();
        let expected = if done.is_ok() { &collapsed } else { &content };
        assert!(room.read_file("/f").unwrap() == *expected, "write {nth}");
    }
}

/// A truncation that found no space to clear the rest of its last block failed, and left the zeros to be written with the
/// next commit all the same.
#[test]
fn a_truncation_that_fails_leaves_the_file_as_it_was() {
    let content = vec![7; 50_000];
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room(&storage);
    room.write_file("/f", &content).unwrap();
    room.sync().unwrap();
    let file = room.open_file("/f").unwrap();
    storage.refuse(Op::Write, 1, Fault::NoSpace, Times::Once);
    assert!(matches!(file.set_len(30_001), Err(Error::NoSpace)));
    room.sync().unwrap();
    assert!(room.read_file("/f").unwrap() == content);
    file.set_len(30_001).unwrap();
    file.set_len(50_000).unwrap();
    let read = room.read_file("/f").unwrap();
    assert!(read[..30_001] == content[..30_001] && read[30_001..].iter().all(|b| *b == 0));
}

/// A write beyond the end of a chunk failed after its first part, which everybody saw from then on. No commit took it along: after the
/// next opening it was gone, and the file's old length was there again.
#[test]
fn a_write_that_fails_in_part_is_committed_as_it_is_seen() {
    const CHUNK: u64 = 1 << 20;
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room(&storage);
    room.write_file("/f", &[1; 9000]).unwrap();
    room.sync().unwrap();
    let no = room.resolve("/f".as_ref(), false).unwrap();
    storage.refuse(Op::Write, 1, Fault::Io, Times::Once);
    room.write(no, CHUNK - 2576, &[2; 6000]).unwrap_err();
    let seen = room.read_file("/f").unwrap();
    assert_eq!(seen.len() as u64, CHUNK);
    room.sync().unwrap();
    storage.inner().power_cut();
    drop(room);
    let room = again(&storage);
    assert!(room.read_file("/f").unwrap() == seen);
    sound(&room);
}

/// A commit that found no space for what a file's buffer held wrote the file's new length all the same: after a crash the
/// file ended in zeros that nobody had written. It is now written as it was before the buffer.
#[test]
fn a_commit_without_space_makes_no_file_longer_than_its_data() {
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room(&storage);
    room.write_file("/f", &[1; 5000]).unwrap();
    room.sync().unwrap();
    let no = room.resolve("/f".as_ref(), false).unwrap();
    room.write(no, 5000, &[2; 10]).unwrap();
    // For the record of the sync, and for the commit in its place.
    for nth in 1..=2 {
        storage.refuse(Op::Write, nth, Fault::NoSpace, Times::Once);
    }
    assert!(matches!(room.sync(), Err(Error::NoSpace)));
    storage.inner().power_cut();
    drop(room);
    let room = again(&storage);
    assert!(room.read_file("/f").unwrap() == [1; 5000]);
    sound(&room);
}

/// An append to a file whose last block was damaged waited in a buffer, and sealing it at the next commit failed: the room
/// took no more changes, of any file, until it was opened again.
#[test]
fn a_write_beside_damage_is_refused_and_stops_nobody_else() {
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room(&storage);
    room.write_file("/a", &[1; 10_000]).unwrap();
    room.sync().unwrap();
    let a = room.resolve("/a".as_ref(), true).unwrap();
    for name in storage.list("segments").unwrap() {
        let segment = storage
            .open(&format!("segments/{name}"), OpenMode::ReadWrite)
            .unwrap();
        segment.write_at(&[0x5a; 100], 2 * 4096).unwrap();
    }
    for (offset, len) in [(10_000, 10), (9_000, 10), (4_096, 5_000), (0, 10)] {
        let refused = room.write(a, offset, &vec![2; len]);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{offset}");
    }
    room.write_file("/b", b"another file").unwrap();
    room.sync().unwrap();
    let report = room.check(true, true, &|_, _| true).unwrap();
    assert_eq!(report.lost.len(), 1, "{report:?}");
    room.write(a, 10_000, b"goes on").unwrap();
    room.sync().unwrap();
    assert_eq!(room.read_file("/b").unwrap(), b"another file");
}

/// What surrounds a write in its first and last block is opened when the program writes, and not once more when the blocks are
/// sealed. What changed in between counts.
#[test]
fn a_write_within_blocks_opens_each_of_them_once() {
    let storage = FaultyStorage::new(MemoryStorage::new());
    let room = room(&storage);
    let mut model = vec![1; 300_000];
    room.write_file("/a", &model).unwrap();
    room.sync().unwrap();
    let a = room.resolve("/a".as_ref(), true).unwrap();
    let reads = Arc::new(AtomicU64::new(0));
    let counter = reads.clone();
    storage.observe(move |call| {
        if call.op == Op::Read && call.path.starts_with("segments/") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Two blocks; then on in the last one, from there into another, and back. The last one is somewhere else.
    for (at, len) in [
        (100, 4096),
        (4196, 50),
        (4246, 5000),
        (6000, 10),
        (100_000, 10),
    ] {
        let data = vec![at as u8 + 2; len];
        model[at..at + len].copy_from_slice(&data);
        room.write(a, at as u64, &data).unwrap();
    }
    room.sync().unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), 5);
    assert_eq!(room.read_file("/a").unwrap(), model);

    let write = |model: &mut Vec<u8>, at: usize| {
        model[at..at + 100].fill(9);
        room.write(a, at as u64, &[9; 100]).unwrap();
    };
    let set_size = |size| {
        room.set_attributes(a, &SetAttr::size(size)).unwrap();
    };
    write(&mut model, 200_100);
    set_size(201_000);
    set_size(300_000);
    model[201_000..].fill(0);
    write(&mut model, 150_100);
    room.copy_range(a, 4096, a, 151_552 - 4096, 4096).unwrap();
    let copied = model[4096..8192].to_vec();
    model[151_552 - 4096..151_552].copy_from_slice(&copied);
    write(&mut model, 50_100);
    room.fallocate(a, Fallocate::PunchHole, 49_152, 500)
        .unwrap();
    model[49_152..49_652].fill(0);
    room.sync().unwrap();
    assert_eq!(room.read_file("/a").unwrap(), model);
}

/// A copy of the catalog was closed with a part of it still in its log, because the move into its file had failed and closing
/// says nothing of that. A rekey went on with the file alone, and the room never opened again.
#[test]
fn a_rekey_during_which_one_operation_fails_leaves_a_room_that_opens() {
    let rekey = |nth: u64, fault: Fault, op: Option<Op>| {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let room = room(&storage);
        for i in 0..40 {
            room.write_file(format!("/{i}"), &vec![i; 3000]).unwrap();
        }
        room.sync().unwrap();
        match op {
            Some(op) => storage.refuse(op, nth, fault, Times::Once),
            None => storage.refuse_any(nth, fault, Times::Once),
        }
        let rekeyed = room.rekey(&key(), &|_, _| true);
        let befell = storage.refused() > 0;
        eprintln!(
            "{nth} {op:?} {fault:?} {:?} {rekeyed:?} {:?}",
            storage.first_refused(),
            storage.list("")
        );
        storage.heal();
        drop(room);
        let room = again(&storage);
        for i in 0..40 {
            assert_eq!(
                room.read_file(format!("/{i}")).unwrap(),
                vec![i; 3000],
                "operation {nth}: {rekeyed:?}"
            );
        }
        // Whatever was left behind is in nobody's way.
        room.rekey(&key(), &|_, _| true).unwrap();
        sound(&room);
        befell
    };
    let writes = (1..).take_while(|nth| rekey(*nth, Fault::NoSpace, Some(Op::Write)));
    assert!(writes.count() > 10);
    let others = (1..)
        .step_by(5)
        .take_while(|nth| rekey(*nth, Fault::Io, None));
    assert!(others.count() > 5);
}

/// What failed: a change of a key whose header was written was reported as failed where something behind that failed. The key before it
/// opened the room no more, and who throws a new key away whose setting failed has lost the room.
#[test]
fn a_key_change_that_fails_leaves_the_key_before_it() {
    let raw = |byte| Secret::from(vec![byte; 32]);
    let mut failed = 0;
    for (fault, is_cut) in [
        (Fault::Io, false),
        (Fault::Io, true),
        (Fault::NoSpace, false),
        (Fault::NoSpace, true),
    ] {
        for nth in 1.. {
            let storage = FaultyStorage::new(MemoryStorage::new());
            let room = room(&storage);
            storage.refuse_any(nth, fault, Times::Once);
            let changed = room.change_slot(0, NewCredential::RawKey(raw(8)));
            let (refused, what) = (storage.refused(), storage.first_refused());
            storage.heal();
            if is_cut {
                storage.inner().power_cut();
            }
            drop(room);
            let opens = |byte| {
                let above = Overlay::new(Arc::new(storage.clone()));
                let key = Credential::RawKey(raw(byte));
                Room::open_on(Arc::new(above), &key, options()).is_ok()
            };
            let found = (opens(7), opens(8));
            match &changed {
                Ok(()) => assert_eq!(found, (false, true), "{what:?}"),
                Err(e) => assert!(found.0, "{what:?}: {e}: {found:?}"),
            }
            failed += u64::from(changed.is_err());
            if refused == 0 {
                break;
            }
        }
    }
    assert!(failed > 10, "{failed}");
}
