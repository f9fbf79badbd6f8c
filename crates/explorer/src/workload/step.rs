//! One operation of a workload, and its line of text.
//!
//! 1. A step's line parses back into the same step; a workload is its lines.
//! 2. A step names files by paths without a leading slash; a file it writes gets bytes that depend on the step's number
//!    only (see [`bytes`]), so that no two steps leave the same contents.
//!
//! It deliberately does not know how a step is carried out.

use std::fmt;
use std::str::FromStr;

use room::Fallocate;

/// One operation. Offsets and lengths are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes an empty file.
    Create(String),
    /// Creates a directory.
    Mkdir(String),
    /// Removes an empty directory.
    Rmdir(String),
    /// Removes a name of a file.
    Unlink(String),
    /// Makes the first name a symbolic link to the second.
    Symlink(String, String),
    /// Gives the first file the second name.
    Link(String, String),
    /// Moves the first name to the second, replacing what is there.
    Rename(String, String),
    /// Swaps two names.
    Exchange(String, String),
    /// Writes: path, offset, length.
    Write(String, u64, u64),
    /// Writes whole pages, as the kernel does for a file that is mapped: path, offset, length. What a room sees of a
    /// mapping is this.
    Mmap(String, u64, u64),
    /// Writes at the end: path, length.
    Append(String, u64),
    /// Sets the length.
    Truncate(String, u64),
    /// `fallocate`: path, kind, offset, length.
    Fallocate(String, Fallocate, u64, u64),
    /// Copies a range, sharing what it can: source, its offset, target, its offset, length.
    Copy(String, u64, String, u64, u64),
    /// Sets an extended attribute: path, name, length of the value.
    SetXattr(String, String, u64),
    /// Removes an extended attribute.
    RemoveXattr(String, String),
    /// Sets the permission bits.
    Chmod(String, u16),
    /// Sets owner and group to one number.
    Chown(String, u32),
    /// Sets access and modification time to seconds since 1970.
    Times(String, i64),
    /// Opens a file, which then outlives its name, until [`Step::Release`] or the end.
    Hold(String),
    /// Writes to the file held last: offset, length.
    WriteHeld(u64, u64),
    /// Closes every held file.
    Release,
    /// Requests a write grant for this many blocks of a segment.
    Grant(u32),
    /// Seals bytes and writes them to the latest grant, as another machine does, and commits them to the file: path, offset
    /// (a multiple of 4096), length.
    Place(String, u64, u64),
    /// Releases every grant.
    Settle,
    /// Creates a file without a name, writes so many bytes to it, and links it to the path.
    Tmpfile(String, u64),
    /// `fsync` of a file.
    Fsync(String),
    /// `fdatasync` of a file.
    Fdatasync(String),
    /// `fsync` of a directory; `.` is the root.
    SyncDir(String),
    /// Makes the whole room durable.
    Sync,
    /// Begins a transaction.
    Begin,
    /// Completes it.
    Complete,
    /// Closes the room.
    Close,
    /// Closes the room and opens it again.
    Reopen,
    /// Adds a slot for a key (see [`crate::opening::credential`]).
    AddSlot(u8),
    /// Removes the slot of a key.
    RemoveSlot(u8),
    /// Makes the slot of the first key one of the second.
    ChangeSlot(u8, u8),
    /// Keeps a copy of the header.
    BackupHeader,
    /// Closes the room, puts the copy of the header in place, and opens it again.
    RestoreHeader,
    /// Creates a snapshot of this name.
    Snapshot(String),
    /// Deletes it.
    DropSnapshot(String),
    /// Gives the first snapshot the second name.
    RenameSnapshot(String, String),
    /// Makes a file's contents those that a file had in a snapshot: its name, the file in it, the file now.
    Restore(String, String, String),
    /// Does what the room does in the background.
    Tend,
    /// Does what the room does ahead of a commit.
    Prepare,
    /// Gives the room a new master key; this key keeps its slot.
    Rekey(u8),
    /// Rewrites segments less alive than so many percent.
    Compact(u8),
    /// Copies the room to a backup, or brings that up to date.
    Backup,
    /// Checks with all data.
    Check,
    /// Checks with all data and repairs.
    Repair,
}

