//! Many small files, each operation once a file in a random order, and where its time goes.
//!
//! 1. The time of an operation is taken around the calls of that operation alone; making data, comparing what was read, and
//!    emptying caches are outside it. The whole of [`Parts`] is the sum of these times.
//! 2. Writes are durable when their time ends. Changes of names and modes are not: what making them durable takes afterwards is
//!    said in a note.
//! 3. Before reading and before opening the caches are emptied; what they still hold makes the row INVALID.
//!
//! It deliberately does not know which spans there are, nor the published times.

mod at;
mod host;
mod mounted;
mod room;
mod shared;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Outcome;
use hdrhistogram::Histogram;

use crate::clock::{Clock, SystemClock};
use crate::data::{BLOCK, Content, Data};
use crate::model::{Issue, IssueKind, Parts, Round, Row, StoreFacts, Unit, Verdict};
use crate::observe::{self, Ceilings, Evidence, Observer};
use crate::progress::Progress;
use crate::spans::{Snapshot, Spans};
use crate::validity::{self, Claim, Direction, Limits};
use crate::words::{bytes, time_ns};
use crate::{Error, Result, engine, published, statistics};

pub use host::Directory;
pub use mounted::MountedHere;
pub use room::Library;
pub use shared::{Connect, Connection, Share, Shared};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Files.
    pub files: u32,
    /// Bytes of each, a multiple of 4096.
    pub size: usize,
    /// Of data and orders.
    pub seed: u64,
    /// Also drop the kernel's names and inodes, for everybody on this machine; needs root.
    pub drop_caches: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            files: 700,
            size: 4096,
            seed: 1,
            drop_caches: false,
        }
    }
}

/// Files of one directory, by name.
pub trait Files {
    /// Makes a file that is not there, with this content; durable when it returns.
    fn create(&self, name: &str, content: &[u8]) -> Result<()>;
    /// Reads a file from the beginning into `buf`, opening and closing it. How many bytes there were.
    fn read(&self, name: &str, buf: &mut [u8]) -> Result<usize>;
    /// Writes over a file from its beginning; durable when it returns.
    fn write(&self, name: &str, content: &[u8]) -> Result<()>;
    /// Opens a file and closes it.
    fn open(&self, name: &str) -> Result<()>;
    /// Changes permission bits.
    fn chmod(&self, name: &str, mode: u32) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, name: &str) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
}

/// A store with a directory of small files.
pub trait Subject {
    /// What it is.
    fn facts(&self) -> StoreFacts;
    /// Its files.
    fn files(&self) -> &dyn Files;
    /// Lets everything kept in memory go, and opens or mounts afresh.
    fn reopen(&mut self) -> Result<()>;
    /// The directory on the host that holds its bytes.
    fn backing(&self) -> &Path;
    /// Processes on this machine that serve it: what they do counts as its own.
    fn servers(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Whether rights are capabilities here, and somebody else has them, from whom changes of names and modes take them away.
    fn revokes(&self) -> bool {
        false
    }
    /// Somebody else reads a file, under the rights that he was given for it last, if any. How many bytes there were.
    fn other_reads(&self, name: &str, buf: &mut [u8]) -> Result<usize> {
        let _ = (name, buf);
        Ok(0)
    }
    /// Somebody else opens a file and keeps what he was given for it; or closes it.
    fn other_has_open(&self, name: &str, open: bool) -> Result<()> {
        let _ = (name, open);
        Ok(())
    }
    /// Ends it. The files stay; the caller removes the directory.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Permission bits under which others may read a file, as new ones have, and under which they may not.
const MODE_TO_READ: u32 = 0o644;
const MODE_TO_NONE: u32 = 0o600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Read,
    Write,
    Open,
    Chmod,
    Unlink,
    /// Of files that somebody else just read, and may not read any more afterwards; every second of them.
    ChmodRevoking,
    /// By another user, whose right to read was revoked, and restored.
    ReadRevoked,
    /// Of files that somebody else just read; every second of them.
    UnlinkRevoking,
}

impl Operation {
    /// Only where rights are capabilities.
    const REVOKING: [Self; 3] = [Self::ChmodRevoking, Self::ReadRevoked, Self::UnlinkRevoking];

    const ALL: [Self; 6] = [
        Self::Create,
        Self::Read,
        Self::Write,
        Self::Open,
        Self::Chmod,
        Self::Unlink,
    ];

