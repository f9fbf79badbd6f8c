//! Rows: rounds of one work on one store, what they amount to, and whether that is valid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Millions of bytes a second.
    MegabytesPerSecond,
    /// Operations a second.
    OperationsPerSecond,
    /// Files a second.
    FilesPerSecond,
    /// Seconds for the whole; here less is better.
    Seconds,
}

/// One work on one store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// [`StoreFacts::label`](super::StoreFacts::label).
    pub store: String,
    /// What was done: the same words for every store, as in "random read, 4 KiB, depth 1, cold".
    pub work: String,
    /// What [`Summary`] and [`Round::rate`] count.
    pub unit: Unit,
    /// Every measurement, in the order made.
    pub rounds: Vec<Round>,
    /// Of the valid rounds; `None` when there is none.
    pub summary: Option<Summary>,
    /// Latencies of the single operations of all valid rounds together.
    pub latency: Option<Distribution>,
    /// Whether it is valid.
    pub verdict: Verdict,
    /// The same work on the same store in the same turns: what differs is noise. Only rows of the first store have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itself: Option<Itself>,
}

/// A store against itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Itself {
    /// Every measurement of the second turn.
    pub rounds: Vec<Round>,
    /// How many times as fast as in the first turn.
    pub ratio: f64,
    /// Its 95 % confidence interval.
    pub low: f64,
    /// The interval's other end.
    pub high: f64,
}

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// In the row's unit.
    pub rate: f64,
    /// Operations done while the time ran.
    pub operations: u64,
    /// Bytes read or written by them.
    pub bytes: u64,
    /// Time by CLOCK_MONOTONIC_RAW.
    pub seconds: f64,
    /// Processor time of this process and of what serves the store, where that can be had.
    pub cpu_s: Option<f64>,
    /// Bytes the device read meanwhile.
    pub device_read_bytes: Option<u64>,
    /// Bytes the device wrote meanwhile: with `bytes`, the write amplification.
    pub device_written_bytes: Option<u64>,
    /// Rate of each equal slice of the round, in the row's unit, for the curve over time.
    pub over_time: Vec<f64>,
    /// Leading slices that were not steady yet and are not in `rate`.
    pub cut_off: u32,
    /// Why it is not valid; empty if it is.
    #[serde(rename = "doubts")]
    pub issues: Vec<Issue>,
}

impl Round {
    /// Whether it enters summaries and ratios.
    pub fn is_valid(&self) -> bool {
        self.issues.iter().all(|issue| !issue.kind.invalidates())
    }
}

/// Of the valid rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Median rate.
    pub median: f64,
    /// Least.
    pub least: f64,
    /// Most.
    pub most: f64,
    /// Rounds it is of.
    pub rounds: u32,
    /// Processor seconds for 10⁹ bytes, median.
    pub cpu_s_per_gb: Option<f64>,
    /// Bytes the device wrote for a byte written, median.
    pub write_amplification: Option<f64>,
}

/// A distribution of latencies, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Operations.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// All of it: HdrHistogram V2 with deflate, in Base64 (RFC 4648).
    pub histogram: String,
}

/// Whether a row is valid.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Whether too few valid rounds are left, or a check on the whole row fired.
    pub invalid: bool,
    /// Why, and what else is to be known.
    #[serde(rename = "doubts")]
    pub issues: Vec<Issue>,
}

/// A reason why a number is invalid, or to be read with care.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Doubt")]
pub struct Issue {
    /// Which check.
    pub kind: IssueKind,
    /// What was seen, with its numbers, in a sentence.
    pub said: String,
}

/// The checks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DoubtKind")]
pub enum IssueKind {
    /// The clocks disagree by more than 1 %.
    ClocksDisagree,
    /// The clock stood still while work was done.
    ClockStalled,
    /// The clock went back or leapt.
    ClockJumped,
    /// The time looks like processor time: no waiting is in it.
    ClockCountsProcessor,
    /// The device's counters do not fit what was done.
    CountersDisagree,
    /// Reads that were to be cold came from a cache.
    CacheHit,
    /// Direct calls went through the page cache.
    NotDirect,
    /// What was read is not what was written.
    WrongData,
    /// Zeros go faster than data: compression, deduplication or holes.
    DataMatters,
    /// A sync returned sooner than the device can.
    SyncTooFast,
    /// The round ended before what was written was durable.
    NotDurable,
    /// Too short for the confidence asked.
    TooShort,
    /// The rate never became steady.
    NotSteady,
    /// The rate drifts from round to round.
    Drift,
    /// The host took the processor away.
    StolenTime,
    /// The processor changed its frequency.
    FrequencyChanged,
    /// Somebody else used the device.
    DeviceShared,
    /// The device or file system is nearly full.
    NearlyFull,
    /// Faster than the device, or than memory.
    FasterThanPhysics,
    /// A store differs from itself.
    NoiseTooLarge,
    /// A check could not be made here.
    NotObservable,
}

impl IssueKind {
    /// Whether a number with this issue is INVALID; otherwise it is shown with a remark.
    pub fn invalidates(self) -> bool {
        !matches!(
            self,
            Self::DataMatters
                | Self::Drift
                | Self::NotSteady
                | Self::FrequencyChanged
                | Self::NearlyFull
                | Self::NotObservable
        )
    }
}

/// A store against another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`Row::work`].
    pub work: String,
    /// Label of the store that is 1.
    pub base: String,
    /// Label of the other.
    pub other: String,
    /// How many times as fast the other is, the ratio of medians; `None` when a side has no valid round.
    pub ratio: Option<f64>,
    /// Its 95 % confidence interval.
    pub low: Option<f64>,
    /// The interval's other end.
    pub high: Option<f64>,
    /// Whether the interval, widened to the noise floor, leaves out 1.
    pub differs: bool,
    /// Why there is no ratio.
    pub invalid: Option<String>,
}

/// A store compared with itself, and whether the checks work here: of several works, that with the widest interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseFloor {
    /// Label of the store.
    pub store: String,
    /// What was done.
    pub work: String,
    /// Ratio of the store to itself.
    pub ratio: f64,
    /// Its 95 % confidence interval.
    pub low: f64,
    /// The interval's other end.
    pub high: f64,
    /// Checks that were made to fire on purpose at the start, by what was tried.
    pub fired: Vec<String>,
    /// Checks that were tried and did not fire: the whole report may be invalid.
    #[serde(rename = "silent")]
    pub unfired: Vec<String>,
}
