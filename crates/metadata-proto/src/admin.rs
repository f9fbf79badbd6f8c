//! What an administrator asks of a metadata server over the network.
//!
//! 1. Nothing here returns or changes names, rights or data of files as they are, and nothing makes a key: who makes keys could make one
//!    for a user, and read what that user may.
//! 2. What only a deleted snapshot held is gone. Putting something back, and what differs between snapshots, is not asked here: both are
//!    about names of files.

pub use model::{Quota, Snapshot, SnapshotPolicy, Used};
use netdisk::{DiskAddress, DiskKey};
use serde::{Deserialize, Serialize};

/// The number of an administrator, which no user has.
pub const ADMINISTRATOR: u32 = u32::MAX;

/// Version of these requests and answers.
pub const VERSION: u32 = 4;

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// The users and administrators.
    Users,
    /// Sets how much a user may have.
    SetQuota {
        /// The name.
        name: String,
        /// How much.
        quota: Quota,
    },
    /// Takes a user out, at once, with every key.
    RemoveUser {
        /// The name.
        name: String,
    },
    /// The disks.
    Disks,
    /// Adds a disk, or says again where a known one is.
    AddDisk {
        /// The name.
        name: String,
        /// Where it is.
        address: DiskAddress,
        /// Its key.
        key: DiskKey,
    },
    /// Has a disk emptied, and forgotten then.
    RemoveDisk {
        /// The name.
        name: String,
    },
    /// The snapshots.
    Snapshots,
    /// Creates a snapshot.
    CreateSnapshot {
        /// The name; `None`: the time.
        name: Option<String>,
    },
    /// Gives a snapshot another name.
    RenameSnapshot {
        /// The name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Deletes a snapshot.
    DeleteSnapshot {
        /// The name.
        name: String,
    },
    /// Deletes the automatic snapshots that the policy does not keep.
    PruneSnapshots {
        /// Only says which.
        dry_run: bool,
    },
    /// The policy of automatic snapshots.
    SnapshotPolicy,
    /// Sets the policy, or removes it.
    SetSnapshotPolicy {
        /// The policy.
        policy: Option<SnapshotPolicy>,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// Users and administrators.
    Users(Vec<UserRow>),
    /// The user is out.
    Removed(Ended),
    /// The disks.
    Disks(Vec<DiskRow>),
    /// So many bytes are moved to other disks before it is gone.
    Leaving(u64),
    /// Snapshots by number: all, the one that was created, or those that were deleted.
    Snapshots {
        /// The snapshots.
        rows: Vec<SnapshotRow>,
        /// Bytes that deleting all that there are frees.
        held: u64,
    },
    /// The policy; `None`: there is none.
    SnapshotPolicy(Option<SnapshotPolicy>),
    /// No snapshot has the name.
    NoSnapshot,
    /// A snapshot has the name already.
    SnapshotExists,
    /// There is no policy that says what to delete.
    NoSnapshotPolicy,
    /// Refused, in a sentence. `busy`: the other disks have no space.
    Refused {
        /// Why.
        message: String,
        /// It may be possible later.
        busy: bool,
    },
}

/// How far the end of what clients with a key had has come, the worst last. They are out in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// They have nothing any more.
    All,
    /// The room cannot be changed at the moment: their locks and open files are kept until it can.
    ButInRoom,
    /// Disks that cannot be reached still accept what was theirs, until they can be or its time is over.
    ButOnDisks,
}

/// A user, without keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRow {
    /// The name.
    pub name: String,
    /// The number; the largest there is for an administrator.
    pub uid: u32,
    /// Groups.
    pub gids: Vec<u32>,
    /// Serial numbers of the keys.
    pub serials: Vec<[u8; 16]>,
    /// When keys end, seconds since 1970.
    pub ends: Vec<([u8; 16], u64)>,
    /// How much it may have.
    pub quota: Quota,
    /// What it has; `None` where nobody counts: no user has a quota, or no server runs.
    pub used: Option<Used>,
}

impl UserRow {
    /// Whether this is an administrator: without a session, and so without names and data.
    pub fn is_admin(&self) -> bool {
        self.uid == ADMINISTRATOR
    }

    /// When a certificate ends; `None` where it has no lifetime.
    pub fn end_of(&self, serial: &[u8; 16]) -> Option<u64> {
        end_of(&self.ends, serial)
    }
}

/// When a certificate ends, of these; `None` where it has no lifetime.
pub fn end_of(ends: &[([u8; 16], u64)], serial: &[u8; 16]) -> Option<u64> {
    let end = ends.iter().find(|(of, _)| of == serial);
    end.map(|(_, end)| *end)
}

/// A disk, without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRow {
    /// The name.
    pub name: String,
    /// Where it is.
    pub address: DiskAddress,
    /// Whether it answers.
    pub reachable: bool,
    /// Its blocks.
    pub blocks: u64,
    /// Bytes that are not free.
    pub used: u64,
    /// Capabilities that clients have.
    pub capabilities: u64,
    /// Revocations to come.
    pub pending: u64,
    /// Bytes still to be moved away, and what is in the way.
    pub removal: Option<(u64, Option<String>)>,
}

/// A snapshot, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRow {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Bytes that deleting this one alone frees.
    pub exclusive: u64,
}
