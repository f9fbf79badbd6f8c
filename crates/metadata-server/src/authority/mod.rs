//! Capabilities: which client has which, and how they are taken back.
//!
//! 1. What a client has is remembered until it is revoked or has expired; so everything can be revoked, by file, by session
//!    and by place.
//! 2. A revocation returns when the disk refuses the revoked capabilities. Where the disk cannot be reached it goes on in
//!    the background, and the caller gets the disk's name.
//! 3. Nothing is issued before the disks have fresh groups: capabilities of an earlier incarnation of the server are
//!    then invalid.
//! 4. The room is not called from here, but to reserve numbers of groups.
//!
//! It deliberately does not know permissions: who may have what is asked before.

mod disk;
mod group_ids;
mod issued;
mod lifetimes;
mod rate_limit;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Refusal, Reply, SessionId};
use netdisk::{BlockExtent, DiskAddress, DiskClient, DiskError, DiskId, EXTENTS_MAX, Ticket};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use room::{InodeNo, Room, WriteGrantId};

use crate::fence::Fence;
use crate::placement::{Keeper, NetStorage, NetworkDisk};
use crate::sessions::Session;
pub(crate) use disk::Before;
use disk::{Disk, Of};
use group_ids::GroupIdAllocator;
use issued::Purpose;
use lifetimes::Lifetimes;

/// How long things last between a metadata server and its disks.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Capabilities are good for so long.
    pub capability_lifetime: Duration,
    /// How long a call waits for a disk to revoke.
    pub revocation_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            capability_lifetime: Duration::from_secs(600),
            revocation_timeout: Duration::from_secs(30),
        }
    }
}

/// Between two looks at a disk.
const LOOK: Duration = Duration::from_secs(1);
/// A disk that does not answer within this cannot be reached.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Capabilities given.
    pub issued: u64,
    /// Capabilities revoked.
    pub revoked: u64,
    /// Revocations: one may be of many capabilities.
    pub revocations: u64,
    /// How long they took together, in nanoseconds.
    pub revocation_ns: u64,
    /// The longest one, in nanoseconds.
    pub revocation_ns_max: u64,
    /// Groups begun.
    pub groups: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Totals>);

impl Tally {
    fn issued(&self) {
        self.0.lock().issued += 1;
    }

    fn group(&self) {
        self.0.lock().groups += 1;
    }

    fn revoked(&self, count: usize, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mut totals = self.0.lock();
        totals.revoked += count as u64;
        totals.revocations += 1;
        totals.revocation_ns += took;
        totals.revocation_ns_max = totals.revocation_ns_max.max(took);
    }
}

/// State of one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskState {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: DiskAddress,
    /// Whether it answered when it was looked at last.
    pub reachable: bool,
    /// Blocks in all; 0: it was never reached.
    pub blocks: u64,
    /// Capabilities that clients have.
    pub capabilities: usize,
    /// Revocations that wait for it.
    pub pending: usize,
    /// Bytes that are not free.
    pub used: u64,
    /// It is being emptied, to be taken from the room.
    pub removal: Option<Removal>,
}

/// How far the removal of a disk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Bytes of file data still to be moved.
    pub left: u64,
    /// What is in the way, in words.
    pub obstacle: Option<String>,
}

/// Who gives capabilities.
pub struct Authority {
    disks: RwLock<BTreeMap<DiskId, Arc<Disk>>>,
    /// What the disks know the room by.
    room: [u8; 16],
    group_ids: GroupIdAllocator,
    lifetimes: Lifetimes,
    revocation_timeout: Duration,
    /// Files with higher numbers did not exist before: no earlier incarnation gave anything of them.
    newest_before: InodeNo,
    tally: Arc<Tally>,
    fence: Arc<dyn Fence>,
    reporting: RwLock<()>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    threads: AtomicU64,
}

