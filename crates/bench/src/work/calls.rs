//! Reads and writes of one size, in order or not, one at a time or many, through the page cache or past it.
//!
//! 1. A read round reads each place at most once, from caches emptied before.
//! 2. A write round ends with a sync, inside the time. In order it writes a fresh file; at random it overwrites the large one.

use std::sync::atomic::Ordering;

use super::bed::{main_data, wrong_in_object};
use super::{Bed, Context, Measured, RowName, Timed, Work, direct_flag, failed, fds, size_words};
use crate::Result;
use crate::data::{BLOCK, Content, Data, mix};
use crate::engine::{Engine, Job, Outcome, run};
use crate::model::Unit;
use crate::store::{Mode, Object, Powers};
use crate::validity::{self, Claim};

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the store.
    Read,
    /// To it.
    Write,
}

/// In which order places are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the beginning on.
    Sequential,
    /// Each at most once, shuffled by the seed and the round.
    Random,
}

/// Whether through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through it: reads are cold, writes are synced at the end.
    Cached,
    /// Past it: `O_DIRECT`.
    Direct,
}

/// Such a work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    /// Which way.
    pub direction: Direction,
    /// In which order.
    pub order: Order,
    /// Bytes of a call: 4096 or a multiple.
    pub block: u64,
    /// Calls in flight.
    pub depth: u32,
    /// Through the page cache or not.
    pub way: Way,
    /// What is written. Zeros are only ever written in order.
    pub content: Content,
}

impl Calls {
    /// A work of one call at a time through the page cache.
    pub fn new(direction: Direction, order: Order, block: u64) -> Calls {
        Calls {
            direction,
            order,
            block,
            depth: 1,
            way: Way::Cached,
            content: Content::Unique,
        }
    }

    /// The same past the page cache, so many calls at a time.
    pub fn direct(self, depth: u32) -> Calls {
        Calls {
            depth,
            way: Way::Direct,
            ..self
        }
    }

    /// Its row's name, as in "random read, 4 KiB, depth 1, cold".
    pub fn name(&self) -> String {
        let order = match self.order {
            Order::Sequential => "sequential",
            Order::Random => "random",
        };
        let (verb, end) = match (self.direction, self.way) {
            (Direction::Read, Way::Cached) => ("read", "cold"),
            (Direction::Write, Way::Cached) => ("write", "synced"),
            (Direction::Read, Way::Direct) => ("read", "direct"),
            (Direction::Write, Way::Direct) => ("write", "direct"),
        };
        let zeros = match self.content {
            Content::Unique => "",
            Content::Zeros => ", zeros",
        };
        format!(
            "{order} {verb}, {}, depth {}, {end}{zeros}",
            size_words(self.block),
            self.depth
        )
    }

    fn mode(&self, cached: Mode, direct: Mode) -> Mode {
        match self.way {
            Way::Cached => cached,
            Way::Direct => direct,
        }
    }

    /// The places of a round over `bytes` bytes, no more than `most` of them.
    fn offsets(&self, bytes: u64, most: u64, seed: u64) -> Vec<u64> {
        let blocks = bytes / self.block;
        let count = blocks.min(most) as usize;
        let mut places: Vec<u64> = match self.order {
            Order::Sequential => (0..count as u64).collect(),
            Order::Random if blocks <= 4 * count as u64 => (0..blocks).collect(),
            Order::Random => Vec::new(),
        };
        if self.order == Order::Random {
            let mut random = fastrand::Rng::with_seed(seed);
            if places.is_empty() {
                // A large device: few places of very many.
                let mut seen = std::collections::HashSet::new();
                while places.len() < count {
                    let place = random.u64(0..blocks);
                    if seen.insert(place) {
                        places.push(place);
                    }
                }
            } else {
                random.shuffle(&mut places);
                places.truncate(count);
            }
        }
        places.iter_mut().for_each(|place| *place *= self.block);
        places
    }

