//! Calls to the server: repeated until there is an answer or the timeout passes; and the adoption of a new session.
//!
//! 1. Nothing is asked under a session before [`ClientCore::adopt`] has taken it up.
//! 2. A change is asked for by one slot and number until it is answered, in whatever session of whatever incarnation of the
//!    server: it is done once.
//! 3. A request that the server cannot serve at the moment is repeated; it fails only after the timeout.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Change, Changed, MetadataClient, Recalled, Refusal, Reply, SessionId};
use model::{Error, Result, spans};
use tarpc::client::RpcError;
use tarpc::context::Context;

use super::client::{ClientCore, Standing};
use super::errors::{error, is_unseen};
use super::files::File;
use super::link::{Attempt, Connected};

/// Pauses before a server that cannot answer just now is asked again, at first and at most.
pub(super) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(200));

impl ClientCore {
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.options.timeout
    }

    /// A connection whose session is taken up.
    pub(super) fn connected(&self, deadline: Instant) -> Result<Connected> {
        loop {
            let connected = self.link.connected(deadline)?;
            if self.adopted.load(Ordering::Acquire) >= connected.session.generation {
                return Ok(connected);
            }
            self.adopt(&connected, deadline)?;
            if self.adopted.load(Ordering::Acquire) < connected.session.generation {
                // The server is not itself yet, or the session is gone again.
                self.still_time(deadline)?;
                std::thread::sleep(PAUSE.0);
            }
        }
    }

    /// Adopts a new session: open files are opened again, grants are gone, locks are claimed again, and data that the server lost
    /// with its incarnation is to be committed again.
    fn adopt(&self, connected: &Connected, deadline: Instant) -> Result<()> {
        let session = &connected.session;
        let mut standing = self.standing.lock();
        if self.adopted.load(Ordering::Acquire) >= session.generation {
            return Ok(());
        }
        let reboot = standing.boot.is_some_and(|boot| boot != session.boot);
        if reboot {
            tracing::warn!("the metadata server was restarted");
            // Before the files' states are read: data committed from here on belongs to the new incarnation.
            self.reboot.store(session.generation, Ordering::Release);
        }
        self.disks.update(&session.disks);
        self.grants.forget();
        self.maps.forget();
        for file in self.files.all() {
            if reboot {
                // Before the server reports what it still has of the file: it must not seem shorter for a moment.
                let mut state = file.state.lock();
                state.outdate();
                self.budget.release(state.replay());
                if state.owed {
                    drop(state);
                    self.owed.lock().insert(file.no);
                }
            }
            if !self.reopen(connected, &file, deadline)? {
                // Broken again: the next session is taken up instead.
                return Ok(());
            }
            file.state.lock().outdate();
        }
        // In the same incarnation others may have had them meanwhile.
        let former = reboot.then_some(&mut standing.sessions);
        if !self.take_up_locks(connected, former, deadline)? {
            return Ok(());
        }
        *standing = Standing {
            boot: Some(session.boot),
            sessions: vec![session.id],
        };
        self.adopted.store(session.generation, Ordering::Release);
        Ok(())
    }

    /// Runs `attempt` until it begins and ends in one incarnation of the server, or until the timeout. `attempt` gets the
    /// incarnation and returns `None` where that is over. What earlier ones lost is among what is to be committed when it begins.
    pub(super) fn in_one_incarnation<T>(
        &self,
        mut attempt: impl FnMut(u64) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = self.deadline();
        loop {
            let incarnation = self.incarnation();
            // Its session may be in the middle of being adopted, with files that have not got back yet what was lost.
            self.connected(deadline)?;
            if self.incarnation() == incarnation
                && let Some(done) = attempt(incarnation)?
            {
                return Ok(done);
            }
            if Instant::now() >= deadline {
                return Err(Error::Unreachable(
                    "the metadata server, which is started again and again,".into(),
                ));
            }
        }
    }

    /// Asks what may be asked twice.
    pub(super) fn call<T, F, R>(&self, ask: F) -> Result<T>
    where
        F: Fn(MetadataClient, Context, SessionId) -> R,
        R: Future<Output = std::result::Result<Reply<T>, RpcError>>,
    {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::METADATA).entered();
        self.asked(ask)
    }

    /// The same for what brings capabilities.
    pub(super) fn call_for_capability<T, F, R>(&self, ask: F) -> Result<T>
    where
        F: Fn(MetadataClient, Context, SessionId) -> R,
        R: Future<Output = std::result::Result<Reply<T>, RpcError>>,
    {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CAPABILITY).entered();
        self.asked(ask)
    }

    fn asked<T, F, R>(&self, ask: F) -> Result<T>
    where
        F: Fn(MetadataClient, Context, SessionId) -> R,
        R: Future<Output = std::result::Result<Reply<T>, RpcError>>,
    {
        let deadline = self.deadline();
        let mut pause = PAUSE.0;
        loop {
            let connected = self.connected(deadline)?;
            match self.link.attempt(&connected, deadline, &ask) {
                Attempt::Answer(Ok(answer)) => return Ok(answer),
                Attempt::Answer(Err(Refusal::NoSession)) => {}
                Attempt::Answer(Err(Refusal::NotNow(why))) => {
                    tracing::debug!("the metadata server is asked again: {why:?}");
                    rest(&mut pause, deadline);
                }
                Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
                Attempt::Unknown(why) => tracing::debug!("asking the metadata server: {why}"),
            }
            self.still_time(deadline)?;
        }
    }

    /// Repeats what failed because a server or disk was away or failed, until it succeeds or the timeout passes.
    pub(super) fn patiently<T>(
        &self,
        deadline: Instant,
        mut f: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut pause = Duration::from_millis(20);
        loop {
            match f() {
                Err(e @ (Error::Unreachable(_) | Error::Io(_)))
                    if Instant::now() + pause < deadline && !*self.stop.lock() =>
                {
                    tracing::debug!("tried again: {e}");
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                other => return other,
            }
        }
    }

    fn still_time(&self, deadline: Instant) -> Result<()> {
        if Instant::now() < deadline {
            return Ok(());
        }
        Err(self.too_late())
    }

    /// Has a change made, once.
    pub(super) fn change(&self, change: Change) -> Result<Changed> {
        match self.change_in_incarnation(&change, None)? {
            Some(changed) => Ok(changed),
            None => Err(Error::Stale),
        }
    }

    /// Has a name linked, moved or removed: after all data that was committed before, so what the server lost of it is committed again first.
    /// Programs replace files so, and rely on the order.
    pub(super) fn change_after_data(&self, change: &Change) -> Result<Changed> {
        self.in_one_incarnation(|incarnation| {
            self.commit_owed()?;
            self.change_in_incarnation(change, Some(incarnation))
        })
    }

    /// Commits again what the server lost with earlier incarnations.
    fn commit_owed(&self) -> Result<()> {
        let owed = self.owed.lock().clone();
        let is_owed = |file: &Arc<File>| file.state.lock().owed;
        for file in owed.iter().filter_map(|no| self.files.get(*no)) {
            if is_owed(&file)
                && let Err(e) = self.flush_file(&file)
                && !file.state.lock().note_error(&e)
                && !is_unseen(&e)
            {
                return Err(e);
            }
        }
        if !owed.is_empty() {
            let mut owed = self.owed.lock();
            owed.retain(|no| self.files.get(*no).is_some_and(|file| is_owed(&file)));
        }
        Ok(())
    }

    /// Makes a change once within an incarnation of the server: `None` where the incarnation that began with session
    /// generation `incarnation` ended without it.
    pub(super) fn change_in_incarnation(
        &self,
        change: &Change,
        incarnation: Option<u64>,
    ) -> Result<Option<Changed>> {
        let ended = self.directories.begin(change, &self.names);
        let answer = self.answer_to(change, incarnation);
        self.directories.end(ended, &answer);
        answer
    }

    fn answer_to(&self, change: &Change, incarnation: Option<u64>) -> Result<Option<Changed>> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::METADATA).entered();
        let deadline = self.deadline();
        let Some(slot) = self.slots.take(deadline) else {
            return Err(self.too_late());
        };
        let (number, sequence) = (slot.number, slot.sequence);
        let mut pause = PAUSE.0;
        let mut asked = false;
        loop {
            let connected = self.connected(deadline)?;
            let over = incarnation.is_some_and(|incarnation| self.incarnation() != incarnation);
            if over && !asked {
                return Ok(None);
            }
            let attempt = if over {
                // Done now, it would come before what it must follow.
                let ask = |client: MetadataClient, context, id| async move {
                    client.recall(context, id, number, sequence).await
                };
                self.link.attempt(&connected, deadline, ask)
            } else {
                asked = true;
                let ask = |client: MetadataClient, context, id| {
                    let change = change.clone();
                    async move {
                        let changed = client.change(context, id, number, sequence, change).await;
                        changed.map(|answer| answer.map(Recalled::Done))
                    }
                };
                self.link.attempt(&connected, deadline, ask)
            };
            match attempt {
                Attempt::Answer(Ok(Recalled::Done(changed))) => return Ok(Some(changed)),
                Attempt::Answer(Ok(Recalled::NotDone)) => return Ok(None),
                Attempt::Answer(Err(Refusal::NoSession)) => {}
                Attempt::Answer(Err(Refusal::NotNow(why))) => {
                    tracing::debug!("a change is asked for again: {why:?}");
                    rest(&mut pause, deadline);
                }
                Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
                Attempt::Unknown(why) => {
                    tracing::debug!("asking the metadata server for a change: {why}");
                }
            }
            self.still_time(deadline)?;
        }
    }

    pub(super) fn too_late(&self) -> Error {
        Error::Unreachable(format!("the metadata server at {}", self.options.address))
    }
}

/// Waits a little before the server is asked again, longer each time.
pub(super) fn rest(pause: &mut Duration, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    std::thread::sleep((*pause).min(left));
    *pause = (*pause * 2).min(PAUSE.1);
}
