//! Asking the server: again and again until there is an answer or patience ends, and taking up a session that began anew.
//!
//! 1. Nothing is asked under a session before [`Core::adopt`] has taken it up.
//! 2. What was asked, without an answer, in a session that is gone is not asked again, unless asking twice does no harm.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use room::{Error, Fallocate, Result, XattrMode, spans};
use tarpc::client::RpcError;
use tarpc::context::Context;

use super::Core;
use super::errors::error;
use super::link::{Attempt, Connected};
use crate::rpc::{Change, Changed, MetadataClient, Refusal, Reply, SessionId};

impl Core {
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.options.patience
    }

    /// A connection whose session is taken up.
    pub(super) fn connected(&self, deadline: Instant) -> Result<Connected> {
        loop {
            let connected = self.link.connected(deadline)?;
            if self.adopted.load(Ordering::Acquire) >= connected.session.generation {
                return Ok(connected);
            }
            self.adopt(&connected, deadline)?;
        }
    }

    /// Does what must begin and end in one life of the server, again until it does or patience ends. `attempt` is given the life and
    /// tells `None` where that is over.
    pub(super) fn in_one_life<T>(
        &self,
        mut attempt: impl FnMut(u64) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = self.deadline();
        loop {
            if let Some(done) = attempt(self.life())? {
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
        loop {
            let connected = self.connected(deadline)?;
            match self.link.attempt(&connected, deadline, &ask) {
                Attempt::Answer(Ok(answer)) => return Ok(answer),
                Attempt::Answer(Err(Refusal::NoSession)) => {}
                Attempt::Answer(Err(refusal)) => return Err(error(refusal)),
                Attempt::Doubt(why) => tracing::debug!("asking the metadata server: {why}"),
            }
            self.still_time(deadline)?;
        }
    }

    /// Does again what failed because a server or disk was not there or failed, until it succeeds or patience ends.
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
        Err(Error::Unreachable(format!(
            "the metadata server at {}",
            self.options.address
        )))
    }

    /// Has a change made, once.
    pub(super) fn change(&self, change: Change) -> Result<Changed> {
        match self.change_in_life(&change, None)? {
            Some(changed) => Ok(changed),
            None => Err(Error::Stale),
        }
    }

    /// Has a change made, once, before the server loses its life: `None` where the one that began with session generation
    /// `life` is over.
    pub(super) fn change_in_life(
        &self,
        change: &Change,
        life: Option<u64>,
    ) -> Result<Option<Changed>> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::METADATA).entered();
        let deadline = self.deadline();
        match may_be_asked_twice(change) {
            // A server whose storage failed opens its room anew.
            true => self.patiently(deadline, || self.change_by(change, deadline, life, true)),
            false => self.change_by(change, deadline, life, false),
        }
    }

    fn change_by(
        &self,
        change: &Change,
        deadline: Instant,
        life: Option<u64>,
        twice: bool,
    ) -> Result<Option<Changed>> {
        // The session in which an answer is owed.
        let mut doubt: Option<u64> = None;
        loop {
            let connected = self.connected(deadline)?;
            let session = connected.session.clone();
            if doubt.is_some_and(|generation| generation != session.generation) && !twice {
                return Err(Error::Unreachable(
                    "the metadata server was started anew; whether it did the last change is not known: it".into(),
                ));
            }
            if life.is_some_and(|life| self.life() != life) {
                return Ok(None);
            }
            let number = session.begin();
            let outcome = loop {
                let connected = self.link.connected(deadline)?;
                if connected.session.generation != session.generation {
                    break None;
                }
                let ask = |client: MetadataClient, context, id| {
                    let (change, done) = (change.clone(), session.done());
                    async move { client.change(context, id, number, done, change).await }
                };
                match self.link.attempt(&connected, deadline, ask) {
                    Attempt::Answer(Err(Refusal::NoSession)) => break None,
                    Attempt::Answer(answer) => break Some(answer),
                    Attempt::Doubt(why) => {
                        tracing::debug!("asking the metadata server for a change: {why}");
                        doubt = Some(session.generation);
                    }
                }
                if let Err(e) = self.still_time(deadline) {
                    session.end(number);
                    return Err(e);
                }
            };
            session.end(number);
            match outcome {
                Some(Ok(changed)) => return Ok(Some(changed)),
                Some(Err(refusal)) => return Err(error(refusal)),
                None => {}
            }
        }
    }
}

/// Whether a change that was made already does nothing when it is made again.
fn may_be_asked_twice(change: &Change) -> bool {
    match change {
        Change::SetAttributes { .. } => true,
        Change::SetXattr { mode, .. } => *mode == XattrMode::Any,
        Change::Fallocate { what, .. } => !matches!(what, Fallocate::Collapse | Fallocate::Insert),
        Change::Make { .. }
        | Change::MakeUnnamed { .. }
        | Change::Link { .. }
        | Change::Unlink { .. }
        | Change::Rmdir { .. }
        | Change::Rename { .. }
        | Change::RemoveXattr { .. }
        | Change::CopyRange { .. } => false,
    }
}