impl Step {
    /// Whether the room promises, when it returns, that everything so far is durable. Within a transaction only its beginning and
    /// its completion do.
    pub fn is_durable(&self) -> bool {
        matches!(
            self,
            Self::Fsync(_)
                | Self::Fdatasync(_)
                | Self::SyncDir(_)
                | Self::Sync
                | Self::Begin
                | Self::Complete
                | Self::Close
                | Self::Reopen
                | Self::AddSlot(_)
                | Self::RemoveSlot(_)
                | Self::ChangeSlot(..)
                | Self::RestoreHeader
                | Self::Snapshot(_)
                | Self::DropSnapshot(_)
                | Self::RenameSnapshot(..)
                | Self::Tend
                | Self::Rekey(_)
                | Self::Compact(_)
                | Self::Backup
        )
    }

    /// The files or directories whose contents or attributes the step sets out to change.
    pub fn targets(&self) -> Vec<&str> {
        match self {
            Self::Write(path, ..)
            | Self::Mmap(path, ..)
            | Self::Append(path, _)
            | Self::Truncate(path, _)
            | Self::Fallocate(path, ..)
            | Self::SetXattr(path, ..)
            | Self::RemoveXattr(path, _)
            | Self::Chmod(path, _)
            | Self::Chown(path, _)
            | Self::Times(path, _)
            | Self::Place(path, ..)
            | Self::Tmpfile(path, _)
            | Self::Restore(_, _, path)
            | Self::Copy(_, _, path, ..) => vec![path],
            _ => Vec::new(),
        }
    }
}

fn kind_word(what: Fallocate) -> &'static str {
    match what {
        Fallocate::Allocate { keep_size: false } => "allocate",
        Fallocate::Allocate { keep_size: true } => "allocate-keep",
        Fallocate::PunchHole => "punch",
        Fallocate::ZeroRange { keep_size: false } => "zero",
        Fallocate::ZeroRange { keep_size: true } => "zero-keep",
        Fallocate::Collapse => "collapse",
        Fallocate::Insert => "insert",
    }
}

