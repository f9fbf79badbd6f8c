//! The explorer itself: it finds planted faults, reports them with a command that reproduces them, and finds none in a room.

use std::sync::Arc;

use explorer::campaign::Bounds;
use explorer::explore::{Failure, Options, Report, Subject, explore, replay};
use explorer::faults::kills;
use explorer::image::Image;
use explorer::receiver_subject::{ReceiverSubject, receiving};
use explorer::record::Recorder;
use explorer::room_subject::RoomSubject;
use explorer::sites::{Site, Watch};
use explorer::states::Limits;
use explorer::without;
use explorer::workload::{Workload, ahead, grants, keys, ones, random, snapshots, together, twos};
use storage::{OpenMode, Storage, read_limited};

/// A file that is replaced step by step, carefully but for what is left out.
#[derive(Debug, Clone, Copy)]
struct Replacing {
    without_sync: bool,
    /// Opening rewrites the file in place.
    careless_recovery: bool,
}

const CAREFUL: Replacing = Replacing {
    without_sync: false,
    careless_recovery: false,
};

fn version(n: usize) -> Vec<u8> {
    vec![b'0' + n as u8; 1500]
}

fn failed(e: std::io::Error) -> Failure {
    Failure(e.to_string())
}

impl Subject for Replacing {
    type State = Vec<u8>;

    fn name(&self) -> String {
        "replacing".into()
    }

    fn steps(&self) -> Vec<String> {
        (1..4).map(|n| format!("replace by {n}")).collect()
    }

    fn start(&self) -> Result<Image, Failure> {
        Ok(Image::new().with_file("f", &version(0)))
    }

    fn run(&self, recorder: &Recorder) -> Result<Vec<Arc<Vec<u8>>>, Failure> {
        for step in 1..4 {
            recorder.begun(step);
            (|| {
                let file = recorder.open("f.new", OpenMode::CreateNew)?;
                file.write_at(&version(step), 0)?;
                if !self.without_sync {
                    file.sync()?;
                }
                recorder.rename("f.new", "f")?;
                recorder.sync_dir("")
            })()
            .map_err(failed)?;
            recorder.did(step);
            recorder.durable(step);
        }
        Ok((0..4).map(|n| Arc::new(version(n))).collect())
    }

    fn verify(
        &self,
        storage: Arc<dyn Storage>,
        allowed: &[Arc<Vec<u8>>],
        _thorough: bool,
    ) -> Result<usize, Failure> {
        let found = read_limited(&*storage, "f", 10_000).map_err(failed)?;
        let which = allowed.iter().rposition(|a| **a == found);
        which.ok_or_else(|| Failure(format!("f has {} bytes of no version", found.len())))
    }

    fn recover(&self, storage: Arc<dyn Storage>) -> Result<(), Failure> {
        if !self.careless_recovery {
            return Ok(());
        }
        (|| {
            let bytes = read_limited(&*storage, "f", 10_000)?;
            let file = storage.open("f", OpenMode::ReadWrite)?;
            file.set_len(0)?;
            file.write_at(&bytes, 0)?;
            file.sync()
        })()
        .map_err(failed)
    }
}

fn every_recovery() -> Options {
    Options {
        recovery_every: 1,
        ..Options::default()
    }
}

#[test]
fn a_careful_program_has_no_failure() {
    let report = explore(&CAREFUL, &every_recovery(), None, None);
    assert!(report.failures.is_empty(), "{}", report.failures[0].story);
    assert!(report.distinct > 10 && report.recoveries > 10, "{report:?}");
}

#[test]
fn a_failure_is_found_reported_and_reproduced_from_its_numbers() {
    let careless = Replacing {
        without_sync: true,
        ..CAREFUL
    };
    let report = explore(&careless, &Options::default(), None, None);
    let found = &report.failures[0];
    let id = found.state.unwrap();
    let contains = |part: &str| assert!(found.story.contains(part), "{part}: {}", found.story);
    contains("rename f.new to f: kept");
    contains("of no version");
    contains(&format!("again: explorer replay replacing --state {id}"));
    assert!(found.story.lines().count() <= 40);
    let again = replay(&careless, &Options::default(), id, None, None).unwrap();
    assert_eq!(again.as_ref(), Some(&found.story));
    let careful = replay(&CAREFUL, &Options::default(), id, None, None);
    assert!(!matches!(careful, Ok(Some(_))), "{careful:?}");
}

#[test]
fn a_recovery_that_is_not_safe_itself_is_found() {
    let careless = Replacing {
        careless_recovery: true,
        ..CAREFUL
    };
    let report = explore(&careless, &every_recovery(), None, None);
    let found = &report.failures[0];
    let (first, second) = (found.state.unwrap(), found.second.unwrap());
    assert!(found.story.contains("it went again"), "{}", found.story);
    let again = replay(&careless, &every_recovery(), first, Some(second), None).unwrap();
    assert_eq!(again.as_ref(), Some(&found.story));
}

fn few(each: usize) -> Options {
    Options {
        limits: Limits {
            bits: 5,
            samples: 3,
            tears: 3,
            seed: 1,
        },
        states_max: each,
        ..Options::default()
    }
}

