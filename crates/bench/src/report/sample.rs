//! Reports for tests: what a long run of `compare` and of `small-files` could bring, invalid rows and all.
//!
//! The same as `tests/data/*.json`; `UPDATE=1 cargo test -p strongroom-bench sample` rewrites those.

use base64::Engine;
use hdrhistogram::serialization::Serializer;

use crate::model::*;
use crate::published;

/// All samples, by the name of their file.
pub(crate) fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("compare", compare()),
        ("small-files", small_files()),
        ("scale", scale()),
        ("empty", empty()),
    ]
}

/// Nothing but what every report has.
pub(crate) fn empty() -> Report {
    Report {
        schema: SCHEMA,
        works: WORKS,
        command: "storage".into(),
        options: Vec::new(),
        began: "2026-11-22T08:44:27Z".into(),
        took_s: 0.8,
        seed: 1,
        version: "0.1.0".into(),
        machine: Machine::default(),
        stores: Vec::new(),
        noise: None,
        rows: Vec::new(),
        comparisons: Vec::new(),
        parts: Vec::new(),
        growth: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
        interrupted: true,
    }
}

fn machine() -> Machine {
    Machine {
        id: "5f3c9a0b7d21".into(),
        kernel: "6.18.5".into(),
        processor: "Intel(R) Xeon(R) Processor @ 2.10GHz".into(),
        processors: 2,
        features: ["aes", "vaes", "sha_ni"].map(String::from).into(),
        memory_bytes: 8_589_934_592,
        governor: None,
        virtual_machine: true,
    }
}

fn store(label: &str, kind: &str, cipher: Option<&str>) -> StoreFacts {
    StoreFacts {
        label: label.into(),
        kind: kind.into(),
        target: format!("/srv/measured/{label}"),
        file_system: Some("ext4".into()),
        mount_options: Some("rw,relatime".into()),
        device: Some("vda".into()),
        cipher: cipher.map(String::from),
        version: cipher.map(|_| "0.1.0".into()),
        transport: None,
    }
}

/// Rounds about a rate, their latencies about what that makes.
fn row(store: &str, work: &str, unit: Unit, rate: f64, draw: &mut fastrand::Rng) -> Row {
    let bytes_each = if work.contains("256 KiB") {
        262_144
    } else {
        4096
    };
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    let rounds: Vec<Round> = (0..7)
        .map(|_| {
            let rate = rate * (0.94 + 0.12 * draw.f64());
            let a_second = match unit {
                Unit::MegabytesPerSecond => rate * 1e6 / f64::from(bytes_each),
                Unit::OperationsPerSecond | Unit::FilesPerSecond => rate,
                Unit::Seconds => 1.0 / rate,
            };
            for _ in 0..2000 {
                let tail = 1.0 + 0.08 * draw.f64().max(1e-9).ln().powi(2);
                histogram.record((1e9 / a_second * tail) as u64).unwrap();
            }
            let operations = (a_second * 3.0) as u64;
            let bytes = operations * u64::from(bytes_each as u32);
            Round {
                rate,
                operations,
                bytes,
                seconds: 3.0,
                cpu_s: Some(0.4 + 0.2 * draw.f64()),
                device_read_bytes: Some(if work.contains("read") { bytes } else { 0 }),
                device_written_bytes: Some(if work.contains("read") {
                    0
                } else {
                    bytes + bytes / 9
                }),
                over_time: (0..24).map(|_| rate * (0.9 + 0.2 * draw.f64())).collect(),
                cut_off: 2,
                issues: Vec::new(),
            }
        })
        .collect();
    let mut rates: Vec<f64> = rounds.iter().map(|round| round.rate).collect();
    rates.sort_by(f64::total_cmp);
    let mut encoded = Vec::new();
    hdrhistogram::serialization::V2DeflateSerializer::new()
        .serialize(&histogram, &mut encoded)
        .unwrap();
    Row {
        store: store.into(),
        work: work.into(),
        unit,
        summary: Some(Summary {
            median: rates[3],
            least: rates[0],
            most: rates[6],
            rounds: 7,
            cpu_s_per_gb: Some(0.31),
            write_amplification: (!work.contains("read")).then_some(1.11),
        }),
        itself: None,
        latency: Some(Distribution {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
            histogram: base64::engine::general_purpose::STANDARD.encode(encoded),
        }),
        rounds,
        verdict: Verdict::default(),
    }
}

fn against(work: &str, other: &str, ratio: f64, spread: f64, differs: bool) -> Comparison {
    Comparison {
        work: work.into(),
        base: "plain".into(),
        other: other.into(),
        ratio: Some(ratio),
        low: Some(ratio * (1.0 - spread)),
        high: Some(ratio * (1.0 + spread)),
        differs,
        invalid: None,
    }
}

