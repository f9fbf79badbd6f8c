//! Every operation in stories: with snapshots before and behind it, which are deleted, restored from, compacted and copied; and with what
//! the room does ahead of commits before and behind it.
//!
//! Invariant: the order of what is made never depends on anything but this file and the operations.

use super::Workload;
use super::pairs::{Maker, OPERATIONS};
use super::start::Start;
use super::steps_of;

/// What surrounds an operation (`*`).
const SNAPSHOTS: &[&str] = &[
    "snapshot a; *; snapshot b; write foo 20000 9000; delete-snapshot a; tend",
    "write foo 4000 200; snapshot a; *; sync; delete-snapshot a; tend",
    "snapshot a; write foo 10000 20000; snapshot b; *; delete-snapshot b; tend; delete-snapshot a; tend",
    "snapshot a; *; rename-snapshot a b; restore b foo foo; sync; unlink foo; tend",
    "snapshot a; *; tend; snapshot b; delete-snapshot a; compact 100",
    "snapshot a; *; delete-snapshot a; snapshot a; append foo 5000; reopen; tend",
    "snapshot a; restore a foo A/bar; *; snapshot b; delete-snapshot a; backup; tend",
    "snapshot a; *; delete-snapshot a; rekey 0; snapshot b",
];

/// The same where changes are prepared for a commit that comes later, or never.
const AHEAD: &[&str] = &[
    "*; prepare",
    "write foo 100 50; prepare; *; sync",
    "*; prepare; sync; append foo 900; prepare; fsync foo",
    "prepare; write bar 0 9000; *; prepare; reopen",
    "write bar 0 9000; prepare; *; tend; prepare; append foo 5000; prepare; sync",
    "snapshot a; *; prepare; append foo 100; snapshot b; delete-snapshot a; prepare; tend",
    "begin; *; prepare; append foo 30; complete; prepare; rekey 0",
];

/// The operations with snapshots, each from a few rooms.
pub fn snapshots() -> Vec<Workload> {
    all_of("snapshots", SNAPSHOTS)
}

/// The operations with what is done ahead of commits, each from a few rooms.
pub fn ahead() -> Vec<Workload> {
    all_of("ahead", AHEAD)
}

fn all_of(family: &str, stories: &[&str]) -> Vec<Workload> {
    let mut all = Vec::new();
    for text in OPERATIONS {
        for story in stories {
            let start = match all.len() % 5 {
                4 => Start::Thin,
                _ => Start::Tree,
            };
            let mut maker = Maker::from(start);
            let text = story.replace('*', text);
            if maker.put(&steps_of(&text, ';')) {
                let name = format!("{family}:{}", all.len());
                all.push(Workload::new(name, start, maker.into_steps()));
            }
        }
    }
    all
}
