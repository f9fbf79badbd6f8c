//! One run of a measuring command, from making the stores to the report.
//!
//! 1. Stores are made, measured and removed here; whatever ends the run, they are removed.
//! 2. First the checks are tried, then the works are done; what the first store shows against itself in a work widens the work's ratios.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::clock::Clock;
use crate::compare::{self, Outcome};
use crate::itself::{self, Tried};
use crate::model::{Issue, IssueKind, Itself, NoiseFloor, Report, Row, SCHEMA, WORKS};
use crate::observe::{self, Observer, Subject, ceilings};
use crate::progress::Progress;
use crate::run_file::Run;
use crate::statistics;
use crate::store::{self, Making};
use crate::validity::{self, Limits};
use crate::words;
use crate::work::{Bed, Context, Work, is_selected, select};
use crate::{Error, Result};

/// What is asked for.
pub struct Ask {
    /// As [`Report::command`].
    pub command: &'static str,
    /// As [`Report::options`].
    pub options: Vec<String>,
    /// The stores, as on the command line; the first is what the others are compared with.
    pub targets: Vec<String>,
    /// Names for them; no two the same.
    pub labels: Vec<String>,
    /// What is done to them.
    pub works: Vec<Box<dyn Work>>,
    /// Only rows with these words: see [`select`].
    pub only: Vec<String>,
    /// Rounds of each.
    pub rounds: u32,
    /// Seed of all data and orders.
    pub seed: u64,
    /// Bytes of the large file; a multiple of 1 MiB.
    pub size: u64,
    /// Longest time of a round, seconds.
    pub seconds: f64,
    /// Small files.
    pub files: u32,
    /// Whether the first store is compared with itself in each work, and the checks are tried first.
    pub noise: bool,
}

/// How it is done.
pub struct Means<'a> {
    /// How stores are made.
    pub making: Making,
    /// What measures.
    pub clock: &'a dyn Clock,
    /// Set when the person wants to stop.
    pub stop: &'a AtomicBool,
    /// Gets the progress.
    pub progress: &'a dyn Progress,
    /// When a check fires.
    pub limits: Limits,
}

/// What came of it: a report in any case, and what ended it early, if anything but the person did.
#[derive(Debug)]
pub struct Done {
    /// All that was measured.
    pub report: Report,
    /// Why there is not more.
    pub failed: Option<Error>,
}

/// Measures.
///
/// # Errors
/// Where nothing could be measured at all: a store that cannot be made, words that select nothing.
pub fn run(ask: Ask, means: &Means<'_>) -> Result<Done> {
    let began = Instant::now();
    let context = Context {
        clock: means.clock,
        stop: means.stop,
        seed: ask.seed,
        size: ask.size,
        seconds: ask.seconds,
        files: ask.files,
        limits: means.limits,
    };
    context.check()?;
    let works = select(ask.works, &ask.only);
    if works.is_empty() {
        return Err(Error::Usage(
            "--only: no row has these words; without it all rows are shown with their names".into(),
        ));
    }
    let mut report = Report {
        schema: SCHEMA,
        works: WORKS,
        command: ask.command.to_owned(),
        options: ask.options,
        began: jiff::Timestamp::now().to_string(),
        took_s: 0.0,
        seed: ask.seed,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: observe::machine(),
        stores: Vec::new(),
        noise: None,
        rows: Vec::new(),
        comparisons: Vec::new(),
        parts: Vec::new(),
        growth: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
        interrupted: false,
    };
    // Not zero of zero, which a bar shows as all.
    means.progress.rows(1);
    let mut beds = make_beds(&ask.targets, &ask.labels, &means.making, means.progress)?;
    report.stores = beds.iter().map(Bed::facts).collect();
    let rounds = (ask.rounds, ask.noise);
    means.progress.rows(compare::steps(&beds, &works, rounds));
    let prepared = prepare(&mut beds, &means.making.run, means.progress);
    let tried = prepared.and_then(|()| match ask.noise {
        true => try_checks(&mut beds[0], &context, means.progress),
        false => Ok(Tried::default()),
    });
    let mut checks = Tried::default();
    let mut outcome = match tried {
        Ok(tried) => {
            checks = tried;
            compare::measure(&mut beds, &works, rounds, &context, means.progress)
        }
        Err(Error::Stopped) => Outcome {
            interrupted: true,
            ..Outcome::default()
        },
        Err(error) => Outcome {
            failed: Some(error),
            ..Outcome::default()
        },
    };
    means.progress.end();
    for bed in beds {
        outcome.failed = bed.close().err().or(outcome.failed);
    }
    compare::judge_zeros(&mut outcome.rows, &means.limits);
    outcome.rows.retain(|row| is_selected(&row.work, &ask.only));
    report.rows = outcome.rows;
    report.comparisons = compare::comparisons(&report, &ask.labels);
    report.notes = outcome.notes;
    say_noise(&mut report, checks);
    say_once(&mut report);
    let machine = Observer::new(Subject::default());
    report.notes.extend(
        machine
            .never_observed()
            .into_iter()
            .map(|never_observed| format!("{never_observed}.")),
    );
    report.interrupted = outcome.interrupted;
    judge_noise(&mut report, &means.limits, (ask.size, ask.rounds));
    report.took_s = began.elapsed().as_secs_f64();
    Ok(Done {
        report,
        failed: outcome.failed,
    })
}

