//! Network disks: blocks on a network, for requests that carry a valid capability.
//!
//! To begin with, copy `examples/capabilities.rs`.
//!
//! The design is that of "Block-Level Security for Network-Attached Disks" (Aguilera, Ji, Lillibridge, MacCormick, Oertli,
//! Andersen, Burrows, Mann, Thekkath; USENIX FAST 2003), with today's primitives. The bytes are in `docs/netdisk.md`.
//!
//! 1. A disk acts on a request only after it saw that the request's capability is of a valid group, not revoked, not
//!    expired, for this disk, that its secret is known to who asks, that it covers the blocks, and that the request is new.
//! 2. What a disk keeps for all this is bounded, whatever the number of clients.
//! 3. A revocation returns when no request under the revoked capability is running or can begin.
//! 4. After a restart a disk refuses every request until its valid groups are known again.
//!
//! It deliberately does not know files, names, users, or what the blocks hold.

#![forbid(unsafe_code)]

mod attachment;
mod bytes;
pub mod capability;
mod certificate;
pub mod client;
mod first_block;
mod frame;
mod groups;
mod key_file;
mod keys;
mod reason;
mod replay;
pub mod server;
mod session;
mod sign;
mod store;
mod stored;
mod tls;
mod wire;

pub use capability::{
    BLOCK_LEN, BlockExtent, Boot, Capability, CapabilityId, ClientId, DiskId, DiskKey, EXTENTS_MAX,
    GroupId, Mode, Secret, Ticket,
};
pub use certificate::{DiskCertificate, certificate_end, certificate_hash};
pub use client::{
    Admin, DiskAddress, DiskClient, DiskError, DiskStatus, Lifetime, Protection, Writer,
};
pub use frame::{CAPABILITIES_PER_GROUP, GROUPS_MAX, Op};
pub use key_file::{KeyFile, KeyFileError, PreviousKeys};
pub use reason::Reason;
pub use store::{Store, StoreError, Surroundings};
pub use stored::{PROOF_MAX, StoredDevice};
