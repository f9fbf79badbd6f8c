//! What every device promises, run by every implementation.

use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use device::{Access, Device, Extent, FileDevice, MemoryDevice, Zeroing};

const LEN: u64 = 8 << 20;

fn keeps_the_contract(device: &dyn Device) {
    assert_eq!(device.len(), LEN);
    assert!(!device.is_empty());
    assert!(!device.is_read_only());
    reads_what_was_written(device);
    refuses_what_leaves_it(device);
    zeros_and_discards(device);
    zeros_in_each_way(device);
    reports_ranges_truthfully(device);
    many_threads_at_once(device);
    device.flush().unwrap();
    device.flush().unwrap();
}

fn reads_what_was_written(device: &dyn Device) {
    let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
    for offset in [0, 1, 4095, 4096, LEN - data.len() as u64] {
        device.write_at(&data, offset).unwrap();
        let mut back = vec![0; data.len()];
        device.read_at(&mut back, offset).unwrap();
        assert!(back == data, "at {offset}");
    }
    device.read_at(&mut [], LEN).unwrap();
    device.write_at(&[], LEN).unwrap();
}

fn refuses_what_leaves_it(device: &dyn Device) {
    let mut two = [7; 2];
    for offset in [LEN - 1, LEN, u64::MAX] {
        let read = device.read_at(&mut two, offset).unwrap_err();
        assert_eq!(read.kind(), ErrorKind::UnexpectedEof, "at {offset}");
        let write = device.write_at(&two, offset).unwrap_err();
        assert_eq!(write.kind(), ErrorKind::StorageFull, "at {offset}");
        assert!(device.discard(offset, 2).is_err());
        assert!(device.write_zeros(offset, 2).is_err());
    }
    assert!(device.discard(1, u64::MAX).is_err());
    assert_eq!(device.len(), LEN);
}

fn zeros_and_discards(device: &dyn Device) {
    let ones = vec![1; 64 << 10];
    for (offset, len) in [(0, 4096), (4096, 20_000), (5000, 100), (8192, 0)] {
        device.write_at(&ones, 0).unwrap();
        device.write_zeros(offset, len).unwrap();
        let mut back = vec![9; ones.len()];
        device.read_at(&mut back, 0).unwrap();
        for (i, byte) in back.iter().enumerate() {
            let zero = (offset..offset + len).contains(&(i as u64));
            assert_eq!(*byte, u8::from(!zero), "byte {i}, zeros {offset}+{len}");
        }
    }
    device.write_at(&ones, 0).unwrap();
    device.discard(8192, 16384).unwrap();
    let mut back = vec![9; ones.len()];
    device.read_at(&mut back, 0).unwrap();
    assert!(back[..8192].iter().chain(&back[24576..]).all(|b| *b == 1));
    let discarded = &back[8192..24576];
    let zeros = discarded.iter().all(|b| *b == 0);
    assert!(zeros || (!device.discards_to_zeros() && discarded.iter().all(|b| *b == 1)));
}

fn zeros_in_each_way(device: &dyn Device) {
    let ones = vec![1; 64 << 10];
    for (keep_space, only_fast) in [(false, false), (true, false), (false, true), (true, true)] {
        let how = Zeroing {
            keep_space,
            only_fast,
        };
        device.write_at(&ones, 0).unwrap();
        let done = match device.zero(4096, 8192, how) {
            Ok(()) => true,
            Err(e) => {
                assert!(only_fast && e.kind() == ErrorKind::Unsupported, "{e}");
                false
            }
        };
        let mut back = vec![9; ones.len()];
        device.read_at(&mut back, 0).unwrap();
        for (i, byte) in back.iter().enumerate() {
            let zero = done && (4096..4096 + 8192).contains(&i);
            assert_eq!(*byte, u8::from(!zero), "byte {i}, {how:?}");
        }
        assert!(device.zero(LEN - 1, 2, how).is_err());
        assert!(device.zero(u64::MAX, 2, how).is_err());
    }
}

