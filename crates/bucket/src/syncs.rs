//! Syncs: many threads ask, one commits for all who asked before it began.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::WriterState;

use crate::client::Client;
use crate::commit::Committer;
use crate::elsewhere;
use crate::file::File;
use crate::names::{self, CHECKPOINTS, DATA, ObjectName};
use crate::shared::Shared;

/// The longest between two looks whether a heartbeat is due.
const LOOK: Duration = Duration::from_millis(100);

/// How long the end of a writer waits for removals, and for a note by which later ones remove more.
pub(crate) const REMOVALS: Duration = Duration::from_secs(5);

/// Syncs, and who waits for one.
#[derive(Debug)]
pub(crate) struct Commits {
    pub(crate) committer: Mutex<Committer>,
    waiting: Mutex<Waiting>,
    /// Syncs that are done: those that came before this number.
    done: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    files: Vec<Arc<File>>,
    number: u64,
}

impl Commits {
    pub(crate) fn new(committer: Committer) -> Self {
        Self {
            committer: Mutex::new(committer),
            waiting: Mutex::default(),
            done: AtomicU64::new(0),
        }
    }

    /// Returns when everything is durable that was written to the file before, and every change of names.
    pub(crate) fn sync(&self, shared: &Shared, file: Option<&Arc<File>>) -> io::Result<()> {
        if let Some(file) = file {
            file.wait_for_uploads();
        }
        shared.check()?;
        let number = {
            let mut waiting = self.waiting.lock();
            waiting.files.extend(file.cloned());
            waiting.number += 1;
            waiting.number
        };
        let mut committer = self.committer.lock();
        if self.done.load(Ordering::Acquire) >= number {
            // The one who held the lock did it with his own.
            return Ok(());
        }
        let (files, last) = {
            let mut waiting = self.waiting.lock();
            (std::mem::take(&mut waiting.files), waiting.number)
        };
        committer.commit(shared, &files)?;
        self.done.store(last, Ordering::Release);
        Ok(())
    }
}

/// Asks whether another writer has begun: one request, for the commit that would be the next one. Who began left one under that number,
/// for ever.
pub(crate) fn writer_state(shared: &Shared, commits: &Commits) -> io::Result<WriterState> {
    if let Some(ended) = shared.ended() {
        return Ok(ended);
    }
    // Without the committer's lock, which a sync holds as long as the store needs.
    let next = shared.number.load(Ordering::Acquire) + 1;
    let client = shared.objects.client.clone();
    let asked = client
        .clone()
        .wait(async move { client.commit(next).await })?;
    match asked {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(WriterState::Current),
        Err(e) => return Err(e),
        Ok(_) => {}
    }
    // A sync of ours may be creating it.
    let committer = commits.committer.lock();
    if let Some(ended) = shared.ended() {
        return Ok(ended);
    }
    if committer.manifest.number >= next {
        return Ok(WriterState::Current);
    }
    let why = shared.fail(&shared.overtaken(next));
    Ok(WriterState::Overtaken(why.to_string()))
}

/// Shows that a writer with a lease lives, until it is closed or has failed.
pub(crate) fn begin_heartbeats(shared: &Arc<Shared>, commits: &Arc<Commits>) -> io::Result<()> {
    if shared.options.lease.is_none() {
        return Ok(());
    }
    let (shared, commits) = (Arc::downgrade(shared), Arc::downgrade(commits));
    let shows = move || {
        while let (Some(shared), Some(commits)) = (shared.upgrade(), commits.upgrade()) {
            let Some(wait) = shared.until_heartbeat().filter(|_| !shared.has_failed()) else {
                return;
            };
            if wait.is_zero() {
                // What it fails with ends writing, and is logged there.
                let _ = commits.committer.lock().heartbeat(&shared);
            }
            drop((shared, commits));
            std::thread::sleep(wait.min(LOOK));
        }
    };
    let thread = std::thread::Builder::new().name("heartbeat".into());
    thread.spawn(shows).map(drop)
}

