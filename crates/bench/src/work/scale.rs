//! How the cost of a room grows: with the files in one directory and in many, with the length of one file, and with how full its
//! disk is.
//!
//! 1. Each operation is a [`step`] in a process of its own: its memory at the peak is that of this operation on this room.
//! 2. A size is a new room, which the steps leave as they found it; it is removed before the next one is made.
//! 3. Opening after a crash follows a process that filled the log and ended without closing the room.
//!
//! It deliberately does not know how a step is started: that is the caller's.

mod growth;
mod seam;
pub mod step;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use self::growth::{Point, Series};
use self::step::{Answer, Contents, Operation, Request, Step};
use super::{Outcome, is_selected};
use crate::model::{Round, Row, StoreFacts, Unit};
use crate::progress::Progress;
use crate::validity::{self, Limits};
use crate::words::bytes;
use crate::{Error, Result, observe, statistics};

/// The label of the one store there is.
pub const STORE: &str = "room";
/// Smallest sizes, and the factor to the next.
const FILES_LEAST: u64 = 1000;
const FILES_FACTOR: u64 = 10;
const BYTES_LEAST: u64 = 1 << 20;
const BYTES_FACTOR: u64 = 16;
/// Files in a directory, where there are many.
const IN_EACH: u64 = 100;
/// How full the disk is, per cent.
const FULL: [u64; 6] = [1, 10, 50, 80, 90, 95];

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most files.
    pub max_files: u64,
    /// Most bytes of one file.
    pub max_bytes: u64,
    /// Bytes of the disk that is filled.
    pub disk: u64,
    /// Measurements of each operation.
    pub rounds: u32,
    /// Of data and orders.
    pub seed: u64,
    /// Words of rows: all if empty.
    pub only: Vec<String>,
    /// What is done to each room.
    pub operations: Vec<Operation>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_files: 100_000,
            max_bytes: 1 << 30,
            disk: 1 << 30,
            rounds: 5,
            seed: 1,
            only: Vec::new(),
            operations: Operation::ALL.to_vec(),
        }
    }
}

/// A room to be made.
#[derive(Debug, Clone)]
struct Size {
    size: u64,
    contents: Contents,
    /// Bytes of its disk, if that is bounded.
    disk: Option<u64>,
}

/// Sizes from the least up by a factor, the last one the most that is asked for.
fn sizes(least: u64, factor: u64, most: u64) -> Vec<u64> {
    let below = std::iter::successors(Some(least), |size| size.checked_mul(factor));
    let below = below.take_while(|size| *size < most);
    below.chain([most]).collect()
}

fn series(options: &Options) -> Vec<(&'static str, Vec<Size>)> {
    let files = |each: fn(u64) -> u64| {
        let sizes = sizes(FILES_LEAST, FILES_FACTOR, options.max_files).into_iter();
        let room = move |count: u64| Size {
            size: count,
            contents: Contents::Files {
                count,
                each: each(count),
            },
            disk: None,
        };
        sizes.map(room).collect()
    };
    let length = |len: u64| Size {
        size: len,
        contents: Contents::Bytes(len),
        disk: None,
    };
    let full = |percent: u64| Size {
        size: percent,
        contents: Contents::Bytes(options.disk / 100 * percent),
        disk: Some(options.disk),
    };
    vec![
        (growth::ONE_DIRECTORY, files(|count| count)),
        (growth::MANY_DIRECTORIES, files(|_| IN_EACH)),
        (
            growth::ONE_FILE,
            sizes(BYTES_LEAST, BYTES_FACTOR, options.max_bytes)
                .into_iter()
                .map(length)
                .collect(),
        ),
        (growth::FULL, FULL.into_iter().map(full).collect()),
    ]
}

/// Does a step in a process of its own.
pub type Runner<'a> = dyn FnMut(&Request) -> Result<Answer> + 'a;

