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
mod confined;
mod files;
mod profile;

pub use confined::{Confined, Error};
pub use files::Enforced;
pub use profile::{Network, Profile};

/// What to do where the system cannot confine a process as its profile says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Go on with what it can.
    #[default]
    BestEffort,
    /// Fail.
    Required,
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
