//! `bench small-files`, `bench ladder`, `bench scale` and `bench cipher` through the real program, with tiny sizes.

use crate::common::{Sandbox, words};
use serde_json::Value;

/// Runs a benchmark in an empty directory, and sees that it is empty afterwards.
fn bench(s: &Sandbox, args: &[&str]) -> Value {
    let place = s.path("place");
    std::fs::create_dir_all(&place).unwrap();
    let mut all = vec!["--json", "bench"];
    all.extend(args);
    let report = serde_json::from_str(&s.ok(all)).unwrap();
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    let runs = std::fs::read_dir(s.path("state"))
        .into_iter()
        .flatten()
        .flat_map(|entry| {
            std::fs::read_dir(entry.unwrap().path())
                .into_iter()
                .flatten()
        })
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("run-")
        });
    assert_eq!(runs.count(), 0, "a run file is left");
    report
}

#[test]
fn small_files_say_where_the_time_went_and_leave_nothing_behind() {
    let s = Sandbox::empty();
    let mut stores = vec!["--store", "directory", "--store", "room"];
    let can_mount = std::path::Path::new("/dev/fuse").exists();
    if can_mount {
        stores.extend(["--store", "mounted"]);
    }
    let mut args = vec!["small-files", "place", "--files", "6", "--seed", "7"];
    args.extend(&stores);
    let report = bench(&s, &args);
    let stores = 2 + usize::from(can_mount);
    assert_eq!(report["rows"].as_array().unwrap().len(), 6 * stores);
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 6 * stores);
    for of in parts {
        let sum: f64 = of["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["mean_ns"].as_f64().unwrap())
            .sum();
        let whole = of["whole_ns"].as_f64().unwrap();
        assert!(
            (sum + of["rest_ns"].as_f64().unwrap() - whole).abs() < 1.0,
            "{of}"
        );
    }
    assert_eq!(report["seed"], 7);
    assert!(
        report["tables"][0]["columns"][0]
            .as_str()
            .unwrap()
            .contains("published")
    );
}

#[test]
fn a_ladder_has_every_published_rung_and_leaves_nothing_behind() {
    let s = Sandbox::empty();
    let report = bench(&s, &["ladder", "place", "--size", "16KiB", "--rounds", "1"]);
    // Two sizes below the buffer's in four ways, two above in two.
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    // Other tests use the disk and the host its processors: nothing else makes a rung INVALID here.
    let by_others = |row: &Value| {
        let round = row["rounds"][0].to_string();
        ["\"device_shared\"", "\"stolen_time\""]
            .iter()
            .any(|kind| round.contains(kind))
    };
    let valid = |row: &Value| row["verdict"]["invalid"] == false;
    for row in rows {
        assert!(valid(row) || by_others(row), "{row}");
    }
    let all_valid = rows.iter().all(valid);
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    for row in &rows[..6] {
        let cells = row["cells"].as_array().unwrap();
        let here = cells.last().unwrap().as_str().unwrap();
        let invalid = !all_valid && here == "INVALID";
        assert!(here.parse::<f64>().is_ok() || invalid, "{row}");
    }
    // Spans are heard here, too.
    assert_eq!(report["parts"].as_array().unwrap().len(), 12);
}

#[test]
fn a_scale_has_every_operation_a_crash_among_them_and_leaves_nothing_behind() {
    let s = Sandbox::empty();
    let page = s.path("page.html");
    let sizes = ["--max-files", "50", "--max-bytes", "64KiB"];
    let files = [
        "--only",
        "50 files in one directory",
        "--only",
        "in one file",
    ];
    let mut args = vec![
        "scale",
        "place",
        "--rounds",
        "1",
        "--html",
        page.to_str().unwrap(),
    ];
    args.extend(sizes.iter().chain(&files));
    let report = bench(&s, &args);
    let rows = report["rows"].as_array().unwrap();
    let works: Vec<&str> = rows
        .iter()
        .map(|row| row["work"].as_str().unwrap())
        .collect();
    for operation in [
        "open",
        "lookup",
        "create",
        "write 4 KiB and fsync",
        "check",
        "compact",
        "open after a crash with a full log",
    ] {
        for size in ["50 files in one directory", "64 KiB in one file"] {
            let work = format!("{operation}, {size}");
            assert!(works.contains(&work.as_str()), "{work} is not in {works:?}");
        }
    }
    let rounds = rows
        .iter()
        .flat_map(|row| row["rounds"].as_array().unwrap());
    // words.py: the document's field
    let found = rounds.flat_map(|round| round["doubts"].as_array().unwrap());
    let wrong: Vec<&Value> = found
        .filter(|found| found["kind"] == "wrong_data")
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let growth = report["growth"].as_array().unwrap();
    assert_eq!(growth.len(), 2 * 7);
    for of in growth {
        let point = &of["points"][0];
        // What others did meanwhile makes it INVALID: then there is no number.
        if let Some(peak) = point["peak_bytes"].as_u64() {
            assert!(
                peak > 1 << 20 && point["seconds"].as_f64().unwrap() > 0.0,
                "{of}"
            );
        }
        // One size has no growth.
        assert!(of["time_per_decade"].is_null());
    }
    assert_eq!(report["tables"].as_array().unwrap().len(), 4);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("How cost grows with files in one directory"));
}

#[test]
fn ciphers_are_measured_on_one_core_and_on_all() {
    let s = Sandbox::empty();
    let report = bench(
        &s,
        &["cipher", "--fast", "--rounds", "1", "--seconds", "0.01"],
    );
    let rows = report["rows"].as_array().unwrap();
    for name in [
        "AES-256-GCM, sealing",
        "ChaCha20-Poly1305, opening",
        "Argon2id, least",
    ] {
        assert!(
            rows.iter()
                .any(|row| row["work"].as_str().unwrap().starts_with(name)),
            "{name}"
        );
    }
}

#[test]
fn a_directory_that_is_not_there_and_a_size_of_no_whole_blocks_are_refused() {
    let s = Sandbox::empty();
    let missing = s.run(["bench", "small-files", "nowhere"]);
    assert_ne!(missing.code, 0);
    assert!(missing.err.contains("nowhere"), "{}", missing.err);
    let odd = s.run(words("bench small-files --size 1000 --store directory mnt"));
    assert_ne!(odd.code, 0);
    assert!(odd.err.contains("4096"), "{}", odd.err);
    assert_eq!(std::fs::read_dir(s.path("mnt")).unwrap().count(), 0);
}
