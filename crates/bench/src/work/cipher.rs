//! Ciphers, codes and key derivations in memory, beside copying memory.
//!
//! 1. What runs is the code that a room or a volume runs: the functions of `seal`, and the sector ciphers of `volume`. Larger
//!    pieces than a unit are sealed as a room does, unit by unit.
//! 2. What a worker needs before it can measure again (sealed units to open) is made outside the time.
//! 3. All cores: one worker each, begun together; their rates are added.
//!
//! A further cipher is one more entry of `bulk`, `once` or `sectors::bulk`. SQLCipher's own cipher of catalog pages is in
//! its library, out of reach here.

mod sectors;
mod subjects;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Outcome;
use crate::clock::{Clock, SystemClock};
use crate::model::{Issue, IssueKind, PublishedTable, Round, Row, TableRow, Unit, Verdict};
use crate::progress::Progress;
use crate::words::{NOTHING, bytes, significant, time_ns};
use crate::{Result, statistics};

use subjects::{Bulk, COPYING, Once, bulk, once};

/// The label of the one store there is.
pub const STORE: &str = "memory";
/// How many times the rate of copying memory is borne: that was measured at another moment.
const ABOVE_COPY: f64 = 1.1;
/// Bytes that a worker works through between two looks at the clock, at least.
const BATCH: usize = 1 << 20;
/// The same for sectors: the slowest of their ciphers needs a second for a MiB.
const SECTORS_BATCH: usize = 64 << 10;

/// AWS-LC's name for "use not what the processor has" (its `crypto/fipsmodule/cpucap`).
const AWS_LC_CAPABILITIES: &str = "OPENSSL_ia32cap";
/// Of a build that has AES in software.
const SOFTWARE: &str = "AES of sectors in software: this program was built without the processor's instructions for it, as a \
                        picture of a machine that has none";

/// What is measured, and for how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a piece: multiples of 4096.
    pub sizes: Vec<usize>,
    /// Bytes of a run of sectors: a multiple of 4096.
    pub run: usize,
    /// Seconds of one measurement.
    pub seconds: f64,
    /// Measurements of each row.
    pub rounds: u32,
    /// Workers of "all cores"; with 1 that part is left out.
    pub cores: usize,
    /// Also Argon2id with the cost that a new room gets here, which takes a second each time.
    pub slow: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sizes: vec![4 << 10, 16 << 10, 64 << 10, 1 << 20],
            run: SECTORS_BATCH,
            seconds: 0.2,
            rounds: 3,
            cores: thread::available_parallelism().map_or(1, usize::from),
            slow: true,
        }
    }
}

