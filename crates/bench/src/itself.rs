//! Whether the checks work here: at the start of a run the bench makes faulty measurements of the very store it is to measure, and
//! must notice them.
//!
//! ```text
//! a wrong clock       processor time where the store makes one wait, two per cent too fast where it does not
//! a warm read         of what was just read, said to be cold
//! a skipped fsync     bytes left in caches, said to be durable
//! names not synced    a new directory, said to be durable
//! ```
//!
//! 1. The store, the watch and the checks are those of the run; only the fault is made here.
//! 2. A fault that no check can notice here (no device beneath, nothing to write) is left out, and the report says so.

use crate::clock::wrong::{DriftingClock, ProcessorClock};
use crate::clock::{Clock, SystemClock};
use crate::data::{BLOCK, Content, Data};
use crate::model::IssueKind;
use crate::observe::{self, Ceilings, Evidence};
use crate::store::{Mode, Object};
use crate::validity::{self, Claim, Direction, Limits};
use crate::work::{Bed, Context};
use crate::{Error, Result};

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tried {
    /// Faults that were noticed.
    pub fired: Vec<String>,
    /// Faults that were not: the whole report may be invalid.
    pub unfired: Vec<String>,
    /// Faults that were left out, and why.
    pub left_out: Vec<String>,
}

/// How long the fault of the clock lasts, nanoseconds: two per cent of it are well above what readings of clocks differ by.
const CLOCK_NS: u64 = 150_000_000;
/// Bytes of the faults of the cache and the sync.
const BYTES: usize = 1 << 20;
/// The number of what is written here; the run's own files have smaller ones.
const FILE: u64 = 0x11e5;

/// Makes the faults on `bed` and checks that they are noticed.
///
/// # Errors
/// What the store says; [`Error::Stopped`].
pub fn tried(bed: &mut Bed, context: &Context<'_>) -> Result<Tried> {
    let mut tried = Tried::default();
    wrong_clock(bed, context, &mut tried)?;
    go_on(context)?;
    warm_read(bed, context, &mut tried)?;
    go_on(context)?;
    skipped_sync(bed, context, &mut tried)?;
    go_on(context)?;
    unsynced_names(bed, context, &mut tried)?;
    go_on(context)?;
    Ok(tried)
}

