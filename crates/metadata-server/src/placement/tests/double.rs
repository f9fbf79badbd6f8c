//! Disks in memory that lose power, restart and go away, and who keeps their capabilities.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use netdisk::{BLOCK_LEN, Capability, CapabilityId, ClientId, DiskError, GroupId, Mode, Ticket};
use storage::testing::{FaultyStorage, MemoryStorage};

use super::super::*;
use super::SLOT_BLOCKS;

/// A write that begins with this loses its first answer.
pub(super) const UNANSWERED: u8 = 0xAA;

/// A disk in memory.
#[derive(Debug)]
pub(super) struct TestDisk {
    pub(super) id: DiskId,
    pub(super) state: Mutex<TestState>,
    pub(super) log: Arc<Log>,
}

#[derive(Debug, Default)]
pub(super) struct TestState {
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
    pub(super) durable: BTreeMap<u64, Vec<u8>>,
    pub(super) boot: u8,
    pub(super) group: u64,
    /// How many requests do not reach it.
    pub(super) away: u64,
    pub(super) flushes: u64,
    /// Writes that were done, and sent again.
    pub(super) unanswered: u64,
}

/// What was asked of all disks and of the keeper, in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) asked: Mutex<Vec<Asked>>,
    /// The group that is valid from the next renewal on.
    pub(super) group: AtomicU64,
    pub(super) revoking_fails: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Revoke(DiskId, Vec<BlockExtent>),
    Discard(DiskId, Vec<BlockExtent>),
    Renew(DiskId),
}

#[derive(Debug)]
pub(super) struct TestKeeper {
    pub(super) log: Arc<Log>,
    pub(super) disks: Vec<Arc<TestDisk>>,
}

impl TestDisk {
    pub(super) fn reach(
        &self,
        ticket: Option<&Ticket>,
    ) -> Result<parking_lot::MutexGuard<'_, TestState>, DiskError> {
        let mut state = self.state.lock();
        if state.away > 0 {
            state.away -= 1;
            return Err(DiskError::Unreachable(io::ErrorKind::TimedOut.into()));
        }
        if ticket.is_some_and(|t| t.capability.group.0 != state.group) {
            return Err(DiskError::UnknownGroup);
        }
        Ok(state)
    }

    /// What was not flushed is gone; the groups are too.
    pub(super) fn lose_power(&self) {
        let mut state = self.state.lock();
        state.blocks = state.durable.clone();
        state.boot += 1;
        state.group = u64::MAX;
    }

    /// Its server was killed: nothing is lost but what it had in memory.
    pub(super) fn restart(&self) {
        self.state.lock().group = u64::MAX;
    }

    pub(super) fn boot_now(&self) -> Boot {
        Boot([self.state.lock().boot; 16])
    }

    /// As a borrower writes.
    pub(super) fn write_as_borrower(&self, start: u64, data: &[u8]) -> Boot {
        let mut state = self.state.lock();
        for (at, block) in (start..).zip(data.chunks(BLOCK_LEN)) {
            state.blocks.insert(at, block.to_vec());
        }
        Boot([state.boot; 16])
    }
}