/// Measures everything, or until `stop` is set: then what is done is kept.
///
/// # Errors
/// Where a key slot for the derivations cannot be made.
pub fn run(options: &Options, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome> {
    let mut out = Outcome::default();
    let (bulk, sectors, once) = (bulk(), sectors::bulk(), once(options.slow)?);
    let cores: Vec<usize> = match options.cores {
        0 | 1 => vec![1],
        all => vec![1, all],
    };
    let on_cores = bulk.len() * options.sizes.len() + sectors.len();
    progress.rows((on_cores * cores.len() + once.len()) as u64);
    for &cores in &cores {
        // Sealing in place touches half of what copying does, and no cache has to hold two places: only the fastest copy, of
        // whichever size, is out of reach.
        let mut copy = None;
        let sized = options.sizes.iter().flat_map(|&size| {
            let pieces = Pieces::of(size, BATCH);
            bulk.iter().map(move |subject| (subject, pieces))
        });
        let run = Pieces::of(options.run, SECTORS_BATCH);
        for (subject, pieces) in sized.chain(sectors.iter().map(|subject| (subject, run))) {
            if stop.load(Ordering::Relaxed) {
                out.interrupted = true;
                break;
            }
            let copying = subject.name == COPYING;
            let ceiling = copy.filter(|_| !copying);
            let row = bulk_row(subject, pieces, cores, options, ceiling, progress);
            if copying {
                let most = row.summary.map(|of| of.most);
                copy = [copy, most].into_iter().flatten().reduce(f64::max);
            }
            out.rows.push(row);
        }
    }
    for subject in &once {
        if stop.load(Ordering::Relaxed) {
            out.interrupted = true;
            break;
        }
        out.rows.push(once_row(subject, options, progress));
    }
    progress.end();
    out.tables = tables(&out.rows, &bulk, &once, options, &cores);
    if volume::sector::in_software() {
        out.notes.push(SOFTWARE.to_owned());
    }
    if std::env::var_os(AWS_LC_CAPABILITIES).is_some() {
        out.notes.push(format!(
            "{AWS_LC_CAPABILITIES} disables some instructions in AWS-LC: AES-256-GCM is slower for it"
        ));
    }
    out.notes.push(format!(
        "sectors are in runs of {}; pieces above 16 KiB are sealed in units of 16 KiB, as a room does; memory: copies of a piece from one place to \
         another, in caches where it fits; a rate is that of the median batch of 1 MiB (sectors: of a run), so moments in which other \
         processes had the processor do not count; the cipher of catalog pages (SQLCipher) is not reachable in memory; {} cores",
        bytes(options.run as u64),
        options.cores
    ));
    Ok(out)
}

/// What is worked through between two looks at the clock.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    /// Bytes of one.
    size: usize,
    /// How many.
    count: usize,
}

impl Pieces {
    /// Pieces of `size` bytes, `batch` bytes of them at least.
    fn of(size: usize, batch: usize) -> Pieces {
        let count = batch.div_ceil(size);
        Pieces { size, count }
    }

    fn bytes(self) -> u64 {
        self.size as u64 * self.count as u64
    }
}

fn work(name: &str, size: usize, cores: usize) -> String {
    format!("{name}, {}, {}", bytes(size as u64), of_cores(cores))
}

fn of_cores(cores: usize) -> String {
    match cores {
        1 => "one core".to_owned(),
        n => format!("{n} cores"),
    }
}

fn bulk_row(
    subject: &Bulk,
    pieces: Pieces,
    cores: usize,
    options: &Options,
    copy: Option<f64>,
    progress: &dyn Progress,
) -> Row {
    let work = work(&subject.name, pieces.size, cores);
    progress.row(&work);
    let rounds: Vec<Round> = (1..=options.rounds)
        .map(|done| {
            let mut round = bulk_round(subject, pieces, cores, options.seconds);
            if let Some(copy) = copy.filter(|copy| round.rate > *copy * ABOVE_COPY) {
                round.issues.push(Issue {
                    kind: IssueKind::FasterThanPhysics,
                    said: format!(
                        "{} MB/s is more than copying memory at its fastest, {} MB/s",
                        significant(round.rate),
                        significant(copy)
                    ),
                });
            }
            progress.advance(f64::from(done) / f64::from(options.rounds));
            round
        })
        .collect();
    row(work, Unit::MegabytesPerSecond, rounds)
}

fn row(work: String, unit: Unit, rounds: Vec<Round>) -> Row {
    let summary = statistics::summary(&rounds, false);
    Row {
        store: STORE.to_owned(),
        work,
        unit,
        summary,
        latency: None,
        itself: None,
        verdict: Verdict {
            invalid: summary.is_none(),
            issues: Vec::new(),
        },
        rounds,
    }
}

