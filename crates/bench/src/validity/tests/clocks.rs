//! Clocks that are wrong, given to the watch that measures, while real writes wait for a real device.

use std::time::Duration;

use super::*;
use crate::alone::in_a_process_of_its_own;
use crate::clock::wrong::{DriftingClock, JumpingClock, ProcessorClock, StalledClock};
use crate::observe::loop_disk::LoopDisk;

const MS: u64 = 1_000_000;
const SYNCS: u64 = 200;

/// Writes of 4 KiB, each synced: nearly all of the time is waiting. On a device of its own where that can be had.
fn synced_writes(clock: &dyn Clock) -> Vec<Issue> {
    let disk = LoopDisk::ext4(32);
    let directory = on_a_device();
    let at = disk
        .as_ref()
        .map_or(directory.path().to_owned(), LoopDisk::path);
    let file = written(&at.join("file"), 64 * KIB);
    let observer = observer(&at);
    let watch = observer.begin(clock, &[file.as_fd()]);
    for _ in 0..SYNCS {
        file.write_all_at(&[7; 4096], 0).expect("written");
        file.sync_data().expect("synced");
    }
    let evidence = watch.finish(&[file.as_fd()]);
    let claim = Claim {
        alone: true,
        ..durable_write(4096 * SYNCS as usize, SYNCS, SYNCS)
    };
    judged(&evidence, &claim)
}

/// A round of 120 ms that touches no store, in slices of 20 ms.
fn slices(clock: &dyn Clock, marked: bool) -> Vec<Issue> {
    let observer = observer(Path::new("/proc"));
    let mut watch = observer.begin(clock, &[]);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(20));
        if marked {
            watch.mark();
        }
    }
    let claim = Claim {
        operations: 6,
        ..Claim::default()
    };
    judged(&watch.finish(&[]), &claim)
}

#[test]
fn a_clock_of_processor_time_is_caught_as_the_phone_benchmarks_was_not() {
    in_a_process_of_its_own("validity::tests::clocks::processor_clock");
}

#[test]
#[ignore = "run by the test above"]
fn processor_clock() {
    let issues = synced_writes(&ProcessorClock { all: false });
    fires(
        &issues,
        IssueKind::ClockCountsProcessor,
        "waiting is not counted",
    );
    fires(&issues, IssueKind::ClocksDisagree, "CLOCK_BOOTTIME");
}

#[test]
fn a_machine_whose_every_clock_counts_the_processor_is_caught_by_its_device() {
    in_a_process_of_its_own("validity::tests::clocks::every_clock_processor_clock");
}

#[test]
#[ignore = "run by the test above"]
fn every_clock_processor_clock() {
    let issues = synced_writes(&ProcessorClock { all: true });
    fires(&issues, IssueKind::ClockCountsProcessor, "was busy for");
}

#[test]
fn a_round_shorter_than_its_device_was_busy_is_caught() {
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), 64 * KIB);
    let observer = observer(directory.path());
    let busy = || observer.devices()[0].counters().expect("counters").busy_ms;
    let watch = observer.begin(&SystemClock, &[file.as_fd()]);
    let before = busy();
    while busy() < before + 60 {
        file.write_all_at(&[7; 4096], 0).expect("written");
        file.sync_data().expect("synced");
    }
    let mut evidence = watch.finish(&[file.as_fd()]);
    let claim = durable_write(4096, 1, 0);
    no_issue(&judged(&evidence, &claim), IssueKind::ClocksDisagree);
    // Every clock of the machine runs at the same wrong speed: only the device's ticks are left.
    let passed = evidence.devices[0].did.busy_ms as i64 * 1_000_000 / 4;
    evidence.elapsed = crate::clock::Elapsed {
        raw_ns: passed,
        boottime_ns: passed,
        realtime_ns: passed,
        process_cpu_ns: 0,
    };
    let issues = judged(&evidence, &claim);
    fires(&issues, IssueKind::ClocksDisagree, "was busy for");
}

#[test]
fn a_clock_that_stalls_is_caught() {
    let issues = slices(&StalledClock::after(30 * MS), true);
    fires(&issues, IssueKind::ClockStalled, "CLOCK_BOOTTIME passed");
    fires(&issues, IssueKind::ClocksDisagree, "");
    // Without slices only the sum is seen: still no valid number.
    let issues = slices(&StalledClock::after(30 * MS), false);
    fires(&issues, IssueKind::ClocksDisagree, "");
    let issues = slices(&StalledClock::after(0), false);
    fires(&issues, IssueKind::ClockStalled, "");
}

#[test]
fn a_clock_that_leaps_is_caught_forward_and_back() {
    let issues = slices(&JumpingClock::after(30 * MS, 1000 * MS as i64), true);
    fires(&issues, IssueKind::ClockJumped, "leapt by");
    no_issue(&issues, IssueKind::ClockStalled);
    let issues = slices(&JumpingClock::after(30 * MS, -1000 * MS as i64), true);
    fires(&issues, IssueKind::ClockJumped, "went back by");
}

#[test]
fn a_clock_two_per_cent_too_fast_or_too_slow_is_caught() {
    for percent in [2, -2] {
        let issues = slices(&DriftingClock::by(percent), true);
        fires(&issues, IssueKind::ClocksDisagree, "CLOCK_BOOTTIME");
        no_issue(&issues, IssueKind::ClockJumped);
    }
}

#[test]
fn a_servers_clock_that_disagrees_is_caught() {
    let observer = observer(Path::new("/proc"));
    let watch = observer.begin(&SystemClock, &[]);
    std::thread::sleep(Duration::from_millis(50));
    let evidence = watch.finish(&[]);
    let claim = |ns| Claim {
        elsewhere: vec![("the block server".to_owned(), ns)],
        ..Claim::default()
    };
    let raw = evidence.elapsed.raw_ns;
    no_issue(
        &judged(&evidence, &claim(raw + raw / 500)),
        IssueKind::ClocksDisagree,
    );
    let issues = judged(&evidence, &claim(raw * 105 / 100));
    fires(
        &issues,
        IssueKind::ClocksDisagree,
        "the clock of the block server",
    );
}

#[test]
fn honest_clocks_raise_no_issue() {
    in_a_process_of_its_own("validity::tests::clocks::honest_clock");
    assert_eq!(of_the_round_itself(slices(&SystemClock, true)), []);
}

#[test]
#[ignore = "run by the test above"]
fn honest_clock() {
    assert_eq!(of_the_round_itself(synced_writes(&SystemClock)), []);
}
