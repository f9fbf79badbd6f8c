//! Small writes, each durable before the next begins.

use super::{Bed, Context, Measured, RowName, Timed, Work, failed, fds};
use crate::Result;
use crate::data::{BLOCK, Content, Data};
use crate::engine::Recorder;
use crate::model::Unit;
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
        vec![RowName {
            work: self.name().into(),
            unit: Unit::OperationsPerSecond,
            writes: true,
        }]
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        (!powers.write).then_some("it was there before and is only read")
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
        let ceilings = bed.ceilings;
        Ok(vec![timed.measured(
            Unit::OperationsPerSecond,
            &ceilings,
            &context.limits,
        )])
    }
}

/// No two writes of a run have the same content.
fn version(file: u32, count: usize) -> u32 {
    file * MOST as u32 + count as u32
}