fn make_beds(
    targets: &[String],
    labels: &[String],
    making: &Making,
    progress: &dyn Progress,
) -> Result<Vec<Bed>> {
    let mut beds = Vec::new();
    for (target, label) in targets.iter().zip(labels) {
        progress.row(&format!("making {label}"));
        let making = Making {
            label: label.clone(),
            ..making.clone()
        };
        // Those made before one that fails are removed as they are dropped.
        beds.push(Bed::new(store::make(target, &making)?));
    }
    Ok(beds)
}

fn prepare(beds: &mut [Bed], run: &Arc<Run>, progress: &dyn Progress) -> Result<()> {
    progress.row("measuring what memory and device can do at most");
    let memory_copy = ceilings::memory_copy();
    for bed in beds {
        compare::measure_ceilings(bed, run, memory_copy)?;
    }
    Ok(())
}

/// Sees whether the checks work on the store.
fn try_checks(bed: &mut Bed, context: &Context<'_>, progress: &dyn Progress) -> Result<Tried> {
    progress.row("trying the checks");
    let tried = itself::tried(bed, context)?;
    for left_out in &tried.left_out {
        bed.note(format!("not tried at the start: {left_out}"));
    }
    Ok(tried)
}

/// Puts the widest noise floor of all works into the report, and beside it which checks work; without a floor they are notes.
fn say_noise(report: &mut Report, tried: Tried) {
    let factor = |of: &Itself| statistics::noise_factor(of.low, of.high);
    let loudest = report
        .floors()
        .max_by(|(_, a), (_, b)| factor(a).total_cmp(&factor(b)));
    if let Some((row, itself)) = loudest {
        report.noise = Some(NoiseFloor {
            store: row.store.clone(),
            work: row.work.clone(),
            ratio: itself.ratio,
            low: itself.low,
            high: itself.high,
            fired: tried.fired,
            unfired: tried.unfired,
        });
        return;
    }
    if !tried.fired.is_empty() {
        report.notes.push(format!(
            "tried at the start and caught: {}",
            tried.fired.join("; ")
        ));
    }
    let unfired = tried.unfired.iter().map(|unfired| {
        format!("a check does not work here: {unfired} was tried at the start and not noticed")
    });
    report.notes.extend(unfired);
}

/// A work in which the first store may differ from itself by too much is valid for no store. `asked`: size in bytes, and rounds.
fn judge_noise(report: &mut Report, limits: &Limits, asked: (u64, u32)) {
    let judged = report.floors().filter_map(|(row, itself)| {
        let issue = validity::of_noise(&row.store, itself, limits)?;
        Some((row.work.clone(), issue))
    });
    let loud: Vec<(String, Issue)> = judged.collect();
    for (work, issue) in &loud {
        for comparison in report.comparisons.iter_mut().filter(|of| of.work == *work) {
            (comparison.ratio, comparison.low, comparison.high) = (None, None, None);
            comparison.differs = false;
            comparison.invalid.get_or_insert(issue.said.clone());
        }
        for row in report.rows.iter_mut().filter(|row| row.work == *work) {
            row.verdict.invalid = true;
            row.verdict.issues.insert(0, issue.clone());
        }
    }
    let works = report.floors().count();
    if let (Some(noise), [_, ..]) = (&report.noise, &loud[..]) {
        let (size, rounds) = enough(
            statistics::noise_factor(noise.low, noise.high),
            limits,
            asked,
        );
        report.notes.push(format!(
            "In {} of {works} works {} differs too much from itself: their rows are INVALID. Measure when the machine is idle, and \
             more: --size {} --rounds {rounds}.",
            loud.len(),
            noise.store,
            words::bytes(size).replace(' ', "")
        ));
    }
}

