//! Tables that are not one row a work: sub-operations, and the rows of publications.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the time of an operation went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parts {
    /// Label of the store.
    pub store: String,
    /// The operation, as in "read".
    pub operation: String,
    /// How many.
    pub count: u64,
    /// Mean time of the whole operation, seen from outside.
    pub whole_ns: f64,
    /// The parts, in the order they happen.
    pub parts: Vec<SubOperation>,
    /// The whole less the parts: what no span covers, negative when parts overlap.
    pub rest_ns: f64,
    /// Whether its row is INVALID, and so is all this; the row says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub invalid: bool,
}

/// A part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubOperation {
    /// As in "device", "sealing", "opening", "catalog", "FUSE round trip".
    pub name: String,
    /// Mean for one operation.
    pub mean_ns: f64,
    /// How many times a part of this name happened, for one operation.
    pub times: f64,
}

/// A table as it was published, with what was measured here beside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedTable {
    /// What it shows.
    pub title: String,
    /// Whose figures the published columns are.
    pub source: String,
    /// Names of the columns after the first; those published say so.
    pub columns: Vec<String>,
    /// The rows, in the publication's order.
    pub rows: Vec<TableRow>,
}

impl PublishedTable {
    /// The head and the rows, each with its first column.
    pub(crate) fn texts(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let line = |first: &str, rest: &[String]| {
            let mut line = vec![first.to_owned()];
            line.extend_from_slice(rest);
            line
        };
        let rows = self.rows.iter().map(|row| line(&row.name, &row.cells));
        (line("", &self.columns), rows.collect())
    }
}

/// A row of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TableRow {
    /// First column.
    pub name: String,
    /// One text a column, with its unit where the column's name has none; "–" where there is nothing.
    pub cells: Vec<String>,
}
