//! Capabilities: who may do what to which blocks, and the secret that proves it.
//!
//! 1. Who knows a disk's key computes a capability's secret; nobody else can. The secret travels to the client only inside
//!    a protected channel, and from the client to nobody.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of one block, the unit of extents.
pub const BLOCK_LEN: usize = 4096;
/// Most extents in one capability.
pub const EXTENTS_MAX: usize = 64;

/// Identity of a disk: random, made with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiskId(pub [u8; 16]);

/// A client of the disks; 0 is the metadata server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u64);

/// A capability group, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u64);

/// Index of a capability's bit among the revocation bits of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CapabilityId(pub u32);

/// One life of a disk server, and one life of what it has written without a flush: two of these are equal only when
/// everything acknowledged under the first is still there under the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Boot(pub [u8; 16]);

/// A run of blocks of a disk, in blocks of [`BLOCK_LEN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockExtent {
    /// The first block.
    pub start: u64,
    /// How many, from 1; `start + blocks` does not overflow.
    pub blocks: u64,
}

/// What a capability allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Reading.
    Read,
    /// Writing, and flushing.
    Write,
    /// Both.
    ReadWrite,
}

/// The right to do something to some blocks of one disk. Not secret; worth nothing without its [`Secret`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The disk.
    pub disk: DiskId,
    /// Who it was given to.
    pub client: ClientId,
    /// Its group.
    pub group: GroupId,
    /// Its bit.
    pub id: CapabilityId,
    /// What it allows.
    pub mode: Mode,
    /// Seconds since 1970 after which the disk refuses it, by the disk's clock.
    pub expires: u64,
    /// Random, fresh for each capability.
    pub nonce: [u8; 16],
    /// The blocks: 1 to [`EXTENTS_MAX`] extents.
    pub extents: Vec<BlockExtent>,
}

/// MAC(disk key, capability): who knows it may use the capability.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct Secret(pub(crate) [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A capability with its secret: what the metadata server gives a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ticket {
    /// The capability.
    pub capability: Capability,
    /// Its secret.
    pub secret: Secret,
}

/// The key that a disk shares with its metadata server and with nobody else.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct DiskKey([u8; 32]);

impl fmt::Debug for DiskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskKey(..)")
    }
}

impl DiskKey {
    /// A key of these 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The capability with its secret.
    pub fn ticket(&self, capability: Capability) -> Ticket {
        let _ = capability;
        unimplemented!()
    }
}
