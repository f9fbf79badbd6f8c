//! One disk: its group, what was given in it, and what is still to be revoked.
//!
//! 1. Capabilities are given only in a group that the disk is known to have.
//! 2. What is to be revoked is never given again, and stays noted until the disk revoked it, or dropped its group, or it has
//!    expired by the disk's own clock.
//! 3. A session has a bounded number of capabilities, and has them made at a bounded rate. Beyond that number its oldest ones
//!    to read are revoked; who needs one of these asks again.
//! 4. A group that the disk has lost, or whose numbers ran out, is replaced by a fresh one; what was given in it is then
//!    worth nothing.
//! 5. A disk remembers the latest metadata server that set its groups until it is restarted. So a server proves that it is the only one
//!    after it learned of a disk's start, before it sets groups there.
//! 6. A disk is one room's: it gets no group here while it belongs to another.
//! 7. Until the disk has its first group, what an earlier server gave, or this one at another address, may be good. Nothing of that is known,
//!    so it can be waited for only: until the group is there, or its time is over.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::rpc::SessionId;
use netdisk::{
    Admin, BlockExtent, CAPABILITIES_PER_GROUP, Capability, CapabilityId, ClientId, DiskAddress,
    DiskError, DiskKey, DiskStatus, GroupId, Mode, Ticket,
};
use parking_lot::{Condvar, Mutex};

use super::Tally;
use super::group_ids::GroupIdAllocator;
use super::issued::{Entry, IssuedCapabilities, Purpose};
use super::rate_limit::RateLimit;
use crate::fence::Fence;
use crate::sessions::Session;

/// Between two tries to reach a disk.
const PAUSE: Duration = Duration::from_millis(200);
/// Seconds after its expiry in which a capability is still taken for good: a request that began before may be under way.
const EXPIRY_MARGIN: u64 = 60;
/// Capabilities of one session on one disk, from which on its oldest are revoked; twice as many while the disk cannot be reached.
const LIVE_MAX: usize = 4096;
/// How many of them at once.
const REVOKED_AT_ONCE: usize = LIVE_MAX / 8;

#[derive(Debug, Clone, Copy)]
struct Group {
    id: GroupId,
    /// Next number.
    next: u32,
    /// Whether the disk is known to have it.
    valid: bool,
}

#[derive(Debug, Default)]
struct State {
    group: Option<Group>,
    issued: IssuedCapabilities,
    /// Which of those given are to be revoked.
    pending: BTreeSet<u32>,
    own: Option<Ticket>,
    rate_limit: RateLimit,
    blocks: u64,
    /// The disk's clock when it was asked last, and when that was. No clock of this machine that somebody sets counts: one set
    /// forward would have revocations forgotten while the disk still accepts what they are of.
    clock: Option<(u64, Instant)>,
}

impl State {
    /// The disk's clock, or a moment before it; 0 before the disk was reached.
    fn clock(&self) -> u64 {
        self.clock.map_or(0, |(clock, at)| {
            clock.saturating_add(at.elapsed().as_secs())
        })
    }

    /// Whether one more capability may be made for a session.
    fn admit(&mut self, session: SessionId, now: Instant) -> Result<(), DiskError> {
        let live = self.issued.count_of(session);
        if live >= 2 * LIVE_MAX {
            return Err(nowhere(
                "a session has too many capabilities, which are still to be revoked",
            ));
        }
        if !self.rate_limit.take(session, now) {
            return Err(nowhere(
                "a session has capabilities made faster than one may",
            ));
        }
        if live >= LIVE_MAX && live.is_multiple_of(REVOKED_AT_ONCE) {
            let pending = &self.pending;
            let oldest: Vec<u32> = self
                .issued
                .reads_of(session)
                .filter(|id| !pending.contains(id))
                .take(REVOKED_AT_ONCE)
                .collect();
            self.pending.extend(oldest);
        }
        Ok(())
    }

    fn expire(&mut self) {
        let clock = self.clock().saturating_sub(EXPIRY_MARGIN);
        self.issued.expire(clock);
        self.pending.retain(|id| self.issued.has(*id));
    }
}

fn nowhere(why: &'static str) -> DiskError {
    DiskError::Unreachable(std::io::Error::new(std::io::ErrorKind::NotConnected, why))
}