/// Every kind of `fallocate`.
pub(crate) const FALLOCATES: [Fallocate; 7] = [
    Fallocate::Allocate { keep_size: false },
    Fallocate::Allocate { keep_size: true },
    Fallocate::PunchHole,
    Fallocate::ZeroRange { keep_size: false },
    Fallocate::ZeroRange { keep_size: true },
    Fallocate::Collapse,
    Fallocate::Insert,
];

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(p) => write!(f, "create {p}"),
            Self::Mkdir(p) => write!(f, "mkdir {p}"),
            Self::Rmdir(p) => write!(f, "rmdir {p}"),
            Self::Unlink(p) => write!(f, "unlink {p}"),
            Self::Symlink(p, to) => write!(f, "symlink {p} {to}"),
            Self::Link(p, q) => write!(f, "link {p} {q}"),
            Self::Rename(p, q) => write!(f, "rename {p} {q}"),
            Self::Exchange(p, q) => write!(f, "exchange {p} {q}"),
            Self::Write(p, at, len) => write!(f, "write {p} {at} {len}"),
            Self::Mmap(p, at, len) => write!(f, "mmap-write {p} {at} {len}"),
            Self::Append(p, len) => write!(f, "append {p} {len}"),
            Self::Truncate(p, len) => write!(f, "truncate {p} {len}"),
            Self::Fallocate(p, what, at, len) => {
                write!(f, "{} {p} {at} {len}", kind_word(*what))
            }
            Self::Copy(p, at, q, to, len) => write!(f, "copy {p} {at} {q} {to} {len}"),
            Self::SetXattr(p, name, len) => write!(f, "set-xattr {p} {name} {len}"),
            Self::RemoveXattr(p, name) => write!(f, "remove-xattr {p} {name}"),
            Self::Chmod(p, mode) => write!(f, "chmod {p} {mode:o}"),
            Self::Chown(p, id) => write!(f, "chown {p} {id}"),
            Self::Times(p, secs) => write!(f, "times {p} {secs}"),
            Self::Hold(p) => write!(f, "hold {p}"),
            Self::WriteHeld(at, len) => write!(f, "write-held {at} {len}"),
            Self::Release => f.write_str("release"),
            Self::Grant(blocks) => write!(f, "grant {blocks}"),
            Self::Place(p, at, len) => write!(f, "place {p} {at} {len}"),
            Self::Settle => f.write_str("settle"),
            Self::Tmpfile(p, len) => write!(f, "tmpfile {p} {len}"),
            Self::Fsync(p) => write!(f, "fsync {p}"),
            Self::Fdatasync(p) => write!(f, "fdatasync {p}"),
            Self::SyncDir(p) => write!(f, "fsync-dir {p}"),
            Self::Sync => f.write_str("sync"),
            Self::Begin => f.write_str("begin"),
            Self::Complete => f.write_str("complete"),
            Self::Close => f.write_str("close"),
            Self::Reopen => f.write_str("reopen"),
            Self::AddSlot(k) => write!(f, "add-slot {k}"),
            Self::RemoveSlot(k) => write!(f, "remove-slot {k}"),
            Self::ChangeSlot(k, to) => write!(f, "change-slot {k} {to}"),
            Self::BackupHeader => f.write_str("backup-header"),
            Self::RestoreHeader => f.write_str("restore-header"),
            Self::Snapshot(name) => write!(f, "snapshot {name}"),
            Self::DropSnapshot(name) => write!(f, "delete-snapshot {name}"),
            Self::RenameSnapshot(name, to) => write!(f, "rename-snapshot {name} {to}"),
            Self::Restore(name, p, q) => write!(f, "restore {name} {p} {q}"),
            Self::Tend => f.write_str("tend"),
            Self::Prepare => f.write_str("prepare"),
            Self::Rekey(k) => write!(f, "rekey {k}"),
            Self::Compact(percent) => write!(f, "compact {percent}"),
            Self::Backup => f.write_str("backup"),
            Self::Check => f.write_str("check"),
            Self::Repair => f.write_str("repair"),
        }
    }
}

/// A line that is no step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a line of a workload")]
pub struct NoStep(String);

impl NoStep {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.lines().next().unwrap_or_default().to_owned())
    }
}

impl FromStr for Step {
    type Err = NoStep;

    fn from_str(line: &str) -> Result<Self, NoStep> {
        let words: Vec<&str> = line.split_whitespace().collect();
        parse(&words).ok_or_else(|| NoStep(line.to_owned()))
    }
}

