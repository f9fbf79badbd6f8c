//! The metadata server of shared storage: keeps a room's names, decides who may do what, and has its data on network disks, which
//! clients read and write themselves.
//!
//! To begin with, copy `examples/share_room.rs`.
//!
//! 1. The server's room is the only place where the file system changes: a client asks for operations, the server checks each
//!    against its user's rights, and the room does it. A malicious client harms only what its user may write.
//! 2. An operation on names or attributes is durable before it is acknowledged; data is, when `fsync` or a lock's release
//!    returns.
//! 3. A right that a call removes is revoked on the disks before the call returns.
//! 4. No wait is without end.
//!
//! It deliberately does not know FUSE, errno, or the command line.

#![forbid(unsafe_code)]

pub mod audit;
pub mod authority;
pub mod enrol;
mod fence;
pub mod locks;
pub mod placement;
pub mod policy;
pub mod server;
pub mod sessions;
