//! Faults that are not crashes: operations that fail, data that comes back damaged.
//!
//! 1. For each workload every operation on the storage is counted once without faults. Then, for each kind of fault and
//!    each operation it can befall, the workload runs again with that fault.
//! 2. What a trial demands is written in `trial`.
//! 3. A trial that does not return within `TRIAL_TIMEOUT` ends the process: there is no way to stop it alone.
//!
//! It deliberately does not know power cuts at any moment; a trial ends with one at its end.

mod reference;
mod remains;
mod trial;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use storage::testing::{Fault, Op, Times};

pub use reference::Reference;
pub use trial::{Outcome, trial};

use crate::explore::Failure;
use crate::sites::Watch;
use crate::workload::Workload;

/// How long one trial may take.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(120);
/// Failures that are kept in full.
const KEPT: usize = 50;

/// A fault and how often it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// What happens.
    pub fault: Fault,
    /// How often.
    pub times: Times,
}

impl Kind {
    const fn new(fault: Fault, times: Times) -> Self {
        Self { fault, times }
    }

    /// Every kind.
    pub const ALL: [Kind; 9] = [
        Self::new(Fault::Io, Times::Once),
        Self::new(Fault::Io, Times::Always),
        Self::new(Fault::NoSpace, Times::Once),
        Self::new(Fault::NoSpace, Times::Always),
        Self::new(Fault::Quota, Times::Always),
        Self::new(Fault::Torn, Times::Once),
        Self::new(Fault::Flip, Times::Once),
        Self::new(Fault::Short, Times::Once),
        Self::new(Fault::Stale, Times::Once),
    ];

    /// Whether a fault that begins at such an operation is another than one that begins elsewhere.
    pub fn befalls(self, op: Op) -> bool {
        let reads = matches!(op, Op::Read | Op::Len | Op::List | Op::Open | Op::Space);
        match self.fault {
            Fault::Io => true,
            Fault::NoSpace => !reads && op != Op::Lock,
            Fault::Quota => op.takes_space(),
            Fault::Torn => op == Op::Write,
            Fault::Flip | Fault::Short | Fault::Stale => op == Op::Read,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Io => "EIO",
            Fault::NoSpace => "ENOSPC",
            Fault::Quota => "EDQUOT",
            Fault::Torn => "short write",
            Fault::Flip => "flipped bit",
            Fault::Stale => "stale read",
            Fault::Short => "short read",
        };
        let times = match self.times {
            Times::Once => "once",
            Times::Always => "for good",
        };
        write!(f, "{what} {times}")
    }
}

/// What is tried.
#[derive(Debug, Clone)]
pub struct Options {
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Kinds of fault.
    pub kinds: Vec<Kind>,
    /// Whether reads of the catalog and its log come back damaged or stale, too.
    pub damage_catalog: bool,
    /// Each `stride`-th operation of a workload, beginning with one that differs between workloads; 1: every one.
    pub stride: u64,
    /// When to stop, whether everything is tried or not.
    pub until: Option<Instant>,
    /// Threads.
    pub threads: usize,
}

/// What was tried and found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Workloads tried.
    pub workloads: u64,
    /// Operations on the storage in them, without faults.
    pub operations: u64,
    /// Those of them that are not the opening of a room which another workload starts from too.
    pub covered: u64,
    /// Trials.
    pub trials: u64,
    /// Faults that came about, by kind, and how they ended.
    pub outcomes: BTreeMap<String, BTreeMap<String, u64>>,
    /// Trials in which the fault did not come about, because the run before it was another.
    pub missed: u64,
    /// Whether time ran out.
    pub stopped: bool,
    /// Trials that failed.
    pub failed: u64,
    /// Some of the failures, as stories.
    pub failures: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} workloads, {} operations ({} different), {} faults, {} missed, {} failures{}",
            self.workloads,
            self.operations,
            self.covered,
            self.trials,
            self.missed,
            self.failed,
            if self.stopped { ", stopped early" } else { "" }
        )?;
        for (kind, outcomes) in &self.outcomes {
            let each = |(what, n): (&String, &u64)| format!("{what} {n}");
            let list: Vec<_> = outcomes.iter().map(each).collect();
            writeln!(f, "  {kind}: {}", list.join(", "))?;
        }
        Ok(())
    }
}

impl Report {
    fn take(&mut self, kind: Kind, result: Result<Outcome, String>) {
        self.trials += 1;
        let word = match result {
            Ok(Outcome::Missed) => {
                self.missed += 1;
                return;
            }
            Ok(outcome) => outcome.to_string(),
            Err(story) => {
                self.failed += 1;
                if self.failures.len() < KEPT {
                    self.failures.push(story);
                }
                "failed".to_owned()
            }
        };
        let outcomes = self.outcomes.entry(kind.to_string()).or_default();
        *outcomes.entry(word).or_default() += 1;
    }
}

