//! A full disk: the writer gets an error, everything acknowledged is kept, deleting works and frees space.

use crate::common;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Place, credential, file, pattern, secret, snapshot, sound};
use room::{
    Argon2Cost, ClientKey, Error, Fallocate, FileKind, FileSystem as _, InodeNo, NewCredential,
    NewFile, NewRoom, OpenOptions, OperationId, RenameMode, Room, SeekTo, SetAttr, Snapshots as _,
};

/// A room on a small disk of its own, unmounted when the test ends, however it ends.
struct Small(tempfile::TempDir);

impl Small {
    /// None where this user may not mount one: only root can make a disk full without filling somebody's.
    fn new(mebibytes: u32) -> Option<Self> {
        let small = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(small.disk()).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(small.disk())
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            eprintln!("skipped: a tmpfs cannot be mounted here (not root)");
            return None;
        }
        Some(small)
    }

    fn disk(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    fn options(&self) -> OpenOptions {
        OpenOptions {
            state_dir: Some(self.0.path().join("state")),
            commit_interval_ms: 0,
            ..OpenOptions::default()
        }
    }

    fn create(&self) -> Room {
        let mut new = NewRoom::with_credential(NewCredential::Passphrase {
            secret: secret(),
            cost: Argon2Cost::LEAST,
        });
        new.open = self.options();
        Room::create(&self.disk().join("room"), new).unwrap()
    }

    fn reopened(&self, room: Room) -> Room {
        room.close().unwrap();
        Room::open(&self.disk().join("room"), &credential(), self.options()).unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.disk()).status();
    }
}

#[test]
fn a_full_disk_refuses_the_writer_keeps_what_is_synced_and_takes_deletions() {
    let Some(small) = Small::new(96) else { return };
    let room = small.create();
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
    let room = small.reopened(room);
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
    let Some(small) = Small::new(64) else { return };
    let room = small.create();
    room.write_file("/kept", &pattern(1, 5 << 20)).unwrap();
    room.sync().unwrap();
    // Somebody else takes everything, to the last block.
    let other = small.disk().join("other");
    let filled = std::fs::write(&other, vec![1; 80 << 20]);
    assert!(filled.is_err());
    let refused = room.write_file("/more", &pattern(2, 1 << 20));
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    let made = room.make(InodeNo::ROOT, b"name", &NewFile::of_kind(FileKind::Regular));
    assert!(matches!(made, Err(Error::NoSpace)), "{made:?}");
    assert_eq!(room.read_file("/kept").unwrap(), pattern(1, 5 << 20));
    std::fs::remove_file(&other).unwrap();
    room.write_file("/more", &pattern(2, 1 << 20)).unwrap();
    let room = small.reopened(room);
    assert_eq!(room.read_file("/kept").unwrap(), pattern(1, 5 << 20));
    assert_eq!(room.read_file("/more").unwrap(), pattern(2, 1 << 20));
}

/// Writes new data until there is no space for any.
fn fill(room: &Room, name: &str) -> u64 {
    let no = file(room, name);
    let mut at = 0;
    for len in [1 << 20, 64 << 10, 4096] {
        while room.write(no, at, &pattern(at, len)).is_ok() {
            at += len as u64;
        }
    }
    at
}

/// `fallocate` used to look for space only: a range that it had promised could not be written once the rest was full.
#[test]
fn a_range_that_was_allocated_can_be_written_and_rewritten_when_the_rest_is_full() {
    const LEN: u64 = 24 << 20;
    let Some(small) = Small::new(128) else { return };
    let room = small.create();
    let no = file(&room, "allocated");
    let before = room.space().unwrap();
    let allocate = Fallocate::Allocate { keep_size: false };
    room.fallocate(no, allocate, 0, LEN).unwrap();
    let after = room.space().unwrap();
    assert_eq!(after.reserved, LEN);
    assert!(after.available + LEN <= before.available && after.free + LEN <= before.free);
    let inode = room.attributes(no).unwrap();
    assert_eq!((inode.size, inode.blocks), (LEN, LEN / 4096));
    assert_eq!(
        room.seek(no, 0, SeekTo::Hole).unwrap(),
        0,
        "nothing is stored yet"
    );
    room.sync().unwrap();
    fill(&room, "rest");
    // It is as durable as a file is.
    let room = small.reopened(room);
    assert_eq!(room.space().unwrap().reserved, LEN);
    let refused = room.write(file_or(&room, "more"), 0, &pattern(1, 1 << 20));
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    for at in (0..LEN).step_by(1 << 20) {
        room.write(no, at, &pattern(at, 1 << 20)).unwrap();
    }
    room.sync().unwrap();
    assert_eq!(room.space().unwrap().reserved, 0);
    assert_eq!(room.attributes(no).unwrap().blocks, LEN / 4096);
    // Databases write their pages again and again.
    for i in 0..6000_u64 {
        let at = i * 7919 % (LEN / 4096) * 4096;
        room.write(no, at, &pattern(i, 4096)).unwrap();
    }
    room.sync().unwrap();
    sound(&room);
    room.close().unwrap();
}

