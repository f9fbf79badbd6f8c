//! Times through a real mount: those the kernel gives and those the room gives are of one clock.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Mount;
use rustix::fs::{AtFlags, CWD, FallocateFlags, IFlags, OFlags, StatxFlags};
use rustix::time::{ClockId, clock_gettime};

/// Pairs of files of each test.
const PAIRS: usize = 300;

/// Seconds and nanoseconds.
type Moment = (i64, i64);

fn mtime(path: &Path) -> Moment {
    let meta = fs::metadata(path).unwrap();
    (meta.mtime(), meta.mtime_nsec())
}

fn birth(path: &Path) -> Moment {
    let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), all).unwrap();
    (found.stx_btime.tv_sec, i64::from(found.stx_btime.tv_nsec))
}

fn write(path: &Path) {
    File::create(path).unwrap().write_all(b"x").unwrap();
}

fn coarse() -> Moment {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// Waits until the kernel's coarse clock has moved.
fn next_tick() {
    let before = coarse();
    while coarse() <= before {
        std::thread::yield_now();
    }
}

/// What was created was stamped by a fine clock, and what was written by the kernel's coarse one: nearly always a file written
/// after another was created was the older of the two, and older than itself.
#[test]
fn a_file_written_later_is_not_older() {
    let Some(mount) = Mount::new() else { return };
    for i in 0..PAIRS {
        let [empty, written] = ["empty", "written"].map(|n| mount.path(&format!("{n}{i}")));
        File::create(&empty).unwrap();
        write(&written);
        let meta = fs::metadata(&written).unwrap();
        let changed = (meta.mtime(), meta.mtime_nsec());
        assert!(changed >= mtime(&empty), "{i}: the later file is older");
        assert!(changed >= birth(&written), "{i}: changed before its birth");
        assert!(
            changed >= (meta.atime(), meta.atime_nsec()),
            "{i}: changed before its first access"
        );
        assert!((meta.ctime(), meta.ctime_nsec()) >= birth(&written));
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..PAIRS).map(|i| format!("file{i}"))
}

/// When each of the files was written, and changed.
fn times(mount: &Mount) -> Vec<(Moment, Moment)> {
    let meta = names().map(|name| fs::metadata(mount.path(&name)).unwrap());
    meta.map(|m| ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())))
        .collect()
}

/// A file that is written within the tick of its creation keeps its time in the kernel, which then sends none with the data. The
/// data came later, and the time was then that of its coming, from the next mount on.
#[test]
fn times_are_the_same_after_the_next_mount() {
    let Some(mount) = Mount::new() else { return };
    for (i, name) in names().enumerate() {
        let mut file = File::create(mount.path(&name)).unwrap();
        file.write_all(b"x").unwrap();
        next_tick();
        if i % 3 == 0 {
            file.write_all(b"y").unwrap();
        }
        if i % 5 == 0 {
            file.sync_all().unwrap();
        }
    }
    next_tick();
    let before = times(&mount);
    let mount = mount.again();
    assert_eq!(before, times(&mount));
}

/// By the name: with `ftruncate` the kernel sends times in any case.
fn truncate(path: &Path, len: u64) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string that ends with NUL, for the time of the call.
    #[allow(unsafe_code)]
    let done = unsafe { libc::truncate(path.as_ptr(), len as i64) };
    assert_eq!(done, 0);
}

