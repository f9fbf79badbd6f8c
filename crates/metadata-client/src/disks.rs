//! The disks, as this client reaches them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::Error;
use netdisk::{BLOCK_LEN, BlockExtent, DiskAddress, DiskClient, DiskError, DiskId, Ticket};
use parking_lot::RwLock;

/// Blocks of one request to a disk: 1 MiB.
pub(super) const REQUEST_BLOCKS: u32 = (1 << 20) / BLOCK_LEN as u32;

/// What to do after a disk refused or failed.
#[derive(Debug)]
pub(super) enum Next {
    /// The right is gone or old: ask the metadata server for another.
    AskAgain,
    /// It may work later.
    Later(Error),
    /// It will not.
    Never(Error),
}

fn next(disk: DiskId, e: DiskError) -> Next {
    let name = || format!("the disk {disk}");
    match e {
        DiskError::Revoked
        | DiskError::UnknownGroup
        | DiskError::Expired
        | DiskError::NotAllowed(_)
        | DiskError::NotAuthentic => Next::AskAgain,
        DiskError::Unreachable(e) => Next::Later(Error::Unreachable(format!("{} ({e})", name()))),
        DiskError::WrongDisk
        | DiskError::BadReply(_)
        | DiskError::Overtaken
        | DiskError::OtherRoom => Next::Later(Error::Unreachable(format!("{} ({e})", name()))),
        DiskError::NoSpace => Next::Never(Error::NoSpace),
        DiskError::Storage(e) => {
            Next::Never(Error::Io(std::io::Error::other(format!("{}: {e}", name()))))
        }
    }
}

/// Connections to disks, each made when first needed.
#[derive(Debug)]
pub(super) struct Disks {
    timeout: Duration,
    known: RwLock<HashMap<DiskId, (DiskAddress, Arc<DiskClient>)>>,
    /// A disk is not known, or did not answer: it may have been added or moved.
    may_have_moved: AtomicBool,
}

impl Disks {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            known: RwLock::default(),
            may_have_moved: AtomicBool::new(false),
        }
    }

    /// Takes in where the disks are now.
    pub(super) fn update(&self, disks: &[DiskAddress]) {
        let mut known = self.known.write();
        for address in disks {
            let same = known.get(&address.id).is_some_and(|(a, _)| a == address);
            if !same {
                let client = Arc::new(DiskClient::new(address.clone(), self.timeout));
                known.insert(address.id, (address.clone(), client));
            }
        }
    }

    pub(super) fn get(&self, disk: DiskId) -> Option<Arc<DiskClient>> {
        let known = self.known.read().get(&disk).map(|(_, c)| c.clone());
        if known.is_none() {
            self.may_have_moved.store(true, Ordering::Relaxed);
        }
        known
    }

    /// What to do after a disk refused or failed.
    pub(super) fn next(&self, disk: DiskId, e: DiskError) -> Next {
        if matches!(e, DiskError::Unreachable(_) | DiskError::WrongDisk) {
            self.may_have_moved.store(true, Ordering::Relaxed);
        }
        next(disk, e)
    }

    /// Whether the metadata server is to be asked where the disks are, since this was asked last.
    pub(super) fn ask_again(&self) -> bool {
        self.may_have_moved.swap(false, Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> usize {
        self.known.read().len()
    }
}

/// The ticket for blocks from `start` on, and how many of `blocks` it covers.
pub(super) fn covering(
    tickets: &[Ticket],
    disk: DiskId,
    start: u64,
    blocks: u64,
) -> Option<(&Ticket, u64)> {
    let holds = |e: &&BlockExtent| e.start <= start && start - e.start < e.blocks;
    tickets
        .iter()
        .filter(|ticket| ticket.capability.disk == disk)
        .filter_map(|ticket| {
            let extent = ticket.capability.extents.iter().find(holds)?;
            Some((ticket, blocks.min(extent.blocks - (start - extent.start))))
        })
        .max_by_key(|(_, covered)| *covered)
}
