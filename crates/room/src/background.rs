//! The room's own thread: deletes what lost its last name, commits at the interval, keeps the log short.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::maintenance::Cleaner;
use crate::parts::Parts;
use crate::reports::{LostExtent, LostRange};

/// Works until it is asked to stop.
pub(crate) fn run(room: &Arc<Parts>) {
    let interval = match room.env.options.commit_interval_ms {
        0 => Duration::from_secs(3600),
        ms => Duration::from_millis(ms),
    };
    let mut due = Instant::now() + interval;
    let mut cleaner = Cleaner::new();
    loop {
        let asked = room.env.requests.take(due.min(cleaner.due()));
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
            continue;
        }
        if asked.flush
            && let Err(e) = room.blocks.flush_early()
        {
            room.commits.failed(e);
        }
        if asked.reap
            && let Err(e) = room.reaper.reap_all()
        {
            tracing::error!("deleting unlinked files: {e}");
        }
        if asked.commit || Instant::now() >= due {
            due = Instant::now() + interval;
            if let Err(e) = room.commits.commit_or_defer() {
                tracing::error!("commit: {e}");
            }
            if let Err(e) = room.catalog.get().checkpoint() {
                tracing::warn!("checkpoint: {e}");
            }
            room.freed.punch_holes();
        } else if asked.punch {
            room.freed.punch_holes();
        }
        if asked.clean {
            cleaner.hurry();
        }
        cleaner.step(&room.maintenance);
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
