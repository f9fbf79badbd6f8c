//! From written blocks to a file: sealed, written to granted blocks on the disks, committed to an extent.
//!
//! 1. A block is sealed once for each place it is written to; a place whose write failed is not written again.
//! 2. The server gets the extent only after its disk acknowledged the write.
//! 3. Data that cannot be committed now stays to be committed; data that is refused for good is discarded, which is noted for the
//!    fsync of those who wrote it, also where the commit was asked for by others. That the server has seen no name of a file is not for
//!    good: the file is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Committed, Posix, Refusal, Written};
use model::{BLOCK_LEN, Error, Result, Sealed, Tags, Timestamp, UNIT_LEN, WrittenExtent, spans};
use parking_lot::Mutex;

use super::client::{ClientCore, PAUSE};
use super::disks::{Next, REQUEST_BLOCKS};
use super::errors::{WriteBackError, gone, unseen, words};
use super::files::{BLOCK, Blocks, File, Logged, State};
use super::grants::GrantedBlocks;

/// Blocks of a chunk of a file; one extent stays within a chunk.
const CHUNK_BLOCKS: u64 = model::CHUNK_BLOCKS as u64;
/// Parts sent to the server at once.
const PARTS_MAX: usize = 256;
/// Data up to this many blocks is made durable by the write itself, where somebody waits for that: 64 KiB.
const DURABLE_BLOCKS: u32 = 16;
/// Between two looks whether another thread has decided about returned data, and how many there are.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOKS: usize = 100;
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

enum Failed {
    /// The grants are over: once more, elsewhere.
    Again,
    /// The server has seen no name of the file.
    Unseen,
    /// Somebody changed the file since it was looked at.
    Changed,
    For(Error),
}

impl ClientCore {
    /// Places what was written to a file before this call.
    pub(super) fn flush_file(&self, file: &File) -> Result<()> {
        self.commit_file(file, false).map(drop)
    }

    /// The same. With `sync` the server is asked to make it durable; true where it did, with everything that was there before.
    pub(super) fn commit_file(&self, file: &File, sync: bool) -> Result<bool> {
        let _alone = file.flushing.lock();
        let committed = self.commit_locked(file, sync)?;
        if let Some((committed, generation)) = committed
            && sync
        {
            let Committed { stamp, settled, .. } = committed;
            self.settle(settled, generation);
            return Ok(settled >= stamp);
        }
        Ok(false)
    }

    /// The same; the caller holds `flushing`.
    pub(super) fn flush_locked(&self, file: &File) -> Result<()> {
        self.commit_locked(file, false).map(drop)
    }

