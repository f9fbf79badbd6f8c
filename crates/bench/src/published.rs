//! Tables that others published, as data, and the same rows measured here beside.
//!
//! 1. Every published number is in the publication; a column that holds them says "published".
//! 2. What was not measured is "–", what is not valid is "INVALID".
//!
//! It deliberately does not know how anything is measured: it is given rows and comparisons.

mod dd;
mod ladder;
mod phone;
mod small_files;
mod tools;

pub use dd::{DdRow, dd};
pub use ladder::{LadderStep, ladder};
pub use phone::{ClockRow, PhoneRows, phone_clock, phone_loss};
pub use small_files::small_files;
pub use tools::{TOOL_WORKS, TOOLS, TOOLS_TITLE, Tool, tools, tools_of};

use crate::model::{Row, TableRow};
use crate::words::{NOTHING, significant};

/// The word for what fails a check.
pub(crate) const INVALID: &str = "INVALID";

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> TableRow {
    TableRow {
        name: name.into(),
        cells: cells.into_iter().collect(),
    }
}

/// A row's median, made into a number of another unit.
fn median(row: Option<&Row>, convert: impl Fn(f64) -> f64) -> String {
    match row {
        None => NOTHING.into(),
        Some(row) if row.verdict.invalid => INVALID.into(),
        Some(row) => row.summary.map_or(NOTHING.into(), |summary| {
            significant(convert(summary.median))
        }),
    }
}

/// How long a row's work took: the median of its valid rounds, seconds.
fn seconds(row: Option<&Row>) -> String {
    match row {
        None => NOTHING.into(),
        Some(row) if row.verdict.invalid => INVALID.into(),
        Some(row) => middle(
            row.rounds
                .iter()
                .filter(|r| r.is_valid())
                .map(|r| r.seconds),
        )
        .map_or(NOTHING.into(), significant),
    }
}

/// The median of some numbers.
fn middle(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    crate::statistics::median(&numbers.collect::<Vec<f64>>())
}
