//! The calls as they come in, each with the session that it is of. A change goes on to its end, and its answer is remembered,
//! also where nobody waits for it any more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use metadata_proto::admin;
use metadata_proto::admin::Ended;
use metadata_proto::rpc::{
    CLOSED_MAX, Change, Changed, ClientId, Committed, Delay, FORMER_MAX, Found, Granted, Heartbeat,
    Listing, LockClaim, Map, Metadata, Once, Opening, Past, PastAnswer, Posix, Recalled, Refusal,
    Reply, SessionId, Welcome, Written,
};
use room::{
    Access, FileSystem as _, Inode, InodeNo, Lock, LockKind, LockOwner, LockTable, RoomSpace,
    Snapshot, Snapshots as _, Timestamp, WriteGrantId,
};
use tarpc::context::Context;

use super::caller::Caller;
use super::incarnation::{self, Incarnation};
use super::once::{first_answer, is_lost};
use super::refusals::{refusal, sync};
use super::remote;
use super::replies::{Asked, Outcome, client_key};
use super::testing::Point;
use crate::audit::About;
use crate::locks::{Denied, Holder, LOCKS_MAX};
use crate::sessions::Session;

/// Longest wait for a lock in one call.
const LOCK_WAIT: Duration = Duration::from_secs(1);

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
                let deadline = Instant::now() + Duration::from_secs(5);
                if incarnation::end_session(incarnation, &session, deadline) != Ended::All {
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
    ) -> Reply<Found> {
        self.within("lookup", session, About::of(parent), move |here| {
            let handles = &here.0.handles;
            let mut found = super::files::lookup(here, handles.room_number(parent), &name)?;
            found.inode = handles.inode(found.inode);
            Ok(found)
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
                        Outcome::Void(why) => Err(Refusal::NotNow(*why)),
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
        opening: Opening,
        no: InodeNo,
        access: Access,
    ) -> Reply<Inode> {
        self.within("open", session, About::of(no), move |here| {
            let handles = &here.0.handles;
            here.0.audit.ready()?;
            let opened = super::files::open(here, opening, handles.room_number(no), access)?;
            here.0.audit.opened(&here.1, no, access);
            Ok(handles.inode(opened))
        })
        .await
    }

    async fn close(
        self,
        _: Context,
        session: SessionId,
        once: Once,
        closed: Vec<(InodeNo, u64)>,
    ) -> Reply<()> {
        let about = About::default();
        self.within("close", session, about, move |(incarnation, session)| {
            if closed.len() > CLOSED_MAX {
                return Err(Refusal::Posix(Posix::InvalidArgument));
            }
            if !session.begins(once)? {
                return Ok(());
            }
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
        onto: Option<Timestamp>,
        sync: bool,
    ) -> Reply<Committed> {
        self.within("place", session, About::of(no), move |here| {
            let handles = &here.0.handles;
            here.0.audit.reaches(&here.1, handles.seen(no), "w")?;
            let (stamp, moments) =
                super::data::place(here, handles.room_number(no), written, onto)?;
            if sync && let Err(e) = self::sync(&here.0) {
                // The data is in the file. Asked for alone, the sync says what is wrong.
                tracing::debug!("data that was committed is not durable: {e}");
            }
            let settled = here.0.room.settled();
            Ok(Committed {
                stamp,
                settled,
                moments,
            })
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
        let held = incarnation.locks.test(no, table, holder, lock);
        if held.is_none() && !incarnation.grace.is_over() {
            return Err(Refusal::NotNow(Delay::Reclaiming));
        }
        still_serves(&incarnation)?;
        Ok(held)
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
        let locks = &incarnation.locks;
        if lock.kind != LockKind::Unlock {
            if !incarnation.grace.is_over() {
                let held = locks.test(no, table, holder, lock).is_some();
                return Err(match held && !wait {
                    true => Refusal::Posix(Posix::WouldBlock),
                    false => Refusal::NotNow(Delay::Reclaiming),
                });
            }
            if !incarnation.grace.has(session.id) {
                let about = About::of(no);
                self.within("hold_locks", session.id, about, |(server, session)| {
                    server.grace.admit(&server.room, session)
                })
                .await?;
            }
        }
        let locked = if wait {
            locks.set_within(no, table, holder, lock, LOCK_WAIT).await
        } else {
            locks.set(no, table, holder, lock, false, Instant::now())
        };
        let reply = locked.map_err(|denied| {
            Refusal::Posix(match denied {
                Denied::Held => Posix::WouldBlock,
                Denied::Deadlock => Posix::Deadlock,
                Denied::TooMany => Posix::NoSpace,
            })
        });
        if session.is_over() {
            // Its locks were freed, and may have missed this one. Those of a session that is still to be released wait for that.
            if incarnation.sessions.get(session.id).is_none() {
                locks.end(session.id);
            }
            return Err(Refusal::NoSession);
        }
        // Closed meanwhile, in the same way.
        if !session.has_open(no) {
            locks.closed(session.id, no);
        }
        still_serves(&incarnation)?;
        self.shared
            .counters
            .call("set_lock", reply.is_err(), begun.elapsed());
        reply
    }

    async fn reclaim_locks(
        self,
        _: Context,
        session: SessionId,
        former: Vec<SessionId>,
        claims: Vec<LockClaim>,
    ) -> Reply<Vec<bool>> {
        let about = About::default();
        self.within("reclaim_locks", session, about, move |(server, session)| {
            if former.len() > FORMER_MAX || claims.len() > LOCKS_MAX {
                return Err(Refusal::Posix(Posix::InvalidArgument));
            }
            let holder = |claim: &LockClaim| Holder {
                session: session.id,
                owner: claim.owner,
            };
            let number = |claim: &LockClaim| server.handles.room_number(claim.no);
            let take = || {
                for claim in &claims {
                    let no = number(claim);
                    let (table, lock) = (claim.table, claim.lock);
                    if checked(session, no, lock).is_ok() && lock.kind != LockKind::Unlock {
                        let now = Instant::now();
                        // What cannot be taken is reported below.
                        let _ = server.locks.set(no, table, holder(claim), lock, false, now);
                    }
                }
            };
            server.grace.claim(&server.room, session, &former, take)?;
            // What it has: also where an answer to this was lost before.
            let has = |c: &LockClaim| server.locks.has(number(c), c.table, holder(c), c.lock);
            Ok(claims.iter().map(has).collect())
        })
        .await
    }
}

/// Memory answers for a server only as long as no other one can have the room.
fn still_serves(incarnation: &Incarnation) -> Reply<()> {
    match incarnation.fence.holds() {
        true => Ok(()),
        false => Err(Refusal::NotNow(Delay::Reopening)),
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
