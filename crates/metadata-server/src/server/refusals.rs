//! What clients are refused with. What fails because the room's storage failed is never an answer: the client is asked to come back.

use catalog::CatalogError;
use metadata_proto::rpc::{Delay, Posix, Refusal, Reply};
use room::FileSystem as _;

use super::Shared;
use super::caller::Here;
use super::incarnation::Incarnation;
use crate::placement::DiskFailed;

/// What the room's error is to a client. Details that only the log may have become a plain failure.
pub(super) fn refusal(error: room::Error) -> Refusal {
    use room::Error as E;
    Refusal::Posix(match error {
        E::Poisoned => return waits_for_room(&error),
        E::Catalog(_) if matches!(CatalogError::of(&error), Some(CatalogError::Io(_))) => {
            return waits_for_room(&error);
        }
        E::Io(e) if DiskFailed::is_away(&e) => {
            tracing::warn!("a call waits for a disk: {e}");
            return Refusal::NotNow(Delay::Disk);
        }
        E::NotFound => Posix::NotFound,
        E::Exists => Posix::Exists,
        E::NotDirectory => Posix::NotDirectory,
        E::IsDirectory => Posix::IsDirectory,
        E::NotEmpty => Posix::NotEmpty,
        E::NameTooLong => Posix::NameTooLong,
        E::TooManyLinks => Posix::TooManyLinks,
        E::FileTooLarge => Posix::FileTooLarge,
        E::InvalidArgument(_) => Posix::InvalidArgument,
        E::NotPermitted(_) => Posix::NotPermitted,
        E::AccessDenied => Posix::AccessDenied,
        E::NoXattr => Posix::NoXattr,
        E::XattrTooLarge => Posix::XattrTooLarge,
        E::NotSupported(_) => Posix::NotSupported,
        E::NoMoreData => Posix::NoMoreData,
        E::TooManySymlinks => Posix::TooManySymlinks,
        E::ReadOnly => Posix::ReadOnly,
        E::NoSpace => Posix::NoSpace,
        E::QuotaExceeded => Posix::QuotaExceeded,
        E::WouldBlock => Posix::WouldBlock,
        E::Deadlock => Posix::Deadlock,
        E::Stale => Posix::Stale,
        other => {
            tracing::error!("a call failed: {other}");
            Posix::Io
        }
    })
}

fn waits_for_room(error: &room::Error) -> Refusal {
    tracing::warn!("a call waits for the room to be opened again: {error}");
    Refusal::NotNow(Delay::Reopening)
}

/// Makes everything durable, many callers' changes at once.
pub(super) fn sync(incarnation: &Incarnation) -> Reply<()> {
    incarnation.room.sync().map_err(not_durable)
}

/// Makes names and attributes durable, many callers' at once.
pub(super) fn sync_names(incarnation: &Incarnation) -> Reply<()> {
    incarnation.room.sync_names().map_err(not_durable)
}

fn not_durable(e: room::Error) -> Refusal {
    match e {
        room::Error::NoSpace => Refusal::Posix(Posix::NoSpace),
        other => {
            tracing::error!("a commit failed: {other}");
            Refusal::NotNow(Delay::Reopening)
        }
    }
}

impl Shared {
    /// A refusal as the client gets it: what fails because the room's storage failed is no answer, and the room is opened again.
    pub(super) fn judged(&self, (incarnation, _): &Here, refusal: Refusal) -> Refusal {
        let failed = match &refusal {
            Refusal::NotNow(Delay::Reopening) => true,
            Refusal::Posix(Posix::Io) => {
                let synced = incarnation.room.sync();
                synced.is_err_and(|e| matches!(e, room::Error::Poisoned))
            }
            _ => false,
        };
        if !failed {
            return refusal;
        }
        self.fail(incarnation);
        Refusal::NotNow(Delay::Reopening)
    }
}
