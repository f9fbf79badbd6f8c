//! Snapshots of a served room: made and deleted for its administrator and by its policy, while clients go on.
//!
//! 1. When a snapshot is reported, nobody can overwrite what it sees: the grants under which clients wrote data that is in files have ended. Their
//!    clients get others.
//! 2. Where a disk does not answer, so that a client may still write there, there is no snapshot.
//!
//! It deliberately does not know names and policies of snapshots: who asks does, locally or [over the network](super::remote).

use room::{Room, Snapshots as _};

use super::administration::LOCAL;
use super::changes::end_grants;
use super::incarnation::Incarnation;
use super::{MetadataServer, ServerError, Shared};
use crate::audit::event::Admin;

impl MetadataServer {
    /// Reads the list of snapshots, what differs between them, or the policy.
    ///
    /// # Errors
    /// `NotNow` where the room is not open, or may be another server's by now.
    pub fn with_snapshots<T>(&self, read: impl FnOnce(&Room) -> T) -> Result<T, ServerError> {
        self.shared.with_snapshots(read)
    }

    /// Creates, renames or deletes snapshots, or changes their policy. `what` is recorded first, where an administrator asks for it.
    ///
    /// # Errors
    /// As [`with_snapshots`](Self::with_snapshots). `StillWritable` where snapshots were created and a disk does not answer: they are deleted again.
    /// `Audit` where it cannot be recorded: nothing is done then.
    pub fn change_snapshots<T>(
        &self,
        what: Option<Admin>,
        change: impl FnOnce(&Room) -> T,
    ) -> Result<T, ServerError> {
        let what = what.map(|what| (LOCAL, what));
        self.shared.change_snapshots(what, change)
    }

    /// Has a snapshot sent, which is recorded first. `send` gets the room, and what says whether to go on: not where the server stops, or another
    /// one may have the room. Nothing is to be called complete that was read before that said no.
    ///
    /// # Errors
    /// `NotNow` where the room is not open; `Audit` where it cannot be recorded: nothing is sent then.
    pub fn send_snapshot<T>(
        &self,
        send: impl FnOnce(&Room, &(dyn Fn() -> bool + Sync)) -> T,
    ) -> Result<T, ServerError> {
        let incarnation = self.shared.serving()?;
        self.shared.recorded(LOCAL, Admin::SnapshotSent {})?;
        let go_on = || {
            let fence = Some(incarnation.fence.clone());
            !incarnation.is_stopping() && !incarnation.has_failed() && self.shared.may_answer(fence)
        };
        Ok(send(&incarnation.room, &go_on))
    }
}

impl Shared {
    pub(super) fn with_snapshots<T>(
        &self,
        read: impl FnOnce(&Room) -> T,
    ) -> Result<T, ServerError> {
        let incarnation = self.serving()?;
        let read = read(&incarnation.room);
        self.answerable(&incarnation, read)
    }

    /// `what` is changed and by whom is recorded first; `None`: the policy does it.
    pub(super) fn change_snapshots<T>(
        &self,
        what: Option<(&str, Admin)>,
        change: impl FnOnce(&Room) -> T,
    ) -> Result<T, ServerError> {
        let _one = self.snapshotting.lock();
        let incarnation = self.serving()?;
        if let Some((by, what)) = what {
            self.recorded(by, what)?;
        }
        let room = &incarnation.room;
        let newest = || Ok::<_, ServerError>(room.snapshots()?.last().map_or(0, |s| s.number));
        let before = newest()?;
        let changed = change(room);
        if newest()? > before && !settle(&incarnation) {
            let all = room.snapshots()?.into_iter();
            for snapshot in all.filter(|snapshot| snapshot.number > before) {
                room.delete_snapshot(&snapshot.name)?;
            }
            return Err(ServerError::StillWritable);
        }
        self.answerable(&incarnation, changed)
    }

    pub(super) fn answerable<T>(
        &self,
        incarnation: &Incarnation,
        answer: T,
    ) -> Result<T, ServerError> {
        let fence = Some(incarnation.fence.clone());
        match self.may_answer(fence) {
            true => Ok(answer),
            false => Err(ServerError::NotNow),
        }
    }
}

/// Ends the grants under which data was written that is in a file, those of earlier incarnations too. False where a disk does not answer.
pub(super) fn settle(incarnation: &Incarnation) -> bool {
    let all = incarnation.sessions.all();
    let grants = all.iter().flat_map(|session| {
        let used = session.used_grants().into_iter();
        used.map(|grant| (session.id, grant))
    });
    let grants: Vec<_> = grants.collect();
    let deadline = incarnation.authority.revocation_deadline();
    let earlier = incarnation.authority.outlast_earlier(deadline);
    earlier
        .and_then(|()| end_grants(incarnation, &grants, deadline))
        .is_ok()
}