// Not what it holds: too much for a log.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// One without disks.
    pub fn new(room: &Room, timing: Timing, fence: Arc<dyn Fence>) -> room::Result<Arc<Self>> {
        let authority = Self {
            disks: RwLock::default(),
            room: crate::enrol::id_of(room)?,
            group_ids: GroupIdAllocator::default(),
            lifetimes: Lifetimes::begin(room, timing.capability_lifetime)?,
            revocation_timeout: timing.revocation_timeout,
            newest_before: room.unused_inode()?,
            tally: Arc::default(),
            fence,
            reporting: RwLock::new(()),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            threads: AtomicU64::new(0),
        };
        authority.group_ids.refill(room)?;
        Ok(Arc::new(authority))
    }

    /// When a call that asks for a revocation now ends its wait for the disks.
    pub fn revocation_deadline(&self) -> Instant {
        Instant::now() + self.revocation_timeout
    }

    /// Reserves more numbers of groups where few are left, and notes when nothing of an earlier server's is good any more.
    pub fn refill(&self, room: &Room) -> room::Result<()> {
        if !self.all().iter().any(|disk| disk.has_unknown()) {
            self.lifetimes.forget_earlier(room)?;
        }
        self.group_ids.refill(room)
    }

    /// Begins to look after a disk. Where it answers at once it has a fresh group when this returns, and is attached to the
    /// storage; else that happens when it does.
    ///
    /// # Errors
    /// That no thread can be started for it. Nobody looks after the disk then.
    pub(crate) fn add(
        self: &Arc<Self>,
        disk: crate::enrol::Disk,
        before: Before,
        storage: &NetStorage,
    ) -> std::io::Result<()> {
        let id = disk.address.id;
        let disk = Arc::new(Disk::new(
            (disk, self.room),
            (before, self.lifetimes.longest()),
            TIMEOUT,
            self.lifetimes.present,
            self.tally.clone(),
            self.fence.clone(),
        ));
        self.disks.write().insert(id, disk.clone());
        let mut attached = self.look(&disk, storage, false);
        let (authority, storage) = (self.clone(), storage.clone());
        self.threads.fetch_add(1, Ordering::SeqCst);
        let thread = std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || {
                while authority.goes_on(&disk) {
                    attached = authority.look(&disk, &storage, attached);
                }
                authority.threads.fetch_sub(1, Ordering::SeqCst);
            });
        thread.map(drop).inspect_err(|_| {
            self.threads.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn look(self: &Arc<Self>, disk: &Arc<Disk>, storage: &NetStorage, attached: bool) -> bool {
        if let Err(e) = disk.tend(&self.group_ids) {
            tracing::debug!(disk = %disk.name, "{e}");
        }
        if attached || !disk.is_ready() {
            return attached;
        }
        let link = NetworkDisk {
            client: DiskClient::new(disk.address.clone(), TIMEOUT),
            admin: disk.another_admin(TIMEOUT),
        };
        storage.attach(disk.address.id, Arc::new(link), self.clone(), disk.blocks());
        true
    }

    fn goes_on(&self, disk: &Arc<Disk>) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, LOOK);
        }
        !*stopping
            && self
                .disks
                .read()
                .get(&disk.address.id)
                .is_some_and(|d| Arc::ptr_eq(d, disk))
    }

    /// Looks after the disks no more.
    pub fn stop(&self) {
        *self.stopping.lock() = true;
        self.stopped.notify_all();
        let deadline = Instant::now() + 2 * TIMEOUT;
        while self.threads.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Forgets a disk, which must be empty.
    pub fn remove(&self, id: DiskId) {
        self.disks.write().remove(&id);
    }

    fn disk(&self, id: DiskId) -> Result<Arc<Disk>, DiskError> {
        self.disks.read().get(&id).cloned().ok_or_else(|| {
            DiskError::Unreachable(std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "the disk is not one of this room's",
            ))
        })
    }

    fn all(&self) -> Vec<Arc<Disk>> {
        self.disks.read().values().cloned().collect()
    }

    /// Whether this disk is one of the room's, by this name.
    pub fn has(&self, id: DiskId, name: &str) -> bool {
        self.disk(id).is_ok_and(|disk| disk.name == name)
    }

    /// Whether a disk answered when it was looked at last.
    pub fn is_reachable(&self, id: DiskId) -> bool {
        self.disk(id).is_ok_and(|disk| disk.is_reachable())
    }

    /// Whether nothing that an earlier incarnation of the server gave is good any more, at any disk.
    pub fn is_ready(&self) -> bool {
        !self.all().iter().any(|disk| disk.has_unknown())
    }

    /// Asks all disks, and returns the name of the first that does not answer.
    pub fn first_away(&self) -> Option<String> {
        let mut all = self.all().into_iter();
        let away = all.find(|disk| disk.status().is_err());
        away.map(|disk| disk.name.clone())
    }

    /// How many disks there are.
    pub fn disk_count(&self) -> usize {
        self.disks.read().len()
    }

    /// Where the disks are.
    pub fn addresses(&self) -> Vec<DiskAddress> {
        self.all().iter().map(|d| d.address.clone()).collect()
    }

    /// The disks' states; their contents are not known here.
    pub fn disks(&self) -> Vec<DiskState> {
        self.all()
            .iter()
            .map(|disk| {
                let (capabilities, pending) = disk.counts();
                DiskState {
                    name: disk.name.clone(),
                    address: disk.address.clone(),
                    reachable: disk.is_reachable(),
                    blocks: disk.blocks(),
                    capabilities,
                    pending,
                    used: 0,
                    removal: None,
                }
            })
            .collect()
    }

    /// What was done so far.
    pub fn totals(&self) -> Totals {
        *self.tally.0.lock()
    }

    fn give(
        &self,
        session: &Session,
        id: DiskId,
        purpose: Purpose,
        extents: &[BlockExtent],
    ) -> Reply<Ticket> {
        self.disk(id)
            .and_then(|disk| disk.give(&self.group_ids, session, purpose, extents))
            .map_err(|e| {
                tracing::warn!("a capability could not be given: {e}");
                Refusal::DiskUnreachable(id)
            })?
            .ok_or(Refusal::NoSession)
    }

    /// What it takes to read these blocks of a file.
    pub fn read_tickets(
        &self,
        session: &Session,
        no: InodeNo,
        blocks: &BTreeMap<DiskId, Vec<BlockExtent>>,
    ) -> Reply<Vec<Ticket>> {
        let mut tickets = Vec::new();
        for (disk, extents) in blocks {
            for some in joined(extents).chunks(EXTENTS_MAX) {
                tickets.push(self.give(session, *disk, Purpose::Read(no), some)?);
            }
        }
        Ok(tickets)
    }

    /// The ticket to write to a grant.
    pub fn write_ticket(
        &self,
        session: &Session,
        grant: WriteGrantId,
        disk: DiskId,
        extent: BlockExtent,
    ) -> Reply<Ticket> {
        self.give(session, disk, Purpose::Write(grant), &[extent])
    }

    /// Revokes on every disk what `which` finds there. All disks are tried; the error names the first one that could not be reached.
    fn revoke_everywhere(
        &self,
        which: impl Fn(&issued::IssuedCapabilities) -> Vec<u32>,
        of: Of,
        deadline: Instant,
    ) -> Reply<()> {
        let mut outcome = Ok(());
        for disk in self.all() {
            if let Err(e) = disk.revoke(&which, of, deadline) {
                tracing::warn!(disk = %disk.name, "a revocation goes on in the background: {e}");
                outcome = outcome.and(Err(Refusal::DiskUnreachable(disk.address.id)));
            }
        }
        outcome
    }

    /// Takes reading a file from the sessions that lose it.
    pub fn revoke_file(
        &self,
        no: InodeNo,
        loses: impl Fn(SessionId) -> bool,
        deadline: Instant,
    ) -> Reply<()> {
        self.revoke_everywhere(
            |issued| {
                let of_file = issued.of_file(no);
                of_file
                    .filter(|(session, _)| loses(*session))
                    .map(|(_, id)| id)
                    .collect()
            },
            match self.is_new(no) {
                true => Of::This,
                false => Of::All,
            },
            deadline,
        )
    }

    /// Revokes writing to grants.
    pub fn revoke_grants(&self, grants: &[WriteGrantId], deadline: Instant) -> Reply<()> {
        self.revoke_everywhere(
            |issued| {
                grants
                    .iter()
                    .filter_map(|grant| issued.of_grant(*grant))
                    .collect()
            },
            Of::This,
            deadline,
        )
    }

    /// Held from before a map is read until the capabilities for it are issued: the blocks that it names are not freed
    /// meanwhile.
    pub fn reporting(&self) -> RwLockReadGuard<'_, ()> {
        self.reporting.read()
    }

    /// Takes everything from everybody, where the disks can be reached: the server stops.
    pub fn withdraw(&self) {
        std::thread::scope(|scope| {
            for disk in self.all() {
                let there = disk.clone();
                let thread = std::thread::Builder::new();
                if thread
                    .spawn_scoped(scope, move || there.withdraw())
                    .is_err()
                {
                    disk.withdraw();
                }
            }
        });
    }

    /// Takes everything from a session.
    pub fn revoke_session(&self, session: SessionId, deadline: Instant) -> Reply<()> {
        self.revoke_everywhere(|issued| issued.of_session(session), Of::This, deadline)
    }

    /// Whether a file did not exist before this incarnation of the server.
    pub fn is_new(&self, no: InodeNo) -> bool {
        no > self.newest_before
    }

    /// Waits until nothing is good any more that an earlier incarnation of the server gave.
    pub fn outlast_earlier(&self, deadline: Instant) -> Reply<()> {
        self.revoke_everywhere(|_| Vec::new(), Of::All, deadline)
    }
}

