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
mod calls;
mod changes;
mod data;
mod drain;
mod files;
mod handles;
mod incarnation;
mod listen;
mod metrics;
mod past;
mod paths;
mod rekey;
mod remote;
mod replies;
mod snapshots;
mod sources;
mod testing;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::admin::{Quota, UserRow};
use metadata_proto::rpc::SessionId;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use crate::audit::event::Admin;
use crate::audit::{self, Audit};
use crate::authority::{DiskState, Timing};
use crate::enrol::{self, EnrolError, Identity, User};
pub use crate::fence::{Fence, InDirectory, OpenFiles, RoomFiles, Turn};
use administration::LOCAL;
pub use beside::Beside;
use incarnation::Incarnation;
use listen::Users;
use metrics::Counters;
pub use metrics::{CallCount, Metrics};
pub use rekey::rekey;
#[doc(hidden)]
pub use testing::Point;

/// How long the calls of an ended incarnation may take to return.
const DRAIN: Duration = Duration::from_secs(60);

/// For how long a server that stepped down leaves the room to the others, before it serves it again if nobody does.
const STEP_DOWN: Duration = Duration::from_secs(5);

/// How a room is served.
#[derive(Debug, Clone)]
pub struct Config {
    /// The room's directory, or the one that represents it on this machine.
    pub room: PathBuf,
    /// Where the room's files are, but for the segments.
    pub files: Arc<dyn RoomFiles>,
    /// Whether the server starts although another one has the room, and opens it later.
    pub waits: bool,
    /// How it is opened; `extent` is set here.
    pub open: room::OpenOptions,
    /// Where to listen; port 0 chooses one.
    pub listen: SocketAddr,
    /// A session ends this long after its last heartbeat.
    pub lease: Duration,
    /// How long capabilities are good, and revocations are waited for.
    pub timing: Timing,
    /// How long a flush of a disk that cannot be reached is tried before the room is closed and opened again.
    pub flush_timeout: Duration,
    /// Most connections of users; more are closed.
    pub connections_max: usize,
    /// Of these, most from one address; an IPv6 network of 64 bits counts as one.
    pub connections_per_address: usize,
    /// Of these, most of one user.
    pub connections_per_user: usize,
    /// Most connections that have not shown a key of a user yet; a further one takes the place of the oldest. A quarter of them
    /// may be from one address.
    pub waiting_max: usize,
    /// Most calls of one connection that run at the same time; more wait.
    pub calls_max: usize,
    /// What protects the messages of all disks, instead of what each was added with.
    pub protection: Option<netdisk::Protection>,
    /// Disks to add before the room is served; those known by the same name and id get a new address.
    pub disks: Vec<enrol::Disk>,
    /// Where the audit log is written; `None`: nowhere.
    pub audit: Option<audit::Settings>,
}

impl Config {
    /// A room with the usual settings, on loopback.
    pub fn new(room: PathBuf) -> Self {
        Self {
            room,
            files: Arc::new(InDirectory),
            waits: false,
            open: room::OpenOptions::default(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            lease: Duration::from_secs(20),
            timing: Timing::default(),
            flush_timeout: Duration::from_secs(60),
            connections_max: 1024,
            connections_per_address: 512,
            connections_per_user: 256,
            waiting_max: 256,
            calls_max: 64,
            protection: None,
            disks: Vec::new(),
            audit: None,
        }
    }
}

impl Config {
    fn as_served(&self, mut disk: enrol::Disk) -> enrol::Disk {
        if let Some(protection) = self.protection {
            disk.address.protection = protection;
        }
        disk
    }
}

/// Why a room cannot be served, or what was asked of its server not be done.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The room.
    #[error("{0}")]
    Room(#[from] room::Error),
    /// Users, disks, certificates.
    #[error("{0}")]
    Enrol(#[from] EnrolError),
    /// The network, threads.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is being opened again after a failure of its storage, or stops.
    #[error("the room is not open just now: try again")]
    NotNow,
    /// It has no other server that would serve the room.
    #[error("the server was started without --standby: no other one can take its place")]
    NoStandby,
    /// The audit log cannot be opened or written.
    #[error("the audit log: {0}")]
    Audit(std::io::Error),
    /// A disk does not answer, and all are needed.
    #[error("disk {0} does not answer: a rekey needs all disks of the room")]
    DiskAway(String),
    /// A disk does not answer, so that clients may still overwrite what a snapshot would see.
    #[error(
        "a disk does not answer, and clients may still write there: no snapshot was created; try again when it is back"
    )]
    StillWritable,
    /// The other disks have no space for the data of a disk that is to go.
    #[error(
        "disk {disk} holds {needed} bytes of data, and the other disks have space for {available}: add a disk, or delete files, and remove it then"
    )]
    NoPlaceElsewhere {
        /// The disk.
        disk: String,
        /// Bytes of file data on it.
        needed: u64,
        /// Bytes that fit on the others.
        available: u64,
    },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ServerError {
    let what = what.into();
    move |source| ServerError::Io { what, source }
}

