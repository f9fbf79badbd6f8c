//! Shared storage: the metadata server, which keeps a room's names and decides who may do what, and its client, which reads
//! and writes the network disks itself and is mounted like a room.
//!
//! To begin with, copy `examples/share_room.rs`.
//!
//! 1. The server's room is the only place where the file system changes: a client asks for operations, the server checks each
//!    against its user's rights, and the room does it. A client that lies harms only what its user may write.
//! 2. An operation on names or attributes is durable before it is acknowledged; data is, when `fsync` or a lock's release
//!    returns.
//! 3. A right that is taken away is revoked on the disks before the call that takes it returns.
//! 4. No wait is without end.
//!
//! It deliberately does not know FUSE, errno, or the command line.

#![forbid(unsafe_code)]

/// The port of a metadata server where none is named.
pub const DEFAULT_PORT: u16 = 7420;

pub mod authority;
pub mod client;
pub mod enrol;
pub mod locks;
pub mod placement;
pub mod policy;
pub mod rpc;
pub mod server;
pub mod sessions;
