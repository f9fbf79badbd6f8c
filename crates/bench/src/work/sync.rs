//! Small writes, each durable before the next begins.

use super::{Bed, Context, Measured, RowName, Timed, Work, failed, fds};
use crate::Result;
use crate::data::{BLOCK, Content, Data};
use crate::engine::Recorder;
use crate::model::Unit;
use crate::observe::Evidence;
use crate::store::{Mode, Powers};
use crate::validity::{Claim, Direction};

/// Most of them in a round: there is no need for more.
const MOST: usize = 4096;

/// 4 KiB and a sync, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// At the end of a file that grows.
    Append,
    /// Over the first block of a file.
    Overwrite,
}

impl Syncs {
    /// Its row's name.
    pub fn name(self) -> &'static str {
        match self {
            Syncs::Append => "append, 4 KiB, fsync each",
            Syncs::Overwrite => "overwrite, 4 KiB, fsync each",
        }
    }
}

impl Work for Syncs {
    fn rows(&self) -> Vec<RowName> {
        durable_row(self.name())
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        powers
            .single
            .then_some("it was there before and is only read")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        let number = bed.fresh();
        let name = format!("log-{number}");
        let object = bed.store().open(&name, Mode::Make)?;
        let data = Data::new(context.seed, 2, Content::Unique);
        let place = |count: usize| match self {
            Syncs::Append => count * BLOCK,
            Syncs::Overwrite => 0,
        };
        let mut arena = std::mem::take(&mut bed.arena);
        let blocks = arena.get(MOST * BLOCK);
        for (count, block) in blocks.chunks_mut(BLOCK).enumerate() {
            data.fill(place(count) as u64, block, |_| version(number, count));
        }
        let mut syncs = Recorder::new(0, 0);
        let ((mut recorder, done), evidence) =
            bed.watch(context.clock, &fds(&*object), |began| {
                let mut recorder = Recorder::new(began, context.limit_ns());
                let mut done = 0usize;
                let mut now = began;
                for (count, block) in blocks.chunks(BLOCK).enumerate() {
                    if now.wrapping_sub(began) >= context.limit_ns() || context.go_on().is_err() {
                        break;
                    }
                    let written = object.write_at(block, place(count) as u64);
                    let between = context.clock.raw_ns();
                    written
                        .and_then(|()| object.sync())
                        .map_err(failed(bed, "writing and syncing"))?;
                    let after = context.clock.raw_ns();
                    syncs.note(between, after, 0);
                    recorder.note(now, after, BLOCK as u64);
                    now = after;
                    done += 1;
                }
                Ok((recorder, done))
            })?;
        context.go_on()?;
        recorder.operations = done as u64;
        let mut wrong = 0;
        let last = &mut [0; BLOCK];
        let kept = match self {
            Syncs::Append => 0..done,
            Syncs::Overwrite => done.saturating_sub(1)..done,
        };
        let compared = (kept.len() * BLOCK) as u64;
        for count in kept {
            object
                .read_at(last, place(count) as u64)
                .map_err(failed(bed, "reading back what was written"))?;
            let wanted = |_| version(number, count);
            if data.check(place(count) as u64, last, wanted).is_err() {
                wrong += BLOCK as u64;
            }
        }
        let claim = Claim {
            direction: Direction::Write,
            durable: true,
            by_calls: object.fd().is_some(),
            alone: object.fd().is_some(),
            syncs: done as u64,
            sync_p50_ns: Some(syncs.latency.value_at_quantile(0.5)),
            compared_bytes: compared,
            wrong_bytes: wrong,
            ..Claim::default()
        };
        bed.arena = arena;
        drop(object);
        bed.store().remove(&name)?;
        bed.store().settle()?;
        let timed = Timed {
            recorder,
            evidence,
            claim,
            cut: true,
        };
        Ok(vec![timed.measured(
            Unit::OperationsPerSecond,
            bed,
            context,
        )])
    }
}

/// No two writes of a run have the same content.
fn version(file: u32, count: usize) -> u32 {
    file * MOST as u32 + count as u32
}

/// The row of a work whose changes are each durable.
pub(super) fn durable_row(name: &str) -> Vec<RowName> {
    vec![RowName {
        work: name.into(),
        unit: Unit::OperationsPerSecond,
        writes: true,
    }]
}

/// Does `change` up to `most` times, until the round is over. What `prepare` makes for each is not part of an operation's time.
pub(super) fn one_by_one<T>(
    bed: &Bed,
    context: &Context<'_>,
    most: u32,
    bytes: usize,
    prepare: impl Fn(u32) -> T,
    change: impl Fn(u32, &T) -> Result<()>,
) -> Result<(Recorder, Evidence)> {
    let done = bed.watch(context.clock, &[], |began| {
        let mut recorder = Recorder::new(began, context.limit_ns());
        for number in 0..most {
            let prepared = prepare(number);
            let before = context.clock.raw_ns();
            if before.wrapping_sub(began) >= context.limit_ns() || context.go_on().is_err() {
                break;
            }
            change(number, &prepared)?;
            recorder.note(before, context.clock.raw_ns(), bytes as u64);
        }
        Ok(recorder)
    })?;
    context.go_on()?;
    Ok(done)
}

/// What such a round measured. Each of its changes took one sync or more, and all of them were compared.
pub(super) fn measured_changes(
    bed: &Bed,
    context: &Context<'_>,
    (recorder, evidence): (Recorder, Evidence),
    wrong_bytes: u64,
) -> Vec<Measured> {
    let claim = Claim {
        direction: Direction::Write,
        durable: true,
        syncs: recorder.operations,
        compared_bytes: recorder.bytes,
        wrong_bytes,
        ..Claim::default()
    };
    let timed = Timed {
        recorder,
        evidence,
        claim,
        cut: true,
    };
    vec![timed.measured(Unit::OperationsPerSecond, bed, context)]
}
