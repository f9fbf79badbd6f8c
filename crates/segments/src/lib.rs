//! Where file data lives: append-only files of sealed units.
//!
//! To begin with, copy `examples/append_and_read.rs`.
//!
//! 1. A position is written only once. A segment open when the store was opened is never appended to again: its key and
//!    positions may have been used by writes that no catalog remembers.
//! 2. Every segment has a fresh random salt and its own key by HKDF from the data key and that salt, or, in a room that
//!    gives keys to clients, a tree of keys for its positions; the nonce of a unit is its position (the index of its first
//!    4 KiB block in the file) and, where the [`Keyring`] says so, a random part that each append draws: a copy of this
//!    memory in another process or virtual machine would use the same positions.
//! 3. Tags, digests and random parts are not here: they are returned by [`DirStore::append`] and belong into the catalog.
//! 4. Nothing appended is durable before [`DirStore::flush`] returns. After a failed flush the store refuses
//!    further appends and flushes until it is opened again.
//!
//! It deliberately does not know files, inodes, or which units are alive.

#![forbid(unsafe_code)]

mod buffers;
mod extent;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod header;
mod keyring;
mod lanes;
mod ledger;
mod readers;
mod store;
mod tail;
#[cfg(any(test, feature = "fuzzing"))]
mod testkeys;
#[cfg(test)]
mod tests;
mod unit_keys;
mod writing;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::io;

pub use grants::{GRANT_BLOCKS_MAX, LANES};
pub use header::HeaderProblem;
pub use keyring::Keyring;
pub use model::{
    BLOCK_LEN, BlockRange, DIGEST_LEN, Digest, NoncePart, Proofs, Sealed, SegmentNo, TAG_LEN, Tag,
    Tags, UNIT_BLOCKS, UNIT_LEN,
};
use storage::{OpenMode, Storage};
pub use store::DirStore;

/// Most blocks in one append: 1 MiB.
pub const APPEND_BLOCKS_MAX: u32 = 256;
/// Length at which a segment is closed and the next one begun, in blocks: 64 MiB.
pub const SEGMENT_BLOCKS: u32 = 16384;

/// The directory of a room that holds its segments.
pub const SEGMENTS_DIR: &str = "segments";

/// What ends the name of a file there of which parts are still to come: it is no segment yet.
pub const INCOMING_SUFFIX: &str = ".incoming";

/// What the catalog keeps of a segment so that it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentId {
    /// The number.
    pub no: SegmentNo,
    /// Which data key of the room the segment's key is derived from; rises with each rekey.
    pub key_epoch: u32,
    /// Random, fresh for each segment.
    pub salt: [u8; 32],
}

/// Sealed units that follow each other in a segment, as they are stored there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedUnits {
    /// The segment.
    pub segment: SegmentNo,
    /// Index of the first 4 KiB block.
    pub position: u32,
    /// The sealed bytes, a multiple of [`BLOCK_LEN`].
    pub bytes: Vec<u8>,
}

/// Why a segment operation failed.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A unit fails authentication: its bytes or its tag are not those that were sealed.
    #[error("segment {}: the unit at block {position} fails authentication (damaged or replaced)", segment.0)]
    Corrupt {
        /// The segment.
        segment: SegmentNo,
        /// First block of the unit.
        position: u32,
    },
    /// The segment's file is not there, or ends before the unit does.
    #[error("segment {}: missing or cut short at block {position}", segment.0)]
    Missing {
        /// The segment.
        segment: SegmentNo,
        /// First block of the first unit that is not wholly there.
        position: u32,
    },
    /// The storage has no room left.
    #[error("no space left in the room's storage")]
    NoSpace,
    /// A segment's own header is not the one the catalog knows. Its data is readable all the same.
    #[error("segment {}: the header is wrong: {problem}", segment.0)]
    Header {
        /// The segment.
        segment: SegmentNo,
        /// What is wrong.
        problem: HeaderProblem,
    },
    /// An earlier flush failed: what is on the disk is not known.
    #[error("the storage failed to make earlier data durable; open the room again")]
    Poisoned,
    /// A key of this epoch is not known.
    #[error("segment {}: sealed under key epoch {key_epoch}, which this room's header does not hold", segment.0)]
    UnknownEpoch {
        /// The segment.
        segment: SegmentNo,
        /// The epoch.
        key_epoch: u32,
    },
    /// The storage failed.
    #[error("segment storage: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SegmentError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Io(e),
        }
    }
}

impl From<SegmentError> for model::Error {
    /// For calls that read no file data; reads say which file and offset.
    fn from(e: SegmentError) -> Self {
        match e {
            SegmentError::NoSpace => Self::NoSpace,
            SegmentError::Poisoned => Self::Poisoned,
            SegmentError::Io(e) => Self::Io(e),
            other => Self::Damaged(other.to_string()),
        }
    }
}

/// Writes units into the files of their segments again, durably. A segment that is not there any more is passed over.
///
/// # Errors
/// [`SegmentError::NoSpace`], [`SegmentError::Io`].
pub fn restore(storage: &dyn Storage, units: &[SealedUnits]) -> Result<(), SegmentError> {
    let mut files = BTreeMap::new();
    for unit in units {
        let file = match files.entry(unit.segment) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match storage.open(&file_name(unit.segment), OpenMode::ReadWrite)
            {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!("segment {}: the log has data of it", unit.segment.0);
                    continue;
                }
                other => new.insert(other?),
            },
        };
        let offset = u64::from(unit.position) * BLOCK_LEN as u64;
        file.write_at(&unit.bytes, offset)?;
    }
    for file in files.values() {
        file.sync()?;
    }
    Ok(())
}

/// The path of a segment's file in the room's directory.
pub fn file_name(no: SegmentNo) -> String {
    format!("{SEGMENTS_DIR}/{}", name_in_dir(no))
}

/// The name of a segment's file in [`SEGMENTS_DIR`].
pub fn name_in_dir(no: SegmentNo) -> String {
    format!("{:020}", no.0)
}

/// The segment a file of this name in [`SEGMENTS_DIR`] holds; `None` for a file that is not a segment.
pub fn parse_file_name(name: &str) -> Option<SegmentNo> {
    let digits = name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| name.parse().ok())
        .flatten()
        .filter(|no| *no != 0)
        .map(SegmentNo)
}

/// The file of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile {
    /// Number of the segment.
    pub no: SegmentNo,
    /// Length in bytes.
    pub len: u64,
    /// Bytes it takes in the storage: holes take none. `None` where the storage does not say.
    pub allocated: Option<u64>,
}
