use std::sync::atomic::AtomicBool;

use super::*;
use crate::clock::{Clock, SystemClock};
// words.py: the checks' name in the model
use crate::model::IssueKind as Check;
// words.py: the name of what shows nothing
use crate::progress::Quiet as NoProgress;

/// All that one process can do: not a crash, which ends it.
fn tiny() -> Options {
    let mut operations = Operation::ALL.to_vec();
    operations.retain(|operation| *operation != Operation::OpenAfterCrash);
    Options {
        max_files: 1200,
        max_bytes: 2 << 20,
        disk: 64 << 20,
        rounds: 1,
        operations,
        ..Options::default()
    }
}

fn measured(options: &Options, clock: &dyn Clock) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = |request: &Request| step::run(request, clock);
    let stop = AtomicBool::new(false);
    let out = run(options, dir.path(), &mut runner, &NoProgress, &stop).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    out
}

fn only(words: &str) -> Options {
    Options {
        only: vec![words.to_owned()],
        ..tiny()
    }
}

fn kinds(out: &Outcome) -> Vec<Check> {
    let rounds = out.rows.iter().flat_map(|row| &row.rounds);
    rounds.flat_map(failed).collect()
}

/// The checks that a round failed.
fn failed(round: &Round) -> Vec<Check> {
    // words.py: the model's field
    let found = round.issues.iter();
    found.map(|found| found.kind).collect()
}

#[test]
fn sizes_rise_to_the_most_that_is_asked_for() {
    assert_eq!(
        sizes(1000, 10, 1_000_000),
        [1000, 10_000, 100_000, 1_000_000]
    );
    assert_eq!(sizes(1000, 10, 25_000), [1000, 10_000, 25_000]);
    assert_eq!(sizes(1000, 10, 10), [10]);
}

#[test]
fn every_operation_is_measured_on_every_size_and_finds_what_was_put_there() {
    let out = measured(&tiny(), &SystemClock);
    let wrong: Vec<_> = kinds(&out)
        .into_iter()
        .filter(|kind| *kind == Check::WrongData)
        .collect();
    assert!(wrong.is_empty(), "{:?}", out.rows);
    for over in [
        "1,200 files in one directory",
        "1,200 files in many directories",
        "2 MiB in one file",
    ] {
        for operation in tiny().operations {
            let work = format!("{}, {over}", operation.name());
            assert!(out.rows.iter().any(|row| row.work == work), "{work}");
        }
    }
    // A full disk may leave out what needs space, and says so.
    let full = out
        .growth
        .iter()
        .find(|of| of.over == growth::FULL && of.operation == "open");
    assert!(full.unwrap().points.len() >= 4, "{:?}", out.notes);
    assert!(
        out.notes.iter().any(|note| note.contains("was full at")),
        "{:?}",
        out.notes
    );
    for of in &out.growth {
        for point in &of.points {
            assert!(out.rows.iter().any(|row| row.work == point.work));
        }
    }
    assert_eq!(out.tables.len(), 8);
}

#[test]
fn a_clock_that_runs_too_fast_is_caught() {
    struct Fast;
    impl Clock for Fast {
        fn read(&self) -> crate::clock::Reading {
            let real = SystemClock.read();
            crate::clock::Reading {
                raw_ns: real.raw_ns * 2,
                ..real
            }
        }
    }
    let out = measured(&only("check one file"), &Fast);
    assert!(
        kinds(&out).contains(&Check::ClocksDisagree),
        "{:?}",
        out.rows
    );
    assert!(
        out.rows
            .iter()
            .all(|row| row.verdict.invalid && row.summary.is_none())
    );
    assert!(
        out.growth[0]
            .points
            .iter()
            .all(|point| point.seconds.is_none())
    );
    assert!(out.tables[0].rows[0].cells[0] == "INVALID");
}

#[test]
fn a_room_that_lost_a_file_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let mut request = Request {
        dir: dir.path().join("room"),
        key: vec![7; 32],
        disk: None,
        seed: 1,
        contents: Contents::Files {
            count: 20,
            each: 10,
        },
        step: Step::Create,
        expected: 0,
    };
    step::run(&request, &SystemClock).unwrap();
    request.step = Step::Measure(Operation::Check);
    let wrong = |request: &Request| {
        let answer = step::run(request, &SystemClock).unwrap();
        failed(&answer.round.unwrap()).contains(&Check::WrongData)
    };
    assert!(!wrong(&request));
    // The process expects a file more than there is.
    request.contents = Contents::Files {
        count: 21,
        each: 10,
    };
    assert!(wrong(&request));
}

#[test]
fn what_is_stopped_keeps_what_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let mut steps = 0;
    let mut runner = |request: &Request| {
        steps += 1;
        stop.store(steps == 3, Ordering::Relaxed);
        step::run(request, &SystemClock)
    };
    let out = run(&tiny(), dir.path(), &mut runner, &NoProgress, &stop).unwrap();
    assert!(out.interrupted);
    assert_eq!(out.rows.len(), 2);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// It was measured all the same, and what it found was called wrong: no record was expected.
#[test]
fn a_log_that_finds_no_space_is_left_out() {
    let options = Options {
        operations: vec![Operation::OpenAfterCrash],
        ..only("crash, 90 per cent")
    };
    let mut runner = |request: &Request| match request.step {
        Step::Create => Ok(Answer::default()),
        Step::FillLog => Ok(Answer {
            full: Some("too full".to_owned()),
            ..Answer::default()
        }),
        Step::Measure(_) => panic!("the log was not filled"),
    };
    let (dir, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
    let out = run(&options, dir.path(), &mut runner, &NoProgress, &stop).unwrap();
    assert!(out.rows.is_empty());
    let left_out = |note: &String| note.ends_with("left out: too full");
    assert_eq!(out.notes.iter().filter(|note| left_out(note)).count(), 1);
}