fn disk_added(disk: &enrol::Disk) -> Admin {
    Admin::DiskAdded {
        name: disk.name.clone(),
        id: disk.address.id.to_string(),
        address: disk.address.address.clone(),
    }
}

/// What all connections and threads share.
pub(crate) struct Shared {
    config: Config,
    credential: room::Credential,
    /// `None`: between two lives, or stopped.
    incarnation: RwLock<Option<Arc<Incarnation>>>,
    users: Users,
    tls: listen::Tls,
    counters: Counters,
    stopping: AtomicBool,
    /// The next incarnation is to be another server's.
    stepping_down: AtomicBool,
    /// Incarnations that have ended.
    ended: AtomicU64,
    /// Whether the present incarnation has failed, and the threads that wait for that.
    failed: Mutex<bool>,
    failing: Condvar,
    /// What tests have fail.
    fault: Arc<testing::Fault>,
    /// Held while users or disks change.
    enrolling: Mutex<()>,
    /// Held while snapshots change.
    snapshotting: Mutex<()>,
    audit: Audit,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn incarnation(&self) -> Option<Arc<Incarnation>> {
        self.incarnation.read().clone()
    }

    /// What shows that the present incarnation is the only server of the room.
    fn fence(&self) -> Option<Arc<dyn Fence>> {
        self.incarnation()
            .map(|incarnation| incarnation.fence.clone())
    }

    /// Whether what was found out since there was this fence may be answered: no other server can have the room.
    fn may_answer(&self, fence: Option<Arc<dyn Fence>>) -> bool {
        fence.map_or(!self.config.waits, |fence| fence.holds())
    }

    /// The room's storage failed: this incarnation is to be ended.
    fn fail(&self, incarnation: &Incarnation) {
        if incarnation.fail() {
            *self.failed.lock() = true;
            self.failing.notify_all();
        }
    }

    /// Opens the room, and lets clients in.
    fn begin(self: &Arc<Self>, yields: Duration) -> Result<(), ServerError> {
        let stops = || self.stopping.load(Ordering::SeqCst);
        let turn = Turn {
            stops: &stops,
            yields,
        };
        let incarnation = Incarnation::begin(
            &self.config,
            &self.credential,
            &self.fault,
            &self.audit,
            &turn,
        )?;
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
        let incarnation = Arc::new(incarnation);
        incarnation::tend(&incarnation, self)?;
        *self.incarnation.write() = Some(incarnation);
        Ok(())
    }

    /// Ends the present incarnation. `Err` where its calls do not return.
    fn end(&self) -> Result<(), ServerError> {
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
    fn supervise(self: &Arc<Self>, mut begun: bool) {
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
        let shared = Arc::new(Shared {
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
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(listen::threads())
            .max_blocking_threads(calls::BLOCKING_MAX + 16)
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
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.failing.notify_all();
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
        let until = Instant::now() + DRAIN;
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
        let changed = change(&serving.room)?;
        self.shared.users.set(&enrol::everybody(&serving.room)?);
        Ok(changed)
    }

    /// [`enrol::lifetimes`].
    pub fn lifetimes(&self) -> Result<Vec<enrol::Lifetime>, ServerError> {
        Ok(enrol::lifetimes(&self.incarnation()?.room)?)
    }

    /// [`enrol::remove_user`], at once in effect: connections are cut, sessions ended, and capabilities revoked before this
    /// returns. `Ok(false)`: a disk cannot be reached, and the revocation goes on.
    pub fn remove_user(&self, name: &str) -> Result<bool, ServerError> {
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
        let ended = self.enrol(Admin::RotationFinished { forced: force }, |room| {
            let ended = enrol::finish_rotation(room, force)?;
            self.shared.tls.renew(room)?;
            Ok(ended)
        })?;
        let serving = self.incarnation()?;
        self.shared.end_keys(&serving, &ended);
        Ok(())
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
    /// [`room::Room::backup_through`] has the rest. It is of one commit, and so has what clients had synced.
    ///
    /// # Errors
    /// `Room`, with kind `Interrupted` where `progress` or the end of the server stopped it.
    pub fn backup(
        &self,
        storage: Arc<dyn storage::Storage>,
        target: &std::path::Path,
        progress: room::Progress<'_>,
    ) -> Result<room::BackupReport, ServerError> {
        let incarnation = self.incarnation()?;
        self.shared.recorded(LOCAL, Admin::Backup {})?;
        let stopping = || self.shared.stopping.load(Ordering::SeqCst) || incarnation.has_failed();
        Ok(incarnation
            .room
            .backup_through(storage, target, &|done, total| {
                !stopping() && progress(done, total)
            })?)
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