    /// As in [`Parts::operation`](crate::model::Parts::operation).
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::Open => "open",
            Self::Chmod => "chmod",
            Self::Unlink => "unlink",
            Self::ChmodRevoking => "chmod with revocation",
            Self::ReadRevoked => "read after revocation",
            Self::UnlinkRevoking => "unlink with revocation",
        }
    }

    /// What is done in turns with it: the same to files that nobody else read. Only so is what revoking costs more than what
    /// syncing differs from one second to the next.
    fn beside(self) -> Option<&'static str> {
        match self {
            Self::ChmodRevoking => Some("chmod beside revocations"),
            Self::UnlinkRevoking => Some("unlink beside revocations"),
            _ => None,
        }
    }

    /// Whether it is done to this file; else what is beside it is.
    fn concerns(self, number: u32) -> bool {
        self.beside().is_none() || number.is_multiple_of(2)
    }

    fn is_cold(self) -> bool {
        matches!(self, Self::Read | Self::Open)
    }

    /// What is said of it, for the checks.
    fn claim(self, options: &Options, pass: &Pass) -> Claim {
        let direction = match self {
            Self::Create | Self::Write => Direction::Write,
            Self::Read => Direction::Read,
            Self::Open
            | Self::Chmod
            | Self::Unlink
            | Self::ChmodRevoking
            | Self::ReadRevoked
            | Self::UnlinkRevoking => Direction::Neither,
        };
        let files = pass.latency.len();
        Claim {
            direction,
            operations: files,
            bytes: match direction {
                Direction::Neither => 0,
                _ => files * options.size as u64,
            },
            cold: self.is_cold(),
            durable: direction == Direction::Write,
            syncs: match direction {
                Direction::Write => files,
                _ => 0,
            },
            compared_bytes: pass.compared_bytes,
            wrong_bytes: pass.wrong_bytes,
            ..Claim::default()
        }
    }

    fn words(self, options: &Options) -> String {
        let what = match self {
            Self::Create => "create, write, fsync",
            Self::Read => "open, read, cold",
            Self::Write => "open, write over, fsync",
            Self::Open => "open, cold",
            Self::Chmod => "chmod",
            Self::Unlink => "unlink",
            Self::ChmodRevoking => "chmod that revokes",
            Self::ReadRevoked => "read after a revocation",
            Self::UnlinkRevoking => "unlink that revokes",
        };
        format!("{what}: files of {}", bytes(options.size as u64))
    }
}

/// Makes a store when its turn comes, so that none is idle beside another one.
pub type Maker<'a> = Box<dyn FnOnce() -> Result<Box<dyn Subject>> + 'a>;

