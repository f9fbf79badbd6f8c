//! What clients and the metadata server say to each other, over TLS 1.3 with mutual authentication.
//!
//! 1. The user is the certificate's: no call names one. Only root's client may name the owner of a new file.
//! 2. A change has a slot of its client and a number in it, and is done once however often it is sent: also after a restart of
//!    either side's connection, session or server. A client sends the next change of a slot after the answer to the one before.
//! 3. Everything here that comes from a client is checked again where it is used.

#![allow(
    clippy::too_many_arguments,
    reason = "in what is generated: a context for each call"
)]

pub use model::DIRECTORY_AGE;
use model::{
    Access, DirEntry, Extent, Fallocate, Inode, InodeNo, Lock, LockOwner, LockTable, NewFile,
    RenameMode, RoomSpace, SegmentNo, SetAttr, Snapshot, Timestamp, WriteGrantId, WrittenExtent,
    XattrMode,
};
use netdisk::{Boot, DiskAddress, DiskId, Ticket};
use seal::PositionKeys;
use serde::{Deserialize, Serialize};

use crate::admin;

/// Version of this protocol: both sides must have the same.
pub const VERSION: u32 = 12;
/// Slots of a client: changes it may have under way at the same time.
pub const SLOTS_MAX: u32 = 64;
/// Most earlier sessions in which a client may have held what it claims.
pub const FORMER_MAX: usize = 64;
/// Most locked ranges of one session, of all files together.
pub const LOCKS_MAX: usize = 16384;
/// Most grants of one session, and of one message that releases some.
pub const GRANTS_MAX: usize = 256;
/// Most files of one message that reports closed ones.
pub const CLOSED_MAX: usize = 1024;
/// The first byte a server sends after the handshake: the client's key belongs to a user.
pub const LET_IN: u8 = 2;
/// The same where it does not, or not any more; nothing follows.
pub const NOT_LET_IN: u8 = 0;

/// A session: what a client holds open, locked and borrowed. Ends with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// What a client calls itself, for as long as it is mounted: random. With its user's key it names what was answered to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientId(pub [u8; 16]);

/// What a call waits for that is not possible just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delay {
    /// The storage failed, and the room is being opened again.
    Reopening,
    /// A disk does not answer.
    Disk,
    /// Another call does the same change, and takes long.
    UnderWay,
    /// The server was started, and those who held locks before may claim them again first.
    Reclaiming,
}

/// Why a call was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A kind that POSIX names.
    #[error("{0:?}")]
    Posix(Posix),
    /// The session is over, or of an earlier incarnation of the server: begin another.
    #[error("the session is over")]
    NoSession,
    /// The client speaks another version.
    #[error("the server speaks version {server} of the protocol, the client {client}")]
    Version {
        /// The server's.
        server: u32,
        /// The client's.
        client: u32,
    },
    /// The grant is over, or was never this session's: data written under it is to be written again elsewhere.
    #[error("grant {} is over", .0.0)]
    GrantOver(WriteGrantId),
    /// A disk does not answer.
    #[error("disk {0} does not answer")]
    DiskUnreachable(DiskId),
    /// Nothing final: ask again, for a change in the same slot with the same number.
    #[error("not possible just now: {0:?}")]
    NotNow(Delay),
    /// The contents of the file were changed since the moment that the client named.
    #[error("the file was changed since")]
    Changed,
    /// The server failed; its log says how.
    #[error("the metadata server failed: {0}")]
    Failed(String),
}

/// Kinds of refusals that POSIX names, as in [`model::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is model::Error's of its name")]
pub enum Posix {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NameTooLong,
    TooManyLinks,
    FileTooLarge,
    InvalidArgument,
    NotPermitted,
    AccessDenied,
    NoXattr,
    XattrTooLarge,
    NotSupported,
    NoMoreData,
    TooManySymlinks,
    ReadOnly,
    NoSpace,
    QuotaExceeded,
    WouldBlock,
    Deadlock,
    Stale,
    Io,
}

/// Result of calls.
pub type Reply<T> = Result<T, Refusal>;

