//! Rounds of several stores in turns, so that whatever changes while it runs (a disk that warms up, a neighbour that wakes)
//! strikes all of them alike.
//!
//! 1. Two stores take turns A B, B A, A B, …; of more, each is first, second, … about equally often.
//! 2. The first store may take two turns in each round: what it shows against itself is the noise of that work, at that time.
//! 3. A work that a store cannot do is noted and left out; one that fails ends the run, and what was measured is kept.

use std::path::Path;

use hdrhistogram::Histogram;

use crate::engine::distribution;
use crate::model::{Comparison, Issue, Itself, Report, Round, Row};
use crate::observe::{Ceilings, ceilings};
use crate::progress::Progress;
use crate::run_file::Run;
use crate::statistics;
use crate::validity::{self, Limits, Zeros};
use crate::work::{Bed, Context, RowName, Work};
use crate::{Error, Result};

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A row for each store and work, works in the order given.
    pub rows: Vec<Row>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Whether it was stopped.
    pub interrupted: bool,
    /// What ended it before all was done, other than being stopped.
    pub failed: Option<Error>,
}

/// Measures every work on every store, `rounds` times each; the first store twice as often where its `noise` is asked for.
pub fn measure(
    beds: &mut [Bed],
    works: &[Box<dyn Work>],
    (rounds, noise): (u32, bool),
    context: &Context<'_>,
    progress: &dyn Progress,
) -> Outcome {
    let mut outcome = Outcome::default();
    for work in works {
        let mut turns: Vec<usize> = (0..beds.len())
            .filter(|at| match work.impossible(beds[*at].powers()) {
                None => true,
                Some(why) => {
                    let rows = work.rows();
                    let note = format!("{}: not measured: {why}", rows[0].work);
                    beds[*at].note(note);
                    false
                }
            })
            .collect();
        let again = noise && turns.first() == Some(&0);
        if again {
            turns.push(0);
        }
        let mut taken: Vec<Taken> = turns.iter().map(|_| Taken::default()).collect();
        let ended = one_work(beds, &turns, &**work, rounds, context, progress, &mut taken);
        let second = if again { taken.pop() } else { None };
        let rows_of =
            |taken: Taken, at: usize| taken.rows(beds[at].label(), &work.rows(), &context.limits);
        let mut rows: Vec<Row> = Vec::new();
        for (taken, at) in taken.into_iter().zip(&turns) {
            rows.extend(rows_of(taken, *at));
        }
        let second = second.map_or_else(Vec::new, |taken| rows_of(taken, 0));
        for (row, second) in rows.iter_mut().zip(second) {
            row.itself = against_itself(row, second);
            if row.itself.is_none() && row.summary.is_some() {
                outcome.notes.push(format!(
                    "{}: the noise floor could not be measured",
                    row.work
                ));
            }
        }
        outcome.rows.extend(rows);
        match ended {
            Ok(()) => {}
            Err(Error::Stopped) => {
                outcome.interrupted = true;
                break;
            }
            Err(error) => {
                outcome.failed = Some(error);
                break;
            }
        }
    }
    for bed in beds {
        outcome.notes.extend(bed.take_notes());
    }
    outcome
}

/// What a row shows against the second turns of the same store; `None` where either has no valid round.
fn against_itself(first: &Row, second: Row) -> Option<Itself> {
    let found = statistics::compare(first, &second, 1.0);
    Some(Itself {
        ratio: found.ratio?,
        low: found.low?,
        high: found.high?,
        rounds: second.rounds,
    })
}

/// Steps of [`measure`], for a bar.
pub fn steps(beds: &[Bed], works: &[Box<dyn Work>], (rounds, noise): (u32, bool)) -> u64 {
    let turns = |work: &dyn Work| {
        let can = |bed: &&Bed| work.impossible(bed.powers()).is_none();
        let again = noise && beds.first().as_ref().is_some_and(can);
        beds.iter().filter(can).count() as u64 + u64::from(again)
    };
    works.iter().map(|work| turns(&**work)).sum::<u64>() * u64::from(rounds)
}

fn one_work(
    beds: &mut [Bed],
    turns: &[usize],
    work: &dyn Work,
    rounds: u32,
    context: &Context<'_>,
    progress: &dyn Progress,
    taken: &mut [Taken],
) -> Result<()> {
    for round in 0..rounds {
        for turn in order(turns.len(), round) {
            let bed = &mut beds[turns[turn]];
            let rows = work.rows();
            progress.row(&format!(
                "{}: {}, round {} of {rounds}",
                rows[0].work,
                bed.label(),
                round + 1
            ));
            for (row, measured) in work.round(bed, context)?.into_iter().enumerate() {
                taken[turn].add(row, measured.round, measured.latency);
            }
            progress.advance(1.0);
        }
    }
    Ok(())
}

