//! A host that takes time, frequencies that change, rounds too short or too fast or never steady.

use super::*;
use crate::observe::block::DeviceCounters;
use crate::observe::host::Roots;
use crate::observe::{DeviceEvidence, ceilings};

/// A tree in which the kernel reports what the test writes.
fn tree(directory: &Path, stat: &str, khz: &str) -> Roots {
    let roots = Roots {
        proc_root: directory.join("proc"),
        sys_root: directory.join("sys"),
    };
    let cpu = roots.sys_root.join("devices/system/cpu/cpu0/cpufreq");
    std::fs::create_dir_all(&roots.proc_root).expect("made");
    std::fs::create_dir_all(&cpu).expect("made");
    std::fs::write(roots.proc_root.join("stat"), stat).expect("written");
    std::fs::write(cpu.join("scaling_cur_freq"), khz).expect("written");
    roots
}

/// A round in which the kernel's files went from `before` to `after`.
fn in_a_machine(before: (&str, &str), after: (&str, &str)) -> Vec<Issue> {
    let directory = tempfile::tempdir().expect("a directory");
    let roots = tree(directory.path(), before.0, before.1);
    let subject = Subject {
        path: directory.path().to_path_buf(),
        ..Subject::default()
    };
    let observer = Observer::with_roots(subject, roots);
    let watch = observer.begin(&SystemClock, &[]);
    tree(directory.path(), after.0, after.1);
    judged(&watch.finish(&[]), &Claim::default())
}

#[test]
fn time_that_the_host_took_is_caught() {
    let issues = in_a_machine(
        ("cpu 0 0 0 100 0 0 0 0", "1"),
        ("cpu 80 0 0 100 0 0 0 20", "1"),
    );
    fires(&issues, IssueKind::StolenTime, "took away 20 %");
    let issues = in_a_machine(
        ("cpu 0 0 0 100 0 0 0 0", "1"),
        ("cpu 98 0 0 100 0 0 0 2", "1"),
    );
    no_issue(&issues, IssueKind::StolenTime);
}

#[test]
fn a_frequency_that_changed_is_remarked() {
    let issues = in_a_machine(
        ("cpu 0 0 0 1 0 0 0 0", "3000000"),
        ("cpu 0 0 0 2 0 0 0 0", "2100000"),
    );
    fires(&issues, IssueKind::FrequencyChanged, "changed by 30 %");
    let issues = in_a_machine(
        ("cpu 0 0 0 1 0 0 0 0", "3000000"),
        ("cpu 0 0 0 2 0 0 0 0", "2990000"),
    );
    no_issue(&issues, IssueKind::FrequencyChanged);
}

#[test]
fn missing_kernel_data_is_remarked() {
    let directory = tempfile::tempdir().expect("a directory");
    let roots = Roots {
        proc_root: directory.path().join("none"),
        sys_root: directory.path().join("none"),
    };
    let observer = Observer::with_roots(Subject::default(), roots);
    let never_observed = observer.never_observed();
    assert!(
        never_observed[0].contains("whether the host took time away"),
        "{never_observed:?}"
    );
    assert!(
        never_observed[1].contains("frequency"),
        "{never_observed:?}"
    );
    let issues = judged(
        &observer.begin(&SystemClock, &[]).finish(&[]),
        &Claim::default(),
    );
    no_issue(&issues, IssueKind::StolenTime);
    fires(
        &issues,
        IssueKind::NotObservable,
        "no block device is known",
    );

    let here = tree(directory.path(), "cpu 0 0 0 1 0 0 0 0", "1");
    let observer = Observer::with_roots(Subject::default(), here);
    assert_eq!(observer.never_observed(), [""; 0]);
}

