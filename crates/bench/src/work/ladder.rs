//! 2 MB into one file of a room, through the library, step by step in larger calls and fewer commits.
//!
//! 1. The time of a rung ends when everything written is durable, however often it was committed on the way.
//! 2. A rung that takes longer than it may is cut: its time is no time of the whole, and it is INVALID, whatever its rounds before took.
//! 3. What was written is read back and compared, outside the time.
//! 4. Each round is watched and judged as every other round is, but for its length.
//!
//! It deliberately does not know the published times: it gives each rung's row to [`published::ladder`].

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use room::{
    Argon2Cost, FileSystem as _, NewCredential, NewRoom, OpenOptions, Room, RoomFile, Secret,
};

use super::Outcome;
use crate::clock::Clock;
use crate::data::{BLOCK, Content, Data};
use crate::model::{Issue, IssueKind, Parts, Round, Row, StoreFacts, Unit, Verdict};
use crate::observe::{self, Ceilings, Observer};
use crate::progress::Progress;
use crate::published::{self, LadderStep};
use crate::spans::Spans;
use crate::validity::{self, Claim, Direction, Limits};
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
    /// When a check fires.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes: 2 << 20,
            calls: vec![256, 4 << 10, 8 << 10, 128 << 10],
            rounds: 3,
            seconds: 60.0,
            seed: 1,
            // A rung is as long as it is, and one round of it may be all there is.
            limits: Limits {
                seconds_min: 0.0,
                operations_min: 1,
                rounds_min: 1,
                ..Limits::default()
            },
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
    clock: &dyn Clock,
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
            let round = climb(
                &room,
                &dir.join("room"),
                rung,
                options,
                number,
                (clock, stop),
            )?;
            let cut = ends(&round);
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
        let verdict = judged(&rounds, &options.limits);
        if let (Some(spans), Some(before)) = (spans, before) {
            let calls = rounds.iter().map(|round| round.operations).sum();
            let ns = rounds.iter().map(|round| round.seconds * 1e9).sum::<f64>();
            let came = spans.snapshot().since(&before);
            out.parts.push(Parts {
                invalid: verdict.invalid,
                ..came.parts(STORE, &work, calls, ns as u64)
            });
        }
        let row = Row {
            store: STORE.to_owned(),
            work,
            unit: Unit::Seconds,
            summary: (!verdict.invalid)
                .then(|| statistics::summary(&rounds, true))
                .flatten(),
            latency: None,
            itself: None,
            verdict,
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

/// Whether nothing more of this rung is measured, and the rung is INVALID: it was cut, or its data was lost.
fn ends(round: &Round) -> bool {
    let kinds = [IssueKind::TooShort, IssueKind::WrongData];
    round.issues.iter().any(|issue| kinds.contains(&issue.kind))
}

/// Whether a rung has a time: as any other row, and none of its rounds may have ended it.
fn judged(rounds: &[Round], limits: &Limits) -> Verdict {
    let mut verdict = validity::of_row(rounds, limits);
    verdict.invalid |= rounds.iter().any(ends);
    verdict
}

fn make_room(dir: &Path, state: &Path) -> Result<Room> {
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: Secret::from(b"measuring".to_vec()),
        cost: Argon2Cost::LEAST,
    });
    new.open = OpenOptions::with_state_dir(state);
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
    /// Those that were waited for, one after the other.
    syncs: u64,
}

