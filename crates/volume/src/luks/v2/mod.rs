//! The LUKS2 header: two copies, of which one that is whole suffices.
//!
//! 1. Of two copies that are whole the one with the higher sequence number counts; a copy that is damaged or old is
//!    tolerated, named ([`CopyState`]), and repaired by the next change.
//! 2. A change writes one copy, makes it durable, then the other. The copy that is not relied upon goes first: were the
//!    only whole one overwritten first, losing the power then would leave none. Where both are whole it is the first
//!    copy, as cryptsetup does it. Either order leaves the old state or the new one.
//! 3. What is written was parsed and checked like what is read.
//! 4. JSON that is not understood here (tokens, fields of later versions) is kept as it is.

pub(super) mod binary;
pub(super) mod edit;
pub(super) mod metadata;
mod node;

use std::fmt;

use device::Device;
use serde_json::Value;

use self::binary::{Binary, SIZES};
use self::metadata::Metadata;
use super::error::{LuksError, Result, io};
use super::kdf::random;

/// Slots, segments, digests and tokens there can be of each.
pub(super) const SLOTS: u8 = 32;
/// How deep JSON may be nested is bounded by the parser (128); how long, by the longest header.
const COPY_MAX: u64 = SIZES[SIZES.len() - 1];

/// How a copy of a header was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyState {
    /// Whole, and the newest.
    Good,
    /// Whole, but older than the other; with its sequence number.
    Old(u64),
    /// Not whole, or not readable, with the reason.
    Damaged(String),
    /// Something else is there; the next change would overwrite it.
    Absent,
}

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::Old(seqid) => write!(f, "old (sequence number {seqid})"),
            Self::Damaged(why) => write!(f, "damaged: {why}"),
            Self::Absent => f.write_str("absent"),
        }
    }
}

/// A LUKS2 header.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) binary: Binary,
    /// Salt of the other copy.
    other_salt: [u8; 64],
    /// Number (0 or 1) of the copy that `binary` and `json` come from.
    relied_on: usize,
    pub(super) json: Value,
    pub(super) metadata: Metadata,
    pub(super) copies: [CopyState; 2],
}

/// A copy that is whole.
struct Copy {
    binary: Binary,
    json: Value,
    metadata: Metadata,
}

impl Header {
    /// A header that is not on a device yet.
    pub(super) fn new(binary: Binary, json: Value) -> Result<Self> {
        let metadata = Metadata::parse(&json, binary.size)?;
        Ok(Self {
            binary,
            other_salt: random()?,
            relied_on: 1,
            json,
            metadata,
            copies: [CopyState::Absent, CopyState::Absent],
        })
    }

    /// Reads both copies. `NotLuks` where neither has left a trace.
    pub(super) fn read(device: &dyn Device) -> Result<Self> {
        let first = read_copy(device, 0);
        let second = match &first {
            Ok(copy) => read_copy(device, copy.binary.size),
            Err(_) => SIZES
                .iter()
                .map(|offset| read_copy(device, *offset))
                .reduce(better)
                .expect("there are nine places"),
        };
        let (mut header, other) = match (first, second) {
            (Ok(first), Ok(second)) => {
                let other_volume = first.binary.uuid != second.binary.uuid;
                if other_volume && first.binary.seqid == second.binary.seqid {
                    // With different numbers it is a change of the UUID that was cut off.
                    return Err(LuksError::Damaged(format!(
                        "its two copies are of two volumes, {} and {}",
                        first.binary.uuid, second.binary.uuid
                    )));
                }
                if second.binary.seqid > first.binary.seqid {
                    (Self::of(second, 1), Ok(first))
                } else {
                    (Self::of(first, 0), Ok(second))
                }
            }
            (Ok(first), Err(second)) => (Self::of(first, 0), Err(second)),
            (Err(first), Ok(second)) => (Self::of(second, 1), Err(first)),
            (Err(first), Err(second)) => return Err(neither(first, second)),
        };
        let other_place = 1 - header.relied_on;
        header.copies[other_place] = match other {
            Ok(copy) => {
                header.other_salt = copy.binary.salt;
                let same = copy.binary.seqid == header.binary.seqid;
                if same && copy.json != header.json {
                    // Written by something that does not count; the first is as good as the second.
                    CopyState::Damaged("same sequence number, other contents".into())
                } else if same {
                    CopyState::Good
                } else {
                    CopyState::Old(copy.binary.seqid)
                }
            }
            Err(LuksError::NotLuks) => CopyState::Absent,
            Err(LuksError::Io { source, .. }) => {
                CopyState::Damaged(format!("it cannot be read: {source}"))
            }
            Err(error) => CopyState::Damaged(reason(&error)),
        };
        if header.copies[other_place] != CopyState::Good {
            header.other_salt = random()?;
        }
        Ok(header)
    }