/// In which order `count` stores are measured in a round: forwards, backwards, and, of more than two, shifted by one after
/// each such pair.
pub fn order(count: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if count > 0 {
        order.rotate_left((round as usize / 2) % count);
    }
    // Two stores: turning and rotating would undo each other.
    if count == 2 {
        order.sort_unstable();
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Rounds of one store and work.
#[derive(Debug, Default)]
struct Taken {
    rows: Vec<(Vec<Round>, Vec<Histogram<u64>>)>,
}

impl Taken {
    fn add(&mut self, row: usize, round: Round, latency: Histogram<u64>) {
        while self.rows.len() <= row {
            self.rows.push(Default::default());
        }
        self.rows[row].0.push(round);
        self.rows[row].1.push(latency);
    }

    fn rows(self, store: &str, names: &[RowName], limits: &Limits) -> Vec<Row> {
        self.rows
            .into_iter()
            .zip(names)
            .map(|((rounds, latencies), name)| {
                let valid = rounds
                    .iter()
                    .zip(&latencies)
                    .filter(|(round, _)| round.is_valid())
                    .map(|(_, latency)| latency);
                Row {
                    store: store.to_owned(),
                    work: name.work.clone(),
                    unit: name.unit,
                    summary: statistics::summary(&rounds, name.writes),
                    latency: distribution(valid),
                    verdict: validity::of_row(&rounds, limits),
                    itself: None,
                    rounds,
                }
            })
            .collect()
    }
}

/// Every row of every other store against the first store's; a difference is seen where it is wider than what the first shows
/// against itself.
pub fn comparisons(report: &Report, labels: &[String]) -> Vec<Comparison> {
    let Some((base, others)) = labels.split_first() else {
        return Vec::new();
    };
    let rows = &report.rows;
    let of = |store: &str, work: &str| {
        rows.iter()
            .find(|row| row.store == store && row.work == work)
    };
    let bases: Vec<&Row> = rows.iter().filter(|row| row.store == *base).collect();
    bases
        .into_iter()
        .flat_map(|row| {
            let noise = statistics::noise(report, &row.work);
            others.iter().filter_map(move |other| {
                Some(statistics::compare(row, of(other, &row.work)?, noise))
            })
        })
        .collect()
}

/// Lower end of the interval of how much faster zeros go.
fn ratio_low(data: &Row, zeros: &Row) -> Option<f64> {
    let zeros = Row {
        work: data.work.clone(),
        ..zeros.clone()
    };
    statistics::compare(data, &zeros, 1.0).low
}

/// Judges the passes of zeros: adds what they reveal to the verdict of the same work with data. The rows of zeros stay.
pub fn judge_zeros(rows: &mut [Row], limits: &Limits) {
    const ZEROS: &str = ", zeros";
    let amplification = |row: &Row| row.summary.and_then(|summary| summary.write_amplification);
    let found: Vec<(String, String, Issue)> = rows
        .iter()
        .filter_map(|zeros| {
            let work = zeros.work.strip_suffix(ZEROS)?;
            let data = rows
                .iter()
                .find(|row| row.store == zeros.store && row.work == work)?;
            let passes = Zeros {
                data_rate: data.summary?.median,
                zeros_rate: zeros.summary?.median,
                ratio_low: ratio_low(data, zeros),
                data_amplification: amplification(data),
                zeros_amplification: amplification(zeros),
            };
            let issue = validity::data_matters(&passes, limits)?;
            Some((zeros.store.clone(), work.to_owned(), issue))
        })
        .collect();
    for (store, work, issue) in found {
        if let Some(row) = rows
            .iter_mut()
            .find(|row| row.store == store && row.work == work)
        {
            row.verdict.issues.push(issue);
        }
    }
}

/// Bytes of the file on which the ceilings are measured.
const CEILING_BYTES: u64 = 64 << 20;

/// Measures what memory can do at most, and what the device beneath `bed` can, on a file made in the store's own
/// neighbourhood and removed again. What cannot be measured stays `None`.
///
/// # Errors
/// Where a work directory cannot be made.
pub fn measure_ceilings(bed: &mut Bed, run: &std::sync::Arc<Run>, memory_copy: f64) -> Result<()> {
    let mut found = Ceilings {
        memory_copy: Some(memory_copy),
        ..Ceilings::default()
    };
    let at = bed.store().backing().or_else(|| bed.store().path());
    match at {
        // One object that was there: it is only read.
        Some(path) if bed.powers().single => {
            found.device_read = best(|| ceilings::device_read(&path, CEILING_BYTES));
        }
        Some(path) => {
            let beside = path.parent().unwrap_or(Path::new("/"));
            let mut work = run.directory(beside)?;
            if let Ok(file) = ceiling_file(&work.path().join("ceiling")) {
                found.device_write = best(|| ceilings::file_write(&file, CEILING_BYTES));
                found.sync_ns = ceilings::sync_ns(&file).ok();
                let path = work.path().join("ceiling");
                found.device_read = best(|| ceilings::device_read(&path, CEILING_BYTES));
            }
            work.remove()?;
        }
        None => {}
    }
    bed.ceilings = found;
    Ok(())
}

/// The best of some tries: on a busy machine a ceiling is easily measured too low, and would mark honest numbers as INVALID.
fn best(measure: impl Fn() -> std::io::Result<f64>) -> Option<f64> {
    const TRIES: u32 = 3;
    (0..TRIES).filter_map(|_| measure().ok()).reduce(f64::max)
}

/// A file with data, open for direct calls.
fn ceiling_file(path: &Path) -> std::io::Result<std::fs::File> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut plain = options.open(path)?;
    let data = crate::data::Data::new(fastrand::u64(..), 9, crate::data::Content::Unique);
    let mut piece = vec![0; 1 << 20];
    for at in (0..CEILING_BYTES).step_by(piece.len()) {
        data.fill(at, &mut piece, |_| 0);
        plain.write_all(&piece)?;
    }
    plain.sync_all()?;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stores_take_turns_a_b_b_a() {
        let turns: Vec<_> = (0..4).map(|round| order(2, round)).collect();
        assert_eq!(turns, [[0, 1], [1, 0], [0, 1], [1, 0]]);
    }

    #[test]
    fn of_more_each_is_first_and_last_equally_often() {
        for count in 3..6 {
            let (mut first, mut last) = (vec![0; count], vec![0; count]);
            for round in 0..2 * count as u32 {
                let order = order(count, round);
                first[order[0]] += 1;
                last[order[count - 1]] += 1;
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            }
            assert_eq!(first, vec![2; count]);
            assert_eq!(last, vec![2; count]);
        }
    }
}