/// Three stores, five works; a row without one valid round, one with two bad rounds, one that does not differ.
pub(crate) fn compare() -> Report {
    let mut draw = fastrand::Rng::with_seed(20_261_122);
    const WORKS: [(&str, Unit, f64, f64, f64); 5] = [
        (
            "random read, 4 KiB, depth 1, cold",
            Unit::OperationsPerSecond,
            30_164.0,
            12_511.0,
            11_280.0,
        ),
        (
            "random write, 4 KiB, depth 1, fsync at the end",
            Unit::OperationsPerSecond,
            83_704.0,
            33_038.0,
            6_880.0,
        ),
        (
            "sequential read, 256 KiB, depth 1, cold",
            Unit::MegabytesPerSecond,
            1_201.0,
            1_190.0,
            621.0,
        ),
        (
            "sequential write, 256 KiB, depth 1, fsync at the end",
            Unit::MegabytesPerSecond,
            1_129.0,
            576.0,
            298.0,
        ),
        (
            "unlink, files of 4 KiB",
            Unit::FilesPerSecond,
            12_948.0,
            17_463.0,
            4_472.0,
        ),
    ];
    let (mut rows, mut comparisons) = (Vec::new(), Vec::new());
    for (work, unit, plain, room, other) in WORKS {
        rows.push(row("plain", work, unit, plain, &mut draw));
        rows.push(row("room", work, unit, room, &mut draw));
        rows.push(row("gocryptfs", work, unit, other, &mut draw));
        comparisons.push(against(
            work,
            "room",
            room / plain,
            0.05,
            (room / plain - 1.0).abs() > 0.05,
        ));
        comparisons.push(against(work, "gocryptfs", other / plain, 0.08, true));
    }
    // Every read of this one came from the page cache.
    let cached = Issue {
        kind: IssueKind::CacheHit,
        said: "37 % of what was read was in the page cache before it was read (12,288 of 32,768 pages), and the device read \
               84.1 MB of 134 MB"
            .into(),
    };
    for round in &mut rows[2].rounds {
        round.issues.push(cached.clone());
    }
    (rows[2].summary, rows[2].latency) = (None, None);
    rows[2].verdict = Verdict {
        invalid: true,
        issues: vec![cached],
    };
    let refused = &mut comparisons[1];
    (refused.ratio, refused.low, refused.high, refused.differs) = (None, None, None, false);
    refused.invalid = Some("gocryptfs has no valid round".into());
    // Two rounds of this one are left out.
    for round in &mut rows[4].rounds[2..4] {
        round.issues.push(Issue {
            kind: IssueKind::DeviceShared,
            said: "another process wrote 41.2 MB to vda meanwhile".into(),
        });
    }
    rows[10].verdict.issues.push(Issue {
        kind: IssueKind::DataMatters,
        said: "zeros go 8.3 % faster than data: the store compresses, deduplicates or leaves holes"
            .into(),
    });
    let loss = published::phone_loss(&published::PhoneRows {
        random_read: Some(&comparisons[0]),
        random_write: Some(&comparisons[2]),
        sequential_read: Some(&comparisons[4]),
        sequential_write: Some(&comparisons[6]),
    });
    let peer = |store: &'static str, at: usize| published::Tool {
        store,
        write: Some(&rows[9 + at]),
        read: Some(&rows[6 + at]),
        rm: Some(&rows[12 + at]),
        space: Some((540_000_000, 512_000_000)),
        ..published::Tool::default()
    };
    let tools = published::tools(&[peer("room", 1), peer("gocryptfs", 2)]);
    let dd = published::dd(&[published::DdRow {
        block: 4096,
        total: 1 << 30,
        raw: Some(&rows[6]),
        decrypted: Some(&rows[7]),
        comparison: Some(&comparisons[4]),
    }]);
    let clock = published::phone_clock([
        Some(published::ClockRow {
            honest: 123.4,
            processor: 431.9,
        }),
        Some(published::ClockRow {
            honest: 2.31,
            processor: 78.6,
        }),
        None,
        None,
    ]);
    let ladder = published::ladder(&[
        published::LadderStep {
            call: 8192,
            each: false,
            buffered: false,
            row: Some(&rows[9]),
        },
        published::LadderStep {
            call: 131_072,
            each: true,
            buffered: true,
            row: Some(&rows[10]),
        },
    ]);
    Report {
        command: "compare".into(),
        options: ["plain", "room", "gocryptfs", "--size 256MiB", "--rounds 7"]
            .map(String::from)
            .into(),
        took_s: 412.3,
        seed: 20_261_122,
        machine: machine(),
        stores: vec![
            store("plain", "directory", None),
            store("room", "mounted room", Some("AES-256-GCM")),
            store("gocryptfs", "gocryptfs", Some("AES-256-GCM")),
        ],
        noise: Some(NoiseFloor {
            store: "plain".into(),
            work: "random read, 4 KiB, depth 1, cold".into(),
            ratio: 1.004,
            low: 0.978,
            high: 1.031,
            fired: [
                "a clock of processor time",
                "a read from the cache",
                "a skipped fsync",
            ]
            .map(String::from)
            .into(),
            unfired: Vec::new(),
        }),
        rows,
        comparisons,
        tables: vec![loss, clock, dd, ladder, tools],
        notes: vec![
            "The first 2 slices of each round were not steady and are cut off.".into(),
            "The kernel does not tell the processor's frequency here: it could not be watched."
                .into(),
        ],
        interrupted: false,
        ..empty()
    }
}

