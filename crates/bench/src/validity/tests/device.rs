//! Work that says more than the device saw, and devices that others use.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::*;
use crate::observe::block::DeviceCounters;
use crate::observe::loop_disk::LoopDisk;
use crate::observe::{DeviceEvidence, ceilings};

const BYTES: usize = 4 * MIB;

#[test]
fn direct_bytes_that_the_device_never_saw_are_caught() {
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    let path = disk.path().join("file");
    written(&path, BYTES);
    let observer = observer(&disk.path());
    let file = open(&path, libc::O_DIRECT);
    for (read, caught) in [(BYTES, false), (BYTES / 4, true)] {
        let watch = observer.begin(&SystemClock, &[]);
        read_all(&file, read);
        let claim = Claim {
            direct: true,
            by_calls: false,
            ..cold_read(BYTES)
        };
        let issues = of_the_round_itself(judged(&watch.finish(&[]), &claim));
        if caught {
            fires(&issues, IssueKind::CountersDisagree, "counted only");
        } else {
            assert_eq!(issues, []);
        }
    }
}

#[test]
fn calls_that_were_never_made_are_caught() {
    let directory = on_a_device();
    let observer = observer(directory.path());
    let watch = observer.begin(&SystemClock, &[]);
    // More than what other tests of this process write meanwhile.
    let issues = judged(&watch.finish(&[]), &durable_write(1 << 40, 1, 0));
    fires(
        &issues,
        IssueKind::CountersDisagree,
        "the calls of this process moved only",
    );
}

/// Writes a file and says it is durable.
fn write_as_durable(disk: &LoopDisk, sync: bool, look_at_pages: bool) -> Vec<Issue> {
    let file = written(&disk.path().join("file"), BYTES);
    let files = [file.as_fd()];
    let files: &[_] = if look_at_pages { &files } else { &[] };
    let observer = observer(&disk.path());
    let watch = observer.begin(&SystemClock, files);
    pieces(BYTES, MIB, |at, piece| {
        file.write_all_at(piece, at).expect("written")
    });
    if sync {
        file.sync_all().expect("synced");
    }
    let claim = durable_write(BYTES, 4, u64::from(sync));
    judged(&watch.finish(files), &claim)
}

#[test]
fn a_skipped_fsync_is_caught_by_the_pages_and_by_the_device() {
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    let honest = write_as_durable(&disk, true, true);
    assert_eq!(of_the_round_itself(honest), []);
    let issues = write_as_durable(&disk, false, true);
    fires(
        &issues,
        IssueKind::NotDurable,
        "4 MiB of the file were still dirty",
    );
    let issues = write_as_durable(&disk, false, false);
    fires(&issues, IssueKind::NotDurable, "was given nothing to write");
}

/// Changes names in `directory` and says they are durable.
fn change_as_durable(directory: &Path, sync: bool) -> Vec<Issue> {
    let root = File::open(directory).expect("opened");
    let observer = observer(directory);
    // What was done before must not be written meanwhile.
    rustix::fs::syncfs(&root).expect("synced");
    let watch = observer.begin(&SystemClock, &[]);
    let made = tempfile::tempdir_in(directory).expect("a directory");
    if sync {
        rustix::fs::syncfs(&root).expect("synced");
    }
    let evidence = watch.finish(&[]);
    drop(made);
    let claim = Claim {
        operations: 1,
        durable: true,
        changed_names: true,
        ..Claim::default()
    };
    judged(&evidence, &claim)
}

/// What failed: of names said to be durable nothing was looked at, so that a sync that did nothing was the fastest one.
#[test]
fn names_that_never_reached_the_device_are_caught() {
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    assert_eq!(
        of_the_round_itself(change_as_durable(&disk.path(), true)),
        []
    );
    // The journal may be written by itself at such a moment, each five seconds.
    let caught = |_| {
        let issues = change_as_durable(&disk.path(), false);
        said(&issues, IssueKind::NotDurable).map(str::to_owned)
    };
    let said = (0..3).find_map(caught).expect("it is caught");
    assert!(said.contains("was given nothing to write"), "{said}");
    // In memory there is nothing to be seen.
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    no_issue(
        &change_as_durable(memory.path(), false),
        IssueKind::NotDurable,
    );
}

#[test]
fn names_are_durable_only_where_a_cache_was_emptied() {
    let judged = |name: &str, memory, flushes, written_bytes| {
        let device = DeviceEvidence {
            name: name.to_owned(),
            memory,
            write_cache: true,
            did: DeviceCounters {
                written_bytes,
                flushes,
                ..DeviceCounters::default()
            },
        };
        // A device made of others passes flushes on without counting them.
        let above = DeviceEvidence {
            name: "dm-0".to_owned(),
            did: DeviceCounters {
                flushes: flushes.and(Some(0)),
                ..device.did
            },
            ..device.clone()
        };
        let evidence = Evidence {
            devices: vec![above, device],
            ..Evidence::default()
        };
        let claim = Claim {
            durable: true,
            changed_names: true,
            ..Claim::default()
        };
        judged(&evidence, &claim)
    };
    fires(
        &judged("vda", false, Some(0), 4096),
        IssueKind::NotDurable,
        "dm-0 was not asked to empty its cache",
    );
    for honest in [
        judged("vda", false, Some(1), 4096),
        judged("vda", false, None, 4096),
        judged("ram0", true, Some(0), 0),
    ] {
        no_issue(&honest, IssueKind::NotDurable);
    }
}

