//! What all connections and threads of a server share: the present incarnation of the server, its end, and the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use super::incarnation::{self, Incarnation};
use super::listen::{self, Users};
use super::metrics::Counters;
use super::{Config, ServerError, testing};
use crate::audit::{self, Audit};
use crate::enrol;
use crate::fence::{Fence, Turn};

/// How long the calls of an ended incarnation may take to return.
pub(super) const DRAIN: Duration = Duration::from_secs(60);

/// For how long a server that stepped down leaves the room to the others, before it serves it again if nobody does.
const STEP_DOWN: Duration = Duration::from_secs(5);

/// What all connections and threads share.
pub(crate) struct Shared {
    pub(super) config: Config,
    pub(super) credential: room::Credential,
    /// `None`: between two lives, or stopped.
    pub(super) incarnation: RwLock<Option<Arc<Incarnation>>>,
    pub(super) users: Users,
    pub(super) tls: listen::Tls,
    pub(super) counters: Counters,
    pub(super) stopping: AtomicBool,
    /// The next incarnation is to be another server's.
    pub(super) stepping_down: AtomicBool,
    /// Incarnations that have ended.
    pub(super) ended: AtomicU64,
    /// Whether the present incarnation has failed, and the threads that wait for that.
    pub(super) failed: Mutex<bool>,
    pub(super) failing: Condvar,
    /// What tests have fail.
    pub(super) fault: Arc<testing::Fault>,
    /// Held while users or disks change.
    pub(super) enrolling: Mutex<()>,
    /// Held while snapshots change.
    pub(super) snapshotting: Mutex<()>,
    pub(super) audit: Audit,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(config: Config, credential: room::Credential, audit: Audit) -> Self {
        Self {
            config,
            credential,
            incarnation: RwLock::new(None),
            users: Users::default(),
            tls: listen::Tls::default(),
            counters: Counters::default(),
            stopping: AtomicBool::new(false),
            stepping_down: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            failed: Mutex::new(false),
            failing: Condvar::new(),
            fault: Arc::default(),
            enrolling: Mutex::new(()),
            snapshotting: Mutex::new(()),
            audit,
        }
    }

    pub(super) fn incarnation(&self) -> Option<Arc<Incarnation>> {
        self.incarnation.read().clone()
    }

    /// What shows that the present incarnation is the only server of the room.
    pub(super) fn fence(&self) -> Option<Arc<dyn Fence>> {
        self.incarnation()
            .map(|incarnation| incarnation.fence.clone())
    }

    /// Whether what was found out since there was this fence may be answered: no other server can have the room.
    pub(super) fn may_answer(&self, fence: Option<Arc<dyn Fence>>) -> bool {
        fence.map_or(!self.config.waits, |fence| fence.holds())
    }

    /// The room's storage failed: this incarnation is to be ended.
    pub(super) fn fail(&self, incarnation: &Incarnation) {
        if incarnation.fail() {
            *self.failed.lock() = true;
            self.failing.notify_all();
        }
    }

    /// Opens the room, and lets clients in.
    pub(super) fn begin(self: &Arc<Self>, yields: Duration) -> Result<(), ServerError> {
        let stops = || self.stopping.load(Ordering::SeqCst);
        let turn = Turn {
            stops: &stops,
            yields,
        };
        let incarnation = Arc::new(Incarnation::begin(
            &self.config,
            &self.credential,
            &self.fault,
            &self.audit,
            &turn,
        )?);
        self.serve(&incarnation)
            .inspect_err(|_| incarnation.stop())?;
        *self.incarnation.write() = Some(incarnation);
        Ok(())
    }

    fn serve(self: &Arc<Self>, incarnation: &Arc<Incarnation>) -> Result<(), ServerError> {
        if self.audit.log().is_some() {
            audit::take(&incarnation.room, |entries, forgotten| {
                if forgotten > 0 {
                    tracing::warn!(
                        forgotten,
                        "changes made while no server ran are not in the audit log"
                    );
                }
                let mut entries = entries.into_iter();
                let recorded = entries.try_for_each(|entry| self.audit.administered_at(entry));
                recorded.map_err(ServerError::Audit)
            })?;
        }
        let users = enrol::everybody(&incarnation.room)?;
        self.users.set(&users);
        self.tls.tend(&incarnation.room)?;
        for lifetime in enrol::lifetimes(&incarnation.room)? {
            if lifetime.is_due() {
                tracing::warn!(end = lifetime.end, "{} is to be renewed", lifetime.of);
            }
        }
        incarnation::tend(incarnation, self)
    }

    /// Ends the present incarnation. `Err` where its calls do not return.
    pub(super) fn end(&self) -> Result<(), ServerError> {
        let Some(mut incarnation) = self.incarnation.write().take() else {
            return Ok(());
        };
        incarnation.stop();
        if self.config.waits {
            self.users.cut_all();
        }
        let deadline = Instant::now() + DRAIN;
        let incarnation = loop {
            match Arc::try_unwrap(incarnation) {
                Ok(incarnation) => break incarnation,
                Err(shared) => incarnation = shared,
            }
            if Instant::now() > deadline {
                return Err(ServerError::Room(room::Error::Poisoned));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ok(incarnation.close()?)
    }

    /// Waits for failures of an incarnation, and begins the next one. `begun`: there is one.
    pub(super) fn supervise(self: &Arc<Self>, mut begun: bool) {
        loop {
            if begun {
                let mut failed = self.failed.lock();
                while !*failed && !self.stopping.load(Ordering::SeqCst) {
                    self.failing.wait(&mut failed);
                }
                *failed = false;
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let steps_down = self.stepping_down.swap(false, Ordering::SeqCst);
            if steps_down {
                tracing::info!("the room is closed for another server");
            } else if begun {
                self.counters.reopened();
                tracing::error!(
                    "the room's storage failed, or another server has the room; all sessions end, and the room is opened again"
                );
            }
            if let Err(e) = self.end() {
                // A failed incarnation cannot commit; what matters is that it closed the room.
                tracing::warn!("closing the room: {e}");
            }
            self.ended.fetch_add(1, Ordering::SeqCst);
            tracing::info!("the room is closed");
            let yields = match steps_down {
                true => STEP_DOWN,
                false => Duration::ZERO,
            };
            let mut pause = Duration::from_millis(100);
            while !self.stopping.load(Ordering::SeqCst) {
                match self.begin(yields) {
                    Ok(()) => {
                        tracing::info!("the room is open");
                        begun = true;
                        break;
                    }
                    Err(_) if self.stopping.load(Ordering::SeqCst) => return,
                    Err(e) => tracing::error!("the room cannot be opened: {e}"),
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(10));
            }
        }
    }
}
