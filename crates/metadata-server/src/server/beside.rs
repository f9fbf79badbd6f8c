//! A room that no server serves, opened to look after its users and disks.
//!
//! What is changed is kept in the room for the audit log of the next server.

use std::time::Duration;

use metadata_proto::admin::{Quota, UserRow};

use super::administration::{quota_set, user_rows};
use super::incarnation::open as open_room;
use super::{ServerError, disk_added, drain, io};
use crate::audit::{self, event::Admin};
use crate::enrol;
use crate::fence::{RoomFiles, Turn};

/// A room that no server serves, opened to look after its users and disks: its files' data is not reached.
#[derive(Debug)]
pub struct Beside {
    /// The room.
    pub room: room::Room,
    storage: crate::placement::NetStorage,
}

impl Beside {
    /// Opens it.
    ///
    /// # Errors
    /// As for [`MetadataServer::start`](super::MetadataServer::start).
    pub fn open(
        dir: &std::path::Path,
        credential: &room::Credential,
        options: room::OpenOptions,
        files: &dyn RoomFiles,
    ) -> Result<Self, ServerError> {
        let (room, storage, _) = open_room(
            (files, &Turn::NOW),
            dir,
            credential,
            options,
            Duration::ZERO,
        )?;
        Ok(Self { room, storage })
    }

    /// [`MetadataServer::add_disk`](super::MetadataServer::add_disk).
    ///
    /// # Errors
    /// As there.
    pub fn add_disk(&self, disk: enrol::Disk) -> Result<(), ServerError> {
        let id = disk.address.id;
        self.keep_for_audit(disk_added(&disk))?;
        enrol::add_disk(&self.room, disk)?;
        self.storage
            .set_draining(id, false)
            .map_err(io("the placement of segments"))
    }

    /// [`MetadataServer::set_quota`](super::MetadataServer::set_quota).
    ///
    /// # Errors
    /// As there.
    pub fn set_quota(&self, name: &str, quota: Quota) -> Result<(), ServerError> {
        self.keep_for_audit(quota_set(name, quota))?;
        Ok(enrol::set_quota(&self.room, name, quota)?)
    }

    /// [`MetadataServer::users`](super::MetadataServer::users), without what they have: nobody counts.
    ///
    /// # Errors
    /// Of the room.
    pub fn users(&self) -> Result<Vec<UserRow>, ServerError> {
        user_rows(&self.room)
    }

    /// [`MetadataServer::remove_disk`](super::MetadataServer::remove_disk); its data is moved when a server runs, and whether there is space for it is known only
    /// then.
    ///
    /// # Errors
    /// As there.
    pub fn remove_disk(&self, name: &str) -> Result<Option<u64>, ServerError> {
        let disk = drain::find(&self.room, name)?;
        let name = disk.name.clone();
        self.keep_for_audit(Admin::DiskRemoved { name })?;
        drain::begin(&self.room, &self.storage, &disk)
    }

    /// Keeps what is about to be changed for the audit log of the next server.
    ///
    /// # Errors
    /// Of the room.
    pub fn keep_for_audit(&self, what: Admin) -> Result<(), ServerError> {
        Ok(audit::keep(&self.room, what)?)
    }

    /// Disks that are being emptied, and the bytes of file data still there.
    pub fn removals(&self) -> Vec<(netdisk::DiskId, u64)> {
        let left = |id| (id, drain::live_on(&self.room, &self.storage, id));
        self.storage.draining().into_iter().map(left).collect()
    }
}
