//! The audit log of a metadata server: who opened, changed, removed or was refused what, so that later nobody can deny it.
//!
//! 1. What a call does is recorded before it is made durable and answered: an entry may describe what a crash undid, and nothing that
//!    was done goes without an entry (but for a power cut, see [`log`]).
//! 2. The log is not encrypted, and has no names of files ([`event`]).
//! 3. What was logged before an intruder came cannot be written again unnoticed (`chain`, [`verify()`]).
//!
//! Why it is so is in `docs/decisions/0031-audit-log.md`. It deliberately does not know who may do what.

mod chain;
pub mod event;
pub mod log;
mod pending;
mod state;
#[cfg(test)]
mod tests;
mod verify;

use std::sync::Arc;

use metadata_proto::rpc::{Change, Delay, Posix, Refusal, Reply};
use room::{Access, InodeNo};

pub use chain::Key;
pub(crate) use event::About;
use event::{Admin, Administration, Event, Number, Who, access_word};
pub use log::{AuditLog, Full, Settings};
pub(crate) use pending::{keep, take};
pub use verify::{Expected, Report, files, verify};

use crate::sessions::Session;

/// A server's log, if it has one. Inodes have the numbers that clients see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit(Option<Arc<AuditLog>>);

impl Audit {
    pub(crate) fn open(settings: Option<&Settings>) -> std::io::Result<Self> {
        Ok(Self(settings.map(AuditLog::open).transpose()?))
    }

    pub(crate) fn log(&self) -> Option<&AuditLog> {
        self.0.as_deref()
    }

    /// Whether what will be recorded may be done: not while nothing can be.
    pub(crate) fn ready(&self) -> Reply<()> {
        match &self.0 {
            Some(log) if !log.is_ready() => Err(Refusal::NotNow(Delay::Disk)),
            _ => Ok(()),
        }
    }

    /// The same for a change.
    pub(crate) fn ready_for(&self, change: &Change) -> Reply<()> {
        match change {
            Change::Make { .. }
            | Change::Link { .. }
            | Change::Fallocate { .. }
            | Change::CopyRange { .. } => Ok(()),
            Change::Create { .. }
            | Change::CreateTmpfile { .. }
            | Change::Unlink { .. }
            | Change::Rmdir { .. }
            | Change::Rename { .. }
            | Change::SetAttributes { .. }
            | Change::SetXattr { .. }
            | Change::RemoveXattr { .. } => self.ready(),
        }
    }

    /// Records an event of a session, which is made only where there is a log.
    pub(crate) fn record(&self, session: &Session, event: impl FnOnce(Who) -> Event) {
        if let Some(log) = &self.0 {
            log.record(&event(Who::of(session)));
        }
    }

    pub(crate) fn session_begins(&self, session: &Session, address: std::net::SocketAddr) {
        self.record(session, |who| Event::SessionBegin {
            who,
            address: address.to_string(),
            key: format!("{:032x}", u128::from_be_bytes(session.serial)),
        });
    }

    pub(crate) fn session_ends(&self, session: &Session, why: &'static str) {
        self.record(session, |who| Event::SessionEnd { who, why });
    }

    pub(crate) fn opened(&self, session: &Session, inode: InodeNo, access: Access) {
        self.record(session, |who| Event::Open {
            who,
            inode: Number(inode),
            access: access_word(access),
        });
    }

    /// Data of a file is about to be reached: without an open file only where that can be recorded.
    pub(crate) fn reaches(&self, session: &Session, seen: Seen, access: &'static str) -> Reply<()> {
        if self.0.is_none() || session.has_open(seen.room) {
            return Ok(());
        }
        self.ready()?;
        self.record(session, |who| Event::Unopened {
            who,
            inode: Number(seen.client),
            access,
        });
        Ok(())
    }

    /// Records a refusal for want of rights; others say nothing of the user.
    pub(crate) fn refused(
        &self,
        session: &Session,
        (call, about): (&'static str, About),
        refusal: &Refusal,
    ) {
        let why = match refusal {
            Refusal::Posix(Posix::AccessDenied) => "access-denied",
            Refusal::Posix(Posix::NotPermitted) => "not-permitted",
            _ => return,
        };
        self.record(session, |who| Event::Refused {
            who,
            call: about.change.unwrap_or(call),
            inode: about.inode.map(Number),
            why,
        });
    }

    pub(crate) fn connection_refused(&self, address: std::net::SocketAddr, why: &str) {
        if let Some(log) = &self.0 {
            // What the other side sent may be in it.
            let why: String = why.chars().take(200).collect();
            log.connection_refused(address.ip().to_string(), why);
        }
    }

    /// Records a change of users, keys or disks, durably.
    pub(crate) fn administered(&self, by: &str, what: Admin) -> std::io::Result<()> {
        let by = by.to_owned();
        self.administered_at(Administration { what, by, at: None })
    }

    /// The same for one of before.
    pub(crate) fn administered_at(&self, entry: Administration) -> std::io::Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(log) => match log.record_durably(&Event::Administration(entry)) {
                Err(e) if !log.is_ready() => Err(e),
                _ => Ok(()),
            },
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(log) = &self.0 {
            log.stop();
        }
    }
}

/// A file by the room's number and by the clients'.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) room: InodeNo,
    pub(crate) client: InodeNo,
}
