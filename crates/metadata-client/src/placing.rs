//! From written blocks to a file: once they are on the disks, their extents are committed to the metadata server.
//!
//! 1. The server gets the extent only after its disk acknowledged the write.
//! 2. Data that cannot be committed now stays to be committed; data that is refused for good is discarded, which is noted for the
//!    fsync of those who wrote it, also where the commit was asked for by others. That the server has seen no name of a file is not for
//!    good: the file is there.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Committed, Posix, Refusal, Written};
use model::{Error, Result, Timestamp};

use super::client::{ClientCore, PAUSE};
use super::disk_writes::Failed;
use super::errors::{WriteBackError, gone, unseen, words};
use super::files::{Blocks, File, Logged, State};

/// Parts sent to the server at once.
const PARTS_MAX: usize = 256;
/// Between two looks whether another thread has decided about returned data, and how many there are.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOKS: usize = 100;

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
        let written = self.write_out(blocks, end, deadline, sync)?;
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
}
