//! Operations on keys and on the room as a whole: one, and every two of them, among changes of files.
//!
//! Invariant: the order of what is made never depends on anything but this file.

use super::Workload;
use super::start::Start;
use super::steps_of;

/// The operations; `;` between the steps of one. Where a first one leaves nothing for a second to act on, the room refuses
/// the second, and nothing may change.
const OPERATIONS: &[&str] = &[
    "add-slot 1",
    "add-slot 2; remove-slot 2",
    "add-slot 1; remove-slot 0",
    "change-slot 0 3",
    "backup-header; add-slot 2; restore-header",
    "rekey 0",
    "add-slot 2; rekey 0",
    "compact 100",
    "compact 50",
    "backup",
    "backup; write foo 0 5000; backup",
    "check",
    "repair",
];

/// What is done before, between and behind the operations.
const CHANGES: [&str; 3] = ["append foo 10", "write foo 16000 9000", "unlink A/bar"];

/// Every one and every two of the operations, with changes of files between them that nothing made durable yet.
pub fn keys() -> Vec<Workload> {
    let mut all = Vec::new();
    let mut push = |start, text: String| {
        let steps = steps_of(&text, ';');
        let name = format!("keys:{}", all.len());
        all.push(Workload::new(name, start, steps));
    };
    let [before, between, behind] = CHANGES;
    for start in [Start::Tree, Start::Thin, Start::Empty, Start::Damaged] {
        for one in OPERATIONS {
            if start == Start::Damaged && !one.contains("repair") {
                continue;
            }
            if start == Start::Empty {
                push(start, one.replace("write foo 0 5000", "create foo").clone());
                continue;
            }
            push(start, format!("{one}; close"));
            push(start, format!("{before}; {one}; {behind}; sync"));
        }
    }
    for start in [Start::Tree, Start::Thin] {
        for first in OPERATIONS {
            for second in OPERATIONS {
                push(
                    start,
                    format!("{before}; {first}; {between}; {second}; {behind}; sync; close"),
                );
            }
        }
    }
    for second in OPERATIONS {
        push(Start::Damaged, format!("{before}; repair; {second}; close"));
    }
    all
}
