//! What is asked of a room's users and disks, and answered: one line of JSON each.

use metadata_proto::admin::{Ended, Quota, UserRow};
use metadata_server::enrol::{self, Disk};
use serde::{Deserialize, Serialize};

use crate::broker::Step;
use crate::control;
use crate::credentials::HexSecret;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    Status {},
    AddUser {
        name: String,
        uid: u32,
        gids: Vec<u32>,
    },
    AddAdmin {
        name: String,
    },
    RenewUser {
        name: String,
        /// Serial number of the key that ends after the overlap.
        replaces: Option<[u8; 16]>,
        overlap_s: u64,
    },
    RotateAuthority {},
    StepDown {},
    FinishRotation {
        force: bool,
    },
    RemoveUser {
        name: String,
    },
    SetQuota {
        name: String,
        quota: Quota,
    },
    Users {},
    AddDisk {
        disk: Disk,
    },
    RemoveDisk {
        name: String,
    },
    Disks {},
    /// Copies the room; progress comes before the answer.
    Backup {
        /// Absolute path, in hexadecimal.
        target: String,
    },
    /// What is asked of an open room about its snapshots; progress may come before the answer.
    Snapshots {
        request: Box<control::Request>,
    },
    /// Puts back what a snapshot has; progress comes before the answer.
    PutBack(Comeback),
}

/// What comes back, and where. Paths are absolute, in hexadecimal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Comeback {
    pub(crate) version: Version,
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) must_be_directory: bool,
}

/// Which version comes back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Version {
    /// That of this snapshot, in the place of what is there.
    Of(String),
    /// The newest, where nothing is; not from a snapshot before this one.
    NewestSince(Option<String>),
}

/// What came back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RestoredReply {
    /// The snapshot that had it.
    pub(crate) snapshot: String,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// The snapshot of the room as it was before; `None`: nothing was replaced.
    pub(crate) before: Option<String>,
    /// The snapshot of what clients changed before it was replaced, and the path there, in hexadecimal.
    pub(crate) meanwhile: Option<(String, String)>,
    /// Nobody can read any more what was replaced, but through files that are open.
    pub(crate) revoked: bool,
}

/// A running server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) pid: u32,
    pub(crate) address: String,
    pub(crate) serving: bool,
    /// Another server has the room.
    #[serde(default)]
    pub(crate) standby: bool,
    pub(crate) connections: u64,
    pub(crate) sessions: Vec<(u64, String)>,
    pub(crate) opens: u64,
    // words.py: the JSON has this name
    #[serde(rename = "loans")]
    pub(crate) grants: u64,
    pub(crate) locks: u64,
    #[serde(rename = "capabilities_given")]
    pub(crate) capabilities_issued: u64,
    pub(crate) capabilities_revoked: u64,
    pub(crate) reopened: u64,
    pub(crate) disks: Vec<DiskRow>,
    /// Entries of the audit log; `None`: there is none.
    #[serde(default)]
    pub(crate) audit_entries: Option<u64>,
    /// It cannot be written.
    #[serde(default)]
    pub(crate) audit_failing: bool,
    /// How long keys of users, and the authority, are valid.
    pub(crate) lifetimes: Vec<enrol::Lifetime>,
}

/// A disk, without its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DiskRow {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) address: String,
    pub(crate) protection: String,
    /// `None`: nobody asked it.
    pub(crate) reachable: Option<bool>,
    pub(crate) bytes: u64,
    pub(crate) capabilities: usize,
    pub(crate) pending: usize,
    /// Bytes that are not free; 0 where nobody asked.
    pub(crate) used: u64,
    /// It is being emptied, and so many bytes of file data are left.
    pub(crate) leaving: Option<u64>,
    /// What is in the way of that.
    pub(crate) obstacle: Option<String>,
}

impl DiskRow {
    /// What is to be said of its removal, with `; ` before it; empty where it stays.
    pub(crate) fn removal(&self) -> String {
        let Some(left) = self.leaving else {
            return String::new();
        };
        let left = crate::output::size(left);
        match &self.obstacle {
            Some(what) => format!("; being emptied, {left} left, stopped: {what}"),
            None => format!("; being emptied, {left} left"),
        }
    }
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Done,
    Status(Box<Status>),
    Identity(HexSecret),
    /// How far the end of what the user had has come.
    Removed(Ended),
    Users(Vec<UserRow>),
    Disks(Vec<DiskRow>),
    /// Bytes done, and in all; the answer is still to come.
    Progress(u64, u64),
    /// The command is to do this in the directory of a backup; the answer is still to come.
    Step(Step),
    Backup(control::BackupReply),
    Snapshots(Box<control::Reply>),
    Restored(RestoredReply),
    /// So many bytes are moved away from a disk before it is gone; whether a server does that now.
    Leaving {
        left: u64,
        now: bool,
    },
    Refused {
        exit: u8,
        message: String,
    },
}

pub(in crate::commands::metadata) fn protection(of: netdisk::Protection) -> String {
    format!("{of:?}").to_lowercase()
}

impl DiskRow {
    pub(super) fn known(disk: &Disk) -> Self {
        Self {
            name: disk.name.clone(),
            id: disk.address.id.to_string(),
            address: disk.address.address.clone(),
            protection: protection(disk.address.protection),
            reachable: None,
            bytes: 0,
            capabilities: 0,
            pending: 0,
            used: 0,
            leaving: None,
            obstacle: None,
        }
    }

    pub(super) fn running(disk: &metadata_server::authority::DiskState) -> Self {
        Self {
            name: disk.name.clone(),
            id: disk.address.id.to_string(),
            address: disk.address.address.clone(),
            protection: protection(disk.address.protection),
            reachable: Some(disk.reachable),
            bytes: disk.blocks * netdisk::BLOCK_LEN as u64,
            capabilities: disk.capabilities,
            pending: disk.pending,
            used: disk.used,
            leaving: disk.removal.as_ref().map(|removal| removal.left),
            obstacle: disk.removal.as_ref().and_then(|r| r.obstacle.clone()),
        }
    }
}
