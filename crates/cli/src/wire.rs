//! What is said over the control socket: requests, progress, answers; one JSON object a line.
//!
//! Invariant: [`parse_request`] accepts exactly what [`Request`] can express; anything else is an error that names no secret.

use room::SnapshotPolicy;
use serde::{Deserialize, Serialize};

use crate::broker::Step;
use crate::credentials::{Given, NewGiven};
use crate::exit::Exit;

/// The most bytes of a request line: the largest key file twice (old and new) in hexadecimal, and some room.
pub const REQUEST_LINE_MAX: usize = 4 * (1 << 20) + (64 << 10);
/// The most bytes of an answer line: a check may list many files.
pub const ANSWER_LINE_MAX: usize = 256 << 20;

/// What a client asks of the process that holds a room. Requests without fields have braces all the same: serde would take
/// unknown fields for a plain name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Where the room is mounted, and by which process.
    Status {},
    /// Facts about the room.
    Info {},
    /// Its space.
    Space {},
    /// Makes everything done so far durable.
    Sync {},
    /// The key slots.
    Slots {},
    /// Adds a key slot.
    AddSlot {
        /// Opens the room already.
        with: Given,
        /// The new key.
        new: NewGiven,
        /// A word for it.
        label: String,
    },
    /// Removes a key slot.
    RemoveSlot {
        /// Opens the room.
        with: Given,
        /// The slot.
        slot: u32,
        /// Also if it is the one that `with` opens.
        force: bool,
    },
    /// Replaces what opens a slot.
    ChangeSlot {
        /// Opens the room already.
        with: Given,
        /// The slot; `None`: the one that `with` opens.
        slot: Option<u32>,
        /// The new key.
        new: NewGiven,
    },
    /// The header, for a backup.
    HeaderBackup {
        /// Opens the room.
        with: Given,
    },
    /// Checks the room.
    Check {
        /// Opens every unit of data.
        read_data: bool,
        /// Repairs what can be repaired.
        repair: bool,
    },
    /// Rewrites thin segments.
    Compact {
        /// Segments with less live data than this are thin; 1 to 100.
        percent: u8,
    },
    /// Copies the room to a directory.
    Backup {
        /// Absolute path of the target, in hexadecimal: paths need not be text.
        target: String,
    },
    /// Gives the room a new master key.
    Rekey {
        /// Opens the room, and keeps its slot.
        with: Given,
        /// Also if slots are dropped by that.
        drop_slots: bool,
    },
    /// Creates a snapshot made by hand.
    CreateSnapshot {
        /// Its name; `None`: the time.
        name: Option<String>,
    },
    /// Creates the snapshot that a restore can be undone with.
    SnapshotBeforeRestore {},
    /// Creates the one with what programs changed since.
    SnapshotDuringRestore {},
    /// The snapshots, and what they hold.
    Snapshots {},
    /// Gives a snapshot another name.
    RenameSnapshot {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// Deletes a snapshot.
    DeleteSnapshot {
        /// Its name.
        name: String,
    },
    /// What differs between two snapshots.
    DiffSnapshots {
        /// The earlier one.
        from: String,
        /// The later one; `None`: now.
        to: Option<String>,
    },
    /// What was removed, and snapshots still have.
    Removed {
        /// Since this snapshot; `None`: since the first one.
        since: Option<String>,
    },
    /// The policy for automatic snapshots.
    SnapshotPolicy {},
    /// Sets that policy.
    SetSnapshotPolicy {
        /// `None`: there is none any more.
        policy: Option<SnapshotPolicy>,
    },
    /// Deletes the automatic snapshots that the policy does not keep.
    PruneSnapshots {
        /// Only says which.
        dry_run: bool,
    },
    /// The snapshot whose moment has this name.
    SnapshotOfMoment {
        /// Its 32 hexadecimal digits.
        moment: String,
    },
    /// Writes a snapshot as a stream. The client has a directory for what is collected, and the stream's other end.
    Send {
        /// The snapshot.
        to: String,
        /// The one that the receiver has; `None`: everything is sent.
        since: Option<String>,
        /// The token of an interrupted transfer.
        resume: Option<String>,
        /// The receiver keeps snapshots that were created since then: seconds and nanoseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_since: Option<(i64, u32)>,
        /// And the newest of each of these periods.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_periods: Option<SnapshotPolicy>,
    },
    /// Says by a progress line that it was taken up, and answers once the room is unmounted, committed and closed.
    AwaitClose {},
    /// Notes that the mount was taken out of sight while files are open in it.
    Detached {},
}

/// A line from the process that holds the room.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// Bytes done, bytes in all.
    Progress(u64, u64),
    /// The client is to do this in the directory of a backup.
    Step(Step),
    /// The answer; nothing follows.
    Answer(Answer),
}

/// How a request ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It was carried out.
    Done(Reply),
    /// It was not.
    Failed {
        /// An exit code of the command.
        exit: u8,
        /// What happened and what to do.
        message: String,
    },
}

