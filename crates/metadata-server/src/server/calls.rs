//! The calls as they come in: who asks, for which session, and where the work is done.
//!
//! 1. A call is done by threads that may wait for disks; those that only look at memory too, so that no connection waits for
//!    another's. At most [`BLOCKING_MAX`] run at once, and of one connection no more than the configuration allows.
//! 2. A change goes on to its end, and its answer is remembered, also where nobody waits for it any more.
//! 3. What fails because the storage failed is never an answer: the client is asked to come back.
//! 4. Nothing is answered while another server may have the room already: also not what was only read.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use catalog::CatalogError;
use metadata_proto::admin;
use metadata_proto::rpc::{
    Change, Changed, ClientId, Committed, Delay, Granted, Heartbeat, Listing, Map, Metadata, Past,
    PastAnswer, Posix, Recalled, Refusal, Reply, SessionId, VERSION, Welcome, Written,
};
use room::{
    Access, FileSystem as _, Inode, InodeNo, Lock, LockOwner, LockTable, RoomSpace, Snapshot,
    Snapshots as _, WriteGrantId,
};
use tarpc::context::Context;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::changes::Losses;
use super::incarnation::{self, Incarnation};
use super::remote;
use super::replies::{Asked, Client, Outcome, client_key};
use super::testing::Point;
use crate::audit::About;
use crate::locks::{Denied, Holder};
use crate::sessions::Session;

/// Most calls that run at once, over all connections.
pub(super) const BLOCKING_MAX: usize = 256;
/// Longest wait for a lock in one call.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for a change that an earlier call began.
const CHANGE_WAIT: Duration = Duration::from_secs(120);

static RUNNING: Semaphore = Semaphore::const_new(BLOCKING_MAX);

/// One connection's calls.
#[derive(Clone)]
pub(super) struct Caller {
    shared: Arc<Shared>,
    serial: [u8; 16],
    peer: SocketAddr,
    cut: CancellationToken,
    own: Arc<Semaphore>,
}

/// What a call works with.
pub(super) type Here = (Arc<Incarnation>, Arc<Session>);

/// What the room's error is to a client. Details that only the log may have become a plain failure.
pub(super) fn refusal(error: room::Error) -> Refusal {
    use room::Error as E;
    Refusal::Posix(match error {
        E::Poisoned => return waits_for_room(&error),
        E::Catalog(_) if matches!(CatalogError::of(&error), Some(CatalogError::Io(_))) => {
            return waits_for_room(&error);
        }
        E::Io(e) if e.kind() == std::io::ErrorKind::NotConnected => {
            tracing::warn!("a call waits for a disk: {e}");
            return Refusal::NotNow(Delay::Disk);
        }
        E::NotFound => Posix::NotFound,
        E::Exists => Posix::Exists,
        E::NotDirectory => Posix::NotDirectory,
        E::IsDirectory => Posix::IsDirectory,
        E::NotEmpty => Posix::NotEmpty,
        E::NameTooLong => Posix::NameTooLong,
        E::TooManyLinks => Posix::TooManyLinks,
        E::FileTooLarge => Posix::FileTooLarge,
        E::InvalidArgument(_) => Posix::InvalidArgument,
        E::NotPermitted(_) => Posix::NotPermitted,
        E::AccessDenied => Posix::AccessDenied,
        E::NoXattr => Posix::NoXattr,
        E::XattrTooLarge => Posix::XattrTooLarge,
        E::NotSupported(_) => Posix::NotSupported,
        E::NoMoreData => Posix::NoMoreData,
        E::TooManySymlinks => Posix::TooManySymlinks,
        E::ReadOnly => Posix::ReadOnly,
        E::NoSpace => Posix::NoSpace,
        E::QuotaExceeded => Posix::QuotaExceeded,
        E::WouldBlock => Posix::WouldBlock,
        E::Deadlock => Posix::Deadlock,
        E::Stale => Posix::Stale,
        other => {
            tracing::error!("a call failed: {other}");
            Posix::Io
        }
    })
}

fn waits_for_room(error: &room::Error) -> Refusal {
    tracing::warn!("a call waits for the room to be opened again: {error}");
    Refusal::NotNow(Delay::Reopening)
}

impl Caller {
    pub(super) fn new(
        shared: Arc<Shared>,
        serial: [u8; 16],
        peer: SocketAddr,
        cut: CancellationToken,
    ) -> Self {
        let own = Arc::new(Semaphore::new(shared.config.calls_max));
        Self {
            shared,
            serial,
            peer,
            cut,
            own,
        }
    }