/// The server's greeting to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its session: the one it named if that is still alive, else a new one.
    pub session: SessionId,
    /// The server's incarnation: another one than before means that earlier sessions and grants are gone.
    pub boot: u64,
    /// Seconds without a heartbeat after which the session ends.
    pub lease: u32,
    /// The user's name.
    pub user: String,
    /// The user's number.
    pub uid: u32,
    /// The user's groups, the first one's that of new files.
    pub gids: Vec<u32>,
    /// The disks.
    pub disks: Vec<DiskAddress>,
}

/// What changes names and attributes. Durable when acknowledged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "each is the method of `FileSystem` of its name"
)]
pub enum Change {
    Make {
        parent: InodeNo,
        name: Vec<u8>,
        new: NewFile,
    },
    /// Makes a regular file and opens it: one call for what a program does at once.
    Create {
        parent: InodeNo,
        name: Vec<u8>,
        new: NewFile,
        access: Access,
    },
    /// Counts as one open of the new file.
    #[serde(rename = "MakeUnnamed")]
    CreateTmpfile {
        parent: InodeNo,
        new: NewFile,
    },
    Link {
        no: InodeNo,
        parent: InodeNo,
        name: Vec<u8>,
    },
    Unlink {
        parent: InodeNo,
        name: Vec<u8>,
    },
    Rmdir {
        parent: InodeNo,
        name: Vec<u8>,
    },
    Rename {
        parent: InodeNo,
        name: Vec<u8>,
        new_parent: InodeNo,
        new_name: Vec<u8>,
        mode: RenameMode,
    },
    SetAttributes {
        no: InodeNo,
        set: SetAttr,
    },
    SetXattr {
        no: InodeNo,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
        drop_setgid: bool,
    },
    RemoveXattr {
        no: InodeNo,
        name: Vec<u8>,
    },
    Fallocate {
        no: InodeNo,
        what: Fallocate,
        offset: u64,
        len: u64,
    },
    CopyRange {
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    },
}

/// What a change answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changed {
    /// The inode made, linked or changed.
    Inode(Box<Inode>),
    /// The inode made, the session in which it is open (this answer may come to a later one), and the times of change and modification that its
    /// directory has by that.
    Opened(Box<Inode>, SessionId, Timestamp),
    /// No data.
    Done,
    /// Bytes copied.
    Copied(u64),
}

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The inode.
    pub inode: Inode,
    /// It is a directory, and stays what the name leads to for [`DIRECTORY_AGE`] after the moment when the client asked,
    /// with the right to search the way to it; unless the client's own session changes that.
    pub leased: bool,
}

/// What became of a change that was asked for before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recalled {
    /// It was done, with this answer.
    Done(Changed),
    /// It was not done, and is refused from now on.
    NotDone,
}

/// Where a segment is, and the keys of some of its units. No message has a key of a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SegmentPlace {
    /// The segment.
    pub segment: SegmentNo,
    /// The keys of exactly the units that the client may read or write.
    pub keys: PositionKeys,
    /// The disk.
    pub disk: DiskId,
    /// The disk's block that is the segment's block 0.
    pub start: u64,
}

/// A part of a file as a client needs it to read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Map {
    /// The file now.
    pub inode: Inode,
    /// Chunks that are not holes, by index; to be checked with `Chunk::replace`'s rules before use.
    pub chunks: Vec<(u64, Vec<Extent>)>,
    /// The segments they name.
    pub segments: Vec<SegmentPlace>,
    /// What lets the client read them.
    pub tickets: Vec<Ticket>,
}

/// A write grant as a client gets it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Granted {
    /// Its number.
    pub grant: WriteGrantId,
    /// The segment.
    pub place: SegmentPlace,
    /// First block in the segment.
    pub position: u32,
    /// How many.
    pub blocks: u32,
    /// Whether the client draws a part of the nonces for each append.
    pub append_nonces: bool,
    /// What lets the client write them.
    pub ticket: Ticket,
}

