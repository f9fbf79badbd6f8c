//! Locks of files, and which ranges one holder has after taking or releasing some.
//!
//! It deliberately does not know who else holds locks, or who may.

use serde::{Deserialize, Serialize};

/// What the kernel calls OFFSET_MAX: a range up to there, or beyond, means whatever comes.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Who holds a lock, as the kernel numbers them on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockOwner(pub u64);

/// Which locks of a file: those of `fcntl` and those of `flock` do not see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockTable {
    /// Locks of byte ranges.
    Posix,
    /// Locks of whole files.
    Flock,
}

/// What a lock allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
    /// Takes the lock away.
    Unlock,
}

/// A lock of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// What it allows.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` (or what the kernel calls OFFSET_MAX) means whatever comes.
    pub end: u64,
    /// The process that asked, for lock queries of others.
    pub pid: u32,
}

impl Lock {
    /// The lock as a table has it: of the whole file for `flock`, and without an end where the kernel's range has none.
    #[must_use]
    pub fn in_table(self, table: LockTable) -> Self {
        match table {
            LockTable::Flock => Self {
                start: 0,
                end: u64::MAX,
                ..self
            },
            LockTable::Posix if self.end >= OFFSET_MAX => Self {
                end: u64::MAX,
                ..self
            },
            LockTable::Posix => self,
        }
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(&self, other: &Lock) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Takes or releases this lock for the holder of `held`, which are in order and do not overlap. Parts of them in this range are
    /// replaced, and neighbours of one kind become one.
    pub fn apply_to(self, held: &mut Vec<Lock>) {
        let mut parts = Vec::with_capacity(held.len() + 2);
        for h in held.drain(..) {
            if !h.overlaps(&self) {
                parts.push(h);
                continue;
            }
            if h.start < self.start {
                parts.push(Lock {
                    end: self.start - 1,
                    ..h
                });
            }
            if h.end > self.end {
                parts.push(Lock {
                    start: self.end + 1,
                    ..h
                });
            }
        }
        if self.kind != LockKind::Unlock {
            parts.push(self);
        }
        parts.sort_unstable_by_key(|h| h.start);
        for h in parts {
            match held.last_mut() {
                Some(last) if last.kind == h.kind && last.end.checked_add(1) == Some(h.start) => {
                    last.end = h.end;
                }
                _ => held.push(h),
            }
        }
    }
}
