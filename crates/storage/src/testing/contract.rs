//! What every storage promises, as tests that each implementation runs.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::{OpenMode, Storage, StorageFile, read_limited, replace};

type Promise = fn(&dyn Storage);

const PROMISES: &[(&str, Promise)] = &[
    ("a file is created once", a_file_is_created_once),
    (
        "what is not there is NotFound",
        what_is_not_there_is_not_found,
    ),
    ("what was written is read", what_was_written_is_read),
    (
        "a short read is UnexpectedEof",
        a_short_read_is_unexpected_eof,
    ),
    (
        "what was written durably is read",
        what_was_written_durably_is_read,
    ),
    ("a gap reads as zeros", a_gap_reads_as_zeros),
    (
        "a cut file grows again with zeros",
        a_cut_file_grows_again_with_zeros,
    ),
    ("a reader cannot write", a_reader_cannot_write),
    ("a rename replaces", a_rename_replaces),
    (
        "a removed file stays for who holds it",
        a_removed_file_stays_for_who_holds_it,
    ),
    (
        "a listing has the names of one directory",
        a_listing_has_the_names_of_one_directory,
    ),
    (
        "a punched range reads as zeros",
        a_punched_range_reads_as_zeros,
    ),
    (
        "writers side by side do not disturb",
        writers_side_by_side_do_not_disturb,
    ),
    (
        "a replaced file is whole and alone",
        a_replaced_file_is_whole_and_alone,
    ),
    ("space adds up", space_adds_up),
    ("a lock has one holder", a_lock_has_one_holder),
    (
        "setting space aside changes nothing one can read",
        setting_space_aside_changes_nothing_one_can_read,
    ),
];

/// Runs every promise on a fresh storage from `make`; what comes with it (a temporary directory, say) lives as long.
///
/// # Panics
/// At the first promise that is broken, naming it.
pub fn run<Guard>(make: impl Fn() -> (Arc<dyn Storage>, Guard)) {
    for (name, promise) in PROMISES {
        eprintln!("storage contract: {name}");
        let (storage, _guard) = make();
        promise(&*storage);
    }
}

fn create(storage: &dyn Storage, path: &str) -> Arc<dyn StorageFile> {
    storage
        .open(path, OpenMode::CreateNew)
        .expect("a file that is not there can be created")
}

fn contents(file: &dyn StorageFile) -> Vec<u8> {
    let mut bytes = vec![0xee; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[track_caller]
fn refused<T>(result: io::Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("expected {kind:?}, it was done"),
        Err(e) => assert_eq!(e.kind(), kind, "{e}"),
    }
}

fn a_file_is_created_once(storage: &dyn Storage) {
    assert!(create(storage, "f").is_empty().unwrap());
    refused(
        storage.open("f", OpenMode::CreateNew),
        ErrorKind::AlreadyExists,
    );
    storage.create_dir("d").unwrap();
    refused(storage.create_dir("d"), ErrorKind::AlreadyExists);
}

fn what_is_not_there_is_not_found(storage: &dyn Storage) {
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        refused(storage.open("f", mode), ErrorKind::NotFound);
    }
    refused(
        storage.open("d/f", OpenMode::CreateNew),
        ErrorKind::NotFound,
    );
    refused(storage.remove("f"), ErrorKind::NotFound);
    refused(storage.rename("f", "g"), ErrorKind::NotFound);
    refused(storage.list("d"), ErrorKind::NotFound);
    refused(storage.sync_dir("d"), ErrorKind::NotFound);
    refused(storage.create_dir("d/e"), ErrorKind::NotFound);
    refused(read_limited(storage, "f", 1), ErrorKind::NotFound);
}

fn what_was_written_is_read(storage: &dyn Storage) {
    storage.create_dir("d").unwrap();
    let file = create(storage, "d/f");
    file.write_at(b"0123456789", 0).unwrap();
    file.write_at(b"xyz", 4).unwrap();
    file.sync().unwrap();
    storage.sync_dir("d").unwrap();
    storage.sync_dir("").unwrap();
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(
            contents(&*storage.open("d/f", mode).unwrap()),
            b"0123xyz789"
        );
    }
}

/// At places and of lengths that suit the host, and others, in turns with other calls on the same handle.
fn what_was_written_durably_is_read(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(&[0; 20_000], 0).unwrap();
    let mut expected = vec![0; 20_000];
    let writes = [
        (0, 4096),
        (4096, 8192),
        (5, 4096),
        (8192, 100),
        (16_000, 8000),
    ];
    for (fill, (at, len)) in (1..).zip(writes) {
        file.write_durable(&vec![fill; len], at as u64).unwrap();
        expected.resize(expected.len().max(at + len), 0);
        expected[at..at + len].fill(fill);
        assert_eq!(contents(&*file), expected, "{len} bytes at {at}");
        file.write_at(&[0xdd; 3], 4095).unwrap();
        expected[4095..4098].fill(0xdd);
    }
    assert_eq!(contents(&*file), expected);
}

