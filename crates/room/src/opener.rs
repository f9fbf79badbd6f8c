//! Which process opened a room.
//!
//! A child made by `fork` has a copy of the room's memory and shares its open files: what it wrote would replace what its parent
//! writes, and what it released would be its parent's. It has no room: calls are [`Error::Forked`], and the end of the room in the
//! child commits nothing, unlocks nothing and removes nothing.
//!
//! Each call looks at a mark that the kernel wipes in forks, which takes no system call: a handler of `pthread_atfork` is not run by
//! every way to make a child. Where the kernel does not wipe, it asks for the number of the process (150 ns).

use std::sync::Arc;

use seal::ProcessMark;

use crate::{Error, Result};

/// The process that opened something which a fork of it must leave alone. A child that shares its memory is none (`vfork`).
#[derive(Debug, Clone)]
pub struct Opener {
    process: u32,
    mark: Option<Arc<ProcessMark>>,
}

impl Opener {
    /// The process that calls.
    pub fn this_process() -> Self {
        Self {
            process: std::process::id(),
            mark: ProcessMark::set().map(Arc::new),
        }
    }

    /// Whether it is the process that calls.
    pub fn is_this_process(&self) -> bool {
        match &self.mark {
            Some(mark) => mark.is_set(),
            None => self.process == std::process::id(),
        }
    }

    /// Refuses a fork as [`Error::Forked`]. To be called before any lock is taken: another thread of the parent may have held it
    /// at the fork, and no thread of the child will release it.
    pub fn check(&self) -> Result<()> {
        match self.is_this_process() {
            true => Ok(()),
            false => Err(Error::Forked {
                opener: self.process,
            }),
        }
    }
}
