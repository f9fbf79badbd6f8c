//! Calls: reads and writes of one size at given places, one after the other or many at a time.
//!
//! ```text
//! depth 1         pread and pwrite in the caller's thread
//! depth above 1   io_uring, where the store has a descriptor and the kernel lets us; threads otherwise
//! ```
//!
//! 1. Between the first call and the last nothing is done but calls, two additions and a look at the clock after each.
//! 2. Every call has a place of its own in the arena, so what was read can be looked at afterwards.
//! 3. Of the offsets given, the first [`Outcome::done`] were done, all of them wholly.
//!
//! It deliberately does not know what the bytes are, nor whether they are durable.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::store::Object;

mod arena;
mod recorder;
mod ring;

pub use arena::Arena;
pub use recorder::{Recorder, distribution};

/// What is to be done.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// To this object.
    pub object: &'a dyn Object,
    /// Write instead of read.
    pub write: bool,
    /// Where, in order, bytes.
    pub offsets: &'a [u64],
    /// Bytes of one call.
    pub block: usize,
    /// Calls in flight, from 1.
    pub depth: u32,
    /// No call begins so long after the job did, nanoseconds.
    pub limit_ns: u64,
    /// What the time is.
    pub clock: &'a dyn Clock,
    /// No call begins once this is true.
    pub stop: &'a AtomicBool,
}

/// Who kept the calls in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The caller's thread, a call after the other.
    Calls,
    /// Threads, each with a call.
    Threads,
    /// io_uring.
    Ring,
}

/// What was done.
#[derive(Debug)]
pub struct Outcome {
    /// So many of the offsets, from the first.
    pub done: usize,
    /// By whom.
    pub engine: Engine,
    /// How long each took, and when.
    pub recorder: Recorder,
}

/// Does the job. `began_ns` is when it began, by the job's clock. `arena` has a block for each offset: what is written, or
/// where what is read goes.
///
/// # Errors
/// The first call that failed; calls already in flight are waited for.
pub fn run(job: &Job<'_>, began_ns: u64, arena: &mut [u8]) -> io::Result<Outcome> {
    assert!(
        arena.len() >= job.offsets.len() * job.block && job.block > 0 && job.depth > 0,
        "the arena is too small for the job"
    );
    if job.depth == 1 {
        return one_by_one(job, began_ns, arena);
    }
    if let Some(fd) = job.object.fd()
        && let Some(ring) = ring::Ring::new(job.depth)
    {
        return ring.run(job, fd, began_ns, arena);
    }
    with_threads(job, began_ns, arena)
}

impl Job<'_> {
    /// Whether another call may begin at `now_ns`.
    fn goes_on(&self, began_ns: u64, now_ns: u64) -> bool {
        now_ns.wrapping_sub(began_ns) < self.limit_ns && !self.stop.load(Ordering::Relaxed)
    }

    fn recorder(&self, began_ns: u64) -> Recorder {
        Recorder::new(began_ns, self.limit_ns)
    }

    fn call(&self, offset: u64, block: &mut [u8]) -> io::Result<()> {
        if self.write {
            self.object.write_at(block, offset)
        } else {
            self.object.read_at(block, offset)
        }
    }
}

fn one_by_one(job: &Job<'_>, began_ns: u64, arena: &mut [u8]) -> io::Result<Outcome> {
    let mut recorder = job.recorder(began_ns);
    let mut done = 0;
    let mut now = job.clock.raw_ns();
    for (offset, block) in job.offsets.iter().zip(arena.chunks_mut(job.block)) {
        if !job.goes_on(began_ns, now) {
            break;
        }
        job.call(*offset, block)?;
        let after = job.clock.raw_ns();
        recorder.note(now, after, job.block as u64);
        now = after;
        done += 1;
    }
    Ok(Outcome {
        done,
        engine: Engine::Calls,
        recorder,
    })
}

fn with_threads(job: &Job<'_>, began_ns: u64, arena: &mut [u8]) -> io::Result<Outcome> {
    let work = Mutex::new(job.offsets.iter().zip(arena.chunks_mut(job.block)));
    let failed = AtomicBool::new(false);
    let one = || -> io::Result<(usize, Recorder)> {
        let mut recorder = job.recorder(began_ns);
        let mut done = 0;
        let mut now = job.clock.raw_ns();
        while job.goes_on(began_ns, now) && !failed.load(Ordering::Relaxed) {
            let Some((offset, block)) = work.lock().next() else {
                break;
            };
            job.call(*offset, block)
                .inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            let after = job.clock.raw_ns();
            recorder.note(now, after, job.block as u64);
            now = after;
            done += 1;
        }
        Ok((done, recorder))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..job.depth).map(|_| scope.spawn(one)).collect();
        let mut all = Outcome {
            done: 0,
            engine: Engine::Threads,
            recorder: job.recorder(began_ns),
        };
        for thread in threads {
            let (done, recorder) = thread
                .join()
                .map_err(|_| io::Error::other("a thread of this program panicked"))??;
            all.done += done;
            all.recorder.add(&recorder);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests;
