//! One opening of the room, with everything that ends with it: sessions, locks, grants, capabilities.
//!
//! 1. Every disk that can be reached has a fresh group before the first client is served.
//! 2. When a session ends, its capabilities are revoked on the disks first; then nobody can claim its locks any more; then its
//!    grants are settled, its files closed and its locks freed.
//!
//! It deliberately does not know connections.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::admin::Ended;
use parking_lot::{Condvar, Mutex, RwLock};
use room::{FileSystem as _, OpenOptions, Room};

use super::attach::attach;
use super::drain::{self, Obstacles};
use super::grace::Grace;
use super::handles::Handles;
use super::leases::Leases;
use super::paths::Paths;
use super::replies::Replies;
use super::sources::Sources;
use super::testing::{Fault, Point};
use super::{Config, ServerError, Shared, io};
use crate::audit::Audit;
use crate::authority::Authority;
use crate::enrol;
use crate::fence::{Fence, RoomFiles, Turn};
use crate::locks::Locks;
use crate::placement::NetStorage;
use crate::sessions::{Session, Sessions};

/// Between two looks for sessions whose lease is over.
const SESSIONS_LOOK: Duration = Duration::from_millis(250);
/// For how long files without a name, which clients had open in an earlier incarnation, are kept for them to come back.
const UNNAMED_KEPT: Duration = Duration::from_secs(120);
/// Between two looks for clients whose answers are not kept any more.
const REPLIES_LOOK: Duration = Duration::from_secs(60);
/// The interval at which space is freed.
const SPACE_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Incarnation {
    /// Its number, random.
    pub(crate) boot: u64,
    pub(crate) room: Room,
    pub(crate) storage: NetStorage,
    pub(crate) authority: Arc<Authority>,
    pub(crate) sessions: Sessions,
    pub(crate) locks: Locks,
    pub(super) grace: Grace,
    pub(crate) handles: Handles,
    pub(super) paths: Paths,
    pub(super) leases: Leases,
    /// Held shared by what relies on rights and names, exclusively by what changes them: what was checked is still so when
    /// it is done.
    pub(crate) rights: RwLock<()>,
    /// Counts grants, to choose among open segments.
    pub(crate) next_lane: AtomicUsize,
    pub(super) obstacles: Obstacles,
    /// Held while it is decided whether a disk goes or stays.
    pub(super) emptying: Mutex<()>,
    pub(super) replies: Replies,
    pub(super) sources: Sources,
    pub(super) audit: Audit,
    pub(super) fence: Arc<dyn Fence>,
    fault: Arc<Fault>,
    failed: AtomicBool,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl Incarnation {
    pub(super) fn begin(
        config: &Config,
        credential: &room::Credential,
        fault: &Arc<Fault>,
        audit: &Audit,
        turn: &Turn<'_>,
    ) -> Result<Self, ServerError> {
        let options = OpenOptions {
            keep_unnamed: true,
            ..config.open.clone()
        };
        let (room, storage, fence) = open(
            (&*config.files, turn),
            &config.room,
            credential,
            options,
            config.flush_timeout,
        )?;
        for disk in &config.disks {
            enrol::add_disk(&room, disk.clone())?;
        }
        enrol::enforce_quotas(&room)?;
        let handles = Handles::of(&room)?;
        let replies = Replies::of(&room)?;
        let grace = Grace::of(&room, config.lease)?;
        let disks = enrol::disks(&room)?.into_iter();
        let disks = disks.map(|disk| config.as_served(disk)).collect();
        let mut boot = [0; 8];
        getrandom::fill(&mut boot)
            .map_err(|e| io("random numbers")(std::io::Error::other(e.to_string())))?;
        let authority = attach(&room, &storage, &fence, disks, config.timing)?;
        super::rekey::finish(&room, credential).inspect_err(|_| authority.stop())?;
        Ok(Self {
            boot: u64::from_le_bytes(boot),
            room,
            storage,
            authority,
            sessions: Sessions::new(config.lease),
            locks: Locks::default(),
            grace,
            handles,
            paths: Paths::new(fault.is_late()),
            leases: Leases::new(),
            rights: RwLock::new(()),
            next_lane: AtomicUsize::new(0),
            obstacles: Obstacles::default(),
            emptying: Mutex::new(()),
            replies,
            sources: Sources::default(),
            audit: audit.clone(),
            fence,
            fault: fault.clone(),
            failed: AtomicBool::new(false),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        })
    }

    /// Notes that the storage failed; true for the first who says so.
    pub(super) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::SeqCst)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Fails as a disk's flush would, where a test wants that at this moment of a change.
    pub(super) fn fails_at(&self, point: Point) -> bool {
        let comes = self.fault.comes(point);
        if comes {
            self.room.fail_for_test();
        }
        comes
    }

    /// Makes all work for this incarnation end soon.
    pub(super) fn stop(&self) {
        *self.stopping.lock() = true;
        self.stopped.notify_all();
        for session in self.sessions.end_where(|_, _| true) {
            self.audit.session_ends(&session, "server-stops");
        }
        self.storage.hurry();
        // Now, and not when nobody has it any more: one who keeps it would have its disks taken from the next one.
        self.authority.stop();
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stopping.lock()
    }

    pub(super) fn pause(&self, pause: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, pause);
        }
        !*stopping
    }

    /// Commits, closes the room, and takes every capability back where the disk can be reached.
    pub(super) fn close(self) -> room::Result<()> {
        let Self {
            room,
            authority,
            fence,
            ..
        } = self;
        authority.stop();
        let closed = room.close();
        if !fence.is_lost() {
            authority.withdraw();
        }
        closed
    }
}