/// Measures all sizes in the empty directory `dir`, or until `stop` is set: then what is done is kept. The caller removes the
/// directory.
///
/// # Errors
/// Where a step could not be started, or failed for another reason than space.
pub fn run(
    options: &Options,
    dir: &Path,
    runner: &mut Runner<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let mut out = Outcome::default();
    out.stores.push(StoreFacts {
        label: STORE.to_owned(),
        kind: "room".to_owned(),
        target: dir.display().to_string(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..observe::store_facts(dir)
    });
    let mut all = series(options);
    let selected = |over: &str, size: &Size| -> Vec<Operation> {
        let name = |operation: &Operation| growth::work(*operation, over, size.size);
        let operations = options.operations.iter().copied();
        operations
            .filter(|operation| is_selected(&name(operation), &options.only))
            .collect()
    };
    for (over, sizes) in &mut all {
        sizes.retain(|size| !selected(over, size).is_empty());
    }
    if all.iter().all(|(_, sizes)| sizes.is_empty()) {
        return Err(Error::Usage("no row has these words".to_owned()));
    }
    let steps = all.iter().flat_map(|(over, sizes)| {
        let operations = sizes.iter().map(|size| selected(over, size).len() as u64);
        operations.map(|count| count + 1)
    });
    progress.rows(steps.sum());
    let mut key = vec![0; 32];
    // Nothing secret is ever in such a room.
    fastrand::fill(&mut key);
    for (over, sizes) in &all {
        let mut series = Series::new(over);
        for size in sizes {
            let mut room = Room {
                request: Request {
                    dir: dir.join("room"),
                    key: key.clone(),
                    disk: size.disk,
                    seed: options.seed,
                    contents: size.contents,
                    step: Step::Create,
                    expected: 0,
                },
                runner: &mut *runner,
                options,
                progress,
                stop,
            };
            let done = room.measure(over, size, &selected(over, size), &mut series, &mut out);
            room.remove()?;
            match done {
                Err(Error::Stopped) => out.interrupted = true,
                other => other?,
            }
            if out.interrupted {
                break;
            }
        }
        out.growth.extend(series.growth());
        if out.interrupted {
            break;
        }
    }
    progress.end();
    out.tables = growth::tables(&out.growth);
    out.notes.push(format!(
        "files of {}; a lookup, a create and an fsync are the mean of many in a round; memory is that of a process that opens the room and \
         does one round, its program included; the log was filled with {} changes",
        bytes(step::FILE_LEN as u64),
        step::CHANGES
    ));
    Ok(out)
}

/// One room, from its making to its removal.
struct Room<'a, 'r> {
    request: Request,
    runner: &'a mut Runner<'r>,
    options: &'a Options,
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
}

impl Room<'_, '_> {
    fn step(&mut self, step: Step) -> Result<Answer> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        self.request.step = step;
        (self.runner)(&self.request)
    }

    fn measure(
        &mut self,
        over: &str,
        size: &Size,
        operations: &[Operation],
        series: &mut Series,
        out: &mut Outcome,
    ) -> Result<()> {
        let words = growth::size_words(over, size.size);
        self.progress.row(&format!("creating a room: {words}"));
        let made = self.step(Step::Create)?;
        out.notes
            .extend(made.full.map(|why| format!("{words}: {why}")));
        self.progress.advance(1.0);
        for &operation in operations {
            let work = growth::work(operation, over, size.size);
            self.progress.row(&work);
            let rounds = self.rounds(operation)?;
            self.progress.advance(1.0);
            let full = rounds.iter().find_map(|answer| answer.full.clone());
            if let Some(why) = full {
                out.notes.push(format!("{work}: left out: {why}"));
                continue;
            }
            let row = row(work, &rounds, self.options.rounds);
            series.add(operation, Point::new(size.size, &row, &rounds));
            out.rows.push(row);
        }
        Ok(())
    }

    fn rounds(&mut self, operation: Operation) -> Result<Vec<Answer>> {
        let mut rounds = Vec::new();
        for number in 0..self.options.rounds {
            // Another order in each.
            self.request.seed = self.options.seed.wrapping_add(u64::from(number));
            let answer = self.round(operation)?;
            let full = answer.full.is_some();
            rounds.push(answer);
            if full {
                break;
            }
        }
        Ok(rounds)
    }

    fn round(&mut self, operation: Operation) -> Result<Answer> {
        if operation == Operation::OpenAfterCrash {
            let filled = self.step(Step::FillLog)?;
            if filled.full.is_some() {
                return Ok(filled);
            }
            self.request.expected = filled.acknowledged;
        }
        self.step(Step::Measure(operation))
    }

    fn remove(&self) -> Result<()> {
        let dir: &PathBuf = &self.request.dir;
        match std::fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(dir, "removing a measured room", e))
            }
            _ => Ok(()),
        }
    }
}

fn row(work: String, answers: &[Answer], asked: u32) -> Row {
    let rounds: Vec<Round> = answers
        .iter()
        .filter_map(|answer| answer.round.clone())
        .collect();
    let usual = Limits::default();
    let limits = Limits {
        rounds_min: usual.rounds_min.min(asked as usize),
        ..usual
    };
    let verdict = validity::of_row(&rounds, &limits);
    Row {
        store: STORE.to_owned(),
        work,
        unit: Unit::Seconds,
        summary: statistics::summary(&rounds, false).filter(|_| !verdict.invalid),
        latency: None,
        itself: None,
        verdict,
        rounds,
    }
}

#[cfg(test)]
mod tests;