/// The kernel stamps a file before it asks for a change, and not at all for a truncation to the length the file has, or for flags. What the
/// room stamped then showed at the next mount: times jumped, though nothing had been done.
#[test]
fn what_the_kernel_does_not_stamp_keeps_its_times_at_the_next_mount() {
    let Some(mount) = Mount::new() else { return };
    let block = 4096;
    for (i, name) in names().enumerate() {
        let path = mount.path(&name);
        fs::write(&path, vec![1; 2 * block]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        let len = block as u64;
        match i % 4 {
            0 => {
                next_tick();
                truncate(&path, 2 * len);
            }
            1 if crate::common::is_root() => {
                next_tick();
                rustix::fs::ioctl_setflags(&file, IFlags::APPEND).unwrap();
                rustix::fs::ioctl_setflags(&file, IFlags::empty()).unwrap();
            }
            // Both may reach the room a tick after the kernel's stamp.
            2 => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                for at in [0, len] {
                    rustix::fs::fallocate(&file, hole, at, len).unwrap();
                }
            }
            _ => {
                for mut to in [2 * len, 3 * len] {
                    let mut from = 0;
                    rustix::fs::copy_file_range(
                        &file,
                        Some(&mut from),
                        &file,
                        Some(&mut to),
                        block,
                    )
                    .unwrap();
                }
            }
        }
    }
    next_tick();
    let before = times(&mount);
    let mount = mount.again();
    assert_eq!(before, times(&mount));
}

/// The other way round, while another file system has the kernel give stamps ahead of its tick (since Linux 6.13).
#[test]
fn a_file_created_after_another_was_written_is_not_older() {
    let Some(mount) = Mount::new() else { return };
    let elsewhere = mount.plain().join("busy");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::create(&elsewhere).unwrap();
            while !stop.load(Ordering::Relaxed) {
                // Asked for, the time of the next change has to be a fine one.
                file.metadata().unwrap();
                file.write_all(b"x").unwrap();
                std::thread::yield_now();
            }
        });
        let older = (0..PAIRS)
            .filter(|i| {
                let [written, empty] = ["written", "empty"].map(|n| mount.path(&format!("{n}{i}")));
                write(&written);
                File::create(&empty).unwrap();
                mtime(&empty) < mtime(&written)
            })
            .count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(older, 0, "of {PAIRS} files created later are older");
    });
}

/// A new file's access time was ahead of its change, so relatime took it for read since.
#[test]
fn the_first_read_after_a_write_counts_as_an_access() {
    let Some(mount) = Mount::new() else { return };
    for i in 0..20 {
        let path = mount.path(&format!("f{i}"));
        write(&path);
        // A read from the kernel's cache would not show, and asking the kernel to drop it is no more than a request.
        let mut direct = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(&path)
            .unwrap();
        let atime = || {
            let meta = fs::metadata(&path).unwrap();
            (meta.atime(), meta.atime_nsec())
        };
        let before = atime();
        next_tick();
        let mut bytes = Vec::new();
        direct.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"x");
        assert!(atime() > before, "file {i}");
        assert!(atime() >= mtime(&path), "file {i}");
    }
}

/// `make`'s question, over everything that gives a time: what is done later has no earlier time.
#[test]
fn times_follow_the_order_of_what_is_done() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.path("dir");
    fs::create_dir(&dir).unwrap();
    let file = dir.join("file");
    let mut last = (0, 0);
    for i in 0..100 {
        let mut later = |what: &str, time: Moment| {
            assert!(time >= last, "{i}: {what}");
            last = time;
        };
        write(&file);
        later("a write", mtime(&file));
        let link = dir.join("link");
        fs::hard_link(&file, &link).unwrap();
        later("a link", mtime(&dir));
        fs::remove_file(&link).unwrap();
        let meta = fs::metadata(&file).unwrap();
        later("the loss of a link", (meta.ctime(), meta.ctime_nsec()));
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(7)
            .unwrap();
        later("a truncation", mtime(&file));
        fs::create_dir(dir.join("sub")).unwrap();
        later("a directory", mtime(&dir.join("sub")));
        fs::remove_dir(dir.join("sub")).unwrap();
        later("its removal", mtime(&dir));
        let now = fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH);
        File::open(&file).unwrap().set_times(now).unwrap();
        let meta = fs::metadata(&file).unwrap();
        later("a change of times", (meta.ctime(), meta.ctime_nsec()));
        fs::remove_file(&file).unwrap();
        later("a deletion", mtime(&dir));
    }
}
