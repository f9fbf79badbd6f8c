//! The form of a stream: frames, each with a digest over all of the stream up to it.
//!
//! 1. A reader without any key notices that a stream is cut, reordered, repeated in part or mixed with another one: a frame's
//!    digest is of the frame and the digest before it, and the last frame is the end.
//! 2. Digests are not keyed: anyone can write a stream. What is in it is proved when it is opened with the key.
//!
//! It deliberately does not know where anything is stored.

use std::io::{self, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};

use crate::blocks::BLOCK;
use crate::{Error, Result};

pub(super) const PREAMBLE: [u8; 16] = *b"SRSTREAM\x01\0\0\0\0\0\0\0";
/// Bytes of a frame's payload, at most.
pub(super) const PAYLOAD_MAX: usize = (1 << 20) + 64;
/// Bytes of data that one frame carries, at most.
pub(super) const DATA_MAX: u64 = 1 << 20;

const BEGIN: u8 = 1;
pub(super) const DATA: u8 = 2;
const FILE: u8 = 3;
pub(super) const END: u8 = 4;

/// Bytes before a frame's payload: its kind, three zeros, the payload's length.
pub(super) const HEAD_LEN: usize = 8;
/// Where in the payload of a data frame the number of its block is, 4 bytes; the data follows.
pub(super) const BLOCK_AT: usize = 8;

/// What a stream says of itself first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    /// The room's id.
    pub(super) room: [u8; 16],
    /// The epoch of its keys.
    pub(super) epoch: u32,
    /// The moment that the receiver must have; zeros: none, the stream is the whole.
    pub(super) since: [u8; 16],
    /// The moment that it has afterwards.
    pub(super) to: [u8; 16],
    /// Data frames that are left out, because the receiver has them.
    pub(super) skipped: u64,
    /// The digest of where their data is.
    pub(super) places: [u8; 32],
    /// Bytes of data, those left out included.
    pub(super) bytes: u64,
    /// Of the catalog that a whole stream carries; empty in others.
    pub(super) lineage: String,
    /// The same.
    pub(super) generation: u64,
}

/// What a file in a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Header,
    Changes,
    Catalog,
    CatalogPages,
}

impl Name {
    pub(super) const ALL: [Name; 4] = [
        Name::Header,
        Name::Changes,
        Name::Catalog,
        Name::CatalogPages,
    ];

    fn number(self) -> u8 {
        self as u8
    }

    fn parse(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A frame.
#[derive(Debug)]
pub(super) enum Frame {
    Begin(Begin),
    /// Sealed bytes of a segment, whole blocks.
    Data {
        segment: u64,
        block: u32,
        bytes: Vec<u8>,
    },
    /// A part of a file.
    File {
        name: Name,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Nothing follows: the number of frames before, and the bytes of data in them.
    End {
        frames: u64,
        bytes: u64,
    },
}

/// The digest of where data is: of a frame's place, and the digest before it.
pub(super) fn place_digest(before: &[u8; 32], segment: u64, block: u32, len: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"strongroom places\0");
    hasher.update(before);
    hasher.update(&segment.to_le_bytes());
    hasher.update(&block.to_le_bytes());
    hasher.update(&len.to_le_bytes());
    hasher.finalize().into()
}

/// The digest before the first data frame.
pub(super) fn no_places(room: &[u8; 16], since: &[u8; 16], to: &[u8; 16]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"strongroom no places\0");
    for part in [room, since, to] {
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn next(chain: &[u8; 32], head: &[u8; HEAD_LEN], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(chain);
    hasher.update(head);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn frame_head(kind: u8, len: usize) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[0] = kind;
    head[4..].copy_from_slice(&(len as u32).to_le_bytes());
    head
}

/// Writes a frame behind those with this digest. Its own digest.
pub(super) fn put_frame(
    out: &mut dyn Write,
    chain: &[u8; 32],
    kind: u8,
    parts: &[&[u8]],
) -> io::Result<[u8; 32]> {
    let head = frame_head(kind, parts.iter().map(|part| part.len()).sum());
    let chain = next(chain, &head, parts);
    out.write_all(&head)?;
    for part in parts {
        out.write_all(part)?;
    }
    out.write_all(&chain)?;
    Ok(chain)
}

/// Writes a stream.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    chain: [u8; 32],
    frames: u64,
    bytes: u64,
    /// Bytes written.
    pub(super) written: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, begin: &Begin) -> io::Result<Self> {
        out.write_all(&PREAMBLE)?;
        let mut writer = Self {
            out,
            chain: blake3::hash(&PREAMBLE).into(),
            frames: 0,
            bytes: 0,
            written: PREAMBLE.len() as u64,
        };
        // A vector takes everything.
        let begin = postcard::to_extend(begin, Vec::new()).expect("a beginning can be encoded");
        writer.frame(BEGIN, &[&begin])?;
        Ok(writer)
    }

    fn frame(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
        self.chain = put_frame(self.out, &self.chain, kind, parts)?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.frames += 1;
        self.written += (HEAD_LEN + len + self.chain.len()) as u64;
        Ok(())
    }

    pub(super) fn data(&mut self, segment: u64, block: u32, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.frame(DATA, &[&segment.to_le_bytes(), &block.to_le_bytes(), bytes])
    }

    pub(super) fn file(&mut self, name: Name, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.frame(FILE, &[&[name.number()], &offset.to_le_bytes(), bytes])
    }

    pub(super) fn end(mut self) -> io::Result<u64> {
        let (frames, bytes) = (self.frames.to_le_bytes(), self.bytes.to_le_bytes());
        self.frame(END, &[&frames, &bytes])?;
        self.out.flush()?;
        Ok(self.written)
    }
}

/// What is wrong with a stream.
pub(super) fn refused(what: impl Into<String>) -> Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("the stream {}", what.into()),
    )
    .into()
}