impl Write for Calls {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(data)?;
        if self.each {
            self.file.sync().map_err(std::io::Error::other)?;
            self.syncs += 1;
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn climb(
    room: &Room,
    dir: &Path,
    rung: Rung,
    options: &Options,
    number: u32,
    (clock, stop): (&dyn Clock, &AtomicBool),
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
        syncs: 0,
    };
    let limit = (options.seconds * 1e9) as u64;
    let observer = Observer::new(observe::Subject {
        path: dir.to_owned(),
        backing: vec![dir.to_owned()],
        servers: Vec::new(),
    });

    let watch = observer.begin(clock, &[]);
    let began = watch.began_ns();
    let written = if rung.buffered {
        let mut buffer = BufWriter::with_capacity(BUFFER, calls);
        write_all(&mut buffer, &content, rung.call, began, limit, clock, stop).and_then(|done| {
            Spans::operation(|| buffer.flush())?;
            Ok((done, buffer.into_inner().map_err(|e| e.into_error())?))
        })
    } else {
        let mut calls = calls;
        write_all(&mut calls, &content, rung.call, began, limit, clock, stop)
            .map(|done| (done, calls))
    };
    let (written, calls) = written.map_err(|e| failed(&e))?;
    Spans::operation(|| calls.file.sync()).map_err(|e| failed(&e))?;
    let evidence = watch.finish(&[]);

    let seconds = evidence.seconds();
    let back = room.read_file(&name).map_err(|e| failed(&e))?;
    let wrong = back != content[..written];
    let claim = Claim {
        direction: Direction::Write,
        operations: written.div_ceil(rung.call) as u64,
        bytes: written as u64,
        durable: true,
        syncs: calls.syncs,
        compared_bytes: written as u64,
        wrong_bytes: if wrong { written as u64 } else { 0 },
        ..Claim::default()
    };
    let mut round = Round {
        rate: seconds,
        operations: claim.operations,
        bytes: claim.bytes,
        seconds,
        cpu_s: evidence.cpu_s,
        device_read_bytes: evidence.bottom().map(|device| device.did.read_bytes),
        device_written_bytes: evidence.bottom().map(|device| device.did.written_bytes),
        issues: validity::of_round(&evidence, &claim, &Ceilings::default(), &options.limits),
        ..Round::default()
    };
    if written < content.len() {
        let cut = Issue {
            kind: IssueKind::TooShort,
            said: format!(
                "cut after {} s: {} of {} were written",
                significant(seconds),
                bytes(written as u64),
                bytes(content.len() as u64)
            ),
        };
        round.issues.insert(0, cut);
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
    clock: &dyn Clock,
    stop: &AtomicBool,
) -> std::io::Result<usize> {
    let mut written = 0;
    for piece in content.chunks(call) {
        Spans::operation(|| to.write_all(piece))?;
        written += piece.len();
        if stop.load(Ordering::Relaxed) || clock.raw_ns() - began > limit {
            break;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Reading, SystemClock};
    use crate::progress::Quiet;

    /// Passes twice the time.
    struct Double;

    impl Clock for Double {
        fn read(&self) -> Reading {
            let real = SystemClock.read();
            Reading {
                raw_ns: 2 * real.raw_ns,
                ..real
            }
        }
    }

    /// What other processes and the host do is not what these tests are about.
    fn bears_others() -> Limits {
        Limits {
            foreign_share: f64::INFINITY,
            stolen_share: f64::INFINITY,
            ..Options::default().limits
        }
    }

    fn tiny() -> Options {
        Options {
            bytes: 20_000,
            calls: vec![256, 8 << 10],
            rounds: 2,
            limits: bears_others(),
            ..Options::default()
        }
    }

    fn climbed(options: &Options, dir: &Path) -> Outcome {
        let stop = AtomicBool::new(false);
        run(options, dir, &SystemClock, None, &Quiet, &stop).unwrap()
    }

    #[test]
    fn every_rung_is_climbed_and_what_it_wrote_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let out = climbed(&tiny(), dir.path());
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
        let out = climbed(&options, dir.path());
        let row = &out.rows[0];
        assert!(row.verdict.invalid && row.summary.is_none());
        assert_eq!(row.rounds.len(), 1);
        assert_eq!(row.rounds[0].issues[0].kind, IssueKind::TooShort);
        assert_eq!(row.rounds[0].bytes, 256);
    }

    /// What failed: two fast rounds and one that was cut were a valid rung, with the time of the fast ones.
    #[test]
    fn one_round_that_was_cut_or_lost_data_leaves_the_rung_without_a_time() {
        let round = |kind: Option<IssueKind>| Round {
            rate: 1.0,
            seconds: 1.0,
            operations: 100,
            issues: kind
                .map(|kind| Issue {
                    kind,
                    said: "seen".into(),
                })
                .into_iter()
                .collect(),
            ..Round::default()
        };
        for (kind, invalid) in [
            (None, false),
            (Some(IssueKind::TooShort), true),
            (Some(IssueKind::WrongData), true),
            // Not this rung's fault: the others of its rounds are as good as before.
            (Some(IssueKind::StolenTime), false),
        ] {
            let rounds = [round(None), round(None), round(kind)];
            let verdict = judged(&rounds, &Options::default().limits);
            assert_eq!(verdict.invalid, invalid, "{kind:?}");
            assert_eq!(verdict.issues.len(), usize::from(kind.is_some()));
        }
    }

    /// What failed: alone of all rounds those of the ladder were watched by nobody.
    #[test]
    fn rounds_are_watched_and_a_wrong_clock_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let out = run(&tiny(), dir.path(), &Double, None, &Quiet, &stop).unwrap();
        for row in &out.rows {
            assert!(row.verdict.invalid && row.summary.is_none(), "{row:?}");
            // Another time does better, perhaps.
            assert_eq!(row.rounds.len(), 2);
            let issues = row.rounds.iter().flat_map(|round| &round.issues);
            let kinds: Vec<_> = issues.map(|issue| issue.kind).collect();
            assert!(kinds.contains(&IssueKind::ClocksDisagree), "{kinds:?}");
        }
        assert!(out.rows[0].rounds[0].cpu_s.is_some());
    }

    #[test]
    fn a_ladder_that_is_stopped_keeps_what_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let out = run(
            &tiny(),
            dir.path(),
            &SystemClock,
            None,
            &Quiet,
            &AtomicBool::new(true),
        )
        .unwrap();
        assert!(out.interrupted && out.rows.is_empty());
    }
}