/// What was written, and under which incarnation of its disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    /// The grant.
    pub grant: WriteGrantId,
    /// The disk's incarnation when it acknowledged the write.
    pub boot: Boot,
    /// The disk has made it durable: no flush is needed for it. A client that says so wrongly loses its own data.
    pub durable: bool,
    /// What and where.
    pub extent: WrittenExtent,
}

/// What became of data that was committed to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The stamp that covers it.
    pub stamp: u64,
    /// Committed data whose stamp is at or below this is durable.
    pub settled: u64,
    /// The file's modification times in their order: for each part that was committed at once, before and after it. By these the client finds
    /// out how much of it a server that was restarted still has, and whether somebody else changed the file since.
    pub moments: Vec<Timestamp>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Committed data whose stamp is at or below this is durable.
    pub settled: u64,
    /// The server's clock, seconds since 1970 and nanoseconds.
    pub clock: (u64, u32),
}

/// A lock that a client held when its server ended, and claims again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockClaim {
    /// The file, which the session has open.
    pub no: InodeNo,
    /// Which locks of it.
    pub table: LockTable,
    /// Who held it.
    pub owner: LockOwner,
    /// What was held.
    pub lock: Lock,
}

/// A part of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The position of the next new name before this was read: every name that existed then has a lower one.
    pub next: u64,
    /// The names, in the order of their positions.
    pub entries: Vec<(DirEntry, Inode)>,
}

/// A file in a snapshot. Its number is that of the live file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastFile {
    /// The number.
    pub no: InodeNo,
    /// Of all but directories: a directory of the snapshot, and the file's name in it. The user must be allowed to search that.
    pub named: Option<(InodeNo, Vec<u8>)>,
}

/// What is read of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "each is the call of its name, of the live file system"
)]
pub enum Past {
    Lookup {
        parent: InodeNo,
        name: Vec<u8>,
    },
    Attributes(PastFile),
    /// Answers with the attributes of a file that may be read.
    Open(PastFile),
    ReadDir {
        no: InodeNo,
        after: u64,
        limit: u32,
    },
    Xattr(PastFile, Vec<u8>),
    XattrNames(PastFile),
    Map {
        file: PastFile,
        first: u64,
        count: u32,
    },
    Seek {
        file: PastFile,
        offset: u64,
        hole: bool,
    },
}

/// The answer to [`Past`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the answer to the calls that it names")]
pub enum PastAnswer {
    /// To lookup, attributes and open.
    Inode(Box<Inode>),
    /// To read_dir.
    Listing(Listing),
    /// To xattr.
    Value(Vec<u8>),
    /// To xattr_names.
    Names(Vec<Vec<u8>>),
    /// To map; its inode is that of the snapshot.
    Map(Box<Map>),
    /// To seek.
    Offset(u64),
}

/// Which call of a session it is. One whose answer was lost is asked for again by the same number, and counts once: `slot` is below
/// [`SLOTS_MAX`] and has one call at a time, `sequence` rises with each call of the slot, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// The slot.
    pub slot: u32,
    /// The number in the slot.
    pub sequence: u64,
}

/// How an open counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// One more.
    New(Once),
    /// Of a file that the client had open in the session before this one: one, if it has none yet.
    Again,
}