fn reports_ranges_truthfully(device: &dyn Device) {
    device.write_zeros(0, LEN).unwrap();
    device.write_at(&[1; 8192], 1 << 20).unwrap();
    device.flush().unwrap();
    let mut offset = 0;
    while offset < LEN {
        let extent = device.status(offset, LEN - offset).unwrap();
        assert!((1..=LEN - offset).contains(&extent.len), "{extent:?}");
        let mut bytes = vec![9; extent.len as usize];
        device.read_at(&mut bytes, offset).unwrap();
        assert!(!extent.zeros || bytes.iter().all(|b| *b == 0), "{extent:?}");
        offset += extent.len;
    }
    assert_eq!(device.status(1 << 20, 100).unwrap(), Extent::data(100));
    assert!(device.status(LEN, 1).is_err());
    assert!(device.status(1, u64::MAX).is_err());
    device.prefetch(0, LEN).unwrap();
}

fn many_threads_at_once(device: &dyn Device) {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for i in 0..64 {
                    let offset = (thread * 64 + i) * 4096;
                    let block = [thread as u8 + 1; 4096];
                    device.write_at(&block, offset).unwrap();
                    if i % 16 == 0 {
                        device.flush().unwrap();
                    }
                    let mut back = [0; 4096];
                    device.read_at(&mut back, offset).unwrap();
                    assert!(back == block);
                }
            });
        }
    });
}

fn refuses_to_change(device: &dyn Device) {
    assert!(device.is_read_only());
    for refused in [
        device.write_at(&[1], 0),
        device.discard(0, 4096),
        device.write_zeros(0, 4096),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    device.read_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn memory_keeps_the_contract() {
    keeps_the_contract(&MemoryDevice::new(LEN as usize));
    refuses_to_change(&MemoryDevice::read_only(vec![0; LEN as usize]));
}

#[test]
fn a_file_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    keeps_the_contract(&FileDevice::create(&path, LEN).unwrap());
    refuses_to_change(&FileDevice::open(&path, Access::ReadOnly).unwrap());
}

#[test]
fn a_block_device_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileDevice::create(&path, LEN).unwrap());
    let Some(loop_device) = LoopDevice::over(&path) else {
        return;
    };
    keeps_the_contract(&FileDevice::open(&loop_device.0, Access::ReadWrite).unwrap());
    refuses_to_change(&FileDevice::open(&loop_device.0, Access::ReadOnly).unwrap());
}

#[test]
fn a_store_in_use_is_not_opened_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let first = FileDevice::create(&path, LEN).unwrap();
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let refused = FileDevice::open(&path, access).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    }
    let identity = first.identity();
    drop(first);
    let again = FileDevice::open(&path, Access::ReadWrite).unwrap();
    assert_eq!(again.identity(), identity);
}

/// Nothing asked the kernel: a mounted device was formatted, served or written to beneath its file system.
#[test]
fn a_block_device_that_the_system_uses_is_not_opened_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(LEN).unwrap();
    let Some(loop_device) = LoopDevice::over(&path) else {
        return;
    };
    let run = |program: &str, args: &[&Path]| {
        let run = Command::new(program).args(args).output();
        run.is_ok_and(|run| run.status.success())
    };
    let at = dir.path().join("at");
    std::fs::create_dir(&at).unwrap();
    if !run("mkfs.ext4", &[Path::new("-q"), &loop_device.0])
        || !run("mount", &[&loop_device.0, &at])
    {
        eprintln!("skipped: it needs mkfs.ext4 and mount");
        return;
    }
    let refused = FileDevice::open(&loop_device.0, Access::ReadWrite);
    let beside = FileDevice::open(&loop_device.0, Access::ReadWriteBesideSystem).map(drop);
    let reading = FileDevice::open(&loop_device.0, Access::ReadOnly).map(drop);
    assert!(run("umount", &[&at]));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("mounted"), "{refused}");
    beside.unwrap();
    reading.unwrap();
    FileDevice::open(&loop_device.0, Access::ReadWrite).unwrap();
}

/// Only an image that has the same name there was noticed: one more name, and it was formatted or served below its file system.
#[test]
fn the_image_of_a_loop_device_is_in_use_by_each_of_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    drop(FileDevice::create(&image, LEN).unwrap());
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let names = [dir.path().join("link"), below.join("link")];
    for name in &names {
        std::fs::hard_link(&image, name).unwrap();
    }
    let symlink = dir.path().join("symlink");
    std::os::unix::fs::symlink(&names[1], &symlink).unwrap();
    FileDevice::open(&names[0], Access::ReadWrite).unwrap();
    let Some(_loop_device) = LoopDevice::over(&image) else {
        return;
    };
    for name in names.iter().chain([&image, &symlink]) {
        let refused = FileDevice::open(name, Access::ReadWrite).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains("/dev/loop"), "{refused}");
        let file = std::fs::File::open(name).unwrap();
        device::lock_alone(name, &file).unwrap_err();
    }
}

