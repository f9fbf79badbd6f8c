//! Workloads name themselves, apply, and leave on a storage that does not fail what they promised.

use std::collections::HashSet;
use std::sync::Arc;

use explorer::image::Image;
use explorer::record::Recorder;
use explorer::verify::{How, verify};
use explorer::workload::{
    Unwatched, Workload, ahead, grants, keys, mixed, ones, random, run, snapshots, twos,
};

const THOROUGH: How = How {
    thorough: true,
    accept_old_header: false,
    timeless: false,
    blended: false,
};

/// Runs a workload, and verifies what it leaves when it is closed.
fn runs_whole(workload: &Workload) -> Vec<usize> {
    let recorder = Recorder::over(&workload.start.image().unwrap());
    let target = Recorder::unlogged(&Image::new());
    let ran = run(
        workload,
        recorder.storage(),
        Some(target.storage()),
        &mut Unwatched,
    )
    .unwrap_or_else(|e| panic!("{}: {e}\n{workload}", workload.name));
    drop(ran.session);
    let last = ran.snapshots.last().cloned().unwrap();
    let how = How {
        accept_old_header: workload.restores_header(),
        ..THOROUGH
    };
    verify(
        Recorder::unlogged(&recorder.image()).storage(),
        std::slice::from_ref(&last),
        how,
    )
    .unwrap_or_else(|e| panic!("{}: {e}\n{workload}", workload.name));
    ran.refused
}

#[test]
fn every_workload_prints_as_lines_that_name_it_again() {
    let mut seen = HashSet::new();
    for workload in ones()
        .into_iter()
        .chain(twos())
        .chain(keys())
        .chain(grants())
        .chain(snapshots())
        .chain(ahead())
        .chain([random(1, 50), mixed(1, 50)])
    {
        let again: Workload = workload.to_string().parse().unwrap();
        assert_eq!(
            (again.start, &again.steps),
            (workload.start, &workload.steps)
        );
        assert!(seen.insert(workload.name.clone()), "{}", workload.name);
    }
    for name in ["ones:5", "twos:1234", "keys:7", "random:9:30", "mixed:9:30"] {
        assert_eq!(Workload::named(name).unwrap().name, name);
    }
    assert!("start tree\nfly foo".parse::<Workload>().is_err());
}

#[test]
fn every_single_operation_applies_and_is_found_again() {
    for workload in ones() {
        assert!(runs_whole(&workload).is_empty(), "{workload}");
    }
}

#[test]
fn pairs_of_operations_apply_and_are_found_again() {
    let all = twos();
    for workload in all.iter().step_by(97) {
        assert!(runs_whole(workload).is_empty(), "{workload}");
    }
}

#[test]
fn operations_on_keys_and_on_the_whole_room_are_found_again() {
    let mut refused = 0;
    let all = keys();
    for workload in all.iter().step_by(5) {
        refused += runs_whole(workload).len();
    }
    assert!(refused < all.len(), "most of them apply");
}

#[test]
fn data_committed_from_grants_is_found_again() {
    let (mut refused, all) = (0, grants());
    for workload in &all {
        refused += runs_whole(workload).len();
    }
    assert!(refused < all.len(), "most of them apply");
}

#[test]
fn random_workloads_are_found_again() {
    for seed in 0..6 {
        runs_whole(&random(seed, 60));
    }
}

#[test]
fn a_snapshot_that_is_not_allowed_is_recognized() {
    let workload: Workload = "start tree\nwrite foo 5 1\nchmod A/foo 600\nclose"
        .parse()
        .unwrap();
    let recorder = Recorder::over(&workload.start.image().unwrap());
    let ran = run(&workload, recorder.storage(), None, &mut Unwatched).unwrap();
    let image = recorder.image();
    let look = |allowed: &[Arc<_>]| verify(Recorder::unlogged(&image).storage(), allowed, THOROUGH);
    assert_eq!(look(&ran.snapshots[2..]), Ok(1));
    let failure = look(&ran.snapshots[..2]).unwrap_err().to_string();
    assert!(
        failure.contains("/A/foo: mode: expected 644, found 600"),
        "{failure}"
    );
    assert!(!failure.contains("/foo: contents"), "{failure}");
    let failure = look(&ran.snapshots[..1]).unwrap_err().to_string();
    assert!(failure.contains("/foo: contents"), "{failure}");
}