    /// What became of it, and in which session; `None`: there was nothing to commit.
    fn commit_locked(&self, file: &File, sync: bool) -> Result<Option<(Committed, u64)>> {
        let deadline = self.deadline();
        let mut pause = Duration::ZERO;
        loop {
            let (blocks, end, onto, generation) = {
                // First, because a new session brings back what the server lost.
                let nothing = || {
                    let state = file.state.lock();
                    !state.is_dirty() && state.usable().is_ok()
                };
                if nothing() {
                    return Ok(None);
                }
                let generation = self.connected(deadline)?.session.generation;
                let mut state = file.state.lock();
                if let Err(e) = state.usable() {
                    self.budget.release(state.drop_unplaced());
                    return Err(e);
                }
                if !state.is_dirty() {
                    return Ok(None);
                }
                if state.is_unjudged() {
                    drop(state);
                    if let Err(e) = self.judge_locked(file) {
                        return self.not_judged(file, e).map(|()| None);
                    }
                    continue;
                }
                // First, and for themselves: they are older than what is dirty, and refused where another client's are newer.
                let (onto, end) = match state.take_off_returned() {
                    Some((onto, end)) => (Some(onto), end),
                    None => {
                        state.take_off();
                        (None, state.size())
                    }
                };
                (state.flight.clone(), end, onto, generation)
            };
            let land = |state: &mut State| {
                self.budget.release(match onto {
                    Some(_) => state.land_returned(),
                    None => state.land(),
                });
            };
            match self.place_blocks(file, &blocks, end, onto, deadline, sync) {
                Ok(mut committed) => {
                    let mut state = file.state.lock();
                    if self.incarnation() > generation {
                        // The server that said so is gone, and may not have kept it, or may.
                        land(&mut state);
                        state.unsure = true;
                        continue;
                    }
                    state.flight.clear();
                    if onto.is_some() {
                        state.returned_committed();
                    }
                    state.owed &= onto.is_some() && state.is_dirty();
                    let logged = Logged {
                        stamp: committed.stamp,
                        end,
                        blocks,
                        moments: std::mem::take(&mut committed.moments),
                        unsure: std::mem::take(&mut state.unsure),
                    };
                    state.log.push_back(logged);
                    state.placings += 1;
                    state.outdate();
                    if let Some(inode) = &mut state.inode {
                        inode.size = inode.size.max(end);
                    }
                    state.committed();
                    self.placings.fetch_add(1, Ordering::AcqRel);
                    if onto.is_some() && state.is_dirty() {
                        continue;
                    }
                    return Ok(Some((committed, generation)));
                }
                Err(Failed::Changed) if Instant::now() < deadline => {
                    let mut state = file.state.lock();
                    land(&mut state);
                    state.judge_again();
                }
                Err(Failed::Again) if Instant::now() + pause < deadline => {
                    land(&mut file.state.lock());
                    std::thread::sleep(pause);
                    pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
                }
                Err(Failed::Unseen) => {
                    let shown = match self.show_name(file) {
                        Ok(shown) => shown,
                        Err(e) => return self.not_committed(file, e).map(|()| None),
                    };
                    land(&mut file.state.lock());
                    if !shown || Instant::now() + pause >= deadline {
                        // It is there, under another name: somebody will look at that.
                        return Err(unseen());
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
                }
                Err(failed) => {
                    let e = match failed {
                        Failed::For(e) => e,
                        Failed::Unseen => unseen(),
                        Failed::Again | Failed::Changed => {
                            Error::Unreachable("the metadata server, which takes nothing,".into())
                        }
                    };
                    if WriteBackError::of(&e).is_none() {
                        land(&mut file.state.lock());
                        return Err(e);
                    }
                    if onto.is_some() {
                        file.state.lock().returned_committed();
                    }
                    return self.not_committed(file, e).map(|()| None);
                }
            }
        }
    }

    /// Decides what becomes of data that a restarted server may have lost, where that was not done since: before a program sees any of it.
    /// Where that cannot be found out soon, the data is shown.
    pub(super) fn judge(&self, file: &File) {
        for _ in 0..LOOKS {
            if !file.state.lock().is_unjudged() {
                return;
            }
            // Another thread that commits the file's data decides before it is done with that.
            let Some(_alone) = file.flushing.try_lock_for(LOOK_AGAIN) else {
                continue;
            };
            if let Err(e) = self.judge_locked(file) {
                tracing::debug!("{}", words(file.no, &e));
                return;
            }
        }
    }

    /// The same; the caller holds `flushing`.
    fn judge_locked(&self, file: &File) -> Result<()> {
        let no = file.no;
        let mut shown = false;
        while file.state.lock().is_unjudged() {
            let asked = self.call_in(|client, context, session| async move {
                client.attributes(context, session, no).await
            });
            let (inode, generation) = match asked {
                Ok(answered) => answered,
                Err(Error::Stale) if !shown && self.show_name(file)? => {
                    shown = true;
                    continue;
                }
                Err(Error::Stale) => return Err(unseen()),
                Err(e) => return Err(gone(e)),
            };
            let mut state = file.state.lock();
            if self.incarnation() > generation {
                // That server is gone as well.
                continue;
            }
            state.set_inode(&inode);
            match state.judge(inode.mtime) {
                Ok(blocks) => self.budget.release(blocks),
                Err(blocks) => {
                    state.note_loss(WriteBackError::Failed);
                    drop(state);
                    self.budget.release(blocks);
                    tracing::error!(
                        inode = no.0,
                        "another client has changed the file: {} KiB that were closed here, and may not have become durable, are not written over that",
                        blocks * 4
                    );
                }
            }
        }
        Ok(())
    }

    /// Keeps or discards returned data after an error in [`judge`](Self::judge).
    fn not_judged(&self, file: &File, e: Error) -> Result<()> {
        if WriteBackError::of(&e).is_none() {
            return Err(e);
        }
        {
            let mut state = file.state.lock();
            state.flight = std::mem::take(&mut state.returned.blocks);
            state.returned_committed();
        }
        self.not_committed(file, e)
    }

    /// Keeps or discards the blocks in flight after an error. A file that was removed, and is not open here, needs its data no
    /// more: that is no error.
    fn not_committed(&self, file: &File, e: Error) -> Result<()> {
        let mut state = file.state.lock();
        let Some(lost) = WriteBackError::of(&e) else {
            self.budget.release(state.land());
            return Err(e);
        };
        let blocks = state.flight.len();
        state.flight.clear();
        state.committed();
        self.budget.release(blocks);
        if lost == WriteBackError::Stale && state.opens == 0 {
            tracing::debug!(inode = file.no.0, "data of a removed file is discarded");
            return Ok(());
        }
        state.note_loss(lost);
        tracing::error!(
            "{}; {} KiB that were written are lost",
            words(file.no, &e),
            blocks * 4
        );
        Err(e)
    }

    /// Writes blocks to the disks and commits them to the file.
    fn place_blocks(
        &self,
        file: &File,
        blocks: &Blocks,
        end: u64,
        mut onto: Option<Timestamp>,
        deadline: Instant,
        sync: bool,
    ) -> std::result::Result<Committed, Failed> {
        let written = self.write_out(parts(blocks), blocks, end, deadline, sync)?;
        let mut committed = Committed {
            stamp: 0,
            settled: 0,
            moments: Vec::new(),
        };
        let mut moments = Vec::new();
        // The granted blocks stay busy until the server knows of them.
        let (written, _places): (Vec<_>, Vec<_>) = written.into_iter().unzip();
        let written: Vec<Written> = written.into_iter().flatten().collect();
        let times = written.len().div_ceil(PARTS_MAX);
        for (at, some) in written.chunks(PARTS_MAX).enumerate() {
            committed = self
                .place_some(file, some, onto, sync && at + 1 == times)
                .inspect_err(|e| {
                    let is_partly_done = at > 0 && !matches!(e, Failed::Changed);
                    file.state.lock().unsure |= is_partly_done;
                })?;
            onto = onto.and(committed.moments.last().copied());
            moments.append(&mut committed.moments);
        }
        committed.moments = moments;
        Ok(committed)
    }

    fn place_some(
        &self,
        file: &File,
        written: &[Written],
        onto: Option<Timestamp>,
        sync: bool,
    ) -> std::result::Result<Committed, Failed> {
        let no = file.no;
        let answer = self.call_once_in_session(|client, context, session| {
            let written = written.to_vec();
            async move {
                client
                    .place(context, session, no, written, onto, sync)
                    .await
            }
        });
        // Of data under several grants, part may have been taken. What is refused for these reasons was not begun.
        let is_unsure = match &answer {
            Ok(Some(answer)) => !matches!(
                answer,
                Ok(_)
                    | Err(Refusal::NoSession
                        | Refusal::Changed
                        | Refusal::DiskUnreachable(_)
                        | Refusal::Posix(Posix::Stale | Posix::NotFound | Posix::AccessDenied))
            ),
            Ok(None) => true,
            Err(_) => false,
        };
        if is_unsure {
            file.state.lock().unsure = true;
        }
        match answer.map_err(Failed::For)? {
            Some(Ok(committed)) => Ok(committed),
            // In the last three cases the server or a disk may be itself again soon.
            None
            | Some(Err(
                Refusal::NoSession
                | Refusal::GrantOver(_)
                | Refusal::NotNow(_)
                | Refusal::Posix(Posix::Io)
                | Refusal::DiskUnreachable(_),
            )) => Err(Failed::Again),
            Some(Err(Refusal::Posix(Posix::Stale))) => Err(Failed::Unseen),
            Some(Err(Refusal::Changed)) => Err(Failed::Changed),
            Some(Err(refusal)) => Err(Failed::For(gone(super::errors::error(refusal)))),
        }
    }

    /// Writes all parts to granted blocks; with `sync`, durably where that is little.
    fn write_out(
        &self,
        parts: Vec<Part>,
        blocks: &Blocks,
        end: u64,
        deadline: Instant,
        sync: bool,
    ) -> std::result::Result<Vec<(Vec<Written>, GrantedBlocks)>, Failed> {
        let mut jobs = self.jobs(parts)?;
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

/// A block of zeros, shared by all users.
pub(super) fn zeros() -> Arc<super::files::Block> {
    Arc::new([0; BLOCK_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_blocks_and_end_with_the_chunk() {
        let indexes = [0, 1, 2, 5, 254, 255, 256, 257, 600];
        let blocks: Blocks = indexes.into_iter().map(|at| (at, zeros())).collect();
        let found: Vec<_> = parts(&blocks).iter().map(|p| (p.first, p.blocks)).collect();
        assert_eq!(found, [(0, 3), (5, 1), (254, 2), (256, 2), (600, 1)]);
    }
}