/// `losetup -d` returns at once where somebody looks at the device, as udev does: the next command found its image in use.
#[test]
fn a_loop_device_that_is_being_detached_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileDevice::create(&path, LEN).unwrap());
    let Some(loop_device) = LoopDevice::over(&path) else {
        return;
    };
    let looking = std::fs::File::open(&loop_device.0).unwrap();
    drop(loop_device);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| FileDevice::open(&path, Access::ReadWrite));
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(looking);
        opening.join().unwrap().unwrap();
    });
}

/// What udev does after each writer: the next command on the device found it in use.
#[test]
fn a_block_device_that_is_looked_at_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(LEN).unwrap();
    let Some(loop_device) = LoopDevice::over(&path) else {
        return;
    };
    let looking = std::fs::File::open(&loop_device.0).unwrap();
    looking.lock_shared().unwrap();
    // As a program that is being started has for a moment what another thread had open.
    let mut alone = std::fs::OpenOptions::new();
    alone.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    let using = alone.read(true).open(&loop_device.0).unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| FileDevice::open(&loop_device.0, Access::ReadWrite));
        let moment = std::time::Duration::from_millis(300);
        // Long enough for it to have come to what is in use; where it has not, it finds nothing.
        std::thread::sleep(moment);
        drop(using);
        std::thread::sleep(moment);
        looking.unlock().unwrap();
        opening.join().unwrap().unwrap();
    });
    looking.lock_shared().unwrap();
    let refused = FileDevice::open(&loop_device.0, Access::ReadWrite).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
}

/// A test on a loop device failed once with `ResourceBusy` where it opened again what it had just closed: another test was starting
/// a program meanwhile, and that process had a copy of the descriptor, and so of the lock, until it ran the program. The lock is now
/// released before the descriptor is closed.
#[test]
fn a_closed_store_is_free_also_while_other_threads_start_programs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(FileDevice::create(&path, LEN).unwrap());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
        }
        let busy = (0..20_000)
            .filter(|_| FileDevice::open(&path, Access::ReadWrite).is_err())
            .count();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(busy, 0);
    });
}

#[test]
fn what_was_discarded_takes_no_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let device = FileDevice::create(&path, LEN).unwrap();
    if !device.discards_to_zeros() {
        return;
    }
    device.write_at(&vec![1; 1 << 20], 0).unwrap();
    device.flush().unwrap();
    let full = path.metadata().unwrap().blocks();
    device.discard(0, 1 << 20).unwrap();
    device.flush().unwrap();
    assert!(path.metadata().unwrap().blocks() < full);
}

/// A discard of what is not whole blocks of such a device was an error.
#[test]
fn a_block_device_of_any_block_size_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileDevice::create(&path, LEN).unwrap());
    for bytes in [4096, 8192, 65536] {
        // Where another process has the device open when it gets its image, the page cache keeps smaller blocks, which cannot be written.
        let usable = (0..20).find_map(|_| {
            let loop_device = LoopDevice::with_blocks(&path, bytes)?;
            let device = FileDevice::open(&loop_device.0, Access::ReadWrite).ok()?;
            let written = device.write_at(&[1; 4096], 0);
            written.and_then(|()| device.flush()).ok()?;
            Some((device, loop_device))
        });
        let Some((device, _loop_device)) = usable else {
            eprintln!("skipped: no blocks of {bytes} bytes here");
            continue;
        };
        keeps_the_contract(&device);
        device.write_at(&vec![7; 1 << 20], 0).unwrap();
        device.discard(4096, (1 << 20) - 8192).unwrap();
        device.discard(4096, 4096).unwrap();
        let mut read = vec![0; 1 << 20];
        device.read_at(&mut read, 0).unwrap();
        let (first, rest) = read.split_at(4096);
        let (inside, last) = rest.split_at((1 << 20) - 8192);
        assert!(first.iter().chain(last).all(|b| *b == 7), "{bytes}");
        assert!(inside.contains(&0), "{bytes}");
    }
}

