//! File data through a real mount: caches, holes, allocation, copies, locks.

use room::FileSystem as _;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use crate::common::{Mount, ok};
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
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

#[test]
fn random_writes_and_reads_agree_with_a_plain_file() {
    let Some(mount) = Mount::new() else { return };
    let files = [make(mount.path("f")), make(mount.plain().join("f"))];
    let mut random = fastrand::Rng::with_seed(1);
    for step in 0..400u64 {
        let (offset, len) = (random.u64(..3 << 20), random.usize(1..=200_000));
        match random.u64(..8) {
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
fn a_copy_reaches_the_end_that_the_kernel_has_not_written_back() {
    let Some(mount) = Mount::new() else { return };
    let end = 64u64 << 20;
    let from = make(mount.path("from"));
    from.write_all_at(&pattern(4096, 6), 0).unwrap();
    // Dirty in the cache only, beyond the first ranges that are copied.
    from.write_all_at(b"z", end).unwrap();
    let to = make(mount.path("to"));
    let (mut off_in, mut off_out) = (0, 0);
    loop {
        let offsets = (Some(&mut off_in), Some(&mut off_out));
        match rustix::fs::copy_file_range(&from, offsets.0, &to, offsets.1, 1 << 20).unwrap() {
            0 => break,
            n => assert!(n <= 1 << 20),
        }
    }
    assert_eq!((off_in, off_out), (end + 1, end + 1));
    assert!(fs::read(mount.path("to")).unwrap() == fs::read(mount.path("from")).unwrap());
}

/// Asynchronous input and output as `libaio` does it: writes that are under way while their submitter goes on.
mod aio {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    /// `struct iocb`, which libc does not declare.
    #[repr(C)]
    #[derive(Default)]
    struct Iocb {
        data: u64,
        key: u32,
        rw_flags: i32,
        opcode: u16,
        priority: i16,
        fd: u32,
        buffer: u64,
        bytes: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        eventfd: u32,
    }

    /// `struct io_event`.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Event {
        data: u64,
        iocb: u64,
        result: i64,
        result2: i64,
    }

    const WRITE: u16 = 1;

    pub(crate) struct Context(u64);

    impl Context {
        pub(crate) fn new(depth: usize) -> Self {
            let mut id = 0u64;
            // SAFETY: the kernel writes one number to `id`.
            let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut id) };
            assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
            Self(id)
        }

        /// Begins a write; `data` is what its completion is known by.
        ///
        /// # Safety
        /// `buffer` is valid until the completion.
        pub(crate) unsafe fn write(&self, file: &File, buffer: &[u8], offset: u64, data: u64) {
            let iocb = Iocb {
                data,
                opcode: WRITE,
                fd: file.as_raw_fd() as u32,
                buffer: buffer.as_ptr() as u64,
                bytes: buffer.len() as u64,
                offset: offset as i64,
                ..Iocb::default()
            };
            let list = [&raw const iocb];
            // SAFETY: the kernel copies the one request before it returns; the caller keeps the buffer.
            let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_ptr()) };
            assert_eq!(begun, 1, "{}", std::io::Error::last_os_error());
        }

        /// Waits for one completion: what it is known by, and its result.
        pub(crate) fn wait(&self) -> (u64, i64) {
            let mut event = Event::default();
            loop {
                // SAFETY: there is room for one event.
                let got = unsafe {
                    libc::syscall(
                        libc::SYS_io_getevents,
                        self.0,
                        1,
                        1,
                        &raw mut event,
                        std::ptr::null_mut::<libc::timespec>(),
                    )
                };
                if got == 1 {
                    return (event.data, event.result);
                }
            }
        }
    }

    impl Drop for Context {
        fn drop(&mut self) {
            // SAFETY: the context is this value's own.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
        }
    }
}

/// With `FUSE_ASYNC_DIO` the kernel does not drop its cached pages when an asynchronous direct write ends, only when it begins: what
/// was read in between stayed, and readers through the cache saw old data for as long as it did.
#[test]
fn what_was_written_directly_and_asynchronously_is_read_through_the_cache() {
    use std::sync::atomic::{AtomicBool, Ordering};

    const BLOCK: usize = 4096;
    const BLOCKS: usize = 256;
    const DEPTH: usize = 8;
    const WRITES: u64 = 6000;

    #[repr(align(4096))]
    struct Aligned([u8; BLOCK]);

    let Some(mount) = Mount::new() else { return };
    let path = mount.path("f");
    // The second half of the file comes into being by the writes themselves.
    fs::write(&path, vec![0; BLOCKS / 2 * BLOCK]).unwrap();
    let cached = File::open(&path).unwrap();
    let direct = File::options()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let stop = AtomicBool::new(false);
    let mut stale = Vec::new();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (cached, stop) = (&cached, &stop);
            scope.spawn(move || {
                let mut buffer = [0; BLOCK];
                let mut at = reader;
                while !stop.load(Ordering::Relaxed) {
                    at = (at * 5 + 3) % BLOCKS;
                    let _ = cached.read_at(&mut buffer, (at * BLOCK) as u64).unwrap();
                }
            });
        }
        let context = aio::Context::new(DEPTH);
        let mut buffers: Vec<Aligned> = (0..DEPTH).map(|_| Aligned([0; BLOCK])).collect();
        // Numbers the writes; neighbours in time are different blocks.
        let offset_of = |n: u64| (n * 7 % BLOCKS as u64) * BLOCK as u64;
        let mut by_slot = [0; DEPTH];
        let mut begun = 0;
        let mut begin = |slot: usize, by_slot: &mut [u64; DEPTH]| {
            if begun < WRITES {
                begun += 1;
                by_slot[slot] = begun;
                buffers[slot].0[..8].copy_from_slice(&begun.to_le_bytes());
                // SAFETY: a slot's buffer is changed only after its completion, and outlives the context.
                unsafe {
                    context.write(&direct, &buffers[slot].0, offset_of(begun), slot as u64);
                }
            }
        };
        for slot in 0..DEPTH {
            begin(slot, &mut by_slot);
        }
        for _ in 0..WRITES {
            let (slot, result) = context.wait();
            assert_eq!(result, BLOCK as i64);
            let written = by_slot[slot as usize];
            // Nobody else writes to this block before the next round.
            let mut number = [0; 8];
            cached
                .read_exact_at(&mut number, offset_of(written))
                .unwrap();
            if u64::from_le_bytes(number) != written {
                stale.push((offset_of(written), u64::from_le_bytes(number), written));
            }
            begin(slot as usize, &mut by_slot);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(
        stale.is_empty(),
        "{} of {WRITES} writes were not seen, such as {:?}",
        stale.len(),
        stale[0]
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