    fn here(&self, session: SessionId) -> Reply<Here> {
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
    async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Self) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let begun = Instant::now();
        let (Ok(_own), Ok(running)) = (self.own.acquire().await, RUNNING.acquire().await) else {
            return Err(Refusal::Failed("the server stops".into()));
        };
        let fence = self.shared.fence();
        let caller = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _running = running;
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
    async fn within<T: Send + 'static>(
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

    /// Runs what a client's slot is asked for, until it is neither under way nor waiting for the one before.
    async fn once<T: Send + 'static>(
        &self,
        (name, about): (&'static str, About),
        session: SessionId,
        work: impl Fn(&Here, &Client) -> Reply<Option<T>> + Send + Sync + 'static,
    ) -> Reply<T> {
        let until = tokio::time::Instant::now() + CHANGE_WAIT;
        let work = Arc::new(work);
        loop {
            let (incarnation, asked) = self.here(session)?;
            let key = asked
                .client()
                .ok_or(Refusal::Posix(Posix::InvalidArgument))?;
            let replies = &incarnation.replies;
            let client = match replies.attached(&key) {
                Some(client) => client,
                // The other connections of this thread go on meanwhile: it may be the only one.
                None => tokio::task::block_in_place(|| replies.attach(&incarnation.room, key))
                    .map_err(refusal)?,
            };
            drop((incarnation, asked));
            let answered = client.answered().notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            let (work, asked) = (work.clone(), client.clone());
            // Asked and begun by one thread, so that nothing that is begun is left.
            let reply = self
                .within(name, session, about, move |here| work(here, &asked))
                .await?;
            match reply {
                Some(done) => return Ok(done),
                None if tokio::time::timeout_at(until, answered).await.is_err() => {
                    return Err(Refusal::NotNow(Delay::UnderWay));
                }
                None => {}
            }
        }
    }

    fn welcome(&self, version: u32, session: Option<SessionId>) -> Reply<Welcome> {
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

fn clock() -> (u64, u32) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (now.as_secs(), now.subsec_nanos())
}

impl Metadata for Caller {
    async fn hello(self, _: Context, version: u32, session: Option<SessionId>) -> Reply<Welcome> {
        self.run("hello", move |caller| caller.welcome(version, session))
            .await
    }

    async fn administer(
        self,
        _: Context,
        version: u32,
        request: admin::Request,
    ) -> Reply<admin::Answer> {
        self.run("administer", move |caller| {
            if caller.cut.is_cancelled() {
                return Err(Refusal::NoSession);
            }
            remote::asked(
                &caller.shared,
                &caller.serial,
                caller.peer,
                version,
                request,
            )
        })
        .await
    }

    async fn beat(self, _: Context, session: SessionId) -> Reply<Heartbeat> {
        // Not behind calls that wait for disks: a heartbeat that comes too late ends a session.
        let (incarnation, _) = self.here(session)?;
        self.shared.counters.call("beat", false, Duration::ZERO);
        if !incarnation.fence.holds() {
            return Err(Refusal::NotNow(Delay::Reopening));
        }
        Ok(Heartbeat {
            settled: incarnation.room.settled(),
            clock: clock(),
        })
    }

    async fn bye(self, _: Context, session: SessionId) -> Reply<()> {
        self.within("bye", session, About::default(), |(incarnation, session)| {
            let ended = incarnation.sessions.end_where(|s, _| s.id == session.id);
            for session in ended {
                tracing::info!(user = %session.user.name, session = session.id.0, "a session ends");
                incarnation.audit.session_ends(&session, "goodbye");
                if let Some(key) = session.client() {
                    incarnation.replies.forget(&incarnation.room, &key);
                }
                if !incarnation::end_session(
                    incarnation,
                    &session,
                    Instant::now() + Duration::from_secs(5),
                ) {
                    incarnation::end_session_in_time(incarnation, session);
                }
            }
            Ok(())
        })
        .await
    }

    async fn lookup(
        self,
        _: Context,
        session: SessionId,
        parent: InodeNo,
        name: Vec<u8>,
    ) -> Reply<Inode> {
        self.within("lookup", session, About::of(parent), move |here| {
            let handles = &here.0.handles;
            let found = super::files::lookup(here, handles.room_number(parent), &name)?;
            Ok(handles.inode(found))
        })
        .await
    }