/// Tries every fault at every operation of the workloads.
pub fn run(options: &Options) -> Report {
    let report = Mutex::new(Report::default());
    let next = AtomicUsize::new(0);
    let threads = options.threads.max(1);
    let running: Vec<Mutex<Option<(Instant, String)>>> =
        (0..threads).map(|_| Mutex::new(None)).collect();
    let working = AtomicUsize::new(threads);
    std::thread::scope(|scope| {
        for slot in &running {
            let (report, next, working) = (&report, &next, &working);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(workload) = options.workloads.get(at) else {
                        break;
                    };
                    if !all_of(workload, at as u64, options, slot, report) {
                        break;
                    }
                }
                working.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while working.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            running.iter().for_each(end_if_stuck);
        }
    });
    report.into_inner().unwrap_or_else(|e| e.into_inner())
}

#[allow(
    clippy::exit,
    reason = "a thread that hangs cannot be stopped otherwise"
)]
fn end_if_stuck(slot: &Mutex<Option<(Instant, String)>>) {
    let running = lock(slot);
    if let Some((since, what)) = &*running
        && since.elapsed() > TRIAL_TIMEOUT
    {
        eprintln!("a trial hangs:\n{what}");
        std::process::exit(3);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Kills the process at every operation of a workload, with the syncs that `watch` ignores left out, and lets another one
/// go on. Returns how many trials there were and the first failure.
pub fn kills(workload: &Workload, watch: &Watch, until: Option<Instant>) -> (u64, Option<Failure>) {
    const KILL: Kind = Kind::new(Fault::Io, Times::Always);
    const FAILED_SYNC: Kind = Kind::new(Fault::Io, Times::Once);
    let reference = match Reference::of(workload) {
        Ok(reference) => reference,
        Err(e) => return (0, Some(e)),
    };
    let mut trials = 0;
    for (nth, operation) in (1..).zip(&reference.operations) {
        let failed_sync = (operation.op == Op::Sync).then_some(FAILED_SYNC);
        for kind in std::iter::once(KILL).chain(failed_sync) {
            if until.is_some_and(|until| Instant::now() >= until) {
                return (trials, None);
            }
            trials += 1;
            if let Err(e) = trial(workload, &reference, kind, nth, Some(watch.clone())) {
                let head = story(workload, kind, nth, operation);
                return (trials, Some(Failure(format!("{e}\n{head}"))));
            }
        }
    }
    (trials, None)
}

/// Every trial of one workload; false where time ran out.
fn all_of(
    workload: &Workload,
    number: u64,
    options: &Options,
    slot: &Mutex<Option<(Instant, String)>>,
    report: &Mutex<Report>,
) -> bool {
    let reference = match Reference::of(workload) {
        Ok(reference) => reference,
        Err(e) => {
            let mut report = lock(report);
            report.failed += 1;
            report
                .failures
                .push(format!("{} without any fault: {e}", workload.name));
            return true;
        }
    };
    {
        let mut report = lock(report);
        report.workloads += 1;
        report.operations += reference.operations.len() as u64;
    }
    let opened_before = options.workloads[..number as usize]
        .iter()
        .any(|w| w.start == workload.start);
    for (nth, operation) in (1..).zip(&reference.operations) {
        if operation.step == 0 && opened_before {
            // The same operations on the same room as in a workload before this one.
            continue;
        }
        lock(report).covered += 1;
        if !(nth + number).is_multiple_of(options.stride.max(1)) {
            continue;
        }
        let damages = |kind: &Kind| {
            matches!(kind.fault, Fault::Flip | Fault::Stale)
                && operation.path.starts_with("catalog.db")
        };
        let kinds = options.kinds.iter().filter(|k| k.befalls(operation.op));
        for kind in kinds.filter(|k| options.damage_catalog || !damages(k)) {
            if options.until.is_some_and(|until| Instant::now() >= until) {
                lock(report).stopped = true;
                return false;
            }
            let head = || story(workload, *kind, nth, operation);
            *lock(slot) = Some((Instant::now(), head()));
            let result = trial(workload, &reference, *kind, nth, None)
                .map_err(|failure| format!("{}\n{failure}", head()));
            *lock(slot) = None;
            lock(report).take(*kind, result);
        }
    }
    true
}

/// What is tried, so that it can be tried again.
fn story(workload: &Workload, kind: Kind, nth: u64, operation: &reference::Operation) -> String {
    format!(
        "{kind} at operation {nth} ({:?} {} {}+{}, step {}) of {}:\n  {}",
        operation.op,
        operation.path,
        operation.offset,
        operation.len,
        operation.step,
        workload.name,
        workload.to_string().replace('\n', "\n  ")
    )
}