fn file_or(room: &Room, name: &str) -> InodeNo {
    match room.make(
        InodeNo::ROOT,
        name.as_bytes(),
        &NewFile::of_kind(FileKind::Regular),
    ) {
        Ok(inode) => inode.no,
        // A full room takes no new names; any old one does.
        Err(_) => room.resolve("/rest".as_ref(), true).unwrap(),
    }
}

#[test]
fn what_was_reserved_is_free_again_after_a_punch_a_truncation_and_a_deletion() {
    let (place, room) = common::Place::with_room();
    let allocate = |no, keep_size, at, len| {
        room.fallocate(no, Fallocate::Allocate { keep_size }, at, len)
            .unwrap();
    };
    let reserved = || room.space().unwrap().reserved / 4096;
    let blocks = |no| room.attributes(no).unwrap().blocks;
    let no = file(&room, "file");
    room.write(no, 8192, &[1; 4096]).unwrap();
    allocate(no, false, 0, 10 << 20);
    assert_eq!((reserved(), blocks(no)), (2559, 2560), "a block is stored");
    allocate(no, false, 100, 5 << 20);
    assert_eq!(reserved(), 2559, "it was reserved before");
    allocate(no, true, 10 << 20, 1 << 20);
    assert_eq!(room.attributes(no).unwrap().size, 10 << 20);
    assert_eq!(reserved(), 2559 + 256, "behind the end too");
    room.fallocate(no, Fallocate::PunchHole, 0, 1 << 20)
        .unwrap();
    assert_eq!(
        (reserved(), blocks(no)),
        (2559 + 256 - 255, 2560 + 256 - 256)
    );
    room.fallocate(no, Fallocate::ZeroRange { keep_size: false }, 0, 1 << 20)
        .unwrap();
    assert_eq!(reserved(), 2560 + 256);
    room.fallocate(no, Fallocate::Collapse, 4096, 4096).unwrap();
    assert_eq!(reserved(), 2560 + 256 - 1);
    room.fallocate(no, Fallocate::Insert, 1 << 20, 8192)
        .unwrap();
    assert_eq!(reserved(), 2560 + 256 - 1);
    room.sync().unwrap();
    sound(&room);
    let size = SetAttr::size;
    let now = room.attributes(no).unwrap().size;
    room.set_attributes(no, &size(now)).unwrap();
    assert_eq!(reserved(), now / 4096 - 2, "behind the end it is gone");
    room.set_attributes(no, &size(5 << 20)).unwrap();
    assert_eq!(reserved(), 5 * 256 - 2);
    let copy = file(&room, "copy");
    room.copy_range(no, 0, copy, 0, 5 << 20).unwrap();
    assert_eq!(
        (reserved(), blocks(copy)),
        (5 * 256 - 2, 0),
        "a copy has holes there"
    );
    room.copy_range(copy, 0, no, 0, 1 << 20).unwrap();
    assert_eq!(
        reserved(),
        4 * 256 - 2 + if blocks(no) == 4 * 256 - 2 { 0 } else { 2 }
    );
    room.unlink(InodeNo::ROOT, b"file").unwrap();
    room.sync().unwrap();
    let room = place.reopen(room);
    assert_eq!(room.space().unwrap().reserved, 0);
    sound(&room);
}

