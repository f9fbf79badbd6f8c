//! What an audit log records.
//!
//! Names, sizes and contents of files are never in it: they are secret on disk, and the log is not encrypted. A file has the number
//! that clients see (`stat -c %i` on a mount), which says neither how many files there are nor which was created first.

use metadata_proto::rpc::Change;
use room::{Access, InodeNo};
use serde::{Deserialize, Serialize};

use crate::sessions::Session;

/// A user in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Who {
    /// The user's name.
    pub user: String,
    /// The user's number.
    pub uid: u32,
    /// The session, in hexadecimal.
    pub session: String,
}

impl Who {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            user: session.user.name.clone(),
            uid: session.user.uid,
            session: format!("{:016x}", session.id.0),
        }
    }
}

/// A file's number as clients see it: text, because not every reader of JSON has integers of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(pub InodeNo);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0.0)
    }
}

/// Owner and mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rights {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Permission bits, octal.
    pub mode: String,
}

impl Rights {
    pub(crate) fn of(inode: &room::Inode) -> Self {
        Self {
            uid: inode.uid,
            gid: inode.gid,
            mode: format!("{:04o}", inode.mode),
        }
    }
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Event {
    /// A file of the log begins.
    File { file: u64, log: String },
    /// A server begins to serve the room. `cut`: bytes at the end of the file that a power cut left, and that were removed.
    Start {
        version: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cut: Option<u64>,
    },
    /// It ends in an orderly way.
    Stop {},
    /// Nothing was cut off before this time: once an hour.
    Mark {},
    /// The log was full, and so many entries were dropped.
    Lost { entries: u64 },
    /// A sync of the file before failed: what it holds from entry `since` on may be lost in a power cut.
    Unsynced { since: u64 },
    SessionBegin {
        #[serde(flatten)]
        who: Who,
        address: String,
        key: String,
    },
    SessionEnd {
        #[serde(flatten)]
        who: Who,
        why: &'static str,
    },
    Open {
        #[serde(flatten)]
        who: Who,
        inode: Number,
        access: &'static str,
    },
    /// Data was mapped or committed without an open file: only a client that is not ours does so, or one that writes late, or again
    /// after the server was killed.
    Unopened {
        #[serde(flatten)]
        who: Who,
        inode: Number,
        access: &'static str,
    },
    RightsChanged {
        #[serde(flatten)]
        who: Who,
        inode: Number,
        before: Rights,
        after: Rights,
    },
    /// An access list was set or removed.
    ListChanged {
        #[serde(flatten)]
        who: Who,
        inode: Number,
        list: &'static str,
    },
    /// A name was removed; `last`: the file has none left.
    Removed {
        #[serde(flatten)]
        who: Who,
        inode: Number,
        directory: Number,
        last: bool,
    },
    /// A name moved to another directory, whose rights count from now on.
    Moved {
        #[serde(flatten)]
        who: Who,
        inode: Number,
        from: Number,
        to: Number,
    },
    Refused {
        #[serde(flatten)]
        who: Who,
        call: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        inode: Option<Number>,
        why: &'static str,
    },
    /// Connections that showed no key of a user, counted.
    ConnectionsRefused {
        count: u64,
        last_address: String,
        last_why: String,
    },
    #[serde(untagged)]
    Administration(Administration),
}

/// A change of users, keys or disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Administration {
    /// What was changed.
    #[serde(flatten)]
    pub what: Admin,
    /// Who changed it: `local` through the server's socket, `offline` while no server ran, or an
    /// administrator over the network.
    pub by: String,
    /// When, for what is logged later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A kind of change of users, keys or disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Admin {
    UserAdded {
        name: String,
        user_uid: u32,
        user_gids: Vec<u32>,
    },
    AdministratorAdded {
        name: String,
    },
    UserRenewed {
        name: String,
    },
    UserRemoved {
        name: String,
    },
    /// `None`: as much as there is.
    QuotaSet {
        name: String,
        bytes: Option<u64>,
        files: Option<u64>,
    },
    AuthorityRotated {},
    RotationFinished {
        forced: bool,
    },
    DiskAdded {
        name: String,
        id: String,
        address: String,
    },
    DiskRemoved {
        name: String,
    },
    /// The whole room was copied.
    Backup {},
    /// What a snapshot has was sent to a replica, or what it has since another one.
    SnapshotSent {},
    /// By hand: `create`, `rename`, `delete`, `prune`, `policy`, `restore` or `undelete`.
    SnapshotsChanged {
        change: String,
    },
}

pub(crate) fn access_word(access: Access) -> &'static str {
    match (access.read, access.write) {
        (true, true) => "rw",
        (false, true) => "w",
        _ => "r",
    }
}

/// What a call is about, in the client's numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About {
    /// The kind of change.
    pub(crate) change: Option<&'static str>,
    /// The file or directory that it names first.
    pub(crate) inode: Option<InodeNo>,
}

impl About {
    pub(crate) fn of(no: InodeNo) -> Self {
        Self {
            change: None,
            inode: Some(no),
        }
    }

    pub(crate) fn change(change: &Change) -> Self {
        let (name, no) = match change {
            Change::Make { parent, .. } => ("make", *parent),
            Change::Create { parent, .. } => ("create", *parent),
            Change::CreateTmpfile { parent, .. } => ("create-tmpfile", *parent),
            Change::Link { no, .. } => ("link", *no),
            Change::Unlink { parent, .. } => ("unlink", *parent),
            Change::Rmdir { parent, .. } => ("rmdir", *parent),
            Change::Rename { parent, .. } => ("rename", *parent),
            Change::SetAttributes { no, .. } => ("set-attributes", *no),
            Change::SetXattr { no, .. } => ("set-xattr", *no),
            Change::RemoveXattr { no, .. } => ("remove-xattr", *no),
            Change::Fallocate { no, .. } => ("fallocate", *no),
            Change::CopyRange { from, .. } => ("copy-range", *from),
        };
        Self {
            change: Some(name),
            inode: Some(no),
        }
    }
}
