//! The faults on real stores: all are noticed, and none is where the checks are switched off.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::alone::in_a_process_of_its_own;
use crate::observe::loop_disk::LoopDisk;
use crate::run_file::Run;
use crate::store::{self, Making};

/// Makes the faults on a store at `target`; files made on the way are below `directory`.
fn lied_to(directory: &Path, target: &str, limits: Limits) -> Tried {
    let run = Run::begin(&directory.join("state")).expect("a run");
    let mut bed = Bed::new(store::make(target, &Making::new(run, "a")).expect("a store"));
    let stop = AtomicBool::new(false);
    let context = Context {
        clock: &SystemClock,
        stop: &stop,
        seed: 1,
        size: 4 << 20,
        seconds: 1.0,
        files: 1,
        limits,
    };
    let tried = tried(&mut bed, &context);
    bed.close().expect("removed");
    tried.expect("tried")
}

fn on_a_device() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory")
}

/// The fault that only an undisturbed device shows.
const NAMES: &str = "changed names that were not synced";

/// Limits that bear everything, as if the checks were broken.
fn blind() -> Limits {
    Limits {
        clock_share: f64::INFINITY,
        warm_share: f64::INFINITY,
        missing_share: f64::INFINITY,
        ..Limits::default()
    }
}

#[test]
fn every_fault_is_noticed_in_a_directory() {
    in_a_process_of_its_own("itself::tests::faults_in_a_directory");
}

#[test]
#[ignore = "run by the test above"]
fn faults_in_a_directory() {
    let directory = on_a_device();
    let target = directory.path().to_str().expect("a name").to_owned();
    let found = lied_to(directory.path(), &target, Limits::default());
    let all = [
        "a clock of processor time",
        "a warm read said to be cold",
        "a skipped fsync",
    ];
    let (names, fired): (Vec<_>, Vec<_>) = found
        .fired
        .iter()
        .chain(&found.left_out)
        .partition(|said| said.starts_with(NAMES));
    assert_eq!(fired, all, "{found:?}");
    assert_eq!(found.unfired, [""; 0]);
    // Left out where others write to the device all the time.
    assert_eq!(names.len(), 1, "{found:?}");
}

#[test]
fn checks_that_do_not_work_are_found() {
    let directory = on_a_device();
    let target = directory.path().to_str().expect("a name").to_owned();
    let found = lied_to(directory.path(), &target, blind());
    // The clock's fault may still be noticed, by the device's ticks, which no limit switches off; what is dirty in the file is always.
    assert!(
        found
            .unfired
            .iter()
            .any(|fault| fault == "a warm read said to be cold"),
        "{found:?}"
    );
    assert!(
        found.fired.iter().any(|fault| fault == "a skipped fsync"),
        "{found:?}"
    );
}

#[test]
fn every_fault_is_noticed_in_a_room() {
    in_a_process_of_its_own("itself::tests::faults_in_a_room");
}

#[test]
#[ignore = "run by the test above"]
fn faults_in_a_room() {
    let Some(disk) = LoopDisk::ext4(256) else {
        return;
    };
    let directory = on_a_device();
    let target = format!("room:{}", disk.path().display());
    let found = lied_to(directory.path(), &target, Limits::default());
    assert_eq!(found.unfired, [""; 0], "{found:?}");
    assert_eq!(found.fired.len(), 4, "{found:?}");
    assert_eq!(found.fired[3], NAMES);
}

#[test]
fn memory_notices_what_memory_can_show() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let target = directory.path().to_str().expect("a name").to_owned();
    let found = lied_to(directory.path(), &target, Limits::default());
    assert_eq!(found.unfired, [""; 0], "{found:?}");
    assert_eq!(found.fired[0], "a clock two per cent too fast");
    assert_eq!(found.left_out.len(), 2, "{found:?}");
}