fn bulk_round(subject: &Bulk, pieces: Pieces, cores: usize, seconds: f64) -> Round {
    let barrier = Barrier::new(cores);
    let workers: Vec<Vec<u64>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    let mut run = (subject.make)(pieces.size, pieces.count);
                    // Once for nothing: pages are touched, keys are expanded.
                    run(&SystemClock);
                    barrier.wait();
                    let (began, mut batches) = (SystemClock.raw_ns(), Vec::new());
                    let until = (seconds * 1e9) as u64;
                    while batches.is_empty() || SystemClock.raw_ns() - began < until {
                        batches.push(run(&SystemClock));
                    }
                    batches
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a cipher does not panic"))
            .collect()
    });
    let batches: u64 = workers.iter().map(|batches| batches.len() as u64).sum();
    let rate = workers
        .iter()
        .map(|batches| pieces.bytes() as f64 / middle(batches).max(1.0) * 1e3)
        .sum();
    let longest = workers.iter().map(|batches| batches.iter().sum());
    Round {
        rate,
        operations: batches * pieces.count as u64,
        bytes: batches * pieces.bytes(),
        seconds: longest.max().unwrap_or(0_u64) as f64 / 1e9,
        ..Round::default()
    }
}

/// The median: a batch is shorter than another process's turn on the processor, so most batches had it to themselves.
fn middle(batches: &[u64]) -> f64 {
    let batches: Vec<f64> = batches.iter().map(|ns| *ns as f64).collect();
    statistics::median(&batches).unwrap_or(0.0)
}

fn once_row(subject: &Once, options: &Options, progress: &dyn Progress) -> Row {
    progress.row(subject.name);
    let rounds = (1..=options.rounds)
        .map(|done| {
            let (began, mut calls) = (SystemClock.raw_ns(), 0);
            let until = (options.seconds * 1e9) as u64;
            let mut ns = 0;
            while calls == 0 || ns < until {
                (subject.run)();
                calls += 1;
                ns = SystemClock.raw_ns() - began;
            }
            progress.advance(f64::from(done) / f64::from(options.rounds));
            let seconds = ns as f64 / 1e9;
            Round {
                rate: seconds / calls as f64,
                operations: calls,
                seconds,
                ..Round::default()
            }
        })
        .collect();
    row(subject.name.to_owned(), Unit::Seconds, rounds)
}

fn tables(
    rows: &[Row],
    bulk: &[Bulk],
    once: &[Once],
    options: &Options,
    cores: &[usize],
) -> Vec<PublishedTable> {
    let median = |work: &str| {
        let row = rows.iter().find(|row| row.work == work)?;
        Some(row.summary.map(|of| of.median))
    };
    let cell = |found: Option<Option<f64>>, shown: &dyn Fn(f64) -> String| match found {
        None => NOTHING.to_owned(),
        Some(None) => "INVALID".to_owned(),
        Some(Some(value)) => shown(value),
    };
    let mut tables: Vec<PublishedTable> = cores
        .iter()
        .map(|&cores| PublishedTable {
            title: format!("In memory, MB/s, {}", of_cores(cores)),
            source: "measured here, none published".to_owned(),
            columns: options.sizes.iter().map(|s| bytes(*s as u64)).collect(),
            rows: bulk
                .iter()
                .map(|subject| TableRow {
                    name: subject.name.clone(),
                    cells: options
                        .sizes
                        .iter()
                        .map(|size| cell(median(&work(&subject.name, *size, cores)), &significant))
                        .collect(),
                })
                .collect(),
        })
        .collect();
    tables.extend(cores.iter().map(|&cores| {
        let title = format!("Ciphers of sectors in memory, MB/s, {}", of_cores(cores));
        sectors::table(title, &|name| {
            cell(median(&work(name, options.run, cores)), &significant)
        })
    }));
    tables.push(PublishedTable {
        title: "Keys, time of one, one core".to_owned(),
        source: "measured here, none published".to_owned(),
        columns: vec!["time".to_owned(), "what".to_owned()],
        rows: once
            .iter()
            .map(|subject| TableRow {
                name: subject.name.to_owned(),
                cells: vec![
                    cell(median(subject.name), &|seconds| time_ns(seconds * 1e9)),
                    subject.what.clone(),
                ],
            })
            .collect(),
    });
    tables
}

#[cfg(test)]
mod tests;