/// The calls. Every one but `hello` and `administer` refuses with `NoSession` where the session is over.
#[tarpc::service]
pub trait Metadata {
    /// Begins a session, or goes on with one after a lost connection.
    async fn hello(version: u32, session: Option<SessionId>) -> Reply<Welcome>;
    /// Keeps the session alive.
    async fn beat(session: SessionId) -> Reply<Heartbeat>;
    /// Ends the session: what it held is free.
    async fn bye(session: SessionId) -> Reply<()>;
    /// A name in a directory.
    async fn lookup(session: SessionId, parent: InodeNo, name: Vec<u8>) -> Reply<Found>;
    /// Attributes.
    async fn attributes(session: SessionId, no: InodeNo) -> Reply<Inode>;
    /// A directory after a cookie.
    async fn read_dir(session: SessionId, no: InodeNo, after: u64, limit: u32) -> Reply<Listing>;
    /// An extended attribute.
    async fn xattr(session: SessionId, no: InodeNo, name: Vec<u8>) -> Reply<Vec<u8>>;
    /// The names of all extended attributes.
    async fn xattr_names(session: SessionId, no: InodeNo) -> Reply<Vec<Vec<u8>>>;
    /// Space of the disks.
    async fn space(session: SessionId) -> Reply<RoomSpace>;
    /// Says which client this is, once in a session and before its first change.
    async fn attach(session: SessionId, client: ClientId) -> Reply<()>;
    /// Does a change once. `slot` is below [`SLOTS_MAX`], `sequence` rises with each change of the slot, from 1.
    async fn change(session: SessionId, slot: u32, sequence: u64, change: Change)
    -> Reply<Changed>;
    /// What became of a change; it is not done afterwards if it was not before.
    async fn recall(session: SessionId, slot: u32, sequence: u64) -> Reply<Recalled>;
    /// Opens a file, which then outlives its last name until it is closed. Its attributes.
    async fn open(
        session: SessionId,
        opening: Opening,
        no: InodeNo,
        access: Access,
    ) -> Reply<Inode>;
    /// Undoes opens: of each file so many; at most [`CLOSED_MAX`] files.
    async fn close(session: SessionId, once: Once, closed: Vec<(InodeNo, u64)>) -> Reply<()>;
    /// Maps of up to `count` chunks (1 to 64) from `first` on, with what it takes to read them.
    async fn map(session: SessionId, no: InodeNo, first: u64, count: u32) -> Reply<Map>;
    /// The next data (or hole) at or after an offset.
    async fn seek(session: SessionId, no: InodeNo, offset: u64, hole: bool) -> Reply<u64>;
    /// Grants `blocks` blocks (1 to 1024) to write to.
    async fn grant(session: SessionId, blocks: u32) -> Reply<Granted>;
    /// Takes what was written into a file; with `onto`, `Changed` where its modification time is another one. With `sync`, everything committed and changed so far is durable when this returns, or
    /// the answer says that it is not.
    async fn place(
        session: SessionId,
        no: InodeNo,
        written: Vec<Written>,
        onto: Option<Timestamp>,
        sync: bool,
    ) -> Reply<Committed>;
    /// Releases grants, at most [`GRANTS_MAX`].
    async fn give_back(session: SessionId, grants: Vec<WriteGrantId>) -> Reply<()>;
    /// Makes all committed data and changes so far durable; returns the stamp covered.
    async fn sync(session: SessionId) -> Reply<u64>;
    /// The lock in the way, if any.
    async fn test_lock(
        session: SessionId,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Reply<Option<Lock>>;
    /// Takes or releases a lock; waits up to a second where `wait` says so, then `WouldBlock`: ask again. `NoSpace`, and no change, where
    /// the session would hold more than [`LOCKS_MAX`] ranges: also a release that splits one.
    async fn set_lock(
        session: SessionId,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
    ) -> Reply<()>;
    /// The snapshots of the file system, by number.
    async fn snapshots(session: SessionId) -> Reply<Vec<Snapshot>>;
    /// Reads what was, in the snapshot of this number. Allowed is what the user may do by the rights of that moment and by those of now, where
    /// the file still exists. `Stale` where there is no such snapshot.
    async fn past(session: SessionId, snapshot: u64, what: Past) -> Reply<PastAnswer>;
    /// Claims again what the client held when an earlier server ended; for each whether the session has it now. `former`: the
    /// sessions in which that may be, at most [`FORMER_MAX`]. At most [`LOCKS_MAX`] claims. Says, also without claims, that the client
    /// has no others.
    async fn reclaim_locks(
        session: SessionId,
        former: Vec<SessionId>,
        claims: Vec<LockClaim>,
    ) -> Reply<Vec<bool>>;
    /// What an administrator asks; nobody else is answered, and an administrator is answered nothing else.
    async fn administer(version: u32, request: admin::Request) -> Reply<admin::Answer>;
}
