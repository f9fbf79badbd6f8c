//! Warm reads said to be cold, and buffered calls said to be direct.

use super::*;
use crate::observe::loop_disk::LoopDisk;

const BYTES: usize = 4 * MIB;

/// Reads `file`, as a cold read.
fn read_as_cold(directory: &Path, file: &File) -> Vec<Issue> {
    let observer = observer(directory);
    let watch = observer.begin(&SystemClock, &[file.as_fd()]);
    read_all(file, BYTES);
    judged(&watch.finish(&[file.as_fd()]), &cold_read(BYTES))
}

#[test]
fn a_warm_file_is_caught_before_it_is_read() {
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), BYTES);
    let issues = read_as_cold(directory.path(), &file);
    fires(
        &issues,
        IssueKind::CacheHit,
        "4 MiB of the file were in the page cache before",
    );
}

#[test]
fn a_cold_file_raises_no_issue() {
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), BYTES);
    forget(&file);
    let issues = read_as_cold(directory.path(), &file);
    assert_eq!(of_the_round_itself(issues), []);
}

#[test]
fn a_read_that_never_reached_the_device_is_caught_by_its_counters() {
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    // A hole: nothing of it is in the cache, and nothing of it on the device.
    let file = written(&disk.path().join("file"), 0);
    file.set_len(BYTES as u64).expect("lengthened");
    let issues = read_as_cold(&disk.path(), &file);
    fires(&issues, IssueKind::CacheHit, "read only");
}

#[test]
fn backing_files_that_are_warm_are_caught_beneath_what_serves_them() {
    // The server of the store reads its backing files through the cache; the client's own file is cold.
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), BYTES);
    forget(&file);
    let backing = directory.path().join("backing");
    std::fs::create_dir(&backing).expect("made");
    written(&backing.join("segment"), BYTES);
    let observer = Observer::new(Subject {
        path: directory.path().to_path_buf(),
        backing: vec![backing],
        servers: Vec::new(),
    });
    let watch = observer.begin(&SystemClock, &[file.as_fd()]);
    read_all(&file, BYTES);
    let issues = judged(&watch.finish(&[file.as_fd()]), &cold_read(BYTES));
    fires(&issues, IssueKind::CacheHit, "of the backing files");
}

#[test]
fn a_descriptor_without_the_flag_is_not_direct() {
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), BYTES);
    let flags = rustix::fs::fcntl_getfl(&file).expect("asked");
    let claim = Claim {
        direct: true,
        direct_flag: Some(flags.contains(rustix::fs::OFlags::DIRECT)),
        ..cold_read(BYTES)
    };
    fires(
        &judged(&Evidence::default(), &claim),
        IssueKind::NotDirect,
        "without O_DIRECT",
    );
}

#[test]
fn calls_through_the_page_cache_are_not_direct_whatever_the_flag_says() {
    let directory = on_a_device();
    let path = directory.path().join("file");
    forget(&written(&path, BYTES));
    let observer = observer(directory.path());
    let read = |flags| {
        let file = open(&path, flags);
        let watch = observer.begin(&SystemClock, &[file.as_fd()]);
        read_all(&file, BYTES);
        let claim = Claim {
            direct: true,
            direct_flag: Some(true),
            ..cold_read(BYTES)
        };
        judged(&watch.finish(&[file.as_fd()]), &claim)
    };
    let honest = read(libc::O_DIRECT);
    assert_eq!(of_the_round_itself(honest), []);
    fires(&read(0), IssueKind::NotDirect, "came into the page cache");
}
