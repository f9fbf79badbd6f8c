//! One run of a measuring command, from making the stores to the report.
//!
//! 1. Stores are made, measured and removed here; whatever ends the run, they are removed.
//! 2. First a store is compared with itself and lied about, then the works are done; what a store shows against itself widens every ratio.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::clock::Clock;
use crate::compare::{self, Outcome};
use crate::itself;
use crate::model::{IssueKind, NoiseFloor, Report, Row, SCHEMA};
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
    /// Whether a store is compared with itself first.
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
    let noise_rounds = if ask.noise { ask.rounds.clamp(3, 5) } else { 0 };
    means
        .progress
        .rows(compare::steps(&beds, &works, ask.rounds) + 2 * u64::from(noise_rounds));
    let prepared = prepare(&mut beds, &means.making.run, means.progress);
    let floor = prepared.and_then(|()| match noise_rounds {
        0 => Ok(None),
        rounds => noise(&mut beds[0], &works, rounds, &context, means.progress),
    });
    let floor = floor.and_then(|floor| match noise_rounds {
        0 => Ok(floor),
        _ => fault(&mut beds[0], floor, &context, means.progress),
    });
    let mut outcome = match floor {
        Ok(floor) => {
            report.noise = floor;
            compare::measure(&mut beds, &works, ask.rounds, &context, means.progress)
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
    report.comparisons = compare::comparisons(&outcome.rows, &ask.labels, report.noise.as_ref());
    report.rows = outcome.rows;
    report.notes = outcome.notes;
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

/// The first work that the store can do, on the store and on itself. One in twenty honest intervals leaves out 1: then it is
/// measured once more.
fn noise(
    bed: &mut Bed,
    works: &[Box<dyn Work>],
    rounds: u32,
    context: &Context<'_>,
    progress: &dyn Progress,
) -> Result<Option<NoiseFloor>> {
    let powers = bed.powers();
    let Some(work) = works.iter().find(|work| work.impossible(powers).is_none()) else {
        return Ok(None);
    };
    let first = compare::against_itself(bed, &**work, rounds, context, progress)?;
    match &first {
        Some(floor) if !(floor.low..=floor.high).contains(&1.0) => {
            progress.note("a store differed from itself: measured once more");
            compare::against_itself(bed, &**work, rounds, context, &crate::progress::Quiet)
        }
        _ => Ok(first),
    }
}

/// Sees whether the checks work on the store, and puts what came of it beside the noise floor.
fn fault(
    bed: &mut Bed,
    floor: Option<NoiseFloor>,
    context: &Context<'_>,
    progress: &dyn Progress,
) -> Result<Option<NoiseFloor>> {
    progress.row("trying the checks");
    let tried = itself::tried(bed, context)?;
    for left_out in tried.left_out {
        bed.note(format!("not tried at the start: {left_out}"));
    }
    if floor.is_none() {
        if !tried.fired.is_empty() {
            bed.note(format!(
                "tried at the start and caught: {}",
                tried.fired.join("; ")
            ));
        }
        for unfired in &tried.unfired {
            bed.note(format!(
                "a check does not work here: {unfired} was tried at the start and not noticed"
            ));
        }
    }
    Ok(floor.map(|floor| NoiseFloor {
        fired: tried.fired,
        unfired: tried.unfired,
        ..floor
    }))
}

/// With a store that differs from itself, or may by too much, no number is valid. `asked`: size in bytes, and rounds.
fn judge_noise(report: &mut Report, limits: &Limits, asked: (u64, u32)) {
    let Some(noise) = &report.noise else {
        return;
    };
    let Some(issue) = validity::of_noise(noise, limits) else {
        return;
    };
    for comparison in &mut report.comparisons {
        (comparison.ratio, comparison.low, comparison.high) = (None, None, None);
        comparison.differs = false;
        comparison.invalid.get_or_insert(issue.said.clone());
    }
    let (size, rounds) = enough(noise, limits, asked);
    report.notes.push(format!(
        "{}. Measure when the machine is idle, and more: --size {} --rounds {rounds}.",
        issue.said,
        words::bytes(size).replace(' ', "")
    ));
    for row in &mut report.rows {
        row.verdict.invalid = true;
        row.verdict.issues.insert(0, issue.clone());
    }
}

/// Size and rounds with which the noise should be small enough: an interval shrinks with the square root of what is measured.
fn enough(noise: &NoiseFloor, limits: &Limits, (size, rounds): (u64, u32)) -> (u64, u32) {
    const SIZE_MAX: u64 = 16 << 30;
    const ROUNDS_MAX: u32 = 25;
    let excess = (statistics::noise_factor(noise) - 1.0) / limits.noise_max;
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

    fn noise(low: f64, high: f64) -> NoiseFloor {
        NoiseFloor {
            store: "plain".into(),
            work: "random read".into(),
            ratio: 1.0,
            low,
            high,
            fired: Vec::new(),
            unfired: Vec::new(),
        }
    }

    /// What failed: with a noise floor of ±220 % rows and ratios were kept, and only a note said so.
    #[test]
    fn every_row_is_invalid_when_the_noise_floor_is() {
        for floor in [noise(0.31, 3.2), noise(1.1, 1.2)] {
            let mut report = crate::report::sample::compare();
            report.noise = Some(floor);
            judge_noise(&mut report, &Limits::default(), (256 << 20, 5));
            assert!(report.rows.iter().all(|row| row.verdict.invalid));
            assert!(report.comparisons.iter().all(|of| of.invalid.is_some()));
            let note = report.notes.last().unwrap();
            assert!(
                note.contains("--size") && note.contains("--rounds"),
                "{note}"
            );
        }
        let mut report = crate::report::sample::compare();
        let before = report.clone();
        judge_noise(&mut report, &Limits::default(), (256 << 20, 5));
        assert_eq!(report, before, "a quiet machine");
    }

    #[test]
    fn what_is_suggested_is_more_and_has_bounds() {
        let limits = Limits::default();
        for high in [1.26, 1.5, 3.2, 100.0] {
            let (size, rounds) = enough(&noise(0.9, high), &limits, (64 << 20, 5));
            assert!(rounds > 5 && rounds <= 25, "{high}: {rounds}");
            assert!((64 << 20..=16 << 30).contains(&size), "{high}: {size}");
        }
        let (_, few) = enough(&noise(0.9, 1.26), &limits, (64 << 20, 5));
        let (size, many) = enough(&noise(0.9, 3.2), &limits, (64 << 20, 5));
        assert!(few < many && size > 64 << 20);
    }
}