fn parse(words: &[&str]) -> Option<Step> {
    let (verb, rest) = words.split_first()?;
    if let Some(what) = FALLOCATES.into_iter().find(|w| kind_word(*w) == *verb) {
        let [path, at, len] = rest else { return None };
        return Some(Step::Fallocate(
            (*path).into(),
            what,
            at.parse().ok()?,
            len.parse().ok()?,
        ));
    }
    Some(match (*verb, rest) {
        ("create", [p]) => Step::Create((*p).into()),
        ("mkdir", [p]) => Step::Mkdir((*p).into()),
        ("rmdir", [p]) => Step::Rmdir((*p).into()),
        ("unlink", [p]) => Step::Unlink((*p).into()),
        ("symlink", [p, to]) => Step::Symlink((*p).into(), (*to).into()),
        ("link", [p, q]) => Step::Link((*p).into(), (*q).into()),
        ("rename", [p, q]) => Step::Rename((*p).into(), (*q).into()),
        ("exchange", [p, q]) => Step::Exchange((*p).into(), (*q).into()),
        ("write", [p, at, len]) => Step::Write((*p).into(), at.parse().ok()?, len.parse().ok()?),
        ("mmap-write", [p, at, len]) => {
            Step::Mmap((*p).into(), at.parse().ok()?, len.parse().ok()?)
        }
        ("append", [p, len]) => Step::Append((*p).into(), len.parse().ok()?),
        ("truncate", [p, len]) => Step::Truncate((*p).into(), len.parse().ok()?),
        ("copy", [p, at, q, to, len]) => Step::Copy(
            (*p).into(),
            at.parse().ok()?,
            (*q).into(),
            to.parse().ok()?,
            len.parse().ok()?,
        ),
        ("set-xattr", [p, name, len]) => {
            Step::SetXattr((*p).into(), (*name).into(), len.parse().ok()?)
        }
        ("remove-xattr", [p, name]) => Step::RemoveXattr((*p).into(), (*name).into()),
        ("chmod", [p, mode]) => Step::Chmod((*p).into(), u16::from_str_radix(mode, 8).ok()?),
        ("chown", [p, id]) => Step::Chown((*p).into(), id.parse().ok()?),
        ("times", [p, secs]) => Step::Times((*p).into(), secs.parse().ok()?),
        ("hold", [p]) => Step::Hold((*p).into()),
        ("write-held", [at, len]) => Step::WriteHeld(at.parse().ok()?, len.parse().ok()?),
        ("release", []) => Step::Release,
        ("grant", [blocks]) => Step::Grant(blocks.parse().ok()?),
        ("place", [p, at, len]) => Step::Place((*p).into(), at.parse().ok()?, len.parse().ok()?),
        ("settle", []) => Step::Settle,
        ("tmpfile", [p, len]) => Step::Tmpfile((*p).into(), len.parse().ok()?),
        ("fsync", [p]) => Step::Fsync((*p).into()),
        ("fdatasync", [p]) => Step::Fdatasync((*p).into()),
        ("fsync-dir", [p]) => Step::SyncDir((*p).into()),
        ("sync", []) => Step::Sync,
        ("begin", []) => Step::Begin,
        ("complete", []) => Step::Complete,
        ("close", []) => Step::Close,
        ("reopen", []) => Step::Reopen,
        ("add-slot", [k]) => Step::AddSlot(k.parse().ok()?),
        ("remove-slot", [k]) => Step::RemoveSlot(k.parse().ok()?),
        ("change-slot", [k, to]) => Step::ChangeSlot(k.parse().ok()?, to.parse().ok()?),
        ("backup-header", []) => Step::BackupHeader,
        ("restore-header", []) => Step::RestoreHeader,
        ("snapshot", [name]) => Step::Snapshot((*name).into()),
        ("delete-snapshot", [name]) => Step::DropSnapshot((*name).into()),
        ("rename-snapshot", [name, to]) => Step::RenameSnapshot((*name).into(), (*to).into()),
        ("restore", [name, p, q]) => Step::Restore((*name).into(), (*p).into(), (*q).into()),
        ("tend", []) => Step::Tend,
        ("prepare", []) => Step::Prepare,
        ("rekey", [k]) => Step::Rekey(k.parse().ok()?),
        ("compact", [percent]) => Step::Compact(percent.parse().ok()?),
        ("backup", []) => Step::Backup,
        ("check", []) => Step::Check,
        ("repair", []) => Step::Repair,
        _ => return None,
    })
}

/// The bytes that step `salt` writes: no block of them is zeros or like that of another step.
pub fn bytes(salt: u64, len: u64) -> Vec<u8> {
    let mut x = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(len as usize + 8);
    while (data.len() as u64) < len {
        // xorshift64 with its usual shifts; any mixing would do.
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data.extend_from_slice(&x.to_le_bytes());
    }
    data.truncate(len as usize);
    data
}
