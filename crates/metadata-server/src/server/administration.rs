//! Changes of users and disks while a room is served, asked for locally or over the network.
//!
//! Each is recorded before it is done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attach::LOOKS_AFTER;
use super::incarnation::{self, Incarnation};
use super::{ServerError, Shared, disk_added, drain, io};
use metadata_proto::admin::{Ended, Quota, UserRow};

use crate::audit::event::Admin;
use crate::authority::Before;
use crate::enrol::{self, EnrolError};

/// How long a disk's new address may take to be stored: the room may have to be opened again.
const MOVE_TIMEOUT: Duration = Duration::from_secs(45);
/// How often it is looked whether the room is open again.
const LOOK: Duration = Duration::from_millis(50);

/// Who asks through the server's own socket.
pub(super) const LOCAL: &str = "local";

pub(super) fn quota_set(name: &str, quota: Quota) -> Admin {
    Admin::QuotaSet {
        name: name.to_owned(),
        bytes: quota.bytes,
        files: quota.files,
    }
}

pub(super) fn user_rows(room: &room::Room) -> Result<Vec<UserRow>, ServerError> {
    let all = enrol::everybody(room)?.into_iter();
    let row = |user: enrol::User| UserRow {
        used: room.used_by(user.uid).map(|(used, _)| used),
        name: user.name,
        uid: user.uid,
        gids: user.gids,
        serials: user.serials,
        ends: user.ends,
        quota: user.quota,
    };
    Ok(all.map(row).collect())
}

/// Whether a room failed because its storage did.
fn is_of_storage(error: &room::Error) -> bool {
    matches!(error, room::Error::Poisoned | room::Error::Io(_))
}

impl Shared {
    pub(super) fn serving(&self) -> Result<Arc<Incarnation>, ServerError> {
        self.incarnation().ok_or(ServerError::NotNow)
    }

    /// Records what is about to be done: it is not where it cannot be recorded.
    pub(super) fn recorded(&self, by: &str, what: Admin) -> Result<(), ServerError> {
        let recorded = self.audit.administered(by, what);
        recorded.map_err(ServerError::Audit)
    }

    pub(super) fn remove_user(&self, by: &str, name: &str) -> Result<Ended, ServerError> {
        let _one = self.enrolling.lock();
        let incarnation = self.serving()?;
        let name_of = name.to_owned();
        self.recorded(by, Admin::UserRemoved { name: name_of })?;
        let removed = enrol::remove_user(&incarnation.room, name);
        let ended = self.users_changed(&incarnation)?;
        removed?;
        enrol::enforce_quotas(&incarnation.room)?;
        Ok(ended)
    }

    /// Has the room's users in effect, and ends the keys that it does not list any more. To be called after a change that failed too: one
    /// that finds no space is done, and becomes durable later.
    pub(super) fn users_changed(&self, serving: &Arc<Incarnation>) -> Result<Ended, ServerError> {
        let gone = self.users.set(&enrol::everybody(&serving.room)?);
        Ok(match gone.is_empty() {
            true => Ended::All,
            false => self.end_keys(serving, &gone),
        })
    }

    pub(super) fn set_quota(&self, by: &str, name: &str, quota: Quota) -> Result<(), ServerError> {
        let _one = self.enrolling.lock();
        let incarnation = self.serving()?;
        self.recorded(by, quota_set(name, quota))?;
        enrol::set_quota(&incarnation.room, name, quota)?;
        Ok(enrol::enforce_quotas(&incarnation.room)?)
    }

    /// The users and administrators, with what users have.
    pub(super) fn user_rows(&self) -> Result<Vec<UserRow>, ServerError> {
        user_rows(&self.serving()?.room)
    }

