//! A process drops what it does not need: files, networks, system calls, and to be looked into.
//!
//! To begin with, copy `examples/drop_rights.rs`.
//!
//! Code that parses what others wrote (volumes, containers, rooms, messages) may have a flaw that hands the process to them. What
//! the process dropped before, it cannot use then. See `docs/decisions/0030-confinement.md`.
//!
//! 1. What was dropped does not come back, by this process or by a program that it starts.
//! 2. [`enter`] binds the calling thread and those it starts: call it before any other thread is there.
//! 3. A refused system call fails with EPERM; it does not end the process, which may hold data that is not durable yet.
//! 4. Files and sockets that are open already stay usable.
//!
//! It deliberately does not know what a process does.

#![forbid(unsafe_code)]

mod calls;
mod files;

use std::fmt;
use std::path::PathBuf;

pub use files::Enforced;

/// What a process keeps; everything else is dropped. The default keeps its own open files, memory and threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Files, or whole directories, that may be read.
    pub read: Vec<PathBuf>,
    /// Files, or whole directories, in which everything may be done but to start a program.
    pub write: Vec<PathBuf>,
    /// Directories whose names, and those of the directories below them, may be listed.
    pub list: Vec<PathBuf>,
    /// Directories in which Unix sockets may be bound and their names removed.
    pub sockets: Vec<PathBuf>,
    /// Networks.
    pub network: Network,
    /// Whether other programs may be started, from the system's directories.
    pub programs: bool,
    /// Whether io_uring may be used.
    pub io_uring: bool,
}

/// What a process keeps of networks. Unix sockets are always kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Connections to others.
    Client,
    /// To be connected to, at these TCP ports.
    Server(Vec<u16>),
    /// Both.
    Both(Vec<u16>),
}

impl Network {
    /// The ports to listen on; `None`: nothing may listen.
    fn ports(&self) -> &[u16] {
        match self {
            Self::None | Self::Client => &[],
            Self::Server(ports) | Self::Both(ports) => ports,
        }
    }

    fn connects(&self) -> bool {
        matches!(self, Self::Client | Self::Both(_))
    }
}

/// What to do where the system cannot confine a process as its profile says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Go on with what it can.
    #[default]
    BestEffort,
    /// Fail.
    Required,
}

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

/// Drops everything that `profile` does not keep. Call it while the process has one thread.
///
/// # Errors
/// With [`Strictness::Required`], where the system cannot do all of it. With [`Strictness::BestEffort`] what fails is left out:
/// see what is returned.
pub fn enter(profile: &Profile, strictness: Strictness) -> Result<Confined, Error> {
    let required = strictness == Strictness::Required;
    let attempt = |done: Result<(), Error>| match done {
        Ok(()) => Ok(true),
        Err(e) if required => Err(e),
        Err(e) => {
            tracing::debug!("{e}");
            Ok(false)
        }
    };
    // Before the filter, which keeps the process from undoing it.
    attempt(hide().map_err(Error::from))?;
    let files = match files::restrict(profile) {
        Ok(enforced) => enforced,
        Err(e) if required => return Err(e.into()),
        Err(e) => {
            tracing::debug!("{e}");
            Enforced::NotAtAll
        }
    };
    let calls = attempt(calls::restrict(profile))?;
    let confined = Confined { files, calls };
    if required && !confined.is_whole() {
        return Err(Error::NotFully(confined));
    }
    Ok(confined)
}

/// No process of this user may look into this one's memory, and it leaves no core dump. Nothing it starts gains rights.
fn hide() -> rustix::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)
}