#[test]
fn work_that_ends_before_it_is_durable_is_caught() {
    let claim = Claim {
        durable: false,
        ..durable_write(BYTES, 4, 0)
    };
    fires(
        &judged(&Evidence::default(), &claim),
        IssueKind::NotDurable,
        "before what was written was durable",
    );
}

#[test]
fn syncs_that_do_not_reach_the_device_are_too_fast() {
    const SYNCS: u64 = 32;
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    let path = disk.path().join("file");
    let file = written(&path, MIB);
    let ceilings = Ceilings {
        sync_ns: Some(ceilings::sync_ns(&file).expect("measured")),
        ..Ceilings::default()
    };
    let observer = observer(&disk.path());
    let run = |sync: &dyn Fn(&File)| {
        let watch = observer.begin(&SystemClock, &[file.as_fd()]);
        let mut took: Vec<u64> = (0..SYNCS)
            .map(|turn| {
                file.write_all_at(&[turn as u8; 4096], 0).expect("written");
                let began = SystemClock.raw_ns();
                sync(&file);
                SystemClock.raw_ns() - began
            })
            .collect();
        took.sort_unstable();
        let claim = Claim {
            sync_p50_ns: Some(took[took.len() / 2]),
            ..durable_write(4096 * SYNCS as usize, SYNCS, SYNCS)
        };
        of_round(&watch.finish(&[file.as_fd()]), &claim, &ceilings, &short())
    };
    let honest = run(&|file| file.sync_data().expect("synced"));
    assert_eq!(of_the_round_itself(honest), []);

    let skipped = run(&|_| {});
    let said: Vec<&str> = skipped
        .iter()
        .filter(|issue| issue.kind == IssueKind::SyncTooFast)
        .map(|issue| issue.said.as_str())
        .collect();
    assert_eq!(said.len(), 2, "{skipped:?}");
    assert!(
        said[0].contains("was asked to empty its cache 0 times"),
        "{said:?}"
    );
    assert!(
        said[1].contains("a durable write of 4 KiB on this device"),
        "{said:?}"
    );
}

#[test]
fn a_second_process_on_the_device_is_caught() {
    let Some(disk) = LoopDisk::ext4(64) else {
        return;
    };
    let file = written(&disk.path().join("file"), BYTES);
    forget(&file);
    // It lives on after its work, as what disturbs a measurement does: it waits for us to close its input.
    let script = format!(
        "read go; dd if={} of=/dev/null bs=1M count=32 iflag=direct 2>/dev/null; echo done; read end",
        disk.node().display()
    );
    let mut other = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut orders = other.stdin.take().expect("piped");
    let mut answers = BufReader::new(other.stdout.take().expect("piped"));

    let observer = observer(&disk.path());
    let watch = observer.begin(&SystemClock, &[file.as_fd()]);
    read_all(&file, BYTES);
    writeln!(orders, "go").expect("ordered");
    answers.read_line(&mut String::new()).expect("answered");
    let issues = judged(&watch.finish(&[file.as_fd()]), &cold_read(BYTES));
    drop(orders);
    other.wait().expect("it ends");
    // Another process on this machine may be busier than it: `observe::process` tests which one is named.
    fires(&issues, IssueKind::DeviceShared, "most by process");
}

#[test]
fn a_store_that_is_nearly_full_is_remarked() {
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    let observer = observer(&disk.path());
    let look = || {
        judged(
            &observer.begin(&SystemClock, &[]).finish(&[]),
            &Claim::default(),
        )
    };
    no_issue(&look(), IssueKind::NearlyFull);
    let filler = File::create(disk.path().join("filler")).expect("made");
    let space = observe_space(&disk.path());
    rustix::fs::fallocate(
        &filler,
        rustix::fs::FallocateFlags::empty(),
        0,
        space * 95 / 100,
    )
    .expect("filled");
    fires(&look(), IssueKind::NearlyFull, "of the space are free");
}

fn observe_space(path: &Path) -> u64 {
    crate::observe::host::space(path).expect("asked").free_bytes
}

#[test]
fn what_has_no_device_is_remarked_not_judged() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let file = written(&directory.path().join("file"), BYTES);
    let observer = observer(directory.path());
    assert!(!observer.waits());
    let watch = observer.begin(&SystemClock, &[file.as_fd()]);
    pieces(BYTES, MIB, |at, piece| {
        file.write_all_at(piece, at).expect("written")
    });
    file.sync_all().expect("synced");
    let issues = judged(&watch.finish(&[file.as_fd()]), &durable_write(BYTES, 4, 1));
    fires(
        &issues,
        IssueKind::NotObservable,
        "no block device is known",
    );
    assert_eq!(of_the_round_itself(issues), []);
}

#[test]
fn the_chain_of_devices_goes_through_the_loop_device() {
    let Some(disk) = LoopDisk::ext4(32) else {
        return;
    };
    let chain = crate::observe::block::beneath(&disk.path());
    assert_eq!(
        chain.first().map(|device| device.node()),
        Some(PathBuf::from(disk.node()))
    );
    let beneath_image = crate::observe::block::beneath(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert_eq!(chain[1..], beneath_image[..]);
}
