//! Heads of requests and replies: bytes to values and back. `docs/netdisk.md` has the same as tables.
//!
//! 1. A head that parses has lengths within the protocol's bounds, and the payload its operation wants: nothing behind this
//!    module checks a size again.
//!
//! It deliberately does not know what makes a message authentic: `sign` does.

use crate::bytes::{array_at, u32_at, u64_at};
use crate::capability::{CAPABILITY_HEAD, CAPABILITY_MAX, EXTENT_LEN};
use crate::{BLOCK_LEN, Reason};

/// Bytes of a request's head: its fields, the payload's tag (16), and the MAC over both (32).
pub(crate) const REQUEST_LEN: usize = 120;
/// Bytes of a request's fields.
pub(crate) const REQUEST_FIELDS: usize = 72;
/// Bytes of a reply's head: its fields, the payload's tag (16), and the MAC over both (32).
pub(crate) const REPLY_LEN: usize = 112;
/// Bytes of a reply's fields.
pub(crate) const REPLY_FIELDS: usize = 64;
/// Bytes of a request's nonce.
pub(crate) const NONCE_LEN: usize = 16;
/// Most bytes of a payload.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;
/// Bytes of a room's id.
pub(crate) const ROOM_LEN: usize = 16;
/// Most groups that are valid at once.
pub const GROUPS_MAX: usize = 256;
/// Most capabilities of a group, and revocation bits: 64 KiB of them, as in the paper.
pub const CAPABILITIES_PER_GROUP: u32 = 524_288;
/// Most capabilities in one revocation.
pub(crate) const REVOKED_MAX: usize = 131_072;

const REQUEST_MAGIC: [u8; 4] = *b"SNDq";
const REPLY_MAGIC: [u8; 4] = *b"SNDr";
const VERSION: u8 = 3;
const SIGNED: u8 = 1;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Blocks to the client.
    Read = 1,
    /// Blocks from the client.
    Write = 2,
    /// What was written made durable.
    Flush = 3,
    /// The same as a write, and what was written before made durable, before it is answered.
    WriteDurable = 4,
    /// The disk's state, for the metadata server.
    Status = 16,
    /// The valid groups, from the metadata server.
    SetGroups = 17,
    /// Revocation of capabilities, from the metadata server.
    Revoke = 18,
    /// Space freed by the metadata server.
    Discard = 19,
    /// The disk taken for a room, or released, by the metadata server.
    Claim = 20,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 9] = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::WriteDurable,
        Op::Status,
        Op::SetGroups,
        Op::Revoke,
        Op::Discard,
        Op::Claim,
    ];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::WriteDurable => "write_durable",
            Op::Status => "status",
            Op::SetGroups => "set_groups",
            Op::Revoke => "revoke",
            Op::Discard => "discard",
            Op::Claim => "claim",
        }
    }

    /// Whether it is the metadata server's, under the management key.
    pub(crate) fn manages(self) -> bool {
        self as u8 >= 16
    }

    /// Whether it sets groups or frees space: each is for one sequence of the disk, so that none acts after a later one.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Op::SetGroups | Op::Discard)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == code)
    }
}

/// The fields of a request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) op: Op,
    pub(crate) capability_len: u16,
    /// Chosen by the client; the reply has the same.
    pub(crate) number: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) nonce: [u8; NONCE_LEN],
    /// The first block; of what is for one [sequence](Op::changes) of the disk, the [`Writer`](crate::Writer) that asks.
    pub(crate) start: u64,
    /// The number of blocks; of what is for one sequence, that one.
    pub(crate) blocks: u32,
    pub(crate) payload_len: u32,
}