/// Every write goes to a fresh place: a full room could not be overwritten at all.
#[test]
fn a_full_room_can_be_overwritten_piece_by_piece_cut_renamed_and_emptied() {
    let Some(small) = Small::new(128) else { return };
    let room = small.create();
    room.write_file("/old", &pattern(1, 20 << 20)).unwrap();
    room.sync().unwrap();
    fill(&room, "rest");
    let no = room.resolve("/old".as_ref(), true).unwrap();
    let mut expected = pattern(1, 20 << 20);
    let mut put = |at: usize, seed, len| {
        let data = pattern(seed, len);
        room.write(no, at as u64, &data).unwrap();
        expected[at..at + len].copy_from_slice(&data);
    };
    for at in (0..20 << 20).step_by(1 << 20) {
        put(at, at as u64, 1 << 20);
    }
    // Small pieces: of a unit of which one block is replaced, nothing is freed.
    for i in 0..6000_usize {
        put(i * 7919 % (20 * 256) * 4096, i as u64, 4096);
    }
    for i in 0..100_usize {
        put(i * 104_729, i as u64, 1000);
    }
    room.sync().unwrap();
    assert!(room.read_file("/old").unwrap() == expected);
    room.rename(
        InodeNo::ROOT,
        b"old",
        InodeNo::ROOT,
        b"new",
        RenameMode::Replace,
    )
    .unwrap();
    room.fallocate(no, Fallocate::PunchHole, 100, 10 << 20)
        .unwrap();
    room.set_attributes(no, &SetAttr::size((15 << 20) + 17))
        .unwrap();
    room.sync().unwrap();
    sound(&room);
    room.unlink(InodeNo::ROOT, b"rest").unwrap();
    room.unlink(InodeNo::ROOT, b"new").unwrap();
    let more = fill(&room, "more");
    assert!(more > 64 << 20, "{more}");
    room.close().unwrap();
}

/// Each took space for the answer that new data could have had: on the full disks of a shared room nobody could remove anything.
#[test]
fn what_frees_space_in_a_full_room_is_done_with_an_answer_to_a_client() {
    let Some(small) = Small::new(64) else { return };
    let room = small.create();
    room.write_file("/cut", &pattern(1, 100_000)).unwrap();
    fill(&room, "rest");
    let no = room.resolve("/cut".as_ref(), true).unwrap();
    let id = |sequence| OperationId {
        client: ClientKey([7; 32]),
        slot: 1,
        sequence,
    };
    let unlink = |name: &[u8]| room.unlink(InodeNo::ROOT, name);
    let set = |set: SetAttr| room.set_attributes(no, &set).map(drop);
    type Step<'a> = &'a dyn Fn() -> room::Result<()>;
    let steps: [Step<'_>; 4] = [
        &|| set(SetAttr::mode(0o600)),
        &|| set(SetAttr::size(5000)),
        &|| unlink(b"cut"),
        &|| unlink(b"rest"),
    ];
    for (step, sequence) in steps.into_iter().zip(1..) {
        room.answering(&id(sequence), step, |()| vec![1]).unwrap();
        room.sync().unwrap();
    }
    assert!(fill(&room, "more") > 16 << 20);
    room.close().unwrap();
}

/// `statfs` promised some hundred KiB to 1.5 % more than could be written, or allocated.
/// What failed: where there was no space for the new catalog of a rekey, that was no lack of space but a failure of the storage, after which the
/// room could not be read until it was opened again.
#[test]
fn a_rekey_that_finds_no_space_leaves_the_room_usable() {
    let Some(small) = Small::new(24) else { return };
    let room = small.create();
    for i in 0..3000 {
        let name = format!("{i}{}", "x".repeat(240));
        file(&room, &name);
    }
    room.write_file("/kept", &pattern(1, 100_000)).unwrap();
    room.sync().unwrap();
    let others = small.disk().join("others");
    let mut filled = std::fs::File::create(&others).unwrap();
    while std::io::Write::write_all(&mut filled, &[1; 4096]).is_ok() {}
    let refused = room.rekey(&credential(), &|_, _| true);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    assert_eq!(room.read_file("/kept").unwrap(), pattern(1, 100_000));
    drop(filled);
    std::fs::remove_file(&others).unwrap();
    room.write_file("/more", &pattern(2, 100_000)).unwrap();
    assert!(room.rekey(&credential(), &|_, _| true).unwrap().finished);
    let room = small.reopened(room);
    assert_eq!(room.read_file("/more").unwrap(), pattern(2, 100_000));
    sound(&room);
}

