//! What lets another machine read and write file data itself: places lent to it, maps told to it, and what it wrote
//! taken into files.
//!
//! 1. A place lent is like an append under way: its positions are nobody else's, and its segment stays for as long as the
//!    loan does.
//! 2. What is [placed](crate::Room::place) becomes durable like an append: the next commit flushes its segment before the
//!    catalog refers to it.
//!
//! It deliberately does not know how the other machine reaches the segments, or whether it may.

use seal::Suite;
use segments::{Sealed, SegmentNo};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use catalog::{Chunk, InodeNo};

use crate::{Result, Room};

/// Number of a loan, never used again while the room is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LoanId(pub u64);

/// What it takes to seal and open the units of one segment.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct SegmentAccess {
    /// The segment.
    #[zeroize(skip)]
    pub segment: SegmentNo,
    /// The room's suite.
    #[zeroize(skip)]
    pub suite: Suite,
    /// The segment's key.
    pub key: [u8; 32],
}

impl std::fmt::Debug for SegmentAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentAccess")
            .field("segment", &self.segment)
            .finish_non_exhaustive()
    }
}

/// Blocks of a segment that the borrower alone may write, each once.
#[derive(Debug)]
pub struct Loan {
    /// Its number.
    pub id: LoanId,
    /// The segment.
    pub segment: SegmentNo,
    /// The first block.
    pub position: u32,
    /// How many.
    pub blocks: u32,
}

/// What a borrower wrote, and where in a file it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Offset in the file in bytes, a multiple of 4096; what was sealed stays within one MiB-aligned chunk of the file.
    pub offset: u64,
    /// Where it lies, and its tags.
    pub sealed: Sealed,
    /// The file is at least this long afterwards, in bytes.
    pub end: u64,
}

impl Room {
    /// Lends `blocks` blocks (1 to 1024) of a segment. `lane` chooses among several open segments, so that borrowers write
    /// side by side.
    pub fn lend(&self, lane: usize, blocks: u32) -> Result<Loan> {
        let _ = (lane, blocks);
        unimplemented!()
    }

    /// A loan is over: nobody will write there, or place what was written, any more.
    pub fn settle_loan(&self, loan: LoanId) {
        let _ = loan;
        unimplemented!()
    }

    /// What it takes to read or write a segment's units; `None` where the catalog knows no such segment.
    pub fn segment_access(&self, segment: SegmentNo) -> Result<Option<SegmentAccess>> {
        let _ = segment;
        unimplemented!()
    }

    /// Takes what was written under a loan into a file. `InvalidArgument` where it does not lie within the loan or does
    /// not fit into a chunk; `NotFound` where the loan is over. Returns the [stamp](Self::stamp) that covers it.
    pub fn place(&self, loan: LoanId, no: InodeNo, placed: &[Placed]) -> Result<u64> {
        let _ = (loan, no, placed);
        unimplemented!()
    }

    /// The newest maps of up to `count` chunks from `first` on; holes are left out.
    pub fn maps(&self, no: InodeNo, first: u64, count: usize) -> Result<Vec<(u64, Chunk)>> {
        let _ = (no, first, count);
        unimplemented!()
    }

    /// Counts changes; what is at or below [`settled`](Self::settled) is durable.
    pub fn stamp(&self) -> u64 {
        unimplemented!()
    }

    /// The stamp that the last commit covered.
    pub fn settled(&self) -> u64 {
        unimplemented!()
    }

    /// A value that a program keeps in the room beside the files, sealed and authenticated with the catalog.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let _ = name;
        unimplemented!()
    }

    /// Sets it, at most 1 MiB; durable when this returns.
    pub fn set_note(&self, name: &str, value: &[u8]) -> Result<()> {
        let _ = (name, value);
        unimplemented!()
    }
}