fn wrong_clock(bed: &mut Bed, context: &Context<'_>, tried: &mut Tried) -> Result<()> {
    let at = bed.store().backing().or_else(|| bed.store().path());
    let writes = !bed.powers().single;
    let waits = writes && at.is_some_and(|at| observe::waits(&at));
    let (clock, fault): (&dyn Clock, _) = if waits {
        (&ProcessorClock { all: false }, "a clock of processor time")
    } else {
        (&DriftingClock::by(2), "a clock two per cent too fast")
    };
    let object = if writes { Some(fresh(bed)?) } else { None };
    let ended = bed.watch(clock, &[], |_| {
        let began = SystemClock.raw_ns();
        let mut at = 0;
        while SystemClock.raw_ns() - began < CLOCK_NS {
            match &object {
                Some((_, object)) => {
                    object
                        .write_at(&[0x11; BLOCK], at)
                        .and_then(|()| object.sync())
                        .map_err(failed("writing and syncing"))?;
                    at += BLOCK as u64;
                }
                None => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        Ok(())
    });
    remove(bed, object)?;
    let (_, evidence) = ended?;
    let kinds = [IssueKind::ClocksDisagree, IssueKind::ClockCountsProcessor];
    tried.note(fault, &evidence, &Claim::default(), &context.limits, &kinds);
    Ok(())
}

fn warm_read(bed: &mut Bed, context: &Context<'_>, tried: &mut Tried) -> Result<()> {
    const FAULT: &str = "a warm read said to be cold";
    bed.prepare(context)?;
    let object = bed.open_main(Mode::Read)?;
    let length = object.len().map_err(failed("asking for its length"))?;
    let mut buffer = vec![0; BYTES.min(usize::try_from(length).unwrap_or(BYTES))];
    let read = |buffer: &mut [u8]| object.read_at(buffer, 0).map_err(failed("reading"));
    read(&mut buffer)?;
    let files: Vec<_> = object.fd().into_iter().collect();
    let (_, evidence) = bed.watch(context.clock, &files, |_| read(&mut buffer))?;
    if evidence.cached_before.is_none() && evidence.devices.is_empty() {
        tried.left_out.push(format!(
            "{FAULT}: neither pages nor a device can be asked here"
        ));
        return Ok(());
    }
    let claim = Claim {
        direction: Direction::Read,
        operations: 1,
        bytes: buffer.len() as u64,
        cold: true,
        ..Claim::default()
    };
    tried.note(
        FAULT,
        &evidence,
        &claim,
        &context.limits,
        &[IssueKind::CacheHit],
    );
    Ok(())
}

fn skipped_sync(bed: &mut Bed, context: &Context<'_>, tried: &mut Tried) -> Result<()> {
    const FAULT: &str = "a skipped fsync";
    if bed.powers().single {
        tried
            .left_out
            .push(format!("{FAULT}: the store is only read"));
        return Ok(());
    }
    let (name, object) = fresh(bed)?;
    let mut bytes = vec![0; BYTES];
    // Of this moment: a store that keeps equal blocks once has none of them.
    Data::new(SystemClock.read().realtime_ns, FILE, Content::Unique).fill(0, &mut bytes, |_| 0);
    let files: Vec<_> = object.fd().into_iter().collect();
    let watched = bed.watch(context.clock, &files, |_| {
        object.write_at(&bytes, 0).map_err(failed("writing"))
    });
    drop(files);
    remove(bed, Some((name, object)))?;
    let (_, evidence) = watched?;
    if evidence.devices.is_empty() {
        tried.left_out.push(format!(
            "{FAULT}: no device is known beneath, nothing there is ever durable"
        ));
        return Ok(());
    }
    let claim = Claim {
        direction: Direction::Write,
        operations: 1,
        bytes: BYTES as u64,
        durable: true,
        ..Claim::default()
    };
    tried.note(
        FAULT,
        &evidence,
        &claim,
        &context.limits,
        &[IssueKind::NotDurable],
    );
    Ok(())
}

fn unsynced_names(bed: &mut Bed, context: &Context<'_>, tried: &mut Tried) -> Result<()> {
    const FAULT: &str = "changed names that were not synced";
    /// A journal is written by itself now and then, and others may use the device.
    const TIMES: usize = 8;
    if bed.powers().single {
        let why = format!("{FAULT}: the store has no names that can be changed");
        tried.left_out.push(why);
        return Ok(());
    }
    let names = bed.store().names()?;
    let claim = Claim {
        operations: 1,
        durable: true,
        changed_names: true,
        ..Claim::default()
    };
    for _ in 0..TIMES {
        let name = format!("itself-{}", bed.fresh());
        names.sync().map_err(failed("syncing names"))?;
        let watched = bed.watch(context.clock, &[], |_| {
            names.make_dir(&name).map_err(failed("making a directory"))
        });
        names
            .remove_dir(&name)
            .map_err(failed("removing a directory"))?;
        let (_, evidence) = watched?;
        let Some(device) = evidence.top().filter(|device| !device.memory) else {
            tried.left_out.push(format!(
                "{FAULT}: no device is known beneath, nothing there is ever durable"
            ));
            return Ok(());
        };
        if device.did.written_bytes == 0 {
            let kinds = [IssueKind::NotDurable];
            tried.note(FAULT, &evidence, &claim, &context.limits, &kinds);
            return Ok(());
        }
    }
    tried.left_out.push(format!(
        "{FAULT}: the device beneath was written to all the time"
    ));
    Ok(())
}

impl Tried {
    /// Judges a fault as a round is judged: noticed if one of `kinds` fires.
    fn note(
        &mut self,
        fault: &str,
        evidence: &Evidence,
        claim: &Claim,
        limits: &Limits,
        kinds: &[IssueKind],
    ) {
        let issues = validity::of_round(evidence, claim, &Ceilings::default(), limits);
        let noticed = issues.iter().any(|issue| kinds.contains(&issue.kind));
        if noticed {
            self.fired.push(fault.to_owned());
        } else {
            self.unfired.push(fault.to_owned());
        }
    }
}

/// A new object with its name.
fn fresh(bed: &mut Bed) -> Result<(String, std::sync::Arc<dyn Object>)> {
    let name = format!("itself-{}", bed.fresh());
    let object = bed.store().open(&name, Mode::Make)?;
    Ok((name, object))
}

fn remove(bed: &mut Bed, made: Option<(String, std::sync::Arc<dyn Object>)>) -> Result<()> {
    let Some((name, object)) = made else {
        return Ok(());
    };
    drop(object);
    bed.store().remove(&name)
}

fn failed(doing: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::store("trying the checks", format!("{doing}: {error}"))
}

fn go_on(context: &Context<'_>) -> Result<()> {
    match context.stop.load(std::sync::atomic::Ordering::Relaxed) {
        true => Err(Error::Stopped),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
