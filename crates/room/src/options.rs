//! What a room is created and opened with, and facts about an open one.

use std::path::PathBuf;

use model::RoomSpace;
use seal::{NewCredential, RoomId, Secret, Suite};

use crate::header::KnownKey;

/// How to create a room.
#[derive(Debug)]
pub struct NewRoom {
    /// What will open it.
    pub credential: NewCredential,
    /// A word for the first key slot, for people.
    pub label: String,
    /// The suite; `None`: the faster one here.
    pub suite: Option<Suite>,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Options for its first opening.
    pub open: OpenOptions,
}

impl NewRoom {
    /// A room opened by a passphrase, with the key derivation's cost measured to about a second.
    pub fn with_passphrase(secret: Secret) -> Self {
        let cost = seal::Argon2Cost::measured(std::time::Duration::from_secs(1));
        Self::with_credential(NewCredential::Passphrase { secret, cost })
    }

    /// A room opened by any credential.
    pub fn with_credential(credential: NewCredential) -> Self {
        Self {
            credential,
            label: String::new(),
            suite: None,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            open: OpenOptions::default(),
        }
    }
}

/// How to open a room.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Open although this machine has seen a newer state, or cannot read what it remembers of the room.
    pub accept_rollback: bool,
    /// Where this machine remembers the newest generation it saw; `None`: [`default_state_dir`](crate::default_state_dir). Machines
    /// may share a directory: each then notices a rollback of what another one saw of the room at the same path. What is
    /// remembered and cannot be read refuses the room ([`UnusableMemory`](crate::Error::UnusableMemory)). Where there is no
    /// directory at all the room opens, a warning is logged, and [`Room::notices_rollbacks`](crate::Room::notices_rollbacks) is false.
    pub state_dir: Option<PathBuf>,
    /// Milliseconds after which changes are committed without being asked; 0: only when asked or when much is pending.
    pub commit_interval_ms: u64,
    /// Whether the room has a thread of its own, for commits at the interval, deletion, cleaning. Without one these
    /// happen in [`Room::tend`](crate::Room::tend) and at closing only, so that the same calls do the same to the storage.
    pub background: bool,
    /// Whether the storage has the segments on network disks. A room that holds none yet is marked so by its first opening for
    /// writing; one that holds some is refused, and a room that is marked is refused without this.
    pub network_backed: bool,
    /// Whether a room on network disks that lacks the feature `position-keys` is opened all the same, for
    /// [`Room::rekey`](crate::Room::rekey): nothing of it is given to clients before that.
    pub without_position_keys: bool,
    /// Whether files that the last opening left without a name are held once, as if they were open still, and not deleted:
    /// [`Room::held_without_name`](crate::Room::held_without_name).
    pub keep_unnamed: bool,
    /// A key that this process has already: tried before the credential, whose key takes long to derive.
    pub known_key: Option<KnownKey>,
}

impl OpenOptions {
    /// What is usual, and what this machine saw of rooms is remembered in `dir`.
    pub fn with_state_dir(dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: Some(dir.into()),
            ..Self::default()
        }
    }

    /// The same, for reading only.
    #[must_use]
    pub fn for_reading(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            accept_rollback: false,
            state_dir: None,
            commit_interval_ms: 5000,
            background: true,
            network_backed: false,
            without_position_keys: false,
            keep_unnamed: false,
            known_key: None,
        }
    }
}

/// Facts about an open room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Identity.
    pub id: RoomId,
    /// Format version.
    pub format: u32,
    /// Suite of file data.
    pub suite: Suite,
    /// Commits since it was made.
    pub generation: u64,
    /// Key epoch; rises with each rekey.
    pub key_epoch: u32,
    /// Whether a rekey is unfinished.
    pub rekeying: bool,
    /// Seconds since 1970 at which it was made.
    pub created: u64,
    /// Key slots in use.
    pub slots: usize,
    /// Segments.
    pub segments: u64,
    /// Space.
    pub space: RoomSpace,
}
