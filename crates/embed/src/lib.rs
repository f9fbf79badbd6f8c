//! An open room for programs that are not Rust: paths and handles, and an answer to everything a foreign caller may do.
//!
//! To begin with, copy `examples/transactions.rs`.
//!
//! What the C, Java and Python libraries share. Their own code turns words of their language into calls of this crate, and
//! [`Kind`] into exceptions; whatever else is decided, is decided here.
//!
//! 1. A [`Session`] may be used, cloned and closed from any thread at any time: closing waits for the calls under way, commits,
//!    and from then on every call, also of files still open, is [`Error::Closed`].
//! 2. A process that was forked from the one that opened a room has no room: its calls are [`room::Error::Forked`], and its end does
//!    nothing to the room.
//! 3. No panic leaves [`guard`].
//! 4. A session of a snapshot reads what the room was, and is closed with the room's.
//! 5. Permission bits are kept, and not checked: anyone with the key has full access.
//!
//! It deliberately does not know any of the languages, nor how their strings are encoded: a path is bytes between slashes.

#![forbid(unsafe_code)]

mod error;
mod file;
mod key;
mod policy;
mod session;
mod shared;
mod snapshots;

pub use error::{Error, Kind, Result, guard};
pub use file::{File, OpenMode, Whence};
pub use key::Key;
pub use policy::PolicyReport;
pub use room::diff::{Change, What};
pub use room::restore::Restored;
pub use room::{
    Argon2Cost, Error as RoomError, FileFlags, FileKind, Info, Inode, InodeNo, OpenOptions,
    RenameMode, RoomSpace, Secret, SetAttr, SetTime, SlotInfo, SlotKind, Snapshot, SnapshotPolicy,
    Suite, Timestamp, XattrMode,
};
pub use session::{Entry, Session};
pub use snapshots::SnapshotInfo;
