//! A disk as its clients and its metadata server see it.
//!
//! 1. A reply that is not authentic, or not the answer to the very request, is never taken for one.
//! 2. No call waits for ever: a disk that does not answer within the time allowed is [`DiskError::Unreachable`]. The
//!    next call opens the connection again.

mod admin;
mod call;
mod connection;

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use admin::{Admin, DiskStatus, Lifetime, Writer};

use crate::frame::{Op, PAYLOAD_MAX};
use crate::keys::MessageKeys;
use crate::{BLOCK_LEN, Boot, DiskId, Ticket};
use call::{Answer, Call, Line};

/// Connections to a disk that calls are spread over.
const CONNECTIONS: usize = 2;

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

impl Protection {
    /// What of a payload its tag covers. Inside TLS nothing: its records authenticate all that is in them.
    pub(crate) fn tagged(self, payload: &[u8]) -> &[u8] {
        match self {
            Self::Open | Self::Secure => payload,
            Self::Private => &[],
        }
    }
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
    /// Its group is not valid any more, or the disk was restarted and does not know its groups yet.
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
    /// Another metadata server has taken this one's place.
    #[error("another metadata server has taken the disk over")]
    Overtaken,
    /// It is in use by another room, whose data is on it.
    #[error("the disk belongs to another room")]
    OtherRoom,
}

/// A connection to one disk, opened when first needed and opened again when it breaks. All methods may be called from many
/// threads at once; their requests are on the way together.
///
/// A call whose connection is lost is made again until the timeout, so a write may be done twice. Nobody may write
/// other data to the same blocks before the capability of the first write was revoked.
#[derive(Debug)]
pub struct DiskClient {
    line: Line,
}

impl DiskClient {
    /// A client of the disk at `address`; a call fails after `timeout` without an answer.
    pub fn new(address: DiskAddress, timeout: Duration) -> Self {
        Self {
            line: Line::new(address, timeout, CONNECTIONS),
        }
    }

    /// The disk it speaks with.
    pub fn address(&self) -> &DiskAddress {
        self.line.address()
    }

    /// Reads whole blocks from `start` on; `out` has a multiple of [`crate::BLOCK_LEN`] bytes, at most 1 MiB.
    pub fn read(&self, ticket: &Ticket, start: u64, out: &mut [u8]) -> Result<(), DiskError> {
        let blocks = blocks(out.len())?;
        if blocks == 0 {
            return Ok(());
        }
        let answer = self.ask(ticket, Op::Read, start, blocks, &[], out.len())?;
        if answer.payload.len() != out.len() {
            answer.connection.end();
            return Err(DiskError::BadReply("it has another length"));
        }
        out.copy_from_slice(&answer.payload);
        answer.connection.recycle(answer.payload);
        Ok(())
    }

    /// Writes whole blocks from `start` on, at most 1 MiB; not durable before a flush under the same [`Boot`].
    pub fn write(&self, ticket: &Ticket, start: u64, data: &[u8]) -> Result<Boot, DiskError> {
        self.write_by(Op::Write, ticket, start, data)
    }

    /// The same, and durable when it returns: for little data that somebody waits for, one request less than with a flush. A disk
    /// of a version before this does not understand it.
    pub fn write_durable(
        &self,
        ticket: &Ticket,
        start: u64,
        data: &[u8],
    ) -> Result<Boot, DiskError> {
        self.write_by(Op::WriteDurable, ticket, start, data)
    }

    fn write_by(
        &self,
        op: Op,
        ticket: &Ticket,
        start: u64,
        data: &[u8],
    ) -> Result<Boot, DiskError> {
        let blocks = blocks(data.len())?;
        if blocks == 0 {
            return Err(DiskError::NotAllowed("no block is to be written"));
        }
        let answer = self.ask(ticket, op, start, blocks, data, 0)?;
        Ok(answer.incarnation)
    }

    /// How many writes were sent, and not answered, up to now. Each may still be done, also where its call was answered after a
    /// repetition, until its capability is revoked.
    pub fn unanswered_writes(&self) -> u64 {
        self.line.unanswered_writes()
    }

    /// Makes durable what was acknowledged before; the boot under which it was.
    pub fn flush(&self, ticket: &Ticket) -> Result<Boot, DiskError> {
        let answer = self.ask(ticket, Op::Flush, 0, 0, &[], 0)?;
        Ok(answer.incarnation)
    }

    fn ask(
        &self,
        ticket: &Ticket,
        op: Op,
        start: u64,
        blocks: u32,
        payload: &[u8],
        most: usize,
    ) -> Result<Answer, DiskError> {
        if ticket.capability.disk != self.address().id {
            return Err(DiskError::WrongDisk);
        }
        let call = Call {
            op,
            capability: &ticket.capability.encode(),
            keys: &MessageKeys::of(&ticket.secret),
            boot: None,
            start,
            blocks,
            payload,
        };
        if call.capability.len() > crate::capability::CAPABILITY_MAX {
            return Err(DiskError::NotAllowed("it has too many extents"));
        }
        self.line.call(&call, most)
    }
}

/// Blocks in `len` bytes.
fn blocks(len: usize) -> Result<u32, DiskError> {
    if !len.is_multiple_of(BLOCK_LEN) || len > PAYLOAD_MAX {
        return Err(DiskError::NotAllowed(
            "only whole blocks, 1 MiB at most, are read and written at once",
        ));
    }
    // At most 256.
    Ok((len / BLOCK_LEN) as u32)
}
