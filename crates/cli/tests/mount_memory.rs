//! How much memory the process that serves a mount takes at most, whatever programs do in it.
#![allow(missing_docs)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{Sandbox, can_mount, noise};
use room::{Credential, FileKind, FileSystem as _, NewFile, Room, Secret};
use rustix::fs::Advice;

/// Resident bytes that the process may have had at its peak, its program and libraries included.
const MOST: u64 = 256 << 20;
/// Names in one directory.
const NAMES: u64 = 100_000;
/// More than the process may take: a cache without a bound would show.
const LARGE: u64 = MOST + (64 << 20);
const MIB: usize = 1 << 20;

#[test]
fn a_mount_takes_bounded_memory_whatever_is_done_in_it() {
    if !can_mount() {
        return;
    }
    let s = Sandbox::with_room();
    make_names(&s);
    assert!(s.mount());
    let pid = s.pid();
    let works: [(&str, Work); 7] = [
        ("a listing of 100,000 names with their attributes", list),
        ("10,000 small files", small_files),
        ("a large sequential write", write_large),
        ("a large sequential read", read_large),
        ("random writes", write_randomly),
        ("synced appends", append_synced),
        ("SQLite", sqlite),
    ];
    for (what, work) in works {
        let began = std::time::Instant::now();
        work(&s.path("mnt"));
        let peak = peak_memory(pid);
        eprintln!("{what}: {} MiB, {:.1?}", peak >> 20, began.elapsed());
        assert!(peak <= MOST, "{what}: {} MiB at the peak", peak >> 20);
    }
    assert_eq!(s.pid(), pid, "one process served all of it");
    s.umount();
}

/// Something done in a mounted directory.
type Work = fn(&Path);

/// The most memory that a process had at once, bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

/// Many names in one directory, through the library: that is faster.
fn make_names(s: &Sandbox) {
    let pass = Secret::from(b"correct horse battery staple".to_vec());
    let room = Room::open(
        &s.path("room"),
        &Credential::Passphrase(pass),
        room::OpenOptions::with_state_dir(s.path("state/strongroom")),
    )
    .unwrap();
    room.make_dir("/names", false).unwrap();
    let parent = room.resolve(Path::new("/names"), true).unwrap();
    for i in 0..NAMES {
        let name = format!("a name of some length {i}");
        let new = NewFile::of_kind(FileKind::Regular);
        room.make(parent, name.as_bytes(), &new).unwrap();
    }
    room.close().unwrap();
}

fn list(mnt: &Path) {
    let entries = fs::read_dir(mnt.join("names")).unwrap();
    let sizes = entries.map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(sizes.map(|size| size + 1).sum::<u64>(), NAMES);
}

/// As unpacking an archive does.
fn small_files(mnt: &Path) {
    let content = noise(16 << 10, 3);
    for dir in 0..100 {
        let dir = mnt.join(format!("small/{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            fs::write(dir.join(file.to_string()), &content[..file * 160]).unwrap();
        }
    }
    rustix::fs::syncfs(File::open(mnt).unwrap()).unwrap();
}

fn write_large(mnt: &Path) {
    let mut file = File::create(mnt.join("large")).unwrap();
    let piece = noise(MIB, 5);
    for _ in 0..LARGE / MIB as u64 {
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
}

fn read_large(mnt: &Path) {
    let mut file = File::open(mnt.join("large")).unwrap();
    // The kernel has it: the process is to be asked.
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let piece = noise(MIB, 5);
    let mut read = vec![0; MIB];
    for _ in 0..LARGE / MIB as u64 {
        file.read_exact(&mut read).unwrap();
        assert!(read == piece);
    }
}

fn write_randomly(mnt: &Path) {
    let file = OpenOptions::new().write(true).open(mnt.join("large"));
    let file = file.unwrap();
    let block = noise(4096, 7);
    let blocks = LARGE / 4096;
    for i in 0..20_000 {
        // A prime step visits blocks far from each other, and none twice.
        file.write_all_at(&block, i * 7919 % blocks * 4096).unwrap();
    }
    file.sync_all().unwrap();
}

fn append_synced(mnt: &Path) {
    let mut file = File::create(mnt.join("log")).unwrap();
    let line = noise(1000, 9);
    for _ in 0..2000 {
        file.write_all(&line).unwrap();
        file.sync_data().unwrap();
    }
}

fn sqlite(mnt: &Path) {
    let mut db = rusqlite::Connection::open(mnt.join("db")).unwrap();
    db.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        .unwrap();
    let text = "x".repeat(500);
    for _ in 0..200 {
        db.execute("INSERT INTO t (text) VALUES (?)", [&text])
            .unwrap();
    }
    let all = db.transaction().unwrap();
    for _ in 0..50_000 {
        all.execute("INSERT INTO t (text) VALUES (?)", [&text])
            .unwrap();
    }
    all.commit().unwrap();
    let sound: String = db
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
}
