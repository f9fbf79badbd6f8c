//! What a measurement is when it is done: one document, the same for the terminal, `--json`, `--html` and the history.
//!
//! 1. Times are nanoseconds or seconds, as the name's last word says; sizes are bytes; rates are in the row's [`Unit`].
//! 2. A field that could not be had is `None`, never zero.
//! 3. Everything that is shown can be computed again from the rounds.

mod growth;
mod machine;
mod row;
mod tables;

pub use growth::{Growth, GrowthPoint};
pub use machine::{Machine, StoreFacts};
pub use row::{
    Comparison, Distribution, Issue, IssueKind, Itself, NoiseFloor, Round, Row, Summary, Unit,
    Verdict,
};
pub use tables::{Parts, PublishedTable, SubOperation, TableRow};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form of the document; raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;
/// What the works do; raised when rows of the same name are of something else than before. What was measured wrongly before is
/// INVALID when it is read.
pub const WORKS: u32 = 1;

/// One run of one command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// [`WORKS`] of the program that measured; 0 in documents that do not have it.
    #[serde(default)]
    pub works: u32,
    /// What was asked for, as in "storage", "compare", "cost".
    pub command: String,
    /// The options, one a line, as in "--size 256MiB": enough to ask for the same again.
    pub options: Vec<String>,
    /// When it began: RFC 3339, UTC.
    pub began: String,
    /// How long it took, seconds.
    pub took_s: f64,
    /// Seed of all data and orders.
    pub seed: u64,
    /// Version of the program.
    pub version: String,
    /// Where.
    pub machine: Machine,
    /// What was measured, in the order asked for; the first is what the others are compared with.
    pub stores: Vec<StoreFacts>,
    /// What a store compared with itself shows, and the checks that were seen to fire, if it was tried.
    pub noise: Option<NoiseFloor>,
    /// What came out, in the order measured: one row a store and a work.
    pub rows: Vec<Row>,
    /// Rows of two stores against each other.
    pub comparisons: Vec<Comparison>,
    /// Times of sub-operations.
    pub parts: Vec<Parts>,
    /// How cost grows with size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
    /// Tables in the rows of a publication, the published column beside.
    pub tables: Vec<PublishedTable>,
    /// What a reader should know: what was cut off, what could not be observed here. One sentence each.
    pub notes: Vec<String>,
    /// Whether it was stopped before everything was done.
    pub interrupted: bool,
}

impl Report {
    /// The rows of the first store that were measured against themselves, with what that showed.
    pub fn floors(&self) -> impl Iterator<Item = (&Row, &Itself)> {
        let rows = self.rows.iter();
        rows.filter_map(|row| Some((row, row.itself.as_ref()?)))
    }
}