impl Disk for TestDisk {
    fn read(&self, ticket: &Ticket, start: u64, out: &mut [u8]) -> Result<(), DiskError> {
        let state = self.reach(Some(ticket))?;
        for (at, block) in (start..).zip(out.chunks_mut(BLOCK_LEN)) {
            match state.blocks.get(&at) {
                Some(stored) => block.copy_from_slice(stored),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, ticket: &Ticket, start: u64, data: &[u8]) -> Result<Boot, DiskError> {
        self.reach(Some(ticket))?.unanswered += u64::from(data[0] == UNANSWERED);
        Ok(self.write_as_borrower(start, data))
    }

    fn unanswered_writes(&self) -> u64 {
        self.state.lock().unanswered
    }

    fn flush(&self, ticket: &Ticket) -> Result<Boot, DiskError> {
        let mut state = self.reach(Some(ticket))?;
        state.durable = state.blocks.clone();
        state.flushes += 1;
        Ok(Boot([state.boot; 16]))
    }

    fn boot(&self) -> Result<Boot, DiskError> {
        Ok(Boot([self.reach(None)?.boot; 16]))
    }

    fn discard(&self, extents: &[BlockExtent]) -> Result<(), DiskError> {
        let mut state = self.reach(None)?;
        for extent in extents {
            for block in extent.start..extent.start + extent.blocks {
                state.blocks.remove(&block);
            }
        }
        self.log
            .asked
            .lock()
            .push(Asked::Discard(self.id, extents.to_vec()));
        Ok(())
    }
}

impl Keeper for TestKeeper {
    fn ticket(&self, disk: DiskId, refused: bool) -> Result<Ticket, DiskError> {
        if refused {
            self.log.asked.lock().push(Asked::Renew(disk));
        }
        let group = 1 + self.log.group.fetch_add(1, Ordering::SeqCst);
        let it = self.disks.iter().find(|d| d.id == disk).unwrap();
        it.reach(None)?.group = group;
        Ok(Ticket {
            capability: Capability {
                disk,
                client: ClientId(0),
                group: GroupId(group),
                id: CapabilityId(0),
                mode: Mode::ReadWrite,
                expires: u64::MAX,
                nonce: [0; 16],
                extents: vec![BlockExtent {
                    start: 0,
                    blocks: u64::MAX,
                }],
            },
            secret: serde_json::from_str(&format!("{:?}", [0; 32])).unwrap(),
        })
    }

    fn revoke(&self, disk: DiskId, extents: &[BlockExtent]) -> Result<(), DiskError> {
        self.log
            .asked
            .lock()
            .push(Asked::Revoke(disk, extents.to_vec()));
        match self.log.revoking_fails.load(Ordering::SeqCst) {
            true => Err(DiskError::Unreachable(io::ErrorKind::TimedOut.into())),
            false => Ok(()),
        }
    }

    fn renew(&self, disk: DiskId) -> Result<(), DiskError> {
        self.ticket(disk, true).map(drop)
    }
}

/// A room's directory in memory and some disks.
pub(super) struct Bench {
    pub(super) host: FaultyStorage<MemoryStorage>,
    pub(super) disks: Vec<Arc<TestDisk>>,
    pub(super) log: Arc<Log>,
    pub(super) slots: u64,
}

impl Bench {
    pub(super) fn new(disks: u8, slots: u64) -> Self {
        let log = Arc::new(Log::default());
        let disks = (1..=disks).map(|n| {
            Arc::new(TestDisk {
                id: DiskId([n; 16]),
                state: Mutex::default(),
                log: log.clone(),
            })
        });
        Self {
            host: FaultyStorage::new(MemoryStorage::new()),
            disks: disks.collect(),
            log,
            slots,
        }
    }

    pub(super) fn open(&self) -> NetStorage {
        let host = Arc::new(self.host.clone());
        NetStorage::open(host, Duration::from_millis(500)).unwrap()
    }

    pub(super) fn attached(&self) -> NetStorage {
        let storage = self.open();
        self.attach(&storage);
        storage
    }

    pub(super) fn attach(&self, storage: &NetStorage) {
        let keeper = Arc::new(TestKeeper {
            log: self.log.clone(),
            disks: self.disks.clone(),
        });
        for disk in &self.disks {
            let blocks = self.slots * SLOT_BLOCKS + 5;
            storage.attach(disk.id, disk.clone(), keeper.clone(), blocks);
        }
    }

    pub(super) fn disk_of(&self, storage: &NetStorage, segment: u64) -> &Arc<TestDisk> {
        let (id, _) = storage.locate(SegmentNo(segment)).unwrap();
        self.disks.iter().find(|d| d.id == id).unwrap()
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.log.asked.lock())
    }
}
