//! How mounts begin and end, and how requests come to them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use crate::common::{Mount, enable_uring, is_root, ok, transport};
use mount::{MountError, MountOptions, Transport};
use rustix::fs::{SeekFrom, seek};
use rustix::thread::{CpuSet, sched_setaffinity};

#[test]
fn a_mount_that_is_in_use_is_not_unmounted() {
    let Some(mut mount) = Mount::new() else {
        return;
    };
    let file = fs::File::create(mount.path("f")).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    assert!(matches!(mount.handle.unmount(), Err(MountError::Busy(_))));
    file.write_all_at(b"more", 4).unwrap();
    drop(file);
    while matches!(mount.handle.unmount(), Err(MountError::Busy(_))) {
        std::thread::sleep(Duration::from_millis(5));
    }
    mount.join();
    assert_eq!(
        mount.room.as_ref().unwrap().read_file("/f").unwrap(),
        b"textmore"
    );
}

#[test]
fn unmounting_from_outside_ends_the_wait() {
    if !is_root() {
        return;
    }
    let Some(mut mount) = Mount::new() else {
        return;
    };
    ok(&mount, "echo text > f");
    assert!(
        Command::new("umount")
            .arg(mount.path(""))
            .status()
            .unwrap()
            .success()
    );
    mount.join();
    assert_eq!(
        mount.room.as_ref().unwrap().read_file("/f").unwrap(),
        b"text\n"
    );
}

#[test]
fn an_idle_mount_goes_but_not_while_something_is_open() {
    let options = MountOptions {
        // Long enough to create a file after mounting, however busy the machine.
        idle_timeout: Some(Duration::from_secs(2)),
        write_back_interval: Some(Duration::from_millis(50)),
        ..Default::default()
    };
    let Some(mut mount) = Mount::with(options) else {
        return;
    };
    let file = fs::File::create(mount.path("f")).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    file.write_all_at(b"still there", 0).unwrap();
    drop(file);
    let start = Instant::now();
    mount.join();
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "its own write-back is no activity"
    );
    assert_eq!(
        mount.room.as_ref().unwrap().read_file("/f").unwrap(),
        b"still there"
    );
}

#[test]
fn mounting_where_nothing_can_be_mounted_says_so() {
    let Some(mount) = Mount::new() else { return };
    let room = mount.room.clone().unwrap();
    let file = mount.plain().join("file");
    fs::write(&file, b"").unwrap();
    for at in [file, mount.plain().join("missing")] {
        let error = mount::mount(room.clone(), &at, &MountOptions::default()).unwrap_err();
        assert!(matches!(error, MountError::Mountpoint { .. }), "{error}");
        assert!(error.to_string().contains(at.to_str().unwrap()));
    }
}

#[test]
fn the_mount_table_shows_what_it_is() {
    let options = MountOptions {
        name: "my room, it is".to_owned(),
        ..Default::default()
    };
    let Some(mount) = Mount::with(options) else {
        return;
    };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .find(|l| l.contains(mount.path("").to_str().unwrap()))
        .unwrap();
    assert!(
        line.contains("- fuse.strongroom my\\040room,\\040it\\040is "),
        "{line}"
    );
    assert!(line.contains("default_permissions"), "{line}");
}