/// Reads a stream.
pub(super) struct Reader<'a> {
    from: &'a mut dyn Read,
    chain: [u8; 32],
    frames: u64,
    bytes: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(from: &'a mut dyn Read) -> Result<Self> {
        let mut preamble = [0; PREAMBLE.len()];
        fill(from, &mut preamble)?;
        if preamble[..8] != PREAMBLE[..8] {
            return Err(refused("is not one that `strongroom send` writes"));
        }
        if preamble != PREAMBLE {
            return Err(Error::Unsupported("the stream has a newer form".into()));
        }
        Ok(Self {
            from,
            chain: blake3::hash(&PREAMBLE).into(),
            frames: 0,
            bytes: 0,
        })
    }

    /// The next frame, whose digest holds. Behind the end nothing may follow.
    pub(super) fn next(&mut self) -> Result<Frame> {
        let mut head = [0; HEAD_LEN];
        fill(self.from, &mut head)?;
        let mut len = [0; 4];
        len.copy_from_slice(&head[4..]);
        let len = u32::from_le_bytes(len) as usize;
        if len > PAYLOAD_MAX || head[1..4] != [0; 3] {
            return Err(self.damaged());
        }
        let mut payload = vec![0; len];
        fill(self.from, &mut payload)?;
        let mut digest = [0; 32];
        fill(self.from, &mut digest)?;
        let chain = next(&self.chain, &head, &[&payload]);
        if chain != digest {
            return Err(self.damaged());
        }
        self.chain = chain;
        let before = (self.frames, self.bytes);
        self.frames += 1;
        let frame = parse(head[0], payload).ok_or_else(|| self.damaged())?;
        match &frame {
            Frame::Data { bytes, .. } => self.bytes += bytes.len() as u64,
            Frame::End { frames, bytes } => {
                if (*frames, *bytes) != before {
                    return Err(self.damaged());
                }
                if self.from.read(&mut [0])? != 0 {
                    return Err(refused("goes on behind its end"));
                }
            }
            _ => {}
        }
        Ok(frame)
    }

    fn damaged(&self) -> Error {
        refused(format!(
            "is damaged, or not in its order, at frame {}",
            self.frames
        ))
    }
}

fn fill(from: &mut dyn Read, buf: &mut [u8]) -> Result<()> {
    from.read_exact(buf).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => io::Error::new(
            ErrorKind::UnexpectedEof,
            "the stream is cut off: its end is missing",
        )
        .into(),
        _ => Error::from(e),
    })
}

fn parse(kind: u8, mut payload: Vec<u8>) -> Option<Frame> {
    match kind {
        BEGIN => {
            let (begin, rest) = postcard::take_from_bytes(&payload).ok()?;
            rest.is_empty().then_some(Frame::Begin(begin))
        }
        DATA => {
            let bytes = payload.split_off_checked(BLOCK_AT + 4)?;
            let segment = u64::from_le_bytes(*payload.first_chunk()?);
            let block = u32::from_le_bytes(*payload.last_chunk()?);
            let end = u64::from(block) + bytes.len() as u64 / BLOCK;
            let fits = !bytes.is_empty()
                && (bytes.len() as u64).is_multiple_of(BLOCK)
                && end <= u64::from(segments::SEGMENT_BLOCKS)
                && (1..=i64::MAX as u64).contains(&segment);
            fits.then_some(Frame::Data {
                segment,
                block,
                bytes,
            })
        }
        FILE => {
            let bytes = payload.split_off_checked(9)?;
            Some(Frame::File {
                name: Name::parse(payload[0])?,
                offset: u64::from_le_bytes(*payload.last_chunk()?),
                bytes,
            })
        }
        END => match payload.len() {
            16 => Some(Frame::End {
                frames: u64::from_le_bytes(*payload.first_chunk()?),
                bytes: u64::from_le_bytes(*payload.last_chunk()?),
            }),
            _ => None,
        },
        _ => None,
    }
}

/// [`Vec::split_off`], where there is as much.
trait SplitOff: Sized {
    fn split_off_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitOff for Vec<u8> {
    fn split_off_checked(&mut self, at: usize) -> Option<Self> {
        (at <= self.len()).then(|| self.split_off(at))
    }
}

/// A small stream that a receiver takes: one block, and files of a few bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn sample(since: [u8; 16], to: [u8; 16]) -> Vec<u8> {
    sample_of("0123456789abcdef0123456789abcdef", since, to)
}

/// The same with a lineage.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn sample_of(lineage: &str, since: [u8; 16], to: [u8; 16]) -> Vec<u8> {
    let begin = Begin {
        room: [7; 16],
        epoch: 1,
        since,
        to,
        skipped: 0,
        places: no_places(&[7; 16], &since, &to),
        bytes: BLOCK,
        lineage: lineage.into(),
        generation: 3,
    };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &begin).expect("a vector takes everything");
    let file = match since {
        [0, ..] => Name::Catalog,
        _ => Name::Changes,
    };
    let put = writer
        .data(1, 0, &[0x5a; BLOCK as usize])
        .and_then(|()| writer.file(Name::Header, 0, b"header"))
        .and_then(|()| writer.file(file, 0, b"sealed"))
        .and_then(|()| writer.end());
    put.expect("a vector takes everything");
    out
}
