//! A disk as its clients and its metadata server see it.
//!
//! 1. A reply that is not authentic, or not the answer to the very request, is never taken for one.
//! 2. No call waits for ever: a disk that does not answer within the time allowed is [`DiskError::Unreachable`]. The
//!    connection is made anew by itself at the next call.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BlockExtent, Boot, CapabilityId, DiskId, DiskKey, GroupId, Ticket};

/// What protects the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protection {
    /// Nothing: for measuring only.
    Open,
    /// Capabilities, MACs and replay detection.
    Secure,
    /// The same inside TLS 1.3.
    Private,
}

/// Where a disk is and how to speak with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskAddress {
    /// Which disk must answer.
    pub id: DiskId,
    /// Host and port.
    pub address: String,
    /// What protects the messages.
    pub protection: Protection,
    /// SHA-256 of the disk's certificate, which is checked in [`Protection::Private`].
    pub certificate: Option<[u8; 32]>,
}

/// Why a disk did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The capability was revoked: ask the metadata server for another.
    #[error("the capability was revoked")]
    Revoked,
    /// Its group is not valid any more, or the disk was started anew and does not know its groups yet.
    #[error("the capability's group is not valid")]
    UnknownGroup,
    /// Its time is over.
    #[error("the capability has expired")]
    Expired,
    /// It does not cover the blocks, or does not allow this.
    #[error("the capability does not allow this: {0}")]
    NotAllowed(&'static str),
    /// The disk says that the request is not authentic.
    #[error("the disk does not take the request for authentic")]
    NotAuthentic,
    /// The disk is another one.
    #[error("another disk answers at this address")]
    WrongDisk,
    /// No answer in time, or no connection.
    #[error("the disk cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    /// What came back is not the disk's answer to this request.
    #[error("a reply that is not the disk's: {0}")]
    BadReply(&'static str),
    /// The disk's own storage failed.
    #[error("the disk's storage failed: {0}")]
    Storage(String),
    /// No space left below the disk.
    #[error("no space left on the disk")]
    NoSpace,
}

/// A connection to one disk, made when first needed and made anew when it breaks. All methods may be called from many
/// threads at once; their requests are on the way together.
#[derive(Debug)]
pub struct DiskClient {
    _private: (),
}

impl DiskClient {
    /// A client of the disk at `address`; a call is given up after `patience` without an answer.
    pub fn new(address: DiskAddress, patience: Duration) -> Self {
        let _ = (address, patience);
        unimplemented!()
    }

    /// Reads whole blocks from `start` on; `out` has a multiple of [`crate::BLOCK_LEN`] bytes, at most 1 MiB.
    pub fn read(&self, ticket: &Ticket, start: u64, out: &mut [u8]) -> Result<(), DiskError> {
        let _ = (ticket, start, out);
        unimplemented!()
    }

    /// Writes whole blocks from `start` on, at most 1 MiB; not durable before a flush under the same [`Boot`].
    pub fn write(&self, ticket: &Ticket, start: u64, data: &[u8]) -> Result<Boot, DiskError> {
        let _ = (ticket, start, data);
        unimplemented!()
    }

    /// Makes durable what was acknowledged before; the boot under which it was.
    pub fn flush(&self, ticket: &Ticket) -> Result<Boot, DiskError> {
        let _ = ticket;
        unimplemented!()
    }
}

/// What a disk says of itself to its metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The disk.
    pub id: DiskId,
    /// Its present life.
    pub boot: Boot,
    /// Blocks in all.
    pub blocks: u64,
    /// Valid groups.
    pub groups: Vec<GroupId>,
    /// The disk's clock, seconds since 1970.
    pub clock: u64,
}

/// The metadata server's own way to a disk, authenticated by the disk's key.
#[derive(Debug)]
pub struct Admin {
    _private: (),
}

impl Admin {
    /// The way to the disk at `address`, whose key is `key`.
    pub fn new(address: DiskAddress, key: DiskKey, patience: Duration) -> Self {
        let _ = (address, key, patience);
        unimplemented!()
    }

    /// The disk's state.
    pub fn status(&self) -> Result<DiskStatus, DiskError> {
        unimplemented!()
    }

    /// From now on exactly these groups are valid; those that were not before begin with no revoked capability. Returns
    /// when no request under a group that went is running.
    pub fn set_groups(&self, groups: &[GroupId]) -> Result<(), DiskError> {
        let _ = groups;
        unimplemented!()
    }

    /// Revokes capabilities of a group. Returns when no request under any of them is running.
    pub fn revoke(&self, group: GroupId, capabilities: &[CapabilityId]) -> Result<(), DiskError> {
        let _ = (group, capabilities);
        unimplemented!()
    }

    /// Gives the space of blocks back.
    pub fn discard(&self, extents: &[BlockExtent]) -> Result<(), DiskError> {
        let _ = extents;
        unimplemented!()
    }
}