    fn of(copy: Copy, place: usize) -> Self {
        Self {
            binary: copy.binary,
            other_salt: [0; 64],
            relied_on: place,
            json: copy.json,
            metadata: copy.metadata,
            copies: [CopyState::Good, CopyState::Good],
        }
    }

    /// Whether both copies are whole and the same.
    pub(super) fn is_whole(&self) -> bool {
        self.copies == [CopyState::Good, CopyState::Good]
    }

    /// Writes the header with these contents and the next sequence number. After an error the state on the device is the
    /// old one or the new one, and is to be read again.
    pub(super) fn write(&mut self, device: &dyn Device, json: Value) -> Result<()> {
        let mut next = self.clone();
        next.metadata = Metadata::parse(&json, self.binary.size)?;
        next.json = json;
        next.binary.seqid = self
            .binary
            .seqid
            .checked_add(1)
            .ok_or_else(|| LuksError::Malformed("its sequence number is the last".into()))?;
        if self.relied_on == 1 {
            next.refuse_to_overwrite_what_is_no_header(device)?;
        }
        let copies = next.encode()?;
        let order = if self.is_whole() || self.relied_on == 1 {
            [0, 1]
        } else {
            [1, 0]
        };
        for place in order {
            let offset = place as u64 * next.binary.size;
            device
                .write_at(&copies[place], offset)
                .map_err(io("writing the header"))?;
            device.flush().map_err(io("making the header durable"))?;
        }
        next.copies = [CopyState::Good, CopyState::Good];
        next.relied_on = 0;
        *self = next;
        Ok(())
    }

    /// Readies a header from elsewhere to be written over what is on a device, whose second copy is the only whole one, or
    /// not.
    pub(super) fn take_over(&mut self, second_only: bool) {
        self.relied_on = usize::from(second_only);
        self.copies = [CopyState::Good, CopyState::Good];
        if second_only {
            self.copies[0] = CopyState::Damaged("to be replaced".into());
            std::mem::swap(&mut self.binary.salt, &mut self.other_salt);
        }
    }

    /// Makes both copies whole and equal, where they are not.
    pub(super) fn repair_copies(&mut self, device: &dyn Device) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        tracing::warn!(
            first = %self.copies[0], second = %self.copies[1],
            "a copy of the header is damaged or old: rewriting it"
        );
        self.write(device, self.json.clone())
    }

    /// Both copies, as they are on the device.
    pub(super) fn encode(&self) -> Result<[Vec<u8>; 2]> {
        let json = serde_json::to_vec(&self.json)
            .map_err(|e| LuksError::Malformed(format!("the JSON cannot be written: {e}")))?;
        let room = self.binary.size - binary::LEN as u64;
        // One byte for the zero at the end.
        if json.len() as u64 >= room {
            return Err(LuksError::NoRoom(format!(
                "the header's JSON would have {} bytes, and there is room for {}",
                json.len(),
                room - 1
            )));
        }
        let mut salts = [self.other_salt; 2];
        salts[self.relied_on] = self.binary.salt;
        let copy = |place: usize| {
            let binary = Binary {
                salt: salts[place],
                ..self.binary.clone()
            };
            binary.copy(place as u64 * self.binary.size, &json)
        };
        Ok([copy(0), copy(1)])
    }

    /// The first copy is torn, or it was wiped, or somebody made another file system over it: the latter is not ours to
    /// overwrite. A torn copy begins as a header or as nothing.
    fn refuse_to_overwrite_what_is_no_header(&self, device: &dyn Device) -> Result<()> {
        if !matches!(self.copies[0], CopyState::Absent) {
            return Ok(());
        }
        let block = read_block(device, 0)?;
        if block.iter().all(|b| *b == 0) {
            return Ok(());
        }
        Err(LuksError::Damaged(
            "something else was written over its first copy, which a change would overwrite; only reading works"
                .into(),
        ))
    }

    /// Bytes from the start of the device that the header takes with its key slots.
    pub(super) fn region(&self) -> u64 {
        2 * self.binary.size + self.metadata.keyslots_size
    }
}

