//! 2 MB into one file of a room, through the library, step by step in larger calls and fewer commits.
//!
//! 1. The time of a rung ends when everything written is durable, however often it was committed on the way.
//! 2. A rung that takes longer than it may is cut: its time is no time of the whole, and it is INVALID.
//! 3. What was written is read back and compared, outside the time.
//!
//! It deliberately does not know the published times: it gives each rung's row to [`published::ladder`].

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use room::{
    Argon2Cost, FileSystem as _, NewCredential, NewRoom, OpenOptions, Room, RoomFile, Secret,
};

use super::Outcome;
use crate::clock::{Clock, SystemClock};
use crate::data::{BLOCK, Content, Data};
use crate::model::{Issue, IssueKind, Round, Row, StoreFacts, Unit, Verdict};
use crate::progress::Progress;
use crate::published::{self, LadderStep};
use crate::spans::Spans;
use crate::words::{bytes, significant};
use crate::{Error, Result, statistics};

/// The label of the one store there is.
pub const STORE: &str = "room";
/// Bytes of the buffer that calls are gathered in: what a buffered stream has in Java, in which the published ones were made.
const BUFFER: usize = 8192;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes written on every rung.
    pub bytes: usize,
    /// Bytes a call.
    pub calls: Vec<usize>,
    /// Measurements of each rung.
    pub rounds: u32,
    /// Longest time of one measurement, seconds.
    pub seconds: f64,
    /// Of the data.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes: 2 << 20,
            calls: vec![256, 4 << 10, 8 << 10, 128 << 10],
            rounds: 3,
            seconds: 60.0,
            seed: 1,
        }
    }
}

/// How a rung is climbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rung {
    call: usize,
    each: bool,
    buffered: bool,
}

impl Rung {
    fn words(self, total: usize) -> String {
        format!(
            "{} in calls of {}, {}, {}",
            bytes(total as u64),
            bytes(self.call as u64),
            if self.buffered {
                "buffered"
            } else {
                "no buffer"
            },
            if self.each {
                "a commit a call"
            } else {
                "one commit"
            },
        )
    }
}

/// From the slowest to the fastest, as published. A call that fills the buffer goes past it: that is no rung of its own.
fn rungs(options: &Options) -> Vec<Rung> {
    let mut all = Vec::new();
    for &call in &options.calls {
        for each in [true, false] {
            for buffered in [false, true] {
                if !buffered || call < BUFFER {
                    all.push(Rung {
                        call,
                        each,
                        buffered,
                    });
                }
            }
        }
    }
    all
}

/// Climbs all rungs on a room created in the empty directory `dir`, or until `stop` is set: then what is done is kept. The caller
/// removes the directory.
///
/// # Errors
/// Where the room cannot be made or fails.
pub fn run(
    options: &Options,
    dir: &Path,
    spans: Option<&Spans>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let mut out = Outcome::default();
    let room = make_room(&dir.join("room"), &dir.join("state"))?;
    out.stores.push(StoreFacts {
        label: STORE.to_owned(),
        kind: "room".to_owned(),
        target: dir.display().to_string(),
        cipher: room.info().ok().map(|info| info.suite.to_string()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..StoreFacts::default()
    });
    let rungs = rungs(options);
    progress.rows(rungs.len() as u64);
    let mut measured = Vec::new();
    for rung in rungs {
        let work = rung.words(options.bytes);
        progress.row(&work);
        let before = spans.map(Spans::snapshot);
        let mut rounds = Vec::new();
        for number in 1..=options.rounds {
            if stop.load(Ordering::Relaxed) {
                out.interrupted = true;
                break;
            }
            let round = climb(&room, rung, options, number, stop)?;
            let cut = !round.is_valid();
            rounds.push(round);
            progress.advance(f64::from(number) / f64::from(options.rounds));
            if cut {
                progress.advance(1.0);
                break;
            }
        }
        if rounds.is_empty() {
            break;
        }
        if let (Some(spans), Some(before)) = (spans, before) {
            let calls = rounds.iter().map(|round| round.operations).sum();
            let ns = rounds.iter().map(|round| round.seconds * 1e9).sum::<f64>();
            let came = spans.snapshot().since(&before);
            out.parts.push(came.parts(STORE, &work, calls, ns as u64));
        }
        let summary = statistics::summary(&rounds, true);
        let row = Row {
            store: STORE.to_owned(),
            work,
            unit: Unit::Seconds,
            summary,
            latency: None,
            itself: None,
            verdict: Verdict {
                invalid: summary.is_none(),
                issues: Vec::new(),
            },
            rounds,
        };
        measured.push((rung, row));
    }
    progress.end();
    room.close()
        .map_err(|e| Error::store(STORE, format!("it could not be closed: {e}")))?;
    let steps: Vec<LadderStep<'_>> = measured
        .iter()
        .map(|(rung, row)| LadderStep {
            call: rung.call as u64,
            each: rung.each,
            buffered: rung.buffered,
            row: Some(row),
        })
        .collect();
    out.tables.push(published::ladder(&steps));
    out.rows = measured.into_iter().map(|(_, row)| row).collect();
    out.notes.push(format!(
        "buffered: through a buffer of {}, so a commit a call is then one for each time the buffer is full; calls of that \
         size and more go past it",
        bytes(BUFFER as u64)
    ));
    Ok(out)
}

fn make_room(dir: &Path, state: &Path) -> Result<Room> {
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: Secret::from(b"measuring".to_vec()),
        cost: Argon2Cost::LEAST,
    });
    new.open = OpenOptions {
        state_dir: Some(state.to_owned()),
        ..OpenOptions::default()
    };
    Room::create(dir, new).map_err(|e| {
        Error::store(
            STORE,
            format!("no room could be made in {}: {e}", dir.display()),
        )
    })
}