/// Opens a room on network disks, with its storage; no disk is attached yet.
pub(super) fn open(
    (files, turn): (&dyn RoomFiles, &Turn<'_>),
    dir: &Path,
    credential: &room::Credential,
    options: OpenOptions,
    flush_timeout: Duration,
) -> Result<(Room, NetStorage, Arc<dyn Fence>), ServerError> {
    let dir = dir.canonicalize().map_err(io(dir.display().to_string()))?;
    let opened = files
        .open(&dir, turn)
        .map_err(io(dir.display().to_string()))?;
    let storage =
        NetStorage::open(opened.storage, flush_timeout).map_err(io("the placement of segments"))?;
    let options = OpenOptions {
        network_backed: true,
        state_dir: options.state_dir.clone().or_else(room::default_state_dir),
        ..options
    };
    if options.state_dir.is_none() {
        tracing::warn!(
            "{}: a rollback of this room will not be noticed, because there is no place to remember it: set HOME, XDG_STATE_HOME, \
             STRONGROOM_STATE_DIR or a state directory",
            dir.display()
        );
    }
    let room = Room::open_on(Arc::new(storage.clone()), credential, options)?;
    Ok((room, storage, opened.fence))
}

/// Releases what an ended session held. Where a disk could not be reached before `deadline`, or the room not be changed, the
/// session keeps its locks and files until its capabilities are revoked or have expired, and nobody can claim its locks.
pub(super) fn end_session(
    incarnation: &Incarnation,
    session: &Session,
    deadline: Instant,
) -> Ended {
    if incarnation
        .authority
        .revoke_session(session.id, deadline)
        .is_err()
    {
        return Ended::ButOnDisks;
    }
    incarnation.fails_at(Point::Ending);
    if let Err(e) = incarnation.grace.leave(&incarnation.room, session.id) {
        tracing::warn!("the locks of a session that is over are kept: {e}");
        return Ended::ButInRoom;
    }
    let (opens, grants) = session.take_held();
    for grant in grants.keys() {
        incarnation.room.settle_grant(*grant);
    }
    for (no, count) in opens {
        incarnation.room.release(no, count);
    }
    incarnation.sessions.forget(session.id);
    // Last: a lock that was taken meanwhile is freed by whom takes it, where the session was forgotten before that.
    incarnation.locks.end(session.id);
    Ended::All
}

/// The same in the background, however long it takes.
pub(super) fn end_session_in_time(incarnation: &Arc<Incarnation>, session: Arc<Session>) {
    let ending = incarnation.clone();
    let thread = std::thread::Builder::new()
        .name("session end".into())
        .spawn(move || {
            let second = Duration::from_secs(1);
            while end_session(&ending, &session, Instant::now() + second) != Ended::All {
                if !ending.pause(second) {
                    return;
                }
            }
        });
    if let Err(e) = thread {
        tracing::error!("no thread to end a session: {e}");
    }
}

/// Starts the background work of an incarnation, which goes on until it is stopped.
pub(super) fn tend(
    incarnation: &Arc<Incarnation>,
    shared: &Arc<Shared>,
) -> Result<(), ServerError> {
    let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.into())
            .spawn(run)
            .map(drop)
            .map_err(io("threads of the server"))
    };
    let (tended, with) = (incarnation.clone(), shared.clone());
    start(
        "sessions",
        Box::new(move || {
            while tended.pause(SESSIONS_LOOK) {
                if tended.fence.is_lost() {
                    with.fail(&tended);
                }
                if let Err(e) = tended.grace.tend(&tended.room) {
                    tracing::error!("the end of the time to claim locks: {e}");
                }
                let now = Instant::now();
                with.users.cut_ended();
                let over = |session: &Session, deadline| {
                    deadline <= now || with.users.has_ended(&session.serial)
                };
                for session in tended.sessions.end_where(over) {
                    tracing::info!(user = %session.user.name, session = session.id.0, "a lease is over, or the key has ended");
                    let why = match with.users.has_ended(&session.serial) {
                        true => "key-ended",
                        false => "lease-over",
                    };
                    tended.audit.session_ends(&session, why);
                    end_session_in_time(&tended, session);
                }
            }
        }),
    )?;
    let (tended, with) = (incarnation.clone(), shared.clone());
    start(
        "replies",
        Box::new(move || {
            while tended.pause(REPLIES_LOOK) {
                if let Err(e) = with.tls.tend(&tended.room) {
                    tracing::error!("the server's certificate: {e}");
                }
                let alive = tended.sessions.alive();
                let connected = alive.iter().filter_map(|s| s.client()).collect();
                tended.replies.tend(&tended.room, &connected);
            }
        }),
    )?;
    let (tended, left) = (incarnation.clone(), incarnation.room.held_without_name());
    start(
        "unnamed",
        Box::new(move || {
            let until = Instant::now() + UNNAMED_KEPT;
            while Instant::now() < until {
                if !tended.pause(SPACE_LOOK) {
                    return;
                }
            }
            for no in left {
                tended.room.release(no, 1);
            }
        }),
    )?;
    let tended = incarnation.clone();
    start("drain", Box::new(move || drain::run(&tended)))?;
    let (tended, shared) = (incarnation.clone(), shared.clone());
    start(
        "space",
        Box::new(move || {
            while tended.pause(SPACE_LOOK) {
                if let Err(e) = tended.authority.refill(&tended.room) {
                    tracing::error!("numbers of capability groups: {e}");
                    if matches!(e, room::Error::Poisoned) {
                        shared.fail(&tended);
                    }
                }
                tended.storage.release();
            }
        }),
    )
}
