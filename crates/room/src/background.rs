//! The room's own thread: deletes what lost its last name, commits at the interval, keeps the log short.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::maintenance::Cleaner;
use crate::parts::Parts;
use crate::reports::{LostExtent, LostRange};

/// Between two tries of a deletion of snapshots that cannot go on.
const AGAIN: Duration = Duration::from_secs(1);
/// How long inodes to be deleted wait for others. Who asks for the space has them deleted first.
const REAP: Duration = Duration::from_millis(50);

/// Works until it is asked to stop.
pub(crate) fn run(room: &Arc<Parts>) {
    let interval = match room.env.options.commit_interval_ms {
        0 => Duration::from_secs(3600),
        ms => Duration::from_millis(ms),
    };
    let mut due = Instant::now() + interval;
    let mut cleaner = Cleaner::new();
    // When the deletion of snapshots goes on, if there is anything left of one.
    let mut merge_due: Option<Instant> = None;
    // When what lost its last name is deleted, if anything did.
    let mut reap_due: Option<Instant> = None;
    loop {
        let others = merge_due.into_iter().chain(reap_due);
        let wake = others.fold(due.min(cleaner.due()), Instant::min);
        let asked = room.env.requests.take(wake);
        log_damage(room, asked.damaged);
        if asked.stop {
            return;
        }
        if asked.remember {
            room.commits.write_memory();
        }
        if room.commits.check_poison().is_err() {
            due = Instant::now() + Duration::from_secs(3600);
            cleaner.pause();
            merge_due = None;
            reap_due = None;
            continue;
        }
        if asked.flush
            && let Err(e) = room.blocks.flush_early()
        {
            room.commits.failed(e);
        }
        if asked.reap {
            // Quotas count a file until it is deleted.
            let at_once = room.holds.has_many_doomed() || room.data.owners().is_counting();
            let wait = if at_once { Duration::ZERO } else { REAP };
            let at = Instant::now() + wait;
            reap_due = Some(reap_due.map_or(at, |before| before.min(at)));
        }
        if reap_due.is_some_and(|at| Instant::now() >= at) {
            reap_due = None;
            if let Err(e) = room.reaper.reap_all() {
                tracing::error!("deleting unlinked files: {e}");
            }
        }
        let must = asked.commit || Instant::now() >= due;
        let committed = (must || asked.ahead) && commit(room, must);
        if committed {
            due = Instant::now() + interval;
            if room.holds.has_put_off() {
                room.env.requests.ask(|wake| wake.reap = true);
            }
        }
        if committed || asked.punch {
            // What changes wait for comes before the rest.
            let more = room.freed.punch_some();
            if more {
                room.env.requests.ask(|wake| wake.punch = true);
            }
        }
        if asked.merge || merge_due.is_some_and(|at| Instant::now() >= at) {
            merge_due = delete_snapshots(room);
        }
        if asked.clean {
            cleaner.hurry();
        }
        cleaner.step(&room.maintenance);
    }
}

/// Commits if it `must`, or much is pending, and keeps the catalog's log short. Returns whether it did, or tried.
fn commit(room: &Parts, must: bool) -> bool {
    match room.commits.work_ahead(must) {
        Ok(false) => return false,
        Ok(true) => {}
        Err(e) => tracing::error!("commit: {e}"),
    }
    if let Err(e) = room.catalog.get().checkpoint() {
        tracing::warn!("checkpoint: {e}");
    }
    true
}

/// Goes on with the deletion of snapshots; returns when the next step is due, if there is one. Half of the time is left to
/// others.
fn delete_snapshots(room: &Parts) -> Option<Instant> {
    let begun = Instant::now();
    let Some(done) = room.past.delete_some_now() else {
        // Commits do not wait for that.
        return Some(Instant::now() + AGAIN);
    };
    match done {
        Ok(true) => Some(Instant::now() + begun.elapsed()),
        Ok(false) => {
            // Not within a transaction.
            let wait = room.past.has_deleted();
            // A commit frees what nobody refers to any more.
            room.env.requests.ask(|wake| wake.commit |= !wait);
            wait.then(|| Instant::now() + AGAIN)
        }
        Err(e) => {
            tracing::error!("deleting snapshots: {e}");
            Some(Instant::now() + AGAIN)
        }
    }
}

/// Logs the files of ranges that failed authentication. A file's name is searched in the whole tree: not while a caller waits
/// for an answer.
fn log_damage(room: &Parts, damaged: Vec<LostExtent>) {
    match room.maintenance.named(damaged) {
        Ok(ranges) => {
            for LostRange {
                path,
                inode,
                offset,
                len,
            } in ranges
            {
                let end = offset + len;
                tracing::error!(
                    "{path} (inode {inode}): bytes {offset} to {end} are damaged, replaced or missing"
                );
            }
        }
        Err(e) => tracing::error!("damaged files could not be named: {e}"),
    }
}
