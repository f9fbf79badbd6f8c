//! What is in force in a process, and why it is not all.

use std::fmt;

use crate::files::Enforced;

/// Why a process is not confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system does not have all that the profile asks for. What it has is in force.
    #[error("this kernel cannot confine the process as required: {0}")]
    NotFully(Confined),
    /// A path of the profile cannot be used.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The system refused a filter of system calls.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The filter could not be made: a bug, or an unknown processor.
    #[error("seccomp: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The system refused one of the process's own settings.
    #[error("{0}")]
    Process(#[from] rustix::io::Errno),
}

/// What is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// Rules for files, ports and signals (Landlock).
    pub files: Enforced,
    /// The filter of system calls (seccomp).
    pub calls: bool,
}

impl Confined {
    /// Whether everything is.
    pub fn is_whole(self) -> bool {
        self.files == Enforced::Wholly && self.calls
    }
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = if self.calls { "yes" } else { "no" };
        write!(f, "Landlock {}, seccomp {calls}", self.files)
    }
}