#[test]
fn what_is_reported_as_available_can_be_allocated_or_written() {
    for round in 0..3 {
        let Some(small) = Small::new(200) else { return };
        let room = small.create();
        let no = file(&room, "all");
        let available = room.available().unwrap().new;
        assert!(available > 140 << 20, "{available} of 200 MiB");
        match round {
            0 => {
                let all = Fallocate::Allocate { keep_size: true };
                let beyond = room.fallocate(no, all, 0, available + (1 << 20));
                assert!(matches!(beyond, Err(Error::NoSpace)), "{beyond:?}");
                assert_eq!(room.space().unwrap().reserved, 0);
                room.fallocate(no, all, 0, available).unwrap();
                assert_eq!(room.available().unwrap().new, 0);
            }
            _ => {
                let len = if round == 1 { 1 << 20 } else { 4096 };
                for at in (0..available / len * len).step_by(len as usize) {
                    room.write(no, at, &pattern(at, len as usize)).unwrap();
                }
                let left = room.available().unwrap().new;
                assert!(left < 4 << 20, "{left} of {available} are left");
            }
        }
        room.sync().unwrap();
        sound(&room);
        room.close().unwrap();
    }
}

#[test]
fn what_a_cache_accepted_before_the_room_was_full_still_finds_space() {
    let Some(small) = Small::new(1024) else {
        return;
    };
    let room = small.create();
    let no = file(&room, "rest");
    // Most of it is only reserved: quick.
    let most = room.available().unwrap().new - (8 << 20);
    room.fallocate(no, Fallocate::Allocate { keep_size: true }, 0, most)
        .unwrap();
    let no = file(&room, "cached");
    let (mut at, mut beyond) = (0, 0);
    loop {
        match room.write_cached(no, at, &pattern(at, 1 << 20)) {
            Ok(full) => beyond += u64::from(full),
            Err(e) => {
                assert!(matches!(e, Error::NoSpace), "{e:?}");
                break;
            }
        }
        at += 1 << 20;
    }
    assert!((40..=64).contains(&beyond), "{beyond} MiB more");
    room.sync().unwrap();
    assert_eq!(room.available().unwrap().new, 0);
    let refused = room.write(no, at, &[1; 4096]);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    room.close().unwrap();
}

/// A variable that hid another one let the loop go on behind blocks that it had not marked, where a file had blocks already.
#[test]
fn every_hole_of_a_range_over_many_chunks_is_reserved() {
    const BLOCK: u64 = 4096;
    let (_place, room) = Place::with_room();
    let root = InodeNo::ROOT;
    let no = room
        .make(root, b"f", &NewFile::of_kind(FileKind::Regular))
        .unwrap()
        .no;
    // 300 blocks from block 100 on, over the end of the first chunk.
    room.write(no, 100 * BLOCK, &pattern(1, 300 * BLOCK as usize))
        .unwrap();
    room.fsync(no).unwrap();
    let all = Fallocate::Allocate { keep_size: true };
    room.fallocate(no, all, 0, 2000 * BLOCK).unwrap();
    assert_eq!(room.attributes(no).unwrap().blocks, 2000);
    assert_eq!(room.space().unwrap().reserved, 1700 * BLOCK);
    sound(&room);
}

/// A file with 4 KiB in each of so many chunks.
fn sparse(room: &Room, chunks: u64) -> InodeNo {
    let no = file(room, "sparse");
    for i in 0..chunks {
        room.write(no, i << 20, &pattern(i, 4096)).unwrap();
    }
    no
}

/// Room was asked for in the catalog's log for all chunks of a file at once: no commit came through any more, whatever was deleted.
#[test]
fn a_file_with_many_changed_chunks_is_committed_on_a_small_disk() {
    const CHUNKS: u64 = 9000;
    let Some(small) = Small::new(128) else { return };
    let room = small.create();
    let no = sparse(&room, CHUNKS);
    let available = room.available().unwrap().new;
    assert!(available > 32 << 20, "{available}");
    room.sync().unwrap();
    // What was reserved for it is not gone.
    room.write(no, CHUNKS << 20, &pattern(0, 16 << 20)).unwrap();
    room.sync().unwrap();
    // The same chunks again, with what a snapshot keeps of each.
    snapshot(&room, "before");
    for i in 0..CHUNKS / 4 {
        room.write(no, i << 20, &pattern(i + 1, 4096)).unwrap();
    }
    room.sync().unwrap();
    sound(&room);
    let room = small.reopened(room);
    let mut block = [0; 4096];
    for i in 0..CHUNKS {
        room.read(no, i << 20, &mut block).unwrap();
        let seed = if i < CHUNKS / 4 { i + 1 } else { i };
        assert!(block[..] == pattern(seed, 4096), "chunk {i}");
    }
}