    /// Ends what clients with these keys have: connections, sessions, capabilities. What could not be ended now goes on in the background.
    fn end_keys(&self, serving: &Arc<Incarnation>, serials: &[[u8; 16]]) -> Ended {
        self.users.cut(serials);
        let ended = serving
            .sessions
            .end_where(|session, _| serials.contains(&session.serial));
        serving.replies.forget_keys(&serving.room, serials);
        // One for all sessions, of which some may have been an earlier server's: other administration waits meanwhile.
        let deadline = serving.authority.revocation_deadline();
        let mut all = match serving.authority.outlast_earlier(deadline) {
            Ok(()) => Ended::All,
            Err(_) => Ended::ButOnDisks,
        };
        for session in ended {
            serving.audit.session_ends(&session, "key-removed");
            let ended = incarnation::end_session(serving, &session, deadline);
            if ended != Ended::All {
                all = all.max(ended);
                incarnation::end_session_in_time(serving, session);
            }
        }
        all
    }

    pub(super) fn add_disk(&self, by: &str, disk: enrol::Disk) -> Result<(), ServerError> {
        let _one = self.enrolling.lock();
        self.recorded(by, disk_added(&disk))?;
        let deadline = Instant::now() + MOVE_TIMEOUT;
        loop {
            let incarnation = self.serving()?;
            let moves = incarnation.authority.has(disk.address.id, &disk.name);
            if moves {
                // At once: a flush may be waiting for it where it was, and what is stored here for that flush.
                self.look_after(&incarnation, &disk, Before::Replaced)?;
            }
            match self.add_disk_to(&incarnation, &disk) {
                Ok(()) => {
                    return match moves {
                        true => Ok(()),
                        false => self.look_after(&incarnation, &disk, Before::Nothing),
                    };
                }
                // It went on elsewhere without what it had not flushed. Then the room is opened again.
                Err(ServerError::Enrol(EnrolError::Room(e)))
                    if moves && is_of_storage(&e) && Instant::now() < deadline =>
                {
                    tracing::info!(disk = disk.name, "its new address is stored later: {e}");
                    let boot = incarnation.boot;
                    // The room is closed when nobody has it any more.
                    drop(incarnation);
                    self.wait_for_another(boot, deadline);
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn add_disk_to(
        &self,
        incarnation: &Incarnation,
        disk: &enrol::Disk,
    ) -> Result<(), ServerError> {
        let _emptying = incarnation.emptying.lock();
        enrol::add_disk(&incarnation.room, disk.clone())?;
        incarnation
            .storage
            .set_draining(disk.address.id, false)
            .map_err(io("the placement of segments"))
    }

    fn look_after(
        &self,
        incarnation: &Incarnation,
        disk: &enrol::Disk,
        before: Before,
    ) -> Result<(), ServerError> {
        let disk = self.config.as_served(disk.clone());
        let storage = &incarnation.storage;
        let done = incarnation.authority.add(disk, before, storage);
        done.map_err(io(format!("{LOOKS_AFTER}; add it again")))
    }

    /// Waits until the room was opened again after the incarnation with this number.
    fn wait_for_another(&self, boot: u64, deadline: Instant) {
        let is_there = || {
            let now = self.incarnation();
            now.is_some_and(|now| now.boot != boot && !now.has_failed())
        };
        while !is_there() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn remove_disk(&self, by: &str, name: &str) -> Result<Option<u64>, ServerError> {
        let _one = self.enrolling.lock();
        let incarnation = self.serving()?;
        let disk = drain::find(&incarnation.room, name)?;
        let id = disk.address.id;
        let needed = drain::live_on(&incarnation.room, &incarnation.storage, id);
        let available = incarnation.storage.available_elsewhere(id);
        if needed > available {
            return Err(ServerError::NoPlaceElsewhere {
                disk: name.to_owned(),
                needed,
                available,
            });
        }
        let name = disk.name.clone();
        self.recorded(by, Admin::DiskRemoved { name })?;
        let _emptying = incarnation.emptying.lock();
        let left = drain::begin(&incarnation.room, &incarnation.storage, &disk)?;
        if left.is_none() {
            incarnation.authority.remove(id);
        }
        Ok(left)
    }
}
