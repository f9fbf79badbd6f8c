//! The metadata server's own way to a disk.
//!
//! 1. Its calls are signed with a key that only disk and metadata server can derive, and that signs nothing else.
//! 2. What sets groups or frees space does nothing once a later one was answered, however late it arrives.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DiskAddress;
use super::DiskError;
use super::call::{Answer, Call, Line};
use crate::bytes::{array_at, u64_at};
use crate::frame::{GROUPS_MAX, Op, PAYLOAD_MAX, REVOKED_MAX};
use crate::keys::MessageKeys;
use crate::{BlockExtent, Boot, CapabilityId, DiskId, DiskKey, GroupId};

/// Bytes of a status without its groups.
const STATUS_HEAD: usize = 32;
/// Extents in one request to discard.
const DISCARD_MAX: usize = PAYLOAD_MAX / 16;

/// What a disk says of itself to its metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The disk.
    pub id: DiskId,
    /// Its present incarnation.
    pub boot: Boot,
    /// Blocks in all.
    pub blocks: u64,
    /// Valid groups, in order.
    pub groups: Vec<GroupId>,
    /// The disk's clock, seconds since 1970.
    pub clock: u64,
}

/// One of several metadata servers that may take each other's place: the later one has the higher number. 0: there are no others. A disk
/// that has had its groups set by one takes no groups from those before it, and frees no space for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer(pub u64);

/// A disk server from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime([u8; 16]);

/// The metadata server's own way to a disk, authenticated by the disk's key.
#[derive(Debug)]
pub struct Admin {
    line: Line,
    keys: Keys,
    writer: Writer,
}

struct Keys(MessageKeys);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Admin {
    /// The way to the disk at `address`, whose key is `key`. A revocation waits for requests that run, so `timeout` is best
    /// longer than a disk's slowest flush.
    pub fn new(address: DiskAddress, key: DiskKey, timeout: Duration) -> Self {
        Self {
            line: Line::new(address, timeout, 1),
            keys: Keys(MessageKeys::management(&key)),
            writer: Writer::default(),
        }
    }

    /// The same for one of several metadata servers that may take each other's place.
    #[must_use]
    pub fn of(self, writer: Writer) -> Self {
        Self { writer, ..self }
    }

    /// The disk it speaks with.
    pub fn address(&self) -> &DiskAddress {
        self.line.address()
    }

    /// The disk's state.
    pub fn status(&self) -> Result<DiskStatus, DiskError> {
        let answer = self.ask(Op::Status, &[], STATUS_HEAD + GROUPS_MAX * 8)?;
        let bytes = &answer.payload;
        if bytes.len() < STATUS_HEAD || bytes.len() % 8 != 0 {
            return Err(DiskError::BadReply("it has another length"));
        }
        let status = DiskStatus {
            id: DiskId(array_at(bytes, 0)),
            boot: answer.incarnation,
            blocks: u64_at(bytes, 16),
            clock: u64_at(bytes, 24),
            groups: bytes[STATUS_HEAD..]
                .chunks_exact(8)
                .map(|bytes| GroupId(u64_at(bytes, 0)))
                .collect(),
        };
        if status.id != self.address().id {
            return Err(DiskError::WrongDisk);
        }
        Ok(status)
    }

    /// What the disk server is now: it is another one after each restart.
    ///
    /// # Errors
    /// As for [`status`](Self::status).
    pub fn lifetime(&self) -> Result<Lifetime, DiskError> {
        self.status()?;
        Ok(Lifetime(self.line.boot()))
    }

    /// From now on exactly these groups are valid, [`GROUPS_MAX`] at most; those that were not before begin with no revoked
    /// capability. Returns when no request under a group that went is running.
    ///
    /// # Errors
    /// `Overtaken` where a later [`Writer`] set groups before.
    pub fn set_groups(&self, groups: &[GroupId]) -> Result<(), DiskError> {
        self.set_groups_in(None, groups)
    }

    /// The same, unless the disk was restarted since this lifetime of it: it has forgotten then who overtook whom.
    ///
    /// # Errors
    /// As for [`set_groups`](Self::set_groups); `Unreachable` where it was restarted.
    pub fn set_groups_of(&self, lifetime: Lifetime, groups: &[GroupId]) -> Result<(), DiskError> {
        self.set_groups_in(Some(lifetime.0), groups)
    }

    fn set_groups_in(&self, boot: Option<[u8; 16]>, groups: &[GroupId]) -> Result<(), DiskError> {
        if groups.len() > GROUPS_MAX {
            return Err(DiskError::NotAllowed("too many groups"));
        }
        let payload: Vec<u8> = groups.iter().flat_map(|g| g.0.to_le_bytes()).collect();
        self.ask_in(boot, Op::SetGroups, &payload, 0).map(drop)
    }

    /// Takes the disk for the room with this id, durably; nothing happens where it has it already. A disk of a version before this does
    /// not understand it, which is `NotAuthentic`.
    ///
    /// # Errors
    /// `OtherRoom` where it is another room's.
    pub fn claim(&self, room: [u8; 16]) -> Result<(), DiskError> {
        self.ask(Op::Claim, &[room, room].concat(), 0).map(drop)
    }

    /// Releases the disk, which is then for any room.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn release(&self, room: [u8; 16]) -> Result<(), DiskError> {
        self.ask(Op::Claim, &[room, [0; 16]].concat(), 0).map(drop)
    }

    /// Revokes capabilities of a group. Returns when no request under any of them is running.
    pub fn revoke(&self, group: GroupId, capabilities: &[CapabilityId]) -> Result<(), DiskError> {
        for some in capabilities.chunks(REVOKED_MAX) {
            let mut payload = Vec::with_capacity(8 + some.len() * 4);
            payload.extend_from_slice(&group.0.to_le_bytes());
            payload.extend(some.iter().flat_map(|id| id.0.to_le_bytes()));
            self.ask(Op::Revoke, &payload, 0)?;
        }
        Ok(())
    }

    /// Gives the space of blocks back.
    ///
    /// # Errors
    /// `Overtaken` where a later [`Writer`] has set groups, `UnknownGroup` where this one has not since the disk's start.
    pub fn discard(&self, extents: &[BlockExtent]) -> Result<(), DiskError> {
        for some in extents.chunks(DISCARD_MAX) {
            let payload: Vec<u8> = some
                .iter()
                .flat_map(|extent| [extent.start.to_le_bytes(), extent.blocks.to_le_bytes()])
                .flatten()
                .collect();
            self.ask(Op::Discard, &payload, 0)?;
        }
        Ok(())
    }

    fn ask(&self, op: Op, payload: &[u8], most: usize) -> Result<Answer, DiskError> {
        self.ask_in(None, op, payload, most)
    }

    fn ask_in(
        &self,
        boot: Option<[u8; 16]>,
        op: Op,
        payload: &[u8],
        most: usize,
    ) -> Result<Answer, DiskError> {
        let start = match op {
            Op::SetGroups | Op::Discard => self.writer.0,
            _ => 0,
        };
        let call = Call {
            op,
            capability: &[],
            keys: &self.keys.0,
            boot,
            start,
            blocks: 0,
            payload,
        };
        self.line.call(&call, most)
    }
}
