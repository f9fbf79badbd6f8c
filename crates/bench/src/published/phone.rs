//! Storage of phones, with and without encryption, and with a clock that stopped counting.

use super::row;
use crate::model::{Comparison, PublishedTable, Round, Row};
use crate::words::{NOTHING, loss, significant};

const SOURCE: &str = "AnandTech, 2014-11-20: storage tests of AndEBench and AndroBench";

/// The comparisons (plain directory is 1) for the phone's rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct PhoneRows<'a> {
    /// Random reads of 4 KiB.
    pub random_read: Option<&'a Comparison>,
    /// Random writes of 4 KiB, durable at the end.
    pub random_write: Option<&'a Comparison>,
    /// Sequential reads of 256 KiB.
    pub sequential_read: Option<&'a Comparison>,
    /// Sequential writes of 256 KiB, durable at the end.
    pub sequential_write: Option<&'a Comparison>,
}

/// What is lost with encryption, in per cent of the speed without: the Nexus 6 and here.
pub fn phone_loss(measured: &PhoneRows<'_>) -> PublishedTable {
    let line = |name: &str, published: &str, here: Option<&Comparison>| {
        row(name, [published.into(), here.map_or(NOTHING.into(), loss)])
    };
    PublishedTable {
        title: "Speed lost with encryption".into(),
        source: SOURCE.into(),
        columns: vec!["Nexus 6 (published)".into(), "here".into()],
        rows: vec![
            line("random read", "62.9 %", measured.random_read),
            line("random write", "50.5 %", measured.random_write),
            line("sequential read", "80.7 %", measured.sequential_read),
            line("sequential write", NOTHING, measured.sequential_write),
        ],
    }
}

/// One work's rate by an honest clock, and by C's `clock()`, which counts processor time.
#[derive(Debug, Clone, Copy)]
pub struct ClockRow {
    /// Millions of bytes a second by CLOCK_MONOTONIC_RAW.
    pub honest: f64,
    /// The same by processor time.
    pub processor: f64,
}

impl ClockRow {
    /// What a row that was timed honestly would have shown by `clock()`: what its rounds moved, by the processor time they took.
    /// `None` where that was not observed, or too short to divide by.
    pub fn of(row: &Row) -> Option<ClockRow> {
        if row.verdict.invalid {
            return None;
        }
        let rates = |time: fn(&Round) -> Option<f64>| {
            let valid = row.rounds.iter().filter(|round| round.is_valid());
            let rates: Option<Vec<f64>> = valid
                .map(|round| {
                    Some(round.bytes as f64 / 1e6 / time(round).filter(|seconds| *seconds > 1e-4)?)
                })
                .collect();
            crate::statistics::median(&rates?)
        };
        Some(ClockRow {
            honest: rates(|round| Some(round.seconds))?,
            processor: rates(|round| round.cpu_s)?,
        })
    }
}

/// The Nexus 5 before and after its clock function changed, and the same two clocks here. The rows: random read, random
/// write, sequential read, sequential write.
pub fn phone_clock(measured: [Option<ClockRow>; 4]) -> PublishedTable {
    const PUBLISHED: [(&str, [&str; 3]); 4] = [
        ("random read", ["10.06", "27.70", "2.8"]),
        ("random write", ["0.75", "13.09", "17.5"]),
        ("sequential read", ["76.29", "182.78", "2.4"]),
        ("sequential write", ["15.00", "47.10", "3.1"]),
    ];
    let columns = [
        "4.4 (published)",
        "5.0, faulty (published)",
        "ratio (published)",
        "here",
        "here by clock()",
        "ratio here",
    ];
    PublishedTable {
        title: "A clock that does not count waiting, MB/s".into(),
        source: format!("{SOURCE}; Nexus 5, Android 4.4 and 5.0"),
        columns: columns.map(String::from).into(),
        rows: PUBLISHED
            .into_iter()
            .zip(measured)
            .map(|((name, published), here)| {
                let here = here.map_or([NOTHING; 3].map(String::from), |here| {
                    [here.honest, here.processor, here.processor / here.honest].map(significant)
                });
                row(name, published.map(String::from).into_iter().chain(here))
            })
            .collect(),
    }
}