/// Extents in order, those that touch as one.
fn joined(extents: &[BlockExtent]) -> Vec<BlockExtent> {
    let mut sorted = extents.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<BlockExtent> = Vec::with_capacity(sorted.len());
    for extent in sorted {
        match joined.last_mut() {
            Some(last) if last.start + last.blocks >= extent.start => {
                let end = (last.start + last.blocks).max(extent.start + extent.blocks);
                last.blocks = end - last.start;
            }
            _ => joined.push(extent),
        }
    }
    joined
}

impl Keeper for Authority {
    fn ticket(&self, disk: DiskId, refused: bool) -> Result<Ticket, DiskError> {
        self.disk(disk)?.own(&self.group_ids, refused)
    }

    fn revoke(&self, disk: DiskId, extents: &[BlockExtent]) -> Result<(), DiskError> {
        let Ok(disk) = self.disk(disk) else {
            // One that is no disk of this room has no valid group of this server.
            return Ok(());
        };
        // After this, maps sent before these blocks were discarded have their capabilities on record.
        drop(self.reporting.write());
        disk.revoke(
            |issued| issued.covering(extents).into_iter().collect(),
            Of::All,
            Instant::now() + TIMEOUT,
        )
    }

    fn renew(&self, disk: DiskId) -> Result<(), DiskError> {
        let Ok(disk) = self.disk(disk) else {
            // As above.
            return Ok(());
        };
        disk.begin_group(&self.group_ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_touch_or_overlap_become_one() {
        let e = |start, blocks| BlockExtent { start, blocks };
        assert_eq!(
            joined(&[e(10, 5), e(0, 3), e(15, 1), e(2, 2), e(20, 4), e(21, 1)]),
            [e(0, 4), e(10, 6), e(20, 4)]
        );
    }
}