/// Removes what a writer of before left: objects that nothing refers to at once, commits and checkpoints in time. Not before it is known that the
/// state is the newest: a log that went back may come back, and refers to them.
pub(crate) fn sweep(shared: &Arc<Shared>, commits: &Arc<Commits>) {
    let client = shared.objects.client.clone();
    let epoch = shared.writer();
    let (removal, checkpoint) = {
        let committer = commits.committer.lock();
        // Of the begin: what a later one makes needless was needed until then.
        (committer.removals.begin(), committer.checkpoint_number())
    };
    let (shared, commits) = (Arc::downgrade(shared), Arc::downgrade(commits));
    client.clone().spawn(async move {
        let swept = async {
            // Listed before the manifest is looked at: an object that comes later is not in the list.
            let data = client.list(DATA, None).await?;
            let checkpoints = client.list(CHECKPOINTS, None).await?;
            let old = client.commits_after(0).await?;
            let quiet = quiet_since(&client, epoch).await;
            // The committer may be waiting for a task of this runtime: not here.
            let found = Found {
                data,
                checkpoints,
                commits: old,
            };
            let look = move || {
                let (shared, commits) = (shared.upgrade()?, commits.upgrade()?);
                Some(past(&shared, &commits, found, checkpoint, quiet))
            };
            let orphans = tokio::task::spawn_blocking(look).await.unwrap_or_default();
            client.delete(orphans.unwrap_or_default()).await;
            io::Result::Ok(())
        };
        if let Err(e) = swept.await {
            tracing::info!("what earlier writers left is removed another time: {e}");
        }
        drop(removal);
    });
}

/// Since when nobody had written when a writer began, by the store's clock: what was not needed then was not needed since. Without it,
/// writers that are always shorter than the time that is left to readers would remove nothing. Now where the store does not know.
async fn quiet_since(client: &Client, epoch: u64) -> Instant {
    let times = async {
        if epoch < 2 {
            return Ok((0, 0));
        }
        if client.log_address().is_some() {
            return elsewhere::times_around(client, epoch).await;
        }
        let written = |number| client.written_ms(names::commit(number));
        Ok((written(epoch - 1).await?, written(epoch).await?))
    };
    let quiet = match times.await {
        Ok((last, begin)) => u64::try_from(begin - last).unwrap_or(0),
        Err(_) => 0,
    };
    let now = Instant::now();
    // The clock may not go back so far.
    now.checked_sub(Duration::from_millis(quiet)).unwrap_or(now)
}

/// What is in the store.
struct Found {
    data: Vec<(String, u64)>,
    checkpoints: Vec<(String, u64)>,
    commits: Vec<u64>,
}

/// Objects that nothing refers to. What was needed before a checkpoint only is removed in time.
fn past(
    shared: &Shared,
    commits: &Commits,
    found: Found,
    checkpoint: u64,
    quiet: Instant,
) -> Vec<String> {
    let mut committer = commits.committer.lock();
    let manifest = &committer.manifest;
    let is_orphan = |name: &String| match ObjectName::parse_data(name) {
        // What this writer has uploaded may be waiting for its commit.
        Some(ObjectName::Data { epoch, .. }) if epoch >= manifest.epoch => false,
        Some(name) => !manifest.objects.contains_key(&name),
        None => false,
    };
    let names = |list: Vec<(String, u64)>| list.into_iter().map(|(name, _)| name);
    let orphans = names(found.data).filter(is_orphan).collect();
    let is_past = |number: &u64| *number < checkpoint && !manifest.begins.contains(number);
    let commits = found.commits.into_iter().filter(is_past).collect();
    let is_before = |name: &String| {
        names::number_of(CHECKPOINTS, name).is_some_and(|number| number < checkpoint)
    };
    let past = names(found.checkpoints).filter(is_before).collect();
    committer.removals.plan(commits, past, quiet);
    committer.removals.were_idle_since(quiet);
    committer.carry_out_removals(shared);
    orphans
}

/// Waits for removals that were begun, but not for long: the next writer begins those again that are not done.
pub(crate) fn finish_removals(commits: &Commits) {
    let began = Instant::now();
    while commits.committer.lock().removals.are_under_way() && began.elapsed() < REMOVALS {
        std::thread::sleep(LOOK / 10);
    }
}
