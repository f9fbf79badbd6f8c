//! Blocks of a file on the way to the disks: sealed, and written to granted blocks.
//!
//! A block is sealed once for each place it is written to; a place whose write failed is not written again.
//!
//! It deliberately does not know what becomes of the extents.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::rpc::Written;
use model::{BLOCK_LEN, Error, Sealed, Tags, UNIT_LEN, WrittenExtent, spans};
use parking_lot::Mutex;

use super::client::{ClientCore, PAUSE};
use super::disks::{Next, REQUEST_BLOCKS};
use super::files::{BLOCK, Blocks};
use super::grants::GrantedBlocks;

/// Blocks of a chunk of a file; one extent stays within a chunk.
const CHUNK_BLOCKS: u64 = model::CHUNK_BLOCKS as u64;
/// Data up to this many blocks is made durable by the write itself, where somebody waits for that: 64 KiB.
const DURABLE_BLOCKS: u32 = 16;
/// Writes to disks under way at once for one file.
const WRITERS: usize = 4;

/// A run of blocks of a file.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: u64,
    blocks: u32,
}

/// Parts that follow each other in one range of granted blocks.
struct Job {
    place: GrantedBlocks,
    parts: Vec<Part>,
    /// The disk is to make it durable at once.
    durable: bool,
}

/// Why blocks are not in their file yet.
pub(super) enum Failed {
    /// The grants are over: once more, elsewhere.
    Again,
    /// The server has seen no name of the file.
    Unseen,
    /// Somebody changed the file since it was looked at.
    Changed,
    For(Error),
}

