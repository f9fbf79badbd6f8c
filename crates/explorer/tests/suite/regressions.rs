//! Faults that the explorer found and that are fixed, each as the smallest workload that shows it.

use explorer::explore::{Options, explore};
use explorer::room_subject::RoomSubject;
use explorer::states::Limits;
use explorer::workload::Workload;

/// Explores a workload, given by its lines, and expects no failure.
fn holds(workload: &str) {
    let workload: Workload = workload.parse().expect("a workload");
    let options = Options {
        limits: Limits {
            bits: 4,
            samples: 2,
            tears: 2,
            seed: 1,
        },
        recovery_every: 0,
        ..Options::default()
    };
    let report = explore(&RoomSubject(workload), &options, None, None);
    if let Some(found) = report.failures.first() {
        panic!("{}", found.story);
    }
    assert!(report.distinct > 20, "{report:?}");
}

/// A rekey removed the old catalog's log and put the new catalog in the old one's place, with one sync of the directory
/// after both. Where a crash kept the second and lost the first, the old log was replayed over the new catalog, and the room
/// failed to open. The removal is now durable before the replacement.
#[test]
fn the_log_of_the_old_catalog_is_gone_before_a_rekey_puts_the_new_one_in_place() {
    holds("start tree\nwrite A/foo 0 5000\nrekey 0");
}