    async fn attributes(self, _: Context, session: SessionId, no: InodeNo) -> Reply<Inode> {
        self.within(
            "attributes",
            session,
            About::of(no),
            move |(server, session)| {
                let _rights = server.rights.read();
                let no = server.handles.room_number(no);
                let found = server.reach(session, no).map_err(refusal)?;
                Ok(server.handles.inode(found.inode))
            },
        )
        .await
    }

    async fn read_dir(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        after: u64,
        limit: u32,
    ) -> Reply<Listing> {
        self.within("read_dir", session, About::of(no), move |here| {
            super::files::read_dir(here, here.0.handles.room_number(no), after, limit)
        })
        .await
    }

    async fn xattr(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        name: Vec<u8>,
    ) -> Reply<Vec<u8>> {
        self.within("xattr", session, About::of(no), move |here| {
            super::files::xattr(here, here.0.handles.room_number(no), &name)
        })
        .await
    }

    async fn xattr_names(self, _: Context, session: SessionId, no: InodeNo) -> Reply<Vec<Vec<u8>>> {
        self.within(
            "xattr_names",
            session,
            About::of(no),
            move |(server, session)| {
                let _rights = server.rights.read();
                let no = server.handles.room_number(no);
                server.reach(session, no).map_err(refusal)?;
                let mut names = server.room.xattr_names(no).map_err(refusal)?;
                names.retain(|name| session.subject.sees_xattr(name));
                Ok(names)
            },
        )
        .await
    }

    async fn space(self, _: Context, session: SessionId) -> Reply<RoomSpace> {
        self.within("space", session, About::default(), |here| {
            super::files::space(here).map_err(refusal)
        })
        .await
    }

    async fn attach(self, _: Context, session: SessionId, client: ClientId) -> Reply<()> {
        self.within(
            "attach",
            session,
            About::default(),
            move |(incarnation, session)| {
                let key = client_key(&session.serial, client);
                session.set_client(key)?;
                incarnation
                    .replies
                    .attach(&incarnation.room, key)
                    .map(drop)
                    .map_err(refusal)
            },
        )
        .await
    }

    async fn change(
        self,
        _: Context,
        session: SessionId,
        slot: u32,
        sequence: u64,
        change: Change,
    ) -> Reply<Changed> {
        let about = About::change(&change);
        self.once(("change", about), session, move |here, client| {
            let (incarnation, _) = here;
            incarnation.audit.ready_for(&change)?;
            let answered = match client.ask(slot, sequence)? {
                Asked::UnderWay => return Ok(None),
                Asked::Answered(answer) if is_lost(here, &change, &answer) => {
                    client.forget(slot, sequence);
                    Err(Refusal::NotNow(Delay::UnderWay))
                }
                Asked::New => {
                    let id = client.operation(slot, sequence);
                    let change = incarnation.handles.change(change.clone());
                    let made = AssertUnwindSafe(|| super::changes::make(here, &id, change));
                    let outcome = catch_unwind(made).unwrap_or_else(|_| {
                        let why = Refusal::Failed("a fault of the metadata server".into());
                        Outcome::Answered(Err(why))
                    });
                    let answer = match &outcome {
                        Outcome::Answered(answer) => answer.clone(),
                        Outcome::Revoking(..) => Err(Refusal::NotNow(Delay::Disk)),
                        Outcome::Void => Err(Refusal::NotNow(Delay::Reopening)),
                    };
                    client.answer(slot, sequence, outcome);
                    if incarnation.fails_at(Point::Answered) {
                        return Err(Refusal::NotNow(Delay::Reopening));
                    }
                    answer
                }
                done => {
                    let settled = super::changes::is_settled(incarnation, &change);
                    first_answer(here, client, (slot, sequence), done, settled)
                }
            };
            answered.map(|changed| Some(incarnation.handles.changed(changed)))
        })
        .await
    }

    async fn recall(
        self,
        _: Context,
        session: SessionId,
        slot: u32,
        sequence: u64,
    ) -> Reply<Recalled> {
        self.once(
            ("recall", About::default()),
            session,
            move |here, client| {
                let answered = match client.recall(slot, sequence)? {
                    None => return Ok(Some(Recalled::NotDone)),
                    Some(Asked::New | Asked::UnderWay) => return Ok(None),
                    Some(done) => {
                        let settled = here.0.authority.is_ready();
                        first_answer(here, client, (slot, sequence), done, settled)
                    }
                };
                answered.map(|changed| Some(Recalled::Done(here.0.handles.changed(changed))))
            },
        )
        .await
    }

