//! What rows of rising sizes amount to: the growth for ten times the size, and the tables.

use super::STORE;
use super::step::{Answer, Operation};
use crate::model::{Growth, GrowthPoint, PublishedTable, Row, TableRow};
use crate::statistics::median;
use crate::words::{NOTHING, bytes, ratio, significant, time_ns};

/// What grows.
pub(super) const ONE_DIRECTORY: &str = "files in one directory";
pub(super) const MANY_DIRECTORIES: &str = "files in many directories";
pub(super) const ONE_FILE: &str = "bytes in one file";
pub(super) const FULL: &str = "per cent of the disk full";

/// A row's name.
pub(super) fn work(operation: Operation, over: &str, size: u64) -> String {
    format!("{}, {}", operation.name(), size_words(over, size))
}

/// A size in words: "10,000 files in one directory".
pub(super) fn size_words(over: &str, size: u64) -> String {
    match over {
        ONE_FILE => format!("{} in one file", bytes(size)),
        _ => format!("{} {over}", grouped(size)),
    }
}

/// The number in a column's head.
fn head(over: &str, size: u64) -> String {
    match over {
        ONE_FILE => bytes(size),
        FULL => format!("{size} %"),
        _ => grouped(size),
    }
}

/// All digits, thousands apart.
fn grouped(size: u64) -> String {
    let digits = size.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// One size of one operation.
pub(super) struct Point(GrowthPoint);

impl Point {
    pub(super) fn new(size: u64, row: &Row, answers: &[Answer]) -> Self {
        let valid = answers
            .iter()
            .filter(|answer| answer.round.as_ref().is_some_and(|round| round.is_valid()));
        let peaks: Vec<f64> = valid
            .filter_map(|answer| answer.peak_bytes)
            .map(|peak| peak as f64)
            .collect();
        Self(GrowthPoint {
            size,
            work: row.work.clone(),
            seconds: row.summary.map(|summary| summary.median),
            peak_bytes: median(&peaks)
                .filter(|_| row.summary.is_some())
                .map(|peak| peak as u64),
        })
    }
}

/// The operations on rooms of rising sizes.
pub(super) struct Series {
    over: String,
    operations: Vec<(Operation, Vec<GrowthPoint>)>,
}

impl Series {
    pub(super) fn new(over: &str) -> Self {
        Self {
            over: over.to_owned(),
            operations: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, operation: Operation, Point(point): Point) {
        match self.operations.iter_mut().find(|(of, _)| *of == operation) {
            Some((_, points)) => points.push(point),
            None => self.operations.push((operation, vec![point])),
        }
    }

    pub(super) fn growth(self) -> Vec<Growth> {
        let over = self.over;
        let growth = |(operation, points): (Operation, Vec<GrowthPoint>)| {
            let of = |value: &dyn Fn(&GrowthPoint) -> Option<f64>| {
                let points = points.iter();
                let valid = points.filter_map(|point| Some((point.size as f64, value(point)?)));
                per_decade(&valid.collect::<Vec<_>>())
            };
            Growth {
                store: STORE.to_owned(),
                operation: operation.name().to_owned(),
                over: over.clone(),
                time_per_decade: of(&|point| point.seconds),
                memory_per_decade: of(&|point| point.peak_bytes.map(|peak| peak as f64)),
                points,
            }
        };
        self.operations.into_iter().map(growth).collect()
    }
}

/// The factor for ten times the size: ten to the slope of the line through the logarithms, fitted by least squares. `None` of fewer than
/// two sizes.
fn per_decade(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(size, cost)| *size > 0.0 && *cost > 0.0)
        .map(|(size, cost)| (size.log10(), cost.log10()))
        .collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let common: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (logs.len() >= 2 && spread > 0.0).then(|| 10f64.powf(common / spread))
}

/// The time and the memory, a table each for what grows.
pub(super) fn tables(growth: &[Growth]) -> Vec<PublishedTable> {
    let mut overs: Vec<&str> = Vec::new();
    for of in growth {
        if !overs.contains(&of.over.as_str()) {
            overs.push(&of.over);
        }
    }
    overs
        .into_iter()
        .flat_map(|over| {
            let here: Vec<&Growth> = growth.iter().filter(|of| of.over == over).collect();
            let time = |point: &GrowthPoint| {
                point
                    .seconds
                    .map_or("INVALID".to_owned(), |seconds| time_ns(seconds * 1e9))
            };
            let memory = |point: &GrowthPoint| match (point.seconds, point.peak_bytes) {
                (None, _) => "INVALID".to_owned(),
                (_, None) => NOTHING.to_owned(),
                (_, Some(peak)) => format!("{} MiB", significant(peak as f64 / f64::from(1 << 20))),
            };
            [
                table("Time of one", over, &here, time, |of| of.time_per_decade),
                table("Memory at the peak", over, &here, memory, |of| {
                    of.memory_per_decade
                }),
            ]
        })
        .collect()
}

fn table(
    what: &str,
    over: &str,
    growth: &[&Growth],
    cell: impl Fn(&GrowthPoint) -> String,
    per_decade: impl Fn(&Growth) -> Option<f64>,
) -> PublishedTable {
    let points = growth.iter().flat_map(|of| &of.points);
    let mut sizes: Vec<u64> = points.map(|point| point.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let rows = growth.iter().map(|of| {
        let at = |size: &u64| {
            let point = of.points.iter().find(|point| point.size == *size);
            point.map_or(NOTHING.to_owned(), &cell)
        };
        let factor =
            per_decade(of).map_or(NOTHING.to_owned(), |factor| format!("×{}", ratio(factor)));
        TableRow {
            name: of.operation.clone(),
            cells: sizes.iter().map(at).chain([factor]).collect(),
        }
    });
    PublishedTable {
        title: format!("{what}, by {over}"),
        source: "measured here, none published".to_owned(),
        rows: rows.collect(),
        columns: sizes
            .iter()
            .map(|size| head(over, *size))
            .chain(["per decade".to_owned()])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_slope_of_the_logarithms() {
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!((found / expected - 1.0).abs() < 1e-9, "{found}");
        };
        near(per_decade(&[(1e3, 2.0), (1e4, 2.0), (1e5, 2.0)]), 1.0);
        near(per_decade(&[(1e3, 2.0), (1e4, 20.0), (1e5, 200.0)]), 10.0);
        // Twice as much for a factor of 100.
        near(per_decade(&[(1e3, 1.0), (1e5, 2.0)]), 2f64.sqrt());
        assert_eq!(per_decade(&[(1e3, 1.0)]), None);
        assert_eq!(per_decade(&[(1e3, 1.0), (1e3, 2.0)]), None);
        assert_eq!(per_decade(&[]), None);
    }

    #[test]
    fn an_invalid_size_has_no_time_and_no_share_in_the_growth() {
        let point = |size: u64, seconds: Option<f64>| {
            Point(GrowthPoint {
                size,
                work: work(Operation::Open, ONE_FILE, size),
                seconds,
                peak_bytes: seconds.map(|_| 3 << 20),
            })
        };
        let mut series = Series::new(ONE_FILE);
        series.add(Operation::Open, point(1 << 20, Some(0.010)));
        series.add(Operation::Open, point(1 << 24, None));
        series.add(Operation::Open, point(1 << 30, Some(0.010)));
        let tables = tables(&series.growth());
        assert_eq!(tables[0].title, "Time of one, by bytes in one file");
        assert_eq!(
            tables[0].columns,
            ["1 MiB", "16 MiB", "1 GiB", "per decade"]
        );
        assert_eq!(
            tables[0].rows[0].cells,
            ["10.0 ms", "INVALID", "10.0 ms", "×1.00"]
        );
        assert_eq!(
            tables[1].rows[0].cells,
            ["3.00 MiB", "INVALID", "3.00 MiB", "×1.00"]
        );
    }

    #[test]
    fn numbers_are_grouped() {
        let words = [1, 1000, 1_234_567].map(grouped);
        assert_eq!(words, ["1", "1,000", "1,234,567"]);
    }
}
