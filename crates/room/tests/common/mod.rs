//! What the room's tests share: rooms in temporary directories with a cheap key derivation.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test file uses some of it"
)]

pub mod model;
pub mod stored;

use std::path::{Path, PathBuf};

use room::restore::{Prepared, Wanted};
use room::{
    Argon2Cost, CheckReport, Credential, FileKind, FileSystem as _, InodeNo, NewCredential,
    NewFile, NewRoom, NewSnapshot, OpenOptions, Room, Secret, Snapshots as _,
};

pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn with_room() -> (Self, Room) {
        let place = Self::new();
        let room = place.create();
        (place, room)
    }

    pub fn room_dir(&self) -> PathBuf {
        self.dir.path().join("room")
    }

    pub fn options(&self) -> OpenOptions {
        OpenOptions {
            state_dir: Some(self.dir.path().join("state")),
            commit_interval_ms: 0,
            ..OpenOptions::default()
        }
    }

    /// For a room without its own thread, which would delete, commit and free in between.
    pub fn options_without_thread(&self) -> OpenOptions {
        OpenOptions {
            background: false,
            ..self.options()
        }
    }

    pub fn create(&self) -> Room {
        self.try_create().unwrap()
    }

    pub fn try_create(&self) -> room::Result<Room> {
        let mut new = NewRoom::with_credential(NewCredential::Passphrase {
            secret: secret(),
            cost: Argon2Cost::LEAST,
        });
        new.open = self.options();
        Room::create(&self.room_dir(), new)
    }

    pub fn open(&self) -> Room {
        self.try_open().unwrap()
    }

    pub fn reopen(&self, room: Room) -> Room {
        room.close().unwrap();
        self.open()
    }

    pub fn open_without_thread(&self) -> Room {
        Room::open(
            &self.room_dir(),
            &credential(),
            self.options_without_thread(),
        )
        .unwrap()
    }

    pub fn try_open(&self) -> room::Result<Room> {
        Room::open(&self.room_dir(), &credential(), self.options())
    }
}

pub fn secret() -> Secret {
    Secret::from(b"correct horse".to_vec())
}

pub fn credential() -> Credential {
    Credential::Passphrase(secret())
}

/// The number of what a path names, also of a symbolic link.
pub fn no(room: &Room, path: &str) -> InodeNo {
    room.resolve(path.as_ref(), false).unwrap()
}

/// A new file in the root directory.
pub fn file(room: &Room, name: &str) -> InodeNo {
    let new = NewFile::of_kind(FileKind::Regular);
    room.make(InodeNo::ROOT, name.as_bytes(), &new).unwrap().no
}

/// A snapshot of now.
pub fn snapshot(room: &Room, name: &str) {
    room.create_snapshot(name, NewSnapshot::default()).unwrap();
}

/// A copy of what the room's first snapshot has at a path, to be put in the place of what is there.
pub fn prepare_restore<'r>(room: &'r Room, path: &str) -> Prepared<'r> {
    let path = Path::new(path);
    let wanted = Wanted {
        snapshot: room.snapshots().unwrap()[0].number,
        path,
        to: path,
        replaces: true,
        follows: true,
    };
    room::restore::prepare(room, &wanted, &|_, _| true).unwrap()
}

/// Copies a directory tree: what a crash at this moment would leave if every write so far had reached the disk.
pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}

/// The room's structure and every unit of its files are as they should be.
#[track_caller]
pub fn sound(room: &Room) -> CheckReport {
    let report = room.check(true, false, &|_, _| true).unwrap();
    assert!(
        report.findings.is_empty() && report.lost.is_empty(),
        "{report:?}"
    );
    report
}
