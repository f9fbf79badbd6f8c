//! File data through a real mount: caches, holes, allocation, copies, locks.

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use common::{Mount, ok};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// A readable and writable new file.
fn make(path: impl AsRef<std::path::Path>) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap()
}

/// Bytes that differ from place to place.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

#[test]
fn random_writes_and_reads_agree_with_a_plain_file() {
    let Some(mount) = Mount::new() else { return };
    let files = [make(mount.path("f")), make(mount.plain().join("f"))];
    let mut x = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % below
    };
    for step in 0..400u64 {
        let (offset, len) = (random(3 << 20), random(200_000) as usize + 1);
        match random(8) {
            0 => files.iter().for_each(|f| f.set_len(offset).unwrap()),
            1 => files[0].sync_data().unwrap(),
            2 => rustix::fs::fadvise(&files[0], 0, None, rustix::fs::Advice::DontNeed).unwrap(),
            _ => files
                .iter()
                .for_each(|f| f.write_all_at(&pattern(len, step), offset).unwrap()),
        }
        let [a, b] = [0, 1].map(|i| {
            let mut buf = vec![0; 300_000];
            let got = files[i].read_at(&mut buf, offset / 2).unwrap();
            buf.truncate(got);
            buf
        });
        assert!(a == b, "step {step}");
    }
    files[0].sync_all().unwrap();
    drop(files);
    let plain = fs::read(mount.plain().join("f")).unwrap();
    let mount = mount.again();
    assert!(fs::read(mount.path("f")).unwrap() == plain);
}

#[test]
fn appending_from_two_descriptors_loses_nothing() {
    let Some(mount) = Mount::new() else { return };
    let open = || {
        File::options()
            .append(true)
            .create(true)
            .open(mount.path("log"))
            .unwrap()
    };
    let (mut a, mut b) = (open(), open());
    for _ in 0..1000 {
        a.write_all(b"aaaa\n").unwrap();
        b.write_all(b"bb\n").unwrap();
    }
    assert_eq!(fs::metadata(mount.path("log")).unwrap().len(), 8000);
    assert_eq!(
        fs::read_to_string(mount.path("log")).unwrap(),
        "aaaa\nbb\n".repeat(1000)
    );
}

#[test]
fn direct_reads_and_writes_pass_the_cache_and_agree_with_it() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("f");
    fs::write(&path, pattern(1 << 20, 1)).unwrap();
    let direct = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    // Page-aligned memory.
    let mut memory = vec![0u8; 65_536 + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buf = &mut memory[start..start + 65_536];
    direct.read_exact_at(buf, 65_536).unwrap();
    assert!(*buf == pattern(1 << 20, 1)[65_536..131_072]);
    buf.fill(9);
    direct.write_all_at(buf, 0).unwrap();
    let mut cached = File::open(&path).unwrap();
    let mut head = vec![0; 65_536];
    cached.read_exact(&mut head).unwrap();
    assert!(head.iter().all(|b| *b == 9));
}

#[test]
fn a_sparse_file_reaches_to_two_to_the_62() {
    let Some(mount) = Mount::new() else { return };
    let far = 1u64 << 62;
    let file = make(mount.path("f"));
    file.write_all_at(b"end", far).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), far + 3);
    assert!(file.metadata().unwrap().blocks() <= 2048);
    let mut buf = [1; 8];
    assert_eq!(file.read_at(&mut buf, far - 5).unwrap(), 8);
    assert_eq!(&buf, b"\0\0\0\0\0end");
    assert_eq!(rustix::fs::ftruncate(&file, 1 << 63), Err(Errno::INVAL));
    drop(file);
    let mount = mount.again();
    assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), far + 3);
}

#[test]
fn data_just_written_is_found_by_seek_data_without_fsync() {
    let Some(mount) = Mount::new() else { return };
    let mut file = make(mount.path("f"));
    file.set_len(100 << 20).unwrap();
    file.sync_all().unwrap();
    for at in [50u64 << 20, 10 << 20, 70 << 20] {
        file.write_all_at(b"here", at).unwrap();
        let found = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at - 4096 * 100)).unwrap();
        assert_eq!(found, at);
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(at)).unwrap();
        assert!(hole > at && hole <= at + (64 << 10), "{hole}");
    }
    assert_eq!(
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(90 << 20)),
        Err(Errno::NXIO)
    );
    assert_eq!(
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(100 << 20)),
        Err(Errno::NXIO)
    );
    // What is in the kernel's cache is still there.
    file.seek(SeekFrom::Start(50 << 20)).unwrap();
    let mut four = [0; 4];
    file.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"here");
}

#[test]
fn every_kind_of_fallocate_does_what_a_plain_file_does() {
    let Some(mount) = Mount::new() else { return };
    let k = 1024u64;
    let kinds = [
        ("allocate", FallocateFlags::empty()),
        ("keep", FallocateFlags::KEEP_SIZE),
        (
            "punch",
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        ),
        ("zero", FallocateFlags::ZERO_RANGE),
        (
            "zero-keep",
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        ),
    ];
    for (name, flags) in kinds {
        for (offset, len) in [
            (0, 4 * k),
            (5 * k + 3, 40 * k),
            (90 * k, 50 * k),
            (200 * k, 10 * k),
            (64 * k, 1),
        ] {
            let mut after = Vec::new();
            for dir in [mount.path(""), mount.plain()] {
                let path = dir.join(name);
                let file = make(&path);
                file.write_all_at(&pattern(100 * k as usize, offset), 0)
                    .unwrap();
                if rustix::fs::fallocate(&file, flags, offset, len) == Err(Errno::OPNOTSUPP) {
                    assert_eq!(dir, mount.plain(), "{name} is supported here");
                    continue;
                }
                after.push((file.metadata().unwrap().len(), fs::read(&path).unwrap()));
            }
            assert!(
                after.len() < 2 || after[0] == after[1],
                "{name} at {offset}, {len}"
            );
        }
    }
    let file = make(mount.path("f"));
    assert_eq!(
        rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 1),
        Err(Errno::OPNOTSUPP)
    );
    // Linux lets no FUSE file system do this one; should that change, it is there.
    file.write_all_at(&pattern(16384, 1), 0).unwrap();
    match rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 4096, 4096) {
        Ok(()) => assert_eq!(file.metadata().unwrap().len(), 12288),
        Err(e) => assert_eq!(e, Errno::OPNOTSUPP),
    }
}

