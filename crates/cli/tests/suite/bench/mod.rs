//! `strongroom bench` as a person runs it, with the least there is to measure: what comes out, and that nothing is left.
//! Nothing here depends on how fast anything is: rounds this short are INVALID, and rightly so.
#![allow(unreachable_pub)]

mod ended;
mod fio;
mod program;
mod stores;

use std::path::Path;

use crate::common::Sandbox;
use serde_json::Value;

/// As little as can be measured.
pub const LEAST: [&str; 8] = [
    "--rounds",
    "2",
    "--size",
    "1MiB",
    "--seconds",
    "0.05",
    "--files",
    "20",
];

/// Runs `bench ARGS` with `--json`, and returns the report.
pub fn report(sandbox: &Sandbox, args: &[&str]) -> Value {
    let all = ["bench"]
        .iter()
        .chain(args)
        .chain(&LEAST)
        .chain(&["--json"]);
    serde_json::from_str(&sandbox.ok(all)).unwrap()
}

/// The names of the rows of a store.
pub fn works<'a>(report: &'a Value, store: &str) -> Vec<&'a str> {
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["store"] == store)
        .map(|row| row["work"].as_str().unwrap())
        .collect()
}

/// Every validity issue of every round, as "kind: sentence".
pub fn issues(report: &Value) -> Vec<String> {
    let rounds = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row["rounds"].as_array().unwrap());
    rounds
        .flat_map(|round| round["doubts"].as_array().unwrap())
        .map(|issue| format!("{}: {}", issue["kind"], issue["said"]))
        .collect()
}

/// Whatever a benchmark may have left in a place: work directories, mounts, run files.
pub fn left(sandbox: &Sandbox) -> Vec<String> {
    let mut left = Vec::new();
    let list = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).map(|entries| {
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        });
        entries.unwrap_or_default()
    };
    let names = list(&sandbox.path("")).into_iter();
    left.extend(names.filter(|name| name.starts_with(".strongroom-bench")));
    left.extend(list(&sandbox.path("state/strongroom/bench-runs")));
    left.extend(mounts(sandbox));
    left
}

/// Mountpoints below a place.
pub fn mounts(sandbox: &Sandbox) -> Vec<String> {
    let place = sandbox.path("").canonicalize().unwrap();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point).starts_with(&place))
        .map(str::to_owned)
        .collect()
}
