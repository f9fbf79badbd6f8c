//! Background work: heartbeats, committing data that was written a while ago, reporting closed files and grants that are over,
//! shortening the log.
//!
//! Three threads, so that none waits for another's work: a heartbeat must not wait for a disk.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Heartbeat, VERSION};
use model::Result;

use super::client::ClientCore;
use super::errors::words;
use super::files::File;
use super::link::{Attempt, Connected};
use super::writing::PLACE_AT;

/// The age at which written data is committed without a request.
const PLACE_AFTER: Duration = Duration::from_secs(1);
/// The longest pause between looking for such data, and between reports of closed files.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// Between heartbeats, at most; a quarter of a lease where that is less.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a heartbeat may take: then the connection counts as broken.
const HEARTBEAT_ANSWER: Duration = Duration::from_secs(5);
/// The same where another server may have taken over from one that does not answer.
const HEARTBEAT_ANSWER_OF_SEVERAL: Duration = Duration::from_secs(2);
/// Files whose data is committed in parallel.
const FILES: usize = 4;
/// After placing in the background failed for a reason that may pass.
const AGAIN: Duration = Duration::from_secs(2);

/// The work of one thread until it is stopped.
type Duty = fn(&ClientCore);

/// Starts the threads.
pub(super) fn start(core: &Arc<ClientCore>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let duties: [(&str, Duty); 3] = [
        ("strongroom-beat", ClientCore::heartbeats),
        ("strongroom-place", ClientCore::places),
        ("strongroom-sync", ClientCore::syncs),
    ];
    duties
        .into_iter()
        .map(|(name, duty)| {
            let core = core.clone();
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || duty(&core))
        })
        .collect()
}

impl ClientCore {
    /// Waits until woken or stopped; `false`: to stop.
    fn pause(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, time);
        }
        !*stop
    }

    fn heartbeats(&self) {
        let mut pause = HEARTBEAT;
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            if now < next {
                if !self.pause(next - now) {
                    return;
                }
                continue;
            }
            match self.heartbeat() {
                Ok(lease) => pause = HEARTBEAT.min(lease / 4),
                Err(e) => tracing::debug!("a heartbeat: {e}"),
            }
            next = Instant::now() + pause;
        }
    }

    fn heartbeat(&self) -> Result<Duration> {
        let answer = match self.link.has_several() {
            true => HEARTBEAT_ANSWER_OF_SEVERAL,
            false => HEARTBEAT_ANSWER,
        };
        let connected = self.connected(Instant::now() + answer)?;
        let session = &connected.session;
        let deadline = Instant::now() + answer;
        let ask = |client: metadata_proto::rpc::MetadataClient, context, id| async move {
            client.beat(context, id).await
        };
        if let Attempt::Answer(Ok(Heartbeat { settled, .. })) =
            self.link.attempt(&connected, deadline, ask)
        {
            self.settle(settled, session.generation);
        }
        if self.disks.ask_again() {
            self.find_disks(&connected, answer);
        }
        Ok(session.lease)
    }

    /// Learns where the disks are now: a session that goes on is greeted with that again.
    fn find_disks(&self, connected: &Connected, answer: Duration) {
        let deadline = Instant::now() + answer;
        let ask = |client: metadata_proto::rpc::MetadataClient, context, id| async move {
            client.hello(context, VERSION, Some(id)).await
        };
        if let Attempt::Answer(Ok(welcome)) = self.link.attempt(connected, deadline, ask) {
            self.disks.update(&welcome.disks);
        }
    }

    /// Forgets what is durable: everything stamped up to `settled` by the server of a session.
    pub(super) fn settle(&self, settled: u64, generation: u64) {
        for file in self.files.all() {
            let mut state = file.state.lock();
            // Stamps of another incarnation of the server mean nothing.
            if self.incarnation() > generation {
                return;
            }
            let blocks = state.settle(settled);
            // Also what another thread still used when it was closed.
            let may_be_idle = state.opens == 0;
            drop(state);
            self.budget.release(blocks);
            let no = file.no;
            drop(file);
            if may_be_idle {
                self.files.tidy(no);
            }
        }
    }

    fn places(&self) {
        let mut not_before = Instant::now();
        while self.pause(LOOK) {
            if Instant::now() < not_before {
                continue;
            }
            let due: Vec<Arc<File>> = self.files.all().into_iter().filter(is_due).collect();
            for some in due.chunks(FILES) {
                let failed = std::thread::scope(|scope| {
                    let threads: Vec<_> = some
                        .iter()
                        .map(|file| scope.spawn(|| self.place_quietly(file)))
                        .collect();
                    threads
                        .into_iter()
                        .any(|t| t.join().is_ok_and(|committed| !committed))
                });
                if failed {
                    not_before = Instant::now() + AGAIN;
                }
            }
        }
    }

    /// Commits a file's data; a refusal is reported at the next close or fsync. `false`: to be tried again later.
    fn place_quietly(&self, file: &File) -> bool {
        match self.flush_file(file) {
            Ok(()) => true,
            Err(e) if file.state.lock().note_error(&e) => true,
            Err(e) => {
                tracing::warn!("{}; it is tried again", words(file.no, &e));
                false
            }
        }
    }

    fn syncs(&self) {
        while self.pause(LOOK) {
            self.send_closed();
            // Not after a heartbeat: a server that hangs would keep the next one from finding that out.
            if let Ok(connected) = self.connected(self.deadline()) {
                self.release_finished(&connected);
            }
            if self.budget.percent() >= 50
                && let Err(e) = self.sync_all()
            {
                tracing::warn!("making written data durable: {e}; it is tried again");
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Places and makes durable what all files have.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.in_one_incarnation(|incarnation| {
            let mut first = Ok(());
            let files = self.files.all();
            for file in files {
                let unplaced = file.state.lock().has_unplaced();
                if unplaced && let Err(e) = self.flush_file(&file) {
                    file.state.lock().note_error(&e);
                    first = first.and(Err(e));
                }
            }
            self.sync_server()?;
            first?;
            Ok((self.incarnation() == incarnation).then_some(()))
        })
    }
}

fn is_due(file: &Arc<File>) -> bool {
    let state = file.state.lock();
    let old = state
        .dirty_since
        .is_some_and(|since| since.elapsed() >= PLACE_AFTER);
    old || state.dirty.len() >= PLACE_AT
}