    async fn open(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        access: Access,
    ) -> Reply<Inode> {
        self.within("open", session, About::of(no), move |here| {
            let handles = &here.0.handles;
            here.0.audit.ready()?;
            let opened = super::files::open(here, handles.room_number(no), access)?;
            here.0.audit.opened(&here.1, no, access);
            Ok(handles.inode(opened))
        })
        .await
    }

    async fn close(self, _: Context, session: SessionId, closed: Vec<(InodeNo, u64)>) -> Reply<()> {
        let about = About::default();
        self.within("close", session, about, move |(incarnation, session)| {
            for (no, count) in closed {
                let no = incarnation.handles.room_number(no);
                let (closed, last) = session.close(no, count)?;
                if last {
                    incarnation.locks.closed(session.id, no);
                }
                if closed > 0 {
                    incarnation.room.release(no, closed);
                }
            }
            Ok(())
        })
        .await
    }

    async fn map(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        first: u64,
        count: u32,
    ) -> Reply<Map> {
        self.within("map", session, About::of(no), move |here| {
            let handles = &here.0.handles;
            here.0.audit.reaches(&here.1, handles.seen(no), "r")?;
            let mut map = super::data::map(here, handles.room_number(no), first, count)?;
            map.inode = handles.inode(map.inode);
            Ok(map)
        })
        .await
    }

    async fn snapshots(self, _: Context, session: SessionId) -> Reply<Vec<Snapshot>> {
        self.within("snapshots", session, About::default(), |(server, _)| {
            server.room.snapshots().map_err(refusal)
        })
        .await
    }

    async fn past(
        self,
        _: Context,
        session: SessionId,
        snapshot: u64,
        what: Past,
    ) -> Reply<PastAnswer> {
        let about = super::past::about(&what);
        self.within("past", session, about, move |here| {
            super::past::read(here, snapshot, what)
        })
        .await
    }

    async fn seek(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        offset: u64,
        hole: bool,
    ) -> Reply<u64> {
        self.within("seek", session, About::of(no), move |here| {
            super::data::seek(here, here.0.handles.room_number(no), offset, hole)
        })
        .await
    }

    async fn grant(self, _: Context, session: SessionId, blocks: u32) -> Reply<Granted> {
        self.within("grant", session, About::default(), move |here| {
            super::data::grant(here, blocks)
        })
        .await
    }

    async fn place(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        written: Vec<Written>,
        sync: bool,
    ) -> Reply<Committed> {
        self.within("place", session, About::of(no), move |here| {
            let handles = &here.0.handles;
            here.0.audit.reaches(&here.1, handles.seen(no), "w")?;
            let stamp = super::data::place(here, handles.room_number(no), written)?;
            if sync && let Err(e) = self::sync(&here.0) {
                // The data is in the file. Asked for alone, the sync says what is wrong.
                tracing::debug!("data that was committed is not durable: {e}");
            }
            let settled = here.0.room.settled();
            Ok(Committed { stamp, settled })
        })
        .await
    }

    async fn give_back(
        self,
        _: Context,
        session: SessionId,
        grants: Vec<WriteGrantId>,
    ) -> Reply<()> {
        self.within("give_back", session, About::default(), move |here| {
            super::data::release_grants(here, &grants)
        })
        .await
    }

    async fn sync(self, _: Context, session: SessionId) -> Reply<u64> {
        self.within("sync", session, About::default(), |here| {
            let stamp = here.0.room.stamp();
            sync(&here.0)?;
            Ok(stamp)
        })
        .await
    }

