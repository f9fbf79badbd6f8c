//! The metadata server: a room on network disks, its users' sessions, and the calls they make.
//!
//! 1. Only clients with the key of a user of this room are served; everything a call names is checked again.
//! 2. Connections, calls of one and of all, the length of a message, sessions and what they hold are bounded; who says
//!    nothing, or takes no answer, is cut off.
//! 3. One opening of the room is one `Incarnation` of the server. After a failure of the room's storage the incarnation
//!    ends with all sessions, and the next one begins, automatically.
//!
//! It deliberately does not know command lines, log formats or how metrics are published.

mod administration;
mod attach;
mod audited;
mod beside;
mod caller;
mod calls;
mod changes;
mod config;
mod data;
mod drain;
mod error;
mod files;
mod grace;
mod handles;
mod incarnation;
mod leases;
mod listen;
mod metrics;
mod once;
mod past;
mod paths;
mod reads;
mod refusals;
mod rekey;
mod remote;
mod replies;
mod restore;
mod shared;
mod snapshots;
mod sources;
mod testing;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use metadata_proto::admin::{Ended, Quota, UserRow};
use metadata_proto::rpc::SessionId;
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::audit::event::Admin;
use crate::authority::DiskState;
use crate::enrol::{self, EnrolError, Identity, User};
pub use crate::fence::{Fence, InDirectory, OpenFiles, RoomFiles, Turn};
use administration::LOCAL;
pub use beside::Beside;
pub use config::Config;
pub use error::ServerError;
use error::io;
use incarnation::Incarnation;
pub use metrics::{CallCount, Metrics};
pub use rekey::rekey;
pub use restore::{Restore, RestoreReport};
pub(crate) use shared::Shared;
#[doc(hidden)]
pub use testing::Point;

/// How often a backup looks whether the room is to be closed.
const BACKUP_LOOK: Duration = Duration::from_millis(100);

fn disk_added(disk: &enrol::Disk) -> Admin {
    Admin::DiskAdded {
        name: disk.name.clone(),
        id: disk.address.id.to_string(),
        address: disk.address.address.clone(),
    }
}

/// A room that is being served. Stops when dropped; [`stop`](Self::stop) reports how that went.
#[derive(Debug)]
pub struct MetadataServer {
    shared: Arc<Shared>,
    runtime: Option<tokio::runtime::Runtime>,
    supervisor: Option<std::thread::JoinHandle<()>>,
    closing: CancellationToken,
    address: SocketAddr,
}

