//! Blocks that a client may write itself, and what it reports of them.

use serde::{Deserialize, Serialize};

use crate::Sealed;

/// Number of a grant of blocks, never used again while the room is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WriteGrantId(pub u64);

/// What a client wrote under a grant, and where in a file it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenExtent {
    /// Offset in the file in bytes, a multiple of 4096; what was sealed stays within one MiB-aligned chunk of the file.
    pub offset: u64,
    /// Where it is, and its tags.
    pub sealed: Sealed,
    /// Where the file's data ends in the last block sealed, or any later byte: the file is at least this long afterwards. What
    /// was sealed behind it is zeros, so that a longer file reads zeros there.
    pub end: u64,
}
