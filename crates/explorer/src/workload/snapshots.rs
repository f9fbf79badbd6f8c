//! Every operation with snapshots before and behind it, which are deleted, restored from, compacted and copied.
//!
//! Invariant: the order of what is made never depends on anything but this file and the operations.

use super::Workload;
use super::pairs::{Maker, OPERATIONS};
use super::start::Start;
use super::steps_of;

/// What surrounds an operation (`*`).
const STORIES: &[&str] = &[
    "snapshot a; *; snapshot b; write foo 20000 9000; delete-snapshot a; tend",
    "write foo 4000 200; snapshot a; *; sync; delete-snapshot a; tend",
    "snapshot a; write foo 10000 20000; snapshot b; *; delete-snapshot b; tend; delete-snapshot a; tend",
    "snapshot a; *; rename-snapshot a b; restore b foo foo; sync; unlink foo; tend",
    "snapshot a; *; tend; snapshot b; delete-snapshot a; compact 100",
    "snapshot a; *; delete-snapshot a; snapshot a; append foo 5000; reopen; tend",
    "snapshot a; restore a foo A/bar; *; snapshot b; delete-snapshot a; backup; tend",
    "snapshot a; *; delete-snapshot a; rekey 0; snapshot b",
];

/// The operations in the stories, each from a few rooms.
pub fn snapshots() -> Vec<Workload> {
    let mut all = Vec::new();
    for text in OPERATIONS {
        for story in STORIES {
            let start = match all.len() % 5 {
                4 => Start::Thin,
                _ => Start::Tree,
            };
            let mut maker = Maker::from(start);
            let text = story.replace('*', text);
            if maker.put(&steps_of(&text, ';')) {
                let name = format!("snapshots:{}", all.len());
                all.push(Workload::new(name, start, maker.into_steps()));
            }
        }
    }
    all
}
