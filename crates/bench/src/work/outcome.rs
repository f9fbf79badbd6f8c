//! What comes of the works that are commands of their own, and the document it becomes.

use crate::clock::{Clock, SystemClock};
use crate::model::{Growth, Parts, PublishedTable, Report, Row, SCHEMA, StoreFacts, WORKS};
use crate::observe;

/// What came out.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// One a store and a thing done.
    pub rows: Vec<Row>,
    /// Where the time went, where somebody listened to spans.
    pub parts: Vec<Parts>,
    /// How cost grows with size, where that was measured.
    pub growth: Vec<Growth>,
    /// The rows as tables, published ones beside.
    pub tables: Vec<PublishedTable>,
    /// The stores, in the order measured.
    pub stores: Vec<StoreFacts>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Whether it was stopped before everything was done.
    pub interrupted: bool,
}

/// The moment a command began.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    at: jiff::Timestamp,
    raw_ns: u64,
}

impl Begun {
    /// Now.
    pub fn now() -> Self {
        Self {
            at: jiff::Timestamp::now(),
            raw_ns: SystemClock.raw_ns(),
        }
    }
}

/// A seed that nobody chose; any number that reads JSON as doubles keeps it.
pub fn new_seed() -> u64 {
    fastrand::u64(..1 << 53)
}

impl Outcome {
    /// The document of a command that is done now.
    pub fn report(self, command: &str, options: Vec<String>, seed: u64, begun: Begun) -> Report {
        Report {
            schema: SCHEMA,
            works: WORKS,
            command: command.to_owned(),
            options,
            began: begun.at.to_string(),
            took_s: (SystemClock.raw_ns() - begun.raw_ns) as f64 / 1e9,
            seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: observe::machine(),
            stores: self.stores,
            noise: None,
            rows: self.rows,
            comparisons: Vec::new(),
            parts: self.parts,
            growth: self.growth,
            tables: self.tables,
            notes: self.notes,
            interrupted: self.interrupted,
        }
    }
}