fn a_short_read_is_unexpected_eof(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(b"abc", 0).unwrap();
    refused(file.read_at(&mut [0; 4], 0), ErrorKind::UnexpectedEof);
    refused(file.read_at(&mut [0; 1], 3), ErrorKind::UnexpectedEof);
    file.read_at(&mut [], 3).unwrap();
}

fn a_gap_reads_as_zeros(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(b"z", 10_000).unwrap();
    let bytes = contents(&*file);
    assert_eq!((bytes.len(), bytes[10_000]), (10_001, b'z'));
    assert!(bytes[..10_000].iter().all(|b| *b == 0));
}

fn a_cut_file_grows_again_with_zeros(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(&[9; 9000], 0).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(file.len().unwrap(), 5);
    file.set_len(9000).unwrap();
    let bytes = contents(&*file);
    assert_eq!(bytes[..5], [9; 5]);
    assert!(bytes[5..].iter().all(|b| *b == 0));
}

fn a_reader_cannot_write(storage: &dyn Storage) {
    create(storage, "f").write_at(b"abc", 0).unwrap();
    let file = storage.open("f", OpenMode::Read).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    assert_eq!(contents(&*file), b"abc");
}

fn a_rename_replaces(storage: &dyn Storage) {
    create(storage, "a").write_at(b"new", 0).unwrap();
    create(storage, "b").write_at(b"old", 0).unwrap();
    storage.rename("a", "b").unwrap();
    assert_eq!(storage.list("").unwrap(), ["b"]);
    assert_eq!(read_limited(storage, "b", 10).unwrap(), b"new");
}

fn a_removed_file_stays_for_who_holds_it(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(b"abc", 0).unwrap();
    storage.remove("f").unwrap();
    assert!(storage.list("").unwrap().is_empty());
    assert_eq!(contents(&*file), b"abc");
    // A new file of the name is another file.
    assert!(create(storage, "f").is_empty().unwrap());
}

fn a_listing_has_the_names_of_one_directory(storage: &dyn Storage) {
    storage.create_dir("d").unwrap();
    for path in ["a", "d/b", "d/c"] {
        create(storage, path);
    }
    let sorted = |dir| {
        let mut names = storage.list(dir).unwrap();
        names.sort();
        names
    };
    assert_eq!(sorted(""), ["a", "d"]);
    assert_eq!(sorted("d"), ["b", "c"]);
}

fn a_punched_range_reads_as_zeros(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(&[7; 12_288], 0).unwrap();
    match file.punch(4096, 4096) {
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            return assert_eq!(
                contents(&*file),
                [7; 12_288],
                "a refused punch changes nothing"
            );
        }
        other => other.unwrap(),
    }
    let bytes = contents(&*file);
    assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|b| *b == 7));
    assert!(bytes[4096..8192].iter().all(|b| *b == 0));
    file.punch(8192, 1 << 20).unwrap();
    assert_eq!(
        file.len().unwrap(),
        12_288,
        "a punch beyond the end does not lengthen the file"
    );
}

fn writers_side_by_side_do_not_disturb(storage: &dyn Storage) {
    let file = create(storage, "f");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for step in 0..32_u64 {
                    file.write_at(&[thread; 1000], (step * 4 + u64::from(thread)) * 1000)
                        .unwrap();
                }
            });
        }
    });
    let bytes = contents(&*file);
    assert_eq!(bytes.len(), 128_000);
    assert!(
        bytes
            .chunks(1000)
            .enumerate()
            .all(|(i, piece)| piece.iter().all(|b| usize::from(*b) == i % 4))
    );
}

fn a_replaced_file_is_whole_and_alone(storage: &dyn Storage) {
    storage.create_dir("d").unwrap();
    for path in ["f", "d/f"] {
        replace(storage, path, b"a long first one").unwrap();
        replace(storage, path, b"second").unwrap();
        assert_eq!(read_limited(storage, path, 6).unwrap(), b"second");
        refused(read_limited(storage, path, 5), ErrorKind::FileTooLarge);
    }
    assert_eq!(storage.list("d").unwrap(), ["f"]);
    // The leftover of an interrupted replacement does not block the next one.
    create(storage, "f.new").write_at(b"half", 0).unwrap();
    replace(storage, "f", b"third").unwrap();
    assert_eq!(read_limited(storage, "f", 10).unwrap(), b"third");
}

fn space_adds_up(storage: &dyn Storage) {
    let space = storage.space().unwrap();
    assert!(space.available <= space.free && space.free <= space.total && space.total > 0);
}

fn a_lock_has_one_holder(storage: &dyn Storage) {
    let held = storage.lock("lock", "first\n").unwrap();
    refused(storage.lock("lock", "second\n"), ErrorKind::WouldBlock);
    assert_eq!(read_limited(storage, "lock", 99).unwrap(), b"first\n");
    drop(held);
    drop(storage.lock("lock", "third\n").unwrap());
}

fn setting_space_aside_changes_nothing_one_can_read(storage: &dyn Storage) {
    let file = create(storage, "f");
    file.write_at(b"abc", 0).unwrap();
    match file.allocate(3, 1 << 16) {
        Err(e) if e.kind() == ErrorKind::Unsupported => {}
        other => other.unwrap(),
    }
    assert_eq!(contents(&*file), b"abc");
}