    async fn test_lock(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Reply<Option<Lock>> {
        let (incarnation, session) = self.here(session)?;
        let no = incarnation.handles.room_number(no);
        checked(&session, no, lock)?;
        let holder = Holder {
            session: session.id,
            owner,
        };
        self.shared
            .counters
            .call("test_lock", false, Duration::ZERO);
        Ok(incarnation.locks.test(no, table, holder, lock))
    }

    async fn set_lock(
        self,
        _: Context,
        session: SessionId,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
    ) -> Reply<()> {
        let begun = Instant::now();
        let (incarnation, session) = self.here(session)?;
        let no = incarnation.handles.room_number(no);
        checked(&session, no, lock)?;
        let holder = Holder {
            session: session.id,
            owner,
        };
        let locked = if wait {
            incarnation
                .locks
                .set_within(no, table, holder, lock, LOCK_WAIT)
                .await
        } else {
            incarnation
                .locks
                .set(no, table, holder, lock, false, Instant::now())
        };
        let reply = locked.map_err(|denied| {
            Refusal::Posix(match denied {
                Denied::Held => Posix::WouldBlock,
                Denied::Deadlock => Posix::Deadlock,
                Denied::TooMany => Posix::NoSpace,
            })
        });
        // Ended or closed meanwhile: the release of its locks may have missed this one.
        if session.is_over() {
            incarnation.locks.end(session.id);
            return Err(Refusal::NoSession);
        }
        if !session.has_open(no) {
            incarnation.locks.closed(session.id, no);
        }
        self.shared
            .counters
            .call("set_lock", reply.is_err(), begun.elapsed());
        reply
    }
}

/// Only a session that has a file open locks it.
fn checked(session: &Session, no: InodeNo, lock: Lock) -> Reply<()> {
    if lock.start > lock.end {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    if !session.has_open(no) {
        return Err(Refusal::Posix(Posix::Stale));
    }
    Ok(())
}

/// Whether a change made a file without a name that ended with the session that held it: it is made once more.
fn is_lost((_, session): &Here, change: &Change, answer: &Reply<Changed>) -> bool {
    match (change, answer) {
        (Change::CreateTmpfile { .. }, Ok(Changed::Inode(inode))) => !session.has_open(inode.no),
        _ => false,
    }
}

/// The first answer to an operation that was done. `settled`: one of an earlier incarnation may be given.
fn first_answer(
    here: &Here,
    client: &Client,
    (slot, sequence): (u32, u64),
    done: Asked,
    settled: bool,
) -> Reply<Changed> {
    match done {
        Asked::Answered(answer) => answer,
        Asked::Kept(answer) if settled => answer,
        Asked::Kept(_) => Err(Refusal::NotNow(Delay::Disk)),
        Asked::Revoke(changed, losses) => revoke(here, client, slot, sequence, changed, &losses),
        Asked::New | Asked::UnderWay => Err(Refusal::NotNow(Delay::UnderWay)),
    }
}

/// Goes on revoking the rights that an earlier change removes.
fn revoke(
    (incarnation, _): &Here,
    client: &Client,
    slot: u32,
    sequence: u64,
    changed: Changed,
    losses: &Arc<Losses>,
) -> Reply<Changed> {
    let revoked = catch_unwind(AssertUnwindSafe(|| losses.revoke(incarnation)));
    let done = matches!(revoked, Ok(Ok(())));
    let outcome = match done {
        true => Outcome::Answered(Ok(changed.clone())),
        false => Outcome::Revoking(changed.clone(), losses.clone()),
    };
    client.answer(slot, sequence, outcome);
    match done {
        true => Ok(changed),
        false => Err(Refusal::NotNow(Delay::Disk)),
    }
}

/// Makes everything durable, many callers' changes at once.
pub(super) fn sync(incarnation: &Incarnation) -> Reply<()> {
    incarnation.room.sync().map_err(not_durable)
}

/// Makes names and attributes durable, many callers' at once.
pub(super) fn sync_names(incarnation: &Incarnation) -> Reply<()> {
    incarnation.room.sync_names().map_err(not_durable)
}

fn not_durable(e: room::Error) -> Refusal {
    match e {
        room::Error::NoSpace => Refusal::Posix(Posix::NoSpace),
        other => {
            tracing::error!("a commit failed: {other}");
            Refusal::NotNow(Delay::Reopening)
        }
    }
}

impl Shared {
    /// A refusal as the client gets it: what fails because the room's storage failed is no answer, and the room is opened again.
    fn judged(&self, (incarnation, _): &Here, refusal: Refusal) -> Refusal {
        let failed = match &refusal {
            Refusal::NotNow(Delay::Reopening) => true,
            Refusal::Posix(Posix::Io) => {
                let synced = incarnation.room.sync();
                synced.is_err_and(|e| matches!(e, room::Error::Poisoned))
            }
            _ => false,
        };
        if !failed {
            return refusal;
        }
        self.fail(incarnation);
        Refusal::NotNow(Delay::Reopening)
    }
}
