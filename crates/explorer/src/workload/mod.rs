//! Workloads: short programs of file operations, made systematically, and what runs them.
//!
//! 1. A name such as `twos:123` or `random:7:200` names the same workload always; so do the lines it prints as.
//! 2. [`run`] notifies a [`Watch`] when a step begins, what a user sees when it returned, and when the room promised that
//!    everything so far is durable. Steps are counted from 1; 0 is the prepared room.
//! 3. The room's promise is one commit point: every fsync, of whatever, is a commit of everything before it. What is done within
//!    a transaction is seen after its completion only.
//!
//! It deliberately does not know crashes and faults.

mod grants;
mod key_operations;
mod names;
mod pairs;
mod random;
mod session;
mod start;
mod step;
mod stories;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use storage::Storage;

pub use grants::grants;
pub use key_operations::keys;
pub use pairs::{ones, together, twos};
pub use random::{mixed, random};
pub use session::Session;
pub use start::Start;
pub use step::{NoStep, Step, bytes};
pub use stories::{ahead, snapshots};

use crate::snapshot::Snapshot;

/// A prepared room and what is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// How it can be named again: `ones:3`, or `text` for one that was read from lines.
    pub name: String,
    /// The room it starts from.
    pub start: Start,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Workload {
    pub(crate) fn new(name: String, start: Start, steps: Vec<Step>) -> Self {
        Self { name, start, steps }
    }

    /// The workload of a name: `ones:N`, `twos:N`, `together:N`, `keys:N`, `grants:N`, `snapshots:N`, `ahead:N`,
    /// `random:SEED:LENGTH` or `mixed:SEED:LENGTH`.
    pub fn named(name: &str) -> Option<Self> {
        let (family, rest) = name.split_once(':')?;
        match family {
            "ones" => ones().into_iter().nth(rest.parse().ok()?),
            "twos" => twos().into_iter().nth(rest.parse().ok()?),
            "together" => together().into_iter().nth(rest.parse().ok()?),
            "keys" => keys().into_iter().nth(rest.parse().ok()?),
            "snapshots" => snapshots().into_iter().nth(rest.parse().ok()?),
            "ahead" => ahead().into_iter().nth(rest.parse().ok()?),
            "grants" => grants().into_iter().nth(rest.parse().ok()?),
            "random" | "mixed" => {
                let (seed, len) = rest.split_once(':')?;
                let of = if family == "random" { random } else { mixed };
                Some(of(seed.parse().ok()?, len.parse().ok()?))
            }
            _ => None,
        }
    }

    /// Whether the workload puts an older header in place on purpose: then an opening may have to accept it.
    pub fn restores_header(&self) -> bool {
        self.steps.contains(&Step::RestoreHeader)
    }
}

impl fmt::Display for Workload {
    /// One line for the room it starts from, then a line for each step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start {}", self.start)?;
        self.steps.iter().try_for_each(|s| write!(f, "\n{s}"))
    }
}

impl FromStr for Workload {
    type Err = NoStep;

    fn from_str(text: &str) -> Result<Self, NoStep> {
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        let start = match lines.next().and_then(|l| l.strip_prefix("start ")) {
            Some(start) => start.parse()?,
            None => return Err(NoStep::of(text)),
        };
        let steps = lines.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self::new("text".into(), start, steps))
    }
}

/// The steps of a text of this crate.
fn steps_of(text: &str, separator: char) -> Vec<Step> {
    text.split(separator)
        .filter(|line| !line.trim().is_empty())
        .map(|line| match line.parse() {
            Ok(step) => step,
            // Only constants come here, and tests make every workload.
            Err(e) => unreachable!("{e}"),
        })
        .collect()
}

/// Observes a workload while it runs.
pub trait Watch {
    /// A step begins.
    fn begun(&mut self, step: usize);
    /// A step returned, and this is what a user sees. Called for step 0 when the room is open.
    fn did(&mut self, step: usize, snapshot: &Arc<Snapshot>);
    /// Everything up to this step was promised to be durable.
    fn durable(&mut self, step: usize);
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begun(&mut self, _step: usize) {}
    fn did(&mut self, _step: usize, _snapshot: &Arc<Snapshot>) {}
    fn durable(&mut self, _step: usize) {}
}

/// A workload that could not be run to its end on a storage that does not fail.
#[derive(Debug, thiserror::Error)]
#[error("step {step} ({line}): {error}")]
pub struct RunError {
    /// Which step; 0: opening.
    pub step: usize,
    /// Its line.
    pub line: String,
    /// What the room said.
    pub error: room::Error,
}

/// What a run leaves.
#[derive(Debug)]
pub struct Ran {
    /// The room as the last step left it. To leave its closing out of the log, stop recording first.
    pub session: Session,
    /// What a user saw after each step, from step 0.
    pub snapshots: Vec<Arc<Snapshot>>,
    /// Steps that the room refused with an error that POSIX knows, which changed nothing.
    pub refused: Vec<usize>,
}

/// Runs a workload on a storage that holds its prepared room.
///
/// # Errors
/// A step that failed for another reason than that it does not apply.
pub fn run(
    workload: &Workload,
    storage: Arc<dyn Storage>,
    target: Option<Arc<dyn Storage>>,
    watch: &mut dyn Watch,
) -> Result<Ran, RunError> {
    let failed = |step: usize, error| RunError {
        step,
        line: step
            .checked_sub(1)
            .and_then(|i| workload.steps.get(i))
            .map_or_else(|| "open".into(), Step::to_string),
        error,
    };
    let mut session = Session::open(storage).map_err(|e| failed(0, e))?;
    if let Some(target) = target {
        session.back_up_to(target);
    }
    let mut now = match session.snapshot().map_err(|e| failed(0, e))? {
        Some(first) => Arc::new(first),
        None => Arc::default(),
    };
    watch.did(0, &now);
    let mut snapshots = vec![now.clone()];
    let mut refused = Vec::new();
    for (number, step) in (1..).zip(&workload.steps) {
        watch.begun(number);
        let done = match session.step(number, step) {
            Ok(()) => true,
            Err(e) if is_refusal(&e) => {
                refused.push(number);
                false
            }
            Err(e) => return Err(failed(number, e)),
        };
        // What a crash within a transaction leaves is what was there before it.
        let together = session.in_transaction();
        if !together
            && let Some(snapshot) = session.snapshot().map_err(|e| failed(number, e))?
            && snapshot != *now
        {
            now = Arc::new(snapshot);
        }
        watch.did(number, &now);
        snapshots.push(now.clone());
        if done && step.is_durable() && (!together || *step == Step::Begin) {
            watch.durable(number);
        }
    }
    Ok(Ran {
        session,
        snapshots,
        refused,
    })
}

/// Whether an error only says that the operation does not apply.
pub fn is_refusal(error: &room::Error) -> bool {
    use room::Error as E;
    matches!(
        error,
        E::NotFound
            | E::Exists
            | E::NotDirectory
            | E::IsDirectory
            | E::NotEmpty
            | E::NameTooLong
            | E::TooManyLinks
            | E::FileTooLarge
            | E::InvalidArgument(_)
            | E::NotPermitted(_)
            | E::NoXattr
            | E::XattrTooLarge
            | E::NotSupported(_)
            | E::NoMoreData
            | E::TooManySymlinks
            | E::WrongCredential(_)
            | E::Seal(_)
    )
}