/// Size and rounds with which the noise should be small enough: an interval shrinks with the square root of what is measured.
fn enough(factor: f64, limits: &Limits, (size, rounds): (u64, u32)) -> (u64, u32) {
    const SIZE_MAX: u64 = 16 << 30;
    const ROUNDS_MAX: u32 = 25;
    let excess = (factor - 1.0) / limits.noise_max;
    let more = (excess * excess).clamp(2.0, 1e6);
    // Rounds first: they cost no space. At least twice as many.
    let rounds_more = (f64::from(rounds) * more).min(f64::from(ROUNDS_MAX)) as u32;
    let rounds_more = rounds_more.max(rounds);
    let left = more * f64::from(rounds.max(1)) / f64::from(rounds_more.max(1));
    let mut larger = size;
    while (larger as f64) < size as f64 * left && larger < SIZE_MAX {
        larger *= 2;
    }
    (larger, rounds_more)
}

/// What could not be observed in any row is one remark on the whole report, not one on each row. The rounds keep theirs.
fn say_once(report: &mut Report) {
    let of = |row: &Row| -> Vec<String> {
        let issues = row.verdict.issues.iter();
        let missing = issues.filter(|issue| issue.kind == IssueKind::NotObservable);
        missing.map(|issue| issue.said.clone()).collect()
    };
    let Some(first) = report.rows.first() else {
        return;
    };
    let everywhere: Vec<String> = of(first)
        .into_iter()
        .filter(|said| report.rows.iter().all(|row| of(row).contains(said)))
        .collect();
    for row in &mut report.rows {
        row.verdict.issues.retain(|issue| {
            issue.kind != IssueKind::NotObservable || !everywhere.contains(&issue.said)
        });
    }
    let notes = everywhere
        .into_iter()
        .map(|said| format!("not observable here: {said}"));
    report.notes.extend(notes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report whose first work differs from itself by up to these factors.
    fn noisy(low: f64, high: f64) -> Report {
        let mut report = crate::report::sample::compare();
        report.rows[0].itself = Some(Itself {
            rounds: report.rows[0].rounds.clone(),
            ratio: 1.0,
            low,
            high,
        });
        say_noise(&mut report, Tried::default());
        report
    }

    /// What failed: with a noise floor of ±220 % rows and ratios were kept, and only a note said so. Then one loud row took all others
    /// with it, and a table of ten rows was refused for one.
    #[test]
    fn a_work_is_invalid_for_every_store_when_its_noise_floor_is() {
        let mut report = noisy(0.31, 3.2);
        let before = report.clone();
        judge_noise(&mut report, &Limits::default(), (256 << 20, 5));
        let loud = before.rows[0].work.clone();
        for (row, before) in report.rows.iter().zip(&before.rows) {
            if row.work == loud {
                assert!(row.verdict.invalid, "{row:?}");
            } else {
                assert_eq!(row, before, "another work");
            }
        }
        for (of, before) in report.comparisons.iter().zip(&before.comparisons) {
            if of.work == loud {
                assert!(of.invalid.is_some() && of.ratio.is_none(), "{of:?}");
            } else {
                assert_eq!(of, before, "another work");
            }
        }
        let note = report.notes.last().unwrap();
        assert!(
            note.starts_with("In 1 of 1 works plain differs") && note.contains("--size"),
            "{note}"
        );

        // What is seen by chance once in twenty only widens: it is no reason to refuse.
        for (low, high) in [(0.9, 1.1), (1.05, 1.2)] {
            let mut report = noisy(low, high);
            let before = report.clone();
            judge_noise(&mut report, &Limits::default(), (256 << 20, 5));
            assert_eq!(report, before, "quiet enough");
        }
    }

    #[test]
    fn the_floor_that_is_shown_is_the_widest_and_has_what_the_checks_did() {
        let mut report = noisy(0.9, 1.1);
        let at = report.rows.len() - 1;
        report.rows[at].itself = Some(Itself {
            rounds: Vec::new(),
            ratio: 1.0,
            low: 0.5,
            high: 1.01,
        });
        let tried = Tried {
            fired: vec!["a skipped fsync".into()],
            ..Tried::default()
        };
        say_noise(&mut report, tried);
        let floor = report.noise.clone().unwrap();
        assert_eq!((floor.work, floor.low), (report.rows[at].work.clone(), 0.5));
        assert_eq!(floor.fired, ["a skipped fsync"]);
    }

    #[test]
    fn what_is_suggested_is_more_and_has_bounds() {
        let limits = Limits::default();
        for high in [1.26, 1.5, 3.2, 100.0] {
            let (size, rounds) = enough(high, &limits, (64 << 20, 5));
            assert!(rounds > 5 && rounds <= 25, "{high}: {rounds}");
            assert!((64 << 20..=16 << 30).contains(&size), "{high}: {size}");
        }
        let (_, few) = enough(1.26, &limits, (64 << 20, 5));
        let (size, many) = enough(3.2, &limits, (64 << 20, 5));
        assert!(few < many && size > 64 << 20);
    }
}