#[test]
fn a_round_that_is_too_short_is_caught() {
    let observer = observer(Path::new("/proc"));
    let evidence = observer.begin(&SystemClock, &[]).finish(&[]);
    let judge = |operations, limits: &Limits| {
        let claim = Claim {
            operations,
            ..Claim::default()
        };
        of_round(&evidence, &claim, &Ceilings::default(), limits)
    };
    fires(
        &judge(
            1000,
            &Limits {
                seconds_min: 60.0,
                ..short()
            },
        ),
        IssueKind::TooShort,
        "60 s are needed",
    );
    fires(
        &judge(
            3,
            &Limits {
                operations_min: 16,
                ..short()
            },
        ),
        IssueKind::TooShort,
        "3 operations",
    );
    no_issue(
        &judge(
            16,
            &Limits {
                operations_min: 16,
                ..short()
            },
        ),
        IssueKind::TooShort,
    );
}

#[test]
fn a_round_that_is_never_steady_is_remarked() {
    let judge = |slices: &[f64]| {
        let claim = Claim {
            slices: slices.to_vec(),
            ..Claim::default()
        };
        judged(&Evidence::default(), &claim)
    };
    fires(
        &judge(&[100.0, 60.0, 140.0, 70.0, 130.0, 90.0]),
        IssueKind::NotSteady,
        "in 6 slices",
    );
    no_issue(
        &judge(&[100.0, 99.0, 101.0, 98.0, 100.0]),
        IssueKind::NotSteady,
    );
}

#[test]
fn a_rate_above_copying_memory_is_refused() {
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), MIB);
    let ceilings = Ceilings {
        memory_copy: Some(ceilings::memory_copy()),
        ..Ceilings::default()
    };
    let observer = observer(directory.path());
    let watch = observer.begin(&SystemClock, &[file.as_fd()]);
    read_all(&file, MIB);
    let evidence = watch.finish(&[file.as_fd()]);
    // A runner that counts every byte a million times over.
    let claim = |bytes| Claim {
        direction: Direction::Read,
        bytes,
        operations: 16,
        ..Claim::default()
    };
    let judge = |bytes| of_round(&evidence, &claim(bytes), &ceilings, &short());
    fires(
        &judge((MIB as u64) << 20),
        IssueKind::FasterThanPhysics,
        "copies memory",
    );
    no_issue(&judge(MIB as u64), IssueKind::FasterThanPhysics);
}

#[test]
fn a_rate_above_the_raw_device_is_refused_where_all_goes_there() {
    let directory = on_a_device();
    let path = directory.path().join("file");
    written(&path, 4 * MIB);
    let device_read = ceilings::device_read(&path, 8 * MIB as u64).expect("measured");
    let ceilings = Ceilings {
        device_read: Some(device_read),
        ..Ceilings::default()
    };
    let mut evidence = Evidence {
        elapsed: crate::clock::Elapsed {
            raw_ns: 1_000_000_000,
            boottime_ns: 1_000_000_000,
            realtime_ns: 1_000_000_000,
            process_cpu_ns: 0,
        },
        ..Evidence::default()
    };
    let judge = |evidence: &Evidence, times: f64, cold| {
        let claim = Claim {
            direction: Direction::Read,
            bytes: (device_read * times) as u64,
            operations: 100,
            cold,
            ..Claim::default()
        };
        of_round(evidence, &claim, &ceilings, &short())
    };
    fires(
        &judge(&evidence, 1.4, true),
        IssueKind::FasterThanPhysics,
        "the raw device",
    );
    no_issue(&judge(&evidence, 1.1, true), IssueKind::FasterThanPhysics);
    no_issue(&judge(&evidence, 1.4, false), IssueKind::FasterThanPhysics);
    // The device itself says it did so much: then it was measured at a bad moment.
    let did = DeviceCounters {
        read_bytes: (device_read * 1.4) as u64,
        ..DeviceCounters::default()
    };
    evidence.devices = vec![DeviceEvidence {
        did,
        ..DeviceEvidence::default()
    }];
    no_issue(&judge(&evidence, 1.4, true), IssueKind::FasterThanPhysics);
}
