//! Whether what was found after a kill is what may be there.
//!
//! 1. A writer's files are as they were after one of its operations, not earlier than the last that was acknowledged as
//!    durable; or, where the next one reaches the room in several requests, in the middle of that.
//! 2. All writers' files are of one moment: the moment of a commit that began after every acknowledged one was asked for.
//! 3. What the operations answered until the kill is what the model says.

use super::journal::Journaled;
use super::model::{Author, Tree};
use super::plan::Plan;

/// A stretch of time in which the writer's files were as found, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

/// What is known of one writer after a round.
#[derive(Debug)]
pub struct Found {
    pub windows: Vec<Window>,
    /// When the last acknowledged sync was asked for.
    pub floor: u64,
    pub ops: u64,
    pub acknowledged: u64,
}

/// One writer's round.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    pub seed: u64,
    pub round: u64,
    pub writer: u64,
    /// How the files were when it began.
    pub base: &'a Tree,
    pub journal: &'a Journaled,
    /// When the serving process was about to get the signal to end: from here on answers may be those of a mount that is gone.
    pub killed: u64,
    /// When it was gone.
    pub gone: u64,
}

pub fn judge(this: Round<'_>, found: &Tree) -> Result<Found, String> {
    let Round {
        seed,
        round,
        writer,
        base,
        journal,
        killed,
        gone,
    } = this;
    let mut entries = journal.entries.clone();
    if let Some((when, why)) = journal.stopped
        && when < killed
    {
        return Err(format!(
            "operation {} failed before the kill: {why}",
            entries.len() - 1
        ));
    }
    let ops: Vec<_> = Plan::new(seed, round, writer).take(entries.len()).collect();
    let mut states = vec![base.clone()];
    let (mut first, mut floor, mut acknowledged) = (0, 0, 0);
    for number in 0..entries.len() {
        let (op, entry) = (&ops[number], entries[number]);
        let mut state = states[number].clone();
        let wanted = state.apply(
            op,
            Author {
                round,
                writer,
                op: number as u64,
            },
        );
        states.push(state);
        let Some((when, answer)) = entry.ended else {
            break;
        };
        if answer != wanted.map(|_| ()) {
            if when < killed {
                return Err(format!(
                    "operation {number}, {op:?}: answered {answer:?}, expected {wanted:?}"
                ));
            }
            // The mount was removed: this one was begun, and nothing after it.
            entries.truncate(number + 1);
            entries[number].ended = None;
            break;
        }
        if answer.is_ok() && wanted == Ok(true) && op.acknowledges() {
            (first, floor) = (number + 1, entry.began);
            acknowledged += 1;
        }
    }
    let began = |number: usize| number.checked_sub(1).map_or(0, |last| entries[last].began);
    let ended = |number: usize| {
        entries
            .get(number)
            .and_then(|entry| entry.ended)
            .map_or(gone, |(when, _)| when.min(gone))
    };
    let mut windows = Vec::new();
    for after in first..states.len() {
        if states[after].is_same(found) {
            windows.push(Window {
                from: began(after),
                to: ended(after),
            });
        } else if after < entries.len()
            && !ops[after].is_whole()
            && states[after].may_become(&states[after + 1], found)
        {
            windows.push(Window {
                from: entries[after].began,
                to: ended(after),
            });
        }
    }
    if windows.is_empty() {
        return Err(explain(&states, &ops[..entries.len()], first, found));
    }
    Ok(Found {
        windows,
        floor,
        ops: entries.len() as u64,
        acknowledged,
    })
}

/// Whether there is a moment that all agree on, not before `floor`.
pub fn one_moment(all: &[Found], floor: u64) -> bool {
    let starts = all
        .iter()
        .flat_map(|found| found.windows.iter().map(|window| window.from));
    starts
        .chain([floor])
        .filter(|moment| *moment >= floor)
        .any(|moment| {
            all.iter().all(|found| {
                found
                    .windows
                    .iter()
                    .any(|window| window.from <= moment && moment <= window.to)
            })
        })
}

fn explain(states: &[Tree], ops: &[super::plan::Op], first: usize, found: &Tree) -> String {
    let mut story = format!(
        "no state from operation {first}, the last acknowledged, to {}, the last begun, is what was found\n",
        ops.len()
    );
    let nearest = (0..states.len())
        .min_by_key(|number| states[*number].differences(found).len())
        .unwrap_or(0);
    for (what, number) in [
        ("last acknowledged", first),
        ("nearest", nearest),
        ("last begun", ops.len()),
    ] {
        story += &format!("after {number} operations ({what}), beside what was found:\n");
        for line in states[number].differences(found).iter().take(8) {
            story += &format!("    {line}\n");
        }
    }
    story += "operations:\n";
    let from = nearest.min(first).saturating_sub(12);
    for (number, op) in ops.iter().enumerate().skip(from) {
        story += &format!("    {number} {op:?}\n");
    }
    story
}