/// Measures every operation on each of `subjects`, one after the other, and ends it before the next is made; or until `stop` is
/// set: then what is done is kept. With `spans`, also where the time went.
///
/// # Errors
/// Of the first store that fails.
pub fn run(
    options: &Options,
    subjects: Vec<Maker<'_>>,
    spans: Option<&Spans>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Outcome> {
    if options.files == 0 || options.size == 0 || !options.size.is_multiple_of(BLOCK) {
        return Err(Error::Usage(format!(
            "{} files of {} bytes: there must be files, of a multiple of {BLOCK} bytes",
            options.files, options.size
        )));
    }
    let mut out = Outcome::default();
    progress.rows((subjects.len() * Operation::ALL.len()) as u64);
    for make in subjects {
        if stop.load(Ordering::Relaxed) {
            out.interrupted = true;
            break;
        }
        let mut subject = make()?;
        out.stores.push(subject.facts());
        let done = one(&mut *subject, options, spans, progress, stop, &mut out);
        let ended = subject.close();
        done.and(ended)?;
    }
    progress.end();
    out.tables.push(published::small_files(&out.parts));
    if spans.is_some() {
        out.notes.push(format!(
            "a span costs about {} here, twice read the clock: that much for each time a part happens is in the parts' own times",
            time_ns(cost_of_a_span())
        ));
    }
    Ok(out)
}

/// Every operation is done once a file: there is one round, however short.
fn limits() -> Limits {
    Limits {
        seconds_min: 0.0,
        operations_min: 1,
        rounds_min: 1,
        ..Limits::default()
    }
}

fn one(
    subject: &mut dyn Subject,
    options: &Options,
    spans: Option<&Spans>,
    progress: &dyn Progress,
    stop: &AtomicBool,
    out: &mut Outcome,
) -> Result<()> {
    let label = subject.facts().label;
    let mut operations = Operation::ALL.to_vec();
    if subject.revokes() {
        operations.extend(Operation::REVOKING);
    }
    for operation in operations {
        if stop.load(Ordering::Relaxed) {
            out.interrupted = true;
            return Ok(());
        }
        let work = operation.words(options);
        progress.row(&format!("{work}: {label}"));
        let mut issues = Vec::new();
        prepare(subject, operation, options)?;
        if operation.is_cold() {
            subject.files().sync()?;
            subject.reopen()?;
            issues.extend(host::empty_caches(
                subject.backing(),
                options.drop_caches,
                &mut out.notes,
            ));
        }
        let observer = Observer::new(observe::Subject {
            path: subject.backing().to_owned(),
            backing: vec![subject.backing().to_owned()],
            servers: subject.servers(),
        });
        let before = spans.map(Spans::snapshot);
        let watch = observer.begin(&SystemClock, &[]);
        let pass = pass(subject, operation, options, progress)?;
        let evidence = watch.finish(&[]);
        let came = spans
            .zip(before)
            .map(|(spans, before)| spans.snapshot().since(&before));
        if matches!(operation, Operation::Chmod | Operation::Unlink) {
            let began = SystemClock.raw_ns();
            subject.files().sync()?;
            let ns = SystemClock.raw_ns() - began;
            out.notes.push(format!(
                "{label}: making {} changes by {} durable afterwards took {}",
                options.files,
                operation.name(),
                time_ns(ns as f64)
            ));
        }
        let claim = operation.claim(options, &pass);
        issues.extend(validity::of_round(
            &evidence,
            &claim,
            &Ceilings::default(),
            &limits(),
        ));
        let invalid = issues.iter().any(|issue| issue.kind.invalidates());
        let first = out.parts.len();
        match (came, operation.beside()) {
            (Some(came), None) => {
                let count = u64::from(options.files);
                out.parts
                    .push(came.parts(&label, operation.name(), count, pass.ns));
                elsewhere(&came, &label, operation, &mut out.notes);
            }
            // Spans do not say to which of the two they belong.
            (Some(_), Some(beside)) => out.parts.extend([
                whole(&label, operation.name(), &pass.latency, pass.ns),
                whole(&label, beside, &pass.beside, pass.beside_ns),
            ]),
            (None, _) => {}
        }
        for parts in &mut out.parts[first..] {
            parts.invalid = invalid;
        }
        if let Some(why) = issues.iter().find(|issue| issue.kind.invalidates()) {
            out.notes.push(format!(
                "{label}, {}: INVALID, and so are its parts: {}",
                operation.name(),
                why.said
            ));
        }
        out.rows
            .push(row(&label, work, &pass, &claim, &evidence, issues));
    }
    Ok(())
}

/// Before an operation with a revocation: files that somebody else just read, so that there is something to revoke.
fn prepare(subject: &dyn Subject, operation: Operation, options: &Options) -> Result<()> {
    if !Operation::REVOKING.contains(&operation) {
        return Ok(());
    }
    let files = subject.files();
    let mut content = vec![0; options.size];
    for number in 0..options.files {
        let name = name(number);
        match operation {
            Operation::ChmodRevoking => {
                let data = Data::new(options.seed, u64::from(number), Content::Unique);
                data.fill(0, &mut content, |_| 0);
                files.create(&name, &content)?;
            }
            Operation::UnlinkRevoking => {
                subject.other_has_open(&name, false)?;
                remove(files, &name)?;
            }
            _ => {
                files.chmod(&name, MODE_TO_READ)?;
                // What is known of a file that nobody has open is soon forgotten, and with it the right to be refused.
                subject.other_has_open(&name, true)?;
            }
        }
        if operation.concerns(number) {
            subject.other_reads(&name, &mut content)?;
        }
        if operation == Operation::ReadRevoked {
            remove(files, &name)?;
        }
    }
    Ok(())
}

/// Takes the right to read from others, and gives it back.
fn remove(files: &dyn Files, name: &str) -> Result<()> {
    files.chmod(name, MODE_TO_NONE)?;
    files.chmod(name, MODE_TO_READ)
}

fn name(number: u32) -> String {
    format!("file-{number:06}")
}

/// What the operations took, and what was read wrong.
struct Pass {
    latency: Histogram<u64>,
    ns: u64,
    /// Of what was done [beside](Operation::beside) it.
    beside: Histogram<u64>,
    beside_ns: u64,
    compared_bytes: u64,
    wrong_bytes: u64,
}

fn pass(
    subject: &dyn Subject,
    operation: Operation,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Pass> {
    let mut order: Vec<u32> = (0..options.files).collect();
    fastrand::Rng::with_seed(options.seed ^ operation as u64).shuffle(&mut order);
    let mut content = vec![0; options.size];
    // Its argument is fixed, and right.
    let mut latency = Histogram::new(3).expect("a histogram of three digits");
    latency.auto(true);
    let mut pass = Pass {
        beside: latency.clone(),
        beside_ns: 0,
        latency,
        ns: 0,
        compared_bytes: 0,
        wrong_bytes: 0,
    };
    let files = subject.files();
    let every = (order.len() / 50).max(1);
    for (done, number) in order.into_iter().enumerate() {
        let name = name(number);
        let data = Data::new(options.seed, u64::from(number), Content::Unique);
        match operation {
            Operation::Create => data.fill(0, &mut content, |_| 0),
            Operation::Write => data.fill(0, &mut content, |_| 1),
            _ => {}
        }
        let began = SystemClock.raw_ns();
        let read = Spans::operation(|| match operation {
            Operation::Create => files.create(&name, &content).map(|()| None),
            Operation::Read => files.read(&name, &mut content).map(Some),
            Operation::Write => files.write(&name, &content).map(|()| None),
            Operation::Open => files.open(&name).map(|()| None),
            Operation::ReadRevoked => subject.other_reads(&name, &mut content).map(Some),
            Operation::Chmod | Operation::ChmodRevoking => {
                files.chmod(&name, MODE_TO_NONE).map(|()| None)
            }
            Operation::Unlink | Operation::UnlinkRevoking => files.unlink(&name).map(|()| None),
        })?;
        let ns = SystemClock.raw_ns() - began;
        let (sum, latency) = match operation.concerns(number) {
            true => (&mut pass.ns, &mut pass.latency),
            false => (&mut pass.beside_ns, &mut pass.beside),
        };
        *sum += ns;
        // It grows with what it is given.
        let _ = latency.record(ns.max(1));
        if let Some(read) = read {
            pass.compared_bytes += options.size as u64;
            if read != content.len() || data.check(0, &content, |_| 0).is_err() {
                pass.wrong_bytes += options.size as u64;
            }
        }
        if done % every == 0 {
            progress.advance((done as f64 / f64::from(options.files)).min(0.99));
        }
    }
    progress.advance(1.0);
    Ok(pass)
}

/// A part that is the whole.
fn whole(label: &str, operation: &str, latency: &Histogram<u64>, ns: u64) -> Parts {
    let mean = ns as f64 / latency.len().max(1) as f64;
    Parts {
        store: label.to_owned(),
        operation: operation.to_owned(),
        count: latency.len(),
        whole_ns: mean,
        parts: Vec::new(),
        rest_ns: mean,
        invalid: false,
    }
}

fn row(
    label: &str,
    work: String,
    pass: &Pass,
    claim: &Claim,
    evidence: &Evidence,
    issues: Vec<Issue>,
) -> Row {
    let seconds = pass.ns as f64 / 1e9;
    let round = Round {
        rate: claim.operations as f64 / seconds.max(1e-9),
        operations: claim.operations,
        bytes: claim.bytes,
        seconds,
        cpu_s: evidence.cpu_s,
        device_read_bytes: evidence.bottom().map(|device| device.did.read_bytes),
        device_written_bytes: evidence.bottom().map(|device| device.did.written_bytes),
        issues,
        ..Round::default()
    };
    let rounds = vec![round];
    Row {
        store: label.to_owned(),
        work,
        unit: Unit::FilesPerSecond,
        summary: statistics::summary(&rounds, claim.direction == Direction::Write),
        latency: engine::distribution([&pass.latency]),
        itself: None,
        verdict: verdict(&rounds),
        rounds,
    }
}

/// Of the one round there is: that one round is few, everybody knows.
fn verdict(rounds: &[Round]) -> Verdict {
    let mut verdict = validity::of_row(rounds, &limits());
    verdict
        .issues
        .retain(|issue| issue.kind != IssueKind::TooShort);
    verdict
}

/// What other threads did meanwhile, if it was much: it takes processor time and the device from the measured ones.
fn elsewhere(came: &Snapshot, label: &str, operation: Operation, notes: &mut Vec<String>) {
    let ns: u64 = came.elsewhere().iter().map(|total| total.own_ns).sum();
    if ns > 10_000_000 {
        let mut most: Vec<_> = came.elsewhere().to_vec();
        most.sort_by_key(|total| std::cmp::Reverse(total.own_ns));
        let most: Vec<String> = most
            .iter()
            .take(3)
            .map(|total| format!("{} {}", total.name, time_ns(total.own_ns as f64)))
            .collect();
        notes.push(format!(
            "{label}, {}: {} of work in the background beside it ({})",
            operation.name(),
            time_ns(ns as f64),
            most.join(", ")
        ));
    }
}

/// Nanoseconds that one span adds, measured: with nothing in it.
fn cost_of_a_span() -> f64 {
    const TIMES: u64 = 10_000;
    let began = SystemClock.raw_ns();
    for _ in 0..TIMES {
        Spans::operation(|| {});
    }
    (SystemClock.raw_ns() - began) as f64 / TIMES as f64
}

#[cfg(test)]
mod tests;
