//! Asking the server: again and again until there is an answer or patience ends, and taking up a session that began anew.
//!
//! 1. Nothing is asked under a session before [`Core::adopt`] has taken it up.
//! 2. What was asked, without an answer, in a session that is gone is not asked again, unless asking twice does no harm.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Instant;

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
        let _span = tracing::trace_span!(target: spans::TARGET, spans::METADATA).entered();
        let deadline = self.deadline();
        let twice = may_be_asked_twice(&change);
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
                Some(Ok(changed)) => return Ok(changed),
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
