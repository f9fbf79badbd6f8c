//! Many calls in flight by io_uring(7).
//!
//! The only unsafe code of the engine. What makes it sound: a call in flight has a block of the arena that nothing else
//! touches, the arena is borrowed until [`Ring::run`] returns, and it does not return before every call in flight has ended.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

use super::{Engine, Job, Outcome};

/// A ring.
pub(super) struct Ring {
    ring: IoUring,
    depth: usize,
}

impl Ring {
    /// A ring for `depth` calls; `None` where the kernel has none, or refuses it (io_uring_disabled, a container's filter).
    pub(super) fn new(depth: u32) -> Option<Ring> {
        let ring = IoUring::new(depth.next_power_of_two())
            .inspect_err(|error| tracing::info!("io_uring: {error}: threads are used instead"))
            .ok()?;
        Some(Ring {
            ring,
            depth: depth as usize,
        })
    }

    pub(super) fn run(
        mut self,
        job: &Job<'_>,
        fd: BorrowedFd<'_>,
        began_ns: u64,
        arena: &mut [u8],
    ) -> io::Result<Outcome> {
        let mut recorder = job.recorder(began_ns);
        let length = u32::try_from(job.block).map_err(io::Error::other)?;
        let mut began = vec![0u64; job.offsets.len()];
        let mut failed: Option<io::Error> = None;
        let (mut next, mut in_flight) = (0, 0);
        let mut now = job.clock.raw_ns();
        loop {
            while in_flight < self.depth
                && next < job.offsets.len()
                && failed.is_none()
                && job.goes_on(began_ns, now)
            {
                let block = &mut arena[next * job.block..(next + 1) * job.block];
                let at = types::Fd(fd.as_raw_fd());
                let entry = if job.write {
                    opcode::Write::new(at, block.as_ptr(), length)
                        .offset(job.offsets[next])
                        .build()
                } else {
                    opcode::Read::new(at, block.as_mut_ptr(), length)
                        .offset(job.offsets[next])
                        .build()
                };
                began[next] = now;
                // SAFETY: the block lives in `arena`, is handed out once, and nobody looks at it before the loop below has
                // waited for this call; the descriptor is open as long as it is borrowed.
                let pushed = unsafe { self.ring.submission().push(&entry.user_data(next as u64)) };
                if pushed.is_err() {
                    // The queue has at least `depth` places, and each call was submitted before the next is pushed.
                    failed = Some(io::Error::other("the ring is full: a bug in this program"));
                    break;
                }
                next += 1;
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                // What is in flight cannot be waited for any more, so its memory must never be used again.
                abort_with(&error);
            }
            now = job.clock.raw_ns();
            for done in self.ring.completion() {
                in_flight -= 1;
                let which = done.user_data() as usize;
                let outcome = match usize::try_from(done.result()) {
                    Ok(n) if n == job.block => {
                        recorder.note(began[which], now, n as u64);
                        continue;
                    }
                    Ok(n) => io::Error::other(format!(
                        "a call for {} bytes at {} moved {n}",
                        job.block, job.offsets[which]
                    )),
                    Err(_) => io::Error::from_raw_os_error(-done.result()),
                };
                failed.get_or_insert(outcome);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Outcome {
                done: next,
                engine: Engine::Ring,
                recorder,
            }),
        }
    }
}

fn abort_with(error: &io::Error) -> ! {
    eprintln!(
        "strongroom: io_uring: {error}: calls in flight cannot be waited for, so this process ends"
    );
    std::process::abort()
}