impl ClientCore {
    /// Writes all blocks to granted blocks; with `sync`, durably where that is little.
    pub(super) fn write_out(
        &self,
        blocks: &Blocks,
        end: u64,
        deadline: Instant,
        sync: bool,
    ) -> std::result::Result<Vec<(Vec<Written>, GrantedBlocks)>, Failed> {
        let mut jobs = self.jobs(parts(blocks))?;
        if let [job] = jobs.as_mut_slice() {
            job.durable = sync && job.place.blocks <= DURABLE_BLOCKS;
            let mut done = Vec::new();
            for job in jobs {
                self.run(job, blocks, end, deadline, &mut done)?;
            }
            return Ok(done);
        }
        let workers = jobs.len().min(WRITERS);
        let jobs: Vec<Mutex<Option<Job>>> = jobs.into_iter().map(|j| Mutex::new(Some(j))).collect();
        let next = AtomicUsize::new(0);
        let results: Vec<_> = std::thread::scope(|scope| {
            let work = || {
                let mut done = Vec::new();
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Taken once: each index is handed out once.
                    if let Some(job) = job.lock().take() {
                        self.run(job, blocks, end, deadline, &mut done)?;
                    }
                }
                Ok(done)
            };
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|t| t.join()).collect()
        });
        let mut all = Vec::new();
        for result in results {
            let bug = |_| {
                Failed::For(Error::Io(std::io::Error::other(
                    "a thread that wrote to a disk ended by a bug",
                )))
            };
            all.extend(result.map_err(bug)??);
        }
        Ok(all)
    }

    /// Finds places for parts.
    fn jobs(&self, parts: Vec<Part>) -> std::result::Result<Vec<Job>, Failed> {
        let mut left: u64 = parts.iter().map(|p| u64::from(p.blocks)).sum();
        let mut parts = parts.into_iter();
        let mut part = parts.next();
        let mut jobs = Vec::new();
        while left > 0 {
            let wanted = left.min(u64::from(REQUEST_BLOCKS)) as u32;
            let place = self.place_for(wanted).map_err(Failed::For)?;
            let mut free = place.blocks.min(wanted);
            left -= u64::from(free);
            let mut taken = Vec::new();
            while free > 0 {
                let Some(Part { first, blocks }) = part else {
                    break;
                };
                let some = blocks.min(free);
                taken.push(Part {
                    first,
                    blocks: some,
                });
                free -= some;
                part = if some < blocks {
                    Some(Part {
                        first: first + u64::from(some),
                        blocks: blocks - some,
                    })
                } else {
                    parts.next()
                };
            }
            jobs.push(Job {
                place,
                parts: taken,
                durable: false,
            });
        }
        Ok(jobs)
    }

    /// Seals and writes what a job says; elsewhere, if its place fails.
    fn run(
        &self,
        job: Job,
        blocks: &Blocks,
        end: u64,
        deadline: Instant,
        done: &mut Vec<(Vec<Written>, GrantedBlocks)>,
    ) -> std::result::Result<(), Failed> {
        let mut pause = Duration::ZERO;
        let mut jobs = vec![job];
        while let Some(job) = jobs.pop() {
            match self.write_once(&job, blocks, end) {
                Ok(written) => {
                    done.push((written, job.place));
                    continue;
                }
                // A flush that fails is the metadata server's to judge: it keeps its clients waiting for the disk.
                Err(Next::Never(e)) if job.durable => {
                    tracing::debug!("{e}; written again, and not at once durable");
                }
                Err(Next::Never(e)) => return Err(Failed::For(e)),
                Err(Next::AskAgain) if Instant::now() < deadline => {
                    self.grants.abandon(&job.place.grant);
                }
                Err(Next::AskAgain) => return Err(Failed::For(Error::AccessDenied)),
                Err(Next::Later(e)) => {
                    self.grants.abandon(&job.place.grant);
                    if Instant::now() + pause >= deadline {
                        return Err(Failed::For(e));
                    }
                    tracing::warn!("{e}; written to another place");
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
            // The old place is never written again.
            jobs.extend(self.jobs(job.parts)?);
        }
        Ok(())
    }

    fn write_once(
        &self,
        job: &Job,
        blocks: &Blocks,
        end: u64,
    ) -> std::result::Result<Vec<Written>, Next> {
        let grant = &job.place.grant;
        let sealing = tracing::trace_span!(target: spans::TARGET, spans::SEALING).entered();
        // A copy of this memory that was taken before draws another one.
        let nonce = seal::nonce_part(grant.append_nonces).map_err(|e| Next::Never(Error::Io(e)))?;
        let total: u32 = job.parts.iter().map(|p| p.blocks).sum();
        let mut data = Vec::with_capacity(total as usize * BLOCK_LEN);
        let mut sealed = Vec::with_capacity(job.parts.len());
        let mut cipher = grant.keys.cipher();
        let no_key = || {
            Next::Never(Error::Io(std::io::Error::other(
                "the metadata server granted blocks without their keys",
            )))
        };
        for part in &job.parts {
            let position = job.place.position + (data.len() / BLOCK_LEN) as u32;
            let from = data.len();
            for (_, block) in blocks.range(part.first..part.first + u64::from(part.blocks)) {
                data.extend_from_slice(&block[..]);
            }
            assert_eq!(
                data.len() - from,
                part.blocks as usize * BLOCK_LEN,
                "a part is made of blocks that are there"
            );
            let positions = (position..).step_by(UNIT_LEN / BLOCK_LEN);
            let tags: Option<Tags> = data[from..]
                .chunks_mut(UNIT_LEN)
                .zip(positions)
                .map(|(unit, position)| cipher.seal(nonce, position, unit))
                .collect();
            let tags = tags.ok_or_else(no_key)?;
            let digests = data[from..].chunks(UNIT_LEN).map(seal::unit_digest);
            sealed.push(Sealed {
                segment: grant.segment,
                position,
                blocks: part.blocks,
                nonce,
                tags,
                digests: digests.collect(),
            });
        }
        drop(sealing);
        let unknown = || Next::Later(Error::Unreachable("an unknown disk".into()));
        let disk = self.disks.get(grant.disk).ok_or_else(unknown)?;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::NETWORK).entered();
        let start = grant.start + u64::from(job.place.position);
        let boot = match job.durable {
            true => disk.write_durable(&grant.ticket, start, &data),
            false => disk.write(&grant.ticket, start, &data),
        };
        let boot = boot.map_err(|e| self.disks.next(grant.disk, e))?;
        let written = job.parts.iter().zip(sealed).map(|(part, sealed)| Written {
            grant: grant.id,
            boot,
            durable: job.durable,
            extent: WrittenExtent {
                offset: part.first * BLOCK,
                sealed,
                end: end.min((part.first + u64::from(part.blocks)) * BLOCK),
            },
        });
        Ok(written.collect())
    }
}
/// Runs of blocks that follow each other, none over the border of a chunk.
fn parts(blocks: &Blocks) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for at in blocks.keys().copied() {
        match parts.last_mut() {
            Some(last)
                if last.first + u64::from(last.blocks) == at
                    && !at.is_multiple_of(CHUNK_BLOCKS) =>
            {
                last.blocks += 1;
            }
            _ => parts.push(Part {
                first: at,
                blocks: 1,
            }),
        }
    }
    parts
}
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn parts_follow_the_blocks_and_end_with_the_chunk() {
        let indexes = [0, 1, 2, 5, 254, 255, 256, 257, 600];
        let blocks: Blocks = indexes
            .into_iter()
            .map(|at| (at, Arc::new([0; BLOCK_LEN])))
            .collect();
        let found: Vec<_> = parts(&blocks).iter().map(|p| (p.first, p.blocks)).collect();
        assert_eq!(found, [(0, 3), (5, 1), (254, 2), (256, 2), (600, 1)]);
    }
}
