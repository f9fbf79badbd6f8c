//! Reading from the beginning as `dd` does: one thread, one stream, one buffer, and what the processor does meanwhile.

use super::{Bed, Context, Measured, RowName, Timed, Work, failed, fds, size_words};
use crate::Result;
use crate::engine::Recorder;
use crate::model::Unit;
use crate::store::{Mode, Powers};
use crate::validity::{Claim, Direction};

/// Reads `total` bytes, or to the end, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dd {
    /// Bytes of a read.
    pub block: u64,
    /// Bytes in all.
    pub total: u64,
}

impl Dd {
    /// Its row's name.
    pub fn name(&self) -> String {
        format!(
            "dd, {} by {}, cold",
            size_words(self.total),
            size_words(self.block)
        )
    }
}

impl Work for Dd {
    fn rows(&self) -> Vec<RowName> {
        vec![RowName {
            work: self.name(),
            unit: Unit::MegabytesPerSecond,
            writes: false,
        }]
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        (!powers.single).then_some("dd reads a file or device that is there")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        bed.make_cold()?;
        let object = bed.open_main(Mode::Read)?;
        let length = object.len().map_err(failed(bed, "asking for its length"))?;
        let total = length.min(self.total) / self.block * self.block;
        if total < self.total {
            bed.note(format!(
                "it has {length} bytes: {total} were read instead of {}",
                self.total
            ));
        }
        let mut arena = std::mem::take(&mut bed.arena);
        let buffer = arena.get(self.block as usize);
        let (recorder, evidence) = bed.watch(context.clock, &fds(&*object), |began| {
            // The curve over time has a slice for every fiftieth of this; a round takes as long as it takes.
            let mut recorder = Recorder::new(began, context.limit_ns());
            let (mut at, mut now) = (0, began);
            while at < total && context.go_on().is_ok() {
                object.read_at(buffer, at).map_err(failed(bed, "reading"))?;
                let after = context.clock.raw_ns();
                recorder.note(now, after, self.block);
                now = after;
                at += self.block;
            }
            Ok(recorder)
        })?;
        bed.arena = arena;
        context.go_on()?;
        let claim = Claim {
            direction: Direction::Read,
            cold: true,
            by_calls: object.fd().is_some(),
            alone: object.fd().is_some(),
            ..Claim::default()
        };
        let timed = Timed {
            recorder,
            evidence,
            claim,
            // dd has no steady state: all is counted, as it was then.
            cut: false,
        };
        Ok(vec![timed.measured(Unit::MegabytesPerSecond, bed, context)])
    }
}
