//! A metadata server with real disks and clients; what needs a process of its own is beside this.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod admission;
mod claims;
#[path = "../common/mod.rs"]
mod common;
mod ends;
#[path = "../../../mount/tests/common/forbid.rs"]
mod forbid;
mod full;
mod golden;
mod grace;
mod hostile;
mod keys;
mod limits;
mod locks;
mod restores;
mod server;
mod shared;
mod snapshots;
mod standby;
mod threads;
mod unreached;