impl MetadataServer {
    /// Opens the room and serves it.
    ///
    /// # Errors
    /// `Room` where opening it fails, `Io` where the address cannot be listened on, `Enrol` where disks cannot be added.
    pub fn start(config: Config, credential: room::Credential) -> Result<Self, ServerError> {
        let listen = config.listen;
        let audit = Audit::open(config.audit.as_ref()).map_err(ServerError::Audit)?;
        let shared = Arc::new(Shared::new(config, credential, audit));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(listen::threads())
            .max_blocking_threads(caller::BLOCKING_MAX + 16)
            .thread_name("metadata")
            .enable_all()
            .build()
            .map_err(io("threads of the server"))?;
        // Before the room is opened: an address in use is reported at once.
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(listen))
            .map_err(io(format!("{listen} cannot be listened on")))?;
        let address = listener.local_addr().map_err(io("the server's address"))?;
        let begun = !shared.config.waits;
        if begun {
            shared.begin(Duration::ZERO)?;
        }
        let closing = CancellationToken::new();
        runtime.spawn(listen::accept(listener, shared.clone(), closing.clone()));
        let supervised = shared.clone();
        let supervisor = std::thread::Builder::new()
            .name("supervisor".into())
            .spawn(move || supervised.supervise(begun))
            .map_err(io("threads of the server"))?;
        Ok(Self {
            shared,
            runtime: Some(runtime),
            supervisor: Some(supervisor),
            closing,
            address,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends all sessions, commits, and closes the room.
    ///
    /// # Errors
    /// Where the last commit failed.
    pub fn stop(mut self) -> Result<(), ServerError> {
        self.shut()
    }

    fn shut(&mut self) -> Result<(), ServerError> {
        let Some(runtime) = self.runtime.take() else {
            return Ok(());
        };
        self.closing.cancel();
        {
            // The supervisor waits, or has not looked yet: it looks under this lock.
            let _looking = self.shared.failed.lock();
            self.shared.stopping.store(true, Ordering::SeqCst);
            self.shared.failing.notify_all();
        }
        if let Some(supervisor) = self.supervisor.take()
            && supervisor.join().is_err()
        {
            tracing::error!("the supervisor panicked");
        }
        let ended = self.shared.end();
        runtime.shutdown_timeout(Duration::from_secs(10));
        self.shared.audit.stop();
        ended
    }

    fn incarnation(&self) -> Result<Arc<Incarnation>, ServerError> {
        self.shared.serving()
    }

    /// Whether the room is open and clients are served.
    pub fn is_serving(&self) -> bool {
        self.shared
            .incarnation()
            .is_some_and(|incarnation| !incarnation.has_failed())
    }

    /// Whether it waits for the room, which another server has.
    pub fn is_standing_by(&self) -> bool {
        self.shared.config.waits && self.shared.incarnation().is_none()
    }

    /// Closes the room, for another server to serve it; returns when it is closed. Sessions and open files of clients go on there.
    ///
    /// # Errors
    /// `NoStandby` where this server is not one of several, `NotNow` where it does not serve the room, or calls under way do not end.
    pub fn step_down(&self) -> Result<(), ServerError> {
        if !self.shared.config.waits {
            return Err(ServerError::NoStandby);
        }
        let incarnation = self.incarnation()?;
        let before = self.shared.ended.load(Ordering::SeqCst);
        self.shared.stepping_down.store(true, Ordering::SeqCst);
        self.shared.fail(&incarnation);
        drop(incarnation);
        let until = Instant::now() + shared::DRAIN;
        while self.shared.ended.load(Ordering::SeqCst) == before {
            if Instant::now() > until {
                return Err(ServerError::NotNow);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// What it counts.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.shared)
    }

    /// The disks' states.
    pub fn disks(&self) -> Result<Vec<DiskState>, ServerError> {
        Ok(drain::states(&*self.incarnation()?))
    }

    /// The entries of its audit log, and whether some cannot be written; `None`: it has none.
    pub fn audit(&self) -> Option<(u64, bool)> {
        let log = self.shared.audit.log()?;
        Some((log.entries(), log.is_failing()))
    }

    /// The users and administrators, with what users have.
    pub fn users(&self) -> Result<Vec<UserRow>, ServerError> {
        self.shared.user_rows()
    }

    /// [`enrol::set_quota`], at once in effect. The first quota of a room has all files counted, while clients wait.
    pub fn set_quota(&self, name: &str, quota: Quota) -> Result<(), ServerError> {
        self.shared.set_quota(LOCAL, name, quota)
    }

    /// [`enrol::add_user`], at once in effect.
    pub fn add_user(
        &self,
        name: &str,
        uid: u32,
        gids: &[u32],
    ) -> Result<(User, Identity), ServerError> {
        let added = Admin::UserAdded {
            name: name.to_owned(),
            user_uid: uid,
            user_gids: gids.to_vec(),
        };
        self.enrol(added, |room| enrol::add_user(room, name, uid, gids))
    }

    /// [`enrol::add_admin`], at once in effect.
    pub fn add_admin(&self, name: &str) -> Result<(User, Identity), ServerError> {
        let name_of = name.to_owned();
        self.enrol(Admin::AdministratorAdded { name: name_of }, |room| {
            enrol::add_admin(room, name)
        })
    }

    /// [`enrol::renew_user`], at once in effect.
    pub fn renew_user(
        &self,
        name: &str,
        replaces: Option<[u8; 16]>,
        overlap: Duration,
    ) -> Result<(User, Identity), ServerError> {
        let name_of = name.to_owned();
        self.enrol(Admin::UserRenewed { name: name_of }, |room| {
            enrol::renew_user(room, name, replaces, overlap)
        })
    }

    /// Changes users, at once in effect.
    fn enrol<T>(
        &self,
        what: Admin,
        change: impl FnOnce(&room::Room) -> Result<T, EnrolError>,
    ) -> Result<T, ServerError> {
        let _one = self.shared.enrolling.lock();
        let serving = self.incarnation()?;
        self.shared.recorded(LOCAL, what)?;
        let changed = change(&serving.room);
        self.shared.users_changed(&serving)?;
        Ok(changed?)
    }

    /// [`enrol::lifetimes`].
    pub fn lifetimes(&self) -> Result<Vec<enrol::Lifetime>, ServerError> {
        Ok(enrol::lifetimes(&self.incarnation()?.room)?)
    }

    /// [`enrol::remove_user`], at once in effect: connections are cut, sessions ended, and capabilities revoked before this
    /// returns, or its answer says what goes on.
    pub fn remove_user(&self, name: &str) -> Result<Ended, ServerError> {
        self.shared.remove_user(LOCAL, name)
    }

    /// [`enrol::rotate_authority`], at once in effect.
    pub fn rotate_authority(&self) -> Result<(), ServerError> {
        self.enrol(Admin::AuthorityRotated {}, |room| {
            enrol::rotate_authority(room)?;
            self.shared.tls.renew(room)
        })
    }

    /// [`enrol::finish_rotation`], at once in effect: what clients with the keys that end have is ended as for a removed user.
    pub fn finish_rotation(&self, force: bool) -> Result<(), ServerError> {
        self.enrol(Admin::RotationFinished { forced: force }, |room| {
            enrol::finish_rotation(room, force)?;
            self.shared.tls.renew(room)
        })
    }

    /// [`enrol::add_disk`], at once in effect. One that is being emptied is kept.
    pub fn add_disk(&self, disk: enrol::Disk) -> Result<(), ServerError> {
        self.shared.add_disk(LOCAL, disk)
    }

    /// Removes a disk from the room. `None`: it was empty, and is gone. Or else it takes nothing new from now on, and its data,
    /// so many bytes, is moved to the other disks while clients go on; when it is empty it is forgotten, also by a later
    /// server. [`disks`](Self::disks) reports the progress, [`add_disk`](Self::add_disk) keeps the disk after all.
    ///
    /// # Errors
    /// `NoPlaceElsewhere`, and no change, where the others lack space.
    pub fn remove_disk(&self, name: &str) -> Result<Option<u64>, ServerError> {
        self.shared.remove_disk(LOCAL, name)
    }

    /// Copies the room to `target`, through `storage`, while it is served: a room with its data in its directory.
    /// [`room::Room::backup_through`] has the rest. It is of one commit, and so has what clients had synced. Where the room is to be closed,
    /// `interrupt` is called from another thread: then `storage` and `progress` wait for nothing any more.
    ///
    /// # Errors
    /// `Room`, with kind `Interrupted` where `progress` or the end of the server stopped it.
    pub fn backup(
        &self,
        storage: Arc<dyn storage::Storage>,
        target: &std::path::Path,
        progress: room::Progress<'_>,
        interrupt: &(dyn Fn() + Sync),
    ) -> Result<room::BackupReport, ServerError> {
        let incarnation = self.incarnation()?;
        self.shared.recorded(LOCAL, Admin::Backup {})?;
        let stopping = || {
            self.shared.stopping.load(Ordering::SeqCst)
                || incarnation.has_failed()
                || incarnation.is_stopping()
        };
        let stopping = &stopping;
        std::thread::scope(|scope| {
            let (_goes_on, over) = mpsc::channel::<()>();
            let watch = move || {
                while over.recv_timeout(BACKUP_LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if stopping() {
                        return interrupt();
                    }
                }
            };
            if let Err(e) = std::thread::Builder::new().spawn_scoped(scope, watch) {
                tracing::warn!("the end of the server does not end a backup that waits: {e}");
            }
            Ok(incarnation
                .room
                .backup_through(storage, target, &|done, total| {
                    !stopping() && progress(done, total)
                })?)
        })
    }

    /// Sessions that are alive, with their users' names.
    pub fn sessions(&self) -> Result<Vec<(SessionId, String)>, ServerError> {
        Ok(self
            .incarnation()?
            .sessions
            .alive()
            .iter()
            .map(|s| (s.id, s.user.name.clone()))
            .collect())
    }

    /// Has the storage fail once a change has come to this moment: for tests of what the client then gets.
    #[doc(hidden)]
    pub fn fail_at_for_test(&self, point: Point) {
        self.shared.fault.set(point);
    }

    /// Whether a failure that a test wants is still to come.
    #[doc(hidden)]
    pub fn awaits_failure_for_test(&self) -> bool {
        self.shared.fault.is_set()
    }

    /// As two minutes after a start of the server, if nobody looked at any name since; and so it is after each start from now on. For
    /// tests of numbers that it has seen no name of.
    #[doc(hidden)]
    pub fn forget_names_for_test(&self) {
        self.shared.fault.set_late();
        if let Some(incarnation) = self.shared.incarnation() {
            incarnation.paths.forget_for_test();
        }
    }

    /// Ends the present incarnation as a failed flush of a disk does, with all data that was not durable: for tests of what follows.
    #[doc(hidden)]
    pub fn fail_for_test(&self) {
        if let Some(incarnation) = self.shared.incarnation() {
            incarnation.room.fail_for_test();
            self.shared.fail(&incarnation);
        }
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        if let Err(e) = self.shut() {
            tracing::error!("closing the room: {e}");
        }
    }
}
