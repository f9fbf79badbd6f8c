//! What a metadata server and its clients share: the messages, and the identity file of a user.
//!
//! To begin with, copy `examples/share_room.rs` of `metadata-server`.
//!
//! It deliberately does not know how a room is stored, or who may do what.

#![forbid(unsafe_code)]

pub mod admin;
pub mod identity;
pub mod rpc;
pub mod transport;

/// The port of a metadata server where none is named.
pub const DEFAULT_PORT: u16 = 7420;