/// Explores up to `each` states of every workload, and expects no failure in `least` different states or more: together the five
/// tests look at ten thousand and more.
fn survive(workloads: impl Iterator<Item = Workload>, each: usize, least: u64) {
    survive_all(workloads.map(RoomSubject), each, least);
}

fn survive_all<S: Subject>(subjects: impl Iterator<Item = S>, each: usize, least: u64) {
    let mut sum = Report::default();
    for subject in subjects {
        sum.add(explore(&subject, &few(each), None, None));
        if let Some(found) = sum.failures.first() {
            panic!("{}", found.story);
        }
    }
    println!("{sum:?}");
    assert!(sum.distinct >= least, "{sum:?}");
}

#[test]
fn single_operations_survive_every_crash() {
    survive(ones().into_iter().step_by(9), 45, 1_700);
}

#[test]
fn pairs_of_operations_survive_every_crash() {
    survive(twos().into_iter().step_by(151), 45, 2_400);
}

#[test]
fn transactions_are_whole_after_every_crash() {
    survive(together().into_iter().step_by(19), 60, 500);
}

#[test]
fn operations_on_keys_survive_every_crash() {
    survive(keys().into_iter().step_by(13), 110, 3_200);
}

#[test]
fn borrowed_places_survive_every_crash() {
    survive(grants().into_iter().step_by(12), 45, 600);
}

#[test]
fn snapshots_survive_every_crash() {
    survive(snapshots().into_iter().step_by(37), 60, 600);
}

#[test]
fn work_ahead_of_commits_survives_every_crash() {
    survive(ahead().into_iter().step_by(31), 60, 600);
}

#[test]
fn receivers_survive_every_crash() {
    let all = receiving().into_iter().enumerate().step_by(67);
    let receivers = all.map(|(number, workload)| ReceiverSubject::new(number, workload));
    survive_all(receivers, 40, 200);
}

#[test]
fn random_workloads_survive_every_crash() {
    survive((0..4).map(|seed| random(seed, 30)), 550, 2_000);
}

#[test]
fn a_commit_that_does_not_sync_the_catalogs_log_is_caught() {
    // The first sync of a room makes its log, and is a commit.
    caught_without(
        "start empty\ncreate bar\nfsync bar",
        "catalog.db-wal < commit_now (catalog",
    );
}

#[test]
fn a_record_that_is_not_synced_is_caught() {
    caught_without(
        "start tree\ncreate bar\nfsync bar",
        "catalog.db-log < append (catalog",
    );
}

#[test]
fn much_data_that_is_not_synced_before_its_record_is_caught() {
    caught_without(
        "start tree\ncreate bar\nappend bar 200000\nfsync bar",
        "segments/N < sync_due (segments",
    );
}

/// What a family checks fails where a sync of it is left out: one that cannot fail would say nothing.
#[test]
fn every_family_catches_a_sync_that_is_left_out() {
    const COMMIT: &str = "catalog.db-wal < commit_now (catalog";
    const RECORD: &str = "catalog.db-log < append (catalog";
    const DATA: &str = "segments/N < sync_due (segments";
    let header = "header.json.new < replace (storage";
    caught_without("start tree\nadd-slot 1", header);
    caught_without("start tree\nbegin\ncreate bar\ncomplete", RECORD);
    caught_without(
        "start granting\ngrant 8\nplace foo 0 5000\nsync\nclose",
        DATA,
    );
    caught_without("start tree\nsnapshot a", COMMIT);
    caught_without("start tree\nwrite foo 100 50\nprepare\nsync", RECORD);
    let (number, workload) = receiving().into_iter().enumerate().nth(6).unwrap();
    let receiver = ReceiverSubject::new(number, workload);
    subject_caught_without(&receiver, "increments/changes.incoming < sync_file (room");
}

/// The trials of faults see it too.
#[test]
fn a_kill_behind_a_record_that_is_not_synced_is_caught() {
    let workload: Workload = "start tree\ncreate bar\nfsync bar".parse().unwrap();
    let site = site_of(
        &RoomSubject(workload.clone()),
        "catalog.db-log < append (catalog",
    );
    let (kills, failed) = kills(&workload, &Watch::ignoring(site), None);
    assert!(kills > 0 && failed.is_some(), "{kills} kills");
}

fn caught_without(workload: &str, place: &str) {
    subject_caught_without(&RoomSubject(workload.parse().unwrap()), place);
}

fn site_of<S: Subject>(subject: &S, place: &str) -> Site {
    let users = without::users(&[subject], 1);
    let site = users.keys().find(|site| site.0.starts_with(place));
    site.cloned().unwrap_or_else(|| panic!("{users:?}"))
}

fn subject_caught_without<S: Subject>(subject: &S, place: &str) {
    let site = site_of(subject, place);
    let bounds = Bounds {
        threads: 1,
        deadline: None,
        states_max: 1000,
        failures_max: 1,
    };
    let report = without::without(&site, &[subject], &few(200), &bounds);
    assert!(!report.failures.is_empty(), "{place}: {report:?}");
}
