//! Rooms of released formats open for ever.

mod damage;

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{copy_tree, pattern, sound};
use room::{
    Credential, Error, Fallocate, FileFlags, FileKind, FileSystem as _, InodeNo, NoncePart,
    OpenOptions, Room, Secret, SetAttr, Snapshots as _, Timestamp,
};

/// Bytes that each of the snapshots of the golden room with snapshots holds alone.
const HELD_IN_GOLDEN: [u64; 3] = [77_824, 0, 0];

/// Bytes reserved in the golden room with edits.
const RESERVED_IN_GOLDEN: u64 = 13 * 4096;

struct Copy(tempfile::TempDir);

fn passphrase() -> Credential {
    Credential::Passphrase(Secret::from(b"golden passphrase".to_vec()))
}

impl Copy {
    fn new() -> Self {
        Self::of("v1")
    }

    fn of(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        copy_tree(&golden.join(name), &dir.path().join("room"));
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("room").join(name)
    }

    fn open(&self) -> room::Result<Room> {
        self.open_with(&passphrase())
    }

    fn open_with(&self, credential: &Credential) -> room::Result<Room> {
        self.open_as(credential, false)
    }

    fn open_as(&self, credential: &Credential, read_only: bool) -> room::Result<Room> {
        let options = OpenOptions {
            state_dir: Some(self.0.path().join("state")),
            read_only,
            ..OpenOptions::default()
        };
        Room::open(&self.0.path().join("room"), credential, options)
    }