impl RequestHead {
    pub(crate) fn encode(&self) -> [u8; REQUEST_FIELDS] {
        let mut out = [0; REQUEST_FIELDS];
        out[0..4].copy_from_slice(&REQUEST_MAGIC);
        out[4] = VERSION;
        out[5] = self.op as u8;
        out[6..8].copy_from_slice(&self.capability_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..32].copy_from_slice(&self.boot);
        out[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        out[40..56].copy_from_slice(&self.nonce);
        out[56..64].copy_from_slice(&self.start.to_le_bytes());
        out[64..68].copy_from_slice(&self.blocks.to_le_bytes());
        out[68..72].copy_from_slice(&self.payload_len.to_le_bytes());
        out
    }

    /// `open`: a capability may be missing.
    pub(crate) fn parse(bytes: &[u8; REQUEST_LEN], open: bool) -> Result<Self, Reason> {
        if bytes[0..4] != REQUEST_MAGIC || bytes[4] != VERSION {
            return Err(Reason::Malformed);
        }
        let head = Self {
            op: Op::from_code(bytes[5]).ok_or(Reason::Malformed)?,
            capability_len: u16::from_le_bytes(array_at(bytes, 6)),
            number: u64_at(bytes, 8),
            boot: array_at(bytes, 16),
            epoch: u64_at(bytes, 32),
            nonce: array_at(bytes, 40),
            start: u64_at(bytes, 56),
            blocks: u32_at(bytes, 64),
            payload_len: u32_at(bytes, 68),
        };
        if head.sizes_fit(open) {
            Ok(head)
        } else {
            Err(Reason::Malformed)
        }
    }

    fn sizes_fit(&self, open: bool) -> bool {
        let capability = usize::from(self.capability_len);
        let capability_fits = if self.op.manages() {
            capability == 0
        } else {
            let extents = capability.saturating_sub(CAPABILITY_HEAD);
            (open && capability == 0)
                || (extents > 0
                    && extents.is_multiple_of(EXTENT_LEN)
                    && capability <= CAPABILITY_MAX)
        };
        let payload = self.payload_len as usize;
        let blocks = self.blocks as usize;
        let some_blocks = (1..=PAYLOAD_MAX / BLOCK_LEN).contains(&blocks);
        let no_range = self.start == 0 && blocks == 0;
        capability_fits
            && match self.op {
                Op::Read => some_blocks && payload == 0,
                Op::Write | Op::WriteDurable => some_blocks && payload == blocks * BLOCK_LEN,
                Op::Flush | Op::Status => no_range && payload == 0,
                Op::SetGroups => payload.is_multiple_of(8) && payload <= GROUPS_MAX * 8,
                Op::Revoke => {
                    no_range
                        && payload.is_multiple_of(4)
                        && (12..=8 + 4 * REVOKED_MAX).contains(&payload)
                }
                Op::Discard => payload.is_multiple_of(16) && payload <= PAYLOAD_MAX,
                Op::Claim => no_range && payload == 2 * ROOM_LEN,
            }
    }

    /// Bytes of the payload that answers it when it is done.
    pub(crate) fn answer_len(&self) -> usize {
        match self.op {
            Op::Read => self.blocks as usize * BLOCK_LEN,
            _ => 0,
        }
    }
}

/// The fields of a reply's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyHead {
    pub(crate) op: u8,
    /// `None`: done.
    pub(crate) refused: Option<Reason>,
    /// Whether tag and MAC are there; else they are zeros.
    pub(crate) signed: bool,
    pub(crate) number: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) epoch: u64,
    /// Under which incarnation of unflushed writes this was done.
    pub(crate) incarnation: [u8; 16],
    pub(crate) payload_len: u32,
    /// How long the disk's own storage took, microseconds; what is longer than they can count is their largest number.
    pub(crate) storage_us: u32,
}

