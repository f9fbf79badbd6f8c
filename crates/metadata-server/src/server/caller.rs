//! Who calls, for which session, and where the work is done.
//!
//! 1. A call is done by threads that may wait for disks; those that only look at memory too, so that no connection waits for
//!    another's. At most [`BLOCKING_MAX`] run at once, of one user [`RUNNING_PER_USER`], and of one connection no more than the
//!    configuration allows.
//! 2. What runs counts until it ends, with the memory of what its call says, also where nobody waits for the answer any more.
//! 3. Nothing is answered while another server may have the room already: also not what was only read.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use metadata_proto::rpc::{Delay, Refusal, Reply, SessionId, VERSION, Welcome};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::incarnation::{self, Incarnation};
use crate::audit::About;
use crate::sessions::Session;

/// Most calls that run at once, over all connections.
pub(super) const BLOCKING_MAX: usize = 320;

/// Of these, most of one user: some are left for the others.
pub(super) const RUNNING_PER_USER: usize = 256;

static RUNNING: Semaphore = Semaphore::const_new(BLOCKING_MAX);

tokio::task_local! {
    /// Of the user's memory: what the message takes that the task is for.
    static MEMORY: Arc<Option<OwnedSemaphorePermit>>;
}

/// Does a call whose message takes `memory`.
pub(super) async fn with_memory(
    memory: Option<OwnedSemaphorePermit>,
    call: impl Future<Output = ()>,
) {
    MEMORY.scope(Arc::new(memory), call).await;
}

/// One connection's calls.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) shared: Arc<Shared>,
    pub(super) serial: [u8; 16],
    pub(super) peer: SocketAddr,
    pub(super) cut: CancellationToken,
    own: Arc<Semaphore>,
    /// Of all connections of its user.
    of_user: Arc<Semaphore>,
}

/// What a call works with.
pub(super) type Here = (Arc<Incarnation>, Arc<Session>);

impl Caller {
    pub(super) fn new(
        shared: Arc<Shared>,
        (serial, peer): ([u8; 16], SocketAddr),
        cut: CancellationToken,
        of_user: Arc<Semaphore>,
    ) -> Self {
        let own = Arc::new(Semaphore::new(shared.config.calls_max));
        Self {
            shared,
            serial,
            peer,
            cut,
            own,
            of_user,
        }
    }

    pub(super) fn here(&self, session: SessionId) -> Reply<Here> {
        if self.cut.is_cancelled() || self.shared.users.get(&self.serial).is_none() {
            return Err(Refusal::NoSession);
        }
        let incarnation = self.shared.incarnation().ok_or(Refusal::NoSession)?;
        if incarnation.has_failed() {
            return Err(Refusal::NoSession);
        }
        let session = incarnation.sessions.find(session, &self.serial)?;
        Ok((incarnation, session))
    }

    /// Runs what may wait, and counts it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Self) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let begun = Instant::now();
        let stops = |_| Refusal::Failed("the server stops".into());
        let own = self.own.clone().acquire_owned().await.map_err(stops)?;
        let of_user = self.of_user.clone().acquire_owned().await.map_err(stops)?;
        let running = RUNNING.acquire().await.map_err(stops)?;
        let fence = self.shared.fence();
        let caller = self.clone();
        let memory = MEMORY.try_with(Arc::clone).ok();
        let done = tokio::task::spawn_blocking(move || {
            let _until_it_ends = (running, of_user, own, memory);
            work(&caller)
        });
        let reply = done.await.unwrap_or_else(|e| {
            tracing::error!("call `{name}`: {e}");
            Err(Refusal::Failed("a fault of the metadata server".into()))
        });
        let reply = match self.shared.may_answer(fence) {
            true => reply,
            false => Err(Refusal::NotNow(Delay::Reopening)),
        };
        self.shared
            .counters
            .call(name, reply.is_err(), begun.elapsed());
        reply
    }

    /// The same within a session. `about`: what the audit log says of a refusal.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        name: &'static str,
        session: SessionId,
        about: About,
        work: impl FnOnce(&Here) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        self.run(name, move |caller| {
            let here = caller.here(session)?;
            work(&here).map_err(|refusal| {
                let refusal = caller.shared.judged(&here, refusal);
                here.0.audit.refused(&here.1, (name, about), &refusal);
                refusal
            })
        })
        .await
    }

    pub(super) fn welcome(&self, version: u32, session: Option<SessionId>) -> Reply<Welcome> {
        if version != VERSION {
            return Err(Refusal::Version {
                server: VERSION,
                client: version,
            });
        }
        let user = self
            .shared
            .users
            .get(&self.serial)
            .ok_or(Refusal::NoSession)?;
        // An administrator has no session, and no call but `administer` goes without one.
        if user.is_admin() {
            let why = format!("{} is an administrator, and gets no session", user.name);
            self.shared.audit.connection_refused(self.peer, &why);
            return Err(Refusal::NoSession);
        }
        let incarnation = self
            .shared
            .incarnation()
            .filter(|incarnation| !incarnation.has_failed())
            .ok_or_else(|| Refusal::Failed("the room is being opened again".into()))?;
        let known = session.and_then(|id| incarnation.sessions.find(id, &self.serial).ok());
        if known.is_none() {
            self.shared.audit.ready()?;
        }
        let session = match known {
            Some(session) => session,
            None => {
                let session = incarnation.sessions.begin(&user, self.serial)?;
                // Removed meanwhile: the end of the user's sessions may have missed this one.
                if self.shared.users.get(&self.serial).is_none() {
                    incarnation.sessions.end_where(|s, _| s.id == session.id);
                    incarnation::end_session_in_time(&incarnation, session);
                    return Err(Refusal::NoSession);
                }
                tracing::info!(user = %user.name, session = session.id.0, "a session begins");
                self.shared.audit.session_begins(&session, self.peer);
                session
            }
        };
        Ok(Welcome {
            session: session.id,
            boot: incarnation.boot,
            lease: u32::try_from(incarnation.sessions.lease().as_secs().max(1)).unwrap_or(u32::MAX),
            user: user.name.clone(),
            uid: user.uid,
            gids: user.gids.clone(),
            disks: incarnation.authority.addresses(),
        })
    }
}
