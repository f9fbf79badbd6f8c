//! How the cost of an operation grows with the size of what it is done to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One operation on rooms of several sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// Label of the store.
    pub store: String,
    /// What was done, as in "open", "lookup".
    pub operation: String,
    /// What grows, as in "files in one directory", "bytes in one file", "per cent full".
    pub over: String,
    /// Each size, in rising order.
    pub points: Vec<GrowthPoint>,
    /// Factor of the time for ten times the size: 1 does not grow, 10 grows as the size does. Of the line fitted through the logarithms
    /// of the valid points, by least squares; `None` where there are fewer than two.
    pub time_per_decade: Option<f64>,
    /// The same of the memory.
    pub memory_per_decade: Option<f64>,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthPoint {
    /// How much there is of what grows.
    pub size: u64,
    /// [`Row::work`](super::Row::work) of the row with the rounds.
    pub work: String,
    /// Time of one operation, seconds: the median of the valid rounds; `None` where the row is INVALID.
    pub seconds: Option<f64>,
    /// Resident memory at its peak, bytes, of a process that opens the room and does this: the median of the valid rounds.
    pub peak_bytes: Option<u64>,
}
