//! The protocol's numbers and messages, as bytes: pure functions.
//!
//! Protocol: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>. All numbers are big-endian.
//!
//! 1. A request's numbers are unchecked here, except its magic: only who knows the export can say what is too long.
//!
//! It deliberately does not know sockets and devices.

use std::io;

pub(crate) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

/// Handshake flags of both sides: fixed newstyle, and no zeros after `EXPORT_NAME`.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// The number of `base:allocation`, the only metadata context, on every connection.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// Longest name, description or query of a context, bytes.
pub(crate) const STRING_MAX: usize = 4096;
/// Longest payload of a request or of an answer, bytes; the protocol's own default.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// Options a client can ask for.
pub(crate) mod opt {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Answers to options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Rep {
    Ack = 1,
    Server = 2,
    Info = 3,
    MetaContext = 4,
    Unsupported = (1 << 31) + 1,
    Policy = (1 << 31) + 2,
    Invalid = (1 << 31) + 3,
    TlsRequired = (1 << 31) + 5,
    Unknown = (1 << 31) + 6,
    TooBig = (1 << 31) + 9,
    ExtendedHeaders = (1 << 31) + 10,
}

/// What `INFO` and `GO` can be asked for, and answer.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub(crate) mod flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DF: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const CACHE: u16 = 1 << 10;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a command.
pub(crate) mod cmd_flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Chunks of a structured reply.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const BLOCK_STATUS_EXT: u16 = 6;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
}

/// Flags of `base:allocation`.
pub(crate) mod state {
    pub(crate) const HOLE: u32 = 1;
    pub(crate) const ZERO: u32 = 2;
}

/// Commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// A number nobody gave a meaning to.
    Other(u16),
}

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            other => Self::Other(other),
        }
    }
}

/// Errors of the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Errno {
    Permission = 1,
    Io = 5,
    Memory = 12,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
}

impl Errno {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            io::ErrorKind::Unsupported => Self::NotSupported,
            io::ErrorKind::OutOfMemory => Self::Memory,
            io::ErrorKind::InvalidInput => Self::Invalid,
            _ => Self::Io,
        }
    }
}

/// How requests and replies look on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Form {
    #[default]
    Simple,
    Structured,
    Extended,
}

impl Form {
    /// Bytes of a request without its payload.
    pub(crate) fn request_len(self) -> usize {
        match self {
            Self::Extended => 32,
            Self::Simple | Self::Structured => 28,
        }
    }
}

/// A request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) flags: u16,
    pub(crate) command: Command,
    /// The client's own; comes back in every reply.
    pub(crate) cookie: u64,
    /// Bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl RequestHead {
    /// From [`Form::request_len`] bytes. `None` where these are no request.
    pub(crate) fn parse(bytes: &[u8], form: Form) -> Option<Self> {
        let (magic, len) = match form {
            Form::Extended => (0x21e4_1c71, u64_at(bytes, 24)),
            Form::Simple | Form::Structured => (0x2560_9513, u32_at(bytes, 24).into()),
        };
        (u32_at(bytes, 0) == magic).then(|| Self {
            flags: u16_at(bytes, 4),
            command: u16_at(bytes, 6).into(),
            cookie: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            len,
        })
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes that follow the request.
    pub(crate) fn payload_len(&self, form: Form) -> u64 {
        let payload = match (self.command, form) {
            (Command::Write, _) => true,
            (_, Form::Extended) => self.has(cmd_flag::PAYLOAD_LEN),
            _ => false,
        };
        if payload { self.len } else { 0 }
    }
}

/// Longest beginning of a reply or chunk: an extended one with an offset.
pub(crate) const HEAD_MAX: usize = 40;

/// The beginning of a reply, on the stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Head {
    fn new() -> Self {
        Self {
            bytes: [0; HEAD_MAX],
            len: 0,
        }
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// A simple reply; a successful read's data follow it.
    pub(crate) fn simple(cookie: u64, error: u32) -> Self {
        let mut head = Self::new();
        head.put(0x6744_6698_u32.to_be_bytes());
        head.put(error.to_be_bytes());
        head.put(cookie.to_be_bytes());
        head
    }

    /// A chunk with `len` bytes of payload, which follow it.
    pub(crate) fn chunk(
        form: Form,
        request: &RequestHead,
        kind: u16,
        done: bool,
        len: u32,
    ) -> Self {
        let mut head = Self::new();
        let magic: u32 = match form {
            Form::Extended => 0x6e8a_278c,
            Form::Simple | Form::Structured => 0x668e_33ef,
        };
        head.put(magic.to_be_bytes());
        head.put(u16::from(done).to_be_bytes());
        head.put(kind.to_be_bytes());
        head.put(request.cookie.to_be_bytes());
        if form == Form::Extended {
            head.put(request.offset.to_be_bytes());
            head.put(u64::from(len).to_be_bytes());
        } else {
            head.put(len.to_be_bytes());
        }
        head
    }

    /// A chunk of `len` bytes of data from `offset`, which follow it.
    pub(crate) fn data(
        form: Form,
        request: &RequestHead,
        done: bool,
        offset: u64,
        len: u32,
    ) -> Self {
        let mut head = Self::chunk(form, request, chunk::OFFSET_DATA, done, len + 8);
        head.put(offset.to_be_bytes());
        head
    }
}

/// An answer to an option.
pub(crate) fn option_reply(option: u32, kind: Rep, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + data.len());
    out.extend_from_slice(&OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(kind as u32).to_be_bytes());
    // Ours are short: names, descriptions, words.
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
    out
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(part(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(part(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(part(bytes, at))
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
