//! A failure as a short story: what was done, when the power went, what survived, what was found, and how to see it again.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::options::Options;
use crate::record::{Event, FileId, Log, Mark};
use crate::states::{Change, Choice, Keep, Limits, Pending, Point, StateId};
use crate::subject::{Failure, Recorded, Subject};

/// Lines of each part of a story.
const LINES: usize = 12;

/// A crash in the recovery from the first.
pub struct Second<'a> {
    /// What the recovery did.
    pub log: &'a Log,
    /// When the power went again.
    pub point: &'a Point<'a>,
    /// The state's name.
    pub id: StateId,
    /// What survived.
    pub choice: &'a Choice,
}

/// Of a workload that failed by itself.
pub fn without_a_crash<S: Subject>(subject: &S, failure: &Failure) -> String {
    let mut story = String::new();
    steps(&mut story, subject, None);
    let _ = writeln!(story, "failed without any crash: {failure}");
    let _ = writeln!(story, "again: explorer replay {}", subject.name());
    story
}

/// Of a state that is not allowed.
#[expect(clippy::too_many_arguments, reason = "a story has that many parts")]
pub fn of_failure<S: Subject>(
    subject: &S,
    recorded: &Recorded<S::State>,
    options: &Options,
    point: &Point<'_>,
    id: StateId,
    choice: &Choice,
    second: Option<&Second<'_>>,
    failure: &Failure,
) -> String {
    let mut story = String::new();
    steps(&mut story, subject, Some((point.durable, point.begun)));
    crash(&mut story, "the power went", &recorded.log, point, choice);
    if let Some(second) = second {
        let when = "it went again while the room was opened,";
        crash(&mut story, when, second.log, second.point, second.choice);
    }
    let _ = writeln!(story, "found:");
    for line in failure.0.lines().take(LINES) {
        let _ = writeln!(story, "  {line}");
    }
    let _ = write!(
        story,
        "again: explorer replay {} --state {id}",
        subject.name()
    );
    if let Some(second) = second {
        let _ = write!(story, " --second {}", second.id);
    }
    let _ = writeln!(story, "{}", said(&options.limits));
    story
}

/// The limits as options of the command.
fn said(limits: &Limits) -> String {
    let Limits {
        bits,
        samples,
        tears,
        seed,
    } = limits;
    format!(" --seed {seed} --bits {bits} --samples {samples} --tears {tears}")
}

fn steps<S: Subject>(story: &mut String, subject: &S, reached: Option<(usize, usize)>) {
    let _ = writeln!(story, "workload: {}", subject.name());
    let steps = subject.steps();
    // Of a long one, those around what is not acknowledged.
    let (durable, begun) = reached.unwrap_or((0, steps.len()));
    let first = durable.saturating_sub(3);
    if first > 0 {
        let _ = writeln!(story, "  … {first} steps");
    }
    for (index, step) in steps.iter().enumerate().skip(first).take(LINES) {
        let state = match index + 1 {
            n if reached.is_none() => format!("{n}"),
            n if n <= durable => format!("{n} (durable)"),
            n if n <= begun => format!("{n} (begun)"),
            n => format!("{n} (not reached)"),
        };
        let _ = writeln!(story, "  step {state}: {step}");
    }
    let left = steps.len().saturating_sub(first + LINES);
    if left > 0 {
        let _ = writeln!(story, "  … {left} more");
    }
}

fn crash(story: &mut String, when: &str, log: &Log, point: &Point<'_>, choice: &Choice) {
    let names = names(log, point.index);
    let last = log.events[..point.index].last();
    let what = last.map_or("before the first operation".into(), |event| {
        format!("after {}", event_text(event, &names))
    });
    let total = log.events.len();
    let _ = writeln!(story, "{when} at event {} of {total}, {what}", point.index);
    let pending: Vec<_> = point.disk.pending().iter().zip(&choice.0).collect();
    if pending.is_empty() {
        let _ = writeln!(story, "  nothing was pending");
    }
    let shown = pending.len().saturating_sub(LINES);
    if shown > 0 {
        let lost = pending[..shown].iter().filter(|(_, k)| **k == Keep::Lost);
        let _ = writeln!(story, "  … {shown} pending changes, {} lost", lost.count());
    }
    for (change, keep) in &pending[shown..] {
        let _ = writeln!(story, "  {}", fate(change, keep, &names));
    }
}

