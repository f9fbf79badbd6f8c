//! Capabilities: who may do what to which blocks, and the secret that proves it.
//!
//! 1. Who knows a disk's key computes a capability's secret; nobody else can. The secret travels to the client only inside
//!    a protected channel, and from the client to nobody.

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::bytes::{array_at, u32_at, u64_at};

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

/// One incarnation of a disk server and of its unflushed writes: two of these are equal only when everything
/// acknowledged under the first is still there under the second.
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

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Two keys are equal; takes the same time wherever they differ.
    pub fn same(&self, other: &DiskKey) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Bytes of a capability without its extents.
pub(crate) const CAPABILITY_HEAD: usize = 64;
/// Bytes of one extent in a capability.
pub(crate) const EXTENT_LEN: usize = 16;
/// Most bytes of a capability.
pub(crate) const CAPABILITY_MAX: usize = CAPABILITY_HEAD + EXTENTS_MAX * EXTENT_LEN;
/// Version of the capability's form.
const VERSION: u8 = 1;

impl BlockExtent {
    /// The block after the last one; `None` where that overflows or the extent is empty.
    pub(crate) fn end(&self) -> Option<u64> {
        if self.blocks == 0 {
            return None;
        }
        self.start.checked_add(self.blocks)
    }
}

impl Mode {
    fn code(self) -> u8 {
        match self {
            Mode::Read => 1,
            Mode::Write => 2,
            Mode::ReadWrite => 3,
        }
    }

    /// Whether it allows reading.
    pub(crate) fn reads(self) -> bool {
        self.code() & 1 != 0
    }

    /// Whether it allows writing and flushing.
    pub(crate) fn writes(self) -> bool {
        self.code() & 2 != 0
    }
}

impl Capability {
    /// The bytes that travel, and that the secret is the MAC of (`docs/netdisk.md`). There is one form only.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(CAPABILITY_HEAD + self.extents.len() * EXTENT_LEN);
        // More extents than a byte counts are cut by `parse`, which every disk applies: nothing is widened.
        let count = u8::try_from(self.extents.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&[VERSION, self.mode.code(), count, 0]);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&self.group.0.to_le_bytes());
        out.extend_from_slice(&self.disk.0);
        out.extend_from_slice(&self.client.0.to_le_bytes());
        out.extend_from_slice(&self.expires.to_le_bytes());
        out.extend_from_slice(&self.nonce);
        for extent in &self.extents {
            out.extend_from_slice(&extent.start.to_le_bytes());
            out.extend_from_slice(&extent.blocks.to_le_bytes());
        }
        out
    }

    /// Takes exactly the bytes of [`Self::encode`] of a capability with 1 to [`EXTENTS_MAX`] extents, none of which is
    /// empty or overflows.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, extents) = bytes.split_at_checked(CAPABILITY_HEAD)?;
        let count = usize::from(head[2]);
        if head[0] != VERSION || head[3] != 0 || count == 0 || count > EXTENTS_MAX {
            return None;
        }
        if extents.len() != count * EXTENT_LEN {
            return None;
        }
        let mode = match head[1] {
            1 => Mode::Read,
            2 => Mode::Write,
            3 => Mode::ReadWrite,
            _ => return None,
        };
        let extents = extents
            .chunks_exact(EXTENT_LEN)
            .map(|bytes| BlockExtent {
                start: u64_at(bytes, 0),
                blocks: u64_at(bytes, 8),
            })
            .collect::<Vec<_>>();
        if extents.iter().any(|extent| extent.end().is_none()) {
            return None;
        }
        Some(Self {
            mode,
            id: CapabilityId(u32_at(head, 4)),
            group: GroupId(u64_at(head, 8)),
            disk: DiskId(array_at(head, 16)),
            client: ClientId(u64_at(head, 32)),
            expires: u64_at(head, 40),
            nonce: array_at(head, 48),
            extents,
        })
    }

    /// Whether all of `start..start + blocks` is covered. A range may be in several extents that touch.
    pub(crate) fn covers(&self, start: u64, blocks: u64) -> bool {
        let Some(end) = start.checked_add(blocks) else {
            return false;
        };
        let mut at = start;
        while at < end {
            // `parse` saw that no extent's end overflows; one made by hand may.
            let next = self
                .extents
                .iter()
                .filter(|extent| extent.start <= at)
                .filter_map(BlockExtent::end)
                .filter(|end| *end > at)
                .max();
            match next {
                Some(next) => at = next,
                None => return false,
            }
        }
        blocks > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability(extents: &[(u64, u64)]) -> Capability {
        Capability {
            disk: DiskId([1; 16]),
            client: ClientId(2),
            group: GroupId(3),
            id: CapabilityId(4),
            mode: Mode::ReadWrite,
            expires: 5,
            nonce: [6; 16],
            extents: extents
                .iter()
                .map(|(start, blocks)| BlockExtent {
                    start: *start,
                    blocks: *blocks,
                })
                .collect(),
        }
    }

    #[test]
    fn a_capability_has_one_form() {
        let capability = capability(&[(10, 5), (100, 1)]);
        let bytes = capability.encode();
        assert_eq!(bytes.len(), 64 + 32);
        assert_eq!(Capability::parse(&bytes), Some(capability));
        for len in 0..bytes.len() {
            assert_eq!(Capability::parse(&bytes[..len]), None, "cut to {len}");
        }
        let longer = [&bytes[..], &[0; 16]].concat();
        assert_eq!(Capability::parse(&longer), None);
    }

    #[test]
    fn empty_overflowing_missing_and_too_many_extents_are_refused() {
        for extents in [
            &[][..],
            &[(1, 0)],
            &[(u64::MAX, 1)],
            &[(1, u64::MAX)],
            &[(1, 1); 65],
        ] {
            assert_eq!(Capability::parse(&capability(extents).encode()), None);
        }
        assert!(Capability::parse(&capability(&[(1, 1); 64]).encode()).is_some());
    }

    #[test]
    fn a_range_is_covered_by_extents_that_touch_and_by_nothing_less() {
        let capability = capability(&[(15, 5), (10, 5), (30, 10)]);
        for (start, blocks) in [(10, 1), (10, 10), (12, 8), (30, 10)] {
            assert!(capability.covers(start, blocks), "{start}+{blocks}");
        }
        for (start, blocks) in [
            (9, 1),
            (9, 2),
            (10, 11),
            (19, 12),
            (40, 1),
            (10, 0),
            (10, u64::MAX),
            (u64::MAX, 1),
        ] {
            assert!(!capability.covers(start, blocks), "{start}+{blocks}");
        }
    }

    #[test]
    fn each_capability_and_each_disk_has_its_own_secret() {
        let key = DiskKey::new([1; 32]);
        let one = key.ticket(capability(&[(1, 1)]));
        let wider = key.ticket(capability(&[(1, 2)]));
        let other = DiskKey::new([2; 32]).ticket(capability(&[(1, 1)]));
        assert_ne!(one.secret.0, wider.secret.0);
        assert_ne!(one.secret.0, other.secret.0);
        assert_eq!(one.secret.0, key.ticket(capability(&[(1, 1)])).secret.0);
        assert_eq!(
            format!("{:?} {key:?}", one.secret),
            "Secret(..) DiskKey(..)"
        );
    }
}