    fn job<'a>(
        &self,
        object: &'a dyn Object,
        offsets: &'a [u64],
        context: &'a Context<'_>,
    ) -> Job<'a> {
        Job {
            object,
            write: self.direction == Direction::Write,
            offsets,
            block: self.block as usize,
            depth: self.depth,
            limit_ns: context.limit_ns(),
            clock: context.clock,
            stop: context.stop,
        }
    }

    /// What is true of every round of this work.
    fn claim(&self, object: &dyn Object, engine: Engine) -> Claim {
        let one = engine == Engine::Calls && object.fd().is_some();
        Claim {
            direction: match self.direction {
                Direction::Read => validity::Direction::Read,
                Direction::Write => validity::Direction::Write,
            },
            cold: self.direction == Direction::Read && self.way == Way::Cached,
            direct: self.way == Way::Direct,
            direct_flag: direct_flag(object),
            by_calls: engine != Engine::Ring && object.fd().is_some(),
            alone: one,
            ..Claim::default()
        }
    }

    fn read(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Timed> {
        bed.prepare(context)?;
        bed.make_cold()?;
        let object = bed.open_main(self.mode(Mode::Read, Mode::ReadDirect))?;
        let length = object.len().map_err(failed(bed, "asking for its length"))?;
        let seed = round_seed(context, bed.fresh());
        let region = match self.order {
            // All of a device, but not more than asked for in one go.
            Order::Random => length,
            Order::Sequential => length.min(context.size),
        };
        let offsets = self.offsets(region, context.size / self.block, seed);
        let mut arena = std::mem::take(&mut bed.arena);
        let blocks = arena.poisoned(offsets.len() * self.block as usize);
        let job = self.job(&*object, &offsets, context);
        let outcome = bed.watch(context.clock, &fds(&*object), |began| {
            run(&job, began, blocks).map_err(failed(bed, "reading"))
        });
        let (
            Outcome {
                done,
                engine,
                recorder,
            },
            evidence,
        ) = outcome?;
        context.go_on()?;
        let mut claim = self.claim(&*object, engine);
        let read = blocks.chunks(self.block as usize).zip(&offsets).take(done);
        for (block, offset) in read {
            if let Some(wrong) = bed.wrong_in_main(context, *offset, block) {
                claim.compared_bytes += block.len() as u64;
                claim.wrong_bytes += wrong;
            }
        }
        bed.arena = arena;
        Ok(Timed {
            recorder,
            evidence,
            claim,
            cut: true,
        })
    }

    /// Writes at `offsets`, syncs, and compares what is read back.
    fn write(
        &self,
        bed: &mut Bed,
        context: &Context<'_>,
        object: &dyn Object,
        offsets: &[u64],
        data: &Data,
        version: &dyn Fn(u64) -> u32,
    ) -> Result<(Timed, usize)> {
        let mut arena = std::mem::take(&mut bed.arena);
        let blocks = arena.get(offsets.len() * self.block as usize);
        for (offset, block) in offsets.iter().zip(blocks.chunks_mut(self.block as usize)) {
            data.fill(*offset, block, version);
        }
        let job = self.job(object, offsets, context);
        let (mut outcome, evidence) = bed.watch(context.clock, &fds(object), |began| {
            let outcome = run(&job, began, blocks).map_err(failed(bed, "writing"))?;
            object
                .sync()
                .map_err(failed(bed, "bringing it to the disk"))?;
            Ok(outcome)
        })?;
        let mut claim = self.claim(object, outcome.engine);
        claim.durable = true;
        claim.syncs = 1;
        outcome.recorder.operations = outcome.done as u64;
        bed.arena = arena;
        let timed = Timed {
            recorder: outcome.recorder,
            evidence,
            claim,
            cut: false,
        };
        Ok((timed, outcome.done))
    }

    fn write_fresh(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Timed> {
        let number = bed.fresh();
        let name = format!("fresh-{number}");
        let object = bed
            .store()
            .open(&name, self.mode(Mode::Make, Mode::MakeDirect))?;
        let offsets = self.offsets(context.size, u64::MAX, 0);
        let data = Data::new(context.seed, 1, self.content);
        let (mut timed, done) = self.write(bed, context, &*object, &offsets, &data, &|_| number)?;
        drop(object);
        let back = bed.store().open(&name, Mode::Read)?;
        let bytes = done as u64 * self.block;
        let mut arena = std::mem::take(&mut bed.arena);
        timed.claim.wrong_bytes = wrong_in_object(&*back, &mut arena, &data, bytes, |_| number)
            .map_err(failed(bed, "reading back what was written"))?;
        timed.claim.compared_bytes = bytes;
        bed.arena = arena;
        drop(back);
        bed.store().remove(&name)?;
        Ok(timed)
    }

    fn write_over(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Timed> {
        bed.prepare(context)?;
        let object = bed.open_main(self.mode(Mode::Write, Mode::WriteDirect))?;
        let seed = round_seed(context, bed.fresh());
        let offsets = self.offsets(context.size, context.size / self.block, seed);
        let data = main_data(context);
        let per_call = self.block / BLOCK as u64;
        let next: Vec<u32> = (0..context.size / BLOCK as u64)
            .map(|block| bed.version(block) + 1)
            .collect();
        let version = |block: u64| next[block as usize];
        let (mut timed, done) = self.write(bed, context, &*object, &offsets, &data, &version)?;
        for offset in &offsets[..done] {
            let first = offset / BLOCK as u64;
            for block in first..first + per_call {
                bed.next_version(block);
            }
        }
        drop(object);
        let back = bed.open_main(Mode::Read)?;
        let mut arena = std::mem::take(&mut bed.arena);
        let piece = arena.get(self.block as usize);
        for offset in &offsets[..done] {
            back.read_at(piece, *offset)
                .map_err(failed(bed, "reading back what was written"))?;
            timed.claim.compared_bytes += self.block;
            timed.claim.wrong_bytes += bed.wrong_in_main(context, *offset, piece).unwrap_or(0);
        }
        bed.arena = arena;
        Ok(timed)
    }
}

impl Work for Calls {
    fn rows(&self) -> Vec<RowName> {
        vec![RowName {
            work: self.name(),
            unit: Unit::MegabytesPerSecond,
            writes: self.direction == Direction::Write,
        }]
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        if self.direction == Direction::Write && powers.single {
            return Some("it was there before and is only read");
        }
        (self.way == Way::Direct && !powers.direct).then_some("it knows no direct calls")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        let timed = match (self.direction, self.order) {
            (Direction::Read, _) => self.read(bed, context)?,
            (Direction::Write, Order::Sequential) => self.write_fresh(bed, context)?,
            (Direction::Write, Order::Random) => self.write_over(bed, context)?,
        };
        if context.stop.load(Ordering::Relaxed) {
            // Cut short: the rest of the run would not be the same work.
            context.go_on()?;
        }
        if self.direction == Direction::Write {
            bed.store().settle()?;
        }
        Ok(vec![timed.measured(Unit::MegabytesPerSecond, bed, context)])
    }
}

/// A seed for one round's order.
pub(super) fn round_seed(context: &Context<'_>, number: u32) -> u64 {
    mix(context.seed ^ mix(u64::from(number)))
}
