//! The same work by fio, which everybody trusts.

use std::process::Command;

use serde_json::Value;

use crate::common::Sandbox;

/// Rounds by turns, ours first.
const ROUNDS: usize = 5;

/// A work, in our words and in fio's.
struct Work {
    only: &'static str,
    fio: [&'static str; 3],
    /// Whether it matters that memory comes in large pages, as ours does: fio's buffer does not by itself.
    large: bool,
}

const WORKS: [Work; 2] = [
    Work {
        only: "random read 4KiB depth1 direct",
        fio: ["--rw=randread", "--bs=4k", "--iodepth=1"],
        large: false,
    },
    Work {
        only: "sequential read 1MiB depth1 direct",
        fio: ["--rw=read", "--bs=1m", "--iodepth=1"],
        large: true,
    },
];

fn has_fio() -> bool {
    let has = Command::new("fio").arg("--version").output().is_ok();
    if !has {
        eprintln!("skipped: fio is not installed");
    }
    has
}

/// Large pages set aside on this machine.
fn large_pages() -> u64 {
    let reported = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    reported.trim().parse().unwrap_or(0)
}

/// MB/s by fio, from its own file in the sandbox.
fn by_fio(sandbox: &Sandbox, work: &Work, size: &str, seconds: &str) -> f64 {
    let ran = Command::new("fio")
        .args(["--name=x", "--filename=fio-file", "--ioengine=psync"])
        .args(["--direct=1", "--output-format=json", "--refill_buffers"])
        .args([format!("--size={size}"), format!("--runtime={seconds}")])
        .args(work.fio)
        .args((work.large && large_pages() > 0).then_some("--mem=shmhuge"))
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    // There may be notes before the document.
    let text = String::from_utf8(ran.stdout).unwrap();
    let document: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    document["jobs"][0]["read"]["bw_bytes"].as_f64().unwrap() / 1e6
}

/// MB/s by ours: the median of the round rates, valid or not.
fn by_us(sandbox: &Sandbox, work: &Work, size: &str, seconds: &str) -> f64 {
    let args = [
        "bench",
        "storage",
        "directory:.",
        "--full",
        "--json",
        "--rounds",
        "1",
        "--size",
        size,
        "--seconds",
        seconds,
        "--only",
        work.only,
    ];
    let report: Value = serde_json::from_str(&sandbox.ok(args)).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let round = &rows[0]["rounds"][0];
    // Where a beginning was cut off fio did not: all of it is compared.
    round["bytes"].as_f64().unwrap() / round["seconds"].as_f64().unwrap() / 1e6
}

fn medians(size: &str, seconds: &str, rounds: usize) -> Vec<(&'static str, f64, f64)> {
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    WORKS
        .iter()
        .map(|work| {
            let sandbox = Sandbox::empty();
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                if round % 2 == 1 {
                    theirs.push(by_fio(&sandbox, work, size, seconds));
                }
                ours.push(by_us(&sandbox, work, size, seconds));
                if round % 2 == 0 {
                    theirs.push(by_fio(&sandbox, work, size, seconds));
                }
            }
            (work.only, middle(&mut ours), middle(&mut theirs))
        })
        .collect()
}

/// Not a test of speed: only of whether the two speak of the same thing. A factor of a thousand (units) or of the depth
/// would show; a busy machine does not.
#[test]
fn fio_measures_the_same_order_of_magnitude() {
    if !has_fio() {
        return;
    }
    // On a busy disk one of the two may have all the bad luck, but not each time.
    const TRIES: usize = 10;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let medians = medians("16m", "0.3", 3);
        let agree = |(_, ours, theirs): &(_, f64, f64)| (0.2..5.0).contains(&(ours / theirs));
        if medians.iter().all(agree) {
            return;
        }
        seen.push(medians);
    }
    panic!("work, our MB/s, fio's: {seen:?}");
}

/// For a machine that does nothing else, with a few large pages set aside for fio (sysctl vm.nr_hugepages=16): cargo test --release -p strongroom-cli --test suite -- --ignored fio --nocapture
#[test]
#[ignore = "compares speeds: run it alone"]
fn medians_are_within_ten_per_cent_of_fios() {
    if !has_fio() {
        return;
    }
    let mut apart = Vec::new();
    for (work, ours, theirs) in medians("256m", "3", ROUNDS) {
        let ratio = ours / theirs;
        println!("{work}: {ours:.1} MB/s, fio {theirs:.1} MB/s, ratio {ratio:.3}");
        if !(0.9..1.1).contains(&ratio) {
            apart.push(work);
        }
    }
    assert!(apart.is_empty(), "more than 10 % apart: {apart:?}");
}