/// What may have been given on a disk before it is looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It is new to the room.
    Nothing,
    /// What an earlier incarnation of the server gave.
    Earlier,
    /// That, and what this one gave: the disk has another address now.
    Replaced,
}

/// Whose capabilities a revocation is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Those of earlier incarnations of the server too.
    All,
    /// Only those of this one: they are of a session or a grant that it began.
    This,
}

/// A disk of the room.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) address: DiskAddress,
    key: DiskKey,
    admin: Admin,
    state: Mutex<State>,
    /// Notified when something was revoked.
    settled: Condvar,
    /// Held while the group changes.
    changing: Mutex<()>,
    /// Until then capabilities may be good that are not known here, unless there is a group.
    unknown_until: Instant,
    /// Some of those may be of this incarnation of the server.
    replaces: bool,
    reachable: AtomicBool,
    /// The room's id.
    room: [u8; 16],
    /// It belongs to another room.
    foreign: AtomicBool,
    lifetime: Duration,
    tally: std::sync::Arc<Tally>,
    fence: std::sync::Arc<dyn Fence>,
}

impl Disk {
    /// `longest`: the lifetime of what may have been given before. `lifetime`: of what is given now.
    pub(crate) fn new(
        (disk, room): (crate::enrol::Disk, [u8; 16]),
        (before, longest): (Before, Duration),
        timeout: Duration,
        lifetime: Duration,
        tally: std::sync::Arc<Tally>,
        fence: std::sync::Arc<dyn Fence>,
    ) -> Self {
        let unknown = match before {
            Before::Nothing => Duration::ZERO,
            _ => longest + Duration::from_secs(EXPIRY_MARGIN),
        };
        Self {
            admin: Admin::new(disk.address.clone(), disk.key.clone(), timeout).of(fence.writer()),
            name: disk.name,
            address: disk.address,
            key: disk.key,
            state: Mutex::default(),
            settled: Condvar::new(),
            changing: Mutex::default(),
            unknown_until: Instant::now() + unknown,
            replaces: before == Before::Replaced,
            reachable: AtomicBool::new(false),
            room,
            foreign: AtomicBool::new(false),
            lifetime,
            tally,
            fence,
        }
    }

    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Whether capabilities can be given.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().group.is_some_and(|group| group.valid)
    }

    /// Whether capabilities may be good that are not known here.
    pub(crate) fn has_unknown(&self) -> bool {
        self.is_unknown(&self.state.lock())
    }

    fn is_unknown(&self, state: &State) -> bool {
        state.group.is_none() && Instant::now() < self.unknown_until
    }

    /// Capabilities given and good, and revocations not done yet.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.issued.len(), state.pending.len())
    }

    /// Blocks of the disk; 0 until it was reached.
    pub(crate) fn blocks(&self) -> u64 {
        self.state.lock().blocks
    }

    /// Another way to the disk, for the room's own work.
    pub(crate) fn another_admin(&self, timeout: Duration) -> Admin {
        Admin::new(self.address.clone(), self.key.clone(), timeout).of(self.fence.writer())
    }

    pub(crate) fn status(&self) -> Result<DiskStatus, DiskError> {
        let status = self.admin.status();
        let reached = status.is_ok();
        if self.reachable.swap(reached, Ordering::Relaxed) != reached {
            match &status {
                Ok(_) => tracing::info!(disk = %self.name, "the disk answers"),
                Err(e) => tracing::warn!(disk = %self.name, "{e}"),
            }
        }
        let status = status?;
        if status.id != self.address.id {
            return Err(DiskError::WrongDisk);
        }
        let mut state = self.state.lock();
        state.blocks = status.blocks;
        state.clock = Some((status.clock, Instant::now()));
        Ok(status)
    }

    /// Looks after the disk: whether it is there, still has its group, and what is still to be revoked or has expired.
    pub(crate) fn tend(&self, group_ids: &GroupIdAllocator) -> Result<(), DiskError> {
        let status = self.status()?;
        let valid = {
            let mut state = self.state.lock();
            state.expire();
            state
                .group
                .is_some_and(|g| g.valid && status.groups.contains(&g.id))
        };
        if !valid {
            self.begin_group(group_ids)?;
        }
        self.revoke_pending()
    }

    /// A fresh group, unless somebody else just began one. What was given before is worth nothing afterwards.
    pub(crate) fn begin_group(&self, group_ids: &GroupIdAllocator) -> Result<(), DiskError> {
        let before = self.state.lock().group.map(|g| g.id);
        let _alone = self.changing.lock();
        let Some(id) = ({
            let mut state = self.state.lock();
            if state.group.is_some_and(|g| g.valid && Some(g.id) != before) {
                return Ok(());
            }
            if let Some(group) = &mut state.group {
                group.valid = false;
            }
            group_ids.take()
        }) else {
            return Err(nowhere("no group numbers are reserved yet"));
        };
        let lifetime = self.admin.lifetime()?;
        self.fence.prove().map_err(DiskError::Unreachable)?;
        self.claim()?;
        self.admin.set_groups_of(lifetime, &[id])?;
        let mut state = self.state.lock();
        state.group = Some(Group {
            id,
            next: 0,
            valid: true,
        });
        state.issued = IssuedCapabilities::default();
        state.pending.clear();
        state.own = None;
        drop(state);
        self.settled.notify_all();
        self.tally.group();
        tracing::info!(disk = %self.name, group = id.0, "a fresh group of capabilities");
        Ok(())
    }

    /// Nothing is written to a disk that another room uses: both would write to the same blocks.
    fn claim(&self) -> Result<(), DiskError> {
        let claimed = match self.admin.claim(self.room) {
            // One of an earlier version: it does not know the request.
            Err(DiskError::NotAuthentic) => Ok(()),
            other => other,
        };
        let foreign = matches!(claimed, Err(DiskError::OtherRoom));
        if foreign && !self.foreign.swap(foreign, Ordering::Relaxed) {
            tracing::error!(disk = %self.name, "the disk belongs to another room, and is not used: remove it here or there");
        }
        claimed
    }

    fn make(
        &self,
        state: &mut State,
        client: u64,
        mode: Mode,
        extents: Vec<BlockExtent>,
    ) -> Option<Ticket> {
        let clock = state.clock();
        let group = state.group.as_mut().filter(|group| group.valid)?;
        if group.next >= CAPABILITIES_PER_GROUP {
            return None;
        }
        let mut nonce = [0; 16];
        // Without random numbers nothing is given; the number is not used up.
        getrandom::fill(&mut nonce).ok()?;
        let id = CapabilityId(group.next);
        group.next += 1;
        Some(self.key.ticket(Capability {
            disk: self.address.id,
            client: ClientId(client),
            group: group.id,
            id,
            mode,
            expires: clock + self.lifetime.as_secs(),
            nonce,
            extents,
        }))
    }

    /// Runs `make` in the present group; where there is no room in it, in a fresh one.
    fn in_group<T>(
        &self,
        group_ids: &GroupIdAllocator,
        make: impl Fn(&mut State) -> Option<T>,
    ) -> Result<T, DiskError> {
        for _ in 0..2 {
            {
                let mut state = self.state.lock();
                if let Some(made) = make(&mut state) {
                    return Ok(made);
                }
                if state.group.is_none() {
                    return Err(nowhere("the disk was not reached yet"));
                }
            }
            self.begin_group(group_ids)?;
        }
        Err(nowhere("the disk has no valid group"))
    }

    /// A ticket for a client; `None` where its session has ended.
    pub(crate) fn give(
        &self,
        group_ids: &GroupIdAllocator,
        session: &Session,
        purpose: Purpose,
        extents: &[BlockExtent],
    ) -> Result<Option<Ticket>, DiskError> {
        let mode = match purpose {
            Purpose::Read(_) => Mode::Read,
            Purpose::Write(_) => Mode::Write,
        };
        self.in_group(group_ids, |state| {
            // Checked under the lock under which the end of a session looks for its capabilities.
            if session.is_over() {
                return Some(Ok(None));
            }
            if let Purpose::Read(no) = purpose
                && state.group.is_some_and(|g| g.valid)
            {
                let until = state.clock() + self.lifetime.as_secs() / 2;
                let known = state.issued.reusable(session.id, no, extents, until);
                if let Some(ticket) = known
                    && !state.pending.contains(&ticket.capability.id.0)
                {
                    return Some(Ok(Some(ticket.clone())));
                }
            }
            if let Err(e) = state.admit(session.id, Instant::now()) {
                return Some(Err(e));
            }
            let ticket = self.make(state, session.id.0, mode, extents.to_vec())?;
            state.issued.put(Entry {
                session: session.id,
                purpose,
                ticket: ticket.clone(),
            });
            self.tally.issued();
            Some(Ok(Some(ticket)))
        })?
    }

    /// The metadata server's own ticket, for all of the disk.
    pub(crate) fn own(
        &self,
        group_ids: &GroupIdAllocator,
        refused: bool,
    ) -> Result<Ticket, DiskError> {
        if refused {
            self.tend(group_ids)?;
            self.state.lock().own = None;
        }
        self.in_group(group_ids, |state| {
            let until = state.clock() + EXPIRY_MARGIN;
            if let Some(own) = &state.own
                && own.capability.expires > until
            {
                return Some(own.clone());
            }
            let all = BlockExtent {
                start: 0,
                blocks: state.blocks.max(1),
            };
            let ticket = self.make(state, 0, Mode::ReadWrite, vec![all])?;
            state.own = Some(ticket.clone());
            Some(ticket)
        })
    }

    /// Notes that what `which` finds is to be revoked, and revokes it, waiting for the disk until `deadline`; with what is not known
    /// here, where that counts.
    pub(crate) fn revoke(
        &self,
        which: impl FnOnce(&IssuedCapabilities) -> Vec<u32>,
        of: Of,
        deadline: Instant,
    ) -> Result<(), DiskError> {
        let begun = Instant::now();
        let (group, ids) = {
            let mut state = self.state.lock();
            while (of == Of::All || self.replaces) && self.is_unknown(&state) {
                if Instant::now() >= deadline {
                    return Err(nowhere("the disk was not reached yet"));
                }
                self.settled
                    .wait_until(&mut state, deadline.min(Instant::now() + PAUSE));
            }
            let state = &mut *state;
            let Some(group) = state.group else {
                return Ok(());
            };
            // Those that somebody else revokes already are waited for too.
            let ids = which(&state.issued);
            state.pending.extend(&ids);
            (group.id, ids)
        };
        if ids.is_empty() {
            return Ok(());
        }
        loop {
            let done = self.revoke_pending();
            let mut state = self.state.lock();
            let settled = |state: &State| {
                state.group.is_none_or(|g| g.id != group)
                    || ids.iter().all(|id| !state.pending.contains(id))
            };
            if settled(&state) {
                self.tally.revoked(ids.len(), begun.elapsed());
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(done
                    .err()
                    .unwrap_or_else(|| nowhere("a revocation goes on")));
            }
            self.settled
                .wait_until(&mut state, deadline.min(Instant::now() + PAUSE));
        }
    }

    /// Makes the disk refuse every capability.
    pub(crate) fn withdraw(&self) {
        let _alone = self.changing.lock();
        if let Some(group) = &mut self.state.lock().group {
            group.valid = false;
        }
        if self.is_reachable()
            && let Err(e) = self.admin.set_groups(&[])
        {
            tracing::warn!(disk = %self.name, "capabilities are not taken back: {e}");
        }
    }

    /// Revokes what is noted; what cannot be stays noted until it has expired.
    fn revoke_pending(&self) -> Result<(), DiskError> {
        let (group, ids) = {
            let mut state = self.state.lock();
            state.expire();
            let Some(group) = state.group else {
                return Ok(());
            };
            let ids: Vec<CapabilityId> = state.pending.iter().copied().map(CapabilityId).collect();
            (group.id, ids)
        };
        if ids.is_empty() {
            return Ok(());
        }
        for some in ids.chunks(1024) {
            self.admin.revoke(group, some)?;
            let mut state = self.state.lock();
            if state.group.is_some_and(|g| g.id == group) {
                for id in some {
                    state.pending.remove(&id.0);
                    state.issued.remove(id.0);
                }
            }
        }
        self.settled.notify_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