/// How requests come from the kernel to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Through the device `/dev/fuse`.
    Device,
    /// Over io_uring.
    IoUring,
}

/// What a request yields.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Nothing to say.
    Nothing,
    /// Where the room is mounted.
    Status {
        /// The process that serves it.
        pid: u32,
        /// Its mountpoint, in hexadecimal.
        mountpoint: String,
        /// Whether it was mounted read-only.
        read_only: bool,
        /// How the kernel's requests come; `None` before it is mounted.
        transport: Option<Transport>,
        /// The snapshot that is mounted in the place of the room.
        #[serde(default)]
        snapshot: Option<String>,
        /// Name of the directory with the snapshots in the mount, in hexadecimal; `None`: there is none.
        #[serde(default)]
        snapshots: Option<String>,
        /// The mount was taken out of sight: it ends when the files that are open in it are closed.
        #[serde(default)]
        detached: bool,
    },
    /// Facts.
    Info(InfoReply),
    /// Space.
    Space(SpaceReply),
    /// Key slots.
    Slots(Vec<SlotReply>),
    /// The slot that was added or changed.
    Slot(u32),
    /// A header, in hexadecimal.
    Header(String),
    /// What a check found.
    Check(CheckReply),
    /// What a compaction did.
    Compacted(CompactReply),
    /// What a backup did.
    Backup(BackupReply),
    /// What a rekey did.
    Rekeyed(RekeyReply),
    /// A snapshot that was created.
    Snapshot(SnapshotReply),
    /// All snapshots.
    Snapshots(SnapshotsReply),
    /// What differs.
    Changes(Vec<ChangeReply>),
    /// What was removed.
    Removed(Vec<RemovedReply>),
    /// The policy for automatic snapshots.
    Policy(Option<SnapshotPolicy>),
    /// The snapshots that were deleted.
    Pruned(Vec<SnapshotReply>),
    /// The snapshot's name; `None`: there is none.
    SnapshotName(Option<String>),
    /// What was sent; `None`: what an interrupted transfer brought cannot be left out.
    Sent(Option<SentReply>),
}

/// What was sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SentReply {
    /// The moment that the receiver is then.
    pub(crate) moment: String,
    /// Bytes of the stream.
    pub(crate) sent: u64,
    /// Bytes of data, those left out included.
    pub(crate) data: u64,
}

/// Facts about a room; the JSON of `info`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InfoReply {
    pub(crate) id: String,
    pub(crate) format: u32,
    pub(crate) suite: String,
    pub(crate) generation: u64,
    pub(crate) key_epoch: u32,
    pub(crate) rekeying: bool,
    pub(crate) created: u64,
    pub(crate) slots: u64,
    pub(crate) segments: u64,
    /// How many there are.
    #[serde(default)]
    pub(crate) snapshots: u64,
    pub(crate) space: SpaceReply,
    /// Of a room in a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<Box<StoreReply>>,
}

/// What a room has in a store of objects, and what was asked of that since the room was opened.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct StoreReply {
    /// Objects and their bytes; unknown where the store does not answer.
    pub objects: Option<u64>,
    /// Bytes of the objects.
    pub bytes: Option<u64>,
    /// Objects written: each try counts, as in what follows.
    pub puts: u64,
    /// Objects read, whole or in part.
    pub gets: u64,
    /// Pages of lists.
    pub lists: u64,
    /// Objects removed.
    pub deletes: u64,
    /// Bytes written.
    pub bytes_put: u64,
    /// Bytes read.
    pub bytes_got: u64,
}

/// Space in bytes; the JSON of `df`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct SpaceReply {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) live: u64,
    pub(crate) stored: u64,
    /// A process before this version does not say it.
    #[serde(default)]
    pub(crate) reserved: u64,
    pub(crate) inodes: u64,
    /// Bytes that snapshots hold.
    #[serde(default)]
    pub(crate) snapshots: u64,
}

/// A key slot; the JSON of `key list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SlotReply {
    pub(crate) slot: u32,
    pub(crate) kind: String,
    pub(crate) label: String,
    pub(crate) created: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) kdf_memory_kib: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) kdf_passes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) kdf_lanes: Option<u32>,
    pub(crate) recipients: Vec<String>,
    /// The programs that sealing for the recipients starts: `age-plugin-NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) plugins: Vec<String>,
}

/// What a check found; the JSON of `check`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CheckReply {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) bytes_read: u64,
    pub(crate) findings: Vec<String>,
    pub(crate) lost: Vec<LostReply>,
    pub(crate) repaired: Vec<String>,
    pub(crate) stopped: bool,
}

/// A range of a file that fails authentication.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostReply {
    pub(crate) path: String,
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// What a compaction did; the JSON of `compact`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompactReply {
    pub(crate) segments_rewritten: u64,
    pub(crate) bytes_moved: u64,
    pub(crate) bytes_given_back: u64,
    pub(crate) unreadable: Vec<String>,
    pub(crate) stopped: bool,
}