    /// Changes a file's text, as an attacker or a later version would.
    fn edit(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.file(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        fs::write(self.file(name), text.replace(from, to)).unwrap();
    }

    fn edit_headers(&self, from: &str, to: &str) {
        self.edit("header.json", from, to);
        self.edit("header.backup.json", from, to);
    }

    fn flip(&self, name: &str, at: usize) {
        let mut bytes = fs::read(self.file(name)).unwrap();
        bytes[at] ^= 0x10;
        fs::write(self.file(name), bytes).unwrap();
    }
}

#[test]
fn a_room_of_the_first_format_takes_flags() {
    let golden = Copy::new();
    let room = golden.open().unwrap();
    assert!(!room.has_flags());
    let no = room.resolve("/numbers".as_ref(), true).unwrap();
    let set = SetAttr {
        flags: Some(FileFlags::APPEND_ONLY),
        ..SetAttr::default()
    };
    room.set_attributes(no, &set).unwrap();
    room.close().unwrap();
    let room = golden.open().unwrap();
    assert!(room.has_flags());
    assert_eq!(room.attributes(no).unwrap().flags, FileFlags::APPEND_ONLY);
    assert!(room.write(no, 0, b"another").is_err());
    assert_eq!(
        room.check(false, false, &|_, _| true).unwrap().findings,
        Vec::<String>::new()
    );
}

/// What failed: without nonce parts two appends are one extent, whose blocks can begin within a unit, and the units of all 256 did not
/// fit into the buffer that they are opened in.
#[test]
fn a_room_of_the_first_format_reads_a_chunk_that_begins_within_a_unit() {
    let golden = Copy::new();
    let room = golden.open().unwrap();
    let data = pattern(1, 3 << 20);
    room.write_file("/long", &data).unwrap();
    let no = room.resolve("/long".as_ref(), true).unwrap();
    room.fallocate(no, Fallocate::Insert, 0, 4096).unwrap();
    let mut read = vec![0xff; 4096 + data.len()];
    assert_eq!(room.read(no, 0, &mut read).unwrap(), read.len());
    assert!(read[..4096].iter().all(|byte| *byte == 0) && read[4096..] == data);
}

#[test]
fn the_golden_room_of_format_1_opens_with_everything_in_it() {
    let golden = Copy::new();
    let room = golden.open().unwrap();
    let letter = room.read_file("/link").unwrap();
    assert_eq!(letter, b"Dear reader, this room is of format version 1.\n");
    let mut numbers: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
    numbers[16_000..17_000].fill(0xee);
    assert!(room.read_file("/papers/numbers too").unwrap() == numbers);
    let mut copy = vec![0; 1 << 20];
    copy.extend(&numbers[..131_072]);
    assert!(room.read_file("/copy").unwrap() == copy);
    let attributes = room
        .attributes(room.resolve("/numbers".as_ref(), true).unwrap())
        .unwrap();
    assert_eq!(
        (
            attributes.uid,
            attributes.gid,
            attributes.mode,
            attributes.nlink
        ),
        (7, 8, 0o640, 2)
    );
    assert_eq!(attributes.mtime, Timestamp::new(-1, 500_000_000));
    assert_eq!(room.xattr(attributes.no, b"user.colour").unwrap(), b"blue");
    let names = room.read_dir(InodeNo::ROOT, 0, 100).unwrap();
    let order: Vec<(FileKind, usize)> = names.iter().map(|(e, _)| (e.kind, e.name.len())).collect();
    use FileKind::{Directory, Fifo, Regular, Symlink};
    assert_eq!(
        order,
        [
            (Directory, 6),
            (Regular, 7),
            (Regular, 4),
            (Symlink, 4),
            (Fifo, 254)
        ]
    );
    sound(&room);
    room.write_file("/new", b"and it can be written to")
        .unwrap();
    room.close().unwrap();
    let raw = Credential::RawKey(Secret::from((0..32).collect::<Vec<u8>>()));
    assert_eq!(
        golden.open_with(&raw).unwrap().read_file("/new").unwrap(),
        b"and it can be written to"
    );
}

#[test]
fn a_room_from_before_pages_were_vouched_for_gets_that_with_a_new_master_key() {
    let golden = Copy::new();
    let credential = Credential::Passphrase(Secret::from(b"golden passphrase".to_vec()));
    let room = golden.open().unwrap();
    room.write_file("/before", b"before").unwrap();
    assert!(!golden.file("catalog.db-pages").exists());
    assert!(room.rekey(&credential, &|_, _| true).unwrap().finished);
    room.close().unwrap();
    let room = golden.open().unwrap();
    assert_eq!(room.read_file("/before").unwrap(), b"before");
    sound(&room);
    room.close().unwrap();
    // It is needed from then on.
    fs::remove_file(golden.file("catalog.db-pages")).unwrap();
    let error = golden.open().unwrap_err();
    assert!(
        error.to_string().contains("catalog.db-pages is missing"),
        "{error}"
    );
}

#[test]
fn the_golden_room_of_two_factors_opens_with_both() {
    let golden = Copy::of("v1-two-factors");
    let both = Credential::PassphraseAndKeyFile {
        passphrase: "golden passphrase".into(),
        key_file: "golden key file\n".into(),
    };
    let room = golden.open_with(&both).unwrap();
    assert_eq!(
        room.read_file("/letter.txt").unwrap(),
        b"Both are needed.\n"
    );
    room.close().unwrap();
    assert!(golden.open().is_err(), "the passphrase alone");
}

#[test]
fn the_golden_room_with_reservations_opens_with_them() {
    let golden = Copy::of("v1-reservations");
    let room = golden.open().unwrap();
    let no = room.resolve("/reserved".as_ref(), true).unwrap();
    let inode = room.attributes(no).unwrap();
    // 3 MiB less 16 blocks that were punched; three of the others are stored.
    assert_eq!((inode.size, inode.blocks), (45_056, 768 - 16));
    assert_eq!(room.space().unwrap().reserved, (768 - 16 - 3) * 4096);
    let mut expected = vec![0; 45_056];
    expected[8192..16_384].fill(0xbb);
    expected[40_960..].fill(0xaa);
    assert_eq!(room.read_file("/reserved").unwrap(), expected);
    sound(&room);
    room.unlink(InodeNo::ROOT, b"reserved").unwrap();
    room.sync().unwrap();
    room.close().unwrap();
    assert_eq!(golden.open().unwrap().space().unwrap().reserved, 0);
}

/// The nonce parts of the extents of a file's first chunk.
fn nonce_parts(room: &Room, path: &str) -> Vec<NoncePart> {
    let no = room.resolve(path.as_ref(), true).unwrap();
    let maps = room.maps(no, 0, 1).unwrap();
    let extents = maps.iter().flat_map(|(_, chunk)| chunk.extents());
    extents.map(|extent| extent.nonce).collect()
}

#[test]
fn the_golden_room_with_nonce_parts_opens_with_them() {
    let golden = Copy::of("v1-append-nonces");
    let room = golden.open().unwrap();
    let numbers: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut expected = numbers;
    expected[16_000..17_000].fill(0xee);
    assert_eq!(room.read_file("/numbers").unwrap(), expected);
    let parts = nonce_parts(&room, "/numbers");
    assert!(
        parts.len() > 1 && !parts.contains(&NoncePart::NONE),
        "{parts:?}"
    );
    sound(&room);
    // Moved units have the part of the append that moved them, those that two files share too.
    room.compact(100, &|_, _| true).unwrap();
    assert_eq!(room.read_file("/numbers").unwrap(), expected);
    sound(&room);
}

/// Programs that do not know nonce parts refuse a room by the feature's name: so none is written before the feature is there.
#[test]
fn an_older_room_draws_nonce_parts_from_its_next_rekey_on() {
    let golden = Copy::of("v1-reservations");
    let room = golden.open().unwrap();
    room.write_file("/before", &pattern(1, 50_000)).unwrap();
    assert_eq!(nonce_parts(&room, "/before"), [NoncePart::NONE]);
    assert!(
        !fs::read_to_string(golden.file("header.json"))
            .unwrap()
            .contains("append-nonces")
    );
    let credential = Credential::Passphrase(Secret::from(b"golden passphrase".to_vec()));
    assert!(room.rekey(&credential, &|_, _| true).unwrap().finished);
    assert!(
        fs::read_to_string(golden.file("header.json"))
            .unwrap()
            .contains("append-nonces")
    );
    room.write_file("/after", &pattern(2, 50_000)).unwrap();
    room.close().unwrap();
    let room = golden.open().unwrap();
    for (path, seed) in [("/before", 1), ("/after", 2)] {
        assert_eq!(room.read_file(path).unwrap(), pattern(seed, 50_000));
        assert_ne!(nonce_parts(&room, path), [NoncePart::NONE], "{path}");
    }
    sound(&room);
}

#[test]
fn the_golden_room_with_records_in_its_log_opens_with_what_they_say() {
    for read_only in [true, false] {
        let golden = Copy::of("catalog3-log");
        let room = golden.open_as(&passphrase(), read_only).unwrap();
        let committed = room.read_file("/committed").unwrap();
        assert_eq!(committed, b"by the commit that began the log");
        let renamed = room.read_file("/logged/renamed").unwrap();
        assert_eq!(renamed, pattern(1, 5000));
        let large = room.read_file("/logged/large").unwrap();
        assert_eq!(large, pattern(2, 140_000));
        for gone in ["/logged/gone", "/logged/small", "/not durable"] {
            assert!(matches!(room.read_file(gone), Err(Error::NotFound)));
        }
        let dir = room.resolve("/logged".as_ref(), true).unwrap();
        assert_eq!(room.xattr(dir, b"user.kept").unwrap(), b"value");
        sound(&room);
        room.close().unwrap();
    }
}

#[test]
fn the_golden_room_with_snapshots_opens_with_what_they_see() {
    for read_only in [true, false] {
        let golden = Copy::of("catalog4-snapshots");
        let room = golden.open_as(&passphrase(), read_only).unwrap();
        let mut numbers: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
        numbers[16_000..17_000].fill(0xee);
        let monday = numbers.clone();
        numbers[4096..24_096].fill(0x11);
        numbers.truncate(100_000);
        let hourly = numbers.clone();
        numbers[..8192].fill(0x22);
        let friday = numbers.clone();
        numbers[50_000..51_000].fill(0x33);
        let all = room.snapshots().unwrap();
        let all: Vec<_> = all
            .iter()
            .map(|s| (s.number, s.name.as_str(), s.automatic))
            .collect();
        assert_eq!(
            all,
            [
                (1, "monday", false),
                (3, "hourly", true),
                (4, "friday", false)
            ]
        );
        for (name, contents, names, colour) in [
            ("monday", monday, 5, b"blue".as_slice()),
            ("hourly", hourly, 4, b"red"),
            ("friday", friday, 3, b"red"),
        ] {
            let view = room.snapshot(name).unwrap();
            let inode = view.lookup(InodeNo::ROOT, b"numbers").unwrap();
            let mut data = vec![0; inode.size as usize];
            view.read(inode.no, 0, &mut data).unwrap();
            assert!(data == contents, "{name}");
            assert_eq!(view.xattr(inode.no, b"user.colour").unwrap(), colour);
            let entries = view.read_dir(InodeNo::ROOT, 0, 100).unwrap();
            assert_eq!(entries.len(), names, "{name}");
            let papers = view.lookup(InodeNo::ROOT, b"papers").unwrap().no;
            let letter = view.lookup(papers, b"letter.txt");
            assert_eq!(letter.is_ok(), name == "monday");
        }
        assert!(room.read_file("/numbers").unwrap() == numbers);
        sound(&room);
        let held: Vec<_> = room.snapshot_space().unwrap();
        let held: Vec<_> = held.iter().map(|(_, space)| space.exclusive).collect();
        if !read_only {
            // What one of them alone held is gone.
            room.tend().unwrap();
            assert_eq!(room.held_by_snapshots().unwrap() % 4096, 0);
        }
        assert_eq!(held, HELD_IN_GOLDEN);
        room.close().unwrap();
    }
}

#[test]
fn the_golden_room_with_edits_of_maps_in_its_log_opens_with_what_they_say() {
    for read_only in [true, false] {
        let golden = Copy::of("catalog5-edits");
        let room = golden.open_as(&passphrase(), read_only).unwrap();
        let mut numbers: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
        numbers[16_000..17_000].fill(0xee);
        let written = |numbers: &mut Vec<u8>, round: usize| {
            for block in 0..5 {
                let at = (block * 5 + round) * 4096;
                numbers[at..at + 4096].fill((0x10 * (round + 1) + block) as u8);
            }
        };
        for (round, name) in ["monday", "tuesday"].into_iter().enumerate() {
            written(&mut numbers, round);
            let view = room.snapshot(name).unwrap();
            let inode = view.lookup(InodeNo::ROOT, b"numbers").unwrap();
            let mut data = vec![0; inode.size as usize];
            view.read(inode.no, 0, &mut data).unwrap();
            assert!(data == numbers, "{name}");
        }
        written(&mut numbers, 2);
        numbers[100_000..120_000].fill(0);
        assert!(room.read_file("/numbers").unwrap() == numbers);
        // Of the hole that was punched and of 40,000 bytes behind the end.
        assert_eq!(room.space().unwrap().reserved, RESERVED_IN_GOLDEN);
        sound(&room);
        if !read_only {
            room.write_file("/numbers", b"and it can be written to")
                .unwrap();
            room.sync().unwrap();
            sound(&room);
        }
        room.close().unwrap();
    }
}

#[test]
fn the_golden_room_with_file_flags_opens_and_keeps_to_them() {
    let golden = Copy::of("catalog2-flags");
    let room = golden.open().unwrap();
    let flags = |path: &str| {
        let no = room.resolve(path.as_ref(), true).unwrap();
        (no, room.attributes(no).unwrap().flags)
    };
    let (numbers, immutable) = flags("/numbers");
    let (papers, append_only) = flags("/papers");
    assert_eq!(immutable, FileFlags::IMMUTABLE);
    assert_eq!(append_only, FileFlags::APPEND_ONLY);
    let refused = room.write(numbers, 0, b"1");
    assert!(
        matches!(refused, Err(Error::NotPermitted(_))),
        "{refused:?}"
    );
    let refused = room.unlink(papers, b"letter.txt");
    assert!(
        matches!(refused, Err(Error::NotPermitted(_))),
        "{refused:?}"
    );
    room.write_file("/papers/new", b"a directory gains names")
        .unwrap();
}

#[test]
fn an_older_room_says_that_it_has_reservations_before_the_first_is_made() {
    let golden = Copy::new();
    let room = golden.open().unwrap();
    let no = room.resolve("/numbers".as_ref(), true).unwrap();
    let text = fs::read_to_string(golden.file("header.json")).unwrap();
    assert!(!text.contains("reservations"));
    let all = Fallocate::Allocate { keep_size: false };
    room.fallocate(no, all, 0, 1 << 20).unwrap();
    let text = fs::read_to_string(golden.file("header.json")).unwrap();
    assert!(text.contains("reservations"), "{text}");
    let reserved = room.space().unwrap().reserved;
    assert!(reserved > 0);
    room.close().unwrap();
    let room = golden.open().unwrap();
    assert_eq!(room.space().unwrap().reserved, reserved);
    // With a new master key too.
    let credential = Credential::Passphrase(Secret::from(b"golden passphrase".to_vec()));
    assert!(room.rekey(&credential, &|_, _| true).unwrap().finished);
    room.close().unwrap();
    let room = golden.open().unwrap();
    assert_eq!(room.space().unwrap().reserved, reserved);
    let text = fs::read_to_string(golden.file("header.json")).unwrap();
    assert!(text.contains("reservations"), "{text}");
}

#[test]
fn streams_of_the_first_form_make_a_replica() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stream-v1");
    let dir = tempfile::tempdir().unwrap();
    let replica = dir.path().join("replica");
    let options = OpenOptions {
        read_only: true,
        state_dir: Some(dir.path().join("state")),
        ..OpenOptions::default()
    };
    let credential = Credential::Passphrase(Secret::from(b"golden passphrase".to_vec()));
    for (moment, letter) in [
        ("first", &b"Dear reader, this is the first moment.\n"[..]),
        ("second", b"Dear reader, this is the second moment.\n"),
    ] {
        let mut stream = fs::File::open(golden.join(moment)).unwrap();
        room::receive(&replica, &mut stream, &options, &|_, _| true).unwrap();
        let room = Room::open(&replica, &credential, options.clone()).unwrap();
        assert_eq!(room.read_file("/papers/letter.txt").unwrap(), letter);
        assert_eq!(
            room.resolve("/draft".as_ref(), true).is_ok(),
            moment == "first"
        );
        assert_eq!(
            room.snapshot_of(&room.moment(moment).unwrap())
                .unwrap()
                .as_deref(),
            Some(moment)
        );
        assert!(
            room.check(true, false, &|_, _| true)
                .unwrap()
                .findings
                .is_empty()
        );
    }
}
