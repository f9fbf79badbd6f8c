//! What is done to a store, one round at a time.
//!
//! 1. A round prepares, is timed, and is looked at afterwards: making caches cold, making data, and comparing what was read
//!    happen outside the time.
//! 2. Whatever a work makes it removes, but for the bed's one large file, which all works share.
//! 3. What the machine saw of each round ([`Evidence`]) is judged by [`validity`]
//!    against what the round says it did.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;

use crate::clock::Clock;
use crate::engine::Recorder;
use crate::model::{Round, Unit};
use crate::observe::Evidence;
use crate::statistics::{Steadiness, steadiness};
use crate::store::{Object, Powers};
use crate::validity::{self, Claim, Limits};
use crate::{Error, Result};

mod bed;
mod calls;
pub mod cipher;
mod dd;
pub mod ladder;
mod mailbox;
mod metadata;
mod outcome;
pub mod scale;
mod sets;
pub mod small_files;
mod sync;
mod transactions;
mod tree;

pub use bed::{Bed, usual_size};
pub use calls::{Calls, Direction, Order, Way};
pub use dd::Dd;
pub use mailbox::Mailbox;
pub use metadata::Metadata;
pub use outcome::{Begun, Outcome, new_seed};
pub use sets::{cost, durable, full, is_selected, select, tools, usual};
pub use sync::Syncs;
pub use transactions::Transactions;
pub use tree::SourceTree;

/// Slices of the curve over time, at most.
const CURVE: usize = 50;

/// What all works of a run share.
pub struct Context<'a> {
    /// What measures.
    pub clock: &'a dyn Clock,
    /// Set when the person wants to stop.
    pub stop: &'a AtomicBool,
    /// Of all data and orders.
    pub seed: u64,
    /// Bytes of the large file.
    pub size: u64,
    /// Longest time of a round, seconds.
    pub seconds: f64,
    /// Small files for works on names.
    pub files: u32,
    /// When a check fires.
    pub limits: Limits,
}

impl Context<'_> {
    fn limit_ns(&self) -> u64 {
        (self.seconds * 1e9) as u64
    }

    /// # Errors
    /// [`Error::Stopped`] once the person wants to stop: a round that was cut short is not kept.
    fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            Err(Error::Stopped)
        } else {
            Ok(())
        }
    }
}

/// A row that a work makes.
#[derive(Debug, Clone, PartialEq)]
pub struct RowName {
    /// As [`Row::work`](crate::model::Row::work).
    pub work: String,
    /// As [`Row::unit`](crate::model::Row::unit).
    pub unit: Unit,
    /// Whether it writes: only then is there a write amplification.
    pub writes: bool,
}

/// Something that is done to a store.
pub trait Work {
    /// The rows it makes, one or more, in the order in which [`round`](Self::round) answers them.
    fn rows(&self) -> Vec<RowName>;

    /// Why it cannot be done to such a store; `None` if it can.
    fn impossible(&self, powers: Powers) -> Option<&'static str>;

    /// Does it once.
    ///
    /// # Errors
    /// What the store says; [`Error::Stopped`].
    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>>;
}

/// One round of one row.
#[derive(Debug, Clone)]
pub struct Measured {
    /// As the report has it.
    pub round: Round,
    /// Nanoseconds of each operation.
    pub latency: Histogram<u64>,
}

/// What a timed part did, and what was seen of it.
struct Timed {
    recorder: Recorder,
    evidence: Evidence,
    claim: Claim,
    /// Whether a beginning that is not steady may be cut off: not where a sync at the end is part of the work.
    cut: bool,
}

impl Timed {
    fn measured(mut self, unit: Unit, bed: &Bed, context: &Context<'_>) -> Measured {
        let seconds = self.evidence.seconds();
        let ended = (self.evidence.elapsed.raw_ns.max(0)) as u64;
        let (slices, slice_ns) = self.recorder.whole_slices(ended);
        let rate = |operations: u64, bytes: u64, seconds: f64| {
            let amount = match unit {
                Unit::MegabytesPerSecond => bytes as f64 / 1e6,
                Unit::OperationsPerSecond | Unit::FilesPerSecond => operations as f64,
                Unit::Seconds => return seconds,
            };
            // A clock that has stopped must not make an infinite rate, which JSON does not know.
            if seconds > 0.0 { amount / seconds } else { 0.0 }
        };
        let (operations, bytes) = (self.recorder.operations, self.recorder.bytes);
        let over_time: Vec<f64> = joined(&slices)
            .map(|(count, (operations, bytes))| {
                rate(operations, bytes, count as f64 * slice_ns as f64 / 1e9)
            })
            .collect();
        let mut round = Round {
            rate: rate(operations, bytes, seconds),
            operations,
            bytes,
            seconds,
            cpu_s: self.evidence.cpu_s,
            device_read_bytes: self.evidence.bottom().map(|device| device.did.read_bytes),
            device_written_bytes: self
                .evidence
                .bottom()
                .map(|device| device.did.written_bytes),
            ..Round::default()
        };
        if self.cut
            && let Steadiness::From(first @ 1..) = steadiness(&over_time)
        {
            let per = slices.len().div_ceil(CURVE).max(1);
            let gone = &slices[..(first as usize * per).min(slices.len())];
            let cut_s = gone.len() as f64 * slice_ns as f64 / 1e9;
            let sum = |of: fn(&(u64, u64)) -> u64| gone.iter().map(of).sum::<u64>();
            round.rate = rate(
                operations - sum(|slice| slice.0),
                bytes - sum(|slice| slice.1),
                seconds - cut_s,
            );
            round.cut_off = first;
        }
        if self.cut {
            self.claim.slices.clone_from(&over_time);
        }
        round.over_time = over_time;
        self.claim.operations = operations;
        self.claim.bytes = bytes;
        round.issues =
            validity::of_round(&self.evidence, &self.claim, &bed.ceilings, &context.limits);
        Measured {
            round,
            latency: self.recorder.latency,
        }
    }
}

/// Slices put together so that there are no more than [`CURVE`]; a last part that is not whole is left out.
fn joined(slices: &[(u64, u64)]) -> impl Iterator<Item = (usize, (u64, u64))> {
    let per = slices.len().div_ceil(CURVE).max(1);
    slices.chunks_exact(per).map(move |group| {
        let sum = |of: fn(&(u64, u64)) -> u64| group.iter().map(of).sum::<u64>();
        (per, (sum(|slice| slice.0), sum(|slice| slice.1)))
    })
}

/// The descriptors of an object, as far as it has one.
fn fds(object: &dyn Object) -> Vec<BorrowedFd<'_>> {
    object.fd().into_iter().collect()
}

/// Whether a descriptor has O_DIRECT.
fn direct_flag(object: &dyn Object) -> Option<bool> {
    let flags = rustix::fs::fcntl_getfl(object.fd()?).ok()?;
    Some(flags.contains(rustix::fs::OFlags::DIRECT))
}

/// A call on an object that failed.
fn failed<'a>(bed: &'a Bed, doing: &'a str) -> impl Fn(std::io::Error) -> Error + 'a {
    move |error| Error::store(bed.label(), format!("{doing}: {error}"))
}

/// A size in a row's name: "4 KiB".
fn size_words(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests;