/// Sub-operations of two stores.
pub(crate) fn small_files() -> Report {
    let parts = |store: &'static str, factor: f64| {
        ["open", "read", "write", "chmod", "unlink"]
            .into_iter()
            .enumerate()
            .map(move |(at, operation)| {
                let mut parts = vec![
                    SubOperation {
                        name: "FUSE round trip".into(),
                        mean_ns: 21_300.0 * factor,
                        times: 1.0,
                    },
                    SubOperation {
                        name: "catalog".into(),
                        mean_ns: 8_200.0 * factor,
                        times: 1.0,
                    },
                    SubOperation {
                        name: "device".into(),
                        mean_ns: 34_000.0 * factor,
                        times: 1.5,
                    },
                ];
                if at == 1 {
                    parts.push(SubOperation {
                        name: "opening".into(),
                        mean_ns: 5_100.0,
                        times: 1.0,
                    });
                } else if at == 2 {
                    parts.push(SubOperation {
                        name: "sealing".into(),
                        mean_ns: 4_700.0,
                        times: 1.0,
                    });
                }
                let sum: f64 = parts.iter().map(|part| part.mean_ns).sum();
                let rest_ns = 1_900.0 - 900.0 * at as f64;
                Parts {
                    store: store.to_owned(),
                    operation: operation.into(),
                    count: 700,
                    whole_ns: sum + rest_ns,
                    parts,
                    rest_ns,
                    invalid: false,
                }
            })
    };
    let parts: Vec<Parts> = parts("room", 1.0)
        .chain(parts("network disk", 6.5))
        .collect();
    Report {
        command: "small-files".into(),
        took_s: 18.2,
        machine: machine(),
        stores: vec![
            store("room", "mounted room", Some("AES-256-GCM")),
            store("network disk", "room", Some("AES-256-GCM")),
        ],
        tables: vec![published::small_files(&parts)],
        parts,
        interrupted: false,
        ..empty()
    }
}

/// How cost grows, with a size that is INVALID.
pub(crate) fn scale() -> Report {
    let over = "files in one directory";
    let point = |size: u64, seconds: Option<f64>| GrowthPoint {
        size,
        work: format!("open, {size} {over}"),
        seconds,
        peak_bytes: seconds.map(|_| 21_000_000 + 10 * size),
    };
    let growth = |operation: &str, factor: f64| Growth {
        store: "room".into(),
        operation: operation.into(),
        over: over.into(),
        points: vec![
            point(1000, Some(0.011)),
            point(10_000, Some(0.011 * factor)),
            point(100_000, (factor < 5.0).then_some(0.011 * factor * factor)),
        ],
        time_per_decade: Some(factor),
        memory_per_decade: Some(1.01),
    };
    Report {
        command: "scale".into(),
        machine: machine(),
        stores: vec![store("room", "room", Some("AES-256-GCM"))],
        growth: vec![growth("open", 1.02), growth("check", 9.4)],
        interrupted: false,
        ..empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json;

    fn place(name: &str) -> std::path::PathBuf {
        let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        data.join(format!("{name}.json"))
    }

    #[test]
    fn the_sample_files_are_these_samples() {
        for (name, report) in all() {
            if std::env::var_os("UPDATE").is_some() {
                std::fs::create_dir_all(place(name).parent().unwrap()).unwrap();
                std::fs::write(place(name), json::pretty(&report)).unwrap();
            }
            let written = std::fs::read_to_string(place(name)).unwrap();
            assert!(
                written == json::pretty(&report),
                "{name}.json is old: UPDATE=1 rewrites it"
            );
        }
    }
}