impl ReplyHead {
    pub(crate) fn encode(&self) -> [u8; REPLY_FIELDS] {
        let mut out = [0; REPLY_FIELDS];
        out[0..4].copy_from_slice(&REPLY_MAGIC);
        out[4] = VERSION;
        out[5] = self.op;
        out[6] = self.refused.map_or(0, Reason::code);
        out[7] = if self.signed { SIGNED } else { 0 };
        out[8..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..32].copy_from_slice(&self.boot);
        out[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        out[40..56].copy_from_slice(&self.incarnation);
        out[56..60].copy_from_slice(&self.payload_len.to_le_bytes());
        out[60..64].copy_from_slice(&self.storage_us.to_le_bytes());
        out
    }

    /// `None` for what is not a reply's head, or announces more than [`PAYLOAD_MAX`].
    pub(crate) fn parse(bytes: &[u8; REPLY_LEN]) -> Option<Self> {
        if bytes[0..4] != REPLY_MAGIC || bytes[4] != VERSION || bytes[7] > SIGNED {
            return None;
        }
        let refused = match bytes[6] {
            0 => None,
            code => Some(Reason::from_code(code)?),
        };
        let head = Self {
            op: bytes[5],
            refused,
            signed: bytes[7] == SIGNED,
            number: u64_at(bytes, 8),
            boot: array_at(bytes, 16),
            epoch: u64_at(bytes, 32),
            incarnation: array_at(bytes, 40),
            payload_len: u32_at(bytes, 56),
            storage_us: u32_at(bytes, 60),
        };
        (head.payload_len as usize <= PAYLOAD_MAX).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, capability_len: u16, blocks: u32, payload_len: u32) -> RequestHead {
        RequestHead {
            op,
            capability_len,
            number: 1,
            boot: [2; 16],
            epoch: 3,
            nonce: [4; 16],
            start: 0,
            blocks,
            payload_len,
        }
    }

    fn parse(head: &RequestHead) -> Result<RequestHead, Reason> {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..REQUEST_FIELDS].copy_from_slice(&head.encode());
        RequestHead::parse(&bytes, false)
    }

    #[test]
    fn a_request_parses_to_what_was_encoded() {
        for head in [
            request(Op::Read, 80, 256, 0),
            request(Op::Write, 1088, 256, 1 << 20),
            request(Op::Flush, 80, 0, 0),
            request(Op::WriteDurable, 80, 1, 4096),
            request(Op::Status, 0, 0, 0),
            request(Op::SetGroups, 0, 0, 0),
            request(Op::Revoke, 0, 0, 12),
            request(Op::SetGroups, 0, u32::MAX, 8),
            request(Op::Discard, 0, 0, 1 << 20),
            request(Op::Discard, 0, u32::MAX, 16),
            request(Op::Claim, 0, 0, 32),
        ] {
            assert_eq!(parse(&head), Ok(head));
        }
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        for head in [
            request(Op::Read, 80, 257, 0),
            request(Op::Read, 80, 0, 0),
            request(Op::Read, 80, 1, 1),
            request(Op::Read, 64, 1, 0),
            request(Op::Read, 81, 1, 0),
            request(Op::Read, 1104, 1, 0),
            request(Op::Read, 0, 1, 0),
            request(Op::Write, 80, 1, 4095),
            request(Op::Write, 80, u32::MAX, u32::MAX),
            request(Op::Flush, 80, 1, 0),
            request(Op::WriteDurable, 80, 1, 0),
            request(Op::WriteDurable, 0, 1, 4096),
            request(Op::Status, 80, 0, 0),
            request(Op::SetGroups, 0, 0, 7),
            request(Op::SetGroups, 0, 0, 257 * 8),
            request(Op::Revoke, 0, 0, 8),
            request(Op::Revoke, 0, 1, 12),
            request(Op::Revoke, 0, 0, 8 + 4 * 131_073),
            request(Op::Discard, 0, 0, (1 << 20) + 16),
            request(Op::Claim, 0, 0, 16),
            request(Op::Claim, 0, 1, 32),
        ] {
            assert_eq!(parse(&head), Err(Reason::Malformed), "{head:?}");
        }
    }

    #[test]
    fn a_reply_parses_to_what_was_encoded() {
        let head = ReplyHead {
            op: 1,
            refused: Some(Reason::Replayed),
            signed: true,
            number: 7,
            boot: [1; 16],
            epoch: 9,
            incarnation: [2; 16],
            payload_len: 4096,
            storage_us: 77,
        };
        let mut bytes = [0; REPLY_LEN];
        bytes[..REPLY_FIELDS].copy_from_slice(&head.encode());
        assert_eq!(ReplyHead::parse(&bytes), Some(head));
        bytes[59] = 1;
        assert_eq!(ReplyHead::parse(&bytes), None);
    }
}