/// A thousand chunks went at once: of a file that a snapshot knows, on a small disk, the catalog's log had no room for that.
#[test]
fn a_file_with_many_chunks_is_truncated_in_a_full_room_with_a_snapshot() {
    const CHUNKS: u64 = 1100;
    let Some(small) = Small::new(128) else { return };
    let room = small.create();
    let no = sparse(&room, CHUNKS);
    snapshot(&room, "s");
    fill(&room, "rest");
    let room = small.reopened(room);
    // What the catalog's log had in reserve.
    fill(&room, "more");
    let room = small.reopened(room);
    room.set_attributes(no, &SetAttr::size(0)).unwrap();
    room.sync().unwrap();
    let mut block = [0; 4096];
    let view = room.snapshot("s").unwrap();
    view.read(no, (CHUNKS - 1) << 20, &mut block).unwrap();
    assert!(block[..] == pattern(CHUNKS - 1, 4096));
    sound(&room);
    room.close().unwrap();
}

/// Making a file longer took away what was reserved behind its new end.
#[test]
fn a_file_that_becomes_longer_keeps_what_is_reserved_behind_its_end() {
    let (_place, room) = Place::with_room();
    let no = file(&room, "f");
    let reserved = || room.space().unwrap().reserved / 4096;
    let size = |size| room.set_attributes(no, &SetAttr::size(size)).unwrap();
    let allocate = |what, at, len| room.fallocate(no, what, at, len).unwrap();
    allocate(Fallocate::Allocate { keep_size: true }, 0, 10 << 20);
    assert_eq!(reserved(), 2560);
    size(4096);
    assert_eq!(reserved(), 2560);
    allocate(Fallocate::Allocate { keep_size: false }, 0, 1 << 20);
    allocate(
        Fallocate::ZeroRange { keep_size: false },
        1 << 20,
        (1 << 20) + 5,
    );
    let inode = room.attributes(no).unwrap();
    assert_eq!((inode.size, inode.blocks), ((2 << 20) + 5, 2560));
    assert_eq!(reserved(), 2560);
    // The same length once more cuts, as in ext4.
    size((2 << 20) + 5);
    assert_eq!(reserved(), 513);
    sound(&room);
}

/// A truncation found no space half-way: the file kept its length and had lost its data, some of which came back later.
#[test]
fn a_truncation_on_a_full_disk_is_done_or_not() {
    const LEN: u64 = 2 << 20;
    let Some(small) = Small::new(64) else { return };
    let room = small.create();
    let data = pattern(1, LEN as usize);
    room.write_file("/f", &data).unwrap();
    let (no, copy) = (
        room.resolve("/f".as_ref(), true).unwrap(),
        file(&room, "copy"),
    );
    room.copy_range(no, 0, copy, 0, LEN).unwrap();
    // The catalog's log of a room just opened has nothing in reserve.
    let room = small.reopened(room);
    assert!(room.read_file("/copy").unwrap() == data);
    // Somebody else takes everything, to the last block.
    let other = small.disk().join("other");
    assert!(std::fs::write(&other, vec![1; 80 << 20]).is_err());
    let size = |size| room.set_attributes(copy, &SetAttr::size(size));
    match size(0) {
        Ok(_) => assert_eq!(room.attributes(copy).unwrap().size, 0),
        Err(e) => {
            assert!(matches!(e, Error::NoSpace), "{e:?}");
            assert!(room.read_file("/copy").unwrap() == data);
        }
    }
    std::fs::remove_file(&other).unwrap();
    size(0).unwrap();
    size(LEN).unwrap();
    assert!(room.read_file("/copy").unwrap() == vec![0; LEN as usize]);
    room.sync().unwrap();
    sound(&room);
    assert!(room.read_file("/f").unwrap() == data);
    room.unlink(InodeNo::ROOT, b"f").unwrap();
    room.tend().unwrap();
    assert_eq!(room.space().unwrap().live, 0);
    sound(&room);
    room.close().unwrap();
}