/// Of two places for the second copy, that with the newer header, else that with more of a trace of one.
fn better(a: Result<Copy>, b: Result<Copy>) -> Result<Copy> {
    match (a, b) {
        (Ok(a), Ok(b)) if b.binary.seqid > a.binary.seqid => Ok(b),
        (Ok(a), _) => Ok(a),
        (_, Ok(b)) => Ok(b),
        (Err(LuksError::NotLuks), Err(b)) => Err(b),
        (Err(a), Err(_)) => Err(a),
    }
}

/// The error when no copy is whole. Contents with a valid checksum and impossible values are the better explanation than a torn copy.
fn neither(first: LuksError, second: LuksError) -> LuksError {
    match (first, second) {
        (LuksError::NotLuks, second) => second,
        (first @ (LuksError::Malformed(_) | LuksError::Io { .. }), _) => first,
        (_, second @ (LuksError::Malformed(_) | LuksError::Io { .. })) => second,
        (first @ LuksError::Version(_), LuksError::NotLuks) => first,
        (first, LuksError::NotLuks) => LuksError::Damaged(format!(
            "the first copy: {}; there is no second one",
            reason(&first)
        )),
        (first, second) => LuksError::Damaged(format!(
            "the first copy: {}; the second: {}",
            reason(&first),
            reason(&second)
        )),
    }
}

/// What is wrong with a copy, without what is said of the header as a whole.
fn reason(error: &LuksError) -> String {
    match error {
        LuksError::Damaged(why) | LuksError::Malformed(why) => why.clone(),
        other => other.to_string(),
    }
}

fn read_block(device: &dyn Device, offset: u64) -> Result<[u8; binary::LEN]> {
    let mut block = [0; binary::LEN];
    if offset.saturating_add(binary::LEN as u64) > device.len() {
        return Err(LuksError::NotLuks);
    }
    device
        .read_at(&mut block, offset)
        .map_err(io("reading the header"))?;
    Ok(block)
}

fn read_copy(device: &dyn Device, offset: u64) -> Result<Copy> {
    let block = read_block(device, offset)?;
    if !binary::has_magic(&block, offset == 0) {
        return Err(LuksError::NotLuks);
    }
    let binary = Binary::parse(&block, offset)?;
    debug_assert!(binary.size <= COPY_MAX);
    if offset.saturating_add(binary.size) > device.len() {
        return Err(LuksError::Damaged(format!(
            "it ends behind the device, at {}",
            offset.saturating_add(binary.size)
        )));
    }
    let size = usize::try_from(binary.size).expect("at most 4 MiB");
    let mut bytes = vec![0; size];
    device
        .read_at(&mut bytes, offset)
        .map_err(io("reading the header"))?;
    if !binary.checksum_holds(&bytes) {
        return Err(LuksError::Damaged("its checksum does not hold".into()));
    }
    let area = &bytes[binary::LEN..];
    let end = area
        .iter()
        .position(|b| *b == 0)
        .ok_or_else(|| LuksError::Malformed("the JSON has no end".into()))?;
    let json: Value = serde_json::from_slice(&area[..end])
        .map_err(|e| LuksError::Malformed(format!("the JSON is none: {e}")))?;
    let metadata = Metadata::parse(&json, binary.size)?;
    Ok(Copy {
        binary,
        json,
        metadata,
    })
}