fn fate(pending: &Pending, keep: &Keep, names: &BTreeMap<FileId, String>) -> String {
    let what = change_text(&pending.change, names);
    let how = match keep {
        Keep::Lost => "lost".into(),
        Keep::Whole => "kept".into(),
        Keep::LengthOnly => "kept as zeros".into(),
        Keep::DataOnly => "kept, its length lost".into(),
        Keep::Torn { sectors, length } => {
            let length = match (pending.change.extends(), length) {
                (None, _) => String::new(),
                (Some(_), Some(len)) => format!(", length {len}"),
                (Some(_), None) => ", length lost".into(),
            };
            format!("torn, sectors {} kept{length}", runs(sectors))
        }
    };
    format!("#{} {what}: {how}", pending.event)
}

/// `0-3 5` for the first four and the sixth.
fn runs(kept: &[bool]) -> String {
    let mut runs = Vec::new();
    let mut at = 0;
    for run in kept.chunk_by(|a, b| a == b) {
        if run[0] {
            runs.push(match run.len() {
                1 => at.to_string(),
                n => format!("{at}-{}", at + n - 1),
            });
        }
        at += run.len();
    }
    if runs.len() > 8 {
        runs.truncate(8);
        runs.push("…".into());
    }
    format!("{} of {}", runs.join(" "), kept.len())
}

/// What files were called last before an event.
fn names(log: &Log, before: usize) -> BTreeMap<FileId, String> {
    let mut files: BTreeMap<String, FileId> = log.files.clone();
    let mut names: BTreeMap<FileId, String> = files
        .iter()
        .map(|(path, file)| (*file, path.clone()))
        .collect();
    for event in &log.events[..before] {
        match event {
            Event::Create { file, path } | Event::Locked { file, path, .. } => {
                files.insert(path.to_string(), *file);
                names.insert(*file, path.to_string());
            }
            Event::Rename { from, to } => {
                if let Some(file) = files.remove(&**from) {
                    files.insert(to.to_string(), file);
                    names.insert(file, to.to_string());
                }
            }
            _ => {}
        }
    }
    names
}

fn name(file: FileId, names: &BTreeMap<FileId, String>) -> &str {
    names.get(&file).map_or("a file", String::as_str)
}

fn change_text(change: &Change, names: &BTreeMap<FileId, String>) -> String {
    match change {
        Change::Bytes {
            file,
            offset,
            bytes,
            extends,
        } => {
            let longer = extends.map_or(String::new(), |len| format!(", now {len} long"));
            let len = bytes.len();
            format!("write {} {offset}+{len}{longer}", name(*file, names))
        }
        Change::Len { file, len } => format!("set length {} {len}", name(*file, names)),
        Change::Zeros { file, offset, len } => {
            format!("punch {} {offset}+{len}", name(*file, names))
        }
        Change::Link { path, .. } => format!("make {path}"),
        Change::Unlink { path } => format!("remove {path}"),
        Change::Rename { from, to, .. } => format!("rename {from} to {to}"),
    }
}

/// An event in a few words.
fn event_text(event: &Event, names: &BTreeMap<FileId, String>) -> String {
    let name = |file: &FileId| name(*file, names);
    match event {
        Event::Create { path, .. } => format!("create {path}"),
        Event::CreateDir { path } => format!("create directory {path}"),
        Event::Write { file, offset, data } => {
            format!("write {} {offset}+{}", name(file), data.len())
        }
        Event::SetLen { file, len } => format!("set length {} {len}", name(file)),
        Event::Punch { file, offset, len } => format!("punch {} {offset}+{len}", name(file)),
        Event::Rename { from, to } => format!("rename {from} to {to}"),
        Event::Remove { path } => format!("remove {path}"),
        Event::Sync { file } => format!("sync {}", name(file)),
        Event::SyncDir { dir } if dir.is_empty() => "sync the root directory".into(),
        Event::SyncDir { dir } => format!("sync directory {dir}"),
        Event::Dropped { file } => format!("a failed sync of {}", name(file)),
        Event::Locked { path, .. } => format!("lock {path}"),
        Event::Mark(Mark::Begun(step)) => format!("step {step} was begun"),
        Event::Mark(Mark::Did(step)) => format!("step {step} returned"),
        Event::Mark(Mark::Durable(step)) => format!("step {step} was said to be durable"),
    }
}

/// All events of a log, one line each, for people.
pub fn listing(log: &Log) -> String {
    let mut text = String::new();
    for (index, event) in log.events.iter().enumerate() {
        let names = names(log, index + 1);
        let _ = writeln!(text, "{:5} {}", index + 1, event_text(event, &names));
    }
    text
}