/// Writes to the room's file; with `each`, every write is durable when it returns.
struct Calls {
    file: RoomFile,
    each: bool,
}

impl Write for Calls {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(data)?;
        if self.each {
            self.file.sync().map_err(std::io::Error::other)?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn climb(
    room: &Room,
    rung: Rung,
    options: &Options,
    number: u32,
    stop: &AtomicBool,
) -> Result<Round> {
    let name = format!("/{}-{}-{}-{number}", rung.call, rung.each, rung.buffered);
    let failed = |e: &dyn std::fmt::Display| Error::store(STORE, format!("{name}: {e}"));
    let data = Data::new(options.seed, u64::from(number), Content::Unique);
    let mut content = vec![0; options.bytes.next_multiple_of(BLOCK)];
    data.fill(0, &mut content, |_| 0);
    content.truncate(options.bytes);
    let file = room.open_or_make_file(&name).map_err(|e| failed(&e))?;
    room.sync().map_err(|e| failed(&e))?;
    let calls = Calls {
        file,
        each: rung.each,
    };
    let limit = (options.seconds * 1e9) as u64;

    let began = SystemClock.raw_ns();
    let written = if rung.buffered {
        let mut buffer = BufWriter::with_capacity(BUFFER, calls);
        write_all(&mut buffer, &content, rung.call, began, limit, stop).and_then(|done| {
            Spans::operation(|| buffer.flush())?;
            Ok((done, buffer.into_inner().map_err(|e| e.into_error())?))
        })
    } else {
        let mut calls = calls;
        write_all(&mut calls, &content, rung.call, began, limit, stop).map(|done| (done, calls))
    };
    let (written, calls) = written.map_err(|e| failed(&e))?;
    Spans::operation(|| calls.file.sync()).map_err(|e| failed(&e))?;
    let seconds = (SystemClock.raw_ns() - began) as f64 / 1e9;

    let mut round = Round {
        rate: seconds,
        operations: written.div_ceil(rung.call) as u64,
        bytes: written as u64,
        seconds,
        ..Round::default()
    };
    if written < content.len() {
        round.issues.push(Issue {
            kind: IssueKind::TooShort,
            said: format!(
                "cut after {} s: {} of {} were written",
                significant(seconds),
                bytes(written as u64),
                bytes(content.len() as u64)
            ),
        });
    }
    let back = room.read_file(&name).map_err(|e| failed(&e))?;
    if back != content[..written] {
        round.issues.push(Issue {
            kind: IssueKind::WrongData,
            said: format!("{name} does not hold what was written to it"),
        });
    }
    room.resolve_parent(Path::new(&name))
        .and_then(|(parent, name)| room.unlink(parent, name))
        .and_then(|()| room.sync())
        .map_err(|e| failed(&e))?;
    Ok(round)
}

/// Writes in calls until all is written, time is up, or somebody stops; returns the bytes written.
fn write_all(
    to: &mut impl Write,
    content: &[u8],
    call: usize,
    began: u64,
    limit: u64,
    stop: &AtomicBool,
) -> std::io::Result<usize> {
    let mut written = 0;
    for piece in content.chunks(call) {
        Spans::operation(|| to.write_all(piece))?;
        written += piece.len();
        if stop.load(Ordering::Relaxed) || SystemClock.raw_ns() - began > limit {
            break;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Quiet;

    fn tiny() -> Options {
        Options {
            bytes: 20_000,
            calls: vec![256, 8 << 10],
            rounds: 2,
            ..Options::default()
        }
    }

    #[test]
    fn every_rung_is_climbed_and_what_it_wrote_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let out = run(&tiny(), dir.path(), None, &Quiet, &AtomicBool::new(false)).unwrap();
        // 256 bytes in four ways; 8 KiB, which fill the buffer, in two.
        assert_eq!(out.rows.len(), 6);
        for row in &out.rows {
            assert!(!row.verdict.invalid, "{row:?}");
            assert_eq!(row.rounds.len(), 2);
            assert!(row.rounds.iter().all(|round| round.bytes == 20_000));
        }
        assert_eq!(out.rows[0].rounds[0].operations, 79);
        let table = &out.tables[0];
        assert!(table.rows.len() >= 6);
        assert_eq!(out.stores[0].label, STORE);
        assert!(!out.interrupted);
    }

    #[test]
    fn a_rung_that_takes_too_long_is_cut_and_has_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            seconds: 0.0,
            ..tiny()
        };
        let out = run(&options, dir.path(), None, &Quiet, &AtomicBool::new(false)).unwrap();
        let row = &out.rows[0];
        assert!(row.verdict.invalid && row.summary.is_none());
        assert_eq!(row.rounds.len(), 1);
        assert_eq!(row.rounds[0].issues[0].kind, IssueKind::TooShort);
        assert_eq!(row.rounds[0].bytes, 256);
    }

    #[test]
    fn a_ladder_that_is_stopped_keeps_what_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let out = run(&tiny(), dir.path(), None, &Quiet, &AtomicBool::new(true)).unwrap();
        assert!(out.interrupted && out.rows.is_empty());
    }
}