/// What a rekey did; the JSON of `rekey`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RekeyReply {
    pub(crate) dropped_slots: Vec<SlotReply>,
    pub(crate) segments_resealed: u64,
    pub(crate) finished: bool,
    pub(crate) unreadable: Vec<String>,
}

/// What a backup did; the JSON of `backup`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackupReply {
    pub(crate) generation: u64,
    pub(crate) segments_copied: u64,
    pub(crate) segments_kept: u64,
    pub(crate) bytes_copied: u64,
    #[serde(default)]
    pub(crate) problems: Vec<String>,
}

/// Snapshots and what they hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotsReply {
    /// By number.
    pub(crate) snapshots: Vec<SnapshotReply>,
    /// Bytes that deleting all of them frees.
    pub(crate) held: u64,
}

/// A snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotReply {
    pub(crate) number: u64,
    pub(crate) name: String,
    /// Seconds since 1970, and nanoseconds.
    pub(crate) created: (i64, u32),
    pub(crate) automatic: bool,
    /// Bytes that deleting this one alone frees.
    pub(crate) exclusive: u64,
}

/// What became of a file between two moments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeReply {
    /// `added`, `removed`, `renamed`, `changed` (its data) or `attributes`.
    pub(crate) change: String,
    pub(crate) kind: String,
    /// In hexadecimal.
    pub(crate) path: String,
    /// The earlier path of one that was renamed, likewise.
    pub(crate) from: Option<String>,
    /// Length in bytes of a regular file, where it was there.
    pub(crate) before: Option<u64>,
    pub(crate) after: Option<u64>,
}

/// What was removed, and snapshots still have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemovedReply {
    /// In hexadecimal.
    pub(crate) path: String,
    pub(crate) kind: String,
    /// Names of the snapshots that have it, from the newest.
    pub(crate) snapshots: Vec<String>,
    /// With what was in it.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
}

/// Why a line is not a request.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Longer than [`REQUEST_LINE_MAX`].
    #[error("the request is longer than {REQUEST_LINE_MAX} bytes")]
    TooLong,
    /// Not one of the requests.
    #[error("not a request: {0}")]
    NotARequest(String),
}

/// Reads a request from a line (without its newline).
///
/// # Errors
/// [`WireError`] for anything that is not exactly one request.
pub fn parse_request(line: &[u8]) -> Result<Request, WireError> {
    if line.len() > REQUEST_LINE_MAX {
        return Err(WireError::TooLong);
    }
    serde_json::from_slice(line).map_err(|e| {
        // serde's message may quote a string of the request, which may be a secret: only its place is reported.
        WireError::NotARequest(format!("column {}: {:?} error", e.column(), e.classify()))
    })
}

impl From<&crate::error::Error> for Answer {
    fn from(error: &crate::error::Error) -> Answer {
        Answer::Failed {
            exit: error.exit().code(),
            message: error.to_string(),
        }
    }
}

impl Answer {
    /// The reply, or the failure as our own error.
    pub(crate) fn into_result(self) -> crate::error::Result<Reply> {
        match self {
            Answer::Done(reply) => Ok(reply),
            Answer::Failed { exit, message } => Err(crate::error::Error::Said {
                exit: Exit::from_code(exit),
                message,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::encode_line;

    #[test]
    fn every_plain_request_survives_the_wire() {
        for request in [
            Request::Status {},
            Request::Info {},
            Request::Check {
                read_data: true,
                repair: false,
            },
            Request::Compact { percent: 50 },
            Request::AwaitClose {},
            Request::CreateSnapshot { name: None },
            Request::DiffSnapshots {
                from: "monday".into(),
                to: Some("tuesday".into()),
            },
            Request::Removed { since: None },
            Request::SetSnapshotPolicy {
                policy: Some(SnapshotPolicy {
                    hourly: 24,
                    daily: 7,
                    weekly: 5,
                    min_free_percent: 10,
                }),
            },
        ] {
            let line = encode_line(&request);
            let back = parse_request(&line[..line.len() - 1]).unwrap();
            assert_eq!(format!("{back:?}"), format!("{request:?}"));
        }
    }

    #[test]
    fn anything_else_is_refused_without_repeating_it() {
        for bad in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"op":"fly"}"#,
            r#"{"op":"check","read_data":true}"#,
            r#"{"op":"check","read_data":true,"repair":false,"more":1}"#,
            r#"{"op":"status","more":1}"#,
            r#"{"op":"compact","percent":300}"#,
            r#"{"op":"status"} {"op":"status"}"#,
            r#"{"op":"rekey","with":{"kind":"passphrase","secret":"sesame"}}"#,
        ] {
            let refusal = parse_request(bad.as_bytes()).unwrap_err().to_string();
            assert!(
                !refusal.contains("sesame") && !refusal.contains("fly"),
                "{refusal}"
            );
        }
    }
}
