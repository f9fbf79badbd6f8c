//! A full disk: the writer is told, everything acknowledged is kept, deleting works and frees space.
#![allow(missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{credential, pattern, secret};
use room::{
    Argon2Cost, Error, FileKind, InodeNo, NewCredential, NewFile, NewRoom, OpenOptions, Room,
};

/// A small file system of its own, unmounted when the test ends, however it ends.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// None where this user may not mount one: only root can make a disk full without filling somebody's.
    fn new(mebibytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(dir.path())
            .status();
        mounted.is_ok_and(|s| s.success()).then_some(Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn options(state: PathBuf) -> OpenOptions {
    OpenOptions {
        state_dir: Some(state),
        commit_interval_ms: 0,
        ..OpenOptions::default()
    }
}

#[test]
fn a_full_disk_refuses_the_writer_keeps_what_is_synced_and_takes_deletions() {
    let Some(disk) = Tmpfs::new(96) else {
        eprintln!("skipped: a tmpfs cannot be mounted here (not root)");
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let dir = disk.path().join("room");
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: secret(),
        cost: Argon2Cost::LEAST,
    });
    new.open = options(state.path().into());
    let room = Room::create(&dir, new).unwrap();
    room.write_file("/kept", &pattern(1, 3 << 20)).unwrap();
    room.sync().unwrap();
    let mut written = 0;
    let refused = loop {
        let chunk = pattern(100 + written, 1 << 20);
        match room.write_file(format!("/fill{written}"), &chunk) {
            Ok(()) => written += 1,
            Err(e) => break e,
        }
        assert!(written < 96, "more went in than the disk holds");
    };
    assert!(matches!(refused, Error::NoSpace), "{refused:?}");
    assert!(written > 60, "only {written} MiB of 96 could be used");
    room.sync().unwrap();
    for i in 0..written {
        assert_eq!(
            room.read_file(format!("/fill{i}")).unwrap(),
            pattern(100 + i, 1 << 20),
            "file {i}"
        );
    }
    for i in 0..written {
        room.unlink(InodeNo::ROOT, format!("fill{i}").as_bytes())
            .unwrap();
    }
    room.sync().unwrap();
    // The next writer finds the space of what was deleted, without waiting for anything; the catalog's log has grown.
    let again = written - 8;
    for i in 0..again {
        let done = room.write_file(format!("/again{i}"), &pattern(200 + i, 1 << 20));
        assert!(
            done.is_ok(),
            "{done:?} after {i} of {written} MiB: {:?}",
            room.space()
        );
    }
    room.close().unwrap();
    let room = Room::open(&dir, &credential(), options(state.path().into())).unwrap();
    assert_eq!(room.read_file("/kept").unwrap(), pattern(1, 3 << 20));
    for i in 0..again {
        assert_eq!(
            room.read_file(format!("/again{i}")).unwrap(),
            pattern(200 + i, 1 << 20)
        );
    }
}

#[test]
fn a_disk_filled_by_others_loses_nothing_acknowledged() {
    let Some(disk) = Tmpfs::new(64) else {
        eprintln!("skipped: a tmpfs cannot be mounted here (not root)");
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let dir = disk.path().join("room");
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: secret(),
        cost: Argon2Cost::LEAST,
    });
    new.open = options(state.path().into());
    let room = Room::create(&dir, new).unwrap();
    room.write_file("/kept", &pattern(1, 5 << 20)).unwrap();
    room.sync().unwrap();
    // Somebody else takes everything, to the last block.
    let other = disk.path().join("other");
    let filled = std::fs::write(&other, vec![1; 80 << 20]);
    assert!(filled.is_err());
    let refused = room.write_file("/more", &pattern(2, 1 << 20));
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    let made = room.make(InodeNo::ROOT, b"name", &NewFile::of_kind(FileKind::Regular));
    assert!(matches!(made, Err(Error::NoSpace)), "{made:?}");
    assert_eq!(room.read_file("/kept").unwrap(), pattern(1, 5 << 20));
    std::fs::remove_file(&other).unwrap();
    room.write_file("/more", &pattern(2, 1 << 20)).unwrap();
    room.close().unwrap();
    let room = Room::open(&dir, &credential(), options(state.path().into())).unwrap();
    assert_eq!(room.read_file("/kept").unwrap(), pattern(1, 5 << 20));
    assert_eq!(room.read_file("/more").unwrap(), pattern(2, 1 << 20));
}
