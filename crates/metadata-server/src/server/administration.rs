//! Changes of users and disks while a room is served, asked for locally or over the network.
//!
//! Each is recorded before it is done.

use std::sync::Arc;

use super::incarnation::{self, Incarnation};
use super::{ServerError, Shared, disk_added, drain, io};
use metadata_proto::admin::{Quota, UserRow};

use crate::audit::event::Admin;
use crate::enrol;

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

impl Shared {
    pub(super) fn serving(&self) -> Result<Arc<Incarnation>, ServerError> {
        self.incarnation().ok_or(ServerError::NotNow)
    }

    /// Records what is about to be done: it is not where it cannot be recorded.
    pub(super) fn recorded(&self, by: &str, what: Admin) -> Result<(), ServerError> {
        let recorded = self.audit.administered(by, what);
        recorded.map_err(ServerError::Audit)
    }

    pub(super) fn remove_user(&self, by: &str, name: &str) -> Result<bool, ServerError> {
        let _one = self.enrolling.lock();
        let incarnation = self.serving()?;
        let name_of = name.to_owned();
        self.recorded(by, Admin::UserRemoved { name: name_of })?;
        let gone = enrol::remove_user(&incarnation.room, name)?;
        self.users.set(&enrol::everybody(&incarnation.room)?);
        enrol::enforce_quotas(&incarnation.room)?;
        Ok(self.end_keys(&incarnation, &gone.serials))
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

    /// Ends what clients with these keys have: connections, sessions, capabilities. False where a revocation goes on.
    pub(super) fn end_keys(&self, serving: &Arc<Incarnation>, serials: &[[u8; 16]]) -> bool {
        self.users.cut(serials);
        let ended = serving
            .sessions
            .end_where(|session, _| serials.contains(&session.serial));
        serving.replies.forget_keys(&serving.room, serials);
        let mut revoked = true;
        for session in ended {
            serving.audit.session_ends(&session, "key-removed");
            if !incarnation::end_session(serving, &session, serving.authority.revocation_deadline())
            {
                revoked = false;
                incarnation::end_session_in_time(serving, session);
            }
        }
        revoked
    }

    pub(super) fn add_disk(&self, by: &str, disk: enrol::Disk) -> Result<(), ServerError> {
        let _one = self.enrolling.lock();
        let incarnation = self.serving()?;
        let _emptying = incarnation.emptying.lock();
        let id = disk.address.id;
        self.recorded(by, disk_added(&disk))?;
        enrol::add_disk(&incarnation.room, disk.clone())?;
        incarnation
            .storage
            .set_draining(id, false)
            .map_err(io("the placement of segments"))?;
        incarnation
            .authority
            .add(self.config.as_served(disk), &incarnation.storage);
        Ok(())
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
