//! The control socket: how a mounted room is reached by other processes of the same user.
//!
//! The process that serves a mount listens on a Unix socket `control` (`socket` says where). A client sends one
//! request as a line of JSON and reads lines of JSON: any number of progress lines, then one answer, then the end.
//!
//! 1. Only the user who mounted the room, and root, are answered: by the file's mode (0600) and by the peer's
//!    credentials. A client sends nothing to a process of another user, and uses a mountpoint only where the kernel has this
//!    room mounted there.
//! 2. A request line is bounded ([`REQUEST_LINE_MAX`]), read within a time limit, and parsed strictly: an unknown field is
//!    an error, not a guess.
//! 3. The holder of the room's lock owns the name: a socket found by the holder of the lock is left from a crash.

pub(crate) mod client;
pub(crate) mod server;

pub(crate) use crate::descriptors::encode_line;
pub use crate::wire::{
    ANSWER_LINE_MAX, Answer, BackupReply, ChangeReply, CheckReply, CompactReply, InfoReply, Line,
    LostReply, REQUEST_LINE_MAX, RekeyReply, RemovedReply, Reply, Request, SentReply, SlotReply,
    SnapshotReply, SnapshotsReply, SpaceReply, Transport, WireError, parse_request,
};

/// The socket's name.
pub(crate) const SOCKET: &str = "control";
