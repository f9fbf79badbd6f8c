//! Which process opened a room.
//!
//! A child made by `fork` has a copy of the room's memory and shares its open files: what it wrote would replace what its parent
//! writes, and what it released would be its parent's. It has no room: calls are [`Error::Forked`], and the end of the room in the
//! child commits nothing, unlocks nothing and removes nothing.
//!
//! It asks the kernel for the number of the process at each call (some 80 ns): a handler of `pthread_atfork` is not run by every
//! way to make a child.

use crate::{Error, Result};

/// The process that opened something which a fork of it must leave alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener(u32);

impl Opener {
    /// The process that calls.
    pub fn this_process() -> Self {
        Self(std::process::id())
    }

    /// Whether it is the process that calls.
    pub fn is_this_process(self) -> bool {
        self == Self::this_process()
    }

    /// Refuses a fork as [`Error::Forked`]. To be called before any lock is taken: another thread of the parent may have held it
    /// at the fork, and no thread of the child will release it.
    pub fn check(self) -> Result<()> {
        match self.is_this_process() {
            true => Ok(()),
            false => Err(Error::Forked { opener: self.0 }),
        }
    }
}