#[test]
fn root_can_lift_the_limit_of_read_ahead() {
    if !is_root() {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    let done = mount::tune(&mount.path(""));
    if !done {
        eprintln!("skipped: the limit cannot be written here");
        return;
    }
    let dev = fs::metadata(mount.path(""))
        .map(|m| std::os::unix::fs::MetadataExt::dev(&m))
        .unwrap();
    let read_ahead = format!(
        "/sys/class/bdi/{}:{}/read_ahead_kb",
        rustix::fs::major(dev),
        rustix::fs::minor(dev)
    );
    assert_eq!(fs::read_to_string(read_ahead).unwrap(), "2048\n");
}

#[test]
fn many_threads_at_once_agree_with_each_other() {
    let Some(mount) = Mount::new() else { return };
    std::thread::scope(|scope| {
        for t in 0..8 {
            let dir = mount.path(&format!("t{t}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for i in 0..200 {
                    let path = dir.join(format!("f{i}"));
                    fs::write(&path, vec![t as u8; i * 37]).unwrap();
                    if i % 3 == 0 {
                        fs::rename(&path, dir.join(format!("g{i}"))).unwrap();
                    } else if i % 3 == 1 {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    for t in 0..8u8 {
        let dir = mount.path(&format!("t{t}"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 133);
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let i: usize = entry.file_name().to_str().unwrap()[1..].parse().unwrap();
            assert_eq!(fs::read(entry.path()).unwrap(), vec![t; i * 37]);
        }
    }
}

fn over_io_uring() -> MountOptions {
    MountOptions {
        transport: Transport::IoUring,
        // Two for each processor.
        threads: 2,
        ..Default::default()
    }
}

#[test]
fn requests_come_over_io_uring() {
    let Some(mut mount) = Mount::with(over_io_uring()) else {
        return;
    };
    // A large write and its read, short requests and long answers, an error.
    ok(
        &mount,
        "head -c 3000000 /dev/zero | tr '\\0' x > large && echo 3 > /proc/sys/vm/drop_caches; test $(tr -d x < large | wc -c) = 0
         test $(wc -c < large) = 3000000
         for i in $(seq 300); do : > a-name-of-some-length-$i; done; test $(ls | wc -l) = 301
         ! cat missing 2> /dev/null && rm a-name*",
    );
    mount.handle.unmount().unwrap();
    mount.join();
}

#[test]
fn where_the_kernel_does_not_offer_io_uring_requests_come_by_the_device() {
    let Some(mount) = Mount::new() else { return };
    let at = mount.plain();
    let room = mount.room.clone().unwrap();
    let mounted = enable_uring::with_it_disabled(|| mount::mount(room, &at, &over_io_uring()));
    works_by_the_device(mounted, &at);
}

#[test]
fn where_io_uring_is_forbidden_requests_come_by_the_device() {
    if !is_root() || enable_uring::offered().is_none() {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    let at = mount.plain();
    let room = mount.room.clone().unwrap();
    let mounted = std::thread::scope(|scope| {
        let forbidden = scope.spawn(|| {
            transport::forbid_io_uring();
            enable_uring::with_it_enabled(|| mount::mount(room, &at, &over_io_uring()))
        });
        forbidden.join().unwrap()
    });
    works_by_the_device(Some(mounted), &at);
}

fn works_by_the_device(mounted: Option<Result<mount::Mounted, MountError>>, at: &std::path::Path) {
    let Some(mounted) = mounted else { return };
    let mounted = mounted.unwrap();
    assert_eq!(mounted.transport(), Transport::Device);
    fs::write(at.join("f"), b"text").unwrap();
    assert_eq!(fs::read(at.join("f")).unwrap(), b"text");
    mounted.unmount().unwrap();
    mounted.wait().unwrap();
}

/// A request keeps its place in a ring until it is answered, and the question where a hole begins is answered only after what was
/// written: with all places of a processor's queue taken by questions, those writes had to wait for them, and they for the
/// writes.
#[test]
fn more_programs_ask_for_holes_at_once_than_threads_serve_them() {
    const PROGRAMS: u64 = 40;
    const HOLE: u64 = 1 << 20;
    let Some(mount) = Mount::with(over_io_uring()) else {
        return;
    };
    let files: Vec<_> = (0..PROGRAMS)
        .map(|i| fs::File::create(mount.path(&format!("f{i}"))).unwrap())
        .collect();
    let start = Arc::new(Barrier::new(files.len()));
    let (answered, answers) = mpsc::channel();
    for file in files {
        let (start, answered) = (start.clone(), answered.clone());
        std::thread::spawn(move || {
            // All in one processor's queue.
            let mut first = CpuSet::new();
            first.set(0);
            let _ = sched_setaffinity(None, &first);
            for round in 1..=5 {
                start.wait();
                file.write_all_at(&[1; 4096], round * HOLE).unwrap();
                start.wait();
                let data = seek(&file, SeekFrom::Data((round - 1) * HOLE + 4096)).unwrap();
                let hole = seek(&file, SeekFrom::Hole(data)).unwrap();
                answered.send((data - round * HOLE, hole - data)).unwrap();
            }
        });
    }
    for _ in 0..PROGRAMS * 5 {
        let Ok(answer) = answers.recv_timeout(Duration::from_secs(60)) else {
            // By force, or this process could not end.
            let at = mount.path("");
            let _ = Command::new("umount").args(["-f", "-l"]).arg(at).status();
            panic!("questions wait for each other");
        };
        assert_eq!(answer, (0, 4096));
    }
}