#[test]
fn holes_of_a_file_are_known_and_kept_space_is_kept() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let device = FileDevice::create(&path, LEN).unwrap();
    device.write_at(&vec![1; 1 << 20], 1 << 20).unwrap();
    device.flush().unwrap();
    if !device.discards_to_zeros() {
        return;
    }
    let hole = Extent {
        len: 1 << 20,
        allocated: false,
        zeros: true,
    };
    assert_eq!(device.status(0, LEN).unwrap(), hole);
    assert_eq!(
        device.status(1 << 20, LEN - (1 << 20)).unwrap(),
        Extent::data(1 << 20)
    );
    let rest = device.status(2 << 20, LEN - (2 << 20)).unwrap();
    assert_eq!((rest.len, rest.zeros), (LEN - (2 << 20), true));
    let full = path.metadata().unwrap().blocks();
    let keep = Zeroing {
        keep_space: true,
        only_fast: false,
    };
    device.zero(1 << 20, 1 << 20, keep).unwrap();
    device.flush().unwrap();
    assert!(path.metadata().unwrap().blocks() >= full);
}

#[test]
fn what_cannot_have_its_length_is_not_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    FileDevice::create(&path, u64::MAX).unwrap_err();
    assert!(!path.exists());
    FileDevice::create(&path, 4096).unwrap();
    let there = FileDevice::create(&path, u64::MAX).unwrap_err();
    assert_eq!(there.kind(), ErrorKind::AlreadyExists);
    assert!(path.exists());
}

/// The part that was cut off was reported as zeros, which a copy of the device took over without an error, and zeros were written to it by
/// nothing.
#[test]
fn of_a_file_that_was_shortened_nothing_is_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let device = FileDevice::create(&path, LEN).unwrap();
    device.write_at(&vec![1; 1 << 16], 0).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 17).unwrap();
    let status = device.status(1 << 16, LEN - (1 << 16)).unwrap();
    assert!(status.len <= 1 << 16, "{status:?}");
    let lost = [
        device.status(1 << 17, 1).map(drop),
        device.read_at(&mut [0], 1 << 17),
        device.write_zeros((1 << 17) - 4096, 8192),
        device.zero(
            1 << 18,
            4096,
            Zeroing {
                only_fast: true,
                ..Zeroing::default()
            },
        ),
    ];
    for lost in lost {
        let error = lost.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("shortened"), "{error}");
    }
    // A write makes it longer again, as it would a file in any program.
    device.write_at(&[1], LEN - 1).unwrap();
    device.read_at(&mut [0], 1 << 18).unwrap();
}

#[test]
fn a_directory_or_a_pipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(FileDevice::open(dir.path(), Access::ReadOnly).is_err());
    assert!(FileDevice::open(Path::new("/dev/null"), Access::ReadWrite).is_err());
}

#[test]
fn after_a_failed_flush_none_succeeds_until_the_device_is_reopened() {
    let dir = tempfile::tempdir().unwrap();
    // A block device over a file for which there is no space: writing back fails, and no call reports it before the flush.
    let Some(small) = SmallFileSystem::at(dir.path()) else {
        return;
    };
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(LEN).unwrap();
    let Some(loop_device) = LoopDevice::over(&path) else {
        return;
    };
    let device = FileDevice::open(&loop_device.0, Access::ReadWrite).unwrap();
    device.flush().unwrap();
    device.write_at(&vec![1; 4 << 20], 0).unwrap();
    device.flush().unwrap_err();
    // The kernel reported its error once and has nothing left to write: a flush of its own would succeed now.
    for _ in 0..3 {
        device.flush().unwrap_err();
    }
    drop(device);
    FileDevice::open(&loop_device.0, Access::ReadWrite)
        .unwrap()
        .flush()
        .unwrap();
    drop(loop_device);
    drop(small);
}

/// A file system with room for 1 MiB, mounted until this is dropped.
struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    /// `None` for who is not root.
    fn at(path: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(path)
            .output()
            .ok()?;
        mounted.status.success().then(|| Self(path.to_owned()))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A loop device, which is gone when this is dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None` for who is not root, and where there are none.
    fn over(path: &Path) -> Option<Self> {
        Self::with_blocks(path, 512)
    }

    /// With logical blocks of this many bytes; `None` also where the kernel has none of that size.
    fn with_blocks(path: &Path, bytes: u32) -> Option<Self> {
        let out = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &bytes.to_string()])
            .arg(path)
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| Self(String::from_utf8(out.stdout).unwrap().trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}
