//! What the placement needs of a disk, and of who keeps the capabilities.

use std::fmt::Debug;
use std::io;

use netdisk::{Admin, BlockExtent, Boot, DiskClient, DiskError, DiskId, Ticket};

/// A disk, as [`DiskClient`] and [`Admin`] make it reachable.
pub trait Disk: Send + Sync + Debug {
    /// [`DiskClient::read`].
    fn read(&self, ticket: &Ticket, start: u64, out: &mut [u8]) -> Result<(), DiskError>;
    /// [`DiskClient::write`].
    fn write(&self, ticket: &Ticket, start: u64, data: &[u8]) -> Result<Boot, DiskError>;
    /// [`DiskClient::unanswered_writes`].
    fn unanswered_writes(&self) -> u64;
    /// [`DiskClient::flush`].
    fn flush(&self, ticket: &Ticket) -> Result<Boot, DiskError>;
    /// The disk's present incarnation.
    fn boot(&self) -> Result<Boot, DiskError>;
    /// [`Admin::discard`].
    fn discard(&self, extents: &[BlockExtent]) -> Result<(), DiskError>;
}

/// A disk on the network.
#[derive(Debug)]
pub struct NetworkDisk {
    /// For data.
    pub client: DiskClient,
    /// For what only the metadata server may do.
    pub admin: Admin,
}

impl Disk for NetworkDisk {
    fn read(&self, ticket: &Ticket, start: u64, out: &mut [u8]) -> Result<(), DiskError> {
        self.client.read(ticket, start, out)
    }

    fn write(&self, ticket: &Ticket, start: u64, data: &[u8]) -> Result<Boot, DiskError> {
        self.client.write(ticket, start, data)
    }

    fn unanswered_writes(&self) -> u64 {
        self.client.unanswered_writes()
    }

    fn flush(&self, ticket: &Ticket) -> Result<Boot, DiskError> {
        self.client.flush(ticket)
    }

    fn boot(&self) -> Result<Boot, DiskError> {
        self.admin.status().map(|status| status.boot)
    }

    fn discard(&self, extents: &[BlockExtent]) -> Result<(), DiskError> {
        self.admin.discard(extents)
    }
}

/// Who gives capabilities and takes them back. Called while the room reads, writes and commits: it must not call the room.
pub trait Keeper: Send + Sync + Debug {
    /// A ticket of the metadata server itself (client 0) to read and write all of a disk. `refused`: the disk did not take the
    /// one given last, for its group, its time or a revocation.
    fn ticket(&self, disk: DiskId, refused: bool) -> Result<Ticket, DiskError>;

    /// Revokes every capability of a client that covers any of these blocks. When it returns no request under one is running.
    fn revoke(&self, disk: DiskId, extents: &[BlockExtent]) -> Result<(), DiskError>;

    /// Makes everything worthless that was given for a disk, the metadata server's own tickets too. When it returns no request under one
    /// is running.
    fn renew(&self, disk: DiskId) -> Result<(), DiskError>;
}

/// A disk that failed, within an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("disk {}: {error}", short(.disk))]
pub struct DiskFailed {
    /// Which.
    pub disk: DiskId,
    /// How.
    #[source]
    pub error: DiskError,
}

impl DiskFailed {
    /// The disk's failure that an error of the room's storage comes from, if it does.
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether an error of the room's storage says that a disk is away: what failed may be done when it is there again.
    pub fn is_away(error: &io::Error) -> bool {
        match Self::within(error) {
            Some(failed) => matches!(
                failed.error,
                DiskError::Unreachable(_) | DiskError::UnknownGroup
            ),
            None => error.kind() == io::ErrorKind::NotConnected,
        }
    }
}

fn short(disk: &DiskId) -> String {
    disk.0[..4].iter().map(|b| format!("{b:02x}")).collect()
}

pub(super) fn failed(disk: DiskId, error: DiskError) -> io::Error {
    let kind = match &error {
        DiskError::NoSpace => io::ErrorKind::StorageFull,
        DiskError::Unreachable(_) => io::ErrorKind::HostUnreachable,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, DiskFailed { disk, error })
}