#[test]
fn punching_gives_blocks_back_to_stat() {
    let Some(mount) = Mount::new() else { return };
    let file = make(mount.path("f"));
    file.write_all_at(&pattern(1 << 20, 1), 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 2048);
    rustix::fs::fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        0,
        512 << 10,
    )
    .unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 1024);
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
}

#[test]
fn copy_file_range_shares_blocks_and_sees_what_was_just_written() {
    let Some(mount) = Mount::new() else { return };
    let len = 8usize << 20;
    let data = pattern(len, 5);
    let from = make(mount.path("from"));
    from.write_all_at(&data, 0).unwrap();
    from.sync_all().unwrap();
    // Dirty in the cache only.
    from.write_all_at(b"changed", 1 << 20).unwrap();
    let room = mount.room.clone().unwrap();
    let before = room.space().unwrap().live;
    let to = make(mount.path("to"));
    let mut done = 0;
    while done < len {
        let (mut off_in, mut off_out) = (done as u64, done as u64);
        let n = rustix::fs::copy_file_range(
            &from,
            Some(&mut off_in),
            &to,
            Some(&mut off_out),
            len - done,
        )
        .unwrap();
        assert!(n > 0);
        done += n;
    }
    let mut expect = data;
    expect[1 << 20..(1 << 20) + 7].copy_from_slice(b"changed");
    assert!(fs::read(mount.path("to")).unwrap() == expect);
    let grown = room.space().unwrap().live.saturating_sub(before);
    assert!(grown < 1 << 20, "a copy of 8 MiB took {grown} bytes");
    from.write_all_at(&[0; 4096], 0).unwrap();
    from.sync_all().unwrap();
    assert!(
        fs::read(mount.path("to")).unwrap() == expect,
        "the copy is its own"
    );
}

#[test]
fn what_was_not_synced_reaches_the_room_by_itself() {
    let options = mount::MountOptions {
        write_back_interval: Some(std::time::Duration::from_millis(200)),
        ..Default::default()
    };
    let Some(mount) = Mount::with(options) else {
        return;
    };
    let file = make(mount.path("f"));
    file.write_all_at(b"dirty", 0).unwrap();
    let room = mount.room.clone().unwrap();
    let arrived = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        room.read_file("/f").is_ok_and(|d| d == b"dirty")
    });
    assert!(arrived, "the kernel's own interval is 30 seconds");
}

#[test]
fn truncating_and_growing_shows_zeros_not_old_bytes() {
    let Some(mount) = Mount::new() else { return };
    let file = make(mount.path("f"));
    file.write_all_at(&[7; 10_000], 0).unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(9_000).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let data = fs::read(mount.path("f")).unwrap();
    assert_eq!(data.len(), 9_000);
    assert!(data[..5_000].iter().all(|b| *b == 7) && data[5_000..].iter().all(|b| *b == 0));
}

#[test]
fn mapped_memory_is_the_file() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("f"), pattern(1 << 20, 3)).unwrap();
    let script = r#"
import mmap, os
fd = os.open("f", os.O_RDWR)
shared = mmap.mmap(fd, 0, mmap.MAP_SHARED)
private = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
shared[4096:4101] = b"hello"
assert os.pread(fd, 5, 4096) == b"hello"
private[0:5] = b"hidde"
assert os.pread(fd, 5, 0) != b"hidde"
os.pwrite(fd, b"there", 500000)
assert shared[500000:500005] == b"there"
os.unlink("f.copy") if os.path.exists("f.copy") else None
shared.flush()
"#;
    fs::write(mount.plain().join("map.py"), script).unwrap();
    ok(&mount, "python3 ../plain/map.py");
    let mut expect = pattern(1 << 20, 3);
    expect[4096..4101].copy_from_slice(b"hello");
    expect[500_000..500_005].copy_from_slice(b"there");
    let mount = mount.again();
    assert!(fs::read(mount.path("f")).unwrap() == expect);
}

#[test]
fn programs_run_from_the_mount() {
    let Some(mount) = Mount::new() else { return };
    ok(
        &mount,
        "cp /bin/true t && ./t && printf '#!/bin/sh\necho ran\n' > s && chmod +x s && test $(./s) = ran",
    );
}

#[test]
fn locks_hold_between_processes() {
    let Some(mount) = Mount::new() else { return };
    ok(
        &mount,
        "touch f; flock f sh -c '! flock -n f true' && flock -n f true &&
         flock -s f sh -c 'flock -n -s f true && ! flock -n f true'",
    );
    let script = r#"
import fcntl, os, sys
f = open("f", "r+b")
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
if os.fork() == 0:
    g = open("f", "r+b")
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 100)
    try:
        fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 99)
        os._exit(1)
    except BlockingIOError:
        os._exit(0)
sys.exit(os.waitpid(-1, 0)[1] != 0)
"#;
    fs::write(mount.plain().join("lock.py"), script).unwrap();
    ok(&mount, "python3 ../plain/lock.py");
}
