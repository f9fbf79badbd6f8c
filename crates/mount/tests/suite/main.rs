//! A mount by the kernel, and what programs see there; what needs a process of its own is beside this.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod broken;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod flags;
mod full;
mod lifecycle;
mod names;
mod options;
mod permissions;
mod shared;
mod snapshots;
mod times;
